"""Reading the containers of device code: LTO-IR files, fatbins, and ``ar`` libraries.

NVIDIA documents neither LTO-IR nor fatbins; the fields here were read off the output of nvcc 13.0 and of NVRTC 12.0 to
13.5, and only fields that agree in all of these are used.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from .damage import Damaged, Reader

__all__ = [
    "AR_MAGIC",
    "FATBIN_MAGIC",
    "LTOIR_MAGIC",
    "FatbinEntry",
    "LtoIr",
    "read_archive",
    "read_fatbin",
    "read_ltoir",
]

LTOIR_MAGIC = b"\xed\x43\x4e\x7f"
FATBIN_MAGIC = b"\x50\xed\x55\xba"
AR_MAGIC = b"!<arch>\n"

_LTOIR_HEADER = struct.Struct("<4sBBBBBBHHHIIHH")
_LTOIR_PAYLOAD_AT = 40
_FATBIN_HEADER = struct.Struct("<IHHQ")
_FATBIN_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
_FATBIN_COMPRESSED = 0x2000 | 0x8000  # LZ4, zstd
_AR_MEMBER = struct.Struct("16s12s6s6s8s10s2s")


class LtoIr(NamedTuple):
    """Header of an LTO-IR file.

    Attributes
    ----------
    nvvm_ir : tuple of int
        NVVM IR version, which names the producing release.
    arch : int
        Compute capability times ten.
    """

    nvvm_ir: tuple[int, int]
    arch: int


def read_ltoir(data: memoryview) -> LtoIr:
    """Read an LTO-IR header.

    The payload is scrambled bitcode in 32-bit words without a length, so only the linker notices a file that lost whole
    words, and answers with an error.

    Raises
    ------
    Damaged
        If the file ends inside its header or inside a word, or the header points outside of the file.
    """
    reader = Reader(data)
    _, _, _, ir_major, ir_minor, _, _, _, _, _, payload_at, _, _, arch = reader.unpack(
        _LTOIR_HEADER, 0, "LTO-IR header"
    )
    if payload_at < _LTOIR_PAYLOAD_AT or payload_at >= reader.size:
        raise Damaged(f"LTO-IR code starts at byte {payload_at}, the image has {reader.size}")
    if (reader.size - payload_at) % 4:
        raise Damaged(f"LTO-IR code has {reader.size - payload_at} bytes, which is not a whole number of 32-bit words")
    return LtoIr((ir_major, ir_minor), arch // 10)


class FatbinEntry(NamedTuple):
    """One image in a fatbin.

    Attributes
    ----------
    kind : int
        1 PTX, 2 ELF, 8 LTO-IR; other numbers are returned unchanged.
    arch : int
        Compute capability times ten.
    version : tuple of int
        For PTX the ISA version.
    compressed : bool
        The payload is packed and is not inspected.
    payload : memoryview
    """

    kind: int
    arch: int
    version: tuple[int, int]
    compressed: bool
    payload: memoryview


def read_fatbin(data: memoryview) -> Iterator[FatbinEntry]:
    """Read the entries of one fatbin, or of consecutive ones, as nvcc writes them into an object.

    Raises
    ------
    Damaged
        If a header or a payload ends outside of its container.
    """
    reader = Reader(data)
    at = 0
    while at < reader.size:
        if not any(data[at:]):  # padding of the section that holds it
            return
        _, _, header_size, size = reader.unpack(_FATBIN_HEADER, at, "fatbin header")
        if bytes(data[at : at + 4]) != FATBIN_MAGIC or header_size < _FATBIN_HEADER.size:
            raise Damaged(f"no fatbin header at byte {at}")
        body = Reader(reader.span(at + header_size, size, "fatbin"))
        at += header_size + size
        inner = 0
        while inner < body.size:
            fields = body.unpack(_FATBIN_ENTRY, inner, "fatbin entry")
            kind, entry_header, padded, packed = fields[0], fields[2], fields[3], fields[4]
            minor, major, arch, flags = fields[6], fields[7], fields[8], fields[11]
            if entry_header < _FATBIN_ENTRY.size:
                raise Damaged(
                    f"fatbin entry has a header of {entry_header} bytes, expected at least {_FATBIN_ENTRY.size}"
                )
            compressed = bool(flags & _FATBIN_COMPRESSED)
            payload = body.span(inner + entry_header, padded, "payload of a fatbin entry")
            if compressed and packed > padded:
                raise Damaged(f"fatbin entry has {packed} compressed bytes in a payload of {padded}")
            inner += entry_header + padded
            yield FatbinEntry(kind, arch, (major, minor), compressed, payload)


def read_archive(data: memoryview) -> Iterator[tuple[str, memoryview]]:
    """Read the members of an ``ar`` archive in the System V / GNU form, without its index and its name table.

    Raises
    ------
    Damaged
        If a member header is broken or a member ends outside of the file.
    """
    reader = Reader(data)
    at = len(AR_MAGIC)
    while at < reader.size:
        header = bytes(reader.span(at, _AR_MEMBER.size, "archive member"))
        name, *_, size_text, end = _AR_MEMBER.unpack(header)
        digits = size_text.strip()
        if end != b"`\n" or not digits.isdigit():
            raise Damaged(f"archive member at byte {at} has no valid header")
        size = int(digits)
        payload = reader.span(at + _AR_MEMBER.size, size, f"archive member at byte {at}")
        at += _AR_MEMBER.size + size + size % 2
        label = name.decode("latin-1").rstrip().rstrip("/")
        if label:  # "/" is the symbol index, "//" the long names
            yield label, payload
