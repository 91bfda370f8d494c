"""A library that links PTX with nvJitLink or with the driver; your library takes its place."""

from cuda.bindings import driver, nvjitlink

USE_DRIVER = False


def link(ptx):
    if USE_DRIVER:
        driver.cuInit(0)
        driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
        _, state = driver.cuLinkCreate(0, [], [])
        driver.cuLinkAddData(state, driver.CUjitInputType.CU_JIT_INPUT_PTX, ptx, len(ptx), b"input", 0, [], [])
        _, _, size = driver.cuLinkComplete(state)
        driver.cuLinkDestroy(state)
        return size
    handle = nvjitlink.create(1, ["-arch=sm_90"])
    nvjitlink.add_data(handle, nvjitlink.InputType.PTX, ptx, len(ptx), "input")
    nvjitlink.complete(handle)
    size = nvjitlink.get_linked_cubin_size(handle)
    nvjitlink.destroy(handle)
    return size
