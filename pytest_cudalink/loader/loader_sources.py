"""The sources of the libraries that look at this process; the build hook loads this file. Standard library only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["libraries"]

_NATIVE = Path(__file__).parent / "native"
#: Libraries of one file each: the handlers of fatal signals, and the list of the loaded objects.
_LIBRARIES = {"libcudalink-last-words.so": "last_words.c", "libcudalink-loads.so": "loads.c"}


def libraries(cc: Any) -> list[Any]:
    """Return the libraries to build; `cc` is the module `native.compiler`."""
    return [cc.SharedLibrary(name, (_NATIVE / source,), name) for name, source in _LIBRARIES.items()]
