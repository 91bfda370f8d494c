"""Inspect device code before a linker gets it: its kind, its producer, its architecture.

`inspect` reads no byte outside of its argument, opens no library, and never raises for bad content: `Artifact.problems`
lists the faults. The reader is C (`native/`); one call serves one image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from struct import Struct
from typing import Final, Literal

from ..compat.releases import LATEST_KNOWN, needs_for_nvvm_ir, needs_for_ptx_isa
from ..versions import CudaVersion, Needs

__all__ = ["Artifact", "Kind", "ReaderError", "inspect", "read_words"]

_FILE: Final = Path(__file__).parent / "lib" / "libcudalink-artifacts.so"
#: Bytes for the records of an image: almost always enough, so that one call is.
_SMALL, _LARGE, _SMALL_IMAGE = 4096, 131072, 65536


class ReaderError(RuntimeError):
    """The native reader is not built; the message says what to do."""


@cache
def reader() -> Callable[[bytes], bytes]:
    """The function that answers with the records about an image and its parts, laid out as in native/record.h.

    Raises ReaderError if the library was not built: on Windows, or when the package was copied and not installed.
    """
    import ctypes

    if not _FILE.is_file():
        raise ReaderError(
            f"the reader of device code is not built: {_FILE} is missing. Install pytest-cudalink with pip on Linux "
            "(from a source tree this needs a C compiler or the ziglang wheel)"
        )
    numbers = ctypes.c_uint64, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint64
    inspect = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_char_p, *numbers)(("art_inspect", ctypes.CDLL(str(_FILE))))
    latest = LATEST_KNOWN.major << 16 | LATEST_KNOWN.minor
    small, large = ctypes.c_char * _SMALL, ctypes.c_char * _LARGE  # types of arrays are slow to make
    string_at = ctypes.string_at

    def answer(data: bytes, room: int = 0) -> bytes:
        kind = ctypes.c_char * room if room else small if len(data) <= _SMALL_IMAGE else large
        out = kind()
        used: int = inspect(data, len(data), latest, out, len(out))
        if not used:
            raise MemoryError
        return string_at(out, used) if used <= len(out) else answer(data, used)

    return answer


Kind = Literal["ptx", "ltoir", "cubin", "tileir", "fatbin", "object", "library", "unknown"]

#: ArtRecord of native/record.h, its kinds, its flags, and the letters in front of names.
_RECORD: Final = Struct("<QQIIIIIIII")
_KINDS: Final[tuple[Kind, ...]] = ("unknown", "ptx", "ltoir", "cubin", "fatbin", "object", "library", "tileir")
_CONTAINERS: Final = frozenset({"fatbin", "object", "library"})
_HAS_PROBLEM, _HAS_TARGET, _HAS_ARCH, _HAS_LINKAGE, _RELOCATABLE, _PACKED = 1, 2, 4, 8, 16, 32
_KERNEL, _DEFINED, _UNDEFINED, _TEXT = "kb", "db", "u", "t"


@dataclass(frozen=True)
class Artifact:
    """The findings about one image."""

    # "ptx", "ltoir", "cubin", "tileir" (bytecode of CUDA Tile), "fatbin", "object" (a host object), "library" (an
    # archive of them) or "unknown"
    kind: Kind
    size: int  # bytes given
    producer: CudaVersion | None = None  # the CUDA release whose tool wrote it, where the image says so
    # the oldest CUDA release whose linker understands it; of Tile IR, whose tileiras does. For a container, the newest
    # that a part needs.
    needs: Needs | None = None
    ptx_isa: tuple[int, int] | None = None  # PTX ISA version of PTX
    target: str | None = None  # `.target` of PTX
    arch: str | None = None  # "sm_90"; of a container only if all parts agree
    relocatable: bool | None = None  # of a cubin: True before linking, False after
    kernels: tuple[str, ...] = ()  # names of kernels
    # names of strong definitions that others can link against. A fatbin or object defines the names that all of its
    # unpacked parts define. A library defines none, as a linker takes only the objects that it needs from it.
    defined: tuple[str, ...] = ()
    undefined: tuple[str, ...] = ()  # names of symbols that the linker must find elsewhere
    text_sections: tuple[str, ...] = field(default=(), repr=False)
    parts: tuple[Artifact, ...] = field(default=(), repr=False)  # the images in a fatbin, object or library
    compressed: bool = False  # the payload is packed inside a fatbin and was not inspected
    problems: tuple[str, ...] = ()  # reasons why no library must be given the image. Empty for a sound image.

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
        elif self.needs and self.kind == "tileir":
            text += f", for tileiras {'' if self.needs.newer_than else 'of '}{self.needs}"
        return text


def inspect(data: bytes | bytearray | memoryview) -> Artifact:
    """Identify an image and check it, without trusting any byte of it.

    `data`: the whole image: PTX text (with or without a final NUL), LTO-IR, a cubin, a fatbin, a host object or an
    archive. Anything but bytes is copied first, so that another thread cannot change what is being read.
    Returns an artifact, with ``problems`` filled for a truncated, damaged or unknown image.
    Raises TypeError if `data` is not bytes-like.
    Raises ReaderError if the native reader was not built: on Windows, or when the package was copied and not installed.
    """
    if not isinstance(data, bytes):
        try:
            data = memoryview(data).tobytes()
        except TypeError as error:
            msg = f"inspect() needs the bytes of an image, got {type(data).__name__}; read the file first"
            raise TypeError(msg) from error
    artifact, _ = _artifact(reader()(data), 0)
    return artifact


def read_words(lines: Iterable[str]) -> Artifact:
    """Return the artifact that an emulated driver describes in the event of a call that refused it.

    `lines`: one for each image, containers first: ``"fatbin"``, ``"ptx sm_90 13.0 9.0"``, ``"cubin sm_90 13.0
    linked"``, ``"cubin damaged"``; ``"-"`` stands for what is not known.
    """
    containers, leaves = [], []
    for line in lines:
        kind, *words = line.split()
        if kind not in _KINDS:
            continue
        if words == ["damaged"]:
            leaves.append(Artifact(kind, 0, problems=("damaged",)))
        elif len(words) == 3:
            leaves.append(_leaf_of_words(kind, *(None if word == "-" else word for word in words)))
        else:
            containers.append(kind)
    if len(leaves) == 1 and not containers:
        return leaves[0]
    return _container(containers[0] if containers else "unknown", 0, leaves)


def _leaf_of_words(kind: Kind, arch: str | None, release: str | None, version: str | None) -> Artifact:
    producer = CudaVersion.parse(release) if release else None
    linked = {"linked": False, "relocatable": True}.get(version or "")
    number = CudaVersion.parse(version) if version and linked is None else None
    producer, needs = _releases(kind, number or (0, 0), producer, packed=number is None)
    return Artifact(
        kind,
        0,
        producer=producer,
        needs=needs,
        ptx_isa=number if kind == "ptx" else None,
        target=arch if kind == "ptx" else None,
        arch=arch,
        relocatable=linked,
    )


def _artifact(stream: bytes, at: int) -> tuple[Artifact, int]:
    """The artifact whose records begin at a place, and where the next ones begin."""
    size, names_size, kind_number, flags, *release, major, minor, arch, parts_count = _RECORD.unpack_from(stream, at)
    at += _RECORD.size
    kind = _KINDS[kind_number]
    names = stream[at : at + names_size].decode("utf-8", "replace").split("\0")
    names.pop()  # each name ends with a NUL
    at += names_size
    if flags & _HAS_PROBLEM:
        return Artifact(kind, size, problems=tuple(names)), at
    if kind in _CONTAINERS:
        parts = []
        for _ in range(parts_count):
            part, at = _artifact(stream, at)
            parts.append(part)
        return _container(kind, size, parts), at
    target = names.pop(0) if flags & _HAS_TARGET else None
    producer = CudaVersion(*release) if any(release) else None
    producer, needs = _releases(kind, (major, minor), producer, packed=bool(flags & _PACKED))
    defined = _named(names, _DEFINED)
    here = set(defined)  # in PTX a declaration may stand before the definition
    undefined = tuple(name for name in _named(names, _UNDEFINED) if name not in here)
    artifact = Artifact(
        kind,
        size,
        producer=producer,
        needs=needs,
        ptx_isa=(major, minor) if kind == "ptx" else None,
        target=target,
        arch=f"sm_{arch}" if flags & _HAS_ARCH else target,
        relocatable=bool(flags & _RELOCATABLE) if flags & _HAS_LINKAGE else None,
        kernels=_named(names, _KERNEL),
        defined=defined,
        undefined=undefined,
        text_sections=_named(names, _TEXT),
        compressed=bool(flags & _PACKED),
    )
    return artifact, at


def _named(names: list[str], letters: str) -> tuple[str, ...]:
    """The names with one of some letters in front, without it."""
    return tuple([name[1:] for name in names if name[0] in letters])


@lru_cache(maxsize=256)
def _releases(
    kind: Kind, version: tuple[int, int], producer: CudaVersion | None, *, packed: bool
) -> tuple[CudaVersion | None, Needs | None]:
    """The release that made an image, and the oldest that reads it, by its PTX ISA or NVVM IR version or its maker."""
    if kind == "ptx":
        return producer, needs_for_ptx_isa(version)
    if kind == "ltoir":
        needs = None if packed else needs_for_nvvm_ir(version)
        return producer if needs is None or needs.newer_than else needs.version, needs
    if kind == "tileir":  # bytecode has the number of the first release that reads it
        release = CudaVersion(*version)
        return producer, Needs(release) if release <= LATEST_KNOWN else Needs(LATEST_KNOWN, newer_than=True)
    return producer, Needs(producer) if producer else None


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
        defined=tuple(name for name in (defined or [{}])[0] if all(name in names for names in defined)),
        parts=parts,
        problems=tuple(problem for part in parts for problem in part.problems),
    )
