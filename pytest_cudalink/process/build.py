"""The sources of the libraries that watch this process; the build hook loads this file. Standard library only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["FLOORS", "LAST_WORDS", "LAST_WORDS_FLOORS", "LIBRARY", "LOADS", "LOADS_FLOORS", "libraries"]

_NATIVE = Path(__file__).parent / "native"
#: Watches libnvJitLink.
LIBRARY = "libcudalink-jitlink-calls.so"
#: Its files by floor, without their endings; a file includes only headers of the floors above it in this list.
FLOORS = (("loaded_object", "jitlink_handles"), ("jitlink_contract",), ("jitlink_calls",))
#: Notes a fatal signal.
LAST_WORDS = "libcudalink-last-words.so"
#: Its files by floor.
LAST_WORDS_FLOORS = (("last_words",),)
#: Lists the loaded objects.
LOADS = "libcudalink-loads.so"
#: Its files by floor.
LOADS_FLOORS = (("loads",),)


def libraries(cc: Any) -> list[Any]:
    """Return the libraries to build; `cc` is the module `native.compiler`."""
    return [
        cc.SharedLibrary(LIBRARY, _sources(FLOORS), LIBRARY, (_NATIVE,), ("-pthread", "-ldl")),
        cc.SharedLibrary(LAST_WORDS, _sources(LAST_WORDS_FLOORS), LAST_WORDS),
        cc.SharedLibrary(LOADS, _sources(LOADS_FLOORS), LOADS),
    ]


def _sources(floors: tuple[tuple[str, ...], ...]) -> tuple[Path, ...]:
    return tuple(_NATIVE / f"{name}.c" for floor in floors for name in floor)
