"""A strict reader for ELF images: cubins, and host objects that carry a fatbin.

Every number that a linker follows without checking is checked here first, because nvJitLink and the driver crash on
some damaged cubins: one that is cut at half its bytes is a segmentation fault in nvJitLink 13.2 and in driver 580. A
general ELF library reads such a file lazily and trusts its numbers, so it cannot give this answer.

The layout is the System V ABI, chapter 4 ("Object Files"). The module `cubin` has what only CUDA defines, except for
tables of CUDA with the layout of System V's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from .damage import Damaged, Reader

__all__ = [
    "CAPMERC",
    "EM_CUDA",
    "NO_BYTES",
    "RELA",
    "SHT_MERC_RELA",
    "SHT_MERC_SYMTAB",
    "SHT_NOTE",
    "SHT_PROGBITS",
    "SHT_REL",
    "SHT_RELA",
    "SHT_STRTAB",
    "SHT_SYMTAB",
    "Elf",
    "Section",
    "Symbol",
    "entries",
    "read_elf",
    "symbols_of",
]

EM_CUDA = 190
ET_REL = 1

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
RELA = struct.Struct("<QQq")
_REL = struct.Struct("<QQ")
_NOTE = struct.Struct("<III")

SHT_PROGBITS, SHT_SYMTAB, SHT_STRTAB, SHT_RELA, SHT_NOTE, _SHT_NOBITS, SHT_REL = 1, 2, 3, 4, 7, 8, 9
#: Tables of CUDA that have the layout of System V's: from sm_100 on, a second set describes the Mercury code.
SHT_MERC_RELA, SHT_MERC_SYMTAB = 0x70000082, 0x70000085
#: .nv.global, .nv.local, .nv.shared and .nv.shared.reserved have a size but no bytes in the file.
NO_BYTES = frozenset({_SHT_NOBITS, 0x70000007, 0x70000009, 0x7000000A, 0x70000015})
#: Sections of packed Mercury code, whose symbols count in the bytes of the unpacked code.
CAPMERC = ".nv.capmerc"
_SHN_ABS, _SHN_COMMON, _SHN_XINDEX = 0xFFF1, 0xFFF2, 0xFFFF
_STT_FUNC, _STT_SECTION = 2, 3
_STB_GLOBAL = 1
_STO_CUDA_ENTRY = 0x10

#: CUDA's relocation types stay below 0x100, those of .nv.merc.* have 0x10000 added; 0 means none; the host's are small.
_RELOCATION_TYPES, _MERC_RELOCATION_TYPES = range(0x10000), range(0x10001, 0x10100)


class Section(NamedTuple):
    """A section header with its name resolved."""

    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry_size: int


class Symbol(NamedTuple):
    """A symbol-table entry with its name resolved."""

    name: str
    info: int
    other: int
    section: int
    value: int
    size: int

    @property
    def is_function(self) -> bool:
        return self.info & 0xF == _STT_FUNC

    @property
    def is_kernel(self) -> bool:
        return self.is_function and bool(self.other & _STO_CUDA_ENTRY) and self.section != 0

    @property
    def is_undefined(self) -> bool:
        """Whether the linker must find it: global, without a section, and not a name that the linker provides."""
        return self.section == 0 and self.info >> 4 == _STB_GLOBAL and not self.name.startswith(".nv.")

    @property
    def is_strong_definition(self) -> bool:
        return self.section != 0 and self.info >> 4 == _STB_GLOBAL and self.info & 0xF != _STT_SECTION


@dataclass(frozen=True)
class Elf:
    """The contents of one image.

    Attributes
    ----------
    machine, type, version, flags, abi_version : int
        Fields of the ELF header.
    sections : tuple of Section
    tables : dict of (int, tuple of Symbol)
        Symbol tables by the number of their section.
    notes : dict of (int, list of bytes)
        Descriptions of the notes by their type.
    """

    machine: int
    type: int
    version: int
    flags: int
    abi_version: int
    sections: tuple[Section, ...] = ()
    tables: dict[int, tuple[Symbol, ...]] = field(default_factory=dict)
    notes: dict[int, list[bytes]] = field(default_factory=dict)

    @property
    def relocatable(self) -> bool:
        return self.type == ET_REL

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """The entries of .symtab."""
        return next((table for index, table in self.tables.items() if self.sections[index].type == SHT_SYMTAB), ())


def read_elf(data: memoryview) -> Elf:
    """Read an ELF image and check it by the rules of the System V ABI.

    Raises
    ------
    Damaged
        If a table, name, symbol, relocation or note points outside of its bounds.
    """
    reader = Reader(data)
    header = reader.unpack(_HEADER, 0, "ELF header")
    _, etype, machine, version, _, phoff, shoff, flags, ehsize, phentsize, phnum, shentsize, shnum, shstrndx = header
    ident = bytes(data[:16])
    if (ident[4], ident[5]) != (2, 1) or ehsize != _HEADER.size:
        raise Damaged(f"ELF header is not 64-bit little-endian of {_HEADER.size} bytes")
    sections = _read_sections(reader, shoff, shnum, shentsize, shstrndx)
    if not sections:
        raise Damaged("ELF image has no sections")
    _check_segments(reader, phoff, phnum, phentsize)
    tables = {
        index: _read_symbols(reader, section, sections, relocatable=etype == ET_REL)
        for index, section in enumerate(sections)
        if section.type in (SHT_SYMTAB, SHT_MERC_SYMTAB)
    }
    if sum(sections[index].type == SHT_SYMTAB for index in tables) > 1:
        raise Damaged("more than one symbol table")
    notes: dict[int, list[bytes]] = {}
    for section in sections:
        if section.type in (SHT_RELA, SHT_REL, SHT_MERC_RELA):
            _check_relocations(reader, section, sections, tables)
        elif section.type == SHT_NOTE:
            for kind, description in _read_notes(reader, section):
                notes.setdefault(kind, []).append(description)
    return Elf(machine, etype, version, flags, ident[8], sections, tables, notes)


def _read_sections(reader: Reader, shoff: int, shnum: int, shentsize: int, shstrndx: int) -> tuple[Section, ...]:
    if shoff == 0:
        if shnum:
            raise Damaged(f"{shnum} sections are announced, but their table has no place in the file")
        return ()
    if shentsize != _SECTION.size:
        raise Damaged(f"section headers of {shentsize} bytes, expected {_SECTION.size}")
    first = reader.unpack(_SECTION, shoff, "section table")
    # System V ABI: counts that do not fit in 16 bits live in the first section header.
    count = shnum or first[5]
    names_at = first[6] if shstrndx == _SHN_XINDEX else shstrndx
    raw = list(_SECTION.iter_unpack(reader.span(shoff, count * _SECTION.size, "section table")))
    if names_at >= count or raw[names_at][1] != SHT_STRTAB:
        raise Damaged(f"section names should be in section {names_at}, which is not a string table")
    names = _string_table(reader, raw[names_at][4], raw[names_at][5], "section names")
    sections = []
    for index, (name, *fields) in enumerate(raw):
        section = Section(_name_at(names, name, f"name of section {index}"), *fields)
        _check_place(reader, index, section, count)
        sections.append(section)
    return tuple(sections)


def _check_place(reader: Reader, index: int, section: Section, count: int) -> None:
    if index == 0:
        if section.type or section.flags:
            raise Damaged(f"section 0 has type {section.type} and flags {section.flags:#x}, expected none")
        return
    what = f"section {index} ({section.name})"
    if section.type not in NO_BYTES:
        reader.span(section.offset, section.size, what)
    if section.align & (section.align - 1):
        raise Damaged(f"{what} has alignment {section.align}, not a power of two")
    if section.link >= count:
        raise Damaged(f"{what} refers to section {section.link} of {count}")


def _check_segments(reader: Reader, phoff: int, phnum: int, phentsize: int) -> None:
    if phnum == 0:
        return
    if phentsize != _SEGMENT.size:
        raise Damaged(f"program headers of {phentsize} bytes, expected {_SEGMENT.size}")
    table = reader.span(phoff, phnum * _SEGMENT.size, "program header table")
    for index, (_, _, offset, _, _, file_size, _, align) in enumerate(_SEGMENT.iter_unpack(table)):
        reader.span(offset, file_size, f"segment {index}")
        if align & (align - 1):
            raise Damaged(f"segment {index} has alignment {align}, not a power of two")


def _string_table(reader: Reader, offset: int, size: int, what: str) -> bytes:
    table = bytes(reader.span(offset, size, what))
    if not table or table[-1]:
        raise Damaged(f"{what}: the string table does not end with NUL")
    return table


def _name_at(table: bytes, offset: int, what: str) -> str:
    if offset >= len(table):
        raise Damaged(f"{what} starts at byte {offset} of a string table of {len(table)}")
    return table[offset : table.index(0, offset)].decode("utf-8", "replace")


def entries(reader: Reader, section: Section, layout: struct.Struct) -> Iterator[tuple[int, ...]]:
    """The entries of a table, or `Damaged` if the section is not a whole, aligned table of such entries."""
    if section.offset % min(section.align or 1, 8):
        raise Damaged(f"{section.name} starts at byte {section.offset}, not aligned to {section.align}")
    if section.entry_size != layout.size or section.size % layout.size:
        raise Damaged(
            f"{section.name}: {section.size} bytes in entries of {section.entry_size}, expected {layout.size}"
        )
    return layout.iter_unpack(reader.span(section.offset, section.size, section.name))


def _read_symbols(
    reader: Reader, table: Section, sections: tuple[Section, ...], *, relocatable: bool
) -> tuple[Symbol, ...]:
    if sections[table.link].type != SHT_STRTAB:
        raise Damaged(f"{table.name} takes its names from {sections[table.link].name}, which is not a string table")
    names = _string_table(reader, sections[table.link].offset, sections[table.link].size, "symbol names")
    symbols: list[Symbol] = []
    for index, (name, info, other, at, value, size) in enumerate(entries(reader, table, _SYMBOL)):
        symbol = Symbol(_name_at(names, name, f"name of symbol {index}"), info, other, at, value, size)
        symbols.append(symbol)
        if at in (_SHN_ABS, _SHN_COMMON, _SHN_XINDEX):
            continue
        if at >= len(sections):
            raise Damaged(f"symbol {index} ({symbol.name}) lies in section {at} of {len(sections)}")
        home = sections[at]
        if at and relocatable and _offsets_are_plain(home) and value + size > home.size:
            raise Damaged(
                f"symbol {index} ({symbol.name}) ends at byte {value + size} of {home.name}, which has {home.size}"
            )
    if table.info > len(symbols):
        raise Damaged(f"{table.name}: first global symbol {table.info} of {len(symbols)}")
    return tuple(symbols)


def _offsets_are_plain(section: Section) -> bool:
    """Whether offsets into a section count in its bytes: .nv.capmerc.* is packed, other sections have no bytes."""
    return section.type not in NO_BYTES and not section.name.startswith(CAPMERC)


_Tables = dict[int, tuple[Symbol, ...]]


def symbols_of(section: Section, tables: _Tables) -> tuple[Symbol, ...]:
    """The symbol table that a section refers to; CUDA 12.0 leaves some references out where there is only one table."""
    return tables.get(section.link) or next(iter(tables.values()), ())


def _check_relocations(reader: Reader, section: Section, sections: tuple[Section, ...], tables: _Tables) -> None:
    layout = _REL if section.type == SHT_REL else RELA
    if section.info >= len(sections):
        raise Damaged(f"{section.name} relocates section {section.info} of {len(sections)}")
    target = sections[section.info]
    symbols = len(symbols_of(section, tables)) or 1  # index 0 means "no symbol", also where there is no table
    types = _MERC_RELOCATION_TYPES if section.type == SHT_MERC_RELA else _RELOCATION_TYPES
    for index, (offset, info, *_) in enumerate(entries(reader, section, layout)):
        if offset >= target.size and _offsets_are_plain(target):
            raise Damaged(
                f"{section.name}: entry {index} changes byte {offset} of {target.name}, which has {target.size}"
            )
        if info >> 32 >= symbols:
            raise Damaged(f"{section.name}: entry {index} refers to symbol {info >> 32} of {symbols}")
        if info & 0xFFFFFFFF not in types:
            raise Damaged(f"{section.name}: entry {index} has relocation type {info & 0xFFFFFFFF:#x}")


def _read_notes(reader: Reader, section: Section) -> Iterator[tuple[int, bytes]]:
    inner = Reader(reader.span(section.offset, section.size, section.name))
    at = 0
    while at < inner.size:
        name_size, size, kind = inner.unpack(_NOTE, at, f"note in {section.name}")
        start = at + _NOTE.size + (name_size + 3 & ~3)
        yield kind, bytes(inner.span(start, size, f"note in {section.name}"))
        at = start + (size + 3 & ~3)
