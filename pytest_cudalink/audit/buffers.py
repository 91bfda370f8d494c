"""The bytes of an open file: in memory, or mapped if it is large, so that little of it is in memory at once."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from typing import IO, Final

from ..base.elf import Buffer

#: Files up to this size are read into memory.
_IN_MEMORY: Final = 16 << 20
#: So many bytes of a mapped file stay in memory while it is searched or read.
_WINDOW: Final = 8 << 20


class _MappedFile(mmap.mmap):
    """A mapped file that gives its pages back; whoever reads them again gets them from the system's cache."""

    _read = 0

    def find(self, sought: bytes, start: int = 0, end: int | None = None) -> int:  # type: ignore[override]
        """Return where some bytes begin, or -1; what was searched in vain does not stay in memory."""
        end = len(self) if end is None else min(end, len(self))
        while end - start > _WINDOW:
            stop = (start // _WINDOW + 1) * _WINDOW
            place = super().find(sought, start, min(stop + len(sought) - 1, end))
            if place >= 0:
                self.count_read(place - start)
                return place
            self._forget(start // _WINDOW * _WINDOW, _WINDOW)
            start = stop
        return super().find(sought, start, end)

    def count_read(self, size: int) -> None:
        """Give every page back after each window that was read."""
        self._read += size
        if self._read >= _WINDOW:
            self._read = 0
            self._forget(0, len(self))

    def _forget(self, start: int, size: int) -> None:
        if hasattr(mmap, "MADV_DONTNEED"):
            self.madvise(mmap.MADV_DONTNEED, start, size)


def count_read(data: Buffer, size: int) -> None:
    """Note that so many bytes were read, apart from searches, and are not needed again soon."""
    if isinstance(data, _MappedFile):
        data.count_read(size)


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
    mapped = _MappedFile(stream.fileno(), size, access=mmap.ACCESS_READ)
    try:
        yield mapped
    finally:
        with suppress(BufferError):  # a consumer that ended early keeps a view; the mapping ends with it
            mapped.close()
