"""Cuda-bindings: version, device, a link through cuLink*, a module, a kernel, and what a launch answers."""

import ctypes
import json
import sys

from cuda.bindings import driver

from pytest_cudalink.linker import sample


def call(name, *arguments):
    """The results of a call that must succeed."""
    code, *results = getattr(driver, name)(*arguments)
    assert code == driver.CUresult.CUDA_SUCCESS, (name, code)
    return results[0] if len(results) == 1 else results


call("cuInit", 0)
device = call("cuDeviceGet", 0)
call("cuCtxSetCurrent", call("cuDevicePrimaryCtxRetain", device))
state = call("cuLinkCreate", 0, [], [])
for code in sample.compile_modules("ptx", "sm_90"):
    data = code.code + b"\0"
    kind = driver.CUjitInputType.CU_JIT_INPUT_PTX
    call("cuLinkAddData", state, kind, data, len(data), code.name.encode(), 0, [], [])
image, size = call("cuLinkComplete", state)
module = call("cuModuleLoadData", image)
function = call("cuModuleGetFunction", module, b"apply_transform")
memory = call("cuMemAlloc", 1024)
call("cuMemsetD32", memory, 7, 256)
host = bytearray(1024)
call("cuMemcpyDtoH", host, memory, 1024)
parameters = ((memory, memory, 256), (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint))
launch = driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, 0, parameters, 0)[0]
missing = driver.cuModuleGetFunction(module, b"missing")[0]
call("cuMemFree", memory)
call("cuLinkDestroy", state)
facts = {"driver": call("cuDriverGetVersion"), "size": size, "sevens": set(host[::4]) == {7}}
json.dump({**facts, "launch": int(launch), "missing": int(missing)}, sys.stdout)
