"""LTO-IR in the bytes of a file: the oldest nvJitLink that takes all of it."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import IO

from ..compat.releases import needs_for_nvvm_ir
from ..versions import Needs
from .device_code import fatbin, scan
from .device_code.files import Buffer
from .device_code.images import needs_for_ltoir_format

__all__ = ["newest_ltoir"]


def newest_ltoir(stream: IO[bytes]) -> Needs | None:
    """What the newest LTO-IR in a file needs of nvJitLink; None for a file without LTO-IR."""
    if not stream.seek(0, os.SEEK_END):
        return None
    stream.flush()
    mapped = None
    try:
        mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError, AttributeError):  # in memory
        stream.seek(0)
    data: Buffer = mapped if mapped is not None else stream.read()
    try:
        return max(_needs(data), default=None)
    finally:
        if mapped is not None:
            with suppress(BufferError):
                mapped.close()


def _needs(data: Buffer) -> Iterator[Needs]:
    for piece in scan.pieces(data, text=False):
        if piece.form == "ltoir":
            yield needs_for_nvvm_ir((data[piece.at + 6], data[piece.at + 7]))
        elif piece.form == "fatbin":
            with memoryview(data) as whole, whole[piece.at : piece.at + piece.size] as view, suppress(ValueError):
                for entry in fatbin.entries(view):
                    with entry.payload:
                        if entry.kind == "ltoir":
                            yield _of_entry(entry)


def _of_entry(entry: fatbin.Entry) -> Needs:
    content, _ = fatbin.unpacked(entry)
    if content is not None and len(content) > 7:
        return needs_for_nvvm_ir((content[6], content[7]))
    return needs_for_ltoir_format(entry.version[1]) or needs_for_nvvm_ir((0, 0))
