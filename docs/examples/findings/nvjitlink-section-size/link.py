from cuda.bindings import nvjitlink, nvrtc

program = nvrtc.nvrtcCreateProgram(b"__global__ void f() {}", b"", 0, [], [])[1]
nvrtc.nvrtcCompileProgram(program, 2, [b"-arch=sm_90", b"-rdc=true"])
nvrtc.nvrtcGetCUBIN(program, cubin := bytes(nvrtc.nvrtcGetCUBINSize(program)[1]))
headers = range(int.from_bytes(cubin[40:48], "little"), len(cubin), 64)  # of the sections
info = next(at for at in headers if cubin[at + 4 : at + 8] == b"\0\0\0p")  # the type of .nv.info
cubin = cubin[: info + 32] + b"0" * 8 + cubin[info + 40 :]  # its size
handle = nvjitlink.create(1, ["-arch=sm_90"])
nvjitlink.add_data(handle, nvjitlink.InputType.CUBIN, cubin, len(cubin), "f")
