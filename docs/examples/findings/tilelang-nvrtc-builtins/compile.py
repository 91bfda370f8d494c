from ctypes import CDLL, byref, c_void_p
from sys import argv, exit  # noqa: A004
from zipfile import ZipFile

wheel, program = ZipFile(argv[1]), c_void_p()
names = [name for name in wheel.namelist() if "/libnvrtc-" in name]
nvrtc = CDLL(wheel.extract(names[0]) if names else exit("no NVRTC in this wheel"))
print(nvrtc.nvrtcCreateProgram(byref(program), b"", b"f.cu", 0, 0, 0), nvrtc.nvrtcCompileProgram(program, 0, 0))
