"""Records of runs: written, read, merged and shown.

The names are imported when they are first used: a test run that writes no records needs only `wording`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.laziness import names_of

if TYPE_CHECKING:
    from .records import RecordError, Recording, Writer, read
else:
    __getattr__ = names_of(__name__, {".records": "RecordError Recording Writer read"})

__all__ = ["RecordError", "Recording", "Writer", "read"]
