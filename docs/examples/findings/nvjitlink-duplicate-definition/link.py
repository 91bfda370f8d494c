from cuda.bindings import nvjitlink, nvrtc

handle = nvjitlink.create(1, ["-arch=sm_90"])
for code in (b"__device__ int f() { return 1; }", b"__device__ int f() { return 2; }"):
    program = nvrtc.nvrtcCreateProgram(code, b"", 0, [], [])[1]
    nvrtc.nvrtcCompileProgram(program, 2, [b"-arch=sm_90", b"-rdc=true"])
    nvrtc.nvrtcGetPTX(program, ptx := bytes(nvrtc.nvrtcGetPTXSize(program)[1]))
    nvjitlink.add_data(handle, nvjitlink.InputType.PTX, ptx, len(ptx), code.decode())
nvjitlink.complete(handle)
print("linked:", nvjitlink.get_linked_cubin_size(handle), "log:", nvjitlink.get_error_log_size(handle), "bytes")
