"""The tests of the driver backend, which run on a GPU too, on the emulated driver."""

import os
import re
import subprocess
import sys

import pytest

from tests.nested import NO_AUTOLOAD, with_plugins


@pytest.mark.slow
@pytest.mark.parametrize("version", [pytest.param("13.0", marks=pytest.mark.weekly), "13.2"])
def test_suite_of_the_driver_backend(version: str, pytestconfig, toolchain, toolkit) -> None:
    """All of them pass, but for what executes kernels."""
    toolchain(version)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            *with_plugins("-q", "-p", "no:cacheprovider", "tests/driver", f"--cudalink-driver={version}"),
        ],
        env={**os.environ, **NO_AUTOLOAD},
        cwd=pytestconfig.rootpath,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= 40
    assert "kernels" in done.stdout


def test_demo(on_driver) -> None:
    """What the emulated driver links is proved from the image, as without a GPU."""
    done = on_driver("13.0", "-m", "pytest_cudalink.cli", "demo", "--backend=driver")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "driver: CUDA 13.0 (emulated)" in " ".join(done.stdout.split())
    assert "ok PTX without LTO: 2 .text section(s), expected 2" in " ".join(done.stdout.split())
    assert "ok LTO-IR with LTO: 1 .text section(s), expected 1" in " ".join(done.stdout.split())
    assert "the driver is emulated and runs no kernels: the images are the proof" in " ".join(done.stdout.split())


LAUNCHES = """
import ctypes, numpy
from pytest_cudalink.linker import sample

PTX = b".version 8.0\\n.target sm_90\\n.address_size 64\\n"
PTX += b".visible .entry apply_transform(.param .u64 x, .param .u64 y, .param .u32 n) { ret; }\\0"
driver, called = sample.libcuda.call, []

def call(name, *given):
    called.append(name)
    if name != "cuLaunchKernel":
        return driver(name, *given)
    (grid, block), (x, y, n) = given[1:5:3], (ctypes.c_uint64.from_address(where) for where in given[-2])
    values = numpy.empty(n.value & 0xFFFFFFFF, numpy.float32)
    assert (grid - 1) * block < len(values) <= grid * block
    memory, size = ctypes.c_void_p(values.ctypes.data), ctypes.c_size_t(values.nbytes)
    driver("cuMemcpyDtoH_v2", memory, x, size)
    values[:] = factor * numpy.maximum(values * values + 3 * values - 1, 0)
    driver("cuMemcpyHtoD_v2", y, memory, size)

sample.libcuda.call = call
for factor, right in ((1.000005, True), (1.1, False), (float("nan"), False)):
    assert (sample.launch(PTX, 769) <= 1.0) is right, factor
assert called.count("cuMemAlloc_v2") == called.count("cuMemFree_v2") == 6
"""


def test_what_a_kernel_wrote(on_driver) -> None:
    """The sample's launch says how far its values are off; Python computes them in the place of a GPU."""
    done = on_driver("13.0", "-c", LAUNCHES)
    assert done.returncode == 0, done.stderr
