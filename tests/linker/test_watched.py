"""Calls of a library that are watched for what it prints; a Python function stands in for nvJitLinkComplete."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cudalink.linker.watched import WatchedLibrary

__all__: list[str] = []

ROOT = Path(__file__).parents[2]
LIBC = ctypes.CDLL(None)
LINE = "fatal   : Internal error: unexpected reloc section"
COMPLETE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


def print_in_c(text: str) -> None:
    """Print as libnvJitLink does: through the C library's ``stderr``, as it is at that moment."""
    LIBC.fputs(text.encode(), ctypes.c_void_p.in_dll(LIBC, "stderr"))


def watched(action: Callable[[], object], code: int = 0) -> tuple[int, str]:
    """Complete with a library that does `action` and returns `code`."""

    def complete(_: object) -> int:
        action()
        return code

    function = COMPLETE(complete)
    library = WatchedLibrary(0, ctypes.cast(function, ctypes.c_void_p).value or 0)
    return library.split(library.complete(0))


def test_the_line_is_returned_and_printed(capfd: pytest.CaptureFixture[str]) -> None:
    assert watched(lambda: print_in_c(f"{LINE}\n")) == (0, LINE)
    assert capfd.readouterr().err == f"{LINE}\n"


def test_the_result_of_the_library_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    assert watched(lambda: None, 6) == (6, "")
    assert watched(lambda: print_in_c(f"{LINE}\n"), 6) == (6, LINE)
    capfd.readouterr()


@pytest.mark.parametrize("text", ["", "error   : not this\n", "fatal\n"])
def test_other_text_is_only_printed(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert watched(lambda: print_in_c(text)) == (0, "")
    assert capfd.readouterr().err == text


def test_the_last_line_counts_and_a_new_watch_forgets_it(capfd: pytest.CaptureFixture[str]) -> None:
    assert watched(lambda: [print_in_c(f"fatal   : {number}\n") for number in range(3)]) == (0, "fatal   : 2")
    assert watched(lambda: None) == (0, "")
    assert capfd.readouterr().err.count("fatal") == 3


def test_a_long_line_is_cut(capfd: pytest.CaptureFixture[str]) -> None:
    _, found = watched(lambda: print_in_c("fatal   : " + "x" * 10_000))
    assert found.startswith("fatal   : xxx")
    assert len(found) < 1000
    assert len(capfd.readouterr().err) == 10_010


def test_only_the_thread_that_watches_gets_the_line(capfd: pytest.CaptureFixture[str]) -> None:
    other = threading.Thread(target=print_in_c, args=(f"{LINE}\n",))

    def run_other() -> None:
        other.start()
        other.join()

    assert watched(run_other) == (0, "")
    assert LINE in capfd.readouterr().err


def test_two_threads_watch_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    both = threading.Barrier(2)
    found: dict[int, tuple[int, str]] = {}
    original = ctypes.c_void_p.in_dll(LIBC, "stderr").value

    def work(number: int) -> None:
        both.wait()
        print_in_c(f"fatal   : {number}\n")
        both.wait()

    def link(number: int) -> None:
        found[number] = watched(lambda: work(number))

    threads = [threading.Thread(target=link, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {0: (0, "fatal   : 0"), 1: (0, "fatal   : 1")}
    assert ctypes.c_void_p.in_dll(LIBC, "stderr").value == original
    capfd.readouterr()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_forked_during_a_call_has_its_stderr() -> None:
    exits = []

    def fork() -> None:
        during = ctypes.c_void_p.in_dll(LIBC, "stderr").value
        child = os.fork()
        if child == 0:
            os._exit(ctypes.c_void_p.in_dll(LIBC, "stderr").value == during)
        exits.append(os.waitpid(child, 0)[1])

    watched(fork)
    assert exits == [0]


DIES = """
import ctypes, os
from tests.linker.test_watched import print_in_c, watched

watched(lambda: (print_in_c("last words"), os.abort()))
"""


def test_a_process_that_dies_in_a_call_loses_no_output() -> None:
    done = subprocess.run([sys.executable, "-c", DIES], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode < 0
    assert done.stderr == "last words"
