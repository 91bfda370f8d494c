"""The sources of the library that watches libnvJitLink; the build hook loads this file. Standard library only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["FLOORS", "LIBRARY", "libraries"]

_NATIVE = Path(__file__).parent / "native"
LIBRARY = "libcudalink-jitlink-calls.so"
#: Files by floor, without their endings; a file includes only headers of the floors above it in this list.
FLOORS = (("loaded_object",), ("jitlink_calls",))


def libraries(cc: Any) -> list[Any]:
    """Return the libraries to build; `cc` is the module `native.compiler`."""
    sources = tuple(_NATIVE / f"{name}.c" for floor in FLOORS for name in floor)
    # other code keeps the addresses of its functions for the life of the process
    flags = ("-pthread", "-ldl", "-Wl,-z,nodelete")
    return [cc.SharedLibrary(LIBRARY, sources, LIBRARY, (_NATIVE,), flags)]
