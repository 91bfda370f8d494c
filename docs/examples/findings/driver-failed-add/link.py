from cuda.bindings import driver

HEAD = "\n.target sm_90\n.address_size 64\n"
CALL = ".extern .func f;\n.visible .entry k() { call f; ret; }"  # f is defined nowhere
driver.cuInit(0)
driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
state = driver.cuLinkCreate(0, [], [])[1]
for ptx in (f".version 99.9{HEAD}\0".encode(), f".version 8.0{HEAD}{CALL}\0".encode()):
    print(driver.cuLinkAddData(state, driver.CUjitInputType.CU_JIT_INPUT_PTX, ptx, len(ptx), b"", 0, [], [])[0])
print(driver.cuLinkComplete(state))
