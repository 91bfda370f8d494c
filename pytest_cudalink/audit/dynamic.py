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
_NUMBER: Final = struct.Struct("<H")
_AUXILIARY: Final = struct.Struct("<IHHII")
_LOAD, _DYNAMIC, _DYNSYM, _WEAK = 1, 2, 11, 2
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


class _Image:
    """A library in memory: its dynamic section, and the strings that it refers to."""

    def __init__(self, content: mmap.mmap) -> None:
        self.content = content
        header = _HEADER.unpack_from(content)
        segments = [_SEGMENT.unpack_from(content, header[4] + at * _SEGMENT.size) for at in range(header[9])]
        self._sections_at, self._section_count = header[5], header[11]
        self._loads = [(one[3], one[2], one[5]) for one in segments if one[0] == _LOAD]
        self.tags: dict[int, list[int]] = {}
        begin, size = next(((one[2], one[5]) for one in segments if one[0] == _DYNAMIC), (0, 0))
        for at in range(begin, begin + min(size, _MOST_VERSIONS * _TAG.size), _TAG.size):
            tag, value = _TAG.unpack_from(content, at)
            if tag == 0:
                break
            self.tags.setdefault(tag, []).append(value)
        self.strings = self.offset_of(_STRTAB) or 0

    def offset_of(self, tag: int) -> int | None:
        """The offset in the file of the table that a tag points to; None without that tag.

        Raises
        ------
        DynamicError
            If it is in no segment.
        """
        if tag not in self.tags:
            return None
        address = self.tags[tag][0]
        for first, offset, size in self._loads:
            if first <= address < first + size:
                return int(offset + address - first)
        msg = f"address {address:#x} of its dynamic section is in no segment"
        raise DynamicError(msg)

    def text(self, index: int) -> str:
        """The string at an index of the string table.

        Raises
        ------
        DynamicError
            If it has no end.
        """
        begin = self.strings + index
        end = self.content.find(b"\0", begin, begin + _MOST_NAME)
        if end < 0:
            msg = f"name {index} has no end"
            raise DynamicError(msg)
        return self.content[begin:end].decode("utf-8", "replace")

    def texts(self, tag: int) -> tuple[str, ...]:
        """The strings of every tag of a kind."""
        return tuple(self.text(index) for index in self.tags.get(tag, ()))

    def undefined(self) -> Iterator[tuple[str, str, str, bool]]:
        """Undefined symbols that can be CUDA's: name, file and version that must define it, and whether it is weak."""
        size = 0
        for at in range(self._section_count):
            section = _SECTION.unpack_from(self.content, self._sections_at + at * _SECTION.size)
            size = section[5] if section[1] == _DYNSYM else size
        symbols, numbers = self.offset_of(_SYMTAB), self.offset_of(_VERSYM)
        needs = self.offset_of(_VERNEED)
        versions = {number: (self.text(file), self.text(name)) for number, file, name in _versions(self.content, needs)}
        for at in range(1, min(size // _SYMBOL.size, _MOST_ENTRIES) if symbols is not None else 0):
            name, info, _, section, _, _ = _SYMBOL.unpack_from(self.content, (symbols or 0) + at * _SYMBOL.size)
            if section:
                continue
            number = _NUMBER.unpack_from(self.content, numbers + 2 * at)[0] if numbers is not None else 0
            file, version = versions.get(number & 0x7FFF, ("", ""))
            named = _CUDA_SYMBOL.match(self.content, self.strings + name) is not None
            if (majors_of(file) is not None) if file else named:
                yield self.text(name), file, version, info >> 4 == _WEAK


def _read(content: mmap.mmap) -> Elf | None:
    image = _Image(content)
    if _STRTAB not in image.tags:
        return None
    needed = image.texts(_NEEDED)
    of_cuda = any(majors_of(library) is not None for library in needed)
    undefined = list(image.undefined()) if of_cuda else []
    rpath, runpath = (
        tuple(one for text in image.texts(tag) for one in text.split(":") if one) for tag in (_RPATH, _RUNPATH)
    )
    return Elf(
        next(iter(image.texts(_SONAME)), None),
        needed,
        rpath,
        runpath,
        tuple((name, file, version) for name, file, version, _ in undefined),
        frozenset(),
        frozenset(),
        frozenset(name for name, _, _, weak in undefined if weak),
    )


def _versions(content: mmap.mmap, at: int | None) -> Iterator[tuple[int, int, int]]:
    """Number, file and name of each needed symbol version, the latter two as indices of strings."""
    if at is None:
        return
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
