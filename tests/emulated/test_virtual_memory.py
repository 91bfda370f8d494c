"""Virtual memory of the emulated driver: addresses, physical memory, mappings, access, and other processes."""

from __future__ import annotations

from tests.emulated.conftest import programs

HEAD = "from tests.emulated.memory_calls import *\nstart()\n"


PROGRAMS = {
    "reserving_and_creating": """
# Sizes, alignments and properties are checked; a hint is followed where the addresses are free.
granularity = c_size_t()
properties = PhysicalProperties(PINNED, 0, Location(DEVICE, 0))
for option in (0, 1):
    assert get(cuda.cuMemGetAllocationGranularity, c_size_t, byref(properties), option) == 2 * MIB
assert cuda.cuMemGetAllocationGranularity(byref(granularity), byref(properties), 2) == 1
assert cuda.cuMemGetAllocationGranularity(None, byref(properties), 0) == 1
assert cuda.cuMemGetAllocationGranularity(byref(granularity), None, 0) == 1
assert reserve(0)[0] == reserve(MIB)[0] == reserve(2 * MIB, 3)[0] == reserve(2 * MIB, 0, 4096)[0] == 1
assert reserve(1 << 60)[0] == 2
code, address = reserve(4 * MIB, 64 * MIB)
assert code == 0 and address % (64 * MIB) == 0
assert cuda.cuMemAddressFree(address, 2 * MIB) == cuda.cuMemAddressFree(address + 2 * MIB, 2 * MIB) == 1
ok(cuda.cuMemAddressFree(address, 4 * MIB))
assert cuda.cuMemAddressFree(address, 4 * MIB) == 1
assert reserve(2 * MIB, 0, address) == (0, address)
code, other = reserve(2 * MIB, 0, address)
assert code == 0 and other != address
before = left()
assert physical(0)[0] == physical(MIB)[0] == 1
assert physical(2 * MIB, (DEVICE, 9))[0] == 101 and physical(2 * MIB, (HOST_NUMA_CURRENT, 0))[0] == 1
assert physical(2 * MIB, (HOST, 0), POSIX_FILE)[0] == 1
assert physical(2 * MIB, handle_types=8)[0] == 800 and physical(2 * MIB, handle_types=2)[0] == 1
assert physical(1 << 50)[0] == 2
code, handle = physical(4 * MIB)
assert code == 0 and left() == before - 4 * MIB
ok(cuda.cuMemGetAllocationPropertiesFromHandle(byref(properties), handle))
assert (properties.type, properties.location.type, properties.location.id) == (PINNED, DEVICE, 0)
assert cuda.cuMemGetAllocationPropertiesFromHandle(byref(properties), 12345) == 1
ok(cuda.cuMemRelease(handle))
assert cuda.cuMemRelease(handle) == cuda.cuMemRelease(0) == 1 and left() == before
""",
    "mapping": """
# Memory is usable where it is mapped with access, at several addresses at once, and gone with its last mapping.
before = left()
code, base = reserve(8 * MIB)
code, handle = physical(2 * MIB)
def map(address, size=2 * MIB, offset=0, which=None):
    return cuda.cuMemMap(address, size, offset, which or handle, 0)
assert map(base, 4 * MIB) == map(base, MIB) == map(base, offset=2 * MIB) == 801
assert map(base + 1) == map(base, 0) == map(0, MIB) == map(base, which=77) == 1
assert map(base - 2 * MIB) == map(base + 8 * MIB) == 1
ok(map(base))
assert map(base) == 1
host = create_string_buffer(b"text", 64)
assert cuda.cuMemcpyHtoD_v2(base, ctypes.addressof(host), 4) == 1  # no access yet
assert give_access(base, 4 * MIB) == give_access(base + MIB, MIB) == give_access(base, 2 * MIB, 2) == 1
assert give_access(base, 2 * MIB, 3, (DEVICE, 9)) == 101
flags = c_uint64(9)
assert get(cuda.cuMemGetAccess, c_uint64, byref(Location(DEVICE, 0)), base) == 0
ok(give_access(base, 2 * MIB))
assert get(cuda.cuMemGetAccess, c_uint64, byref(Location(DEVICE, 0)), base + MIB) == 3
assert cuda.cuMemGetAccess(byref(flags), byref(Location(DEVICE, 0)), base + 2 * MIB) == 1
write(base + 100, b"hello")
ok(map(base + 4 * MIB))
ok(give_access(base + 4 * MIB, 2 * MIB))
assert read(base + 4 * MIB + 100, 5) == b"hello"
write(base + 4 * MIB + 100, b"HELLO")
assert read(base + 100, 5) == b"HELLO"
code, second = physical(2 * MIB)
ok(map(base + 2 * MIB, which=second))
ok(give_access(base, 6 * MIB))
write(base + 2 * MIB - 3, b"across")  # three mappings, one range
assert read(base + 2 * MIB - 3, 6) == b"across"
assert cuda.cuMemcpyDtoH_v2(ctypes.addressof(host), base + 6 * MIB - 2, 4) == 1
assert cuda.cuMemAddressFree(base, 8 * MIB) == 1
retained = c_uint64()
assert get(cuda.cuMemRetainAllocationHandle, c_uint64, base + 5 * MIB) == handle
assert cuda.cuMemRetainAllocationHandle(byref(retained), base + 7 * MIB) == 1
ok(cuda.cuMemRelease(handle))
ok(cuda.cuMemRelease(handle))
assert cuda.cuMemRelease(handle) == 1
assert cuda.cuMemUnmap(base, MIB) == cuda.cuMemUnmap(base, 0) == cuda.cuMemUnmap(base + 8 * MIB, 2 * MIB) == 1
ok(cuda.cuMemUnmap(base + 6 * MIB, 2 * MIB))
ok(cuda.cuMemUnmap(base, 2 * MIB))
assert read(base + 4 * MIB + 100, 5) == b"HELLO" and left() == before - 4 * MIB
ok(cuda.cuMemUnmap(base + 2 * MIB, 4 * MIB))
assert left() == before - 2 * MIB
ok(cuda.cuMemRelease(second))
ok(cuda.cuMemAddressFree(base, 8 * MIB))
assert left() == before
""",
    "what_is_not_there": """
# Devices without multicast and drivers without sparse arrays say so.
value = new(cuda.cuDeviceGetAttribute, c_int, 132, 0)
assert value.value == 0
out, plain, sparse = c_uint64(), c_void_p(), c_void_p()
for array, flags in (plain, 0), (sparse, 0x40):  # CUDA_ARRAY3D_DESCRIPTOR: 4096 x 4096 of one byte each
    descriptor = (c_uint64 * 5)(4096, 4096, 0, 1 | 1 << 32, flags)
    ok(cuda.cuArray3DCreate_v2(byref(array), byref(descriptor)))
assert cuda.cuMulticastGetGranularity(byref(out), None, 0) == cuda.cuMulticastAddDevice(c_uint64(5), 0) == 801
assert "MULTICAST" in refused("cuMulticastCreate", byref(out), byref(out))
assert "MULTICAST" in refused("cuMulticastGetGranularity", byref(out), byref(out), 0)
assert "sparse" in refused("cuMemMapArrayAsync", (c_uint64 * 12)(0, sparse.value), 1, None)
assert cuda.cuMemMapArrayAsync((c_uint64 * 12)(0, plain.value), 1, None) == cuda.cuMemMapArrayAsync(None, 1, None) == 1
""",
    "sharing": """
# A file of physical memory is the same memory in another process; what asked for none has none.
code, handle = physical(2 * MIB, handle_types=POSIX_FILE)
code, private = physical(2 * MIB)
file = c_int()
assert cuda.cuMemExportToShareableHandle(byref(file), private, POSIX_FILE, 0) == 1
assert cuda.cuMemExportToShareableHandle(byref(file), handle, 8, 0) == 1
ok(cuda.cuMemExportToShareableHandle(byref(file), handle, POSIX_FILE, 0))
code, base = reserve(2 * MIB)
ok(cuda.cuMemMap(base, 2 * MIB, 0, handle, 0))
ok(give_access(base, 2 * MIB))
write(base, b"from parent")
child = '''
from tests.emulated.cu import *
from tests.emulated.memory_calls import *
start()
handle = c_uint64()
assert cuda.cuMemImportFromShareableHandle(byref(handle), 0, POSIX_FILE) == 1
assert cuda.cuMemImportFromShareableHandle(byref(handle), FILE, 8) == 800
ok(cuda.cuMemImportFromShareableHandle(byref(handle), FILE, POSIX_FILE))
code, base = reserve(2 * MIB)
ok(cuda.cuMemMap(base, 2 * MIB, 0, handle.value, 0))
ok(give_access(base, 2 * MIB))
assert read(base, 11) == b"from parent"
write(base, b"from child!")
'''.replace("FILE,", f"{file.value},")
child = child.replace("POSIX_" + str(file.value), "POSIX_FILE")
subprocess.run([sys.executable, "-c", child], check=True, pass_fds=[file.value], stdin=subprocess.DEVNULL)
assert read(base, 11) == b"from child!"
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
