"""Exported symbols of an ELF library of which only the beginning was read; used by ``make_exports``.

A wheel of cuBLAS has half a gigabyte, and its dynamic symbols lie in the first megabyte. The pointers to them
(``PT_DYNAMIC``) lie at the end, so the tables are found without: linkers write the hash tables of the dynamic symbols
right after the program headers and notes, then ``.dynsym``, then ``.dynstr``. A hash table says how many symbols there
are and proves that they were found: every name must have the hash under which the table keeps it.
(System V ABI, chapter 5, "Hash Table"; the GNU hash table is described at https://flapenguin.me/elf-dt-gnu-hash.)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection

from pytest_cudalink.base.elf import SYMBOL, read_header

_VERSION = struct.Struct("<HHHHIII")
_UNDEFINED = 0
_LOCAL = 0
_BASE = 1  # VER_FLG_BASE
_HIDDEN = (1, 2)  # STV_INTERNAL, STV_HIDDEN
#: Between the program headers and the first hash table lie notes alone.
_NOTES = 4096
#: Longer than the strings that are no symbols' names: libraries that are needed, their versions.
_SLACK = 4096


class Exports(NamedTuple):
    """Dynamic symbols that a library defines."""

    symbols: frozenset[str]  # functions and variables
    # version nodes, such as `libnvJitLink.so.12`. Some linkers also write them as symbols, which are left out.
    nodes: tuple[str, ...]
    soname: str | None  # DT_SONAME


def _sysv_hash(name: bytes) -> int:
    result = 0
    for byte in name:
        result = (result << 4) + byte
        result = (result ^ ((result & 0xF0000000) >> 24)) & 0x0FFFFFFF
    return result


def _gnu_hash(name: bytes) -> int:
    result = 5381
    for byte in name:
        result = (result * 33 + byte) & 0xFFFFFFFF
    return result


def _words(data: bytes, offset: int, count: int) -> tuple[int, ...]:
    """`count` 32-bit numbers; raises IndexError beyond the end of the data."""
    if offset + 4 * count > len(data):
        raise IndexError(offset)
    return struct.unpack_from(f"<{count}I", data, offset)


def _align(offset: int) -> int:
    return offset + 7 & ~7


class _Sysv:
    """The table of DT_HASH at an offset; raises ValueError if there is none."""

    def __init__(self, data: bytes, offset: int) -> None:
        buckets, self.count = _words(data, offset, 2)
        if not (0 < buckets < 1 << 16 and 1 < self.count < 1 << 18):
            raise ValueError(offset)
        self.buckets = _words(data, offset + 8, buckets)
        self.chain = _words(data, offset + 8 + 4 * buckets, self.count)
        if max(self.buckets) >= self.count or max(self.chain) >= self.count or not any(self.buckets):
            raise ValueError(offset)
        self.end = _align(offset + 8 + 4 * (buckets + self.count))

    def holds(self, names: list[bytes], defined: set[int]) -> bool:
        """Whether every defined symbol is where its hash says."""
        seen = set()
        for bucket, first in enumerate(self.buckets):
            index = first
            while index and index not in seen:
                seen.add(index)
                if _sysv_hash(names[index]) % len(self.buckets) != bucket:
                    return False
                index = self.chain[index]
        return defined <= seen


class _Gnu:
    """The table of DT_GNU_HASH at an offset; raises ValueError if there is none."""

    def __init__(self, data: bytes, offset: int) -> None:
        buckets, self.first, bloom, shift = _words(data, offset, 4)
        if not (0 < buckets < 1 << 16 and 0 < self.first < 1 << 18 and bloom.bit_count() == 1 and shift < 64):
            raise ValueError(offset)
        if bloom > 1 << 16:
            raise ValueError(offset)
        start = offset + 16 + 8 * bloom
        self.buckets = _words(data, start, buckets)
        last = max(self.buckets)
        if last < self.first or last >= 1 << 18:
            raise ValueError(offset)
        start += 4 * buckets
        while not _words(data, start + 4 * (last - self.first), 1)[0] & 1:
            last += 1
        self.count = last + 1
        self.chain = _words(data, start, self.count - self.first)
        self.end = _align(start + 4 * len(self.chain))

    def holds(self, names: list[bytes], defined: set[int]) -> bool:
        """Whether every defined symbol is where its hash says."""
        hashed = all(_gnu_hash(names[self.first + place]) | 1 == value | 1 for place, value in enumerate(self.chain))
        return hashed and all(index >= self.first for index in defined)


def _table(kind: type[_Sysv | _Gnu], data: bytes, offset: int) -> _Sysv | _Gnu | None:
    """The hash table of a kind at an offset, if there may be one."""
    try:
        return kind(data, offset)
    except (ValueError, IndexError):
        return None


def _hash_tables(data: bytes, start: int) -> Iterator[tuple[int, list[_Sysv | _Gnu]]]:
    """Every place where the symbols may begin, with the one or two hash tables in front of it."""
    for offset in range(start, min(start + _NOTES, len(data)), 4):
        for kind, other in ((_Sysv, _Gnu), (_Gnu, _Sysv)):
            first = _table(kind, data, offset)
            if first is None:
                continue
            second = _table(other, data, first.end)
            for entries in ([first, second] if second else [], [first]):
                if entries and data[entries[-1].end : entries[-1].end + SYMBOL.size] == bytes(SYMBOL.size):
                    yield entries[-1].end, entries


def _string(data: bytes, offset: int) -> bytes:
    """A string that ends with a zero; raises ValueError if that is not among the data."""
    return data[offset : data.index(b"\0", offset)]


def _nodes(data: bytes, soname: bytes, strings: int) -> tuple[str, ...]:
    """The names in .gnu.version_d. Its first entry is that of the SONAME, and is found by the hash of that."""
    offset = data.find(struct.pack("<HHHHI", 1, _BASE, 1, 1, _sysv_hash(soname)))
    defined = []
    while offset >= 0:
        _, flags, _, _, _, names, following = _VERSION.unpack_from(data, offset)
        (name,) = _words(data, offset + names, 1)
        if not flags & _BASE:
            defined.append(_string(data, strings + name).decode())
        offset = offset + following if following else -1
    return tuple(sorted(defined))


def of_beginning(data: bytes, soname: str) -> Exports | None:
    """Return what a library exports, from its first bytes; None if they do not suffice.

    `data`: the beginning.
    `soname`: its SONAME, which must be among its strings.
    """
    head = read_header(data)
    if head is None:
        return None
    for offset, tables in _hash_tables(data, head.segments + head.segment_size * head.segment_count):
        total = max(table.count for table in tables)
        strings = offset + SYMBOL.size * total
        if data[strings : strings + 1] != b"\0":
            continue
        try:
            symbols = [SYMBOL.unpack_from(data, offset + SYMBOL.size * index) for index in range(total)]
            names = [_string(data, strings + symbol[0]) for symbol in symbols]
            # the table of versions comes after the strings and two bytes for each symbol
            last = strings + max(symbol[0] for symbol in symbols) + 2 * total + _SLACK
            if last > len(data) or b"\0" + soname.encode() + b"\0" not in data[strings:last]:
                continue
            defined = {
                index for index, symbol in enumerate(symbols) if symbol[3] != _UNDEFINED and symbol[1] >> 4 != _LOCAL
            }
            if not defined or not all(table.holds(names, defined) for table in tables):
                continue
            nodes = _nodes(data, soname.encode(), strings)
            visible = {names[index].decode() for index in defined if symbols[index][2] & 3 not in _HIDDEN}
        except (ValueError, IndexError, struct.error):
            continue
        return Exports(frozenset(visible - set(nodes)), nodes, soname)
    return None


def of_file(file: BinaryIO) -> Exports:
    """Return what the library in an open file exports, by its PT_DYNAMIC.

    Raises ValueError if it is not an ELF library, or damaged.
    """
    try:
        elf = ELFFile(file)
        dynamic = next(segment for segment in elf.iter_segments() if isinstance(segment, DynamicSegment))
        sonames = [vars(tag)["soname"] for tag in dynamic.iter_tags("DT_SONAME")]
        names = {
            symbol.name
            for symbol in dynamic.iter_symbols()
            if symbol.entry.st_shndx != "SHN_UNDEF"
            and symbol.entry.st_info.bind != "STB_LOCAL"
            and symbol.entry.st_other.visibility not in {"STV_INTERNAL", "STV_HIDDEN"}
        }
        nodes = {
            next(iter(names_of)).name
            for section in elf.iter_sections("SHT_GNU_verdef")
            if isinstance(section, GNUVerDefSection)
            for version, names_of in section.iter_versions()
            if not version.entry.vd_flags & _BASE
        }
    except (ELFError, StopIteration, struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"not an ELF library with dynamic symbols: {error!r}") from None
    return Exports(frozenset(names - nodes), tuple(sorted(nodes)), sonames[0] if sonames else None)
