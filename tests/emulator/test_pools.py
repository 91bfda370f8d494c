"""Memory pools of the emulated driver: what is reserved and used, whose they are, and faults."""

from tests.emulator.conftest import ROOT, programs

HEAD = "from tests.emulator.memory_calls import *\nstart()\n"


PROGRAMS = {
    "a_machine_without_memory": """
# Where the machine itself has no memory left the answer is 2, and what was there stays usable.
pool, address, size = new_pool(), c_uint64(), c_size_t(2 << 30)
code, kept = from_pool(pool, 8 * MIB)
resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))  # the addresses of the device are reserved already
before = left()
for name, *rest in (("Alloc_v2",), ("AllocAsync", None), ("AllocFromPoolAsync", pool, None), ("HostAlloc", 0)):
    assert getattr(cuda, f"cuMem{name}")(byref(address), size, *rest) == 2, name
    assert left() == before
write(kept, b"kept")
assert read(kept, 4) == b"kept"
""",
    "what_may_be_a_pool": """
# A largest size, the device and the machine bound what a pool gives; that of the host is of no device by itself.
limited = PoolProperties(MANAGED, 0, Location(DEVICE, 0), max_size=2 * MIB)
assert cuda.cuMemPoolCreate(byref(c_void_p()), byref(limited)) == 1
small = new_pool(size=32 * MIB)
assert from_pool(small, 33 * MIB)[0] == 2
gone, stream = new_pool(), new(cuda.cuStreamCreate, 1)
ok(cuda.cuMemPoolDestroy(gone)), ok(cuda.cuStreamBeginCapture_v2(stream, 2))
for where in (None, stream):  # also where an allocation only becomes a node
    assert cuda.cuMemAllocFromPoolAsync(byref(c_uint64()), c_size_t(8), gone, where) == 1
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
    "what_a_stream_will_have_freed": """
# Memory is given out again in the stream that frees it behind a gate, and what is left of it stays to be freed; another
# stream waits for it where there is no other, unless the pool forbids that.
INTERNAL, RESERVED, USED = 3, 5, 7  # CU_MEMPOOL_ATTR_*
pool, gate, flag, got = new_pool(size=32 * MIB), c_uint64(), c_int(0), c_uint64()
s, t = (new(cuda.cuStreamCreate, 1) for _ in range(2))
ok(cuda.cuMemAlloc_v2(byref(gate), 512)), ok(cuda.cuMemsetD8_v2(gate, 0, 512))
def of(attribute):
    return get(cuda.cuMemPoolGetAttribute, pool, attribute, c_uint64)
def allocate(size, stream):
    return cuda.cuMemAllocFromPoolAsync(byref(got), c_size_t(size), pool, stream), got.value
code, whole = allocate(32 * MIB, s)
ok(code), ok(cuda.cuStreamWaitValue32_v2(s, gate, 1, 0)), ok(cuda.cuMemFreeAsync(c_uint64(whole), s))
assert of(USED) == 0
assert allocate(8 * MIB, s) == (0, whole) and of(USED) == 8 * MIB
ok(cuda.cuMemPoolSetAttribute(pool, INTERNAL, byref(flag)))
assert allocate(MIB, t)[0] == 2
flag.value = 1
ok(cuda.cuMemPoolSetAttribute(pool, INTERNAL, byref(flag)))
assert allocate(24 * MIB, t) == (0, whole + 8 * MIB) and of(USED) == of(USED + 1) == 32 * MIB
assert cuda.cuStreamQuery(t) == 600  # it waits for the first
ok(cuda.cuMemsetD8_v2(gate, 1, 512)), ok(cuda.cuStreamSynchronize(t)), ok(cuda.cuStreamSynchronize(s))
assert of(USED) == of(RESERVED) == 32 * MIB and allocate(1, s)[0] == 2
""",
    "faults": """
# An injected fault is met by name, at the call that was asked for, and the next one succeeds.
address = c_uint64()
assert [cuda.cuMemAllocAsync(byref(address), 100, None) for _ in range(3)] == [0, 2, 0]
pool = c_void_p()
assert cuda.cuMemPoolCreate(byref(pool), byref(PoolProperties(PINNED, 0, Location(DEVICE, 0)))) == 801
assert last_event()["injected"]
""",
    "managed_pools_are_of_13": """
# Only pinned memory comes from pools before CUDA 13 (cuda.h).
codes = [cuda.cuMemPoolCreate(byref(c_void_p()), byref(PoolProperties(kind, 0, Location(DEVICE, 0))))
         for kind in (PINNED, MANAGED)]
assert codes == [0, 1]
""",
}
test_programs = programs(
    PROGRAMS,
    HEAD,
    faults={"faults": "cuMemAllocAsync:2=2;cuMemPoolCreate:1=801"},
    managed_pools_are_of_13={"version": "12.9"},
)


def test_random_calls(check, as_kept) -> None:
    """Random calls on a pool take the kept places, counted from the first one, and count the kept bytes."""
    out = check(
        """
context = start()
random.seed(7)
SIZES = (1, 512, 513, 100_000, 1 << 20, 9 << 20, 31 << 20, 32 << 20, 33 << 20)
streams, edge, gate = [stream(1), stream(1), stream(0), None], event(2), c_uint.from_address(pinned())
def pool_of(settings):
    pool = new(cuda.cuMemPoolCreate, struct.pack("4I72x", 1, 0, 1, 0))
    for attribute, value in settings.items():
        ok(cuda.cuMemPoolSetAttribute(pool, attribute, byref(c_uint64(value))))
    return pool
for number in range(250):
    settings = {1: random.randrange(2), 2: random.randrange(2), 3: random.randrange(2), 4: random.choice((0, 40 << 20))}
    pool, live, places, first, gated = pool_of(settings), [], [], 0, number % 2
    gate.value = 1 - gated
    ok(cuda.cuStreamWaitValue32_v2(streams[number // 2 % 2], c_uint64(addressof(gate)), 1, 1))
    for step in range(random.randrange(4, 24)):
        at, what = random.choice(streams), random.randrange(10)
        if what < 5:
            made = c_uint64()
            code = cuda.cuMemAllocFromPoolAsync(byref(made), c_size_t(random.choice(SIZES)), pool, at)
            first = first or made.value
            live.append(made.value)
            places.append(made.value - first if not code else f"error {code}")
        elif what < 8 and live:
            ok(cuda.cuMemFreeAsync(c_uint64(live.pop(random.randrange(len(live)))), at))
            places.append("free")
        elif what == 8:
            ok(cuda.cuEventRecord(edge, at) or cuda.cuStreamWaitEvent(random.choice(streams), edge, 0))
        elif not gated:
            ok(cuda.cuStreamSynchronize(at))
            ok(cuda.cuMemPoolTrimTo(pool, c_size_t(random.choice((0, 1 << 20, 40 << 20)))))
        if step % 4 == 3:
            places.append([get(cuda.cuMemPoolGetAttribute, pool, each, c_uint64) for each in (5, 6, 7, 8)])
    gate.value = 1
    print(gated, *settings.values(), *places)
    for address in live:
        ok(cuda.cuMemFreeAsync(c_uint64(address), None))
    ok(cuda.cuCtxSynchronize() or cuda.cuMemPoolDestroy(pool))
""",
        device="h100:2,memory=2GiB",  # else it depends on the machine's
    )
    as_kept(ROOT / "tests" / "data" / "pool_places.txt", out)
