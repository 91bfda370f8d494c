from ctypes import CDLL, byref, c_void_p
from glob import glob

from nvidia import __path__ as folders

nvrtc, program = CDLL(glob(f"{folders[0]}/*/lib/libnvrtc.so.1?")[0]), c_void_p()  # noqa: PTH207
nvrtc.nvrtcCreateProgram(byref(program), b"__global__ void f() {}", b"f.cu", 0, None, None)
print(nvrtc.nvrtcCompileProgram(program, 0, None))
