import ctypes

from cuda.bindings import driver

SIZE = 64


def check(answer):
    error, *values = answer
    if error:
        raise RuntimeError(error)
    return values[0] if values else None


def upload(chunks, memory, staging, stream):
    """Copy chunks to the device, each through the same pinned buffer."""
    for number, chunk in enumerate(chunks):
        ctypes.memmove(staging, chunk, SIZE)
        check(driver.cuMemcpyHtoDAsync(int(memory) + number * SIZE, staging, SIZE, stream))
    check(driver.cuStreamSynchronize(stream))
