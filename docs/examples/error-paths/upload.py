"""A library that copies bytes to the device."""

from cuda.bindings import driver


def checked(result):
    """Return the value of a driver call; raise its error if it failed."""
    code, *values = result
    if code:
        raise RuntimeError(code.name)
    return values[0] if values else None


def upload(*arrays):
    """Copy arrays to the device, and return their addresses."""
    addresses = []
    for array in arrays:
        addresses.append(checked(driver.cuMemAlloc(len(array))))
        checked(driver.cuMemcpyHtoD(addresses[-1], array, len(array)))
    return addresses


def free_memory():
    """Return how much memory of the device is free."""
    _, free, _ = driver.cuMemGetInfo()
    return free


def release(addresses):
    """Free what upload has returned."""
    for address in addresses:
        checked(driver.cuMemFree(address))
