from cuda.bindings import nvjitlink, nvrtc

program = nvrtc.nvrtcCreateProgram(b"__global__ void f() {}", b"", 0, [], [])[1]
nvrtc.nvrtcCompileProgram(program, 2, [b"-arch=sm_90", b"-rdc=true"])
nvrtc.nvrtcGetCUBIN(program, cubin := bytes(nvrtc.nvrtcGetCUBINSize(program)[1]))
size, total = (n.to_bytes(8, "little") for n in (len(cubin), 64 + len(cubin) + 64))
entry = bytes.fromhex("0200010140000000") + size + bytes.fromhex(f"{0:016x}080001005a000000{0:016x}11{0:046x}") + cubin
fatbin = b"\x50\xed\x55\xba\1\0\x10\0" + total + entry + bytes(64)  # the second entry is all zeros
nvjitlink.add_data(h := nvjitlink.create(1, ["-arch=sm_90"]), nvjitlink.InputType.FATBIN, fatbin, len(fatbin), "f")
print("linked:", nvjitlink.complete(h), nvjitlink.get_linked_cubin_size(h), "bytes")
