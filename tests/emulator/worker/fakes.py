"""The fake libnvJitLink of `native/fake.c`, and the workers that hold it."""

import time
from collections.abc import Callable
from pathlib import Path

from tests.compiled import compile_c


def build(folder: Path) -> Path:
    """Compile the library into a folder, and return its path."""
    source = Path(__file__).parent / "native" / "fake.c"
    return compile_c(folder / "libfake.so", source.read_text(encoding="utf-8"))


def holders(library: str) -> list[int]:
    """The workers that hold a library, zombies apart."""
    numbers = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and library.encode() in (entry / "cmdline").read_bytes().split(b"\0")[1:2]:
                numbers.append(int(entry.name))
        except OSError:
            continue
    return numbers


def eventually(condition: Callable[[], bool], seconds: float = 60) -> bool:
    """Wait until something is true; tells whether that happened."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()
