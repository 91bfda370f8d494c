import ctypes

from cuda.bindings import driver

SIZE = 64


def check(answer):
    error, *values = answer
    if error:
        raise RuntimeError(error)
    return values[0] if values else None


def compute(stream, result):
    scratch, memory = check(driver.cuMemAlloc(SIZE)), check(driver.cuMemAlloc(SIZE))
    check(driver.cuMemsetD8Async(memory, 7, SIZE, stream))
    check(driver.cuMemcpyDtoHAsync(result, memory, SIZE, stream))
    check(driver.cuMemFree(scratch))
    return memory


def test_result():
    check(driver.cuInit(0))
    check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(0))))
    result = check(driver.cuMemHostAlloc(SIZE, 0))
    memory = compute(check(driver.cuStreamCreate(1)), result)
    assert ctypes.string_at(result, 1) == b"\x07"
    check(driver.cuMemFree(memory))
    check(driver.cuDevicePrimaryCtxRelease(0))
