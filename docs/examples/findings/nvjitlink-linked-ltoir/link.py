from cuda.bindings import nvjitlink, nvrtc

program = nvrtc.nvrtcCreateProgram(b"__global__ void f() {}", b"", 0, [], [])[1]
nvrtc.nvrtcCompileProgram(program, 2, [b"-arch=sm_90", b"-dlto"])
nvrtc.nvrtcGetLTOIR(program, code := bytes(nvrtc.nvrtcGetLTOIRSize(program)[1]))
handle = nvjitlink.create(3, ["-arch=sm_90", "-lto", "-r"])
nvjitlink.add_data(handle, nvjitlink.InputType.LTOIR, code, len(code), "f")
nvjitlink.complete(handle)
print("nvJitLink", *nvjitlink.version(), "has linked:", nvjitlink.get_linked_cubin_size(handle), "bytes of a cubin")
print("and:", nvjitlink.get_linked_ltoir_size(handle), "bytes of LTO-IR")
