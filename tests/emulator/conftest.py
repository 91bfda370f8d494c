"""Fixtures of the tests that run child processes on an emulated driver."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from textwrap import dedent

import pytest

from pytest_cudalink import emulator, toolchains
from tests.nested import Forks

ROOT = Path(__file__).parent.parent.parent
Run = Callable[..., subprocess.CompletedProcess[str]]
#: What most programs begin with.
HEAD = """from tests.emulator.cu import *
from ctypes import *
import itertools, json, mmap, os, random, re, resource, signal, struct, subprocess, sys, tempfile, threading, time
"""
#: What nearly every program imports; none of it opens the driver.
IMPORTED = ("ctypes", "json", "subprocess", "threading", "pytest_cudalink.emulator.control")


def read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that the loader, malloc and Python read when a process starts, and never again."""
    return {name: value for name, value in env.items() if name.startswith(("LD_", "MALLOC_", "GLIBC_", "PYTHON"))}


@pytest.fixture(scope="session")
def toolchain() -> Callable[[str], Path]:
    """Makes sure that a CUDA release is in the cache, and gives its folder."""
    # the quick tests ask for these; to fetch one takes more CPU than a test may
    for version in ("12.9", "13.0", "13.2"):
        with suppress(toolchains.ToolchainError):  # a test that needs it says so
            toolchains.add(version)
    return lambda version: toolchains.add(version).path


@pytest.fixture(scope="session")
def driver_env() -> dict[str, str]:
    """An environment in which the loader finds the emulated driver, and malloc marks dead memory."""
    return {**os.environ, **emulator.emulation_for("13.0").environment()}


@pytest.fixture(scope="session")
def driver_forks(driver_env) -> Iterator[Forks]:
    """The process that programs on an emulated driver are forked from."""
    with Forks(IMPORTED, driver_env) as forks:
        yield forks


@pytest.fixture
def on_driver(toolchain, driver_env, driver_forks) -> Run:
    """Run Python with a program or arguments on an emulated driver of a version: `on_driver("13.0", "-c", text)`.

    It is forked where it can be, and started if it is to be fresh, without other frames on its stack.
    """

    def run(
        version: str, *arguments: str, env: dict[str, str] | None = None, fresh: bool = False, **options: object
    ) -> subprocess.CompletedProcess[str]:
        toolchain("12.8" if version == "12.7" else version)
        planned = emulator.emulation_for(version, **options)
        assert not planned.missing
        environment = {**os.environ, **planned.environment(), **(env or {})}
        if not fresh and arguments[0] in ("-c", "-m") and read_at_start(environment) == read_at_start(driver_env):
            return driver_forks.capture(arguments, ROOT, environment)
        command = [sys.executable, *arguments]
        return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)

    return run


def programs(table: Mapping[str, str], head: str = "", *, fixture: str = "check", **options: dict[str, object]) -> Run:
    """A test of each program of a table, which asserts what its first line says, behind a text and by a fixture.

    `options` has the options of a program by its name.
    """

    @pytest.mark.parametrize("name", table)
    def test_programs(request: pytest.FixtureRequest, name: str) -> None:
        """It ends without an error."""
        request.getfixturevalue(fixture)(head + table[name], **options.get(name, {}))

    return test_programs


@pytest.fixture
def check(on_driver) -> Callable[..., str]:
    """Run a program that asserts, behind `HEAD`, on an emulated driver; returns what it printed."""

    def run(program: str, version: str = "13.0", **options: object) -> str:
        done = on_driver(version, "-c", HEAD + dedent(program), **options)
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    return run


STATE = '''
import ctypes, gc
import pytest

CU = ctypes.CDLL("libcuda.so.1")

class State:
    """A link state whose option values are not kept: the driver finds another number there."""
    def __init__(self, found=99):
        self.found = found
        context = ctypes.c_void_p()
        assert CU.cuInit(0) == 0 and CU.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
        assert CU.cuCtxSetCurrent(context) == 0
        self.handle, self.values = ctypes.c_void_p(), (ctypes.c_uint64 * 1)(1)
        assert CU.cuLinkCreate_v2(1, (ctypes.c_int * 1)(12), self.values, ctypes.byref(self.handle)) == 0
    def __del__(self):
        self.values[0] = self.found
        CU.cuLinkDestroy(self.handle)
'''


@pytest.fixture
def suite(pytester: pytest.Pytester, run_pytest, toolchain):
    """Run pytest on an emulated driver, in a folder with `state.py` and the given modules."""
    toolchain("13.0")
    pytester.makepyfile(state=STATE)
    pytester.syspathinsert()

    def run(*arguments: str, **modules: str) -> pytest.RunResult:
        pytester.makepyfile(**modules)
        return run_pytest("-p", "no:cacheprovider", "--cudalink-driver=13.0", *arguments)

    return run
