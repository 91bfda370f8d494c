"""Fixtures of the link worker's tests: a library that does what it is asked to, and the processes that hold it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.emulator.worker import fakes

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def built(tmp_path_factory) -> Path:
    """The fake library, compiled once."""
    return fakes.build(tmp_path_factory.mktemp("fake"))


@pytest.fixture
def fake(built, tmp_path) -> str:
    """A copy of the fake library: its path stands in the command line of the workers that hold it."""
    return str(shutil.copy(built, tmp_path / "libfake.so"))


@pytest.fixture
def workers(fake) -> Callable[[], list[int]]:
    """Lists the workers that hold the fake library."""
    return lambda: fakes.holders(fake)


@pytest.fixture
def gone(workers) -> Callable[[], bool]:
    """Waits until no worker holds the fake library; tells whether that happened."""
    return lambda: fakes.eventually(lambda: not workers())


@pytest.fixture
def child(fake) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start Python with a program that has `LIBRARY`, `WorkerLink` and `linked()`."""
    started: list[subprocess.Popen[str]] = []

    def start(program: str, **options: object) -> subprocess.Popen[str]:
        head = (
            "import os, signal, sys, threading, time\n"
            "from pytest_cudalink.emulator.worker import WorkerLink, WorkerError\n"
            f"LIBRARY = {fake!r}\n"
            "def linked(data=b'x'):\n"
            "    link = WorkerLink(LIBRARY, ['-arch=sm_90'])\n"
            "    answer = link.add(1, data, b'in')\n"
            "    answer = answer if answer.end else link.complete(0)\n"
            "    link.close()\n"
            "    return answer\n"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", head + program],
            **{
                "cwd": ROOT,
                "env": dict(os.environ),
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                "text": True,
                **options,
            },
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
