"""A library that links PTX, with nvJitLink or with the driver; your library takes its place."""

import ctypes

from cuda.bindings import driver, nvjitlink

#: The library's switch: True uses the driver, False nvJitLink; None lets the library decide.
USE_DRIVER = None


def uses_driver():
    return USE_DRIVER is True


def link(ptx, arch):
    return _with_driver(ptx) if uses_driver() else _with_nvjitlink(ptx, arch)


def _with_nvjitlink(ptx, arch):
    handle = nvjitlink.create(1, [f"-arch={arch}"])
    try:
        nvjitlink.add_data(handle, nvjitlink.InputType.PTX, ptx, len(ptx), "input")
        nvjitlink.complete(handle)
        image = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, image)
    finally:
        nvjitlink.destroy(handle)
    return bytes(image)


def _with_driver(ptx):
    _call(driver.cuInit(0))
    device = _call(driver.cuDeviceGet(0))
    _call(driver.cuCtxSetCurrent(_call(driver.cuDevicePrimaryCtxRetain(device))))
    state = _call(driver.cuLinkCreate(0, [], []))
    try:
        kind = driver.CUjitInputType.CU_JIT_INPUT_PTX
        _call(driver.cuLinkAddData(state, kind, ptx, len(ptx), b"input", 0, [], []))
        address, size = _call(driver.cuLinkComplete(state))
        return ctypes.string_at(address, size)
    finally:
        _call(driver.cuLinkDestroy(state))


def _call(answer):
    error, *values = answer
    if error != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(error.name)
    return values[0] if len(values) == 1 else values
