"""Arrays and mipmapped arrays: what can be made, and what copies to and from them move."""

from __future__ import annotations

from tests.emulated.conftest import programs

START = """
start()

class Descriptor(Structure):
    _fields_ = [("width", c_size_t), ("height", c_size_t), ("depth", c_size_t)]
    _fields_ += [("format", c_int), ("channels", c_uint), ("flags", c_uint)]

HOST, DEVICE, ARRAY = 1, 2, 3
UINT8, UINT32, FLOAT, NV12, BC1 = 1, 3, 0x20, 0xb0, 0x91
LAYERED, SURFACE, CUBEMAP, GATHER, SPARSE, DEFERRED, VIDEO = 1, 2, 4, 8, 0x40, 0x80, 0x100

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

def described(array):
    found = Descriptor()
    ok(cuda.cuArray3DGetDescriptor_v2(byref(found), array))
    return (found.width, found.height, found.depth, found.format, found.channels, found.flags)
"""


PROGRAMS = {
    "what_can_be_made": """
# Every shape within the limits of the device; the descriptor is given back.
for arguments in ((7,), (7, 5), (7, 5, 3), (7, 0, 9, FLOAT, 1, LAYERED), (7, 5, 9, FLOAT, 2, LAYERED),
                  (8, 8, 6, FLOAT, 4, CUBEMAP), (8, 8, 12, FLOAT, 4, CUBEMAP | LAYERED), (8, 8, 0, UINT8, 4, SURFACE),
                  (16, 16, 0, BC1, 4, 0), (16, 16, 0, NV12, 3, VIDEO), (64, 64, 0, UINT32, 2, GATHER)):
    array = made(*arguments)
    assert described(array) == (*arguments, *(0, 0, 0, FLOAT, 1, 0)[len(arguments):]), arguments
    ok(cuda.cuArrayDestroy(array))
    assert cuda.cuArrayDestroy(array) == 400
class Flat(Structure):
    _fields_ = [("width", c_size_t), ("height", c_size_t), ("format", c_int), ("channels", c_uint)]
array, flat = c_void_p(), Flat(31, 17, UINT8, 4)
ok(cuda.cuArrayCreate_v2(byref(array), byref(flat)))
assert described(array) == (31, 17, 0, UINT8, 4, 0)
ok(cuda.cuArrayGetDescriptor_v2(byref(flat), array))
assert (flat.width, flat.height, flat.format, flat.channels) == (31, 17, UINT8, 4)
for name in ("cuArrayCreate", "cuArray3DCreate", "cuArrayGetDescriptor", "cuArray3DGetDescriptor"):
    assert getattr(cuda, name)(byref(array), byref(flat)) == 201  # of before CUDA 3.2
""",
    "what_cannot_be_made": """
# Unknown formats, channels and flags, extents out of range, and flags that do not fit the shape.
assert refuses(0) and refuses(0, 4) and refuses(4, 0, 4)
assert refuses(4, format=0x77) and refuses(4, channels=3) and refuses(4, channels=0) and refuses(4, flags=1 << 12)
assert refuses(131073) and refuses(131072, flags=SURFACE) and not create(131072)[0]
assert refuses(8, 65537) and refuses(16385, 16385, 16385) and refuses(8, 8, 2049, flags=LAYERED)
assert refuses(8, 4, 6, flags=CUBEMAP) and refuses(8, 8, 5, flags=CUBEMAP) and refuses(8, 8, 12, flags=CUBEMAP)
assert refuses(8, 8, 7, flags=CUBEMAP | LAYERED)
assert refuses(8, 8, 2, flags=GATHER) and refuses(8, flags=GATHER)
assert refuses(16, 16, 0, BC1, 1) and refuses(16, 16, 0, BC1, 4, SURFACE) and refuses(16, 0, 0, NV12, 3, VIDEO)
assert refuses(16, 16, 0, NV12, 3)
assert refuses(8, 8, flags=SPARSE | DEFERRED)
assert cuda.cuArray3DCreate_v2(None, byref(Descriptor(4))) == 1
assert cuda.cuArray3DCreate_v2(byref(c_void_p()), None) == 1
found = Descriptor()
assert cuda.cuArray3DGetDescriptor_v2(None, made(4)) == 1
for wrong in (None, c_void_p(0x1234)):
    assert cuda.cuArray3DGetDescriptor_v2(byref(found), wrong) == 400
    assert cuda.cuArrayDestroy(wrong) == 400
ok(cuda.cuCtxSetCurrent(None))
assert create(4)[0] == 201
""",
    "copies": """
# Bytes go into boxes of arrays and come back; what lies outside of an array is refused.
array, other = made(8, 6, 4, UINT8), made(8, 6, 4, UINT8)
data = bytes(range(192))
source, back = char_buffer(data, 192), char_buffer(b"", 192)
whole = Copy3D(from_type=HOST, from_host=addressof(source), from_pitch=8, from_rows=6, to_type=ARRAY,
             to_array=array.value, width=8, height=6, depth=4)
ok(cuda.cuMemcpy3D_v2(byref(whole)))
sides = dict(from_type=ARRAY, from_array=array.value, to_type=ARRAY, to_array=other.value)
ok(cuda.cuMemcpy3D_v2(byref(Copy3D(**sides, width=8, height=6, depth=4))))
box = Copy3D(from_type=ARRAY, from_array=other.value, from_x=2, from_y=1, from_z=3, to_type=HOST,
             to_host=addressof(back), to_pitch=3, to_rows=2, width=3, height=2, depth=1)
ok(cuda.cuMemcpy3D_v2(byref(box)))
assert back.raw[:6] == bytes(3 * 48 + y * 8 + x for y in (1, 2) for x in (2, 3, 4))
for name, value in (("from_x", 6), ("from_y", 5), ("from_z", 4), ("from_level", 1)):
    wrong = Copy3D.from_buffer_copy(box)
    setattr(wrong, name, value)
    assert cuda.cuMemcpy3D_v2(byref(wrong)) == 1, name
wrong = Copy3D.from_buffer_copy(box)
wrong.from_array = 0x1234
assert cuda.cuMemcpy3D_v2(byref(wrong)) == 1

# the functions for one line
line, device = made(64, format=UINT8), allocate(64)
size = lambda number: c_size_t(number)
ok(cuda.cuMemcpyHtoA_v2(line, size(4), source, size(60)))
ok(cuda.cuMemcpyAtoD_v2(c_uint64(device), line, size(8), size(16)))
ok(cuda.cuMemcpyDtoA_v2(line, size(0), c_uint64(device), size(16)))
ok(cuda.cuMemcpyAtoA_v2(line, size(32), line, size(0), size(8)))
ok(cuda.cuMemcpyAtoH_v2(back, line, size(0), size(64)))
assert back.raw[:16] == data[4:20] and back.raw[32:40] == data[4:12] and back.raw[40:64] == data[36:60]
ok(cuda.cuMemcpyHtoAAsync_v2(line, size(0), source, size(64), None))
ok(cuda.cuMemcpyAtoHAsync_v2(back, line, size(0), size(64), None))
assert back.raw[:64] == data[:64]
assert cuda.cuMemcpyAtoH_v2(back, line, size(1), size(64)) == 1
assert cuda.cuMemcpyAtoD_v2(c_uint64(device + 1), line, size(0), size(64)) == 1
assert cuda.cuMemcpyHtoA_v2(None, size(0), source, size(4)) == 1
ok(cuda.cuMemcpyHtoA_v2(None, size(0), source, size(0)))
assert cuda.cuMemcpyAtoH_v2(back, array, size(4), size(5)) == 1  # beyond the first row
assert cuda.cuMemcpyHtoAAsync_v2(line, size(0), source, size(4), c_void_p(0x1234)) == 400
""",
    "mipmaps_and_planes": """
# Levels halve; planes are smaller as the format says; neither outlives the whole, and neither goes alone.
mipmap, level = c_void_p(), c_void_p()
ok(cuda.cuMipmappedArrayCreate(byref(mipmap), byref(Descriptor(16, 10, 0, FLOAT, 1, 0)), 99))
sizes = []
while not cuda.cuMipmappedArrayGetLevel(byref(level), mipmap, len(sizes)):
    sizes.append(described(level)[:3])
assert sizes == [(16, 10, 0), (8, 5, 0), (4, 2, 0), (2, 1, 0), (1, 1, 0)]
assert cuda.cuMipmappedArrayGetLevel(byref(level), mipmap, 5) == 1
ok(cuda.cuMipmappedArrayGetLevel(byref(level), mipmap, 1))
ok(cuda.cuArrayDestroy(level))
data, back = char_buffer(b"x" * 32, 32), char_buffer(b"", 32)
ok(cuda.cuMemcpyHtoA_v2(level, c_size_t(0), data, c_size_t(32)))
ok(cuda.cuMemcpyAtoH_v2(back, level, c_size_t(0), c_size_t(32)))
assert back.raw == data.raw
assert cuda.cuMemcpyHtoA_v2(level, c_size_t(0), data, c_size_t(33)) == 1
ok(cuda.cuMipmappedArrayDestroy(mipmap))
assert cuda.cuMipmappedArrayDestroy(mipmap) == 400
assert cuda.cuMemcpyHtoA_v2(level, c_size_t(0), data, c_size_t(4)) == 1
layers = new(cuda.cuMipmappedArrayCreate, byref(Descriptor(8, 8, 5, FLOAT, 1, LAYERED)), 2)
ok(cuda.cuMipmappedArrayGetLevel(byref(level), layers, 1))
assert described(level)[:3] == (4, 4, 5)

video, plane = made(16, 8, 0, NV12, 3, VIDEO), c_void_p()
for number, expected in enumerate(((16, 8, 0, UINT8, 1), (8, 4, 0, UINT8, 2))):
    ok(cuda.cuArrayGetPlane(byref(plane), video, number))
    assert described(plane)[:5] == expected
assert cuda.cuArrayGetPlane(byref(plane), video, 2) == 1
assert cuda.cuArrayGetPlane(byref(plane), made(8, 8), 0) == 1
assert cuda.cuMemcpyHtoA_v2(video, c_size_t(0), data, c_size_t(4)) == 1
""",
    "sparse_and_deferred": """
# Arrays without memory say what is to be bound to them; others answer 1.
properties, needs = (c_uint * 12)(), (c_size_t * 4)()
sparse, plain, deferred = made(1024, 1024, flags=SPARSE), made(64, 64), made(64, 64, flags=DEFERRED)
ok(cuda.cuArrayGetSparseProperties(properties, sparse))
assert tuple(properties[:3]) == (128, 128, 1)
assert cuda.cuArrayGetSparseProperties(properties, plain) == 1
ok(cuda.cuArrayGetMemoryRequirements(needs, deferred, 0))
assert (needs[0], needs[1]) == (65536, 65536)
ok(cuda.cuArrayGetMemoryRequirements(needs, sparse, 0))
assert needs[0] == 4 << 20
assert cuda.cuArrayGetMemoryRequirements(needs, plain, 0) == 1
assert cuda.cuArrayGetMemoryRequirements(needs, deferred, 7) == 1
assert cuda.cuMemcpyAtoH_v2(char_buffer(), sparse, c_size_t(0), c_size_t(4)) == 1
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
    "they_die_with_their_context": """
# The memory of arrays is given back by destroying them, or their context.
from tests.emulated.memory_calls import left
before, own = left(), new(cuda.cuCtxCreate_v2, 0, 0)
arrays = [made(1024, 1024), made(512, 512, 0, NV12, 3, VIDEO)]
mipmap = new(cuda.cuMipmappedArrayCreate, byref(Descriptor(256, 256, 0, FLOAT, 4, 0)), 9)
assert before - left() >= 4 << 20
ok(cuda.cuCtxDestroy_v2(own))
assert left() == before
assert cuda.cuArrayDestroy(arrays[0]) == 400
for _ in range(3000):
    ok(cuda.cuArrayDestroy(made(300, 300)))
assert left() == before
""",
}
test_programs = programs(PROGRAMS, START)
