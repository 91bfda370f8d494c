"""The sources of the libraries that watch this process; the build hook loads this file. Standard library only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["FLOORS", "LAST_WORDS", "LIBRARY", "libraries"]

_NATIVE = Path(__file__).parent / "native"
#: Watches libnvJitLink.
LIBRARY = "libcudalink-jitlink-calls.so"
#: Its files by floor, without their endings; a file includes only headers of the floors above it in this list.
FLOORS = (("loaded_object",), ("jitlink_calls",))
#: Notes a fatal signal.
LAST_WORDS = "libcudalink-last-words.so"


def libraries(cc: Any) -> list[Any]:
    """Return the libraries to build; `cc` is the module `native.compiler`."""
    sources = tuple(_NATIVE / f"{name}.c" for floor in FLOORS for name in floor)
    # other code keeps the addresses of its functions for the life of the process
    flags = ("-pthread", "-ldl", "-Wl,-z,nodelete")
    return [
        cc.SharedLibrary(LIBRARY, sources, LIBRARY, (_NATIVE,), flags),
        cc.SharedLibrary(LAST_WORDS, (_NATIVE / "last_words.c",), LAST_WORDS),
    ]
