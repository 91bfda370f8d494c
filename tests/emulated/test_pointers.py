"""What the emulated driver says of pointers of every kind, and of memory of the host."""

from __future__ import annotations

HEAD = """from tests.emulated.memory_calls import *
context = start()
(CONTEXT, TYPE, DEVICE_POINTER, HOST_POINTER, TOKENS, SYNC_MEMOPS, BUFFER_ID, IS_MANAGED, ORDINAL, IPC_CAPABLE, START,
 SIZE, MAPPED, HANDLE_TYPES, RDMA, ACCESS, POOL, MAPPING_SIZE, MAPPING_START, BLOCK_ID, DECOMPRESS) = range(1, 22)
def of(address, *attributes):
    answers = [pointer_value(at, address) for at in attributes]
    return [value if not code else -code for code, value in answers]
out, none = c_uint64(), c_void_p()
"""


def test_attributes(check) -> None:
    """Every attribute of memory of each kind; what does not apply is 1, and 0 where several are asked at once."""
    check(
        HEAD
        + """
device = allocate(5000)
ok(cuda.cuMemHostAlloc(byref(out), 5000, 1))
host = out.value
ok(cuda.cuMemAllocManaged(byref(out), 5000, 1))
managed = out.value
own = create_string_buffer(5000)
registered = ctypes.addressof(own)
ok(cuda.cuMemHostRegister_v2(registered, 5000, 0))
pool = new_pool(handle_types=POSIX_FILE)
code, pooled = from_pool(pool, 5000)
for address in (device, host, managed, registered, pooled):
    assert of(address + 7, START, SIZE, DEVICE_POINTER, MAPPED) == [address, 5000, address + 7, 1]
    assert of(address, ORDINAL, SYNC_MEMOPS, MAPPING_START) == [0, int(address == managed), address]
    assert of(address, DECOMPRESS) == [int(address == device)]
    assert of(address, MAPPING_SIZE) == [5000 if address == registered else 32 * MIB if address == pooled else 2 * MIB]
    assert of(address, 0, 22, 99) == [-1] * 3
assert len({of(at, BUFFER_ID)[0] for at in (device, host, managed, registered, pooled)}) == 5
kinds = TYPE, HOST_POINTER, IS_MANAGED, IPC_CAPABLE, HANDLE_TYPES, ACCESS
assert of(device, *kinds) == [2, -1, 0, 1, 0, 3]
assert of(host, *kinds) == [1, host, 0, 0, 0, 3]
assert of(registered, *kinds) == [1, registered, 0, 0, 0, 3]
assert of(managed, *kinds) == [2, managed, 1, 0, 0, 3]
assert of(pooled, *kinds) == [2, -1, 0, 0, POSIX_FILE, 3]
assert of(device, CONTEXT, POOL) == [context.value, 0] and of(pooled, CONTEXT, POOL) == [0, pool.value]
tokens = (c_uint64 * 2)()
ok(cuda.cuPointerGetAttribute(tokens, TOKENS, device))
assert cuda.cuPointerGetAttribute(tokens, TOKENS, host) == 1
ok(cuda.cuMemFreeAsync(pooled, None))
ok(cuda.cuMemFree_v2(device))
nothing = create_string_buffer(64)
for address in (pooled, device, ctypes.addressof(nothing), 0):
    assert of(address, *range(1, 22)) == [-1] * 21
    values = (c_uint64 * 21)(*[77] * 21)
    places = (c_void_p * 21)(*[ctypes.addressof(values) + 8 * at for at in range(21)])
    numbers = [at for at in range(1, 22) if at != TOKENS]
    ok(cuda.cuPointerGetAttributes(20, (c_int * 20)(*numbers), places, address))
    assert ctypes.c_int.from_buffer(values, 8 * numbers.index(ORDINAL)).value == -2
    assert all(not values[at] & 0xffffffff for at in range(20) if numbers[at] not in (ORDINAL, START, SIZE))
assert cuda.cuPointerGetAttributes(0, (c_int * 1)(2), places, host) == 1
assert cuda.cuPointerGetAttributes(1, (c_int * 1)(99), places, host) == 1
assert cuda.cuPointerGetAttributes(1, None, places, host) == cuda.cuPointerGetAttribute(None, TYPE, host) == 1
"""
    )


def test_attributes_of_mappings(check) -> None:
    """A mapping has the range of its reservation, and its own start and size; what is only reserved has the range."""
    check(
        HEAD
        + """
code, base = reserve(8 * MIB)
code, handle = physical(2 * MIB, handle_types=POSIX_FILE)
assert of(base, START, SIZE, MAPPED, TYPE, CONTEXT) == [-1] * 5
ok(cuda.cuMemMap(base + 2 * MIB, 2 * MIB, 0, handle, 0))
at = base + 3 * MIB
assert of(at, START, SIZE, MAPPED, TYPE, ACCESS) == [base, 8 * MIB, 1, 2, 0]
assert of(at, MAPPING_START, MAPPING_SIZE, HANDLE_TYPES) == [base + 2 * MIB, 2 * MIB, POSIX_FILE]
ok(give_access(base + 2 * MIB, 2 * MIB, 1))
assert of(at, ACCESS) == [1]
start, size = c_uint64(), c_size_t()
ok(cuda.cuMemGetAddressRange_v2(byref(start), byref(size), at))
assert (start.value, size.value) == (base + 2 * MIB, 2 * MIB)
"""
    )


def test_setting(check) -> None:
    """Synchronous operations are the one attribute that can be set; managed memory begins with them."""
    check(
        HEAD
        + """
device = allocate(64)
ok(cuda.cuPointerSetAttribute(byref(c_int(1)), SYNC_MEMOPS, device))
assert of(device + 1, SYNC_MEMOPS) == [1]
ok(cuda.cuPointerSetAttribute(byref(c_int(0)), SYNC_MEMOPS, device))
assert of(device, SYNC_MEMOPS) == [0]
ok(cuda.cuMemAllocManaged(byref(out), 64, 1))
assert of(out.value, SYNC_MEMOPS) == [1]
for wanted in (0, 1):
    ok(cuda.cuPointerSetAttribute(byref(c_int(wanted)), SYNC_MEMOPS, out))
    assert of(out.value, SYNC_MEMOPS) == [wanted]
assert cuda.cuPointerSetAttribute(None, SYNC_MEMOPS, device) == 1
assert cuda.cuPointerSetAttribute(byref(c_int(1)), TYPE, device) == 1
assert cuda.cuPointerSetAttribute(byref(c_int(1)), SYNC_MEMOPS, 4096) == 1
"""
    )


def test_address_ranges(check) -> None:
    """The range of a pointer is that of its allocation, and a descriptor of a DMA buffer has the bytes of its range."""
    check(
        HEAD
        + """
import os

device = allocate(4096)
file = c_int()

def export(address, size, kind=1, flags=0):
    return cuda.cuMemGetHandleForAddressRange(byref(file), c_uint64(address), c_size_t(size), kind, c_uint64(flags))

ok(cuda.cuMemsetD8_v2(device, 7, 4096))
ok(export(device, 4096))
assert os.read(file.value, 4096) == bytes([7]) * 4096
first = file.value
ok(export(device, 4096))
ok(cuda.cuMemsetD8_v2(device, 9, 4096))
assert os.read(file.value, 4096) == bytes([9]) * 4096
os.close(file.value)
os.close(first)
ok(export(device, 2 << 20))  # allocations are cut from so much (measured)
os.close(file.value)
wrong = (device + 1, 4096, 1), (device, 100, 1), (device, 4 << 20, 1), (device, 4096, 2), (0, 4096, 1)
assert [export(*one) for one in wrong] == [1] * 5
assert export(device, 4096, flags=1) == 801 and file.value == -1
managed = c_uint64()
ok(cuda.cuMemAllocManaged(byref(managed), c_size_t(4096), 1))
assert "DMA" in refused("cuMemGetHandleForAddressRange", byref(file), managed, c_size_t(4096), 1, c_uint64(0))
ok(cuda.cuMemFree_v2(device))
assert cuda.cuMemGetAddressRange_v2(byref(out), None, device) == 500
"""
    )


def test_host_memory(check) -> None:
    """Memory of the host is allocated and registered with flags that are checked; freeing needs no context."""
    check(
        HEAD
        + """
block, flags = c_void_p(), c_uint()
assert cuda.cuMemHostAlloc(None, 64, 0) == cuda.cuMemHostAlloc(byref(block), 64, 8) == 1
ok(cuda.cuMemHostAlloc(byref(block), 64, 5))
ok(cuda.cuMemHostGetFlags(byref(flags), block))
assert flags.value == 7
ok(cuda.cuMemHostGetDevicePointer_v2(byref(out), block, 0))
assert out.value == block.value
assert cuda.cuMemHostGetDevicePointer_v2(byref(out), block, 1) == 1
assert cuda.cuMemHostGetDevicePointer_v2(None, block, 0) == cuda.cuMemHostGetDevicePointer_v2(byref(out), None, 0) == 1
own = create_string_buffer(8192)
at = ctypes.addressof(own)
assert cuda.cuMemHostRegister_v2(None, 64, 0) == cuda.cuMemHostRegister_v2(at, 0, 0) == 1
assert cuda.cuMemHostRegister_v2(at, 64, 16) == cuda.cuMemHostRegister_v2(at, (1 << 64) - 1, 0) == 1
ok(cuda.cuMemHostRegister_v2(at + 100, 100, 2))
ok(cuda.cuMemHostGetFlags(byref(flags), c_void_p(at + 150)))
assert flags.value == 2
assert [cuda.cuMemHostRegister_v2(at + start, 50, 0) for start in (51, 100, 150, 199)] == [712] * 4
ok(cuda.cuMemHostRegister_v2(at + 50, 50, 0))
ok(cuda.cuMemHostRegister_v2(at + 200, 50, 0))
assert cuda.cuMemHostUnregister(at + 101) == 1 and cuda.cuMemHostUnregister(None) == 1
for start in (50, 100, 200):
    ok(cuda.cuMemHostUnregister(at + start))
device = allocate(64)
ok(cuda.cuCtxSetCurrent(None))
assert of(device, TYPE) == [2] and of(block.value, TYPE) == [1] and of(at, TYPE) == [-1]
assert cuda.cuMemAlloc_v2(byref(out), 64) == cuda.cuMemAlloc_v2(byref(out), 0) == 201
assert cuda.cuMemHostAlloc(byref(out), 64, 0) == cuda.cuMemHostGetDevicePointer_v2(byref(out), block, 0) == 201
assert cuda.cuMemFree_v2(device) == cuda.cuMemFreeHost(block.value) == 0
assert cuda.cuMemFree_v2(device) == 1
ok(cuda.cuCtxSetCurrent(context))
assert cuda.cuMemAlloc_v2(byref(out), 0) == 1 and cuda.cuMemAlloc_v2(byref(out), 1 << 60) == 2
assert cuda.cuMemAlloc_v2(byref(out), (1 << 64) - 1) == 2
"""
    )
