"""Fixtures of the suite that steers real libraries, on whichever release of them is installed."""

import os
from importlib import metadata

import pytest

#: What every module of the tests begins with.
HEAD = """
import gc, sys
import pytest
from cuda.core import Linker, LinkerOptions, ObjectCode, Program, ProgramOptions
import cuda.core._linker as linker_module

from cuda.bindings import driver as cuda_driver

@pytest.fixture(autouse=True)
def context():
    cuda_driver.cuInit(0)
    error, primary = cuda_driver.cuDevicePrimaryCtxRetain(0)
    cuda_driver.cuCtxSetCurrent(primary)

def codes():
    return [ObjectCode.from_ptx(open(name, "rb").read()) for name in ("main.ptx", "user.ptx")]

def make(**options):
    return Linker(*codes(), options=LinkerOptions(arch="sm_90", **options))

def image(linker):
    code = bytes(linker.link("cubin").code)
    assert code[:4] == b"\\x7fELF"
    return code

def ran(linker):
    return "driver" if type(linker.handle).__name__ == "CUlinkState" else "nvjitlink"
"""


def installed(name: str) -> str | None:
    """Version of a distribution, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


@pytest.fixture(scope="session")
def cuda_core(toolkit) -> str:
    """Release of cuda-core; a session that promised one fails without it."""
    wanted, version = os.environ.get("CUDALINK_REQUIRE_CUDA_CORE"), installed("cuda-core")
    if wanted is not None and version != wanted:
        pytest.fail(f"this session promised cuda-core {wanted}, found {version}")
    if version is None:
        pytest.skip("needs cuda-core: nox -s targets, or pip install cuda-core")
    return version


@pytest.fixture(scope="session")
def numba_cuda_mlir() -> str:
    """Release of numba-cuda-mlir, which one of the sessions installs in addition; that session fails without it."""
    version = installed("numba-cuda-mlir")
    if version is None:
        if "numba-cuda-mlir" in os.environ.get("CUDALINK_REQUIRE_PACKAGES", "").split():
            pytest.fail("this session promised numba-cuda-mlir, which is not installed")
        pytest.skip("needs numba-cuda-mlir: nox -s targets, or pip install numba-cuda-mlir")
    return version


@pytest.fixture
def go(cuda_core, toolkit, samples, pytester: pytest.Pytester, run_pytest):
    """Run pytest on a module that uses cuda.core, on an emulated driver of the toolkit's release."""
    for name in ("main.ptx", "user.ptx"):
        pytester.path.joinpath(name).write_bytes(samples[f"12.9/{name}"])

    def run(module: str, *arguments: str, head: str = HEAD) -> pytest.RunResult:
        pytester.makepyfile(head + module)
        return run_pytest(
            f"--cudalink-driver={toolkit}",
            # what releases do with memory has a separate test
            "--cudalink-checks=lifetimes=report",
            "-W",
            "error::RuntimeWarning",
            *arguments,
        )

    return run
