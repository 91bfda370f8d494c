"""The objects that are loaded into this process, the files that it has mapped, and the code that opened them by ctypes.

The list of objects comes from C (`native/loads.c`). A look at a process that has loaded nothing costs a microsecond.
This module needs nothing but the standard library: a child process runs this file without the package around it.
"""

import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple, cast

_OURS: Final = Path(__file__).parent / "lib" / "libcudalink-loads.so"
_SIZE: Final = 1 << 16
_PACKAGE: Final = str(Path(__file__).parent.parent) + os.sep
#: Code that opens libraries for its callers, by a part of its path, with its name where it has one.
_FOR_OTHERS: Final = {
    f"{os.sep}cuda{os.sep}pathfinder{os.sep}": "cuda.pathfinder",
    f"{os.sep}ctypes{os.sep}": "",
    "<frozen ": "",
    _PACKAGE: "pytest-cudalink",
}
#: What calls the plugin's hooks: no code of a project asked for the library.
_HOOKS: Final = f"{os.sep}pluggy{os.sep}"


class LoadedObject(NamedTuple):
    """A shared library or extension module of this process."""

    path: str  # as it was opened, or as the loader found it; symbolic links are not followed
    soname: str  # empty without one
    needed: tuple[str, ...]  # the libraries that it is linked with, as its file names them


class Opening(NamedTuple):
    """A library that Python code opened through ctypes."""

    name: str  # what was opened, a path or a SONAME
    where: str  # file and line of the code that asked for it; empty where that is unknown
    through: str  # what opened it for that code: "cuda.pathfinder", "pytest-cudalink", or empty


@cache
def library() -> Any:
    """Return the native part of this module; None where it was not built, and no object can be listed."""
    if sys.platform != "linux" or not _OURS.is_file():
        return None
    import ctypes

    native = ctypes.PyDLL(str(_OURS))  # keeps the interpreter's lock: nothing is unloaded by Python code meanwhile
    native.cudalinkLoadCount.restype = ctypes.c_ulonglong
    native.cudalinkLoadedObjects.argtypes = (ctypes.c_char_p, ctypes.c_size_t)
    native.cudalinkLoadedObjects.restype = ctypes.c_size_t
    return native


def counter() -> Callable[[], int]:
    """Return what counts how often this process has loaded an object; it returns 0 where that is unknown."""
    native = library()
    return int if native is None else cast("Callable[[], int]", native.cudalinkLoadCount)


def loaded_objects() -> list[LoadedObject]:
    """Return the objects of this process in the order in which they were loaded, without the program itself."""
    native = library()
    if native is None:
        return []
    import ctypes

    size = _SIZE
    while True:
        text = ctypes.create_string_buffer(size)
        length = native.cudalinkLoadedObjects(text, size)
        if length <= size:
            break
        size = length
    objects = []
    fields = iter(text.raw[:length].decode("utf-8", "surrogateescape").split("\0"))
    for path in fields:
        soname = next(fields, "")
        needed = tuple(iter(lambda: next(fields, ""), ""))
        if path:
            objects.append(LoadedObject(path, soname, needed))
    return objects


def mapped_files(maps: str = "/proc/self/maps") -> list[str]:
    """Paths of the files in a process's memory map, each once, by address; empty where the system has no such map."""
    try:
        # newline: a path may contain a carriage return; the kernel escapes line feeds
        with open(maps, encoding="utf-8", errors="surrogateescape", newline="\n") as file:  # noqa: PTH123
            lines = file.read().split("\n")
    except OSError:
        return []
    # ADDRESSES PERMISSIONS OFFSET DEVICE INODE PATH: no field before the path has a slash
    paths = (line[line.index("/") :].removesuffix(" (deleted)") for line in lines if "/" in line)
    return list(dict.fromkeys(paths))


def loaded_file(name: str) -> str | None:
    """Path of a library of this process, by the beginning of its file name; None if it is not loaded.

    ``libcuda.so.1`` is a link to ``libcuda.so.580.65.06``, and the memory map has the latter name.
    """
    stem = name.partition(".so")[0] + ".so"
    return next((path for path in mapped_files() if path.rpartition("/")[2].startswith(stem)), None)


def watch_openings(note: Callable[[Opening], object]) -> Callable[[], None]:
    """Call `note` for each library that Python code has opened through ctypes.

    An audit hook would see the same, and would be called for every ``id()`` and every import, too, for the life of the
    process.

    Returns what ends the watch.
    """
    import ctypes

    module: Any = ctypes
    original = getattr(module, "_dlopen", None)
    if original is None:  # another implementation of Python
        return lambda: None

    def opened(name: Any, *arguments: Any) -> Any:
        handle = original(name, *arguments)
        if name is not None:
            note(_opening(os.fsdecode(name)))
        return handle

    def end() -> None:
        if module._dlopen is opened:  # noqa: SLF001 (what CDLL calls; ctypes has no public way to see it)
            module._dlopen = original  # noqa: SLF001

    module._dlopen = opened  # noqa: SLF001
    return end


def _opening(name: str) -> Opening:
    """Return an opening with the first frame of the stack that does not open libraries for others."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 (inspect.stack reads the files of all frames)
    through = ""
    while frame is not None:
        file = frame.f_code.co_filename
        part = next((part for part in _FOR_OTHERS if part in file), None)
        if part is None:
            return Opening(name, "" if _HOOKS in file else f"{file}:{frame.f_lineno}", through)
        through = _FOR_OTHERS[part] or through
        frame = frame.f_back
    return Opening(name, "", through)
