"""The sources of the linker's native library; the build hook loads this file. Standard library only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["libraries"]

_NATIVE = Path(__file__).parent / "native"


def libraries(cc: Any) -> list[Any]:
    """Return the libraries to build; `cc` is the module `native.compiler`."""
    source = (_NATIVE / "watched.c",)
    return [cc.SharedLibrary("libcudalink-watched.so", source, "libcudalink-watched.so", (_NATIVE,), ("-pthread",))]
