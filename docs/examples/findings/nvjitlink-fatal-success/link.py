from cuda.bindings import nvjitlink, nvrtc

program = nvrtc.nvrtcCreateProgram(b"__global__ void f() {}", b"", 0, [], [])[1]
nvrtc.nvrtcCompileProgram(program, 2, [b"-arch=sm_90", b"-rdc=true"])
nvrtc.nvrtcGetCUBIN(program, cubin := bytes(nvrtc.nvrtcGetCUBINSize(program)[1]))
table = int.from_bytes(cubin[40:48], "little")  # of the sections: the first that relocations (type 4) are for
at = next(table + 64 * cubin[at + 44] + 4 for at in range(table, len(cubin), 64) if cubin[at + 4] == 4)
cubin = cubin[:at] + b"\xff" + cubin[at + 1 :]  # gets another type
nvjitlink.add_data(handle := nvjitlink.create(1, ["-arch=sm_90"]), nvjitlink.InputType.CUBIN, cubin, len(cubin), "f")
print(nvjitlink.complete(handle), nvjitlink.get_linked_cubin_size(handle), nvjitlink.get_error_log_size(handle))
