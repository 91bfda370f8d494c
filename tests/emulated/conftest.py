"""Fixtures of the tests that run child processes on an emulated driver."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cudalink import emulator, toolchains

ROOT = Path(__file__).parent.parent.parent
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def toolchain() -> Callable[[str], Path]:
    """Makes sure that a CUDA release is in the cache, and gives its folder."""
    return lambda version: toolchains.add(version).path


@pytest.fixture
def on_driver(toolchain) -> Run:
    """Run Python with a program or arguments on an emulated driver of a version: `on_driver("13.0", "-c", text)`."""

    def run(
        version: str, *arguments: str, timeout: float = 300, env: dict[str, str] | None = None, **options: object
    ) -> subprocess.CompletedProcess[str]:
        toolchain("12.8" if version == "12.7" else version)
        planned = emulator.emulation_for(version, **options)
        assert not planned.missing
        return subprocess.run(
            [sys.executable, *arguments],
            env={**os.environ, **planned.environment(), **(env or {})},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run


@pytest.fixture
def check(on_driver) -> Callable[..., str]:
    """Run a program that asserts, with the names of `cu.py`, on an emulated driver; returns what it printed."""
    head = "from tests.emulated.cu import *\nfrom ctypes import *\n"

    def run(program: str, version: str = "13.0", **options: object) -> str:
        done = on_driver(version, "-c", head + program, **options)
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    return run
