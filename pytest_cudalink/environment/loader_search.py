"""How the dynamic loader searches (ld.so(8)): whoever asks for its folders, their order or its cache asks here.

It looks in the RPATH of a file, unless it has a RUNPATH, and of the files that load it, then in LD_LIBRARY_PATH, in the
RUNPATH of the file, in the cache that ldconfig writes, and in its own folders.
"""

import mmap
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from ..base import elf
from ..base.regular_files import open_regular

#: What stands for the folder of a file in the folders that it names; and with the others that stand for something.
ORIGIN: Final = re.compile(r"\$(?:ORIGIN\b|\{ORIGIN\})", re.ASCII)
_TOKEN: Final = re.compile(r"\$(?:(?:ORIGIN|LIB|PLATFORM)\b|\{(?:ORIGIN|LIB|PLATFORM)\})", re.ASCII)
_MULTIARCH: Final = getattr(sys.implementation, "_multiarch", "")
#: The loader's own folders, in Debian and elsewhere; and all of them, with that of conda's environments.
_OF_DEBIAN: Final = (f"/lib/{_MULTIARCH}", f"/usr/lib/{_MULTIARCH}", "/lib", "/usr/lib")
_OF_OTHERS: Final = ("/lib64", "/usr/lib64")  # /usr/lib has the libraries of 32 bits
_FOLDERS: Final = (*_OF_OTHERS, *_OF_DEBIAN, f"{sys.prefix}/lib")
_CACHE: Final = Path("/etc/ld.so.cache")
#: What glibc knows a processor by that it calls "haswell", and not by the name of the machine.
_HASWELL: Final = frozenset(("GenuineIntel", "avx2", "fma", "bmi1", "bmi2", "abm", "movbe", "popcnt"))
_PROCESSOR: Final = Path("/proc/cpuinfo")


def own_folders(path: str, files: Mapping[str, Any], above: Iterable[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield the folders that files name for what one of them needs or opens, each behind the file that names it.

    A RUNPATH counts for its file alone; a file without one uses its RPATH and those of every file that loads it.

    `files`: each with a tuple `rpath` and a tuple `runpath`.
    `above`: the files that load it, the nearest first.
    """
    if files[path].runpath:
        yield from ((path, folder) for folder in files[path].runpath)
        return
    for file in (path, *above):
        if not files[file].runpath:
            yield from ((file, folder) for folder in files[file].rpath)


def expanded(text: str, folder: str) -> str:
    """Return what a file of a folder names, with what ``$ORIGIN``, ``$LIB`` and ``$PLATFORM`` stand for here."""

    def value(match: re.Match[str]) -> str:
        if "ORIGIN" in match[0]:
            return folder
        if "LIB" in match[0]:
            return os.path.realpath(_folders()[1]).removeprefix("/usr/")
        with suppress(OSError):
            if {*_PROCESSOR.read_text(encoding="utf-8").split()} >= _HASWELL:
                return "haswell"
        return str(_MULTIARCH.partition("-")[0])

    return _TOKEN.sub(value, text)


def _folders() -> tuple[str, ...]:
    """The loader's own folders here, in its order."""
    return _OF_OTHERS if Path(_OF_OTHERS[1]).is_dir() and not Path(_OF_DEBIAN[1]).is_dir() else _OF_DEBIAN


def library_path() -> list[str]:
    """The folders of LD_LIBRARY_PATH, without links; one without a name is the current folder."""
    folders = os.environ.get("LD_LIBRARY_PATH")
    program = os.path.dirname(os.path.realpath(sys.executable))  # noqa: PTH120 (of a text)
    return [_real(folder, program) for folder in re.split("[:;]", folders)] if folders else []


def _real(text: str, origin: str) -> str:
    """A folder without links; the current one may be gone, where Python knows no path of it."""
    return os.path.realpath(os.path.join("/proc/self/cwd", expanded(text, origin)))  # noqa: PTH118 (of texts)


def searched_first(path: str) -> list[str]:
    """The folders in which the loader looks before its cache for what an installed file needs, in its order.

    The RPATH of a file that loads this one is not known here.
    """
    with suppress(OSError, ValueError):
        if linkage := _linkage(path):
            origin = os.path.dirname(os.path.abspath(path))  # noqa: PTH100, PTH120 (the loader does not follow its link)
            own = [_real(folder, origin) for _, folder in own_folders(path, {path: linkage})]
            return [*library_path(), *own] if linkage.runpath else [*own, *library_path()]
    return library_path()


def _linkage(path: str) -> elf.Linkage | None:
    with open_regular(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        image = elf.loadable(content)
        return image.linkage() if image else None


def is_any_reached(opener: str, names: Collection[str], by_name: Iterable[str]) -> bool:
    """Whether the loader finds a library that a file opens by name; behind one without a version may stand any.

    The file's own folder counts only where its RPATH or RUNPATH says so, or LD_LIBRARY_PATH.

    `by_name`: what `found_by_name` has found.
    """
    there = [name for folder in searched_first(opener) for name in names_in(folder)]
    there += [path.rpartition("/")[2] for path in by_name]
    beginnings = tuple(f"{name}." for name in names if name.endswith(".so"))
    return any(library in names or library.startswith(beginnings) for library in there)


def names_in(folder: str) -> list[str]:
    """The names in a folder, in order; none if it cannot be listed."""
    with suppress(OSError):
        return sorted(os.listdir(folder))  # noqa: PTH208 (names)
    return []


def loader_cache() -> list[tuple[str, str]]:
    """Return names and paths in the loader's cache, which keeps files that are gone until ldconfig runs again."""
    program = shutil.which("ldconfig", path=f"/sbin:/usr/sbin:{os.environ.get('PATH', '')}")
    with suppress(OSError):
        # musl has no cache, and some systems keep it elsewhere
        return [] if program is None else _printed(program, _CACHE.stat().st_mtime_ns if _CACHE.exists() else 0)
    return []


@lru_cache(maxsize=1)
def _printed(program: str, _written: int) -> list[tuple[str, str]]:
    done = subprocess.run([program, "-p"], capture_output=True, check=False, timeout=10)  # noqa: S603 (the system's)
    return re.findall(r"^\s+(\S+) \(.*?\) => (\S.*)$", done.stdout.decode("utf-8", "replace"), re.MULTILINE)


def found_by_name() -> Iterator[str]:
    """The files that the loader finds without a folder: of its cache those that are there, then its own folders.

    A file that was copied into such a folder is found before ldconfig runs again.
    """
    yield from (path for _, path in loader_cache() if os.path.exists(path))  # noqa: PTH110 (many)
    yield from (f"{folder}/{name}" for folder in _folders() for name in names_in(folder))


def may_find(*beginnings: str) -> bool:
    """Whether a library whose name begins so may be where loaders look; no process is started for that."""
    try:
        for folder in filter(os.path.isdir, (*library_path(), *_FOLDERS)):
            names = "/".join(["", *os.listdir(folder)])  # noqa: PTH208 (of a variable)
            if any(f"/{beginning}" in names for beginning in beginnings):
                return True
        cache = _CACHE.read_bytes()
    except OSError:  # a folder that cannot be read; or musl, where a missing file answers nothing
        return True
    return any(beginning.encode() in cache for beginning in beginnings)
