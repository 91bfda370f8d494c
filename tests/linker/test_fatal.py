"""The watch on what a library prints with ``fatal   :``."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from pytest_cudalink.linker.fatal import start_watching, stop_watching

__all__: list[str] = []

LIBC = ctypes.CDLL(None)
LINE = "fatal   : Internal error: unexpected reloc section"


def print_in_c(text: str) -> None:
    """Print as libnvJitLink does: through the C library's ``stderr``, as it is at that moment."""
    LIBC.fputs(text.encode(), ctypes.c_void_p.in_dll(LIBC, "stderr"))


def watched(action: Callable[[], None]) -> str:
    start_watching()
    try:
        action()
    finally:
        found = stop_watching()
    return found


def test_the_line_is_returned_and_printed(capfd: pytest.CaptureFixture[str]) -> None:
    assert watched(lambda: print_in_c(f"{LINE}\n")) == LINE
    assert capfd.readouterr().err == f"{LINE}\n"


@pytest.mark.parametrize("text", ["", "error   : not this\n", "fatal\n"])
def test_other_text_is_only_printed(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert watched(lambda: print_in_c(text)) == ""
    assert capfd.readouterr().err == text


def test_the_last_line_counts_and_a_new_watch_forgets_it(capfd: pytest.CaptureFixture[str]) -> None:
    assert watched(lambda: [print_in_c(f"fatal   : {number}\n") for number in range(3)]) == "fatal   : 2"
    assert watched(lambda: None) == ""
    assert capfd.readouterr().err.count("fatal") == 3


def test_a_long_line_is_cut(capfd: pytest.CaptureFixture[str]) -> None:
    found = watched(lambda: print_in_c("fatal   : " + "x" * 10_000))
    assert found.startswith("fatal   : xxx")
    assert len(found) < 1000
    assert len(capfd.readouterr().err) == 10_010


def test_only_the_thread_that_watches_gets_the_line(capfd: pytest.CaptureFixture[str]) -> None:
    other = threading.Thread(target=print_in_c, args=(f"{LINE}\n",))

    def run_other() -> None:
        other.start()
        other.join()

    assert watched(run_other) == ""
    assert LINE in capfd.readouterr().err


def test_two_threads_watch_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    both = threading.Barrier(2)
    found: dict[int, str] = {}

    def link(number: int) -> None:
        start_watching()
        both.wait()
        print_in_c(f"fatal   : {number}\n")
        both.wait()
        found[number] = stop_watching()

    threads = [threading.Thread(target=link, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {0: "fatal   : 0", 1: "fatal   : 1"}
    original = ctypes.c_void_p.in_dll(LIBC, "stderr").value
    assert watched(lambda: None) == ""
    assert ctypes.c_void_p.in_dll(LIBC, "stderr").value == original
    capfd.readouterr()


def test_a_child_forked_during_a_watch_has_its_stderr() -> None:
    start_watching()
    during = ctypes.c_void_p.in_dll(LIBC, "stderr").value
    child = os.fork()
    if child == 0:
        os._exit(ctypes.c_void_p.in_dll(LIBC, "stderr").value == during)
    status = os.waitpid(child, 0)[1]
    stop_watching()
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_process_that_dies_while_it_is_watched_loses_no_output() -> None:
    program = (
        "import ctypes, os\n"
        "from pytest_cudalink.linker.fatal import start_watching\n"
        "libc = ctypes.CDLL(None)\n"
        "start_watching()\n"
        "libc.fputs(b'last words', ctypes.c_void_p.in_dll(libc, 'stderr'))\n"
        "os.abort()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode < 0
    assert done.stderr == "last words"
