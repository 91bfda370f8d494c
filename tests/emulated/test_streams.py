"""Streams and events on the emulated driver: handles, attributes, memory operations, calls of the host."""

from __future__ import annotations

from tests.emulated.conftest import programs

PROGRAMS = {
    "handles": """
# A stream tells what it was made with; once destroyed it is 400 in every call, and an event 709.
context = start()
stream, event = new(cuda.cuStreamCreateWithPriority, 1, -99), event()
assert (get(cuda.cuStreamGetPriority, stream, c_int), get(cuda.cuStreamGetFlags, stream, c_uint)) == (-5, 1)
assert get(cuda.cuStreamGetCtx, stream, c_void_p) == context.value
assert get(cuda.cuStreamGetCtx_v2, stream, c_void_p, byref(c_void_p(5))) == context.value
for one in (stream, None, c_void_p(2)):  # the last is the default stream of the thread
    ok(cuda.cuStreamSynchronize(one))
ok(cuda.cuStreamDestroy_v2(stream))
for call in (cuda.cuStreamQuery, cuda.cuStreamSynchronize, cuda.cuStreamDestroy_v2):
    assert call(stream) == 400
assert cuda.cuEventRecord(event, stream) == cuda.cuMemsetD8Async(c_uint64(0), 0, c_size_t(0), stream) == 400
ok(cuda.cuEventDestroy_v2(event))
assert cuda.cuEventQuery(event) == cuda.cuEventDestroy_v2(event) == cuda.cuEventQuery(c_void_p(0x1234)) == 709
""",
    "without_a_context": """
# A stream is asked with a context, and an event is recorded in one; wrong flags are found before cuInit.
stream = c_void_p()
for before in (True, False):
    assert cuda.cuStreamCreate(byref(stream), 2) == cuda.cuStreamCreateWithPriority(byref(stream), 2, 0) == 1
    assert cuda.cuStreamCreate(byref(stream), 1) == (3 if before else 201)
    ok(cuda.cuInit(0))
for name, out in (("Flags", c_uint()), ("Priority", c_int()), ("Id", c_uint64()), ("Ctx", c_void_p())):
    assert getattr(cuda, "cuStreamGet" + name)(None, byref(out)) == 201
assert cuda.cuStreamQuery(None) == cuda.cuEventRecord(None, None) == 201
assert cuda.cuEventCreate(byref(c_void_p()), 0) == cuda.cuStreamCreate(byref(c_void_p()), 0) == 201
assert cuda.cuStreamWaitEvent(None, None, 0) == 201
""",
    "dead_contexts": """
# Of a context that was destroyed, streams answer 201 and events 709; both can still be destroyed.
start()
context = new(cuda.cuCtxCreate_v2, 0, 0)
stream = new(cuda.cuStreamCreate, 0)
event = new(cuda.cuEventCreate, 0)
ok(cuda.cuCtxDestroy_v2(context))
assert cuda.cuStreamQuery(stream) == cuda.cuStreamGetFlags(stream, byref(c_uint())) == 201
assert cuda.cuEventRecord(event, None) == cuda.cuEventQuery(event) == 709
assert cuda.cuMemsetD8Async(c_uint64(allocate(4)), 0, c_size_t(4), stream) == 201
ok(cuda.cuStreamDestroy_v2(stream))
ok(cuda.cuEventDestroy_v2(event))
assert (cuda.cuStreamQuery(stream), cuda.cuEventQuery(event)) == (400, 709)
""",
    "events": """
# Time is measured between events that were recorded and take time; an event is recorded in its own context.
start()
first, second, untimed = c_void_p(), c_void_p(), c_void_p()
for one, flags in ((first, 0), (second, 1), (untimed, 2)):
    ok(cuda.cuEventCreate(byref(one), flags))
for flags in (4, 5, 8):
    assert cuda.cuEventCreate(byref(c_void_p()), flags) == 1
took = c_float(-1)
ok(cuda.cuEventQuery(first))
assert cuda.cuEventElapsedTime(byref(took), first, second) == 400
for one in (first, second, untimed):
    ok(cuda.cuEventRecord(one, None))
for call in (cuda.cuEventElapsedTime, cuda.cuEventElapsedTime_v2):
    assert 0 <= get(call, c_float, first, second) < 1000
assert cuda.cuEventElapsedTime(byref(took), first, untimed) == 400
assert cuda.cuEventElapsedTime(None, first, second) == 400
assert (cuda.cuEventRecordWithFlags(first, None, 1), cuda.cuEventRecordWithFlags(first, None, 2)) == (401, 1)
context = new(cuda.cuCtxCreate_v2, 0, 0)
stream = new(cuda.cuStreamCreate, 0)
assert cuda.cuEventRecord(first, stream) == 400
ok(cuda.cuStreamWaitEvent(stream, first, 0))
""",
    "attributes": """
# Attributes are kept, copied between streams, and refused where they make no sense.
start()
one, other, value = c_void_p(), c_void_p(), (c_int * 16)()
ok(cuda.cuStreamCreateWithPriority(byref(one), 1, -3))
ok(cuda.cuStreamCreate(byref(other), 1))
def kept(stream, attribute):
    ok(cuda.cuStreamGetAttribute(stream, attribute, value))
    return value[0]
assert (kept(one, 3), kept(one, 8), kept(one, 10)) == (-1, -3, 0)
for attribute, given, code in ((3, 4, 0), (3, 0, 1), (3, 5, 1), (10, 1, 0), (10, 2, 1), (2, 1, 1), (99, 1, 1)):
    value[0] = given
    assert cuda.cuStreamSetAttribute(one, attribute, value) == code, (attribute, given)
most, window = c_int(), (c_uint64 * 8)()
ok(cuda.cuDeviceGetAttribute(byref(most), 109, 0))
for size, code in ((most.value, 0), (most.value + 1, 1), (2**64 - 1, 1)):
    window[1] = size
    assert cuda.cuStreamSetAttribute(one, 1, window) == code, size
window[1] = most.value
for ratio, hit, miss, code in ((1.0, 2, 1, 0), (1.5, 2, 1, 1), (0.5, 1, 2, 1)):  # as an H200 and cuda.h say
    struct.pack_into("fii", window, 16, ratio, hit, miss)
    assert cuda.cuStreamSetAttribute(one, 1, window) == code, (ratio, hit, miss)
ok(cuda.cuStreamGetAttribute(one, 1, window))
assert most.value == window[1] == 128 << 20
ok(cuda.cuStreamCopyAttributes(other, one))
assert (kept(other, 3), kept(other, 10)) == (4, 1)
assert cuda.cuStreamGetAttribute(one, 3, None) == 1
assert cuda.cuStreamGetAttribute(c_void_p(0x1234), 3, value) == 400
""",
    "memory_operations": """
# Values are written and waited for at once; a stream that waits for one that is not there is not ready.
start()
memory, word = allocate(64), c_uint(0)
read = lambda: [ok(cuda.cuMemcpyDtoH_v2(addressof(word), memory, 4)), word.value][1]
ok(cuda.cuStreamWriteValue32_v2(None, c_uint64(memory), 5, 0))
assert read() == 5
wanted = ((5, 0, True), (6, 0, False), (5, 1, True), (4, 1, False), (4, 2, True), (8, 2, False), (0, 3, True))
for value, flags, holds in wanted:
    stream = new(cuda.cuStreamCreate, 1)
    ok(cuda.cuStreamWaitValue32_v2(stream, c_uint64(memory), value, flags))
    assert cuda.cuStreamQuery(stream) == (0 if holds else 600), (value, flags)
    opener = {0: value, 1: value, 2: value, 3: ~value}[flags]
    ok(cuda.cuStreamWriteValue32_v2(None, c_uint64(memory), opener & 0xFFFFFFFF, 0))
    ok(cuda.cuStreamSynchronize(stream))
    ok(cuda.cuStreamWriteValue32_v2(None, c_uint64(memory), 5, 0))
for address, flags in ((memory + 1, 0), (0, 0), (4096, 0), (memory, 2)):
    assert cuda.cuStreamWriteValue32_v2(None, c_uint64(address), 5, flags) == 1
operation = lambda kind, value=0, flags=0: struct.pack("iIQQIIQ8x", kind, flags, memory, value, 0, 0, 0)
batch = create_string_buffer(operation(5, 2**40) + operation(6) + operation(4, 2**40))
ok(cuda.cuStreamBatchMemOp_v2(None, 3, batch, 0))
assert cuda.cuStreamBatchMemOp(None, 3, batch, 0) == 1
ok(cuda.cuStreamBatchMemOp_v2(None, 0, batch, 0))
for count, flags in ((256, 0), (1, 1)):
    assert cuda.cuStreamBatchMemOp_v2(None, count, batch, flags) == 1
""",
    "attaching": """
# Managed memory is attached as a whole, to one stream only if that is not the legacy one.
start()
memory = c_uint64(managed())
stream = new(cuda.cuStreamCreate, 1)
for flags, size, code in ((1, 0, 0), (2, 4096, 0), (4, 0, 0), (0, 0, 1), (3, 0, 1), (8, 0, 1), (4, 64, 1)):
    assert cuda.cuStreamAttachMemAsync(stream, memory, c_size_t(size), flags) == code, (flags, size)
assert cuda.cuStreamAttachMemAsync(None, memory, c_size_t(0), 4) == 1
assert cuda.cuStreamAttachMemAsync(stream, c_uint64(allocate(64)), c_size_t(0), 4) == 1
""",
}
test_programs = programs(PROGRAMS)
