import pytest
from cuda.bindings import driver
from pipeline import SIZE, check, step


@pytest.fixture
def stream():
    check(driver.cuInit(0))
    device = check(driver.cuDeviceGet(0))
    check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(device))))
    made = check(driver.cuStreamCreate(0))
    yield made
    check(driver.cuStreamDestroy(made))
    check(driver.cuDevicePrimaryCtxRelease(device))


@pytest.fixture
def batch(stream):
    return check(driver.cuMemHostAlloc(SIZE, 0))


@pytest.fixture
def result(stream):
    return bytearray(SIZE)


@pytest.mark.cudalink(no_wait=True)
def test_step(batch, result, stream):
    step(batch, result, stream)


def test_block(batch, result, stream, no_wait):
    step(batch, result, stream)
    with no_wait(allow=["cuMemFree"]):
        step(batch, result, stream)
    check(driver.cuStreamSynchronize(stream))
