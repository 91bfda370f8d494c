"""What libnvJitLink prints on stderr where its result says success: a line with ``fatal   :``.

nvJitLink 13.0 reads a cubin whose ``.debug_frame`` has another type, prints ``fatal   : Internal error: unexpected
reloc section``, and returns success and an image that lacks a part (measured).
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["start_watching", "stop_watching"]

_LIBRARY = Path(__file__).parent / "lib" / "libcudalink-fatal.so"


@cache
def _library() -> Any:
    """Return the native library; None on Windows, where it is not built.

    Raises
    ------
    RuntimeError
        If it was not built on another system, where links would pass unwatched.
    """
    if sys.platform == "win32":
        return None
    if not _LIBRARY.is_file():
        msg = f"the linker's native library is not built: {_LIBRARY} is missing; install pytest-cudalink with pip"
        raise RuntimeError(msg)
    # PyDLL keeps the GIL: both functions take less time than giving it away
    library = ctypes.PyDLL(str(_LIBRARY))
    library.cudalinkWatchFatal.restype = None
    library.cudalinkFatalLine.restype = ctypes.c_char_p
    return library


def start_watching() -> None:
    """Watch what this thread prints through C's ``stderr`` until `stop_watching`; it is printed all the same."""
    if (library := _library()) is not None:
        library.cudalinkWatchFatal()


def stop_watching() -> str:
    """Return the last line with ``fatal   :`` that this thread printed while it was watched; empty if none."""
    library = _library()
    if library is None:
        return ""
    line: bytes = library.cudalinkFatalLine()
    return line.decode("utf-8", "replace") if line else ""
