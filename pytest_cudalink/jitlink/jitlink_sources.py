"""The sources of the library that watches libnvJitLink; the build hook loads this file. Standard library only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_NATIVE = Path(__file__).parent / "native"
#: C that several parts are compiled with.
_SHARED = Path(__file__).parent.parent / "native"
LIBRARY = "libcudalink-jitlink-calls.so"
#: Its files by floor, without their endings; a file includes only headers of the floors above it in this list.
FLOORS = (("jitlink_handles",), ("jitlink_contract",), ("jitlink_calls",))


def libraries(cc: Any) -> list[Any]:
    """Return the library to build; `cc` is the module `native.compiler`."""
    sources = (
        *(_NATIVE / f"{name}.c" for floor in FLOORS for name in floor),
        *(_SHARED / name for name in ("loaded_object.c", "locks.c", "safe_memory.c")),
    )
    return [cc.SharedLibrary(LIBRARY, sources, LIBRARY, (_NATIVE, _SHARED), ("-pthread", "-ldl"))]
