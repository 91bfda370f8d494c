"""Writes a file as a whole or not at all."""

from __future__ import annotations

import os
import stat
import uuid
from contextlib import suppress
from pathlib import Path


def write(path: Path, text: str) -> None:
    """Write a text as UTF-8; a regular file has it all or stays as it was.

    The text goes to a temporary file in the same folder, which then takes the name. A pipe or a device is written to
    directly.

    Raises OSError if it cannot be written. No half file is left.
    """
    content = text.encode("utf-8", errors="backslashreplace")
    path = Path(os.path.realpath(path))  # Path.resolve raises a RuntimeError for a link to itself
    mode = None
    with suppress(FileNotFoundError):
        found = path.stat().st_mode
        mode = stat.S_IMODE(found)
        if not stat.S_ISREG(found):
            path.write_bytes(content)
            return
    scratch = path.with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        with scratch.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # some file systems find out only now that the disk is full
        if mode is not None:
            scratch.chmod(mode)
        scratch.replace(path)
    except BaseException:
        with suppress(OSError):
            scratch.unlink()
        raise
