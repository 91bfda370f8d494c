"""A strict reader for the ELF images of CUDA: cubins, and host objects that carry a fatbin.

Everything that a linker follows blindly is checked here first, because nvJitLink and the driver crash on some damaged
cubins: one that is cut at half its bytes is a segmentation fault in nvJitLink 13.2 and in driver 580. A general ELF
library reads such a file lazily and trusts its numbers, so it cannot give this answer.

The generic layout is the System V ABI, chapter 4 ("Object Files"); the names of NVIDIA's section types are those that
``cuobjdump -elf`` prints.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ._damage import Damaged, Reader

__all__ = ["EM_CUDA", "Elf", "Section", "Symbol", "check_cuda", "read_elf"]

EM_CUDA = 190
ET_REL = 1

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELA = struct.Struct("<QQq")
_REL = struct.Struct("<QQ")
_NOTE = struct.Struct("<III")
_PAIR = struct.Struct("<II")
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")

_SHT_PROGBITS, _SHT_SYMTAB, _SHT_STRTAB, _SHT_RELA, _SHT_NOTE, _SHT_NOBITS, _SHT_REL = 1, 2, 3, 4, 7, 8, 9
_SHT_CUDA_INFO, _SHT_CUDA_CALLGRAPH, _SHT_CUDA_PROTOTYPE = 0x70000000, 0x70000001, 0x70000002
#: From sm_100 on a second set of tables describes the Mercury code; they have the layout of their twins.
_SHT_CAPMERC, _SHT_MERC_RELA, _SHT_MERC_INFO, _SHT_MERC_SYMTAB = 0x70000016, 0x70000082, 0x70000083, 0x70000085
_SHF_MERC = 0x10000000
#: .nv.constant0 to .nv.constant17 have a type each, and are found by it and by their name.
_CONSTANT_BANKS = {0x70000064 + bank: f".nv.constant{bank}" for bank in range(18)}
_MERC, _CAPMERC = ".nv.merc", ".nv.capmerc"
#: .nv.global, .nv.local, .nv.shared and .nv.shared.reserved have a size but no bytes in the file.
_NO_BYTES = frozenset({_SHT_NOBITS, 0x70000007, 0x70000009, 0x7000000A, 0x70000015})
_SHN_ABS, _SHN_COMMON, _SHN_XINDEX = 0xFFF1, 0xFFF2, 0xFFFF
_ALLOC_EXECUTE = 0x2 | 0x4
#: e_flags from ABI version 8 on: a bit that announces Mercury, and the section of the note about CUDA in the top byte.
_EF_MERCURY, _EF_NOTE_SHIFT = 0x2, 24
#: Before that, a bit that no release sets and at which nvJitLink 12.9 dies (measured).
_EF_DEADLY = 0x4000
_CUDA_NOTES = (".note.nv.cuinfo", ".note.nv.cuver")
#: The note that names the tools which made the file, and the linkers among them.
_TOOL_NOTE, _LINKERS = ".note.nv.tkinfo", (b"nvJIT API", b"nvlink")
_STT_FUNC, _STT_SECTION = 2, 3
_STB_GLOBAL = 1
_STO_CUDA_ENTRY = 0x10

#: .nv.info attributes, by number, whose payload starts with the index of a function symbol:
#: FRAME_SIZE, MIN_STACK_SIZE, MAX_STACK_SIZE, REGCOUNT.
_INFO_FUNCTION_FIRST = frozenset({0x11, 0x12, 0x23, 0x2F})
_INFO_MAX_STACK, _INFO_REGCOUNT, _MOST_REGISTERS = 0x23, 0x2F, 255
#: PARAM_CBANK starts with the index of any symbol, EXTERNS is a list of them, KPARAM_INFO starts with a zero.
_INFO_PARAM_CBANK, _INFO_EXTERNS, _INFO_KPARAM = 0x0A, 0x0F, 0x17

#: CUDA's own types stay below 0x100, those of .nv.merc.* have 0x10000 added, and 0 is none; the host's are small.
_RELOCATION_TYPES, _MERC_RELOCATION_TYPES = range(0x10000), range(0x10001, 0x10100)
#: Sections of debug information, behind ``.nv.merc`` if they are Mercury's.
_DEBUG = (".debug_", ".nv_debug_")

#: The first word of .nv.capmerc.text.* is the section of the plain code. The second has the form of what follows in its
#: top two bits: CUDA 12.8 keeps a count in the other bits, CUDA 12.9 and later in the third word. The count is at most
#: that of the 16-byte instructions that the plain code has room for; the function's symbol may be smaller.
_CAPMERC_FORM_SHIFT, _CAPMERC_COUNT_INSIDE, _CAPMERC_COUNT_BEHIND = 30, 1, 3
_MERC_INSTRUCTION = 16

#: Section names that oblige a type: nvJitLink finds the section by its name and reads it as that type.
_TYPE_OF_NAME = {
    ".symtab": _SHT_SYMTAB,
    ".strtab": _SHT_STRTAB,
    ".shstrtab": _SHT_STRTAB,
    ".nv.callgraph": _SHT_CUDA_CALLGRAPH,
    ".nv.prototype": _SHT_CUDA_PROTOTYPE,
    ".nv.info": _SHT_CUDA_INFO,
}
_TYPE_OF_PREFIX = {
    ".text.": _SHT_PROGBITS,
    ".nv.capmerc.": _SHT_CAPMERC,
    ".nv.merc.symtab": _SHT_MERC_SYMTAB,
    ".nv.merc.rela.": _SHT_MERC_RELA,
    ".nv.merc.nv.info": _SHT_MERC_INFO,
    ".nv.info.": _SHT_CUDA_INFO,
    ".note.nv.": _SHT_NOTE,
    ".rela.": _SHT_RELA,
    ".rel.": _SHT_REL,
}


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
        """Left for the linker: global, no section, and not one of the names that the linker itself provides."""
        return self.section == 0 and self.info >> 4 == _STB_GLOBAL and not self.name.startswith(".nv.")

    @property
    def is_strong_definition(self) -> bool:
        return self.section != 0 and self.info >> 4 == _STB_GLOBAL and self.info & 0xF != _STT_SECTION


@dataclass(frozen=True)
class Elf:
    """What was read of one image.

    Attributes
    ----------
    machine, type, version, flags, os_abi, abi_version : int
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
    os_abi: int
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
        return next((table for index, table in self.tables.items() if self.sections[index].type == _SHT_SYMTAB), ())


def read_elf(data: memoryview) -> Elf:
    """Read an ELF image and check what the System V ABI says of it.

    Raises
    ------
    Damaged
        If any table, name, symbol, relocation or note points outside of what it may.
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
        if section.type in (_SHT_SYMTAB, _SHT_MERC_SYMTAB)
    }
    if sum(sections[index].type == _SHT_SYMTAB for index in tables) > 1:
        raise Damaged("more than one symbol table")
    notes: dict[int, list[bytes]] = {}
    for section in sections:
        if section.type in (_SHT_RELA, _SHT_REL, _SHT_MERC_RELA):
            _check_relocations(reader, section, sections, tables)
        elif section.type == _SHT_NOTE:
            for kind, description in _read_notes(reader, section):
                notes.setdefault(kind, []).append(description)
    return Elf(machine, etype, version, flags, ident[7], ident[8], sections, tables, notes)


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
    if names_at >= count or raw[names_at][1] != _SHT_STRTAB:
        raise Damaged(f"section names are said to be in section {names_at}, which is not a string table")
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
    if section.type not in _NO_BYTES:
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


def _entries(reader: Reader, section: Section, layout: struct.Struct) -> Iterator[tuple[int, ...]]:
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
    if sections[table.link].type != _SHT_STRTAB:
        raise Damaged(f"{table.name} takes its names from {sections[table.link].name}, which is not a string table")
    names = _string_table(reader, sections[table.link].offset, sections[table.link].size, "symbol names")
    symbols: list[Symbol] = []
    for index, (name, info, other, at, value, size) in enumerate(_entries(reader, table, _SYMBOL)):
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
    """Whether offsets into a section can be held against its size: .nv.capmerc.* is packed, others have no bytes."""
    return section.type not in _NO_BYTES and not section.name.startswith(_CAPMERC)


_Tables = dict[int, tuple[Symbol, ...]]


def _symbols_of(section: Section, tables: _Tables) -> tuple[Symbol, ...]:
    """The symbol table that a section refers to; CUDA 12.0 links some to no table, where only one can be meant."""
    return tables.get(section.link) or next(iter(tables.values()), ())


def _symbol(symbols: tuple[Symbol, ...], index: int, what: str, *, function: bool = False) -> Symbol:
    """Symbol `index`, or `Damaged` saying that `what` refers to it in vain."""
    if index >= len(symbols):
        raise Damaged(f"{what} refers to symbol {index} of {len(symbols)}")
    if function and not symbols[index].is_function:
        raise Damaged(f"{what} refers to symbol {index} ({symbols[index].name}), which is not a function")
    return symbols[index]


def _check_relocations(reader: Reader, section: Section, sections: tuple[Section, ...], tables: _Tables) -> None:
    layout = _REL if section.type == _SHT_REL else _RELA
    if section.info >= len(sections):
        raise Damaged(f"{section.name} relocates section {section.info} of {len(sections)}")
    target = sections[section.info]
    symbols = len(_symbols_of(section, tables)) or 1  # index 0 means "no symbol", also where there is no table
    types = _MERC_RELOCATION_TYPES if section.type == _SHT_MERC_RELA else _RELOCATION_TYPES
    for index, (offset, info, *_) in enumerate(_entries(reader, section, layout)):
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


def check_cuda(data: memoryview, elf: Elf) -> None:
    """Check what CUDA linkers rely on beyond the System V ABI, as seen in the output of NVRTC and nvcc 12.0 to 13.5.

    Raises
    ------
    Damaged
        If a section has not the type, flags or owner that its name says, its content points outside, or what is said
        twice is not said alike.
    """
    reader = Reader(data)
    compiled = _is_compiled(reader, elf)
    _check_flags(elf)
    for index, section in enumerate(elf.sections[1:], 1):
        _check_header(section)
        symbols = _symbols_of(section, elf.tables)
        if section.name.startswith(".text."):
            _check_code(index, section, symbols)
        elif section.type == _SHT_CAPMERC:
            _check_mercury_code(reader, index, section, elf.sections, symbols)
        elif index not in elf.tables and section.info >= len(elf.sections):
            raise Damaged(f"{section.name} refers to section {section.info} of {len(elf.sections)}")
        _check_content(reader, section, elf.sections, symbols)
        if compiled:
            _check_compiled(reader, section, elf.sections, symbols)
    if elf.relocatable:  # linking renames and drops
        _check_mercury_symbols(elf)


def _is_compiled(reader: Reader, elf: Elf) -> bool:
    """Whether a compiler made this, and no linker after it: that keeps references to what it drops."""
    notes = [section for section in elf.sections if section.name == _TOOL_NOTE]
    texts = [bytes(reader.span(note.offset, note.size, note.name)) for note in notes]
    return elf.relocatable and not any(linker in text for text in texts for linker in _LINKERS)


def _check_flags(elf: Elf) -> None:
    if elf.abi_version < 8:
        if elf.flags & _EF_DEADLY:
            raise Damaged(f"e_flags are {elf.flags:#x}; no CUDA release sets {_EF_DEADLY:#x}")
        return
    at = elf.flags >> _EF_NOTE_SHIFT
    found = elf.sections[at].name or "none" if at < len(elf.sections) else "none"
    if found not in _CUDA_NOTES:
        raise Damaged(f"e_flags say that section {at} is the note about CUDA, which is {found}")
    if any(section.type == _SHT_CAPMERC for section in elf.sections) and not elf.flags & _EF_MERCURY:
        raise Damaged(f"e_flags are {elf.flags:#x}, at odds with the sections {_CAPMERC}.*")


def _check_header(section: Section) -> None:
    if section.align == 0:
        raise Damaged(f"{section.name} has alignment 0")
    if section.size and section.type not in _NO_BYTES and section.offset % section.align:
        raise Damaged(f"{section.name} starts at byte {section.offset}, not aligned to {section.align}")
    expected = _TYPE_OF_NAME.get(section.name)
    if expected is None:
        prefixed = (kind for prefix, kind in _TYPE_OF_PREFIX.items() if section.name.startswith(prefix))
        expected = next(prefixed, section.type)
    if section.type != expected:
        raise Damaged(f"{section.name} has type {section.type:#x}, expected {expected:#x}")
    bank = _CONSTANT_BANKS.get(section.type, "")
    if not section.name.startswith(bank):
        raise Damaged(f"{section.name} has the type of {bank}")
    if bool(section.flags & _SHF_MERC) != section.name.startswith((_MERC, _CAPMERC)):
        raise Damaged(f"{section.name} has flags {section.flags:#x}, at odds with its name")


def _check_code(index: int, section: Section, symbols: tuple[Symbol, ...]) -> None:
    # the low 24 bits are the function's symbol; CUDA 12 keeps its register count above them
    _check_owner(index, section, symbols, section.info & 0xFFFFFF)
    if section.flags & _ALLOC_EXECUTE != _ALLOC_EXECUTE:
        raise Damaged(f"{section.name} is not marked as code")


def _check_owner(index: int, section: Section, symbols: tuple[Symbol, ...], owner: int) -> Symbol:
    function = _symbol(symbols, owner, section.name, function=True)
    if function.section != index:
        raise Damaged(f"{section.name} belongs to {function.name}, which lies in section {function.section}")
    return function


def _check_mercury_code(
    reader: Reader, index: int, section: Section, sections: tuple[Section, ...], symbols: tuple[Symbol, ...]
) -> None:
    """Check the head of .nv.capmerc.text.*; the records behind it are packed in a way that nobody documents."""
    _check_owner(index, section, symbols, section.info)
    inner = Reader(reader.span(section.offset, section.size, section.name))
    plain, word = inner.unpack(_PAIR, 0, section.name)
    if plain >= len(sections) or sections[plain].name != section.name.removeprefix(_CAPMERC):
        raise Damaged(f"{section.name} says that its plain code is section {plain}, which is not that")
    form = word >> _CAPMERC_FORM_SHIFT
    if form == _CAPMERC_COUNT_INSIDE:
        count = word & (1 << _CAPMERC_FORM_SHIFT) - 1
    elif form == _CAPMERC_COUNT_BEHIND:
        (count,) = inner.unpack(_U32, 8, section.name)
    else:
        raise Damaged(f"{section.name} has form {form}, expected {_CAPMERC_COUNT_INSIDE} or {_CAPMERC_COUNT_BEHIND}")
    code = sections[plain]
    if count * _MERC_INSTRUCTION > code.size:
        raise Damaged(f"{section.name} announces {count} instructions, {code.name} has {code.size} bytes")


def _check_mercury_symbols(elf: Elf) -> None:
    """Hold Mercury's symbols against those of .symtab, whose first ones they repeat."""
    for at, table in elf.tables.items():
        if elf.sections[at].type != _SHT_MERC_SYMTAB:
            continue
        if len(table) > len(elf.symbols):
            raise Damaged(f"{elf.sections[at].name} has {len(table)} symbols, .symtab has {len(elf.symbols)}")
        for index, (mercury, plain) in enumerate(zip(table, elf.symbols, strict=False)):
            alike = (mercury.info, mercury.other, mercury.section == 0) == (plain.info, plain.other, plain.section == 0)
            if not alike or (_is_owner(index, mercury, elf.sections) and mercury.value != plain.value):
                raise Damaged(f"symbol {index} ({mercury.name}) of {elf.sections[at].name} is not that of .symtab")


def _check_content(
    reader: Reader, section: Section, sections: tuple[Section, ...], symbols: tuple[Symbol, ...]
) -> None:
    if section.type in (_SHT_RELA, _SHT_REL, _SHT_MERC_RELA):
        _check_relocation_name(section, sections[section.info])
    elif section.type in (_SHT_CUDA_INFO, _SHT_MERC_INFO):
        _check_info_owner(section, sections[section.info])
        _check_info(reader, section, sections, symbols)


def _check_compiled(
    reader: Reader, section: Section, sections: tuple[Section, ...], symbols: tuple[Symbol, ...]
) -> None:
    """Check what only a linker follows, and leaves wrong itself."""
    if section.type in (_SHT_RELA, _SHT_MERC_RELA):
        target = sections[section.info]
        if target.name.removeprefix(_MERC).startswith(_DEBUG):
            _check_debug_addends(reader, section, symbols)
        elif target.type == _SHT_CAPMERC:
            _check_mercury_offsets(reader, section, _symbol(symbols, target.info, section.name))
    elif section.name in (".debug_frame", _MERC + ".debug_frame"):
        _check_debug_frame(reader, section)
    elif section.type == _SHT_CUDA_CALLGRAPH:
        _check_callgraph(reader, section, sections, symbols)
    elif section.type == _SHT_CUDA_PROTOTYPE:
        _check_prototypes(reader, section, sections, symbols)
    elif section.type in (_SHT_CUDA_INFO, _SHT_MERC_INFO):
        _check_stack_sizes(reader, section, symbols)


def _check_prototypes(
    reader: Reader, section: Section, sections: tuple[Section, ...], symbols: tuple[Symbol, ...]
) -> None:
    names = sections[sections[section.link].link]
    for symbol, at in _entries(reader, section, _PAIR):
        _symbol(symbols, symbol, section.name, function=True)
        if at >= names.size:
            raise Damaged(f"{section.name} refers to byte {at} of {names.name}, which has {names.size}")


def _check_stack_sizes(reader: Reader, section: Section, symbols: tuple[Symbol, ...]) -> None:
    for attribute, payload in _attributes(reader, section):
        if attribute == _INFO_MAX_STACK:
            first = int.from_bytes(payload[:4], "little")
            _symbol(symbols, first, f"attribute {attribute:#x} in {section.name}", function=True)


def _check_relocation_name(section: Section, target: Section) -> None:
    """A linker finds the relocations of a section by name: ``.rela`` or ``.rel`` before the name of the section."""
    mercury = _MERC if section.name.startswith(_MERC) else ""
    kind = ".rel" if section.type == _SHT_REL else ".rela"
    plain = target.name.removeprefix(_MERC).removeprefix(_CAPMERC) if mercury else target.name
    if section.name != mercury + kind + plain:
        raise Damaged(f"{section.name} relocates {target.name}")


def _check_mercury_offsets(reader: Reader, section: Section, function: Symbol) -> None:
    """Relocations of packed code count in the bytes of what it becomes."""
    for index, (offset, *_) in enumerate(_entries(reader, section, _RELA)):
        if offset >= function.size:
            raise Damaged(
                f"{section.name}: entry {index} changes byte {offset} of {function.name}, which has {function.size}"
            )


def _check_info_owner(section: Section, owner: Section) -> None:
    """``.nv.info.NAME`` is about ``.text.NAME``, which it finds by number."""
    for info, code in ((".nv.info.", ".text."), (_MERC + ".nv.info.", _CAPMERC + ".text.")):
        if section.name.startswith(info) and owner.name != code + section.name.removeprefix(info):
            raise Damaged(f"{section.name} is said to be about {owner.name or 'no section'}")


def _check_debug_addends(reader: Reader, section: Section, symbols: tuple[Symbol, ...]) -> None:
    """Debug information refers to places inside of functions.

    Those inside of sections can be wrong in sound files: ptxas drops entries of a .debug_frame with many functions, and
    leaves references beyond its end.
    """
    for index, (_, info, addend) in enumerate(_entries(reader, section, _RELA)):
        symbol = _symbol(symbols, info >> 32, f"{section.name}: entry {index}")
        if info >> 32 == 0:
            raise Damaged(f"{section.name}: entry {index} refers to no symbol")
        if symbol.is_function and not 0 <= addend <= symbol.size:
            raise Damaged(
                f"{section.name}: entry {index} refers to byte {addend} of {symbol.name}, which has {symbol.size}"
            )


def _check_debug_frame(reader: Reader, section: Section) -> None:
    """Walk the entries of .debug_frame (DWARF 3, section 7.4): a 32-bit length, or -1 and a 64-bit one.

    The first is a common information entry, whose identifier is -1; the others are that or about the code of one.
    """
    inner = Reader(reader.span(section.offset, section.size, section.name))
    at = 0
    while at < inner.size:
        first, word = at == 0, _U32
        (length,) = inner.unpack(_U32, at, f"length in {section.name}")
        at += 4
        if length == 0xFFFFFFFF:
            word = _U64
            (length,) = inner.unpack(_U64, at, f"length in {section.name}")
            at += 8
        entry = Reader(inner.span(at, length, f"entry of {section.name}"))
        (identifier,) = entry.unpack(word, 0, f"entry of {section.name}")
        if identifier != (1 << 8 * word.size) - 1 and (first or identifier >= inner.size):
            raise Damaged(f"{section.name} refers to common information at byte {identifier:#x} of {inner.size}")
        at += length


def _attributes(reader: Reader, section: Section) -> Iterator[tuple[int, memoryview]]:
    """Walk .nv.info for records with a payload: format, attribute, then two bytes of value or a size and a payload."""
    inner = Reader(reader.span(section.offset, section.size, section.name))
    at = 0
    while at < inner.size:
        form, attribute, low, high = inner.span(at, 4, f"attribute in {section.name}")
        what = f"attribute {attribute:#x} in {section.name}"
        at += 4
        if not 1 <= form <= 4:
            raise Damaged(f"{what} has format {form}, expected 1 to 4")
        if form == 4:
            payload = inner.span(at, low | high << 8, what)
            at += len(payload)
            yield attribute, payload


def _check_info(reader: Reader, section: Section, sections: tuple[Section, ...], symbols: tuple[Symbol, ...]) -> None:
    registers: dict[int, int] = {}
    for attribute, payload in _attributes(reader, section):
        what = f"attribute {attribute:#x} in {section.name}"
        first = int.from_bytes(payload[:4], "little")
        if attribute in _INFO_FUNCTION_FIRST:
            _symbol(symbols, first, what, function=attribute != _INFO_MAX_STACK)
            if attribute == _INFO_REGCOUNT:
                registers[first] = int.from_bytes(payload[4:8], "little")
        elif attribute == _INFO_PARAM_CBANK:
            _symbol(symbols, first, what)
        elif attribute == _INFO_KPARAM and first:
            raise Damaged(f"{what} starts with {first:#x}, expected 0")
        elif attribute == _INFO_EXTERNS and len(payload) % 4 == 0:
            for (index,) in struct.iter_unpack("<I", payload):
                _symbol(symbols, index, what)
    if section.name == _MERC + ".nv.info":
        _check_registers(section, sections, symbols, registers)


def _check_registers(
    section: Section, sections: tuple[Section, ...], symbols: tuple[Symbol, ...], registers: dict[int, int]
) -> None:
    """Mercury code is finished by the linker, which needs to know the registers of every function."""
    for index, symbol in enumerate(symbols):
        if _is_owner(index, symbol, sections) and not 1 <= registers.get(index, 0) <= _MOST_REGISTERS:
            found = f"{registers[index]} registers" if index in registers else "no register count"
            raise Damaged(f"{section.name} has {found} for {symbol.name}, expected 1 to {_MOST_REGISTERS}")


def _is_owner(index: int, symbol: Symbol, sections: tuple[Section, ...]) -> bool:
    """Whether a symbol of Mercury is the function of its section, which may have more, such as ``$kernel$callee``."""
    if not 0 < symbol.section < len(sections):
        return False
    home = sections[symbol.section]
    return home.type == _SHT_CAPMERC and home.info == index


def _check_callgraph(
    reader: Reader, section: Section, sections: tuple[Section, ...], symbols: tuple[Symbol, ...]
) -> None:
    """Pairs in four groups, each opened by (0, -GROUP), as NVRTC 12.0 to 13.5 write them.

    1: caller and callee. 2: a function whose address is taken and its prototype, as an offset into the symbol names.
    3: an indirect caller and the prototype that it calls. 4: an indirect caller and a function that it may reach.
    """
    names = sections[sections[section.link].link]
    group = 1
    for first, second in _entries(reader, section, _PAIR):
        if second >= 0xFFFFFFFC and first == 0:
            group = 0x100000000 - second
            continue
        _symbol(symbols, first, section.name, function=True)
        if group in (1, 4):
            _symbol(symbols, second, section.name, function=True)
        elif second >= names.size:
            raise Damaged(f"{section.name} refers to byte {second} of {names.name}, which has {names.size}")
