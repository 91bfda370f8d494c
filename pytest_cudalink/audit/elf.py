"""What the dynamic loader reads of an ELF file, by pyelftools."""

from __future__ import annotations

import os
from dataclasses import dataclass
from struct import Struct
from typing import IO, Any, Final, NamedTuple, cast

from .libraries import cuda_functions

__all__ = ["Elf", "data_ranges", "is_elf", "read_elf"]

#: Sections of constant data that hold device code or tables of the loader, and no strings.
_NO_STRINGS: Final = frozenset(
    {".nv_fatbin", ".nvFatBinSegment", ".eh_frame", ".eh_frame_hdr", ".gcc_except_table", ".interp"}
)
_MACHINES: Final = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}


@dataclass(frozen=True)
class Elf:
    """One library that a dynamic loader could load: an ELF file, or a DLL of Windows in the same terms.

    Attributes
    ----------
    soname : str or None
    needed, rpath, runpath : tuple of str
    undefined : tuple of (str, str, str)
        Undefined symbols, each with the library and version that must define it; both empty without symbol versions.
    wanted, defined : frozenset of str
        Functions of CUDA that it calls, without weak ones; and that it defines.
    weak : frozenset of str
        Those undefined symbols that may stay so.
    machine : str
        As ``platform_machine`` names it; empty for machines that CUDA has no libraries for, and where nobody asks.
    """

    soname: str | None
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    undefined: tuple[tuple[str, str, str], ...]
    wanted: frozenset[str]
    defined: frozenset[str]
    weak: frozenset[str] = frozenset()
    machine: str = ""

    @property
    def rpaths(self) -> tuple[str, ...]:
        return self.rpath + self.runpath


def read_elf(stream: IO[bytes]) -> Elf | None:
    """Read an ELF file; None for files that the dynamic loader would not load, such as object files and programs."""
    from elftools.elf.dynamic import DynamicSegment
    from elftools.elf.elffile import ELFFile

    if not is_elf(stream):
        return None
    elf = ELFFile(cast("IO[bytes]", _Bounded(stream)))
    dynamic = next((segment for segment in elf.iter_segments() if isinstance(segment, DynamicSegment)), None)
    if dynamic is None:
        return None
    soname: str | None = None
    needed: list[str] = []
    rpath: list[str] = []
    runpath: list[str] = []
    tag: Any  # its attributes depend on what it is
    for tag in dynamic.iter_tags():
        match tag.entry.d_tag:
            case "DT_SONAME":
                soname = tag.soname
            case "DT_NEEDED":
                needed.append(tag.needed)
            case "DT_RPATH":
                rpath += filter(None, tag.rpath.split(":"))
            case "DT_RUNPATH":
                runpath += filter(None, tag.runpath.split(":"))
    symbols = _symbols(elf)
    wanted, defined = _calls(symbols)
    undefined, weak = _undefined(elf, symbols)
    machine = _MACHINES.get(elf["e_machine"], "")
    return Elf(soname, tuple(needed), tuple(rpath), tuple(runpath), undefined, wanted, defined, weak, machine)


def data_ranges(stream: IO[bytes]) -> list[tuple[int, int]]:
    """Offset and size of the sections of an ELF file that can hold constant strings, within the file."""
    from elftools.elf.elffile import ELFFile

    size = stream.seek(0, os.SEEK_END)
    elf = ELFFile(cast("IO[bytes]", _Bounded(stream)))
    ranges = set()
    for section in elf.iter_sections():
        constant = section["sh_type"] == "SHT_PROGBITS" and section["sh_flags"] & 2 and not section["sh_flags"] & 4
        if constant and section.name not in _NO_STRINGS and section["sh_offset"] < size:
            ranges.add((section["sh_offset"], min(section["sh_size"], size - section["sh_offset"])))
    return _disjoint(ranges)


def _disjoint(ranges: set[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges without what an earlier one covers: a damaged file may name the same bytes many times."""
    rest, end = [], 0
    for offset, size in sorted(ranges):
        begin = max(offset, end)
        if offset + size > begin:
            rest.append((begin, offset + size - begin))
            end = offset + size
    return rest


def _damaged(text: str) -> Exception:
    from elftools.common.exceptions import (
        ELFError,
    )  # pyelftools takes a tenth of a second, which the doctor does without

    return ELFError(text)


class _Bounded:
    """A stream that may be read only so often as a library of its size needs.

    A damaged file can claim four thousand million versions, or let every symbol have the same name of a megabyte.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        size = stream.seek(0, os.SEEK_END)
        stream.seek(0)
        self._reads, self._bytes = 200_000 + size // 4, (64 << 20) + 4 * size
        self.seek, self.tell, self.close = stream.seek, stream.tell, stream.close

    def read(self, size: int = -1) -> bytes:
        content = self._stream.read(size)
        self._reads -= 1
        self._bytes -= len(content)
        if self._reads < 0 or self._bytes < 0:
            msg = "its tables refer to the same bytes again and again"
            raise _damaged(msg)
        return content


class _Symbol(NamedTuple):
    name: str
    place: int
    undefined: bool
    weak: bool


def _symbols(elf: Any) -> list[_Symbol]:
    """The dynamic symbols that have a name; pyelftools takes a minute for the 130,000 of a large library."""
    section = elf.get_section_by_name(".dynsym")
    if section is None:
        return []
    order = "<" if elf.little_endian else ">"
    layout = Struct(f"{order}IBBHQQ" if elf.elfclass == 64 else f"{order}IIIBBH")
    table, names = _raw(elf, section), _raw(elf, elf.get_section(section["sh_link"]))
    left = (64 << 20) + 4 * len(names)
    found = []
    for index in range(len(table) // layout.size):
        row = layout.unpack_from(table, index * layout.size)
        offset, info, section_index = (row[0], row[1], row[3]) if elf.elfclass == 64 else (row[0], row[3], row[5])
        end = names.find(b"\0", offset)
        end = end if end >= 0 else len(names)
        left -= max(end - offset, 0)
        if left < 0:
            msg = "its symbols have the same long name again and again"
            raise _damaged(msg)
        if offset and end > offset:
            found.append(
                _Symbol(names[offset:end].decode("utf-8", "replace"), index, section_index == 0, info >> 4 == 2)
            )
    return found


def _raw(elf: Any, section: Any) -> bytes:
    """The bytes of a section as the file has them; pyelftools would unpack one that claims to be compressed."""
    elf.stream.seek(section["sh_offset"])
    return cast("bytes", elf.stream.read(section["sh_size"]))


def _calls(symbols: list[_Symbol]) -> tuple[frozenset[str], frozenset[str]]:
    """Functions of CUDA among the dynamic symbols: those that other libraries must define, and those defined here."""
    functions = cuda_functions()
    wanted = frozenset(one.name for one in symbols if one.undefined and not one.weak and one.name in functions)
    return wanted, frozenset(one.name for one in symbols if not one.undefined and one.name in functions)


def _undefined(elf: Any, symbols: list[_Symbol]) -> tuple[tuple[tuple[str, str, str], ...], frozenset[str]]:
    """Undefined dynamic symbols, each with the library and version that must define it; and those that are weak."""
    numbers = elf.get_section_by_name(".gnu.version")
    versions: dict[int, tuple[str, str]] = {}
    if needs := elf.get_section_by_name(".gnu.version_r"):
        for file, auxiliaries in needs.iter_versions():
            for auxiliary in auxiliaries:
                versions[auxiliary["vna_other"]] = (file.name, auxiliary.name)
    undefined, weak = [], set()
    for one in symbols:
        if one.undefined:
            number = numbers.get_symbol(one.place)["ndx"] if numbers else 0
            file_name, version = versions.get(number & 0x7FFF, ("", "")) if isinstance(number, int) else ("", "")
            undefined.append((one.name, file_name, version))
            if one.weak:
                weak.add(one.name)
    return tuple(undefined), frozenset(weak)


def is_elf(stream: IO[bytes]) -> bool:
    """Whether a stream starts with the ELF magic; rewinds the stream."""
    head = stream.read(4)
    stream.seek(0)
    return head == b"\x7fELF"
