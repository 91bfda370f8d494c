from cuda.bindings import driver

SIZE = 4096


def check(answer):
    error, *values = answer
    if error:
        raise RuntimeError(error)
    return values[0] if values else None


def step(batch, result, stream):
    """Send a batch, and fetch what the device makes of it."""
    scratch = check(driver.cuMemAlloc(SIZE))
    check(driver.cuMemcpyHtoDAsync(scratch, batch, SIZE, stream))
    check(driver.cuMemsetD8Async(scratch, 1, SIZE // 2, stream))
    check(driver.cuMemcpyDtoHAsync(result, scratch, SIZE, stream))
    check(driver.cuMemFree(scratch))
