"""numba-cuda-mlir, as released: forced and watched, and its links count for it. ``nox -s targets`` installs it."""

import pytest

HEAD = """
import pytest
from cuda.bindings import driver as cuda_driver
from numba_cuda_mlir.numba_cuda.cudadrv import driver as library

@pytest.fixture(autouse=True)
def context():
    cuda_driver.cuInit(0)
    error, primary = cuda_driver.cuDevicePrimaryCtxRetain(0)
    cuda_driver.cuCtxSetCurrent(primary)

def complete():
    linker = library._Linker(max_registers=0, cc=(9, 0), arch="sm_90", lto=False)
    for name in ("main.ptx", "user.ptx"):
        linker.add_ptx(open(name, "rb").read(), name)
    code = bytes(linker.complete().code)
    assert code[:4] == b"\\x7fELF"
"""


@pytest.mark.parametrize("backend", ["driver", "nvjitlink"])
def test_forced(go, numba_cuda_mlir, backend) -> None:
    """The library links on the forced backend, as the driver's event log shows, and answers so when it is asked."""
    module = f"""
def test_links(emulated_driver):
    complete()
    completed = [event for event in emulated_driver.events("cuLinkComplete") if "violation" not in event]
    assert len(completed) == ({backend!r} == "driver")
    assert library._have_nvjitlink() == ({backend!r} == "nvjitlink")
"""
    result = go(module, f"--force-backend={backend}", head=HEAD).ended(passed=1)
    name = {"driver": "the driver", "nvjitlink": "nvJitLink"}[backend]
    result.shows(
        f"cudalink: forced to {backend}: *, numba-cuda-mlir {numba_cuda_mlir}*",
        f"numba-cuda-mlir: 1 link (1 on {name})",
    )


def test_not_forced(go, numba_cuda_mlir) -> None:
    """Without an option the library decides, and is watched; the modules that took the function by name see a fake."""
    module = """
from numba_cuda_mlir.numba_cuda import decorators
def test_links(): complete()
def test_faked(fake_versions):
    fake_versions(driver="13.0", nvjitlink=None)
    assert decorators._have_nvjitlink() is library._have_nvjitlink() is False
def test_given_back():
    assert library._have_nvjitlink() is True
"""
    go(module, head=HEAD).ended(passed=3).shows("numba-cuda-mlir: 1 link (1 on nvJitLink)")
