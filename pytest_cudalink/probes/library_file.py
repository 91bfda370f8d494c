"""Whether a shared library's file has all that the loader maps; asked before it is loaded.

The loader maps what the program headers name without comparing that with the file's size: a library that was cut off,
by a full disk or a broken download, ends the process with SIGBUS. ``stubs/native/library_file.h`` is the same rule in
C, for stubs and link workers.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from ..base.elf import (
    DT_STRSZ,
    DT_STRTAB,
    DT_SYMTAB,
    HEADER,
    MAGIC,
    PT_DYNAMIC,
    PT_LOAD,
    SEGMENT,
    SYMBOL,
    TAG,
    SegmentHeader,
    read_header,
)

_MOST_PROGRAM_HEADERS: Final = 64  # the largest library of CUDA has 12
_MOST_DYNAMIC: Final = 1 << 16  # bytes; the largest of CUDA has 700


class DamagedLibraryError(OSError):
    """A library cannot be loaded, because its file is damaged; the message names the file and the remedy."""


def check(path: str | os.PathLike[str], remedy: str) -> None:
    """Raise an error if the loader would die of a file; its own errors suffice for everything else.

    `remedy`: what restores the file.
    Raises DamagedLibraryError.
    """
    if found := damage(path):
        msg = f"{os.fspath(path)} {found}; {remedy}"
        raise DamagedLibraryError(msg)


def damage(path: str | os.PathLike[str]) -> str:
    """Return what is wrong with a library's file, such as ``"is cut off"``; empty if the loader may try."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 (a Path needs three times as long)
            return "is not a regular file"
        with Path(path).open("rb", buffering=0) as file:
            return _damage_of(file.fileno(), os.fstat(file.fileno()).st_size)
    except OSError:
        return ""  # the loader says why it cannot be read


def _damage_of(file: int, size: int) -> str:
    """Return what is wrong with an open file of some size."""
    content = os.pread(file, HEADER.size, 0)
    if len(content) < HEADER.size:
        return "is cut off" if content[:4] == MAGIC[: len(content)][:4] else ""
    head = read_header(content)
    if head is None or head.segment_size != SEGMENT.size:
        return ""
    if head.segment_count > _MOST_PROGRAM_HEADERS:
        return "is damaged: it has too many program headers"
    length = SEGMENT.size * head.segment_count
    if head.segments + length > size:
        return "is cut off"
    segments = [SegmentHeader._make(row) for row in SEGMENT.iter_unpack(os.pread(file, length, head.segments))]
    if any(one.kind == PT_LOAD and one.offset + one.in_file > size for one in segments):
        return "is cut off"
    dynamic = next((one for one in segments if one.kind == PT_DYNAMIC and one.in_file <= _MOST_DYNAMIC), None)
    # (an offset may be more than pread takes; from the end of the file on there is nothing to read)
    if dynamic and not _has_names(os.pread(file, dynamic.in_file, min(dynamic.offset, size)), segments):
        return "is damaged: it has no names or symbols"
    return ""


def _has_names(table: bytes, segments: list[SegmentHeader]) -> bool:
    """Whether the names and symbols that a dynamic section refers to are in the file."""
    tags = dict(TAG.iter_unpack(table[: len(table) // TAG.size * TAG.size]))
    needed = ((tags.get(DT_STRTAB, 0), tags.get(DT_STRSZ, 0)), (tags.get(DT_SYMTAB, 0), SYMBOL.size))
    loaded = [one for one in segments if one.kind == PT_LOAD]
    return all(
        at and any(one.address <= at and at + length <= one.address + one.in_file for one in loaded)
        for at, length in needed
    )
