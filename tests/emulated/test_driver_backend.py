"""The tests of the driver backend, which run on a GPU too, on the emulated driver."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.nested import NO_AUTOLOAD, with_plugins


@pytest.mark.slow
@pytest.mark.parametrize("version", ["13.0", "13.2"])
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
