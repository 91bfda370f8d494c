"""The sources of the libraries that look at this process; the build hook loads this file. Standard library only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_NATIVE = Path(__file__).parent / "native"
#: C that several parts are compiled with.
_SHARED = Path(__file__).parent.parent / "native"
#: The handlers of fatal signals; the list of the loaded objects; the frames of threads, and the guard of gates.
_LIBRARIES = {
    "libcudalink-last-words.so": (_NATIVE / "last_words.c",),
    "libcudalink-gates.so": (_NATIVE / "gates.c",),
    "libcudalink-loads.so": (_NATIVE / "loads.c", _SHARED / "loaded_object.c"),
}


def libraries(cc: Any) -> list[Any]:
    """Return the libraries to build; `cc` is the module `native.compiler`."""
    return [cc.SharedLibrary(name, sources, name, (_SHARED,)) for name, sources in _LIBRARIES.items()]
