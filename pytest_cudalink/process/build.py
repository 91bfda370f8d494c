"""The source of the library that notes a fatal signal; the build hook loads this file. Standard library only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["libraries"]

_NATIVE = Path(__file__).parent / "native"


def libraries(cc: Any) -> list[Any]:
    """Return the libraries to build; `cc` is the module `native.compiler`."""
    return [cc.SharedLibrary("libcudalink-last-words.so", (_NATIVE / "last_words.c",), "libcudalink-last-words.so")]
