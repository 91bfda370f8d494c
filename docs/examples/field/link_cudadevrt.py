"""Link a kernel with libcudadevrt.a, as numba-cuda and cuda-core do for dynamic parallelism and grid groups."""

from cuda import pathfinder
from cuda.bindings import nvjitlink, nvrtc

CODE = b'extern "C" __global__ void twice(int *x) { *x *= 2; }'


def check(result, *values):
    assert not result, result
    return values[0] if values else None


program = check(*nvrtc.nvrtcCreateProgram(CODE, b"twice.cu", 0, [], []))
check(*nvrtc.nvrtcCompileProgram(program, 2, [b"-arch=sm_90", b"-rdc=true"]))
cubin = b" " * check(*nvrtc.nvrtcGetCUBINSize(program))
check(*nvrtc.nvrtcGetCUBIN(program, cubin))

handle = nvjitlink.create(1, ["-arch=sm_90"])
nvjitlink.add_data(handle, nvjitlink.InputType.CUBIN, cubin, len(cubin), "twice")
print("nvJitLink", ".".join(map(str, nvjitlink.version())))
try:
    nvjitlink.add_file(handle, nvjitlink.InputType.LIBRARY, pathfinder.find_static_lib("cudadevrt"))
    nvjitlink.complete(handle)
    print("linked:", nvjitlink.get_linked_cubin_size(handle) > 0)
except nvjitlink.nvJitLinkError as error:
    print(error)
    log = bytearray(nvjitlink.get_error_log_size(handle))
    nvjitlink.get_error_log(handle, log)
    print(log.decode().strip("\0"))
