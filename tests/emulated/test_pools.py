"""Memory pools of the emulated driver: what is reserved and used, whose they are, and faults."""

from __future__ import annotations

import pytest

from tests.emulated.conftest import programs

HEAD = "from tests.emulated.memory_calls import *\nstart()\n"


@pytest.mark.parametrize("name", ["cuMemAllocAsync", "cuMemAllocFromPoolAsync", "cuMemAlloc_v2", "cuMemHostAlloc"])
def test_a_machine_without_memory(name, check) -> None:
    """Where the machine itself has no memory left the answer is 2, and what was there stays usable."""
    check(
        HEAD
        + f"""
pool, address = new_pool(), c_uint64()
code, kept = from_pool(pool, 8 * MIB)
resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))  # the addresses of the device are reserved already
size = c_size_t(2 << 30)
rest = {{"cuMemAllocAsync": (None,), "cuMemAllocFromPoolAsync": (pool, None), "cuMemHostAlloc": (0,)}}.get({name!r}, ())
before = left()
assert cuda.{name}(byref(address), size, *rest) == 2
assert left() == before
write(kept, b"kept")
assert read(kept, 4) == b"kept"
"""
    )


PROGRAMS = {
    "what_may_be_a_pool": """
# A largest size, the device and the machine bound what a pool gives; that of the host is of no device by itself.
limited = PoolProperties(MANAGED, 0, Location(DEVICE, 0), max_size=2 * MIB)
assert cuda.cuMemPoolCreate(byref(c_void_p()), byref(limited)) == 1
small = new_pool(size=32 * MIB)
assert from_pool(small, 33 * MIB)[0] == 2
code, address = from_pool(small, 32 * MIB)
assert code == 0 and from_pool(small, 1)[0] == 2
ok(cuda.cuMemFree_v2(address))
assert from_pool(small, 1)[0] == 0
assert from_pool(new_pool(), 1 << 50)[0] == 2 and from_pool(new_pool(), (1 << 64) - 1)[0] == 2
for location, kind in ((HOST, PINNED), (HOST_NUMA, PINNED), (HOST, MANAGED), (DEVICE, MANAGED), (NOWHERE, MANAGED)):
    pool = new_pool((location, 0), kind)
    code, address = from_pool(pool, 100)
    assert code == 0
    memmove(address, b"text", 4)
    out = create_string_buffer(4)
    ok(cuda.cuMemcpy(ctypes.addressof(out), address, 4))  # the host has access
    assert out.raw == b"text"
    if kind == PINNED:  # and the device has none by itself
        assert cuda.cuMemcpyDtoH_v2(ctypes.addressof(out), address, 4) == cuda.cuMemsetD8_v2(address, 0, 1) == 1
        assert cuda.cuMemGetAddressRange_v2(None, None, address) == 500
        ok(cuda.cuMemPoolSetAccess(pool, byref(Access(Location(DEVICE, 0), 3)), c_size_t(1)))
    assert read(address, 4) == b"text"
    assert cuda.cuMemGetAddressRange_v2(None, None, address) == (500 if kind == PINNED else 0)
""",
    "no_files_for_others": """
# Where a process may open no more files, physical memory that others can open is 2, and the device keeps its own.
before = left()
resource.setrlimit(resource.RLIMIT_NOFILE, (0, 4096))
assert physical(2 * MIB, handle_types=POSIX_FILE)[0] == 2 and left() == before
""",
    "faults": """
# An injected fault is met by name, at the call that was asked for, and the next one succeeds.
address = c_uint64()
assert [cuda.cuMemAllocAsync(byref(address), 100, None) for _ in range(3)] == [0, 2, 0]
pool = c_void_p()
assert cuda.cuMemPoolCreate(byref(pool), byref(PoolProperties(PINNED, 0, Location(DEVICE, 0)))) == 801
assert last_event()["injected"]
""",
    "against_a_model": """
# Random sequences of calls over pools agree with a model: contents survive, and every count is right.
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, invariant, run_state_machine_as_test
class Pools(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.before, self.pools, self.live = left(), [], []
    @rule()
    def create(self):
        if len(self.pools) < 4:
            self.pools.append(new_pool())
    @rule(which=st.integers(0, 9), size=st.sampled_from([1, 511, 512, 513, 100_000, 5 * MIB, 32 * MIB, 33 * MIB]))
    def allocate(self, which, size):
        if not self.pools:
            return
        pool = self.pools[which % len(self.pools)]
        code, address = from_pool(pool, size)
        assert code == 0 and address % 512 == 0
        assert all(address + size <= other or other + room <= address for other, room, *_ in self.live)
        mark = (len(self.live) % 250 + 1).to_bytes(1, "little") * min(size, 64)
        write(address, mark)
        write(address + size - 1, mark[:1])
        self.live.append((address, size, mark, pool))
    @rule(which=st.integers(0, 99), in_order=st.booleans())
    def free(self, which, in_order):
        if not self.live:
            return
        address = self.live.pop(which % len(self.live))[0]
        ok(cuda.cuMemFreeAsync(address, None) if in_order else cuda.cuMemFree_v2(address))
        assert cuda.cuMemFree_v2(address) == 1
    @rule(which=st.integers(0, 9), keep=st.sampled_from([0, 1, 32 * MIB, 100 * MIB]))
    def trim(self, which, keep):
        if self.pools:
            pool = self.pools[which % len(self.pools)]
            reserved = pool_value(pool, RESERVED)
            ok(cuda.cuMemPoolTrimTo(pool, keep))
            assert min(reserved, keep) <= pool_value(pool, RESERVED) <= reserved
    @rule()
    def synchronize(self):
        ok(cuda.cuCtxSynchronize())
        for pool in self.pools:
            assert bool(pool_value(pool, RESERVED)) == any(one[3] is pool for one in self.live)
    @rule(which=st.integers(0, 9))
    def destroy(self, which):
        if self.pools:
            ok(cuda.cuMemPoolDestroy(self.pools.pop(which % len(self.pools))))
    @invariant()
    def counts(self):
        for pool in self.pools:
            used = sum(size for _, size, _, owner in self.live if owner is pool)
            reserved = pool_value(pool, RESERVED)
            assert pool_value(pool, USED) == used <= reserved and reserved % (32 * MIB) == 0
            assert pool_value(pool, USED_HIGH) >= used and pool_value(pool, RESERVED_HIGH) >= reserved
        for address, size, mark, _ in self.live:
            assert read(address, len(mark)) == mark and read(address + size - 1, 1) == mark[:1]
    def teardown(self):
        for address, *_ in self.live:
            ok(cuda.cuMemFree_v2(address))
        for pool in self.pools:
            ok(cuda.cuMemPoolDestroy(pool))
        assert left() == self.before
run_state_machine_as_test(Pools, settings=settings(max_examples=60, stateful_step_count=30, deadline=None,
                                                  database=None, derandomize=True))
""",
}
test_programs = programs(PROGRAMS, HEAD, faults={"faults": "cuMemAllocAsync:2=2;cuMemPoolCreate:1=801"})
