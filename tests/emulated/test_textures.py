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
    ok(cuda.cuTexObjectGetResourceDesc(byref(got), one))
    assert bytes(got) == bytes(resource)
    ok(cuda.cuTexObjectGetTextureDesc(byref(sampling), one))
    assert (tuple(sampling.modes), sampling.filter, sampling.flags) == ((1, 2, 3), 1, 3)
    view.width = 77
    ok(cuda.cuTexObjectGetResourceViewDesc(byref(view), one))
    assert view.width == 77  # it has none, and nothing is written
    ok(cuda.cuTexObjectDestroy(one))
    assert cuda.cuTexObjectGetResourceDesc(byref(got), one) == 1
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
""",
    "texture_references": """
# A reference gives back what was set.
reference = new(cuda.cuTexRefCreate)
color, read = (c_float * 4)(1, 2, 3, 4), (c_float * 4)()
ok(cuda.cuTexRefSetBorderColor(reference, color))
ok(cuda.cuTexRefGetBorderColor(read, reference))
assert tuple(read) == (1, 2, 3, 4)
ok(cuda.cuTexRefSetMipmapLevelClamp(reference, c_float(1), c_float(2)))
assert get(cuda.cuTexRefGetMipmapLevelClamp, c_float, c_float, reference) == (1, 2)
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
"""


def test_tensor_maps(check) -> None:
    """The address of a map can be replaced; devices before sm_90 have none, those behind it more types."""
    check(
        TENSOR_MAPS
        + """
ok(tiled())
assert out.raw[:8] == memory.to_bytes(8, "little")
before = out.raw
ok(cuda.cuTensorMapReplaceAddress(out, c_void_p(memory + 16)))
assert out.raw[:8] == (memory + 16).to_bytes(8, "little") and out.raw[8:] == before[8:]
arguments = (out, 7, 3, c_void_p(memory), None, None, 0, 0, 16, 16, None, 0, 0, 0, 0, 0)
assert cuda.cuTensorMapEncodeIm2colWide(*arguments) == 1
"""
    )
    check(TENSOR_MAPS + "assert tiled() == 801 and 'tensor maps' in last_event()['note']\n", device="sm_80")
    check(TENSOR_MAPS + "ok(tiled(type=13, box=(64, 32), strides=(32,)))\n", device="sm_100")
