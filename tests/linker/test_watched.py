"""Calls of a library that are watched for what it prints; one that calls Python stands in for libnvJitLink."""

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pytest_cudalink.linker.backends import nvjitlink as our
from tests.compiled import compile_c

ROOT = Path(__file__).parents[2]
LIBC = ctypes.CDLL(None)
LINE = "fatal   : Internal error: unexpected reloc section"
ACTION = ctypes.CFUNCTYPE(ctypes.c_int)
#: The handle is the function that completes. No name of nvJitLink's: the plugin that runs these tests watches those.
SOURCE = """
#include <stdio.h>
int complete(int (*action)(void)) { return action(); }
void print(const char *text) { fputs(text, stderr); }
FILE *stream(void) { return stderr; }
"""


class Library:
    """A library that is watched."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.native: Any = ctypes.CDLL(str(path))
        self.native.stream.restype = ctypes.c_void_p
        self.function = ctypes.cast(self.native.complete, ctypes.c_void_p)
        assert our._ours().cudalinkWatch(self.native._handle)

    def print(self, text: str) -> None:
        """Print as libnvJitLink does: through the ``stderr`` that the library has at that moment."""
        self.native.print(text.encode())

    def complete(self, action: Callable[[], object], code: int = 0) -> tuple[int, str]:
        """Complete with a library that does `action` and returns `code`."""

        def complete() -> int:
            action()
            return code

        function = ACTION(complete)
        return our.split(our._ours().cudalinkComplete(self.function, ctypes.cast(function, ctypes.c_void_p)))


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """Compile and watch the library once."""
    return Library(compile_c(tmp_path_factory.mktemp("watched") / "libprints.so", SOURCE))


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        (f"{LINE}\n", 0, LINE),
        (f"{LINE}\n", 6, LINE),
        ("", 6, ""),
        ("error   : not this\n", 0, ""),
        ("fatal\n", 0, ""),
        ("fatal   : 1\nfatal   : 2\n", 0, "fatal   : 2"),
    ],
)
def test_what_a_library_prints(lib: Library, text: str, code: int, line: str, capfd) -> None:
    """The last fatal line is returned with the library's code, all is printed, and a new watch forgets the line."""
    assert lib.complete(lambda: [*map(lib.print, text.splitlines(keepends=True))], code) == (code, line)
    assert lib.complete(lambda: None) == (0, "")
    assert capfd.readouterr().err == text


def test_a_long_line_is_cut(lib: Library, capfd: pytest.CaptureFixture[str]) -> None:
    _, text = lib.complete(lambda: lib.print("fatal   : " + "x" * 10_000))
    assert text.startswith("fatal   : xxx")
    assert len(text) < 1000
    assert len(capfd.readouterr().err) == 10_010


def test_only_the_thread_that_watches_gets_the_line(lib: Library, capfd: pytest.CaptureFixture[str]) -> None:
    other = threading.Thread(target=lib.print, args=(f"{LINE}\n",))

    def run_other() -> None:
        other.start()
        other.join()

    assert lib.complete(run_other) == (0, "")
    assert LINE in capfd.readouterr().err


def test_two_threads_watch_at_once(lib: Library, capfd: pytest.CaptureFixture[str]) -> None:
    both = threading.Barrier(2)

    def work(number: int) -> None:
        both.wait()
        lib.print(f"fatal   : {number}\n")
        both.wait()

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda number: lib.complete(lambda: work(number)), range(2)))
    assert results == [(0, "fatal   : 0"), (0, "fatal   : 1")]
    capfd.readouterr()


def test_streams_stay(lib: Library) -> None:
    """During a call ``stderr`` is what it was, of other libraries and of the watched one.

    NVRTC closes what it took for stderr, if that is another one when it has compiled. What a second thread took for
    stderr in the watched library is not closed when the first one is done.
    """

    def streams() -> tuple[int, int | None]:
        return lib.native.stream(), ctypes.c_void_p.in_dll(LIBC, "stderr").value

    before, during = streams(), []
    lib.complete(lambda: during.append(streams()))
    assert during == [before] == [streams()]
    assert before[0] != before[1]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_forked_during_a_call_prints(lib: Library, capfd: pytest.CaptureFixture[str]) -> None:
    exits = []

    def fork() -> None:
        child = os.fork()
        if child == 0:
            lib.print("from the child")
            os._exit(0)
        exits.append(os.waitpid(child, 0)[1])

    lib.complete(fork)
    assert exits == [0]
    assert capfd.readouterr().err == "from the child"


DIES = """
import os, sys
from pathlib import Path
from tests.linker.test_watched import Library
lib = Library(Path(sys.argv[1]))
lib.complete(lambda: (lib.print("last words"), os.abort()))
"""


def test_a_process_that_dies_in_a_call_loses_no_output(lib: Library) -> None:
    command = [sys.executable, "-c", DIES, str(lib.path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode < 0
    assert done.stderr == "last words"


def test_a_library_that_was_not_built(monkeypatch) -> None:
    monkeypatch.setattr(our, "_OURS", Path("missing.so"))
    words = "not built: missing.so is missing; install pytest-cudalink with pip on Linux"
    with pytest.raises(RuntimeError, match=words):
        our._ours.__wrapped__()


def test_a_library_that_does_not_print_is_not_watched(tmp_path: Path) -> None:
    quiet = ctypes.CDLL(str(compile_c(tmp_path / "libquiet.so", "int quiet(void) { return 0; }")))
    assert our._ours().cudalinkWatch(quiet._handle) == 0
