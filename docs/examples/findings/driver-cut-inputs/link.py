from cuda.bindings import driver, nvrtc

SOURCE = b"""extern "C" __device__ float user_transform(float x) {
  float y = x * x + 3.0f * x - 1.0f;
  return y > 0.0f ? y : 0.0f;
}
"""
program = nvrtc.nvrtcCreateProgram(SOURCE, b"user.cu", 0, [], [])[1]
nvrtc.nvrtcCompileProgram(program, 2, [b"-arch=sm_90", b"-rdc=true"])
nvrtc.nvrtcGetCUBIN(program, cubin := bytes(nvrtc.nvrtcGetCUBINSize(program)[1]))
driver.cuInit(0)
driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
state = driver.cuLinkCreate(1, [driver.CUjit_option.CU_JIT_TARGET], [driver.CUjit_target.CU_TARGET_COMPUTE_90])[1]
print(driver.cuLinkAddData(state, driver.CUjitInputType.CU_JIT_INPUT_CUBIN, cubin[:200], 200, b"cut", 0, [], [])[0])
