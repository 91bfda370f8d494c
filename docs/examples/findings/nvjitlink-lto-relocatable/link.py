from cuda.bindings import nvjitlink, nvrtc


def link(kind, code, *options):
    handle = nvjitlink.create(1 + len(options), ["-arch=sm_90", *options])
    nvjitlink.add_data(handle, kind, code, len(code), "f")
    nvjitlink.complete(handle)
    nvjitlink.get_linked_cubin(handle, cubin := bytearray(nvjitlink.get_linked_cubin_size(handle)))
    print(*options, "ELF type", cubin[16], "with the kernel" if b".text._Z1fv" in cubin else "without the kernel")
    return bytes(cubin)


program = nvrtc.nvrtcCreateProgram(b"__global__ void f() {}", b"", 0, [], [])[1]
nvrtc.nvrtcCompileProgram(program, 2, [b"-arch=sm_90", b"-dlto"])
nvrtc.nvrtcGetLTOIR(program, code := bytes(nvrtc.nvrtcGetLTOIRSize(program)[1]))
link(nvjitlink.InputType.CUBIN, link(nvjitlink.InputType.LTOIR, code, "-lto", "-r"))
