"""Libraries of which the loader would die are an error that names the file and the remedy."""

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_cudalink import emulator
from pytest_cudalink.base import elf
from pytest_cudalink.base.install_command import install_command
from pytest_cudalink.emulator import preload
from pytest_cudalink.emulator.worker import WorkerError, WorkerLink
from pytest_cudalink.plugin.conditions import nvjitlink as choice
from pytest_cudalink.probes import DamagedLibraryError


@pytest.fixture
def library(tmp_path) -> Path:
    """A sound library that needs no other."""
    return Path(shutil.copy(emulator.library_folder() / "libcuda.so.1", tmp_path / "libnvJitLink.so.13"))


#: Loads each file in a child process, and prints the damage that was found and whether the child lived.
LOAD = """
import ctypes, os, resource, sys
from pytest_cudalink.base import elf
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
for length in sys.argv[2:]:
    os.truncate(sys.argv[1], int(length))
    child = os.fork()
    if not child:
        try:
            ctypes.CDLL(sys.argv[1])
        except OSError:
            pass
        os._exit(0)
    print(bool(elf.damage(sys.argv[1])), os.WIFSIGNALED(os.waitpid(child, 0)[1]))
"""


def test_cut_at_any_length(library) -> None:
    """The loader dies of no file in which no damage is found, and there is such a file."""
    size = library.stat().st_size
    lengths = [*range(size, 0, -size // 80), 65, 64, 63, 4, 1, 0]
    command = [sys.executable, "-c", LOAD, library, *map(str, lengths)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    pairs = [tuple(word == "True" for word in line.split()) for line in done.stdout.splitlines()]
    assert len(pairs) == len(lengths)
    assert (False, True) not in pairs
    assert (True, True) in pairs
    assert pairs[0] == (False, False)


def far_away(path: Path) -> None:
    """Let the program header of the dynamic section name the last offset that 64 bits can."""
    content = bytearray(path.read_bytes())
    start, size, count = (
        struct.unpack_from(f"<{kind}", content, at)[0] for kind, at in (("Q", 32), ("H", 54), ("H", 56))
    )
    (dynamic,) = (at for at in range(start, start + size * count, size) if content[at] == 2)
    struct.pack_into("<Q", content, dynamic + 8, 2**64 - 1)
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (
            lambda path: path.write_bytes(path.read_bytes()[:1024].ljust(path.stat().st_size, b"\0")),
            "has no names or symbols",
        ),
        (far_away, "has no names or symbols"),
        (lambda path: path.unlink() or os.mkfifo(path), "is not a regular file"),
        (lambda path: os.truncate(path, 0), "cut"),
    ],
)
def test_other_damage(library, harm, words) -> None:
    """Zeros after the headers, an offset beyond all files, a pipe and an empty file are found, and nothing waits."""
    harm(library)
    assert words in elf.damage(library)


def test_what_the_loader_may_judge(library, tmp_path) -> None:
    """A text and a missing file are left to the loader, whose own errors suffice."""
    library.write_text("INPUT(libcudart.so)\n" * 10)
    assert not elf.damage(library)
    assert not elf.damage(tmp_path / "missing")
    library.write_bytes(elf.MAGIC.ljust(54, b"\0") + bytes([56]).ljust(10, b"\0"))  # a header without segments
    assert not elf.damage(library)


@pytest.mark.parametrize(
    ("use", "error"),
    [
        (preload.preload_nvjitlink, DamagedLibraryError),
        (choice.aliases, DamagedLibraryError),
        (lambda library: WorkerLink(str(library), ["-arch=sm_90"]), WorkerError),
    ],
    ids=["preload", "aliases", "worker"],
)
def test_uses_of_a_path(library, use, error) -> None:
    """A nvJitLink that was cut is neither loaded nor searched; a worker does not report that a link has ended it."""
    os.truncate(library, 3000)
    with pytest.raises(error, match=rf"libnvJitLink\.so\.13 is cut off{'; .*add' * (error is DamagedLibraryError)}"):
        use(library)


def test_a_wheel(library, tmp_path) -> None:
    """The nvJitLink of an installed wheel is checked before cuda.pathfinder loads it, and pip is named."""
    os.truncate(library, 3000)
    information = tmp_path / "nvidia_nvjitlink-13.0.88.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: nvidia-nvjitlink\nVersion: 13.0.88\n")
    (information / "RECORD").write_text(f"{library.name},,\n")
    command = [sys.executable, "-c", "from pytest_cudalink import probes; probes.nvjitlink()"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    remedy = install_command("nvidia-nvjitlink==13.0.88", again=True)
    assert done.stderr.splitlines()[-1].endswith(f"{library} is cut off; to restore it: {remedy}")
