"""Memory of the emulated driver: pointers of every kind, slabs, memory of the host, and virtual memory."""

from tests.emulator.conftest import programs

HEAD = """from tests.emulator.memory_calls import *
context = start()
(CONTEXT, TYPE, DEVICE_POINTER, HOST_POINTER, TOKENS, SYNC_MEMOPS, BUFFER_ID, IS_MANAGED, ORDINAL, IPC_CAPABLE, START,
 SIZE, MAPPED, HANDLE_TYPES, RDMA, ACCESS, POOL, MAPPING_SIZE, MAPPING_START, BLOCK_ID, DECOMPRESS) = range(1, 22)
def of(address, *attributes):
    answers = [pointer_value(at, address) for at in attributes]
    return [value if not code else -code for code, value in answers]
out, none = c_uint64(), c_void_p()
"""


#: Memory of the device that is gone: freed, unmapped, of a dead context, or only reserved.
DEAD = (
    HEAD
    + """
pool, (code, base) = new_pool(), reserve(8 * MIB)
code, pooled = from_pool(pool, 4096)
code, kept = from_pool(pool, 4096)  # so that the pool keeps its memory
freed, kept = allocate(4096), allocate(4096)
code, handle = physical(2 * MIB)
ok(cuda.cuMemMap(base, 2 * MIB, 0, handle, 0))
ok(give_access(base, 2 * MIB))
write(base, b"there")
ok(cuda.cuMemFreeAsync(pooled, None))
ok(cuda.cuMemFree_v2(freed))
ok(cuda.cuMemUnmap(base, 2 * MIB))
ok(cuda.cuCtxCreate_v2(byref(none), 0, 0))
of_context = allocate(4096)
ok(cuda.cuCtxDestroy_v2(none))
ok(cuda.cuCtxSetCurrent(context))
dead = {"freed": freed, "pooled": pooled, "unmapped": base, "reserved": base + 4 * MIB, "of a context": of_context}
host = create_string_buffer(4096)
at_host = ctypes.addressof(host)
"""
)


OF_DEAD = {
    "dead_pointers": """
# Memory of the device that is gone is an invalid value in every entry, and never memory of the host.
HOST_TYPE, DEVICE_TYPE, UNIFIED = 1, 2, 4
array = new(cuda.cuArray3DCreate_v2, byref((c_uint64 * 5)(64, 64, 0, 1 | 1 << 32, 0)))
stream = new(cuda.cuStreamCreate, 0)
def boxes(size, address):
    hosts = dict.fromkeys(("from_host", "to_host"), at_host)
    devices = dict.fromkeys(("from_device", "to_device"), address)
    for type in (DEVICE_TYPE, UNIFIED):
        for of, to in ((HOST_TYPE, type), (type, HOST_TYPE)):
            flat = Copy2D(from_type=of, to_type=to, **hosts, **devices, width=size, height=1)
            box = Copy3D(from_type=of, to_type=to, **hosts, **devices, width=size, height=1, depth=1)
            yield from (cuda.cuMemcpy2D_v2(byref(flat)), cuda.cuMemcpy2DAsync_v2(byref(flat), stream))
            yield from (cuda.cuMemcpy3D_v2(byref(box)), cuda.cuMemcpy3DAsync_v2(byref(box), stream))
            yield from (cuda.cuMemcpy2DUnaligned_v2(byref(flat)), cuda.cuMemcpy3DPeer(byref(box)))
def batch(to, of):
    attributes, failed = (c_uint64 * 3)(1), c_size_t()
    code = cuda.cuMemcpyBatchAsync(byref(c_uint64(to)), byref(c_uint64(of)), byref(c_size_t(8)), c_size_t(1),
        attributes, byref(c_size_t(0)), c_size_t(1), byref(failed), stream)
    return code, failed.value
def answers(address, null=c_void_p()):
    to, of, size = c_uint64(address), c_uint64(at_host), c_size_t(8)
    for call in (cuda.cuMemcpyHtoD_v2, cuda.cuMemcpy):
        yield call(address, at_host, 8)
    for call in (cuda.cuMemcpyDtoH_v2, cuda.cuMemcpy):
        yield call(at_host, address, 8)
    yield cuda.cuMemcpyDtoD_v2(kept, address, 8)
    yield cuda.cuMemcpyDtoD_v2(address, kept, 8)
    for on in (stream, null):
        yield cuda.cuMemcpyHtoDAsync_v2(to, of, size, on)
        yield cuda.cuMemcpyDtoHAsync_v2(of, to, size, on)
        yield cuda.cuMemcpyDtoDAsync_v2(to, c_uint64(kept), size, on)
        yield cuda.cuMemcpyAsync(to, of, size, on)
        yield cuda.cuMemcpyAsync(of, to, size, on)
        yield cuda.cuMemcpyAsync(to, to, size, on)
        for bits in (8, 16, 32):
            yield getattr(cuda, f"cuMemsetD{bits}Async")(to, 1, c_size_t(1), on)
            yield getattr(cuda, f"cuMemsetD2D{bits}Async")(to, c_size_t(512), 1, c_size_t(1), c_size_t(2), on)
    yield from boxes(8, address)
    yield cuda.cuMemcpyDtoA_v2(array, size, to, size)
    yield cuda.cuMemcpyAtoD_v2(to, array, size, size)
    yield cuda.cuMemcpyHtoA_v2(array, size, to, size)  # nor is it memory of the host for a caller who says so
    yield cuda.cuMemcpyAtoH_v2(to, array, size, size)
    yield cuda.cuMemcpyHtoD_v2(kept, address, 8)
    yield cuda.cuMemcpyDtoH_v2(address, kept, 8)
    yield cuda.cuMemHostRegister_v2(address, 4096, 0)
    for bits in (8, 16, 32):
        yield getattr(cuda, f"cuMemsetD{bits}_v2")(address, 1, 1)
        yield getattr(cuda, f"cuMemsetD2D{bits}_v2")(address, 512, 1, 1, 2)
    for bits, value in (("32", c_uint32(1)), ("64", c_uint64(1))):
        yield getattr(cuda, f"cuStreamWriteValue{bits}_v2")(stream, to, value, 0)
        yield getattr(cuda, f"cuStreamWaitValue{bits}_v2")(stream, to, value, 0)
    yield cuda.cuPointerGetAttribute(byref(out), TYPE, address)
    yield cuda.cuPointerSetAttribute(byref(out), SYNC_MEMOPS, address)
for what, address in dead.items():
    assert set(answers(address)) == {1}, (what, list(answers(address)))
    assert batch(address, at_host) == batch(at_host, address) == (1, 0), what
    assert cuda.cuMemFree_v2(address) == 1, what
for name, address in (("live", kept), ("host", at_host)):
    assert batch(address, at_host) == (0, (1 << 64) - 1), name
# a captured copy takes what it does not know for memory of the host, and fails when it is launched
for address in dead.values():
    ok(cuda.cuStreamBeginCapture_v2(stream, 0))
    ok(cuda.cuMemcpyAsync(c_uint64(at_host), c_uint64(address), c_size_t(8), stream))
    graph = new(cuda.cuStreamEndCapture, stream, c_void_p)
    executable = new(cuda.cuGraphInstantiateWithFlags, graph, c_uint64(0))
    assert cuda.cuGraphLaunch(executable, stream) == 1
""",
    "addresses_of_the_host": """
# The host can use managed, pinned and registered memory and what it has access to, and nothing of the device.
def ends(address, writes=False):
    child = os.fork()
    if not child:
        memset(address, 1, 1) if writes else string_at(address, 1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
import faulthandler
faulthandler.disable()
variable = get(cuda.cuModuleGetGlobal_v2, c_uint64, None, loaded(small_ptx()), b"answer")
assert read(variable, 4) == bytes([42, 0, 0, 0])
ok(cuda.cuMemMap(base + 2 * MIB, 2 * MIB, 0, handle, 0))
ok(give_access(base + 2 * MIB, 2 * MIB))
code, pooled = from_pool(pool, 4096)
alive = {"allocated": kept, "pooled": pooled, "variable": variable, "mapped": base + 2 * MIB}
for what, address in (*alive.items(), *dead.items()):
    assert ends(address) == ends(address, writes=True) == signal.SIGSEGV, what
code, in_host_pool = from_pool(new_pool((HOST_NUMA, 0)), 64)
for address in (managed(64), pinned(64), in_host_pool):
    assert ends(address) == ends(address, writes=True) == 0
for address in (kept, pooled, variable, base + 2 * MIB, *dead.values()):
    assert cuda.cuMemHostGetDevicePointer_v2(byref(out), c_void_p(address), 0) == 1
assert physical(2 * MIB, (HOST_NUMA, 1))[0] == 1
code, of_host = physical(2 * MIB, (HOST_NUMA, 0))
at = base + 6 * MIB
ok(cuda.cuMemMap(at, 2 * MIB, 0, of_host, 0))
ok(give_access(at, 2 * MIB))
assert ends(at) == signal.SIGSEGV
ok(give_access(at, 2 * MIB, 3, (HOST_NUMA, 0)))
memmove(at, b"of the host", 11)
assert read(at, 11) == b"of the host"
write(at, b"of a device")
assert string_at(at, 11) == b"of a device"
ok(give_access(at, 2 * MIB, 1, (HOST_NUMA, 0)))
assert (ends(at), ends(at, writes=True)) == (0, signal.SIGSEGV)
ok(give_access(at, 2 * MIB, 0, (HOST_NUMA, 0)))
assert ends(at) == signal.SIGSEGV and read(at, 11) == b"of a device"
ok(give_access(at, 2 * MIB, 3, (HOST_NUMA, 0)))
ok(cuda.cuMemUnmap(at, 2 * MIB))
assert ends(at) == signal.SIGSEGV
ok(cuda.cuMemMap(at, 2 * MIB, 0, of_host, 0))
ok(give_access(at, 2 * MIB))
assert ends(at) == signal.SIGSEGV and read(at, 11) == b"of a device"
""",
}
test_dead = programs(OF_DEAD, DEAD)


PROGRAMS = {
    "registering_what_is_not_mapped": """
# A range with a page that the host does not have is refused, and can be registered once it has it (as an H200).
libc = CDLL(None)
pages = mmap.mmap(-1, 4 * mmap.PAGESIZE)
begin = addressof(c_char.from_buffer(pages))
for size in (1 << 46, (1 << 64) - 1):
    assert cuda.cuMemHostRegister_v2(c_void_p(begin), c_size_t(size), 0) in (1, 2), size
libc.munmap(c_void_p(begin + 2 * mmap.PAGESIZE), c_size_t(mmap.PAGESIZE))
assert cuda.cuMemHostRegister_v2(c_void_p(begin + 1), c_size_t(2 * mmap.PAGESIZE), 0) == 1
ok(cuda.cuMemHostRegister_v2(c_void_p(begin + 1), c_size_t(2 * mmap.PAGESIZE - 1), 0))
ok(cuda.cuMemHostUnregister(c_void_p(begin + 1)))
# a copy keeps to the registration that it begins in (as on an H200), and sizes are numbers of 64 bits
device, pitch = new(cuda.cuMemAlloc_v2, c_uint64, 1 << 16), c_size_t()
for page in range(2):
    ok(cuda.cuMemHostRegister_v2(c_void_p(begin + page * mmap.PAGESIZE), c_size_t(mmap.PAGESIZE), 0))
copies = [cuda.cuMemcpyHtoD_v2(device, begin, mmap.PAGESIZE + more) for more in (0, 1)]
assert copies == [0, 1], copies
host = c_void_p(begin)
assert cuda.cuMemHostAlloc(byref(host), c_size_t(8), 8) == 1 and not host.value
assert cuda.cuMemAllocPitch_v2(byref(device), byref(pitch), c_size_t(1), c_size_t((1 << 64) - 1), 4) == 2
assert cuda.cuMemAllocPitch_v2(byref(device), byref(pitch), c_size_t(1 << 40), c_size_t(1 << 40), 4) == 1
assert [cuda.cuMemsetD32_v2(device, 1, size) for size in (1 << 62, (1 << 62) + 1)] == [0, 1]
""",
    "over_the_end": """
# Only the start of a mapping has to be reserved; what is behind stays free of others while it is mapped.
code, base = reserve(2 * MIB)
code, handle = physical(6 * MIB)
behind = lambda: reserve(2 * MIB, hint=base + 2 * MIB)[1] - base
ok(cuda.cuMemMap(base, 6 * MIB, 0, handle, 0))
ok(give_access(base, 6 * MIB))
write(base + 6 * MIB - 4, b"last")
assert read(base + 6 * MIB - 4, 4) == b"last" and of(base + 5 * MIB, MAPPED, SIZE, START) == [1, 0, 0]
assert behind() == 6 * MIB and cuda.cuMemAddressFree(base, 2 * MIB) == 1
ok(cuda.cuMemUnmap(base, 6 * MIB))
assert cuda.cuMemUnmap(base, 6 * MIB) == 0 and behind() == 2 * MIB
ok(cuda.cuMemMap(base + 2 * MIB, 6 * MIB, 0, handle, 0))  # over a hole between two reservations
ok(cuda.cuMemUnmap(base + 2 * MIB, 6 * MIB))
(code, last), kept = reserve(2 * MIB), allocate(2 * MIB)
assert kept == last + 2 * MIB
assert cuda.cuMemMap(last, 6 * MIB, 0, handle, 0) == 1 and last_event()["note"].endswith("is in use")
assert cuda.cuMemMap(last + 2 * MIB, 6 * MIB, 0, handle, 0) == 1
""",
    "address_ranges": """
# A descriptor of a DMA buffer has the bytes of its range.
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
assert export(managed(), 4096) == 1
pooled = c_uint64()
ok(cuda.cuMemAllocAsync(byref(pooled), c_size_t(4096), None))
assert "DMA" in refused("cuMemGetHandleForAddressRange", byref(file), pooled, c_size_t(4096), 1, c_uint64(0))
""",
    "small_allocations_are_cut_from_one_slab": """
# Allocations below 2 MiB share a slab of their context, 512 bytes apart, as on an H100 (programs of "order").

SLAB, UNIT, file = 2 * MIB, 512, c_int()

def export(address, size):
    return cuda.cuMemGetHandleForAddressRange(byref(file), c_uint64(address), c_size_t(size), 1, c_uint64(0))

first, second = allocate(4096), allocate(1)
third = allocate(MIB)
assert (second, third) == (first + 4096, first + 4096 + UNIT) and first % SLAB == 0
assert [of(at, MAPPING_START, MAPPING_SIZE, START, SIZE) for at in (first, third)] == [
    [first, SLAB, first, 4096], [first, SLAB, third, MIB]]
large, late = allocate(SLAB), allocate(MIB)
assert [of(at, MAPPING_START) for at in (large, late)] == [[large], [late]]  # no room for another MiB in the first slab
assert of(allocate(3 * MIB), MAPPING_SIZE) == [4 * MIB]
write(second, b"s")
write(third, b"third")
assert (export(second, SLAB), export(third, 4096), export(first, SLAB)) == (1, 1, 0)  # behind its end, no page, all
ok(export(second, SLAB - 4096))
assert os.read(file.value, UNIT + 5) == b"s" + bytes(UNIT - 1) + b"third"
write(third, b"again")
assert os.pread(file.value, 5, os.lseek(file.value, 0, 1) - 5) == b"again"
assert cuda.cuMemsetD8_v2(second, 1, 2) == 1  # what is between two of them belongs to neither

ok(cuda.cuMemFree_v2(late))
ok(cuda.cuMemFree_v2(first))
between = [allocate(UNIT) for _ in range(2)]
assert between == [third + MIB, third + MIB + UNIT] and of(between[0], MAPPING_START) == [first]
rest = [allocate(size) for size in (SLAB - MIB - 4096 - 3 * UNIT, 4096)]
assert rest == [between[1] + UNIT, first]  # what was given back comes last
assert read(first, 8) == bytes(8)
for address in (third, *between, *rest):
    ok(cuda.cuMemFree_v2(address))
assert of(second, MAPPING_START) == [first] and read(second, 1) == b"s"
other = new(cuda.cuCtxCreate_v2, 0, 0)
assert of(allocate(64), MAPPING_START) != [first]
own = new(cuda.cuCtxPopCurrent_v2)
ok(cuda.cuMemFree_v2(second))
assert (export(first, 4096), of(second, MAPPING_START)) == (1, [-1])
""",
    "addresses_are_taken_again_late": """
# Freed addresses stay dead for long; large ones are taken again, and bytes are zeros each time.
def once(size):
    address = allocate(size)
    assert read(address, 8) == read(address + size - 8, 8) == bytes(8)
    write(address, b"not zero")
    ok(cuda.cuMemFree_v2(address))
    return address
def mappings():
    return len(open("/proc/self/maps").readlines())
assert len({once(4096) for _ in range(1000)}) == 1000
once(3 << 30)
before = mappings()
assert 1 < len({once(3 << 30) for _ in range(20)}) < 10
assert mappings() <= before
large = [allocate(3 << 30) for _ in range(7)]  # in a second range
for number, address in enumerate(large):
    write(address + (3 << 30) - 1, bytes([number]))
assert [read(address + (3 << 30) - 1, 1) for address in large] == [bytes([number]) for number in range(7)]
assert len({once(1 << 20) for _ in range(20)}) == 20
for address in large:
    ok(cuda.cuMemFree_v2(address))
    assert cuda.cuMemcpyDtoH_v2(ctypes.addressof(create_string_buffer(8)), address, 8) == 1
""",
    "a_limited_address_space": """
# Where the range cannot be reserved a smaller one is; where none can be, stderr says why and what to do.
size = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (size + 96 * MIB, -1))
small = allocate(MIB)
write(small, b"small")
assert read(small, 5) == b"small"
resource.setrlimit(resource.RLIMIT_AS, (size, -1))
with tempfile.TemporaryFile() as said:
    stderr = os.dup(2)
    os.dup2(said.fileno(), 2)
    code = cuda.cuMemAlloc_v2(byref(out), 20 << 30)
    os.dup2(stderr, 2)
    said.seek(0)
    text = said.read().decode()
assert code == 2 and read(small, 5) == b"small"
what, why = text.split("; ")
assert what == (
    "cudalink: the emulated driver cannot reserve 40964 MiB of addresses for device memory: Cannot allocate memory")
assert why == f"raise the limit of its address space (ulimit -v), which is {size >> 20} MiB\\n"
""",
    "what_is_not_there": """
# Devices without multicast say so.
value = new(cuda.cuDeviceGetAttribute, c_int, 132, 0)
assert value.value == 0
out = c_uint64()
assert cuda.cuMulticastGetGranularity(byref(out), None, 0) == cuda.cuMulticastAddDevice(c_uint64(5), 0) == 801
assert "MULTICAST" in refused("cuMulticastCreate", byref(out), byref(out))
assert "MULTICAST" in refused("cuMulticastGetGranularity", byref(out), byref(out), 0)
""",
}
MUCH = {"device": "memory=64GiB"}
test_programs = programs(PROGRAMS, HEAD, addresses_are_taken_again_late=MUCH, a_limited_address_space=MUCH)
