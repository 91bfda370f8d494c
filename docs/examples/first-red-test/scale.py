"""A library with one kernel, which it ships as PTX."""

from pathlib import Path

from cuda.bindings import driver

PTX = Path(__file__).with_name("scale.ptx")


def checked(result):
    """Return the value of a driver call; raise its error if it failed."""
    code, *values = result
    if code:
        raise RuntimeError(code.name)
    return values[0] if values else None


def load():
    """Return the kernel, loaded on the first device."""
    checked(driver.cuInit(0))
    device = checked(driver.cuDeviceGet(0))
    checked(driver.cuCtxSetCurrent(checked(driver.cuDevicePrimaryCtxRetain(device))))
    module = checked(driver.cuModuleLoadData(PTX.read_bytes() + b"\0"))
    return checked(driver.cuModuleGetFunction(module, b"scale"))
