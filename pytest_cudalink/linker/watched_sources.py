"""The sources of the linker's native library; the build hook loads this file. Standard library only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_NATIVE = Path(__file__).parent / "native"
#: C that several parts are compiled with.
_SHARED = Path(__file__).parent.parent / "native"


def libraries(cc: Any) -> list[Any]:
    """Return the libraries to build; `cc` is the module `native.compiler`."""
    sources, include = (_NATIVE / "watched.c", _SHARED / "loaded_object.c"), (_NATIVE, _SHARED)
    return [cc.SharedLibrary("libcudalink-watched.so", sources, "libcudalink-watched.so", include, ("-ldl",))]
