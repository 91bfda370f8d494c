"""A damaged library: every call answers that there is none, and the process lives on."""

import contextlib
import os
import random
import shutil
import socket
import struct
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from pytest_cudalink import emulator

from .conftest import compile_c, loaded

#: The call of each library that the tests make, with its number of pointers.
CALLS = {"cuda": "cuDriverGetVersion", "cudart": "cudaRuntimeGetVersion", "nvrtc": "nvrtcVersion"}
#: What a stub answers without a library.
MISSING = {"cuda": 303, "cudart": 303, "nvrtc": 11}
#: What a stub answers where the library lacks the function.
LACKING = {"cuda": 302, "cudart": 302, "nvrtc": 11}
#: The loader's path has other runtimes on some machines, so that one is named by its variable alone.
PLACES = [*((name, "variable") for name in CALLS), ("cuda", "loader"), ("nvrtc", "loader")]
NAMES = {"cuda": "libcuda.so.1", "cudart": "libcudart.so.13", "nvrtc": "libnvrtc.so.13"}

#: Cuts a file to each length, the longest first, and prints what the stub answers in a child of its own; a signal as a
#: negative number.
CUT = """
import ctypes, os, resource, sys
stub, function, file, *lengths = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
for length in lengths:
    if int(length) >= 0:
        os.truncate(file, int(length))
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        a, b = ctypes.c_int(), ctypes.c_int()
        code = getattr(ctypes.CDLL(stub), function)(ctypes.byref(a), ctypes.byref(b))
        os.write(theirs, str(code).encode())
        os._exit(0)
    os.close(theirs)
    _, status = os.waitpid(child, 0)
    print(-os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.read(ours, 20).decode())
    os.close(ours)
"""


def library(name: str, folder: Path) -> Path:
    """A sound library under its usual name: the runtime of the wheel, the emulated driver, a small NVRTC."""
    target = folder / NAMES[name]
    target.parent.mkdir(parents=True, exist_ok=True)
    if name == "cuda":
        shutil.copy(emulator.library_folder() / "libcuda.so.1", target)
    elif name == "nvrtc":
        compile_c(target, "int nvrtcVersion(int *a, int *b) { *a = 13; *b = 0; return 0; }")
    else:
        files = metadata.distribution("nvidia-cuda-runtime").files or ()
        shutil.copy(next(Path(str(file.locate())) for file in files if file.name == NAMES[name]), target)
    return target


def segments(data: bytes) -> Iterator[tuple[int, ...]]:
    """Kind, offset and size in the file of each program header."""
    (at,), (count,) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<H", data, 56)
    for number in range(count):
        kind, _, offset, _, _, size = struct.unpack_from("<IIQQQQ", data, at + 56 * number)
        yield kind, offset, size


def loaded_end(path: Path) -> int:
    """Where the last part of a library that is mapped ends in its file."""
    return max(offset + size for kind, offset, size in segments(path.read_bytes()) if kind == 1)


def lengths_of(path: Path, least: int, extra: int) -> list[int]:
    """Every page of a file, the ends of its headers and of what is mapped, and some lengths between; longest first."""
    size, end = path.stat().st_size, loaded_end(path)
    chosen = {*range(0, size, max(4096, least)), 1, 4, 63, 64, 65, 119, 3000, end - 1, end, end + 1, size - 1, size}
    chosen |= {random.Random(13).randrange(size) for _ in range(extra)}
    return sorted((length for length in chosen if length <= size), reverse=True)


def answers(name: str, place: str, path: Path, run, stubs, *lengths: int) -> list[int]:
    """What the stub of a library answers for each length of its file."""
    where = {f"CUDALINK_STUBS_{name.upper()}": path} if place == "variable" else {"LD_LIBRARY_PATH": path.parent}
    done = run(sys.executable, "-c", CUT, stubs[name], CALLS[name], path, *map(str, lengths), **where)
    codes = [int(line) for line in done.stdout.split()]
    assert len(codes) == len(lengths), done.stderr
    return codes


@pytest.mark.parametrize(("name", "place"), [pytest.param(*PLACES[0], marks=pytest.mark.slow), *PLACES[1:]])
def test_a_library_that_was_cut(name: str, place: str, stubs, run, tmp_path) -> None:
    """Cut at any length, a library is missing until all is there that the loader maps; no call dies."""
    path = library(name, tmp_path / "libs")
    end, lengths = loaded_end(path), lengths_of(path, 0 if place == "variable" else 40_960, 60)
    codes = zip(lengths, answers(name, place, path, run, stubs, *lengths), strict=True)
    wrong = [pair for pair in codes if pair[1] < 0 or (pair[1] == MISSING[name]) != (pair[0] < end)]
    assert wrong == []


def patched(path: Path, at: int, value: bytes) -> None:
    """Change some bytes of a file."""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(value)


def without_hash(path: Path) -> None:
    """Take DT_HASH and DT_GNU_HASH out of a library."""
    data = path.read_bytes()
    for kind, offset, size in segments(data):
        for at in range(offset, offset + size, 16) if kind == 2 else ():
            if struct.unpack_from("<Q", data, at)[0] in (4, 0x6FFFFEF5):
                patched(path, at, struct.pack("<Q", 21))


def zeroed(path: Path) -> None:
    """Fill a library with zeros after its headers, as a download that was interrupted leaves it."""
    size, (count,) = path.stat().st_size, struct.unpack_from("<H", path.read_bytes(), 56)
    os.truncate(path, 64 + 56 * count)
    os.truncate(path, size)


def remade(make):
    """Put something else in place of the file."""
    return lambda path: path.unlink() or make(path)


def bind(path: Path) -> None:
    """Make a socket."""
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as bound:
        bound.bind(path.name)  # the address has room for 107 bytes


DAMAGES = {
    "empty": remade(lambda path: path.write_bytes(b"")),
    "text": remade(lambda path: path.write_bytes(b"INPUT(libcudart.so)\n" * 1000)),
    "magic only": remade(lambda path: path.write_bytes(b"\x7fELF")),
    "zeros": remade(lambda path: path.write_bytes(bytes(100_000))),
    "32 bits": lambda path: patched(path, 4, b"\x01"),
    "big endian": lambda path: patched(path, 5, b"\x02"),
    "architecture": lambda path: patched(path, 18, struct.pack("<H", 21)),
    "object": lambda path: patched(path, 16, struct.pack("<H", 1)),
    "no program headers": lambda path: patched(path, 56, bytes(2)),
    "many program headers": lambda path: patched(path, 56, b"\xff\xff"),
    "program headers elsewhere": lambda path: patched(path, 32, b"\xff" * 8),
    "zeros after the headers": zeroed,
    "no hash": without_hash,
    "folder": remade(Path.mkdir),
    "fifo": remade(os.mkfifo),
    "socket": remade(bind),
    "device": remade(lambda path: path.symlink_to("/dev/zero")),
    "link to itself": remade(lambda path: path.symlink_to(path.name)),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(("name", "place"), PLACES)
def test_a_file_that_is_no_library(name: str, damage: str, place: str, stubs, run, tmp_path) -> None:
    """Whatever lies in place of the library, the call answers, and does not wait."""
    path = library(name, tmp_path / "libs")
    DAMAGES[damage](path)
    assert answers(name, place, path, run, stubs, -1)[0] in {MISSING[name], LACKING[name]}


def test_the_search_goes_on_and_says_why(stubs, run, tmp_path) -> None:
    """A cut library is passed over for the next place, and the description names it with the reason."""
    cut, sound = library("cudart", tmp_path / "cut" / "lib64"), library("cudart", tmp_path / "sound" / "lib64")
    os.truncate(cut, 3000)
    code = loaded(stubs["cudart"], "stub_cudart_describe") + "print(stub.stub_cudart_describe())"
    done = run(code, CUDA_PATH=tmp_path / "cut", CUDA_HOME=tmp_path / "sound")
    assert f"({cut}: is cut off)" in done.stdout
    assert f'"file": "{sound}"' in done.stdout
