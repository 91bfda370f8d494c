"""Arrays, textures and nodes of graphs of the CUDA runtime on an emulated driver."""

import pytest

from pytest_cudalink.base.tables import read_table
from pytest_cudalink.emulator.runtime.cuda_runtime_arrays import Arrays, RefusedError

MODULE = """
COPY, KIND = rt.cudaMemcpyKind.cudaMemcpyDefault, rt.cudaChannelFormatKind

def channels(*bits, kind=KIND.cudaChannelFormatKindUnsigned):
    made = rt.cudaChannelFormatDesc()
    made.x, made.y, made.z, made.w = (*bits, 0, 0, 0)[:4]
    made.f = kind
    return made

def fields(made):
    return made.x, made.y, made.z, made.w, int(made.f)

def extent(*sizes):
    made = rt.cudaExtent()
    made.width, made.height, made.depth = sizes
    return made

def pitched(ptr, pitch, height):
    made = rt.cudaPitchedPtr()
    made.ptr, made.pitch, made.xsize, made.ysize = ptr, pitch, pitch, height
    return made
"""


SUITE = """
# Each format has its channels, in both directions; other channels are no format.
@pytest.mark.parametrize(("bits", "kind", "format_", "count"), [
    ((8,), "Unsigned", "UNSIGNED_INT8", 1),
    ((16, 16), "Signed", "SIGNED_INT16", 2),
    ((32, 32, 32, 32), "Float", "FLOAT", 4),
    ((16,), "Float", "HALF", 1),
    ((8, 8), "UnsignedNormalized8X2", "UNORM_INT8X2", 2),
    ((16, 16, 16), "SignedBlockCompressed6H", "BC6H_SF16", 3),
])
def test_formats(bits, kind, format_, count):
    given = channels(*bits, kind=getattr(KIND, f"cudaChannelFormatKind{kind}"))
    array = value(rt.cudaMallocArray(given, 16, 8, 2 if kind == "Float" else 0))
    assert type(array) is rt.cudaArray_t
    described = value(driver.cuArray3DGetDescriptor(driver.CUarray(int(array))))
    assert int(described.Format) == int(getattr(driver.CUarray_format, f"CU_AD_FORMAT_{format_}"))
    assert described.NumChannels == count
    found, size, flags = value(rt.cudaArrayGetInfo(array))
    assert fields(found) == fields(given) == fields(value(rt.cudaGetChannelDesc(array)))
    assert (size.width, size.height, size.depth, flags) == (16, 8, 0, 2 if kind == "Float" else 0)
    value(rt.cudaFreeArray(array))

@pytest.mark.parametrize(("bits", "kind"), [
    ((8, 8, 8), "Unsigned"), ((8, 16), "Unsigned"), ((8, 0, 8), "Unsigned"), ((0,), "Unsigned"), ((64,), "Float"),
    ((8,), "Float"), ((8,), "None"), ((16,), "UnsignedNormalized8X1"), ((0, 8), "Signed"),
])
def test_no_format(bits, kind):
    given = channels(*bits, kind=getattr(KIND, f"cudaChannelFormatKind{kind}"))
    wrong = rt.cudaError_t.cudaErrorInvalidChannelDescriptor
    assert rt.cudaMallocArray(given, 16, 8, 0) == (wrong, None)
    assert rt.cudaGetLastError() == (wrong,)
    assert rt.cudaMalloc3DArray(given, extent(4, 4, 4), 0) == (wrong, None)
    assert rt.cudaMallocMipmappedArray(given, extent(4, 4, 0), 2, 0) == (wrong, None)

def test_free():
    assert rt.cudaFreeArray(0) == rt.cudaFreeMipmappedArray(0) == (OK,)
    array = value(rt.cudaMalloc3DArray(channels(8), extent(4, 3, 2), 0))
    size = value(rt.cudaArrayGetInfo(array))[1]
    assert (size.width, size.height, size.depth) == (4, 3, 2)
    value(rt.cudaFreeArray(array))
    assert rt.cudaFreeArray(array)[0] != OK
    assert rt.cudaMallocArray(channels(8), 0, 0, 0) == (INVALID, None)
    assert rt.cudaMallocArray(None, 8, 0, 0) == (INVALID, None)

def test_mipmapped():
    whole = value(rt.cudaMallocMipmappedArray(channels(8), extent(16, 8, 0), 3, 0))
    level = value(rt.cudaGetMipmappedArrayLevel(whole, 1))
    size = value(rt.cudaArrayGetInfo(level))[1]
    assert (size.width, size.height) == (8, 4)
    assert rt.cudaGetMipmappedArrayLevel(whole, 3) == (INVALID, None)
    value(rt.cudaFreeMipmappedArray(whole))

# Copies in bytes, in rows that go on, and in elements of the array that takes part.
WIDTH, HEIGHT = 6, 4
PIXELS = bytes(range(WIDTH * HEIGHT * 2))

@pytest.fixture
def array():
    made = value(rt.cudaMallocArray(channels(8, 8), WIDTH, HEIGHT, 0))
    value(rt.cudaMemcpy2DToArray(made, 0, 0, bytearray(PIXELS), 12, 12, 4, COPY))
    yield made
    value(rt.cudaFreeArray(made))

def content(array):
    found = bytearray(48)
    value(rt.cudaMemcpy2DFromArray(found, 12, array, 0, 0, 12, 4, COPY))
    return bytes(found)

def test_boxes(array):
    stream = value(rt.cudaStreamCreate())
    assert content(array) == PIXELS
    found = bytearray(8)
    value(rt.cudaMemcpy2DFromArrayAsync(found, 4, array, 2, 1, 4, 2, COPY, stream))
    assert found == PIXELS[14:18] + PIXELS[26:30]
    value(rt.cudaMemcpy2DToArrayAsync(array, 10, 3, bytearray(b"zz"), 2, 2, 1, COPY, stream))
    assert content(array) == PIXELS[:46] + b"zz"
    other = value(rt.cudaMallocArray(channels(8, 8), WIDTH, HEIGHT, 0))
    value(rt.cudaMemcpy2DArrayToArray(other, 0, 1, array, 0, 0, 12, 3, COPY))
    assert content(other)[12:] == content(array)[:36]
    value(rt.cudaMemcpy2DToArray(other, 0, 0, bytearray(b"ab--cd--"), 4, 2, 2, COPY))
    assert (content(other)[:2], content(other)[12:14]) == (b"ab", b"cd")
    assert rt.cudaMemcpy2DToArray(array, 2, 0, bytearray(12), 12, 12, 1, COPY) == (INVALID,)

def test_rows(array):
    found = bytearray(30)
    value(rt.cudaMemcpyFromArray(found, array, 10, 0, 30, COPY))
    assert found == PIXELS[10:40]
    value(rt.cudaMemcpyToArray(array, 8, 2, bytearray(b"abcdefgh"), 8, COPY))
    assert content(array) == PIXELS[:32] + b"abcdefgh" + PIXELS[40:]
    narrow = value(rt.cudaMallocArray(channels(8, 8), 4, 6, 0))
    value(rt.cudaMemcpyArrayToArray(narrow, 2, 1, array, 4, 1, 26, COPY))
    value(rt.cudaMemcpyFromArray(found, narrow, 2, 1, 26, COPY))
    assert found[:26] == content(array)[16:42]
    before = content(array)
    assert rt.cudaMemcpyToArray(array, 0, 1, bytearray(37), 37, COPY) == (INVALID,)
    assert rt.cudaMemcpyToArray(array, 0, 0, 0, 4, COPY) == (INVALID,)
    assert content(array) == before  # nothing of it was copied
    value(rt.cudaMemcpyToArray(array, 0, 0, 0, 0, COPY))
    of_floats = value(rt.cudaMallocArray(channels(8, kind=KIND.cudaChannelFormatKindSignedNormalized8X1), 4, 2, 0))
    value(rt.cudaMemcpyToArray(of_floats, 0, 0, bytearray(b"abcdefgh"), 8, COPY))
    value(rt.cudaMemcpy2DFromArray(found, 4, of_floats, 0, 1, 4, 1, COPY))
    assert found[:4] == b"efgh"

@pytest.mark.parametrize("peer", ["", "Peer"])
def test_elements(array, peer):
    found = bytearray(8)
    parameters = getattr(rt, f"cudaMemcpy3D{peer}Parms")()
    parameters.srcArray, parameters.dstPtr, parameters.extent = array, pitched(found, 4, 2), extent(2, 2, 1)
    parameters.srcPos.x, parameters.srcPos.y = 3, 1
    if not peer:
        parameters.kind = COPY
    value(getattr(rt, f"cudaMemcpy3D{peer}")(parameters))
    assert found == PIXELS[18:22] + PIXELS[30:34]  # an element has two bytes
    parameters.srcPtr = pitched(found, 4, 2)
    assert getattr(rt, f"cudaMemcpy3D{peer}")(parameters) == (INVALID,)
    assert getattr(rt, f"cudaMemcpy3D{peer}")(None) == (INVALID,)
    parameters.srcPtr, parameters.dstPtr = pitched(0, 0, 0), pitched(0, 0, 0)
    parameters.dstArray = value(rt.cudaMallocArray(channels(8), WIDTH, HEIGHT, 0))  # an element has one byte
    assert getattr(rt, f"cudaMemcpy3D{peer}")(parameters) == (INVALID,)

def test_bytes():
    source, found = bytearray(range(24)), bytearray(4)
    parameters = rt.cudaMemcpy3DParms()
    parameters.srcPtr, parameters.dstPtr = pitched(source, 4, 3), pitched(found, 2, 2)
    parameters.srcPos.x, parameters.srcPos.z, parameters.extent, parameters.kind = 1, 1, extent(2, 2, 1), COPY
    value(rt.cudaMemcpy3DAsync(parameters, value(rt.cudaStreamCreate())))
    assert found == bytes([13, 14, 17, 18])

# What a texture was made of comes back: arrays and linear memory, modes and flags.
def test_array():
    array = value(rt.cudaMallocArray(channels(8), 16, 8, 2))
    resource, texture, view = rt.cudaResourceDesc(), rt.cudaTextureDesc(), rt.cudaResourceViewDesc()
    resource.res.array.array = array
    texture.normalizedCoords, texture.maxAnisotropy = 1, 3  # a colour of the border does not come back (H200)
    texture.addressMode = [rt.cudaTextureAddressMode.cudaAddressModeClamp] * 3
    texture.readMode = rt.cudaTextureReadMode.cudaReadModeNormalizedFloat
    texture.filterMode = rt.cudaTextureFilterMode.cudaFilterModeLinear
    handle = value(rt.cudaCreateTextureObject(resource, texture, None))
    assert type(handle) is rt.cudaTextureObject_t
    assert value(driver.cuTexObjectGetTextureDesc(int(handle))).flags == 2
    found = value(rt.cudaGetTextureObjectTextureDesc(handle))
    assert str(found) == str(texture)
    assert int(value(rt.cudaGetTextureObjectResourceDesc(handle)).res.array.array) == int(array)
    value(rt.cudaDestroyTextureObject(handle))
    assert rt.cudaGetTextureObjectTextureDesc(handle)[0] != OK
    texture.readMode = rt.cudaTextureReadMode.cudaReadModeElementType
    texture.filterMode = rt.cudaTextureFilterMode.cudaFilterModePoint
    texture.sRGB = texture.disableTrilinearOptimization = 1
    handle = value(rt.cudaCreateTextureObject(resource, texture, None))
    assert value(driver.cuTexObjectGetTextureDesc(int(handle))).flags == 0x33
    assert str(value(rt.cudaGetTextureObjectTextureDesc(handle))) == str(texture)
    surface = value(rt.cudaCreateSurfaceObject(resource))
    assert type(surface) is rt.cudaSurfaceObject_t
    assert int(value(rt.cudaGetSurfaceObjectResourceDesc(surface)).res.array.array) == int(array)
    value(rt.cudaDestroySurfaceObject(surface))
    assert rt.cudaCreateTextureObject(None, texture, None) == (INVALID, None)

def test_linear():
    resource, texture = rt.cudaResourceDesc(), rt.cudaTextureDesc()
    pointer, pitch = value(rt.cudaMallocPitch(64, 4))
    resource.resType = rt.cudaResourceType.cudaResourceTypePitch2D
    resource.res.pitch2D.devPtr, resource.res.pitch2D.desc = pointer, channels(32, 32)
    resource.res.pitch2D.width, resource.res.pitch2D.height, resource.res.pitch2D.pitchInBytes = 8, 4, pitch
    found = value(rt.cudaGetTextureObjectResourceDesc(value(rt.cudaCreateTextureObject(resource, texture, None))))
    plane = found.res.pitch2D
    assert (plane.devPtr, plane.width, plane.height, plane.pitchInBytes) == (pointer, 8, 4, pitch)
    assert fields(plane.desc) == (32, 32, 0, 0, 1)
    resource.resType = rt.cudaResourceType.cudaResourceTypeLinear
    resource.res.linear.devPtr, resource.res.linear.sizeInBytes = pointer, 64
    resource.res.linear.desc = channels(32, kind=KIND.cudaChannelFormatKindFloat)
    found = value(rt.cudaGetTextureObjectResourceDesc(value(rt.cudaCreateTextureObject(resource, texture, None))))
    assert (found.res.linear.devPtr, found.res.linear.sizeInBytes) == (pointer, 64)
    assert fields(found.res.linear.desc) == (32, 0, 0, 0, 2)
    cuda_12 = SimpleNamespace(resType=resource.resType, res=resource.res)  # the runtime of CUDA 12 has no flags there
    found = value(rt.cudaGetTextureObjectResourceDesc(value(rt.cudaCreateTextureObject(cuda_12, texture, None))))
    assert (found.res.linear.devPtr, found.res.linear.sizeInBytes) == (pointer, 64)

# Fills and copies in graphs run; what a node allocates or holds comes back in its parameters.
def parameters_of(kind):
    made = rt.cudaGraphNodeParams()
    made.type = getattr(rt.cudaGraphNodeType, f"cudaGraphNodeType{kind}")
    return made

def add(graph, before, parameters):
    return value(rt.cudaGraphAddNode(graph, before, None, len(before), parameters))

def run_graph(graph):
    value(rt.cudaGraphLaunch(value(rt.cudaGraphInstantiate(graph, 0)), 0))

def fill_of(pointer):
    fill = rt.cudaMemsetParams()
    fill.dst, fill.value, fill.elementSize, fill.width, fill.height = pointer, 7, 1, 16, 1
    return fill

def test_fill_and_copy():
    graph, pointer, found = value(rt.cudaGraphCreate(0)), value(rt.cudaMalloc(16)), bytearray(16)
    filled = value(rt.cudaGraphAddMemsetNode(graph, [], 0, fill_of(pointer)))
    copied = value(rt.cudaGraphAddMemcpyNode1D(graph, [filled], 1, found, pointer, 12, COPY))
    part = rt.cudaMemcpy3DParms()
    part.srcPtr, part.dstPtr, part.extent = pitched(pointer, 2, 1), pitched(found, 16, 1), extent(2, 1, 1)
    part.dstPos.x, part.kind = 14, COPY
    value(rt.cudaGraphAddMemcpyNode(graph, [copied], 1, part))
    run_graph(graph)
    assert found == b"\\7" * 12 + bytes(2) + b"\\7" * 2

def test_nodes_of_any_type():
    graph, found = value(rt.cudaGraphCreate(0)), bytearray(16)
    memory = rt.cudaMemAllocNodeParams()
    memory.poolProps.allocType = rt.cudaMemAllocationType.cudaMemAllocationTypePinned
    memory.poolProps.location.type = rt.cudaMemLocationType.cudaMemLocationTypeDevice
    memory.bytesize = 16
    allocated = value(rt.cudaGraphAddMemAllocNode(graph, None, 0, memory))
    fill, copy, free = parameters_of("Memset"), parameters_of("Memcpy"), parameters_of("MemFree")
    fill.memset.dst, fill.memset.value, fill.memset.elementSize = memory.dptr, 5, 1
    fill.memset.width, fill.memset.height = 16, 1
    part = rt.cudaMemcpy3DParms()
    part.srcPtr, part.dstPtr, part.extent = pitched(memory.dptr, 16, 1), pitched(found, 16, 1), extent(16, 1, 1)
    part.kind = COPY
    copy.memcpy.copyParams, free.free.dptr = part, memory.dptr
    copied = add(graph, [add(graph, [allocated], fill)], copy)
    add(graph, [copied], free)
    run_graph(graph)
    assert found == b"\\5" * 16
    again = parameters_of("MemAlloc")
    again.alloc.poolProps, again.alloc.bytesize = memory.poolProps, 8
    add(graph, [], again)
    assert int(again.alloc.dptr) not in (0, int(memory.dptr))

def test_conditional():
    graph, given = value(rt.cudaGraphCreate(0)), parameters_of("Conditional")
    given.conditional.handle = value(rt.cudaGraphConditionalHandleCreate(graph, 0, 0))
    given.conditional.type, given.conditional.size = rt.cudaGraphConditionalNodeType.cudaGraphCondTypeIf, 1
    add(graph, [], given)
    (body,) = given.conditional.phGraph_out
    value(rt.cudaGraphAddEmptyNode(body, None, 0))

# A function without a counterpart answers as the runtime does, and the test says which it was.
def test_no_counterpart():
    value(rt.cudaFuncGetAttributes(0))

def test_blocks_of_pixels():  # such a copy has no measured answer
    kind = KIND.cudaChannelFormatKindUnsignedBlockCompressed1
    array = value(rt.cudaMallocArray(channels(8, 8, 8, 8, kind=kind), 16, 16, 0))
    value(rt.cudaMemcpyToArray(array, 0, 0, bytearray(8), 8, COPY))

def test_kernel_by_a_symbol_of_the_host():
    value(rt.cudaGraphAddNode(value(rt.cudaGraphCreate(0)), None, None, 0, rt.cudaGraphNodeParams()))
"""


def test_suite(run) -> None:
    """Formats, copies, textures and nodes of graphs; what has no way says so."""
    result = run(SUITE, "--cudalink-unsupported=skip", "-rs")
    result.assert_outcomes(passed=27, skipped=3)
    for name in ("cudaFuncGetAttributes", "cudaMemcpyToArray", "cudaGraphAddNode"):
        result.stdout.fnmatch_lines([f"*cudalink: needs a real driver: {name} is not emulated"])


def test_later_kinds_are_refused(toolkit) -> None:
    """A kind of channel that the table does not know may be a valid one, so it is no wrong descriptor."""
    from cuda.bindings import driver, runtime

    table = read_table("emulator/cuda_runtime.toml")
    later = table | {"formats": {name: row for name, row in table["formats"].items() if row[0] != "Float"}}

    class Alone(Arrays):
        def _forward(self, *_):
            return ("made",)

    channels = runtime.cudaChannelFormatDesc()
    channels.x, channels.f = 32, runtime.cudaChannelFormatKind.cudaChannelFormatKindFloat
    assert Alone(runtime, driver, table)._malloc_array(channels, 8, 0, 0) == ("made",)
    with pytest.raises(RefusedError):
        Alone(runtime, driver, later)._malloc_array(channels, 8, 0, 0)
