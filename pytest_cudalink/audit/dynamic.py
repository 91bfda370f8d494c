"""What the dynamic loader reads of an installed library, quickly: an environment with torch has 6 GB of them.

`elf.read_elf` reads every symbol through pyelftools, which takes 9 s for libtorch_cpu.so alone. Here only the dynamic
section and the undefined symbols are read, from a memory map, and only those symbols are kept that can be CUDA's.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterator
from os import PathLike
from typing import Final

from ..regular_files import open_regular
from .elf import Elf
from .libraries import majors_of

__all__ = ["DynamicError", "contains", "read_dynamic"]

_HEADER: Final = struct.Struct("<16xHHIQQQIHHHHHH")
_SEGMENT: Final = struct.Struct("<IIQQQQQQ")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_TAG: Final = struct.Struct("<qQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_NEED: Final = struct.Struct("<HHIII")
_AUXILIARY: Final = struct.Struct("<IHHII")
_LOAD, _DYNAMIC, _DYNSYM = 1, 2, 11
_NEEDED, _STRTAB, _SYMTAB, _SONAME, _RPATH, _RUNPATH = 1, 5, 6, 14, 15, 29
_VERSYM, _VERNEED = 0x6FFFFFF0, 0x6FFFFFFE
#: The longest name, and the most entries of each table, that are read; libtorch_cpu.so has 100,000 symbols.
_MOST_NAME: Final = 4096
_MOST_ENTRIES: Final = 1 << 20
_MOST_VERSIONS: Final = 4096
#: Names that functions of CUDA's libraries have; for symbols whose library no version names.
_CUDA_SYMBOL: Final = re.compile(rb"_{0,2}(?:cu|nv|curand)[A-Za-z]")


class DynamicError(ValueError):
    """A library is damaged: a table lies outside of it."""


def read_dynamic(path: str | PathLike[str]) -> Elf | None:
    """Read what the loader needs of a library, with those undefined symbols that can be CUDA's; None if it is not ELF.

    Libraries of other byte orders and of 32 bits are None, too: CUDA has none.

    Raises
    ------
    OSError
        If the file cannot be read.
    DynamicError
        If it is damaged.
    """
    with open_regular(path) as file:
        if file.read(6) != b"\x7fELF\x02\x01":
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            try:
                return _read(content)
            except (struct.error, IndexError, OverflowError) as error:
                msg = f"a table of its dynamic section lies outside of the file: {error}"
                raise DynamicError(msg) from error


def contains(path: str | PathLike[str], text: bytes) -> bool:
    """Whether a file contains a text.

    Raises
    ------
    OSError
        If the file cannot be read.
    """
    with open_regular(path) as file:
        if not file.read(1):
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(text) >= 0


def _read(content: mmap.mmap) -> Elf | None:
    _, _, _, _, segments_at, sections_at, _, _, _, segment_count, _, section_count, _ = _HEADER.unpack_from(content)
    segments = [_SEGMENT.unpack_from(content, segments_at + at * _SEGMENT.size) for at in range(segment_count)]
    loads = [(address, offset, size) for kind, _, offset, address, _, size, _, _ in segments if kind == _LOAD]
    dynamic = next(((s[2], s[5]) for s in segments if s[0] == _DYNAMIC), None)
    if dynamic is None:
        return None

    def offset_of(address: int) -> int:
        found = next((offset + address - first for first, offset, size in loads if first <= address < first + size), -1)
        if found < 0:
            msg = f"address {address:#x} of its dynamic section is in no segment"
            raise DynamicError(msg)
        return found

    tags: dict[int, list[int]] = {}
    for at in range(dynamic[0], dynamic[0] + min(dynamic[1], _MOST_VERSIONS * _TAG.size), _TAG.size):
        tag, value = _TAG.unpack_from(content, at)
        if tag == 0:
            break
        tags.setdefault(tag, []).append(value)
    if _STRTAB not in tags:
        return None
    strings = offset_of(tags[_STRTAB][0])

    def text(index: int) -> str:
        end = content.find(b"\0", strings + index, strings + index + _MOST_NAME)
        if end < 0:
            msg = f"name {index} has no end"
            raise DynamicError(msg)
        return content[strings + index : end].decode("utf-8", "replace")

    soname = next((text(index) for index in tags.get(_SONAME, ())), None)
    needed = tuple(text(index) for index in tags.get(_NEEDED, ()))
    rpath = tuple(one for index in tags.get(_RPATH, ()) for one in text(index).split(":") if one)
    runpath = tuple(one for index in tags.get(_RUNPATH, ()) for one in text(index).split(":") if one)
    undefined: list[tuple[str, str, str]] = []
    weak: set[str] = set()
    if any(majors_of(library) is not None for library in needed):
        sections = (_SECTION.unpack_from(content, sections_at + at * _SECTION.size) for at in range(section_count))
        size = next((section[5] for section in sections if section[1] == _DYNSYM), 0)
        versions: dict[int, tuple[str, str]] = {}
        if _VERNEED in tags:
            versions = {
                number: (text(file), text(name))
                for number, file, name in _versions(content, offset_of(tags[_VERNEED][0]))
            }
        numbers = offset_of(tags[_VERSYM][0]) if _VERSYM in tags else None
        symbols = offset_of(tags[_SYMTAB][0]) if _SYMTAB in tags and size else 0
        for at in range(1, min(size // _SYMBOL.size, _MOST_ENTRIES) if symbols else 0):
            name, info, _, section, _, _ = _SYMBOL.unpack_from(content, symbols + at * _SYMBOL.size)
            if section:
                continue
            number = struct.unpack_from("<H", content, numbers + 2 * at)[0] & 0x7FFF if numbers is not None else 0
            file, version = versions.get(number, ("", ""))
            ours = majors_of(file) is not None if file else _CUDA_SYMBOL.match(content, strings + name) is not None
            if ours:
                symbol = text(name)
                undefined.append((symbol, file, version))
                if info >> 4 == 2:
                    weak.add(symbol)
    return Elf(soname, needed, rpath, runpath, tuple(undefined), frozenset(), frozenset(), frozenset(weak))


def _versions(content: mmap.mmap, at: int) -> Iterator[tuple[int, int, int]]:
    """Number, file and name of each needed symbol version, the latter two as indices of strings."""
    for _ in range(_MOST_VERSIONS):
        _, count, file, first, following = _NEED.unpack_from(content, at)
        auxiliary = at + first
        for _ in range(min(count, _MOST_VERSIONS)):
            _, _, number, name, more = _AUXILIARY.unpack_from(content, auxiliary)
            yield number, file, name
            auxiliary += more
        if not following:
            return
        at += following
