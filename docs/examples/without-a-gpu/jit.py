"""A library that loads PTX with the driver and launches its kernel; yours takes its place."""

from cuda.bindings import driver

PTX = b"""
.version 8.0
.target sm_90
.address_size 64
.visible .entry nothing() { ret; }
"""


def load():
    _call(driver.cuInit(0))
    _call(driver.cuCtxSetCurrent(_call(driver.cuDevicePrimaryCtxRetain(0))))
    module = _call(driver.cuModuleLoadData(PTX + b"\0"))
    return _call(driver.cuModuleGetFunction(module, b"nothing"))


def launch(kernel):
    _call(driver.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0))


def _call(answer):
    error, *values = answer
    if error != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(error.name)
    return values[0] if values else None
