"""Launches are checked as a driver checks them, and only then refused."""

from tests.emulator.conftest import programs

PTX = """.version 8.0
.target sm_90
.address_size 64
.visible .entry plain() { ret; }
.visible .entry bounded(.param .u64 out, .param .u32 n)
.maxntid 128, 1, 1
{ ret; }
.visible .entry required() .reqntid 8, 4, 2 { ret; }
.visible .entry clustered() .explicitcluster .reqnctapercluster 2 { ret; }
"""

START = f"""
start()
image = '''{PTX}'''.encode()
module = loaded(image)

def kernel(name):
    return kernel_of(module, name)

def launch(kernel, grid, block, shared=0, stream=None, parameters=None, extra=None):
    dims = [c_uint(one) for one in (*grid, *block)]
    return cuda.cuLaunchKernel(kernel, *dims, c_uint(shared), stream, parameters, extra)

def attribute(number, *values):
    return (c_uint * 18)(number, 0, *values)

def launch_with(kernel, grid, block, *attributes, parameters=None):
    all_of = (c_uint * (18 * max(1, len(attributes))))(*[one for each in attributes for one in each])
    config = (c_uint64 * 7)()
    numbers = cast(config, POINTER(c_uint))
    for at, one in enumerate((*grid, *block)):
        numbers[at] = one
    config[5] = addressof(all_of)
    numbers[12] = len(attributes)
    return cuda.cuLaunchKernelEx(config, kernel, parameters, None)

one = (1, 1, 1)
plain, bounded = kernel("plain"), kernel("bounded")
"""


PROGRAMS = {
    "refused_by_name": """
# A launch in which nothing is wrong answers 801, and the event says why and which kernel was meant.
for call in (lambda: launch(plain, one, one), lambda: launch_with(plain, one, one)):
    assert call() == 801
    event = last_event()
    assert event["kernel"] == "plain" and "does not execute kernels" in event["note"]
assert cuda.cuLaunchCooperativeKernel(plain, *(c_uint(1),) * 6, 0, None, None) == 801
""",
    "limits_of_the_kernel": """
# More threads than its launch bounds allow, other ones than it requires, more shared memory than it opted into.
values = (c_void_p * 2)(addressof(c_uint64()), addressof(c_uint()))
assert [launch(bounded, one, (block, 1, 1), parameters=values) for block in (128, 129)] == [801, 701]
graph, node = new(cuda.cuGraphCreate, 0), c_void_p()
for block, code in ((128, 0), (129, 1)):  # (H200)
    made = struct.pack("Q7I4xQQQQ", bounded.value, 1, 1, 1, block, 1, 1, 0, addressof(values), 0, 0, 0)
    assert cuda.cuGraphAddKernelNode_v2(byref(node), graph, None, c_size_t(0), made) == code
required = kernel("required")
assert (launch(required, one, (8, 4, 2)), launch(required, one, (64, 1, 1))) == (801, 1)
ok(cuda.cuFuncSetAttribute(plain, 8, 100000))
assert (launch(plain, one, one, 100000), launch(plain, one, one, 100001)) == (801, 1)
ok(cuda.cuFuncSetAttribute(plain, 8, 0))
assert launch(plain, one, one, 1) == 1
""",
    "cooperative_and_clusters": """
# A cooperative grid must be resident as a whole; clusters must divide the grid and not be too large.
def cooperative(grid, block):
    return cuda.cuLaunchCooperativeKernel(plain, *[c_uint(one) for one in (*grid, *block)], 0, None, None)

assert cooperative((264, 1, 1), (1024, 1, 1)) == 801  # 2 blocks on each of 132 multiprocessors
assert [cooperative((265, 1, 1), block) for block in ((1024, 1, 1), (512, 2, 1), (256, 2, 2))] == [720] * 3
for attributes, code in (((2, 1), 720), ((2, 0), 801)):
    assert launch_with(plain, (265, 1, 1), (1024, 1, 1), attribute(*attributes)) == code
for blocks, cluster, code in ((8, 4, 801), (9, 4, 912), (16, 16, 912)):
    assert launch_with(plain, (blocks, 1, 1), one, attribute(4, cluster, 1, 1)) == code
ok(cuda.cuFuncSetAttribute(plain, 14, 1))  # sizes that other devices may not have
assert launch_with(plain, (16, 1, 1), one, attribute(4, 16, 1, 1)) == 801
clustered = kernel("clustered")
assert (launch(clustered, (2, 1, 1), one), launch(clustered, (3, 1, 1), one)) == (801, 912)
assert launch_with(plain, one, one, attribute(99, 0)) == launch_with(plain, one, one, attribute(14, 101)) == 1
assert [get(cuda.cuFuncGetAttribute, c_int, number, clustered) for number in (11, 12, 13, 14)] == [2, 1, 1, 0]
""",
    "attributes": """
# Each has its values; what no launch takes is refused, as is an event that is not one.
there = event().value
given = {
    0: {(0,): 801}, 3: {(0,): 1}, 5: {(0,): 801, (2,): 801, (3,): 1, (2**32 - 1,): 1}, 13: {(0,): 801, (1,): 1},
    **dict.fromkeys((7, 12), {(0, 0): 400, (there % 2**32, there >> 32): 801}),
    15: {(0,): 1}, 16: {(0,): 801}, 17: {(0,): 1},
}
for number, answers in given.items():
    for words, code in answers.items():
        assert launch_with(plain, one, one, attribute(number, *words)) == code, (number, words)
        assert launch_with(plain, one, one, attribute(0), attribute(number, *words)) == code, (number, words)
""",
    "on_several_devices": """
# A cooperative launch on several devices checks each of its parts.
one_launch = (c_uint64 * 7)(plain.value)
numbers = cast(byref(one_launch, 8), POINTER(c_uint))
for at in range(6):
    numbers[at] = 1
for arguments, code in (((one_launch, 1, 0), 801), ((one_launch, 0, 0), 1), ((None, 1, 0), 1), ((one_launch, 1, 4), 1)):
    assert cuda.cuLaunchCooperativeKernelMultiDevice(*arguments) == code, arguments
numbers[0] = 0
assert cuda.cuLaunchCooperativeKernelMultiDevice(one_launch, 1, 0) == 1
numbers[0], one_launch[0] = 1, new(cuda.cuStreamCreate, 1).value  # not a function
assert cuda.cuLaunchCooperativeKernelMultiDevice(one_launch, 1, 0) == 400
""",
}
test_programs = programs(PROGRAMS, START)
