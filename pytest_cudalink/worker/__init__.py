"""The link worker: a program of ours that holds one libnvJitLink, so that a library which crashes costs an error."""

from __future__ import annotations

from pathlib import Path

from . import build

__all__ = ["program"]

_LIB = Path(__file__).parent / "lib"


def program() -> Path:
    """Return the path of the program, whether it is there or not."""
    return _LIB / build.PROGRAM
