"""Records of runs: written, read, merged and shown.

The names are imported when they are first used: a test run that writes no records needs only `wording`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .records import RecordError, Recording, Writer, read

__all__ = ["RecordError", "Recording", "Writer", "read"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    from . import records

    return getattr(records, name)
