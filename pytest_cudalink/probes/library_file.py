"""Whether a shared library's file has all that the loader maps; asked before it is loaded.

The loader maps what the program headers name without comparing that with the file's size: a library that was cut off,
by a full disk or a broken download, ends the process with SIGBUS. ``stubs/native/library_file.c`` is the same rule in
C, for stubs and link workers.
"""

from __future__ import annotations

import os
import stat
import struct
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["DamagedLibraryError", "check", "damage"]

_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM_HEADER: Final = struct.Struct("<IIQQQQQQ")
_MAGIC: Final = b"\x7fELF\x02\x01"  # 64 bits, little endian
_MOST_PROGRAM_HEADERS: Final = 64  # the largest library of CUDA has 12
_PT_LOAD: Final = 1
_PT_DYNAMIC: Final = 2
_ENTRY: Final = struct.Struct("<QQ")
_MOST_DYNAMIC: Final = 1 << 16  # bytes; the largest of CUDA has 700
_DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _SYMBOL_SIZE = 5, 6, 10, 24


class _Part(NamedTuple):
    """A program header."""

    kind: int
    flags: int
    offset: int
    address: int
    physical: int
    in_file: int
    in_memory: int
    alignment: int


class DamagedLibraryError(OSError):
    """A library cannot be loaded, because its file is damaged; the message names the file and the remedy."""


def check(path: str | os.PathLike[str], remedy: str) -> None:
    """Raise an error if the loader would die of a file; its own errors suffice for everything else.

    Parameters
    ----------
    path : str or path
    remedy : str
        What restores the file.

    Raises
    ------
    DamagedLibraryError
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
    header = os.pread(file, _HEADER.size, 0)
    if len(header) < _HEADER.size:
        return "is cut off" if header[:4] == _MAGIC[: len(header)][:4] else ""
    _, _, _, _, _, start, _, _, _, entry, count, *_ = _HEADER.unpack(header)
    if not header.startswith(_MAGIC) or entry != _PROGRAM_HEADER.size:
        return ""
    if count > _MOST_PROGRAM_HEADERS:
        return "is damaged: it has too many program headers"
    if start + entry * count > size:
        return "is cut off"
    parts = [_Part(*one) for one in _PROGRAM_HEADER.iter_unpack(os.pread(file, entry * count, start))]
    if any(one.kind == _PT_LOAD and one.offset + one.in_file > size for one in parts):
        return "is cut off"
    dynamic = next((one for one in parts if one.kind == _PT_DYNAMIC and one.in_file <= _MOST_DYNAMIC), None)
    # (an offset may be more than pread takes; from the end of the file on there is nothing to read)
    if dynamic and not _has_names(os.pread(file, dynamic.in_file, min(dynamic.offset, size)), parts):
        return "is damaged: it has no names or symbols"
    return ""


def _has_names(table: bytes, parts: list[_Part]) -> bool:
    """Whether the names and symbols that a dynamic section refers to are in the file."""
    entries = dict(_ENTRY.iter_unpack(table[: len(table) // _ENTRY.size * _ENTRY.size]))
    needed = ((entries.get(_DT_STRTAB, 0), entries.get(_DT_STRSZ, 0)), (entries.get(_DT_SYMTAB, 0), _SYMBOL_SIZE))
    loaded = [part for part in parts if part.kind == _PT_LOAD]
    return all(
        at and any(part.address <= at and at + length <= part.address + part.in_file for part in loaded)
        for at, length in needed
    )
