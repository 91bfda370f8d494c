"""Inspect device code before a linker gets it: its kind, its producer, its architecture.

`inspect` reads no byte outside of its argument, opens no library, and never raises for bad content: `Artifact.problems`
lists the faults.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from ..compat.releases import LATEST_KNOWN, needs_for_nvvm_ir, needs_for_ptx_isa
from ..versions import CudaVersion, Needs
from .containers import AR_MAGIC, FATBIN_MAGIC, LTOIR_MAGIC, read_archive, read_fatbin, read_ltoir
from .cubin import check_cuda
from .damage import Damaged
from .elf import EM_CUDA, Elf, read_elf
from .ptx import looks_like_ptx, read_ptx

__all__ = ["Artifact", "Kind", "inspect"]

Kind = Literal["ptx", "ltoir", "cubin", "fatbin", "object", "library", "unknown"]

_ELF_MAGIC = b"\x7fELF"
_NOTE_TOOL, _NOTE_CUDA = 2000, 1000
_TOOL_RELEASE = re.compile(rb"release (\d+)\.(\d+)")
_FATBIN_SECTIONS = (".nv_fatbin", "__nv_relfatbin")
_FATBIN_KINDS: dict[int, Kind] = {1: "ptx", 2: "cubin", 8: "ltoir"}


@dataclass(frozen=True)
class Artifact:
    """The findings about one image.

    Attributes
    ----------
    kind : str
        ``"ptx"``, ``"ltoir"``, ``"cubin"``, ``"fatbin"``, ``"object"`` (a host object), ``"library"`` (an archive of
        them) or ``"unknown"``.
    size : int
        Bytes given.
    producer : CudaVersion or None
        The CUDA release whose tool wrote it, where the image says so.
    needs : Needs or None
        The oldest CUDA release whose linker understands it. For a container, the newest that a part needs.
    ptx_isa : tuple of int or None
        PTX ISA version of PTX.
    target : str or None
        ``.target`` of PTX.
    arch : str or None
        ``"sm_90"``; of a container only if all parts agree.
    relocatable : bool or None
        Of a cubin: True before linking, False after.
    kernels, defined, undefined : tuple of str
        Names of kernels; of strong definitions that others can link against; of symbols that the linker must find
        elsewhere. A fatbin or object defines the names that all of its unpacked parts define. A library defines none,
        as a linker takes only the objects that it needs from it.
    parts : tuple of Artifact
        The images in a fatbin, object or library.
    compressed : bool
        The payload is packed inside a fatbin and was not inspected.
    problems : tuple of str
        Reasons why no library must be given the image. Empty for a sound image.
    """

    kind: Kind
    size: int
    producer: CudaVersion | None = None
    needs: Needs | None = None
    ptx_isa: tuple[int, int] | None = None
    target: str | None = None
    arch: str | None = None
    relocatable: bool | None = None
    kernels: tuple[str, ...] = ()
    defined: tuple[str, ...] = ()
    undefined: tuple[str, ...] = ()
    text_sections: tuple[str, ...] = field(default=(), repr=False)
    parts: tuple[Artifact, ...] = field(default=(), repr=False)
    compressed: bool = False
    problems: tuple[str, ...] = ()

    @property
    def leaves(self) -> Iterator[Artifact]:
        """The images in a container that are not containers; the artifact itself if it is not a container."""
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.leaves

    @property
    def needs_lto(self) -> bool:
        """Whether only a linker that reads LTO-IR can use it: some architecture has LTO-IR and nothing else.

        A library needs it if any of its objects does.
        """
        if self.kind == "library":
            return any(part.needs_lto for part in self.parts)
        kinds = {leaf.kind for leaf in self.leaves}
        return "ltoir" in kinds and not kinds & {"ptx", "cubin"}

    def describe(self) -> str:
        """A phrase for a message: ``"cubin for sm_90, made by CUDA 13.0"``."""
        text: str = self.kind
        if self.arch or self.target:
            text += f" for {self.arch or self.target}"
        if self.producer:
            text += f", made by CUDA {self.producer}"
        elif self.needs and self.kind == "ptx" and self.ptx_isa:
            text += f", PTX ISA {self.ptx_isa[0]}.{self.ptx_isa[1]}"
        return text


def inspect(data: bytes | bytearray | memoryview) -> Artifact:
    """Identify an image and check it, without trusting any byte of it.

    Parameters
    ----------
    data : bytes-like
        The whole image: PTX text (with or without a final NUL), LTO-IR, a cubin, a fatbin, a host object or an archive.

    Returns
    -------
    Artifact
        With ``problems`` filled for a truncated, damaged or unknown image.

    Raises
    ------
    TypeError
        If `data` is not bytes-like.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        msg = f"inspect() needs the bytes of an image, got {type(data).__name__}; read the file first"
        raise TypeError(msg)
    view = memoryview(data).cast("B")
    kind = _sniff(view)
    try:
        return _READERS[kind](view)
    except Damaged as damage:
        return Artifact(kind, len(view), problems=(f"damaged {kind}: {damage}",))


def _sniff(view: memoryview) -> Kind:
    head = bytes(view[:20])
    if head.startswith(_ELF_MAGIC):
        return "cubin" if int.from_bytes(head[18:20].ljust(2, b"\0"), "little") in (EM_CUDA, 0) else "object"
    if head.startswith(LTOIR_MAGIC):
        return "ltoir"
    if head.startswith(FATBIN_MAGIC):
        return "fatbin"
    if head.startswith(AR_MAGIC):
        return "library"
    # a PTX file starts with a few hundred bytes of comments; the limit keeps this cheap on large unknown data
    return "ptx" if looks_like_ptx(bytes(view[:65536])) else "unknown"


def _read_unknown(view: memoryview) -> Artifact:
    found = f"starts with {bytes(view[:8]).hex(' ')}" if view else "it is empty"
    reason = f"not an image that a CUDA linker reads ({found}): no PTX .version, and no ELF, LTO-IR, fatbin or ar magic"
    return Artifact("unknown", len(view), problems=(reason,))


def _read_ptx(view: memoryview) -> Artifact:
    module = read_ptx(bytes(view))
    return Artifact(
        "ptx",
        len(view),
        producer=CudaVersion(*module.release) if module.release else None,
        needs=needs_for_ptx_isa(module.isa),
        ptx_isa=module.isa,
        target=module.target,
        relocatable=True,
        arch=module.target,
        kernels=module.kernels,
        defined=module.defined,
        undefined=module.undefined,
    )


def _read_ltoir(view: memoryview) -> Artifact:
    header = read_ltoir(view)
    needs = needs_for_nvvm_ir(header.nvvm_ir)
    producer = None if needs.newer_than else needs.version
    return Artifact("ltoir", len(view), producer=producer, needs=needs, arch=f"sm_{header.arch}", relocatable=True)


def _read_cubin(view: memoryview) -> Artifact:
    elf = read_elf(view)
    producer = _producer_of_cubin(elf)
    if producer is None or producer <= LATEST_KNOWN:  # a later CUDA may have changed what only CUDA defines
        check_cuda(view, elf)
    # with ELF ABI version 8 the architecture moved from the first byte of e_flags to the second and third
    arch = elf.flags >> 8 & 0xFFF if elf.abi_version >= 8 else elf.flags & 0xFF
    return Artifact(
        "cubin",
        len(view),
        producer=producer,
        needs=Needs(producer) if producer else None,
        arch=f"sm_{arch}",
        relocatable=elf.relocatable,
        kernels=tuple(symbol.name for symbol in elf.symbols if symbol.is_kernel),
        defined=tuple(symbol.name for symbol in elf.symbols if symbol.is_strong_definition),
        undefined=tuple(symbol.name for symbol in elf.symbols if symbol.is_undefined),
        text_sections=tuple(section.name for section in elf.sections if section.name.startswith(".text.")),
    )


def _producer_of_cubin(elf: Elf) -> CudaVersion | None:
    """The newest release among the tools that left a note; before notes, CUDA 12 counted in ``e_version``.

    CUDA 12.9 already writes the CUDA 13 form for sm_100 and later, so the ELF ABI version is no witness.
    """
    tools = [match for note in elf.notes.get(_NOTE_TOOL, ()) if (match := _TOOL_RELEASE.search(note))]
    if tools:
        return max(CudaVersion(int(match[1]), int(match[2])) for match in tools)
    if 120 <= elf.version <= 129:
        return CudaVersion(elf.version // 10, elf.version % 10)
    return None


def _read_fatbin(view: memoryview) -> Artifact:
    parts = []
    for entry in read_fatbin(view):
        kind = _FATBIN_KINDS.get(entry.kind, "unknown")
        if entry.compressed or kind == "unknown":
            isa = entry.version if kind == "ptx" else None
            parts.append(
                Artifact(
                    kind,
                    len(entry.payload),
                    needs=needs_for_ptx_isa(isa) if isa else None,
                    ptx_isa=isa,
                    arch=f"sm_{entry.arch}",
                    compressed=entry.compressed,
                )
            )
            continue
        parts.append(inspect(entry.payload))
    if not parts:
        raise Damaged("fatbin without entries")
    return _container("fatbin", len(view), parts)


def _read_object(view: memoryview) -> Artifact:
    elf = read_elf(view)
    parts = [
        _read_fatbin(view[section.offset : section.offset + section.size])
        for section in elf.sections
        if section.name in _FATBIN_SECTIONS and section.size
    ]
    if not parts:
        raise Damaged("host object without device code (no section __nv_relfatbin or .nv_fatbin)")
    return _container("object", len(view), parts)


def _read_library(view: memoryview) -> Artifact:
    parts = []
    for name, member in read_archive(view):
        if bytes(member[:4]) != _ELF_MAGIC:
            raise Damaged(f"archive member {name!r} is not an object")
        elf = read_elf(member)
        if any(section.name in _FATBIN_SECTIONS for section in elf.sections):
            parts.append(_read_object(member))
    if not parts:
        raise Damaged("library without device code (no member has a section __nv_relfatbin or .nv_fatbin)")
    return _container("library", len(view), parts)


def _container(kind: Kind, size: int, parts: Iterable[Artifact]) -> Artifact:
    parts = tuple(parts)
    leaves = [leaf for part in parts for leaf in part.leaves]
    needs = [leaf.needs for leaf in leaves if leaf.needs]
    producers = {leaf.producer for leaf in leaves if leaf.producer}
    arches = {leaf.arch for leaf in leaves}
    # the linker takes one part, depending on the target
    defined = [dict.fromkeys(leaf.defined) for leaf in leaves if leaf.defined and kind != "library"]
    return Artifact(
        kind,
        size,
        producer=producers.pop() if len(producers) == 1 else None,
        needs=max(needs) if needs else None,
        arch=arches.pop() if len(arches) == 1 else None,
        kernels=tuple(dict.fromkeys(name for leaf in leaves for name in leaf.kernels)),
        defined=tuple(name for name in (defined or [{}])[0] if all(name in one for one in defined)),
        parts=parts,
        problems=tuple(problem for part in parts for problem in part.problems),
    )


_READERS = {
    "ptx": _read_ptx,
    "ltoir": _read_ltoir,
    "cubin": _read_cubin,
    "fatbin": _read_fatbin,
    "object": _read_object,
    "library": _read_library,
    "unknown": _read_unknown,
}
