"""Virtual memory of the emulated driver against a model, and what it lacks."""

from __future__ import annotations

from tests.emulated.conftest import programs

HEAD = "from tests.emulated.memory_calls import *\nstart()\n"


PROGRAMS = {
    "what_is_not_there": """
# Devices without multicast say so.
value = new(cuda.cuDeviceGetAttribute, c_int, 132, 0)
assert value.value == 0
out = c_uint64()
assert cuda.cuMulticastGetGranularity(byref(out), None, 0) == cuda.cuMulticastAddDevice(c_uint64(5), 0) == 801
assert "MULTICAST" in refused("cuMulticastCreate", byref(out), byref(out))
assert "MULTICAST" in refused("cuMulticastGetGranularity", byref(out), byref(out), 0)
""",
    "against_a_model": """
# Random sequences of calls agree with a model of what is reserved, created, mapped and accessible.
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, invariant, run_state_machine_as_test
UNIT = 2 * MIB
class Memory(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.before, self.handles, self.mapped, self.sizes, self.text = left(), {}, {}, {}, {}
        code, self.base = reserve(8 * UNIT)
        ok(code)
    @rule(units=st.integers(1, 3))
    def create(self, units):
        if len(self.handles) < 5:
            code, handle = physical(units * UNIT)
            ok(code)
            self.handles[handle] = 1
            self.sizes[handle] = units
            self.text[handle] = bytes(8)
    @rule(which=st.integers(0, 9), slot=st.integers(0, 7), units=st.integers(1, 3))
    def map(self, which, slot, units):
        if self.handles:
            handle = sorted(self.handles)[which % len(self.handles)]
            whole, fits = units == self.sizes[handle], slot + units <= 8
            free = all(slot + units <= at or at + n <= slot for at, (n, *_) in self.mapped.items())
            code = cuda.cuMemMap(self.base + slot * UNIT, units * UNIT, 0, handle, 0)
            assert code == (801 if not whole else 0 if fits and free else 1)
            if not code:
                self.mapped[slot] = (units, handle, 0)
    @rule(slot=st.integers(0, 7), units=st.integers(1, 4), flags=st.sampled_from([0, 1, 3]))
    def access(self, slot, units, flags):
        covered = self.covered(slot, units)
        assert give_access(self.base + slot * UNIT, units * UNIT, flags) == (0 if covered else 1)
        for at in covered:
            self.mapped[at] = (*self.mapped[at][:2], flags)
    def covered(self, slot, units):
        slots, at = [], slot
        while at < slot + units and at in self.mapped:
            slots.append(at)
            at += self.mapped[at][0]
        return slots if at == slot + units else []
    @rule(slot=st.integers(0, 7), units=st.integers(1, 4))
    def unmap(self, slot, units):
        overlapping = [at for at, (n, *_) in self.mapped.items() if at < slot + units and slot < at + n]
        whole = all(slot <= at and at + self.mapped[at][0] <= slot + units for at in overlapping)
        done = slot + units <= 8 and whole  # there may be holes
        assert cuda.cuMemUnmap(self.base + slot * UNIT, units * UNIT) == (0 if done else 1)
        for at in overlapping if done else ():
            del self.mapped[at]
    @rule(which=st.integers(0, 9))
    def release(self, which):
        if self.handles:
            handle = sorted(self.handles)[which % len(self.handles)]
            ok(cuda.cuMemRelease(handle))
            self.handles[handle] -= 1
            if not self.handles[handle]:
                del self.handles[handle]
                assert cuda.cuMemRelease(handle) == 1
    @rule(slot=st.integers(0, 7))
    def retain(self, slot):
        found = c_uint64()
        code = cuda.cuMemRetainAllocationHandle(byref(found), self.base + slot * UNIT)
        owner = next((h for at, (n, h, _) in self.mapped.items() if at <= slot < at + n), None)
        assert (code, found.value or None) == ((0, owner) if owner else (1, None))
        if owner:
            self.handles[owner] = self.handles.get(owner, 0) + 1
    @rule(slot=st.integers(0, 7), text=st.binary(min_size=8, max_size=8))
    def write(self, slot, text):
        units, handle, flags = self.mapped.get(slot, (0, 0, 0))
        source = create_string_buffer(text, 8)
        assert cuda.cuMemcpyHtoD_v2(self.base + slot * UNIT, ctypes.addressof(source), 8) == (0 if flags else 1) or \\
            any(at < slot < at + n for at, (n, *_) in self.mapped.items())
        if flags:
            self.text[handle] = text
    @invariant()
    def same(self):
        alive = set(self.handles) | {handle for _, handle, _ in self.mapped.values()}
        assert left() == self.before - sum(self.sizes[handle] for handle in alive) * UNIT
        for at, (_, handle, flags) in self.mapped.items():
            if flags:
                assert read(self.base + at * UNIT, 8) == self.text[handle]
    def teardown(self):
        for at, (units, *_) in self.mapped.items():
            ok(cuda.cuMemUnmap(self.base + at * UNIT, units * UNIT))
        for handle, count in self.handles.items():
            for _ in range(count):
                ok(cuda.cuMemRelease(handle))
        ok(cuda.cuMemAddressFree(self.base, 8 * UNIT))
        assert left() == self.before
run_state_machine_as_test(Memory, settings=settings(max_examples=60, stateful_step_count=30, deadline=None,
                                                   database=None, derandomize=True))
""",
}
test_programs = programs(PROGRAMS, HEAD)
