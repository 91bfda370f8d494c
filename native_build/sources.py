"""The libraries and programs of each part of the package, the C files that they are built from, and flags of wheels."""

from __future__ import annotations

import hashlib
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pytest_cudalink.base.compiler import CompilerError

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = ROOT / "pytest_cudalink"
#: C that several parts are compiled with.
SHARED: Final = PACKAGE / "base" / "native"
READER: Final = PACKAGE / "artifacts" / "native"
JITLINK: Final = PACKAGE / "loader" / "jitlink" / "native"
_LINKER: Final = PACKAGE / "linker" / "native"
_LOADER: Final = PACKAGE / "loader" / "native"
_WORKER: Final = PACKAGE / "emulator" / "worker" / "native"
#: Has `library_file.h`, the check of a library before it is loaded.
_CHECK: Final = PACKAGE / "stubs" / "native"

#: The files of the reader of device code, low to high: each includes only what stands before it, on its own floor or on
#: a lower one.
READER_FLOORS: Final = (
    ("bytes",),
    ("elf_image", "containers", "ptx", "record", "tileir"),
    ("attributes", "cuda_tables", "mercury"),
    ("cubin",),
    ("inspect",),
)
#: The files of the library that watches libnvJitLink, likewise.
JITLINK_FLOORS: Final = (("jitlink_contract",), ("jitlink_calls",))
#: The emulated driver is linked with the reader of device code, and with the client of the link worker; `worker.c` is
#: the other side.
READER_SOURCES: Final = tuple(READER / f"{name}.c" for floor in READER_FLOORS for name in floor)
WORKER_CLIENT: Final = tuple(file for file in sorted(_WORKER.glob("*.c")) if file.name != "worker.c")

#: In a source tree whose libraries are built: the digest of what they were built from, and their names.
BUILT: Final = PACKAGE / "base" / "lib" / "built.txt"
#: Folders of what is built, generated and cached.
_MADE: Final = frozenset(("lib", "generated", "__pycache__"))


def libraries(cc: Any) -> Iterator[tuple[str, Any]]:
    """Yield what to build, each with the folder of its part in the package; its `lib/` is the output folder.

    `cc`: the module `pytest_cudalink.base.compiler`.
    """
    from . import driver

    loaded, locks, safe = (SHARED / name for name in ("loaded_object.c", "locks.c", "safe_memory.c"))
    threads = ("-pthread", "-ldl")

    def shared(name: str, sources: tuple[Path, ...], include: tuple[Path, ...], flags: tuple[str, ...] = ()) -> Any:
        return cc.SharedLibrary(name, sources, include, flags)

    yield "artifacts", shared("libcudalink-artifacts.so", READER_SOURCES, (READER,))
    for library in driver.libraries(cc):
        yield "emulator", library
    yield (
        "emulator/worker",
        cc.Executable("cudalink-link-worker", (_WORKER / "worker.c", _WORKER / "channel.c"), (_CHECK,), threads),
    )
    yield (
        "emulator/worker",
        shared("libcudalink-worker.so", (*WORKER_CLIENT, locks), (SHARED,), ("-DCUDALINK_WORKER_LIBRARY", *threads)),
    )
    yield "linker", shared("libcudalink-watched.so", (_LINKER / "watched.c", loaded), (_LINKER, SHARED), ("-ldl",))
    yield "loader", shared("libcudalink-last-words.so", (_LOADER / "last_words.c",), (SHARED,))
    yield "loader", shared("libcudalink-gates.so", (_LOADER / "gates.c",), (SHARED,))
    yield "loader", shared("libcudalink-loads.so", (_LOADER / "loads.c", loaded), (SHARED,))
    watch = (*(JITLINK / f"{name}.c" for floor in JITLINK_FLOORS for name in floor), loaded, locks, safe)
    yield "loader/jitlink", shared("libcudalink-jitlink-calls.so", watch, (JITLINK, SHARED), threads)


def zig_for(target: str) -> list[str]:
    """The command of the C compiler in the ``ziglang`` wheel for a target such as ``x86_64-linux-gnu.2.17``."""
    wheel_platform(target)
    return [sys.executable, "-m", "ziglang", "cc", "-target", target]


def wheel_platform(target: str) -> str:
    """The platform tags of a wheel for a target of zig: machine, and the oldest glibc that the wheel runs on.

    Raises CompilerError if the target is not Linux with glibc on x86-64 or aarch64.
    """
    found = re.fullmatch(r"(x86_64|aarch64)-linux-gnu\.2\.(\d+)", target)
    if not found:
        msg = f"the target of the wheel is {target!r}; expected x86_64-linux-gnu.2.17 or aarch64-linux-gnu.2.17"
        raise CompilerError(msg)
    machine, minor = found.groups()
    platform = f"manylinux_2_{minor}_{machine}"
    # installers that are older than the numbered tags know the year
    return f"manylinux2014_{machine}.{platform}" if minor == "17" else platform


def reproducible_flags(root: Path) -> tuple[str, ...]:
    """Flags by which a library holds nothing of the folder that it is built in: no debug information, no paths."""
    return ("-g0", "-Wl,--strip-debug", f"-ffile-prefix-map={root}=.")


def is_current(root: Path, find_compiler: Callable[[], list[str]]) -> bool:
    """Whether the libraries of a source tree are there, and neither a file nor the compiler's command has changed."""
    try:
        digest, *libraries = (root / BUILT.relative_to(ROOT)).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return False
    return (
        bool(libraries)
        and digest == _digest(root, find_compiler)
        and all((root / name).is_file() for name in libraries)
    )


@contextmanager
def building(root: Path, find_compiler: Callable[[], list[str]]) -> Iterator[bool]:
    """Whether the libraries of a source tree are current; if not, the block builds them, and its end notes of what.

    One process at a time: sessions of nox that install at once would each compile all of them.
    """
    import fcntl  # other systems than Linux read the lists above, too

    note = root / BUILT.relative_to(ROOT)
    note.parent.mkdir(parents=True, exist_ok=True)
    with note.with_name("lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        current = is_current(root, find_compiler)
        yield current
        if not current:
            _mark_current(root, note, find_compiler)


def _mark_current(root: Path, note: Path, find_compiler: Callable[[], list[str]]) -> None:
    """Write from what the libraries of a source tree were built, for `is_current`."""
    built = sorted(file for lib in (root / PACKAGE.name).rglob("lib") for file in lib.rglob("*"))
    libraries = [file for file in built if file.is_file() and file.parent != note.parent]
    with tempfile.TemporaryDirectory(dir=note.parent) as work:
        made = Path(work, note.name)
        made.write_text("\n".join([_digest(root, find_compiler), *(str(file.relative_to(root)) for file in libraries)]))
        made.replace(note)


def _digest(root: Path, find_compiler: Callable[[], list[str]]) -> str:
    """Return a digest of each file of the package and of these lists, and of the compiler's command."""
    found = hashlib.sha256(shlex.join(find_compiler()).encode())
    for folder in (PACKAGE, Path(__file__).parent):
        for file in sorted((root / folder.relative_to(ROOT)).rglob("*")):
            inside = file.relative_to(root)
            if file.is_file() and not _MADE.intersection(inside.parts):
                found.update(f"{inside}\0{file.stat().st_size}\0".encode() + file.read_bytes())
    return found.hexdigest()
