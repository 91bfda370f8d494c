from cuda.bindings import nvjitlink, nvrtc

program = nvrtc.nvrtcCreateProgram(b"__global__ void f() {}", b"", 0, [], [])[1]
nvrtc.nvrtcCompileProgram(program, 2, [b"-arch=sm_120", b"-rdc=true"])
nvrtc.nvrtcGetCUBIN(program, cubin := bytes(nvrtc.nvrtcGetCUBINSize(program)[1]))
print("nvJitLink", *nvjitlink.version(), "and a cubin of NVRTC", *nvrtc.nvrtcVersion()[1:])
handle = nvjitlink.create(1, ["-arch=sm_120"])
nvjitlink.add_data(handle, nvjitlink.InputType.CUBIN, cubin, len(cubin), "f")
nvjitlink.complete(handle)
print("linked:", nvjitlink.get_linked_cubin_size(handle), "bytes")
