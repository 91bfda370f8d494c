"""Calls of libnvJitLink that cuda-bindings cannot make for us.

Three measurements stand behind this module:

- nvJitLink 13.0 reads a cubin whose ``.debug_frame`` has another type, prints ``fatal   : Internal error: unexpected
  reloc section`` on stderr, and returns success and an image that lacks a part: so what it prints is watched.
- nvJitLink keeps the address of an input's name until it completes, while cuda-bindings passes a copy that is freed
  when the call returns: so names are passed as bytes that the caller keeps.
- An exception of a signal that arrives as cuda-bindings returns a handle loses the handle: so the library writes it
  into the caller's memory.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_void_p
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

_OURS = Path(__file__).parent / "lib" / "libcudalink-watched.so"
_PRINTED_FATAL = 1 << 16  # native/watched.h


@cache
def _ours() -> Any:
    """Return our native library.

    Raises RuntimeError if it was not built: on Windows, or when the package was copied and not installed.
    """
    if not _OURS.is_file():
        where = " on Linux" if sys.platform == "win32" else ""
        msg = f"the linker's native library is not built: {_OURS} is missing; install pytest-cudalink with pip{where}"
        raise RuntimeError(msg)
    found = ctypes.CDLL(str(_OURS))
    found.cudalinkAddData.argtypes = (c_void_p, c_void_p, c_int, c_char_p, c_size_t, c_char_p)
    found.cudalinkComplete.argtypes = (c_void_p, c_void_p)
    found.cudalinkCreate.argtypes = (c_void_p, c_void_p, c_uint, c_void_p)
    found.cudalinkDestroy.argtypes = (c_void_p, c_void_p)
    found.cudalinkFatalLine.restype = c_char_p
    found.cudalinkWatch.argtypes = (c_void_p,)
    return found


@lru_cache(maxsize=64)
def _texts(options: tuple[str, ...]) -> Any:
    """Return the options as C takes them; nvJitLinkCreate only reads them."""
    return (c_char_p * len(options))(*(option.encode() for option in options))


class WatchedLibrary:
    """The watched functions of one libnvJitLink.

    `add_data`, `complete`, `create`, `destroy`: addresses of nvJitLinkAddData, nvJitLinkComplete, nvJitLinkCreate and
    nvJitLinkDestroy.
    """

    __slots__ = (
        *("_add", "_add_data", "_complete", "_completes", "_create", "_creates", "_destroy", "_destroys", "_line"),
    )

    def __init__(self, add_data: int, complete: int, create: int = 0, destroy: int = 0) -> None:
        ours = _ours()
        self._add_data, self._completes, self._creates, self._destroys = add_data, complete, create, destroy
        self._create, self._destroy = ours.cudalinkCreate, ours.cudalinkDestroy
        self._add, self._complete, self._line = ours.cudalinkAddData, ours.cudalinkComplete, ours.cudalinkFatalLine

    def create(self, handle: c_void_p, options: Sequence[str]) -> int:
        """Create a handle in the caller's memory, and return nvJitLink's result."""
        result: int = self._create(self._creates, byref(handle), len(options), _texts(tuple(options)))
        return result

    def destroy(self, handle: c_void_p) -> int:
        """Destroy the handle in the caller's memory, and return nvJitLink's result; does nothing without one."""
        result: int = self._destroy(self._destroys, byref(handle))
        return result

    def add(self, handle: int, kind: int, data: bytes, name: bytes) -> int:
        """Add an input, and return nvJitLink's result; the caller keeps `name` until the handle is destroyed."""
        result: int = self._add(self._add_data, handle, kind, data, len(data), name)
        return result

    def complete(self, handle: int) -> int:
        """Link, and return nvJitLink's result."""
        result: int = self._complete(self._completes, handle)
        return result

    def split(self, result: int) -> tuple[int, str]:
        """Return the result of this thread's last call without our mark, and the fatal line that it printed or ``""``.

        Needed only for a result that is not 0.
        """
        if not result & _PRINTED_FATAL:
            return result, ""
        return result & ~_PRINTED_FATAL, self._line().decode("utf-8", "replace")


@cache
def library(path: str) -> WatchedLibrary:
    """Return the functions of the libnvJitLink at a path, which is loaded already, and watch what it prints."""
    loaded = ctypes.CDLL(path)
    _ours().cudalinkWatch(loaded._handle)  # noqa: SLF001 (ctypes has no public name for it)
    functions = (
        *(loaded.nvJitLinkAddData, loaded.nvJitLinkComplete),
        *(loaded.nvJitLinkCreate, loaded.nvJitLinkDestroy),
    )
    return WatchedLibrary(*(ctypes.cast(function, c_void_p).value or 0 for function in functions))
