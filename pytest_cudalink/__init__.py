"""Test CUDA JIT-link code against every driver and toolkit pair, with or without a GPU.

Importing this package touches no CUDA library; every module that needs one loads it at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .environment.requirements import Raises

__all__ = ["Raises"]


def __getattr__(name: str) -> object:
    """`Raises`, imported when it is asked for: most who import this package do not."""
    if name == "Raises":
        from .environment.requirements import Raises

        return Raises
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
