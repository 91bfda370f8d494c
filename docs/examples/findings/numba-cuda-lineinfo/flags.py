from sys import argv

from cuda.bindings import nvjitlink, nvrtc, nvvm

nvrtc.nvrtcCompileProgram(program := nvrtc.nvrtcCreateProgram(b"", b"", 0, [], [])[1], 2, [b"-dlto", b"-lineinfo"])
nvrtc.nvrtcGetLTOIR(program, theirs := bytes(nvrtc.nvrtcGetLTOIRSize(program)[1]))
flag = f'!{{i32 {argv[1]}, !"Debug Info Version", i32 3}}'  # the first number is the behavior
layout = "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64:64:64"
layout += "-v16:16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64"
text = f'target datalayout = "{layout}"\ntarget triple = "nvptx64-nvidia-cuda"\n'
text += f"!llvm.module.flags = !{{!0}}\n!0 = {flag}\n"
text += "!nvvmir.version = !{!1}\n!1 = !{i32 2, i32 0, i32 3, i32 2}\n"
nvvm.add_module_to_program(module := nvvm.create_program(), text.encode(), len(text), "flag")
nvvm.compile_program(module, 2, ["-arch=compute_90", "-gen-lto"])
nvvm.get_compiled_result(module, ours := bytearray(nvvm.get_compiled_result_size(module)))
handle = nvjitlink.create(2, ["-arch=sm_90", "-lto"])
for code in (theirs, bytes(ours)):
    nvjitlink.add_data(handle, nvjitlink.InputType.LTOIR, code, len(code), "code")
try:
    print("linked:", nvjitlink.complete(handle))
except nvjitlink.nvJitLinkError as error:
    nvjitlink.get_error_log(handle, log := bytearray(nvjitlink.get_error_log_size(handle)))
    print(error, *(line for line in log.decode().splitlines() if "flags" in line))
