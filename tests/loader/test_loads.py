"""The objects of this process are listed with what they need, and Python code that opens libraries is seen."""

import ctypes
import os
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
    program = """
from pytest_cudalink.loader import loads
from cuda.pathfinder import load_nvidia_dynamic_lib
seen = []
loads.watch_openings(seen.append)
load_nvidia_dynamic_lib('nvrtc')
print(seen[-1].where, seen[-1].through)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "<string>:6 cuda.pathfinder\n"


# -- the files that it has mapped


def test_paths_as_the_kernel_writes_them(tmp_path) -> None:
    """Each file is listed once; spaces, deleted files and bytes that are not UTF-8 do not change its path."""
    file = tmp_path / "maps"
    file.write_bytes(
        b"55d0c0000000-55d0c0001000 r-xp 00000000 fe:01 1    /usr/bin/python3.11\n"
        b"55d0c0001000-55d0c0002000 r--p 00001000 fe:01 1    /usr/bin/python3.11\n"
        b"7f0000000000-7f0000001000 rw-p 00000000 00:00 0 \n"
        b"7f0000001000-7f0000002000 r-xp 00000000 fe:01 2    /opt/my libs/libcuda.so.580.65 (deleted)\n"
        b"7f0000002000-7f0000003000 r-xp 00000000 fe:01 3    /tmp/\xff\r/libnvrtc.so.13\n"
        b"7ffd00000000-7ffd00001000 r-xp 00000000 00:00 0    [vdso]\n"
    )
    assert [os.fsencode(path) for path in loads.mapped_files(str(file))] == [
        b"/usr/bin/python3.11",
        b"/opt/my libs/libcuda.so.580.65",
        b"/tmp/\xff\r/libnvrtc.so.13",
    ]
    assert loads.mapped_files(str(tmp_path / "none")) == []  # where there is no such file


def test_this_process() -> None:
    """The C library is in every Python; a library that was never opened is not."""
    libc = next(path for path in loads.mapped_files() if "libc.so" in path or "libc-" in path or "musl" in path)
    assert ctypes.CDLL(libc)
    assert loads.loaded_file(Path(libc).name) == libc
    assert loads.loaded_file("libneverthere.so.1") is None
