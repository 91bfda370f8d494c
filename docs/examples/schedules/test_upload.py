import pytest
from cuda.bindings import driver
from upload import SIZE, check, upload


@pytest.fixture
def stream():
    check(driver.cuInit(0))
    device = check(driver.cuDeviceGet(0))
    check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(device))))
    made = check(driver.cuStreamCreate(1))
    yield made
    check(driver.cuStreamDestroy(made))
    check(driver.cuDevicePrimaryCtxRelease(device))


def test_upload(stream):
    chunks = [bytes([number]) * SIZE for number in range(3)]
    staging = check(driver.cuMemHostAlloc(SIZE, 0))
    memory = check(driver.cuMemAlloc(3 * SIZE))
    upload(chunks, memory, staging, stream)
    copied = bytearray(3 * SIZE)
    check(driver.cuMemcpyDtoH(copied, memory, 3 * SIZE))
    assert copied == b"".join(chunks)
