"""Texture and surface objects, and tensor maps: descriptors that are checked and given back."""

from __future__ import annotations

from tests.emulated.conftest import programs
from tests.emulated.test_arrays import START as ARRAYS

START = (
    ARRAYS
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


PROGRAMS = {
    "textures": """
# Textures of every kind of memory; their descriptors come back; a destroyed one is no longer known.
memory, array, mipmap = allocate(1 << 16), made(64, 32), c_void_p()
ok(cuda.cuMipmappedArrayCreate(byref(mipmap), byref(Descriptor(64, 64, 0, FLOAT, 1, 0)), 3))
resources = [
    Resource(0, 0, array.value),
    Resource(2, 0, memory, FLOAT, 1, 4096),
    Resource(3, 0, memory, FLOAT, 1, 32, 32, 128),
]
for resource in resources:
    code, one = texture(resource, Sampling((1, 2, 3), 1, 3))
    ok(code)
    got, sampling, view = Resource(), Sampling(), View()
    ok(cuda.cuTexObjectGetResourceDesc(byref(got), one))
    assert bytes(got) == bytes(resource)
    ok(cuda.cuTexObjectGetTextureDesc(byref(sampling), one))
    assert (tuple(sampling.modes), sampling.filter, sampling.flags) == ((1, 2, 3), 1, 3)
    view.width = 77
    ok(cuda.cuTexObjectGetResourceViewDesc(byref(view), one))
    assert view.width == 77  # it has none, and nothing is written
    ok(cuda.cuTexObjectDestroy(one))
    ok(cuda.cuTexObjectDestroy(one))  # as an H200 says of every number
    assert cuda.cuTexObjectGetResourceDesc(byref(got), one) == 1
levels = Resource(1, 0, mipmap.value)
assert texture(levels)[0] == 0  # coordinates need not be normalized
assert texture(levels, Sampling(flags=2))[0] == 0
code, one = texture(resources[0], None, View(0x0d, 64, 32, 0))
ok(code)
ok(cuda.cuTexObjectGetResourceViewDesc(byref(view), one))
assert (view.format, view.width, view.height) == (0x0d, 64, 32)
assert texture(resources[0], None, View(0x0d, 63, 32, 0))[0] == 1
assert texture(resources[0], None, View(0x18, 64, 32, 0))[0] == 1  # its elements are larger
assert texture(resources[0], None, View(0x16, 64, 32, 0))[0] == 0  # floats are not blocks …
assert texture(resources[0], None, View(0x19, 64, 32, 0))[0] == 1  # … as those from BC1 on are
assert texture(resources[0], None, View(0x0d, 64, 32, 0, 0, 1))[0] == 1
assert texture(resources[1], None, View(0x0d, 64, 32, 0))[0] == 0  # memory has no views
""",
    "textures_that_are_refused": """
# Bad types, alignment, pitches, modes and flags are 1; so are arrays that are not alive.
memory, array = allocate(1 << 16), made(64, 32)
plain = Resource(0, 0, array.value)
for resource in (Resource(4, 0, array.value), Resource(2, 0, memory + 4, FLOAT, 1, 4096),
                 Resource(2, 0, memory, FLOAT, 3, 4096),
                 Resource(2, 0, memory, FLOAT, 1, 1 << 33), Resource(2, 0, 0, FLOAT, 1, 4),
                 Resource(3, 0, memory, FLOAT, 1, 32, 32, 129),
                 Resource(2, 0, memory, BC1, 4, 4096)):
    assert texture(resource)[0] == 1, bytes(resource)[:48]
plain.flags = 1
assert texture(plain)[0] == 1
plain.flags = 0
for sampling in (Sampling((4, 0, 0)), Sampling((-1, 0, 0)), Sampling(filter=2), Sampling(mipmap=2),
                 Sampling(flags=0x80), Sampling(flags=0x40)):
    assert texture(plain, sampling)[0] == 1
assert texture(Resource(0, 0, 0x1234))[0] == 1
assert texture(Resource(1, 0, array.value))[0] == 1
assert cuda.cuTexObjectCreate(None, byref(plain), byref(Sampling()), None) == 1
assert cuda.cuTexObjectCreate(byref(c_uint64()), byref(plain), None, None) == 1
width = c_size_t()
assert get(cuda.cuDeviceGetTexture1DLinearMaxWidth, c_size_t, FLOAT, 4, 0) == 1 << 28
assert cuda.cuDeviceGetTexture1DLinearMaxWidth(byref(width), FLOAT, 3, 0) == 1
assert cuda.cuDeviceGetTexture1DLinearMaxWidth(byref(width), FLOAT, 4, 9) == 101
ok(cuda.cuCtxSetCurrent(None))
assert texture(plain)[0] == 201
""",
    "surfaces": """
# A surface is of an array of the current context, whatever that was made for.
array, plain, surface, got = made(8, 8, flags=SURFACE), made(8, 8), c_uint64(), Resource()
ok(cuda.cuSurfObjectCreate(byref(surface), byref(Resource(0, 0, array.value))))
ok(cuda.cuSurfObjectGetResourceDesc(byref(got), surface))
assert got.one == array.value
ok(cuda.cuTexObjectDestroy(surface))
ok(cuda.cuSurfObjectGetResourceDesc(byref(got), surface))
ok(cuda.cuSurfObjectDestroy(surface))
ok(cuda.cuSurfObjectDestroy(c_uint64()))
ok(cuda.cuSurfObjectDestroy(surface))
assert cuda.cuSurfObjectGetResourceDesc(byref(got), surface) == 1
ok(cuda.cuSurfObjectCreate(byref(surface), byref(Resource(0, 0, plain.value))))
assert cuda.cuSurfObjectCreate(byref(surface), byref(Resource(2, 0, allocate(64), FLOAT, 1, 64))) == 1
assert cuda.cuSurfObjectCreate(byref(surface), byref(Resource(0, 0, 0x1234))) == 1
context = new(cuda.cuCtxCreate_v2, 0, 0)
assert cuda.cuSurfObjectCreate(byref(surface), byref(Resource(0, 0, plain.value))) == 705
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
test_programs = programs(PROGRAMS, START)


TENSOR_MAPS = """
start()
memory, out = allocate(1 << 16), char_buffer(b"", 128)
numbers = lambda kind, *values: (kind * len(values))(*values)

def tiled(out=out, type=7, rank=2, address=memory, extents=(64, 64), strides=(256,), box=(32, 32), steps=(1, 1),
          interleave=0, swizzle=0, promotion=0, fill=0):
    return cuda.cuTensorMapEncodeTiled(out, type, rank, c_void_p(address), numbers(c_uint64, *extents),
                                       strides and numbers(c_uint64, *strides), numbers(c_uint, *box),
                                       numbers(c_uint, *steps), interleave, swizzle, promotion, fill)

def im2col(rank=4, extents=(16, 32, 32, 4), strides=(64, 2048, 65536), lower=(0, 0), upper=(0, 0), channels=16,
           pixels=64):
    return cuda.cuTensorMapEncodeIm2col(out, 7, rank, c_void_p(memory), numbers(c_uint64, *extents),
                                        numbers(c_uint64, *strides), numbers(c_int, *lower), numbers(c_int, *upper),
                                        channels, pixels, numbers(c_uint, *(1,) * rank), 0, 0, 0, 0)
"""


def test_tensor_maps(check) -> None:
    """Maps are checked as documented; the address of one can be replaced."""
    check(
        TENSOR_MAPS
        + """
ok(tiled())
assert out.raw[:8] == memory.to_bytes(8, "little")
before = out.raw
ok(cuda.cuTensorMapReplaceAddress(out, c_void_p(memory + 16)))
assert out.raw[:8] == (memory + 16).to_bytes(8, "little") and out.raw[8:] == before[8:]
assert cuda.cuTensorMapReplaceAddress(out, c_void_p(memory + 8)) == 1
assert cuda.cuTensorMapReplaceAddress(None, c_void_p(memory)) == 1
ok(cuda.cuTensorMapReplaceAddress(char_buffer(b"", 128), c_void_p(memory)))  # no map yet
for wrong in (dict(rank=0), dict(rank=6), dict(type=16), dict(type=-1), dict(address=memory + 8),
              dict(extents=(0, 64)), dict(extents=(2**32 + 1, 64)), dict(strides=(260,)), dict(strides=(2**40,)),
              dict(box=(0, 32)), dict(box=(257, 32)), dict(box=(3, 32)), dict(steps=(1, 9)), dict(steps=(1, 0)),
              dict(interleave=1), dict(interleave=3), dict(swizzle=7), dict(swizzle=1), dict(promotion=4), dict(fill=2),
              dict(type=2, fill=1), dict(out=None), dict(type=13), dict(steps=(0, 1)), dict(steps=(9, 1)),
              dict(rank=1, extents=(64,), strides=None, box=(32,), steps=(1,)), dict(swizzle=4), dict(swizzle=6)):
    assert tiled(**wrong) == 1, wrong
ok(tiled(box=(8, 32), swizzle=1))
ok(tiled(fill=1, promotion=3))
three = dict(rank=3, extents=(16, 8, 8), strides=(64, 512), box=(16, 8, 8), steps=(1, 1, 1))
ok(tiled(**three, interleave=2, swizzle=1))
ok(tiled(**three, interleave=2))
ok(tiled(address=0))
ok(im2col())
ok(im2col(lower=(-128, 127), upper=(127, 127), extents=(16, 512, 512, 4)))
for wrong in (dict(lower=(-129, 0)), dict(upper=(0, 128)), dict(channels=257), dict(channels=0), dict(pixels=1025),
              dict(lower=(40, 0)), dict(channels=3)):
    assert im2col(**wrong) == 1, wrong
arguments = (out, 7, 3, c_void_p(memory), None, None, 0, 0, 16, 16, None, 0, 0, 0, 0, 0)
assert cuda.cuTensorMapEncodeIm2colWide(*arguments) == 1
"""
    )
    check(TENSOR_MAPS + "assert tiled() == 801 and 'tensor maps' in last_event()['note']\n", device="sm_80")
    check(TENSOR_MAPS + "ok(tiled(type=13, box=(64, 32), strides=(32,)))\n", device="sm_100")
