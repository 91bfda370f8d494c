"""Device code in the bytes of a file, found by what it begins with: fatbins, cubins, LTO-IR, Tile IR and PTX.

What lies around it may be an ELF file, a DLL, an archive or anything else: it only gives the place a name. The time for
a file follows from its size, whatever it claims. Payloads of fatbins are unpacked if the packages for that are there;
NVIDIA documents neither fatbins nor how entries are packed, so the fields were read off the output of nvcc 12 and 13.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from struct import Struct, error
from typing import Any, Final, Literal

from ...base import elf
from ...base.elf import Buffer
from ..loadable import count_read

Kind = Literal["ptx", "cubin", "ltoir", "tileir"]

MAGIC: Final = b"\x50\xed\x55\xba"
HEADER_SIZE: Final = 16
#: The header, and what the header of the first entry begins with: kind, version, size.
_BEGIN: Final = Struct("<4xHHQHHI")
#: Of an entry: kind, version of the header, its size, that of the payload, what of it is packed, (options), minor and
#: major version, architecture, (name), flags, key of a scrambled payload, size when unpacked.
_ENTRY: Final = Struct("<HHIQIIHHIIIQQQ")
_KINDS: Final[dict[int, Kind]] = {1: "ptx", 2: "cubin", 8: "ltoir", 128: "tileir"}
_LZ4, _ZSTD, _SCRAMBLED, _SPECIFIC, _FAMILY = 0x2000, 0x8000, 0x1_0000, 0x10_0000, 0x20_0000

#: Most bytes that one payload is unpacked to; the largest of cuBLAS has 40 MB.
MOST_UNPACKED: Final = 256 << 20


@dataclass(frozen=True)
class Entry:
    """One entry of a fatbin."""

    kind: Kind
    arch: str  # such as "sm_90a"; Tile IR has none, whatever it says
    # PTX ISA of PTX; of a cubin, 1 and the ABI version; of LTO-IR, 1 and its format; of Tile IR, the version of its
    # bytecode
    version: tuple[int, int]
    packing: Literal["", "lz4", "zstd"]  # "lz4", "zstd" or empty
    scrambled: bool  # whether packed bytes cannot be unpacked because they are scrambled, as those of LTO-IR are
    size: int  # of the unpacked payload, if it is packed
    payload: memoryview  # as it lies in the fatbin, without padding


def fatbin_size(data: Any, at: int) -> int:
    """Return the bytes of the fatbin whose magic is at a place of a file; 0 if there is no fatbin that is whole."""
    if at + _BEGIN.size > len(data):
        return 0
    version, header, size, kind, entry_version, entry_header = _BEGIN.unpack_from(data, at)
    begins = version == 1 and header == HEADER_SIZE and kind and entry_version >> 8 == 1
    fits = _ENTRY.size <= entry_header <= size and at + header + size <= len(data)
    return int(header + size) if begins and fits else 0


def entries(fatbin: memoryview) -> Iterator[Entry]:
    """Yield the entries of PTX, cubins, LTO-IR and Tile IR of one fatbin.

    Raises ValueError if an entry does not lie in the fatbin; those before it were yielded.
    """
    at = HEADER_SIZE
    while at < len(fatbin):
        if len(fatbin) - at < _ENTRY.size:
            raise ValueError(f"the fatbin ends in the entry at byte {at}")
        number, _, header, size, used, _, minor, major, arch, _, _, flags, _, whole = _ENTRY.unpack_from(fatbin, at)
        if header < _ENTRY.size or size > len(fatbin) - at - header:
            msg = f"the fatbin entry at byte {at} has a header of {header} bytes and {size} more, which end behind it"
            raise ValueError(msg)
        packing: Literal["", "lz4", "zstd"] = "zstd" if flags & _ZSTD else "lz4" if flags & _LZ4 else ""
        start = at + header
        payload = fatbin[start : start + (min(used, size) if packing else size)]
        if number in _KINDS:
            suffix = "a" if flags & _SPECIFIC else "f" if flags & _FAMILY else ""
            kind, scrambled = _KINDS[number], bool(flags & _SCRAMBLED)
            version = divmod(major, 256) if kind == "tileir" else (major, minor)
            yield Entry(kind, f"sm_{arch}{suffix}", version, packing, scrambled, whole, payload)
        at = start + size


def unpacked(entry: Entry) -> tuple[bytes | None, str]:
    """Return the payload of an entry, and an empty string; or None and the reason why it stays packed."""
    if not entry.packing:
        return bytes(entry.payload), ""
    if entry.scrambled:
        return None, "its packed bytes are scrambled"
    if entry.size > MOST_UNPACKED:
        return None, f"it would become {entry.size} bytes; expected at most {MOST_UNPACKED}"
    try:
        if entry.packing == "zstd":  # no more is read than the header promises, whatever the frame says
            from zstandard import ZstdDecompressor

            return ZstdDecompressor().stream_reader(BytesIO(entry.payload)).read(entry.size), ""
        from lz4.block import decompress

        return decompress(entry.payload, uncompressed_size=entry.size), ""
    except ImportError:
        package = "zstandard" if entry.packing == "zstd" else "lz4"
        return None, f"the package {package} is not installed (pytest-cudalink[audit])"
    except Exception as error:  # noqa: BLE001 (each package has its own errors for damaged bytes)
        return None, f"it cannot be unpacked: {error}"


_LTOIR: Final = b"\xed\x43\x4e\x7f\x01"
_TILEIR: Final = b"\x7fTileIR\0"
_PTX: Final = b".version "
_EM_CUDA: Final = 190
_NOTHING: Final = 0
_NOBITS: Final = 8
#: The head of PTX; blank lines and comments may stand between its lines.
_PTX_HEAD: Final = re.compile(
    rb"\.version[ \t]+\d{1,2}\.\d{1,2}(?:\s|\\n|//[^\n]*\n|/\*.{0,200}?\*/)*"
    rb"\.target[ \t]+(?:sm|compute)_\d{2,3}[af]?\b",
    re.DOTALL,
)
_HEAD_SIZE: Final = 1024
_WINDOW: Final = 4 << 20
#: What ends PTX that lies inside of something else: a NUL, or the end of a string of Python.
_PTX_END: Final = re.compile(rb"\0|\"\"\"|'''")


@dataclass(frozen=True)
class Piece:
    """Device code that lies at one place of a file."""

    form: Literal["fatbin", "cubin", "ltoir", "tileir", "ptx"]
    at: int
    size: int  # 0: not known, of LTO-IR and of Tile IR that is not a whole file


def pieces(data: Buffer, *, text: bool) -> Iterator[Piece]:
    """Yield the device code in a file, in its order; PTX only if `text`."""
    readers: dict[bytes, Callable[[Buffer, int], Piece | None]] = {
        MAGIC: _fatbin,
        elf.MAGIC: _cubin,
        _LTOIR: _ltoir,
        _TILEIR: _tileir,
    }
    if text:
        readers[_PTX] = _ptx
    longest, end = max(map(len, readers)), 0
    for start in range(0, len(data), _WINDOW):
        # one window after another, so that a file is read once, however many things are looked for
        stop = start + _WINDOW
        last = stop + longest - 1
        following = {magic: data.find(magic, max(start, end), last) for magic in readers}
        while next_magics := {place: magic for magic, place in following.items() if 0 <= place < stop}:
            place = min(next_magics)
            magic = next_magics[place]
            piece = readers[magic](data, place)
            end = place + 1
            if piece is not None:
                yield piece
                end = place + max(piece.size, 1)
            for other, known in following.items():
                if 0 <= known < end:
                    following[other] = data.find(other, end, last)
        count_read(data, _WINDOW)


def _fatbin(data: Buffer, at: int) -> Piece | None:
    size = fatbin_size(data, at)
    return Piece("fatbin", at, size) if size else None


def _cubin(data: Buffer, at: int) -> Piece | None:
    head = elf.read_header(data, at)
    if head is None or head.machine != _EM_CUDA:
        return None
    segments_end = head.segments + head.segment_size * head.segment_count
    end = max(elf.HEADER.size, segments_end, head.sections + head.section_size * head.section_count)
    with suppress(error, elf.ElfError):  # compilers write what sections hold before the tables; CUPTI's lie behind them
        sections = elf.read_sections(data, head, at)
        end = max([end, *(row.offset + row.size for row in sections if row.kind not in (_NOTHING, _NOBITS))])
    if at == 0 or at + end > len(data):
        end = len(data) - at
    return Piece("cubin", at, end)


def _ltoir(data: Buffer, at: int) -> Piece | None:
    head = data[at : at + 28]
    if len(head) < 28 or not (1 <= head[6] <= 9 and 40 <= int.from_bytes(head[16:20], "little") <= 4096):
        return None
    if not 500 <= int.from_bytes(head[26:28], "little") <= 2000:
        return None
    return Piece("ltoir", at, len(data) if at == 0 else 0)


def _tileir(data: Buffer, at: int) -> Piece | None:
    head = data[at : at + 12]  # a major and minor version, and a tag of one bit
    if len(head) < 12 or not 13 <= head[8] <= 99 or head[10] > 1 or head[11]:
        return None
    return Piece("tileir", at, len(data) if at == 0 else 0)


def _ptx(data: Buffer, at: int) -> Piece | None:
    if _PTX_HEAD.match(data[at : at + _HEAD_SIZE]) is None:
        return None
    end = _PTX_END.search(data, at)  # (the bytes up to it are skipped, so that no byte is searched twice)
    return Piece("ptx", at, (end.start() if end else len(data)) - at)


class Sections:
    """The sections of an ELF file, a DLL or an archive of objects; none in any other file."""

    def __init__(self, data: Buffer) -> None:
        self._rows: list[tuple[int, int, str]] = []
        with suppress(error, elf.ElfError):  # the file ends in a table
            if data[:8] == b"!<arch>\n":
                self._rows = _archive_sections(data)
            elif data[:6] == elf.MAGIC:
                self._rows = _elf_sections(data, 0)
            else:
                self._rows = _pe_sections(data)
        self._rows.sort()

    def name_at(self, place: int) -> str:
        """Return the name of the section at a place; empty if there is none."""
        index = bisect_right(self._rows, place, key=lambda row: row[0]) - 1
        return self._rows[index][2] if index >= 0 and place < self._rows[index][1] else ""


def _archive_sections(data: Buffer) -> list[tuple[int, int, str]]:
    rows = []
    at = 8
    while at + 60 <= len(data):
        size = data[at + 48 : at + 58].strip()
        if not size.isdigit():
            break
        rows += _elf_sections(data, at + 60, int(size))
        at += 60 + int(size) + int(size) % 2
    return rows


def _elf_sections(data: Buffer, base: int, most: int | None = None) -> list[tuple[int, int, str]]:
    """The sections of an ELF file that begins at a place and has at most so many bytes."""
    head = elf.read_header(data, base)
    if head is None or (most is not None and head.sections + head.section_size * head.section_count > most):
        return []
    return [
        (base + section.offset, base + section.offset + section.size, name)
        for section, name in elf.named_sections(data, head, base)
        if section.kind != _NOBITS
    ]


def _pe_sections(data: Buffer) -> list[tuple[int, int, str]]:
    (header,) = Struct("<I").unpack_from(data, 0x3C)
    if data[header : header + 4] != b"PE\0\0":
        return []
    _, count, _, _, _, optional, _ = Struct("<HHIIIHH").unpack_from(data, header + 4)
    rows = []
    for index in range(count):
        name, _, _, length, offset = Struct("<8sIIII").unpack_from(data, header + 24 + optional + 40 * index)
        rows.append((offset, offset + length, name.rstrip(b"\0").decode("latin-1")))
    return rows
