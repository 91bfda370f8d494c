from ctypes import CDLL, byref, c_void_p
from glob import glob

from nvidia import __path__ as folders


def test_compile():
    nvrtc, program = CDLL(glob(f"{folders[0]}/*/lib/libnvrtc.so.1?")[0]), c_void_p()  # noqa: PTH207
    assert nvrtc.nvrtcCreateProgram(byref(program), b"__global__ void f() {}", b"f.cu", 0, None, None) == 0
    assert nvrtc.nvrtcCompileProgram(program, 0, None) == 0
