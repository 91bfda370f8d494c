"""Green contexts, and the groups of multiprocessors that they are made from."""

from tests.emulator.conftest import programs

START = """
start()

class Resource(Structure):
    _fields_ = [("type", c_int), ("hidden", c_byte * 92), ("count", c_uint), ("least", c_uint), ("unit", c_uint)]
    _fields_ += [("flags", c_uint), ("rest", c_byte * 32)]

assert sizeof(Resource) == 144

def of_device(device=0, kind=1):
    found = Resource()
    return cuda.cuDeviceGetDevResource(device, byref(found), kind), found

def split(least, wanted=None, flags=0, source=None):
    groups, rest = c_uint(wanted or 0), Resource()
    result = (Resource * wanted)() if wanted else None
    source = source or of_device()[1]
    code = cuda.cuDevSmResourceSplitByCount(result, byref(groups), byref(source), byref(rest), flags, least)
    return code, groups.value, result, rest

def described(*resources):
    description, count = c_void_p(), len(resources)
    return cuda.cuDevResourceGenerateDesc(byref(description), (Resource * count)(*resources), count), description

def green(*resources, device=0):
    made = c_void_p()
    code, description = described(*resources)
    ok(code)
    return cuda.cuGreenCtxCreate(byref(made), description, device, 1), made
"""


PROGRAMS = {
    "creations_that_are_refused": """
# Another device's resources, no default stream, what is not a description.
_, _, result, _ = split(8, 1)
code, description = described(result[0])
made = c_void_p()
for given, device, flags, code in ((description, 0, 0, 1), (None, 0, 1, 0), (c_void_p(0x1234), 0, 1, 1),
                                   (description, 2, 1, 101), (description, 1, 1, 101)):
    assert cuda.cuGreenCtxCreate(byref(made), given, device, flags) == code  # None is the whole device (recorded)
assert cuda.cuGreenCtxCreate(None, description, 0, 1) == 1
assert cuda.cuGreenCtxGetId(None, byref(c_uint64())) == 201  # the current one is not green
""",
    "structured_splits": """
# From 13.1 on groups can differ in size, and work queues are a resource.
def structured(*wanted, results=True):
    groups = (c_uint * (16 * len(wanted)))(*[number for one in wanted for number in (*one, *[0] * (16 - len(one)))])
    result, rest, whole = (Resource * len(wanted))(), Resource(), of_device()[1]
    out = result if results else None
    code = cuda.cuDevSmResourceSplit(out, len(wanted), byref(whole), byref(rest), 0, groups)
    return code, [one.count for one in result], rest.count, groups[0]

assert structured((10, 2), (0, 8)) == (0, [10, 120], 2, 10)
assert structured((0,)) == (0, [128], 4, 128)
answers = [cuda.cuDevSmResourceSplit(None, count, byref(of_device()[1]), None, flags, wanted)
           for count, flags, wanted in ((0, 0, bytes(64)), (1, 1, bytes(64)), (1, 0, None))]
assert answers == [1, 1, 1]
assert structured((16, 16)) == (0, [16], 116, 16)
assert structured((32, 32)) == (0, [32], 100, 32) and structured((34, 34))[0] == 1
assert structured((131, 0, 0, 1))[0] == 1
for wanted in (((12,),), ((66,), (66,)), ((132, 4), (8, 8)), ((132, 4), (0, 8))):
    assert structured(*wanted)[0] == 915, wanted
assert structured((132, 4), (0, 8), results=False)[0] == 0
code, queues = of_device(0, 1000)
ok(code)
assert queues.type == 1000 and queues.least == 8
assert [of_device(device, 1000)[1].count for device in range(2)] == [0, 1]  # the first field of this type: the device
_, _, result, _ = split(8, 1)
code, one = green(result[0], queues)
ok(code)
found = Resource()
ok(cuda.cuGreenCtxGetDevResource(one, byref(found), 1000))
ok(cuda.cuStreamGetDevResource(None, byref(found), 1))
assert found.count == 132
""",
}
test_programs = programs(
    PROGRAMS,
    START,
    creations_that_are_refused={"device": "sm_90:2"},
    structured_splits={"version": "13.2", "device": "sm_90:2"},
)
