"""What a run leaves behind: the record file."""

from __future__ import annotations

from .records import RecordError, Recording, Writer, read

__all__ = ["RecordError", "Recording", "Writer", "read"]
