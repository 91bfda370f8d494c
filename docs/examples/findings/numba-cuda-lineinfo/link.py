from cuda.bindings import nvjitlink, nvrtc
from numba import cuda


def twice(x):
    return 2 * x


nvrtc.nvrtcCompileProgram(program := nvrtc.nvrtcCreateProgram(b"", b"", 0, [], [])[1], 2, [b"-dlto", b"-lineinfo"])
nvrtc.nvrtcGetLTOIR(program, theirs := bytes(nvrtc.nvrtcGetLTOIRSize(program)[1]))
ours = cuda.compile(twice, "int32(int32)", cc=(9, 0), device=True, lineinfo=True, output="ltoir")[0]
handle = nvjitlink.create(2, ["-arch=sm_90", "-lto"])
for code in (ours, theirs):
    nvjitlink.add_data(handle, nvjitlink.InputType.LTOIR, code, len(code), "code")
nvjitlink.complete(handle)
