"""Managed memory of the emulated driver: prefetches are remembered for each range of pages (recorded: advice)."""

from tests.emulator.conftest import programs

HEAD = """from tests.emulator.memory_calls import *
start()
PREFETCHED, PREFETCHED_TYPE, PREFETCHED_ID = 4, 7, 8
memory = new(cuda.cuMemAllocManaged, c_uint64, 5 * 4096, 1)
base = memory.value
def ask(attribute, start=0, size=5 * 4096, count=1):
    values = (c_int * count)()
    ok(cuda.cuMemRangeGetAttribute(values, 4 * count, attribute, base + start, size))
    return list(values) if count > 1 else values[0]
stream = new(cuda.cuStreamCreate, 1)
"""


PROGRAMS = {
    "freeing_in_a_stream": """
# Managed memory is not freed in the order of a stream: the call answers 801, and the memory stays.
for order in (None, stream):
    assert cuda.cuMemFreeAsync(base, order) == 801
assert cuda.cuMemFreeAsync(base, c_void_p(4096)) == 400
memmove(base, b"host", 4)
ok(cuda.cuMemFree_v2(base))
""",
    "prefetches": """
# The last location that a range was prefetched to is known, for single prefetches and for batches.
ok(cuda.cuMemPrefetchAsync(base, 4096, 1, None))
ok(cuda.cuMemPrefetchAsync_v2(base + 4096, 4096, Location(HOST, 3), 0, stream))
assert [ask(PREFETCHED, at, 4096) for at in (0, 4096, 8192)] == [1, -1, -2]
assert [ask(at, 0, 1) for at in (PREFETCHED_TYPE, PREFETCHED_ID)] == [DEVICE, 1] and ask(PREFETCHED) == -2
def batch(function="cuMemPrefetchBatchAsync", firsts=(0, 2), flags=0, on=stream, sizes=(4096,) * 3, locations=2):
    return getattr(cuda, function)(
        (c_uint64 * 3)(base, base + 4096, base + 8192), (c_size_t * 3)(*sizes), c_size_t(3),
        (Location * 2)(Location(DEVICE, 1), Location(HOST, 0)), (c_size_t * 2)(*firsts), c_size_t(locations),
        c_uint64(flags), on)
ok(batch())
assert [ask(PREFETCHED, at, 4096) for at in (0, 4096, 8192)] == [1, 1, -1]
ok(batch("cuMemDiscardAndPrefetchBatchAsync", (0, 1)))
assert [ask(PREFETCHED, at, 4096) for at in (0, 4096, 8192)] == [1, -1, -1]
assert batch(firsts=(1, 2)) == batch(firsts=(0, 0)) == batch(firsts=(0, 3)) == batch(locations=0) == 1
""",
}
test_programs = programs(PROGRAMS, HEAD, prefetches={"device": "sm_90:2"})
