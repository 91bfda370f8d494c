from cuda.bindings import nvjitlink, nvrtc

program = nvrtc.nvrtcCreateProgram(b"__global__ void f() {}", b"", 0, [], [])[1]
nvrtc.nvrtcCompileProgram(program, 2, [b"-arch=sm_90", b"-rdc=true"])
cubin = bytes(nvrtc.nvrtcGetCUBINSize(program)[1])
nvrtc.nvrtcGetCUBIN(program, cubin)
handle = nvjitlink.create(1, ["-arch=sm_90"])
nvjitlink.add_data(handle, nvjitlink.InputType.CUBIN, cubin[:1000], 1000, "cut")
nvjitlink.complete(handle)
print("linked:", nvjitlink.get_linked_cubin_size(handle), "bytes")
