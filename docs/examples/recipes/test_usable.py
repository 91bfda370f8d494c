"""Where no GPU can be used, a library that asks for one gets the answer 0, and no exception."""

from cuda.bindings import driver


def usable_devices() -> int:
    (code,) = driver.cuInit(0)
    if code != driver.CUresult.CUDA_SUCCESS:
        return 0
    _, count = driver.cuDeviceGetCount()
    return int(count)


def test_there_is_no_device_to_use() -> None:
    assert usable_devices() == 0
