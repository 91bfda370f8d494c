from cuda.bindings import driver, nvrtc

program = nvrtc.nvrtcCreateProgram(b"__global__ void f() {}", b"", 0, [], [])[1]
nvrtc.nvrtcCompileProgram(program, 2, [b"-arch=sm_90", b"-rdc=true"])
nvrtc.nvrtcGetCUBIN(program, cubin := bytes(nvrtc.nvrtcGetCUBINSize(program)[1]))
driver.cuInit(0)
driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
state = driver.cuLinkCreate(0, [], [])[1]
print(driver.cuLinkAddData(state, driver.CUjitInputType.CU_JIT_INPUT_CUBIN, cubin[:64], 64, b"cut", 0, [], [])[0])
