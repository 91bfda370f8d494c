"""A kernel for drivers of CUDA 13.0 or newer: older ones refuse its PTX, and no change of ours will help."""

import pytest
from cuda.bindings import driver

from pytest_cudalink import Raises

PTX = b".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k() { ret; }\n\0"


@pytest.mark.cudalink(driver=">=13.0", otherwise=Raises("CUDA_ERROR_UNSUPPORTED_PTX_VERSION"))
def test_loads():
    driver.cuInit(0)
    _, context = driver.cuDevicePrimaryCtxRetain(0)
    driver.cuCtxSetCurrent(context)
    error, _ = driver.cuModuleLoadData(PTX)
    assert not error, error.name
