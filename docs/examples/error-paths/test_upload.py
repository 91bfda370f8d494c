"""The library copies two arrays."""

import pytest
import upload
from cuda.bindings import driver


@pytest.fixture
def context():
    upload.checked(driver.cuInit(0))
    made = upload.checked(driver.cuDevicePrimaryCtxRetain(0))
    try:
        upload.checked(driver.cuCtxSetCurrent(made))
        yield
    finally:
        upload.checked(driver.cuDevicePrimaryCtxRelease(0))


def test_upload(context):
    assert upload.free_memory() >= 0
    addresses = upload.upload(b"first", b"second")
    upload.release(addresses)
