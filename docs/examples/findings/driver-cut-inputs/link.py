from cuda.bindings import driver, nvrtc

program = nvrtc.nvrtcCreateProgram(b"__global__ void f() {}", b"", 0, [], [])[1]
nvrtc.nvrtcCompileProgram(program, 2, [b"-arch=sm_90", b"-rdc=true"])
nvrtc.nvrtcGetCUBIN(program, cubin := bytes(nvrtc.nvrtcGetCUBINSize(program)[1]))
driver.cuInit(0)
driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
state, cubin_type = driver.cuLinkCreate(0, [], [])[1], driver.CUjitInputType.CU_JIT_INPUT_CUBIN
for size in 64, 200, 1000, 1400:
    print(size, driver.cuLinkAddData(state, cubin_type, cubin[:size], size, b"cut", 0, [], [])[0], flush=True)
