"""Contexts: what is in each of them, and what ends with one."""

from __future__ import annotations

from tests.emulated.conftest import programs

START = """
primary = start()
value, size = c_int(), c_size_t()

def created(flags=0):
    context = c_void_p()
    return cuda.cuCtxCreate_v2(byref(context), flags, 0), context
"""


PROGRAMS = {
    "graphics_data": """
# It is refused where there is some, and left alone where there is none; shares of multiprocessors are another request.
context, affinity, graphics = c_void_p(), (c_uint * 2)(0, 4), (c_uint64 * 2)(1, 0x1000)
assert cuda.cuCtxGetExecAffinity(None, 0) == 1
both = (c_uint64 * 3)(addressof(affinity), 1, addressof(graphics))
assert cuda.cuCtxCreate_v4(byref(context), both, 0, 0) == 1
both[0] = both[1] = 0
assert "graphics" in refused("cuCtxCreate_v4", byref(context), both, 0, 0)
graphics[1] = 0
assert cuda.cuCtxCreate_v4(byref(context), both, 0, 0) == 1
both[2] = 0
ok(cuda.cuCtxCreate_v4(byref(context), both, 0, 0))
""",
    "without_a_context": """
# A context that was destroyed has no flags, and what needs one says so.
dead = new(cuda.cuCtxCreate_v2, 1, 0)
ok(cuda.cuCtxPushCurrent_v2(dead))
ok(cuda.cuCtxDestroy_v2(dead))
assert (get(cuda.cuCtxGetFlags, c_uint), cuda.cuCtxGetLimit(byref(size), 0)) == (0, 709)
ok(cuda.cuCtxPopCurrent_v2(byref(dead))), ok(cuda.cuCtxSetCurrent(None))
assert [cuda.cuCtxGetApiVersion(one, byref(value)) for one in (None, primary)] == [201, 0]
""",
    "libraries": """
# A library has a module, functions with settings, and variables in each context; kernels and managed variables are one.
from tests.emulated.memory_calls import read, write
image = small_ptx().replace(b".visible", b".visible .global .attribute(.managed) .align 4 .u32 shared = 7; .visible", 1)
library = new(cuda.cuLibraryLoadData, image, None, None, 0, None, None, 0)
kernel = new(cuda.cuLibraryGetKernel, library, b"other")
SHARED, CARVEOUT = 8, 9
def setting(function, attribute=SHARED):
    return get(cuda.cuFuncGetAttribute, c_int, attribute, function)
class Here:
    def __init__(self, context):
        self.context = context
        self.enter()
        self.module, self.function = new(cuda.cuLibraryGetModule, library), new(cuda.cuKernelGetFunction, kernel)
        self.variable = new(cuda.cuLibraryGetGlobal, c_uint64, byref(size), library, b"answer").value
    def enter(self):
        ok(cuda.cuCtxSetCurrent(self.context))
        return self
    def is_whole(self):
        assert get(cuda.cuModuleGetFunction, c_void_p, self.module, b"other") == self.function.value
        assert get(cuda.cuFuncGetModule, c_void_p, self.function) == self.module.value
        assert get(cuda.cuModuleGetGlobal_v2, c_uint64, None, self.module, b"answer") == self.variable
        assert get(cuda.cuPointerGetAttribute, c_int, 9, c_uint64(self.variable)) == (self.context is second_context)
second_context = new(cuda.cuDevicePrimaryCtxRetain, 1)
first, second, third = Here(primary), Here(second_context), Here(created()[1])
everywhere = (first, second, third)
assert len({one.module.value for one in everywhere}) == len({one.function.value for one in everywhere}) == 3
assert len({one.variable for one in everywhere}) == 3
for one in everywhere:
    one.enter()
    one.is_whole()
    again = Here(one.context)
    assert (again.module.value, again.variable) == (one.module.value, one.variable)
ok(cuda.cuCtxSetCurrent(None))
for one in everywhere:
    one.is_whole()
# variables
second.enter()
write(second.variable, b"two.")
assert read(first.variable, 4) == read(third.variable, 4) != b"two."
first.enter()
managed = get(cuda.cuLibraryGetManaged, c_uint64, None, library, b"shared")
assert managed == get(cuda.cuModuleGetGlobal_v2, c_uint64, None, second.module, b"shared")
# settings: those of a kernel are of a device; those of a function come first, whenever they are set
ok(cuda.cuFuncSetAttribute(first.function, SHARED, 1024))
ok(cuda.cuKernelSetAttribute(SHARED, 2048, kernel, 0))
ok(cuda.cuKernelSetAttribute(CARVEOUT, 30, kernel, 1))
assert [setting(one.function) for one in everywhere] == [1024, 49152, 2048]
assert [setting(one.function, CARVEOUT) for one in everywhere] == [-1, 30, -1]
assert [get(cuda.cuKernelGetAttribute, c_int, SHARED, kernel, device) for device in (0, 1)] == [2048, 49152]
grid = (1, 1, 1, 1, 1, 1)
third.enter()
for function in (third.function, kernel):
    assert cuda.cuLaunchKernel(function, *grid, 2049, None, None, None) == 1
    assert cuda.cuLaunchKernel(function, *grid, 2048, None, None, None) == 801
assert cuda.cuLaunchKernel(first.function, *grid, 0, None, None, None) == 400
# what ends with one context is there in the others
stream = new(cuda.cuStreamCreate, 0)
ok(cuda.cuDevicePrimaryCtxReset_v2(1))
assert cuda.cuModuleGetFunction(byref(c_void_p()), second.module, b"other") == 400
assert cuda.cuFuncGetAttribute(byref(value), SHARED, second.function) == 400
assert cuda.cuModuleUnload(first.module) == 800
ok(cuda.cuStreamQuery(stream))
for one in (first, third):
    one.enter()
    one.is_whole()
ok(cuda.cuDevicePrimaryCtxRetain(byref(second_context), 1))
second = Here(second.context)
assert read(second.variable, 4) == read(first.variable, 4)
assert setting(second.function, CARVEOUT) == 30
ok(cuda.cuLibraryUnload(library))
for one in (first, second, third):
    assert cuda.cuModuleGetFunction(byref(c_void_p()), one.module, b"other") == 400
""",
    "two_devices": """
# What ends with the context of one device is there in that of another one.
from tests.emulated.memory_calls import from_pool, new_pool, read, write
class Here:
    def __init__(self, device):
        self.context = new(cuda.cuDevicePrimaryCtxRetain, device)
        self.enter()
        self.stream, self.event = new(cuda.cuStreamCreate, 1), new(cuda.cuEventCreate, 0)
        self.memory, self.module = allocate(4096), new(cuda.cuModuleLoadData, small_ptx())
        self.pooled = from_pool(new_pool((1, device)), 64)[1]
        self.graph = new(cuda.cuGraphCreate, 0)
        new(cuda.cuGraphAddEmptyNode, self.graph, None, c_size_t(0))
        self.exec = new(cuda.cuGraphInstantiateWithFlags, self.graph, c_uint64(0))
        ok(cuda.cuEventRecord(self.event, self.stream))
        write(self.memory, b"mine")
    def enter(self):
        ok(cuda.cuCtxSetCurrent(self.context))
    def is_whole(self):
        self.enter()
        ok(cuda.cuStreamQuery(self.stream) or cuda.cuEventQuery(self.event))
        ok(cuda.cuGraphLaunch(self.exec, self.stream))
        ok(cuda.cuMemcpyDtoDAsync_v2(c_uint64(self.pooled), c_uint64(self.memory), c_size_t(4), self.stream))
        ok(cuda.cuStreamSynchronize(self.stream))
        assert read(self.pooled, 4) == b"mine"
        new(cuda.cuModuleGetFunction, self.module, b"other")
one, other = Here(0), Here(1)
one.is_whole()
other.is_whole()
ok(cuda.cuDevicePrimaryCtxReset_v2(1))
one.is_whole()
assert cuda.cuStreamQuery(other.stream) == 709
""",
}
test_programs = programs(PROGRAMS, START, **{name: {"device": "sm_90:2"} for name in ("libraries", "two_devices")})
