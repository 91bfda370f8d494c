"""ELF files of 64 bits and little endian, as all of CUDA's are: headers, what the loader reads, and if it is there.

The loader maps what the program headers name without comparing that with the file's size: a library that was cut off,
by a full disk or a broken download, ends the process with SIGBUS. ``stubs/native/library_file.h`` is the same rule in
C, for stubs and link workers.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import mmap

Buffer: TypeAlias = "bytes | mmap.mmap"
Sliced: TypeAlias = "Buffer | _OpenFile"

#: What such a file begins with; the first four bytes begin every ELF file.
MAGIC: Final = b"\x7fELF\x02\x01"
#: Bits and byte order of libraries that CUDA has none of.
_OTHERS: Final = (b"\1\1", b"\1\2", b"\2\2")
# of these three, only what is read here has a field
HEADER: Final = Struct("<18xH12xQQ6xHHHHH")
SEGMENT: Final = Struct("<I4xQQ8xQ16x")
_SECTION: Final = Struct("<IIQ8xQQ24x")
TAG: Final = Struct("<qQ")
SYMBOL: Final = Struct("<IBBHQQ")
_NUMBER: Final = Struct("<H")
_NEED: Final = Struct("<HHIII")
_AUXILIARY: Final = Struct("<IHHII")
PT_LOAD, PT_DYNAMIC = 1, 2
_SHT_DYNSYM: Final = 11
_STB_WEAK: Final = 2
DT_NEEDED, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SONAME, DT_RPATH, DT_RUNPATH = 1, 5, 6, 10, 14, 15, 29
_DT_VERSYM, _DT_VERNEED = 0x6FFFFFF0, 0x6FFFFFFE
#: Bounds for a damaged file. libtorch_cpu.so has 100,000 symbols, and 16 MB of names.
_MOST_NAME: Final = 1 << 20
_LEAST_NAMES: Final = 64 << 20
_MOST_SYMBOLS: Final = 1 << 20
_MOST_TAGS: Final = 4096
_MOST_VERSIONS: Final = 4096


class ElfError(ValueError):
    """A file is damaged: a table or a name lies outside of it, or tables refer to the same bytes again and again."""


class ElfHeader(NamedTuple):
    """The header of a file; places are offsets from it."""

    machine: int
    segments: int
    sections: int
    segment_size: int
    segment_count: int
    section_size: int
    section_count: int
    names: int


class SegmentHeader(NamedTuple):
    """A program header."""

    kind: int
    offset: int
    address: int
    in_file: int


_NO_SEGMENT: Final = SegmentHeader(0, 0, 0, 0)


class SectionHeader(NamedTuple):
    """A section header; its name is an offset into the section of names."""

    name: int
    kind: int
    flags: int
    offset: int
    size: int


class Symbol(NamedTuple):
    """A dynamic symbol; `file` and `version` are those that must define it, and empty without symbol versions."""

    name: str
    file: str
    version: str
    is_defined: bool
    is_weak: bool


class Linkage(NamedTuple):
    """What a library needs, and where the loader looks for that."""

    soname: str | None
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]


def read_header(content: Sliced, at: int = 0) -> ElfHeader | None:
    """Return the header of the file that begins at a place; None if none does."""
    head = content[at : at + HEADER.size]
    return ElfHeader._make(HEADER.unpack(head)) if len(head) == HEADER.size and head.startswith(MAGIC) else None


def read_segments(content: Sliced, head: ElfHeader) -> list[SegmentHeader]:
    """Return the program headers of a file.

    Raises ElfError if they lie outside of the content, or have another size.
    """
    if head.segment_count and head.segment_size != SEGMENT.size:
        raise ElfError(f"its program headers have {head.segment_size} bytes; expected {SEGMENT.size}")
    return list(map(SegmentHeader._make, _rows(SEGMENT, content, head.segments, head.segment_count)))


def read_sections(content: Buffer, head: ElfHeader, at: int = 0) -> list[SectionHeader]:
    """Return the section headers of the file that begins at a place.

    Raises ElfError if they lie outside of the content.
    """
    if head.section_count and head.section_size != _SECTION.size:
        raise ElfError(f"its section headers have {head.section_size} bytes; expected {_SECTION.size}")
    return list(map(SectionHeader._make, _rows(_SECTION, content, at + head.sections, head.section_count)))


def named_sections(content: Buffer, head: ElfHeader, at: int = 0) -> list[tuple[SectionHeader, str]]:
    """Return the section headers as `read_sections` does, each with the name of its section, cut at 64 bytes."""
    sections = read_sections(content, head, at)
    start = at + (sections[head.names].offset if head.names < len(sections) else 0)
    texts = (content[start + section.name : start + section.name + 64] for section in sections)
    return [
        (each, text.partition(b"\0")[0].decode("ascii", "replace")) for each, text in zip(sections, texts, strict=True)
    ]


def _rows(layout: Struct, content: Sliced, at: int, count: int) -> Iterator[tuple[Any, ...]]:
    """Unpack a table; raise an error if it lies outside of the content."""
    end = at + layout.size * count
    if end > len(content):
        raise ElfError(f"a table at {at:#x} lies outside of the file")
    return layout.iter_unpack(content[at:end])


class ElfImage:
    """What the dynamic loader reads of a library.

    Raises ElfError if the file is damaged; every method raises it, too.
    """

    def __init__(self, content: Buffer, head: ElfHeader) -> None:
        self._content = content
        self.head = head
        self._left = _LEAST_NAMES + len(content)
        segments = read_segments(content, head)
        self._loads = [segment for segment in segments if segment.kind == PT_LOAD]
        self.tags: dict[int, list[int]] = {}
        dynamic = next((segment for segment in segments if segment.kind == PT_DYNAMIC), _NO_SEGMENT)
        count = min(dynamic.in_file // TAG.size, _MOST_TAGS)
        for tag, value in _rows(TAG, content, dynamic.offset, count):
            if tag == 0:
                break
            self.tags.setdefault(tag, []).append(value)
        self.is_dynamic = DT_STRTAB in self.tags
        self._strings = self._offset_of(DT_STRTAB) or 0

    def linkage(self) -> Linkage:
        """Return the name of a library, the libraries that it needs, and the two lists of folders."""
        rpath, runpath = (
            tuple(folder for text in self.texts(tag) for folder in (text.split(":") if text else ()))
            for tag in (DT_RPATH, DT_RUNPATH)
        )
        return Linkage(next(iter(self.texts(DT_SONAME)), None), self.texts(DT_NEEDED), rpath, runpath)

    def texts(self, tag: int) -> tuple[str, ...]:
        """Return the strings of every tag of a kind."""
        return tuple(map(self._text, self.tags.get(tag, ())))

    def symbols(self, *, undefined_as: re.Pattern[bytes] | None = None, files: Iterable[str] = ()) -> Iterator[Symbol]:
        """Yield the dynamic symbols that have a name.

        `undefined_as`: only undefined symbols whose names match, or which one of `files` must define.
        `files`: SONAMEs.
        """
        place = self._offset_of(DT_SYMTAB)
        size = next((row.size for row in read_sections(self._content, self.head) if row.kind == _SHT_DYNSYM), 0)
        if place is None:
            return
        versions = self._versions()
        numbers = self._offset_of(_DT_VERSYM)
        wanted = set(files)
        count = min(size // SYMBOL.size, _MOST_SYMBOLS)
        given = (row[0] for row in _rows(_NUMBER, self._content, numbers, count)) if numbers is not None else None
        for name, info, _, section, _, _ in _rows(SYMBOL, self._content, place, count):
            number = next(given) & 0x7FFF if given is not None else 0
            file, version = versions.get(number, ("", "")) if not section else ("", "")
            if undefined_as is not None:
                is_named = undefined_as.match(self._content, self._strings + name) is not None
                if section or not (file in wanted if file else is_named):
                    continue
            if name and (text := self._text(name)):
                yield Symbol(text, file, version, bool(section), info >> 4 == _STB_WEAK)

    def _offset_of(self, tag: int) -> int | None:
        """Return the place in the file of the table that a tag points to; None without that tag."""
        if tag not in self.tags:
            return None
        address = self.tags[tag][0]
        for load in self._loads:
            place = load.offset + address - load.address
            if load.address <= address < load.address + load.in_file and place < len(self._content):
                return place
        raise ElfError(f"address {address:#x} of its dynamic section is not in the file")

    def _text(self, index: int) -> str:
        """Return the string at an index of the string table."""
        begin = self._strings + index
        end = self._content.find(b"\0", begin, begin + _MOST_NAME)
        if end < 0:
            raise ElfError(f"name {index} has no end")
        self._left -= end - begin
        if self._left < 0:
            raise ElfError("its symbols have the same long name again and again")
        return self._content[begin:end].decode("utf-8", "replace")

    def _versions(self) -> Mapping[int, tuple[str, str]]:
        """Return file and name of each needed symbol version, by number."""
        versions: dict[int, tuple[str, str]] = {}
        at, left = self._offset_of(_DT_VERNEED), _MOST_VERSIONS
        while at is not None:
            ((_, count, file, first, following),) = _rows(_NEED, self._content, at, 1)
            auxiliary = at + first
            left -= count + 1
            if left < 0:
                raise ElfError("its tables of versions refer to the same bytes again and again")
            for _ in range(count):
                ((_, _, number, name, more),) = _rows(_AUXILIARY, self._content, auxiliary, 1)
                versions[number] = (self._text(file), self._text(name))
                auxiliary += more
            at = at + following if following else None
        return versions


def loadable(content: Buffer) -> ElfImage | None:
    """Return a library of the form that CUDA has; None for files that the loader would not load, and of other forms.

    Raises ElfError if it is damaged.
    """
    head = read_header(content)
    if head is None:
        if content[:4] == MAGIC[:4] and content[4:6] not in _OTHERS:
            raise ElfError("its header is damaged")
        return None
    image = ElfImage(content, head)
    return image if image.is_dynamic else None


_MOST_PROGRAM_HEADERS: Final = 64  # the largest library of CUDA has 12
_MOST_DYNAMIC: Final = 1 << 16  # bytes; the largest of CUDA has 700


class DamagedLibraryError(OSError):
    """A library cannot be loaded, because its file is damaged; the message names the file and the remedy."""


def check(path: str | os.PathLike[str], remedy: str) -> None:
    """Raise an error if the loader would die of a file; its own errors suffice for everything else.

    `remedy`: what restores the file.
    Raises DamagedLibraryError.
    """
    if fault := damage(path):
        raise DamagedLibraryError(f"{os.fspath(path)} {fault}; {remedy}")


def damage(path: str | os.PathLike[str]) -> str:
    """Return what is wrong with a library's file, such as ``"is cut off"``; empty if the loader may try."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 (a Path needs three times as long)
            return "is not a regular file"
        with Path(path).open("rb", buffering=0) as file:
            return _damage_of(_OpenFile(file.fileno()))
    except OSError:
        return ""  # the loader says why it cannot be read


class _OpenFile:
    """The content of a file, read where it is asked for: a process that has mapped one that is cut off dies."""

    def __init__(self, file: int) -> None:
        self._file, self._size = file, os.fstat(file).st_size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        # (an offset may be more than pread takes; from the end of the file on there is nothing to read)
        return os.pread(self._file, part.stop - part.start, min(part.start, self._size))


def _damage_of(content: _OpenFile) -> str:
    """Return what is wrong with the content of a file."""
    size, head = len(content), read_header(content)
    if size < HEADER.size and (start := content[0:4]) == MAGIC[: len(start)]:
        return "is cut off"
    if head is None or head.segment_size != SEGMENT.size:
        return ""
    if head.segment_count > _MOST_PROGRAM_HEADERS:
        return "is damaged: it has too many program headers"
    try:
        segments = read_segments(content, head)
    except ElfError:
        return "is cut off"
    if any(segment.kind == PT_LOAD and segment.offset + segment.in_file > size for segment in segments):
        return "is cut off"
    dynamic = next((part for part in segments if part.kind == PT_DYNAMIC and part.in_file <= _MOST_DYNAMIC), None)
    if dynamic and not _has_names(content[dynamic.offset : dynamic.offset + dynamic.in_file], segments):
        return "is damaged: it has no names or symbols"
    return ""


def _has_names(table: bytes, segments: list[SegmentHeader]) -> bool:
    """Whether the names and symbols that a dynamic section refers to are in the file."""
    tags = dict(TAG.iter_unpack(table[: len(table) // TAG.size * TAG.size]))
    needed = ((tags.get(DT_STRTAB, 0), tags.get(DT_STRSZ, 0)), (tags.get(DT_SYMTAB, 0), SYMBOL.size))
    loaded = [segment for segment in segments if segment.kind == PT_LOAD]
    return all(
        at and any(segment.address <= at and at + length <= segment.address + segment.in_file for segment in loaded)
        for at, length in needed
    )
