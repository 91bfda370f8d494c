"""The bytes of an open file: in memory, or mapped if it is large."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from typing import IO, Final

from ..elf import Buffer

__all__ = ["Buffer", "buffer"]

#: Files up to this size are read into memory.
_IN_MEMORY: Final = 16 << 20


@contextmanager
def buffer(stream: IO[bytes]) -> Iterator[Buffer]:
    """Return all bytes of a stream, which is on a disk if they are many."""
    if isinstance(stream, BytesIO):
        yield stream.getvalue()  # no copy
        return
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    if size <= _IN_MEMORY:
        yield stream.read()
        return
    mapped = mmap.mmap(stream.fileno(), size, access=mmap.ACCESS_READ)
    try:
        yield mapped
    finally:
        with suppress(BufferError):  # a consumer that ended early keeps a view; the mapping ends with it
            mapped.close()
