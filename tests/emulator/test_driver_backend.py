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
    words = with_plugins("-q", "-p", "no:cacheprovider", "tests/driver", f"--cudalink-driver={version}")
    command, env = [sys.executable, "-m", "pytest", *words], {**os.environ, **NO_AUTOLOAD}
    done = subprocess.run(command, env=env, cwd=pytestconfig.rootpath, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= 40
    assert "kernels" in done.stdout


def test_demo(on_driver) -> None:
    """What the emulated driver links is proved from the image, as without a GPU."""
    done = on_driver("13.0", "-m", "pytest_cudalink.cli", "demo", "--backend=driver")
    assert done.returncode == 0, done.stdout + done.stderr
    said = " ".join(done.stdout.split())
    assert "driver: CUDA 13.0 (emulated)" in said
    assert "ok PTX without LTO: 2 .text section(s), expected 2" in said
    assert "ok LTO-IR with LTO: 1 .text section(s), expected 1" in said
    assert "the driver is emulated and runs no kernels: the images are the proof" in said
