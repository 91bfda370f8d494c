"""What the device code in a file asks of nvJitLink: the release of its LTO-IR, and that of the compiler for jitify."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Final

from ..artifacts import inspect
from ..compat.releases import needs_for_nvvm_ir
from ..versions import CudaVersion, Needs
from .buffers import Buffer
from .device_code import fatbin, scan
from .device_code.images import needs_for_ltoir_format

__all__ = ["jitify_release", "newest_ltoir"]

#: Part of the message of jitify, which refuses an nvJitLink that is older than the release it was built with.
_REFUSAL: Final = b"need at least version "
#: Cubins that are asked for their compiler; a library of one build has one.
_ASKED: Final = 32


def newest_ltoir(data: Buffer, pieces: Iterable[scan.Piece]) -> Needs | None:
    """What the newest LTO-IR in a file needs of nvJitLink; None for a file without LTO-IR."""
    return max(_needs(data, pieces), default=None)


def jitify_release(data: Buffer, pieces: Iterable[scan.Piece]) -> CudaVersion | None:
    """The release that compiled a library which opens nvJitLink through jitify; None for others, or if none is named.

    jitify compares the nvJitLink that it opened with the release that it was built with. That release is a constant in
    machine code; the device code of the same library names the release of its compiler.
    """
    if data.find(_REFUSAL) < 0:
        return None
    producers = islice((inspect(cubin).producer for cubin in _cubins(data, pieces)), _ASKED)
    return max((one for one in producers if one is not None), default=None)


def _cubins(data: Buffer, pieces: Iterable[scan.Piece]) -> Iterator[bytes]:
    for piece in pieces:
        if piece.form == "fatbin":
            with memoryview(data) as whole, whole[piece.at : piece.at + piece.size] as view, suppress(ValueError):
                for entry in fatbin.entries(view):
                    with entry.payload:
                        content = fatbin.unpacked(entry)[0] if entry.kind == "cubin" else None
                    if content is not None:
                        yield content
        elif piece.form == "cubin":
            yield bytes(data[piece.at : piece.at + piece.size])


def _needs(data: Buffer, pieces: Iterable[scan.Piece]) -> Iterator[Needs]:
    for piece in pieces:
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
