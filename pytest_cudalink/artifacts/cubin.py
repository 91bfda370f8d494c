"""Checks of what only CUDA defines in a cubin.

The names of NVIDIA's section types are those that ``cuobjdump -elf`` prints.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from .damage import Damaged, Reader
from .elf import (
    CAPMERC,
    NO_BYTES,
    RELA,
    SHT_MERC_RELA,
    SHT_MERC_SYMTAB,
    SHT_NOTE,
    SHT_PROGBITS,
    SHT_REL,
    SHT_RELA,
    SHT_STRTAB,
    SHT_SYMTAB,
    Elf,
    Section,
    Symbol,
    entries,
    symbols_of,
)

__all__ = ["check_cuda"]

_PAIR = struct.Struct("<II")
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")

_SHT_CUDA_INFO, _SHT_CUDA_CALLGRAPH, _SHT_CUDA_PROTOTYPE = 0x70000000, 0x70000001, 0x70000002
_SHT_CAPMERC, _SHT_MERC_INFO = 0x70000016, 0x70000083
_SHF_MERC = 0x10000000
#: Each of .nv.constant0 to .nv.constant17 has its own type, and linkers find it by type and by name.
_CONSTANT_BANKS = {0x70000064 + bank: f".nv.constant{bank}" for bank in range(18)}
_MERC = ".nv.merc"
_ALLOC_EXECUTE = 0x2 | 0x4
#: e_flags from ABI version 8 on: a bit that announces Mercury, and the section of the note about CUDA in the top byte.
_EF_MERCURY, _EF_NOTE_SHIFT = 0x2, 24
#: Before version 8: a bit that no release sets, and on which nvJitLink 12.9 crashes (measured).
_EF_DEADLY = 0x4000
_CUDA_NOTES = (".note.nv.cuinfo", ".note.nv.cuver")
#: The note that names the tools which made the file, and the linkers among them.
_TOOL_NOTE, _LINKERS = ".note.nv.tkinfo", (b"nvJIT API", b"nvlink")
#: .nv.info attributes, by number, whose payload starts with the index of a function symbol:
#: FRAME_SIZE, MIN_STACK_SIZE, MAX_STACK_SIZE, REGCOUNT.
_INFO_FUNCTION_FIRST = frozenset({0x11, 0x12, 0x23, 0x2F})
_INFO_MAX_STACK, _INFO_REGCOUNT, _MOST_REGISTERS = 0x23, 0x2F, 255
#: PARAM_CBANK starts with the index of any symbol, EXTERNS is a list of them, KPARAM_INFO starts with a zero.
_INFO_PARAM_CBANK, _INFO_EXTERNS, _INFO_KPARAM = 0x0A, 0x0F, 0x17

#: Sections of debug information, behind ``.nv.merc`` if they are Mercury's.
_DEBUG = (".debug_", ".nv_debug_")

#: The first word of .nv.capmerc.text.* is the section of the plain code. The top two bits of the second word say where
#: a count follows: in CUDA 12.8 it is the other bits, in CUDA 12.9 and later the third word. The count is at most the
#: number of 16-byte instructions that fit into the plain code; the function's symbol may be smaller.
_CAPMERC_FORM_SHIFT, _CAPMERC_COUNT_INSIDE, _CAPMERC_COUNT_BEHIND = 30, 1, 3
_MERC_INSTRUCTION = 16

#: Section names that oblige a type: nvJitLink finds the section by its name and reads it as that type.
_TYPE_OF_NAME = {
    ".symtab": SHT_SYMTAB,
    ".strtab": SHT_STRTAB,
    ".shstrtab": SHT_STRTAB,
    ".nv.callgraph": _SHT_CUDA_CALLGRAPH,
    ".nv.prototype": _SHT_CUDA_PROTOTYPE,
    ".nv.info": _SHT_CUDA_INFO,
}
_TYPE_OF_PREFIX = {
    ".text.": SHT_PROGBITS,
    ".nv.capmerc.": _SHT_CAPMERC,
    ".nv.merc.symtab": SHT_MERC_SYMTAB,
    ".nv.merc.rela.": SHT_MERC_RELA,
    ".nv.merc.nv.info": _SHT_MERC_INFO,
    ".nv.info.": _SHT_CUDA_INFO,
    ".note.nv.": SHT_NOTE,
    ".rela.": SHT_RELA,
    ".rel.": SHT_REL,
}


def check_cuda(data: memoryview, elf: Elf) -> None:
    """Check what CUDA linkers rely on beyond the System V ABI, as in the output of NVRTC and nvcc 12.0 to 13.5.

    Raises
    ------
    Damaged
        If the type, flags or owner of a section contradicts its name, its content points outside of the image, or two
        places contradict each other.
    """
    reader = Reader(data)
    compiled = _is_compiled(reader, elf)
    _check_flags(elf)
    for index, section in enumerate(elf.sections[1:], 1):
        _check_header(section)
        symbols = symbols_of(section, elf.tables)
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


def _symbol(symbols: tuple[Symbol, ...], index: int, what: str, *, function: bool = False) -> Symbol:
    """Symbol `index`; raises `Damaged`, naming `what` as the referrer, if it is missing or not a function."""
    if index >= len(symbols):
        raise Damaged(f"{what} refers to symbol {index} of {len(symbols)}")
    if function and not symbols[index].is_function:
        raise Damaged(f"{what} refers to symbol {index} ({symbols[index].name}), which is not a function")
    return symbols[index]


def _is_compiled(reader: Reader, elf: Elf) -> bool:
    """Whether a compiler made the image and no linker changed it; linkers keep references to dropped sections."""
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
        raise Damaged(f"e_flags are {elf.flags:#x}, at odds with the sections {CAPMERC}.*")


def _check_header(section: Section) -> None:
    if section.align == 0:
        raise Damaged(f"{section.name} has alignment 0")
    if section.size and section.type not in NO_BYTES and section.offset % section.align:
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
    if bool(section.flags & _SHF_MERC) != section.name.startswith((_MERC, CAPMERC)):
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
    """Check the head of .nv.capmerc.text.*; the format of the packed records behind it is not documented."""
    _check_owner(index, section, symbols, section.info)
    inner = Reader(reader.span(section.offset, section.size, section.name))
    plain, word = inner.unpack(_PAIR, 0, section.name)
    if plain >= len(sections) or sections[plain].name != section.name.removeprefix(CAPMERC):
        raise Damaged(f"{section.name} refers to section {plain} as its plain code, which has another name")
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
    """Compare Mercury's symbols with the first ones of .symtab, which they repeat."""
    for at, table in elf.tables.items():
        if elf.sections[at].type != SHT_MERC_SYMTAB:
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
    if section.type in (SHT_RELA, SHT_REL, SHT_MERC_RELA):
        _check_relocation_name(section, sections[section.info])
    elif section.type in (_SHT_CUDA_INFO, _SHT_MERC_INFO):
        _check_info_owner(section, sections[section.info])
        _check_info(reader, section, sections, symbols)


def _check_compiled(
    reader: Reader, section: Section, sections: tuple[Section, ...], symbols: tuple[Symbol, ...]
) -> None:
    """Check references that only a linker follows, and that linkers themselves leave wrong."""
    if section.type in (SHT_RELA, SHT_MERC_RELA):
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
    for symbol, at in entries(reader, section, _PAIR):
        _symbol(symbols, symbol, section.name, function=True)
        if at >= names.size:
            raise Damaged(f"{section.name} refers to byte {at} of {names.name}, which has {names.size}")


def _check_stack_sizes(reader: Reader, section: Section, symbols: tuple[Symbol, ...]) -> None:
    for attribute, payload in _attributes(reader, section):
        if attribute == _INFO_MAX_STACK:
            first = int.from_bytes(payload[:4], "little")
            _symbol(symbols, first, f"attribute {attribute:#x} in {section.name}", function=True)


def _check_relocation_name(section: Section, target: Section) -> None:
    """Check that relocations are named ``.rela`` or ``.rel`` and their section: linkers find them by that name."""
    mercury = _MERC if section.name.startswith(_MERC) else ""
    kind = ".rel" if section.type == SHT_REL else ".rela"
    plain = target.name.removeprefix(_MERC).removeprefix(CAPMERC) if mercury else target.name
    if section.name != mercury + kind + plain:
        raise Damaged(f"{section.name} relocates {target.name}")


def _check_mercury_offsets(reader: Reader, section: Section, function: Symbol) -> None:
    """Check relocations of packed code, whose offsets count in the bytes of the unpacked code."""
    for index, (offset, *_) in enumerate(entries(reader, section, RELA)):
        if offset >= function.size:
            raise Damaged(
                f"{section.name}: entry {index} changes byte {offset} of {function.name}, which has {function.size}"
            )


def _check_info_owner(section: Section, owner: Section) -> None:
    """Check that ``.nv.info.NAME`` refers, by number, to ``.text.NAME``."""
    for info, code in ((".nv.info.", ".text."), (_MERC + ".nv.info.", CAPMERC + ".text.")):
        if section.name.startswith(info) and owner.name != code + section.name.removeprefix(info):
            raise Damaged(f"{section.name} refers to {owner.name or 'no section'} as its code")


def _check_debug_addends(reader: Reader, section: Section, symbols: tuple[Symbol, ...]) -> None:
    """Check that debug information refers to places inside of functions.

    References to places inside of sections can be wrong in sound files: ptxas drops entries of a .debug_frame with many
    functions, and leaves references beyond its end.
    """
    for index, (_, info, addend) in enumerate(entries(reader, section, RELA)):
        symbol = _symbol(symbols, info >> 32, f"{section.name}: entry {index}")
        if info >> 32 == 0:
            raise Damaged(f"{section.name}: entry {index} refers to no symbol")
        if symbol.is_function and not 0 <= addend <= symbol.size:
            raise Damaged(
                f"{section.name}: entry {index} refers to byte {addend} of {symbol.name}, which has {symbol.size}"
            )


def _check_debug_frame(reader: Reader, section: Section) -> None:
    """Walk the entries of .debug_frame (DWARF 3, section 7.4): a 32-bit length, or -1 and a 64-bit one.

    The first is a common information entry, whose identifier is -1; each other one is such an entry, or refers to one.
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
    """Check the register counts of Mercury's functions: the linker finishes their code and needs the counts."""
    for index, symbol in enumerate(symbols):
        if _is_owner(index, symbol, sections) and not 1 <= registers.get(index, 0) <= _MOST_REGISTERS:
            found = f"{registers[index]} registers" if index in registers else "no register count"
            raise Damaged(f"{section.name} has {found} for {symbol.name}, expected 1 to {_MOST_REGISTERS}")


def _is_owner(index: int, symbol: Symbol, sections: tuple[Section, ...]) -> bool:
    """Whether a symbol of Mercury is the function of its section, which may have others, such as ``$kernel$callee``."""
    if not 0 < symbol.section < len(sections):
        return False
    home = sections[symbol.section]
    return home.type == _SHT_CAPMERC and home.info == index


def _check_callgraph(
    reader: Reader, section: Section, sections: tuple[Section, ...], symbols: tuple[Symbol, ...]
) -> None:
    """Check the call graph: pairs in four groups, each opened by (0, -GROUP), as NVRTC 12.0 to 13.5 write them.

    1: caller and callee. 2: a function whose address is taken and its prototype, as an offset into the symbol names.
    3: an indirect caller and the prototype that it calls. 4: an indirect caller and a function that it may reach.
    """
    names = sections[sections[section.link].link]
    group = 1
    for first, second in entries(reader, section, _PAIR):
        if second >= 0xFFFFFFFC and first == 0:
            group = 0x100000000 - second
            continue
        _symbol(symbols, first, section.name, function=True)
        if group in (1, 4):
            _symbol(symbols, second, section.name, function=True)
        elif second >= names.size:
            raise Damaged(f"{section.name} refers to byte {second} of {names.name}, which has {names.size}")
