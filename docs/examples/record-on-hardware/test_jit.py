"""What a library asks of the driver: load PTX, and launch its kernel."""

import ctypes

import pytest

PTX = b"""
.version %s
.target sm_90
.address_size 64
.visible .entry nothing() { ret; }
"""


@pytest.fixture
def driver():
    library, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    assert library.cuInit(0) == 0
    assert library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert library.cuCtxSetCurrent(context) == 0
    yield library
    library.cuDevicePrimaryCtxRelease_v2(0)


def load(driver, version):
    module = ctypes.c_void_p()
    return driver.cuModuleLoadData(ctypes.byref(module), PTX % version + b"\0"), module


def test_load(driver):
    assert load(driver, b"8.0")[0] == 0


def test_damaged_ptx(driver):
    assert load(driver, b"what?")[0] == 218


def test_launch(driver):
    code, module = load(driver, b"8.0")
    assert code == 0
    kernel = ctypes.c_void_p()
    assert driver.cuModuleGetFunction(ctypes.byref(kernel), module, b"nothing") == 0
    assert driver.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, None, None, None) == 0
