"""The objects of this process are listed with what they need, and Python code that opens libraries is seen."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_cudalink.loader import loads
from tests.compiled import compile_c

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the loader's list is Linux's")


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A new library ``libouter.so.1``, which needs ``libinner.so.2`` next to it."""
    inner = compile_c(tmp_path / "libinner.so.2", "int cudalink_test_empty;")
    flags = ("-Wl,--no-as-needed", str(inner), "-Wl,-rpath,$ORIGIN")
    return compile_c(tmp_path / "libouter.so.1", "int cudalink_test_empty;", *flags)


def test_a_loaded_library_and_what_it_needs(library) -> None:
    """Both are new, in the order in which the loader took them."""
    assert loads.library() is not None
    count, before = loads.counter()(), {loaded.path for loaded in loads.loaded_objects()}
    ctypes.CDLL(str(library))

    new = [loaded for loaded in loads.loaded_objects() if loaded.path not in before]

    assert loads.counter()() == loads.counter()() == count + 2 > 2
    assert [(loaded.path, loaded.soname) for loaded in new] == [
        (str(library), "libouter.so.1"),
        (str(library.with_name("libinner.so.2")), "libinner.so.2"),
    ]
    assert "libinner.so.2" in new[0].needed


def test_a_long_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that is longer than the buffer is read with a larger one."""
    whole = loads.loaded_objects()
    monkeypatch.setattr(loads, "_SIZE", 16)

    assert loads.loaded_objects() == whole


def test_without_the_native_part(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is listed, and that can be asked."""
    monkeypatch.setattr(loads, "_OURS", tmp_path / "missing.so")
    loads.library.cache_clear()
    try:
        assert (loads.library(), loads.counter()(), loads.loaded_objects()) == (None, 0, [])
    finally:
        monkeypatch.undo()
        loads.library.cache_clear()


def test_who_opens_a_library() -> None:
    """File and line of the code that calls ctypes, until the watch ends."""
    seen: list[loads.Opening] = []
    end = loads.watch_openings(seen.append)
    try:
        ctypes.CDLL("libm.so.6")
        ctypes.CDLL(None)
    finally:
        end()
    ctypes.CDLL("libm.so.6")

    (opening,) = seen
    assert opening.name == "libm.so.6"
    assert opening.where.startswith(f"{__file__}:")
    assert opening.through == ""


def test_pathfinder_opens_a_library_for_others(toolkit) -> None:
    """The code that asked cuda.pathfinder is named."""
    program = (
        "from pytest_cudalink.loader import loads\n"
        "from cuda.pathfinder import load_nvidia_dynamic_lib\n"
        "seen = []\n"
        "loads.watch_openings(seen.append)\n"
        "load_nvidia_dynamic_lib('nvrtc')\n"
        "print(seen[-1].where, seen[-1].through)\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "<string>:5 cuda.pathfinder\n"
