"""The entries of a fatbin: what their headers say, and their payloads, unpacked if the packages for that are there.

NVIDIA documents neither fatbins nor how entries are packed; the fields were read off the output of nvcc 12 and 13.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from struct import Struct
from typing import Any, Final, Literal

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
            msg = f"the fatbin ends in the entry at byte {at}"
            raise ValueError(msg)
        number, _, header, size, used, _, minor, major, arch, _, _, flags, _, whole = _ENTRY.unpack_from(fatbin, at)
        if header < _ENTRY.size or size > len(fatbin) - at - header:
            msg = f"the fatbin entry at byte {at} has a header of {header} bytes and {size} more, which end behind it"
            raise ValueError(msg)
        packing: Literal["", "lz4", "zstd"] = "zstd" if flags & _ZSTD else "lz4" if flags & _LZ4 else ""
        start = at + header
        payload = fatbin[start : start + (min(used, size) if packing else size)]
        if number in _KINDS:
            suffix = "a" if flags & _SPECIFIC else "f" if flags & _FAMILY else ""
            yield Entry(
                kind=_KINDS[number],
                arch=f"sm_{arch}{suffix}",
                version=divmod(major, 256) if _KINDS[number] == "tileir" else (major, minor),
                packing=packing,
                scrambled=bool(flags & _SCRAMBLED),
                size=whole,
                payload=payload,
            )
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
