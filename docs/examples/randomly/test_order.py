"""The second test counts on the context that the first one has made current."""

from cuda.bindings import driver


def answer(result):
    error, *values = result
    assert error == driver.CUresult.CUDA_SUCCESS, error.name
    return values[0] if values else None


def test_makes_a_context():
    answer(driver.cuInit(0))
    answer(driver.cuCtxSetCurrent(answer(driver.cuDevicePrimaryCtxRetain(0))))


def test_allocates():
    answer(driver.cuMemFree(answer(driver.cuMemAlloc(1024))))
