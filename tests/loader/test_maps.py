"""The memory map of a process: which files are in it."""

import ctypes
import os
import sys
from pathlib import Path

import pytest

from pytest_cudalink.loader import loads


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


def test_a_system_without_a_map(tmp_path) -> None:
    """Where there is no such file, nothing is known to be loaded."""
    assert loads.mapped_files(str(tmp_path / "none")) == []


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_this_process() -> None:
    """The C library is in every Python; a library that was never opened is not."""
    libc = next(path for path in loads.mapped_files() if "libc.so" in path or "libc-" in path or "musl" in path)
    assert ctypes.CDLL(libc)
    assert loads.loaded_file(Path(libc).name) == libc
    assert loads.loaded_file("libneverthere.so.1") is None
