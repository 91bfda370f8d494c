"""The sources of the reader of device code; the build hook loads this file. Standard library only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

LIBRARY = "libcudalink-artifacts.so"
NATIVE = Path(__file__).parent / "native"

#: The files of the reader, low to high: each includes only what stands before it, on its own floor or on a lower one.
FLOORS = (
    ("bytes",),
    ("elf_image", "containers", "ptx", "record", "tileir"),
    ("attributes", "cuda_tables", "mercury"),
    ("cubin",),
    ("inspect",),
)


def sources() -> tuple[Path, ...]:
    """The C files of the reader, with which the emulated driver is linked, too."""
    return tuple(NATIVE / f"{name}.c" for floor in FLOORS for name in floor)


def libraries(cc: Any) -> list[Any]:
    """Return the libraries to build; `cc` is the module `native.compiler`."""
    return [cc.SharedLibrary(LIBRARY, sources(), LIBRARY, (NATIVE,))]
