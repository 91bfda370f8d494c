"""Arrays, textures and tensor maps: what copies move, and what is given back."""

import pytest

from tests.emulator.conftest import ROOT, programs

START = """
start()

class Descriptor(Structure):
    _fields_ = [("width", c_size_t), ("height", c_size_t), ("depth", c_size_t)]
    _fields_ += [("format", c_int), ("channels", c_uint), ("flags", c_uint)]

HOST, DEVICE, ARRAY = 1, 2, 3
UINT8, FLOAT, NV12, BC1 = 1, 0x20, 0xb0, 0x91
LAYERED, SURFACE, SPARSE, VIDEO = 1, 2, 0x40, 0x100

def create(width, height=0, depth=0, format=FLOAT, channels=1, flags=0):
    array = c_void_p()
    descriptor = Descriptor(width, height, depth, format, channels, flags)
    return cuda.cuArray3DCreate_v2(byref(array), byref(descriptor)), array

def made(*arguments, **options):
    code, array = create(*arguments, **options)
    ok(code)
    return array

def refuses(*arguments, **options):
    return create(*arguments, **options)[0] == 1
"""


PROGRAMS = {
    "blocks_and_planes": """
# Surfaces have no blocks; planes have two dimensions, and are smaller as the format says. The highest flag is not
# looked at, and lines of memory can be of blocks (as on an H200).
assert new(cuda.cuArray3DGetDescriptor_v2, Descriptor, made(8, 8, flags=1 << 31)).flags == 1 << 31
assert get(cuda.cuDeviceGetTexture1DLinearMaxWidth, c_size_t, BC1, 4, 0) == 1 << 29
assert refuses(16, 16, 0, BC1, 4, SURFACE) and refuses(16, 0, 0, NV12, 3, VIDEO)
video = made(16, 8, 0, NV12, 3, VIDEO)
for number, expected in enumerate(((16, 8, 0, UINT8, 1), (8, 4, 0, UINT8, 2))):
    found = new(cuda.cuArray3DGetDescriptor_v2, Descriptor, new(cuda.cuArrayGetPlane, c_void_p, video, number))
    assert (found.width, found.height, found.depth, found.format, found.channels) == expected
from tests.emulator.memory_calls import left
before, video = left(), made(2048, 2048, 0, NV12, 3, VIDEO)
assert before - left() >= 2048 * 2048 * 3 // 2
""",
    "copies": """
# Copies of a line, at offsets and in the order of a stream. A batch counts in elements of the array (cuda.h).
other, line, data = made(8, 6, 4, UINT8), made(64, format=UINT8), bytes(range(64))
source, back, device = char_buffer(data, 64), char_buffer(b"", 64), allocate(64)
ok(cuda.cuMemcpyHtoA_v2(line, c_size_t(4), source, c_size_t(60)))
ok(cuda.cuMemcpyAtoD_v2(c_uint64(device), line, c_size_t(8), c_size_t(16)))
ok(cuda.cuMemcpyDtoA_v2(line, c_size_t(16), c_uint64(device), c_size_t(16)))
ok(cuda.cuMemcpyAtoA_v2(line, c_size_t(40), line, c_size_t(16), c_size_t(8)))
ok(cuda.cuMemcpyAtoH_v2(back, line, c_size_t(4), c_size_t(60)))
assert back.raw[:60] == data[:12] + data[4:20] + data[28:36] + data[4:12] + data[44:60]
ok(cuda.cuMemcpyHtoAAsync_v2(line, c_size_t(0), source, c_size_t(64), None))
ok(cuda.cuMemcpyAtoHAsync_v2(back, line, c_size_t(0), c_size_t(64), None))
assert back.raw == data
stream, batch = new(cuda.cuStreamCreate, 0), cuda.cuMemcpy3DBatchAsync_v2
wide, rows = made(4, 2, format=FLOAT), (c_uint64 * 8)()
pointer, place = (1, addressof(source), 4, 0, 0), (2, wide.value, 1, 1, 0)
def copied(of, to, width):
    operation = (c_uint64 * 14)(*of, *to, width, 1, 1, 1 | 1 << 32)  # may overlap with kernels
    return batch(c_size_t(1), operation, c_uint64(0), stream)
none = (2, 1, 0, 0, 0), (2, other.value, 0, 0, 0)
assert [copied(pointer, place, 4), *(copied(one, place, 1) for one in none)] == [1, 1, 1]
ok(copied(pointer, place, 3)), ok(copied(place, (1, addressof(rows), 0, 0, 0), 3))
ok(cuda.cuStreamSynchronize(stream))
assert bytes(rows)[:13] == data[:12] + bytes(1)
""",
    "tails_of_sparse_mipmaps": """
# The levels that are smaller than a tile share whole tiles, of one layer where there are several.
mipmap, found = c_void_p(), (c_uint * 12)()
def tail(width, height, depth=0, flags=0):
    shape = Descriptor(width, height, depth, FLOAT, 1, flags | SPARSE)
    ok(cuda.cuMipmappedArrayCreate(byref(mipmap), byref(shape), 32))
    ok(cuda.cuMipmappedArrayGetSparseProperties(found, mipmap))
    return found[3], c_uint64.from_buffer(found, 16).value, found[6]
assert tail(1000, 500) == (2, 196608, 0)  # these three are an H100's
assert tail(256, 256) == (2, 65536, 0)
assert tail(4096, 4096) == (6, 65536, 0)
assert tail(1000, 500, 4, LAYERED) == tail(1000, 500)
""",
    "tiles_of_sparse_arrays": """
# A tile has 64 KiB, in the shapes that are standard for sparse images. What is smaller is mapped whole, not as a tail.
found = (c_uint * 12)()
tiles = {
    (UINT8, 1): ((256, 256), (64, 32, 32)), (UINT8, 2): ((256, 128), (32, 32, 32)),
    (FLOAT, 1): ((128, 128), (32, 32, 16)), (FLOAT, 2): ((128, 64), (32, 16, 16)), (FLOAT, 4): ((64, 64), (16, 16, 16)),
}
for element, (flat, deep) in tiles.items():
    for depth, extents in ((0, (*flat, 1)), (64, deep)):
        ok(cuda.cuArrayGetSparseProperties(found, made(256, 256, depth, *element, SPARSE)))
        assert (*found[:3],) == extents, element
small = made(16, 16, flags=SPARSE)
def unmapped(part, layout, *numbers):
    place = struct.pack(layout, *numbers)
    info = struct.pack("iiQii32siiQQIIII", 0, 0, small.value, part, 0, place, 2, *bytes(3), 1, *bytes(3))
    return cuda.cuMemMapArrayAsync(info, 1, None)
assert (unmapped(0, "8I", *bytes(5), 16, 16, 1), unmapped(1, "IIQQQ", 0, 0, 0, 65536, 0)) == (0, 1)
whole = new(cuda.cuMipmappedArrayCreate, byref(Descriptor(1024, 1024, 0, UINT8, 1, SPARSE)), 10)
ok(cuda.cuMipmappedArrayGetSparseProperties(found, whole))
tail, pool = found[4], struct.pack("4I8xBBHBBH", 1, 0, 1, 0, 0, 0, 1, 0, 0, 0)  # CU_MEM_CREATE_USAGE_TILE_POOL
memory = get(cuda.cuMemCreate, c_uint64, c_size_t(2 << 20), pool, c_uint64(0))
def mapped(part, offset):
    place = struct.pack("IIQQQ", 0, 0, 0, tail, 0)
    info = struct.pack("iiQii32siiQQIIII", 1, 0, whole.value, part, 0, place, 1, 0, memory, offset, 1, *bytes(3))
    return cuda.cuMemMapArrayAsync(info, 1, None)
assert [mapped(1, 0), mapped(1, (2 << 20) - tail), mapped(1, 2 << 20), mapped(2, 0)] == [0, 0, 1, 1]
""",
    "they_die_with_their_context": """
# The memory of arrays is given back by destroying them, or their context.
from tests.emulator.memory_calls import left
before, own = left(), new(cuda.cuCtxCreate_v2, 0, 0)
arrays = [made(1024, 1024), made(512, 512, 0, NV12, 3, VIDEO)]
mipmap = new(cuda.cuMipmappedArrayCreate, byref(Descriptor(256, 256, 0, FLOAT, 4, 0)), 9)
assert before - left() >= 4 << 20
ok(cuda.cuCtxDestroy_v2(own))
assert left() == before
assert cuda.cuArrayDestroy(arrays[0]) == 709
for _ in range(3000):
    ok(cuda.cuArrayDestroy(made(300, 300)))
assert left() == before
""",
}
test_programs = programs(PROGRAMS, START)


TEXTURES = (
    START
    + """
class Resource(Structure):
    _fields_ = [("type", c_int), ("pad", c_int), ("one", c_uint64), ("format", c_int), ("channels", c_uint)]
    _fields_ += [("width", c_size_t), ("height", c_size_t), ("pitch", c_size_t), ("rest", c_byte * 88)]
    _fields_ += [("flags", c_uint)]

class Sampling(Structure):
    _fields_ = [("modes", c_int * 3), ("filter", c_int), ("flags", c_uint), ("anisotropy", c_uint), ("mipmap", c_int)]
    _fields_ += [("numbers", c_float * 7), ("reserved", c_int * 12)]

class View(Structure):
    _fields_ = [("format", c_int), ("width", c_size_t), ("height", c_size_t), ("depth", c_size_t)]
    _fields_ += [("first_level", c_uint), ("last_level", c_uint), ("first_layer", c_uint), ("last_layer", c_uint)]
    _fields_ += [("reserved", c_uint * 16)]

assert (sizeof(Resource), sizeof(Sampling), sizeof(View)) == (144, 104, 112)

def texture(resource, sampling=None, view=None):
    made = c_uint64()
    code = cuda.cuTexObjectCreate(byref(made), byref(resource), byref(sampling or Sampling()), view and byref(view))
    return code, made
"""
)


OF_TEXTURES = {
    "textures": """
# Textures of every kind of memory give back what they were made of; a destroyed one is not known, nor is a surface.
memory, array = allocate(1 << 16), made(64, 32)
resources = [
    Resource(0, 0, array.value),
    Resource(2, 0, memory, FLOAT, 1, 4096),
    Resource(3, 0, memory, FLOAT, 1, 32, 32, 128),
]
for resource in resources:
    code, one = texture(resource, Sampling((1, 2, 3), 1, 3))
    ok(code)
    got, sampling, view = Resource(), Sampling(), View()
    memset(byref(got), 7, sizeof(got)), memset(byref(sampling), 7, sizeof(sampling))
    ok(cuda.cuTexObjectGetResourceDesc(byref(got), one))
    written = 8 + {0: 8, 2: 24, 3: 40}[resource.type]  # the rest is left (as on an H200)
    assert (got.type, got.flags, bytes(got)[8:written]) == (resource.type, 0, bytes(resource)[8:written])
    assert set(bytes(got)[written : Resource.flags.offset]) == {7}
    ok(cuda.cuTexObjectGetTextureDesc(byref(sampling), one))
    assert (tuple(sampling.modes), sampling.filter, sampling.flags) == ((1, 2, 3), 1, 3)
    assert not any(sampling.numbers[:3]) and set(bytes(sampling)[Sampling.numbers.offset + 12 :]) == {7}
    view.width = 77
    ok(cuda.cuTexObjectGetResourceViewDesc(byref(view), one))
    assert view.width == 77  # it has none, and nothing is written
    ok(cuda.cuTexObjectDestroy(one))
    assert cuda.cuTexObjectGetResourceDesc(byref(got), one) == 1
levels = new(cuda.cuMipmappedArrayCreate, byref(Descriptor(64, 64, 0, FLOAT, 1, 0)), 3)
code, one = texture(Resource(1, 0, levels.value), Sampling((1, 2, 3), 1, 3))
ok(code or cuda.cuMipmappedArrayDestroy(levels))
memset(byref(got), 7, sizeof(got))
ok(cuda.cuTexObjectGetResourceDesc(byref(got), one))
assert (got.type, got.one, got.flags) == (0x07070707, 0x0707070707070707, 0)  # of what is gone nothing is written
for resource, axes in zip(resources, (2, 1, 2)):  # how each is left along other axes does not matter
    modes = [tuple(9 * (axis == wrong) for axis in range(3)) for wrong in range(3)]
    assert [texture(resource, Sampling(one))[0] for one in modes] == [int(wrong < axes) for wrong in range(3)]
assert texture(Resource(2, 0, memory, FLOAT, 1, 1 << 33))[0] == 1  # longer than a line can be
code, one = texture(resources[0], None, View(0x0d, 64, 32, 0))
ok(code)
ok(cuda.cuTexObjectGetResourceViewDesc(byref(view), one))
assert (view.format, view.width, view.height) == (0x0d, 64, 32)
surface = new(cuda.cuSurfObjectCreate, c_uint64, byref(resources[0]))
ok(cuda.cuTexObjectDestroy(surface))
ok(cuda.cuSurfObjectGetResourceDesc(byref(got), surface))
assert got.one == array.value
ok(cuda.cuSurfObjectDestroy(surface))
assert cuda.cuSurfObjectGetResourceDesc(byref(got), surface) == 1
for wrong in (Resource(2, 0, memory, FLOAT, 1, 64), Resource(0, 0, 0x1234)):
    assert cuda.cuSurfObjectCreate(byref(surface), byref(wrong)) == 1
new(cuda.cuCtxCreate_v2, 0, 0)
assert cuda.cuSurfObjectCreate(byref(surface), byref(resources[0])) == 705
""",
    "texture_references": """
# A reference gives back what was set; what was not bound is 1, and what is no reference is 400.
reference, array, memory = c_void_p(), made(64, 32, 0, UINT8, 4), allocate(1 << 16)
got, many, pointer, offset = c_int(), c_int(), c_void_p(), c_size_t(7)
ok(cuda.cuTexRefCreate(byref(reference)))
assert get(cuda.cuTexRefGetFormat, c_int, c_int, reference) == (FLOAT, 1)
for name in ("cuTexRefGetArray", "cuTexRefGetMipmappedArray", "cuTexRefGetAddress_v2"):
    assert getattr(cuda, name)(byref(pointer), reference) == 1
ok(cuda.cuTexRefSetArray(reference, array, 1))
assert get(cuda.cuTexRefGetArray, c_void_p, reference) == array.value
assert get(cuda.cuTexRefGetFormat, c_int, c_int, reference) == (UINT8, 4)
assert get(cuda.cuTexRefSetAddress_v2, c_size_t, reference, c_uint64(memory), c_size_t(64)) == 0
assert get(cuda.cuTexRefGetAddress_v2, c_uint64, reference) == memory
assert cuda.cuTexRefGetArray(byref(pointer), reference) == 1
color, read = (c_float * 4)(1, 2, 3, 4), (c_float * 4)()
ok(cuda.cuTexRefSetBorderColor(reference, color))
ok(cuda.cuTexRefGetBorderColor(read, reference))
assert tuple(read) == (1, 2, 3, 4)
ok(cuda.cuTexRefSetMipmapLevelClamp(reference, c_float(1), c_float(2)))
assert get(cuda.cuTexRefGetMipmapLevelClamp, c_float, c_float, reference) == (1, 2)
assert cuda.cuTexRefSetArray(reference, c_void_p(0x1234), 1) == 400
ok(cuda.cuTexRefDestroy(reference))
assert cuda.cuTexRefDestroy(reference) == 400
assert cuda.cuTexRefGetFlags(byref(got), reference) == 400
""",
}
test_programs_of_textures = programs(OF_TEXTURES, TEXTURES)


TENSOR_MAPS = """
start()
memory, out = allocate(1 << 16), char_buffer(b"", 128)
numbers = lambda kind, *values: (kind * len(values))(*values)

def tiled(out=out, type=7, rank=2, address=memory, extents=(64, 64), strides=(256,), box=(32, 32), steps=(1, 1),
          interleave=0, swizzle=0, promotion=0, fill=0):
    return cuda.cuTensorMapEncodeTiled(out, type, rank, c_void_p(address), numbers(c_uint64, *extents),
                                       strides and numbers(c_uint64, *strides), numbers(c_uint, *box),
                                       numbers(c_uint, *steps), interleave, swizzle, promotion, fill)
"""


def test_tensor_maps(check) -> None:
    """The address of a map can be replaced; devices before sm_90 have none, those behind it more types."""
    check(
        TENSOR_MAPS
        + """
for swizzle, aligned in enumerate((16, 256, 512, 1024)):  # the bytes of a box, and what it is aligned to (H200)
    ok(tiled(box=(8, 32), swizzle=swizzle))
    assert (c_uint * 32).from_buffer(out)[16:20] == [8 * 32 * 4, 0, aligned, 0]
ok(tiled())
assert out.raw[:8] == memory.to_bytes(8, "little")
before = out.raw
ok(cuda.cuTensorMapReplaceAddress(out, c_void_p(memory + 16)))
assert out.raw[:8] == (memory + 16).to_bytes(8, "little") and out.raw[8:] == before[8:]
arguments = (out, 7, 3, c_void_p(memory), None, None, 0, 0, 16, 16, None, 0, 0, 0, 0, 0)
assert cuda.cuTensorMapEncodeIm2colWide(*arguments) == 1
def wide(rank, lower):
    sizes = numbers(c_uint64, 64, *[8] * (rank - 1)), numbers(c_uint64, *(128 << 3 * at for at in range(rank - 1)))
    rest = (16, 16, numbers(c_uint, *[1] * rank), 0, 0, 0, 0, 0)
    return cuda.cuTensorMapEncodeIm2colWide(out, 6, rank, c_void_p(memory), *sizes, lower, 0, *rest)
for rank, least in ((3, -1 << 15), (4, -1 << 7), (5, -1 << 4)):
    assert (wide(rank, least), wide(rank, least - 1)) == (0, 1)
corners = numbers(c_int, -16, -1, 1), numbers(c_int, 0, 1, 15)
extents, strides = numbers(c_uint64, 64, 8, 8, 8, 8), numbers(c_uint64, 128, 1024, 8192, 65536)
steps = numbers(c_uint, 1, 1, 1, 1, 1)
ok(cuda.cuTensorMapEncodeIm2col(out, 6, 5, c_void_p(memory), extents, strides, *corners, 16, 16, steps, 0, 0, 0, 0))
assert hex((c_uint * 32).from_buffer(out)[14]) == "0x3c2007f0"  # five bits each, from bit 0 and from bit 16
"""
    )
    check(TENSOR_MAPS + "assert tiled() == 801 and 'tensor maps' in last_event()['note']\n", device="sm_80")
    check(TENSOR_MAPS + "ok(tiled(type=13, box=(64, 32), strides=(32,)))\n", device="sm_100")


@pytest.mark.parametrize("device", ["h200", "b200"])
def test_kept_tensor_maps(device: str, check, as_kept) -> None:
    """Each form of a map with one argument changed, of each type of data, is answered and written as kept."""
    out = check(
        """
import zlib
start()
room = char_buffer(bytes(4096), 4096)
place, words, words32 = addressof(room) + -addressof(room) % 64, c_uint64 * 5, c_uint * 5
FORMS = {  # before the arguments that all have, and behind them
    "Tiled": lambda a: (words32(a["box"], *[2] * 4), a["steps"]),
    "Im2col": lambda a: ((c_int * 3)(a["low"]), (c_int * 3)(a["high"]), a["box"], a["pixels"], a["steps"]),
    "Im2colWide": lambda a: (a["low"], a["high"], a["box"], a["pixels"], a["steps"]),
}
USUAL = dict(type=0, rank=3, address=1 << 20, extent=256, stride=1 << 10, box=128, low=-1, high=1, pixels=8, step=1,
             interleave=0, mode=0, swizzle=0, promotion=0, fill=0)
VALUES = dict(USUAL, rank=(2, 4, 5, 6), address=(1, 16, 32, 1 << 57), extent=(0, 2, 3, 1 << 32, (1 << 32) + 1),
              stride=(16, 32, 15 << 36, 1 << 40), box=(0, 2, 16, 32, 64, 256, 257), low=(-129, -128, 127, 128),
              step=(0, 2, 8, 9), high=(-129, -128, 127, 128), pixels=(0, 1, 1024, 1025), interleave=(-1, 1, 2, 3),
              mode=(-1, 1, 2), swizzle=range(-1, 8), promotion=(-1, 1, 3, 4), fill=(-1, 1, 2))
for form, own in FORMS.items():
    for kind in range(-1, 17):
        answers = {}
        for name, values in VALUES.items():
            for value in values if name != "type" else [kind]:
                given = USUAL | {"type": kind, name: value}
                given["steps"] = words32(given["step"], *[1] * 4)
                mode = [given["mode"]] * (form == "Im2colWide")
                memset(place, 165, 128)
                code = getattr(cuda, "cuTensorMapEncode" + form)(
                    c_void_p(place), kind, given["rank"], c_void_p(given["address"]), words(given["extent"], *[64] * 4),
                    words(*[given["stride"]] * 4), *own(given), given["interleave"], *mode, given["swizzle"],
                    given["promotion"], given["fill"])
                moved = [cuda.cuTensorMapReplaceAddress(c_void_p(place), c_void_p(at)) for at in (16, 32)]
                answers.setdefault((code, *moved), []).append((name, value, string_at(place, 128)))
        for codes, asked in answers.items():
            changes = (f"{name}={value}" for name, value, _ in asked)
            print(form, kind, *codes, f"{zlib.crc32(repr(asked).encode()):08x}", *changes)
""",
        device=device,
    )
    as_kept(ROOT / "tests" / "data" / f"tensor_maps_{device}.txt", out)
