"""The images of device code in a wheel, a folder or a file, with what they say of themselves."""

import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path, PurePosixPath
from struct import Struct
from typing import Final

from ...artifacts import inspect
from ...base.elf import Buffer
from ...base.tables import read_table
from ...compat.releases import LATEST_KNOWN, NVVM_IR, PTX_ISA, needs_for_nvvm_ir, needs_for_ptx_isa
from ...environment.installed import AuditError, Unreadable
from ...versions import CudaVersion, Needs
from ..loadable import buffer, count_read
from ..members import Budget, members_of
from . import scan
from .scan import Kind

#: Files in which PTX would be an example, or the input of a compiler.
_DOCUMENTS: Final = frozenset(
    {".md", ".rst", ".txt", ".html", ".h", ".hpp", ".hxx", ".cuh", ".cu", ".inl", ".c", ".cc", ".cpp", ".pyx", ".pxd"}
)
#: Images of one file are unpacked to so many bytes, and so many times its size: CuPy's become six times larger.
_LEAST_UNPACKED: Final = 1 << 30
_MOST_RATIO: Final = 50
#: Most images that are read of one file; libtorch_cuda.so has 20,000.
_MOST_IMAGES: Final = 400_000
#: Sections whose fatbins a linker reads, not the driver.
RELOCATABLE: Final = frozenset({"__nv_relfatbin", ".nv_relfatbin", "__nv_relf"})
_NOTED_ARCH: Final = re.compile(rb"-arch[ =](?:sm|compute)_(\d{2,3})([af])\b")
#: The ABI version of the cubins of CUDA 13; CUDA 12 and older ones write 7, and from sm_100 on, CUDA 12 writes 8, too.
_NEW_FORM: Final = 8
_FIRST_IN_NEW_FORM: Final = 100


@dataclass(frozen=True)
class DeviceImage:
    """One image of device code."""

    path: str  # the file in the wheel or folder
    kind: Kind  # "ptx", "cubin", "ltoir" or "tileir"
    arch: str  # what it was compiled for: "sm_90a", with all kinds but Tile IR, for which it is empty
    ptx_isa: tuple[int, int] | None = None  # of PTX
    producer: CudaVersion | None = None  # the release of the toolkit that made it, where the image says so
    # the oldest release that takes it. Of a cubin that says no release, the first of its form. None for what every
    # known release takes.
    needs: Needs | None = None
    packed: bool = False  # whether the fatbin has it packed
    # the image, unpacked; None if it cannot be unpacked, or if its end is not known
    data: bytes | None = field(default=None, repr=False)
    section: str = ""  # of the ELF file or DLL, or empty
    at: int = 0  # where in the file the image or its fatbin begins
    # the driver chooses between the images of one group of a file: those of one fatbin, or all loose ones
    group: int = 0
    relocatable: bool | None = None  # whether a linker must link it first
    # the PTX architecture that a cubin was made from, which bounds what a linker takes it for
    virtual_arch: str | None = None
    note: str = ""  # why something is not known of it
    empty: bool = False  # whether it has neither functions nor variables: what nvcc makes of host code alone

    @property
    def number(self) -> int:
        """The architecture's number: 90 for ``"sm_90a"``."""
        return int(re.sub(r"\D", "", self.arch) or 0)

    @property
    def suffix(self) -> str:
        """``"a"``, ``"f"`` or empty."""
        return self.arch[-1:] if self.arch[-1:] in ("a", "f") else ""


#: A file, or a place in it, that cannot be read, and why.
UnreadImage = Unreadable
#: Endings of names of files that are device code and nothing else.
_NAMED: Final = (".ptx", ".cubin", ".fatbin", ".ltoir")


def images(path: str | Path) -> Iterator[DeviceImage]:
    """Yield the images of device code in a wheel, a folder, a library, an archive or a file of device code.

    Raises AuditError if there is no such file, or a wheel is damaged. What cannot be read inside of it is passed over:
    `all_images` yields that, too.
    """
    return (image for image in all_images(path) if isinstance(image, DeviceImage))


def all_images(path: str | Path) -> Iterator[DeviceImage | UnreadImage]:
    """Yield the images in a wheel, a folder or a file, and what cannot be read of it."""
    for name, opened in members_of(Path(path), Budget(str(path)), every=True):
        nothing = True
        with ExitStack() as stack:
            try:
                data = stack.enter_context(buffer(stack.enter_context(opened())))
            except AuditError:
                raise
            except Exception as error:  # noqa: BLE001 (zipfile raises whatever a damaged member leads it to)
                yield UnreadImage(name, f"cannot be read: {type(error).__name__}: {error}")
                continue
            for image in in_file(name, data):
                nothing = False
                yield image
        if nothing and name.lower().endswith(_NAMED):
            text = "has no device code that can be read; expected some, as its name says: build it again"
            yield UnreadImage(name, text)


def in_file(
    name: str, data: Buffer, pieces: Iterable[scan.Piece] | None = None, *, room: int | None = None
) -> Iterator[DeviceImage | UnreadImage]:
    """Yield the images in the bytes of one file, and what cannot be read of it.

    `pieces`: where its device code lies, if that is known.
    `room`: bytes to which images are unpacked; of the others, the headers say all that is known.
    """
    text = PurePosixPath(name).suffix.lower() not in _DOCUMENTS
    pieces = scan.pieces(data, text=text) if pieces is None else pieces
    room = max(_LEAST_UNPACKED, _MOST_RATIO * len(data)) if room is None else room
    places: scan.Sections | None = None
    unpacking = _Room(room)
    count = group = 0
    for piece in pieces:
        if places is None:
            places = scan.Sections(data)
        section = places.name_at(piece.at)
        if piece.form == "fatbin":
            group += 1
            contents: Iterator[DeviceImage | UnreadImage] = _in_fatbin(name, data, piece, unpacking)
        else:
            contents = iter([_loose(name, data, piece)])
            count_read(data, piece.size)
        for image in contents:
            count += 1
            if count > _MOST_IMAGES:
                yield UnreadImage(name, f"has more than {_MOST_IMAGES} images; the rest was not read")
                return
            if isinstance(image, DeviceImage):
                linked = section in RELOCATABLE or image.kind == "ltoir"
                image = replace(  # noqa: PLW2901 (the same image, with where it lies)
                    image,
                    section=section,
                    at=piece.at,
                    group=group if piece.form == "fatbin" else 0,
                    relocatable=True if linked else image.relocatable,
                )
            yield image


class _Room:
    """The bytes to which the images of a file may still be unpacked."""

    def __init__(self, size: int) -> None:
        self._wanted, self._left = bool(size), size

    def unpacked(self, entry: scan.Entry) -> tuple[bytes | None, str]:
        """Return the payload of an entry; or None and the reason why it stays packed."""
        if not entry.packing:
            return scan.unpacked(entry)
        if not self._wanted:
            return None, ""
        if entry.size > self._left:
            return None, "the images of this file would become too large"
        content, note = scan.unpacked(entry)
        self._left -= len(content or b"")
        return content, note


def _in_fatbin(name: str, data: Buffer, piece: scan.Piece, room: _Room) -> Iterator[DeviceImage | UnreadImage]:
    with memoryview(data) as whole, whole[piece.at : piece.at + piece.size] as view:
        try:
            for entry in scan.entries(view):
                with entry.payload:
                    yield _of_entry(name, entry, room)
                    count_read(data, len(entry.payload))
        except ValueError as error:
            yield UnreadImage(name, f"fatbin at byte {piece.at}: {error}")


def _of_entry(name: str, entry: scan.Entry, room: _Room) -> DeviceImage:
    content, note = room.unpacked(entry)
    image = _of_header(name, entry)
    image = replace(image, packed=bool(entry.packing), note="" if entry.kind == "tileir" else note)
    if content is None or entry.kind == "tileir":
        return image
    if entry.kind == "ptx":
        content = content.rstrip(b"\0")
    return _looked_into(replace(image, data=content), content)


def _of_header(name: str, entry: scan.Entry) -> DeviceImage:
    """The image as the header of its entry describes it."""
    if entry.kind == "ptx":
        return DeviceImage(name, "ptx", entry.arch, ptx_isa=entry.version, needs=_of_ptx(entry.version))
    if entry.kind == "ltoir":
        return DeviceImage(name, "ltoir", entry.arch, needs=_of_ltoir(entry.version[1]))
    if entry.kind == "tileir":
        return _of_tileir(name, entry.version)
    image = DeviceImage(name, "cubin", entry.arch)
    if image.number < _FIRST_IN_NEW_FORM and entry.version[1] == _NEW_FORM:
        return replace(image, needs=Needs(CudaVersion(13, 0)))
    return image


def _of_tileir(name: str, version: tuple[int, int]) -> DeviceImage:
    """Tile IR by the version of its bytecode, which is the first release that reads it."""
    release = CudaVersion(*version)
    newest = min(release, LATEST_KNOWN)
    return DeviceImage(name, "tileir", "", needs=Needs(newest, newer_than=release > newest))


def _of_ptx(isa: tuple[int, int]) -> Needs | None:
    """The oldest release that reads PTX of an ISA; None for one that is older than every known release."""
    return needs_for_ptx_isa(isa) if isa >= min(PTX_ISA.values()) else None


@cache
def _of_ltoir(number: int) -> Needs:
    """The first release that writes LTO-IR of a format; the data has the first release of each."""
    formats = read_table("device_code.toml")["ltoir-format"]
    table = {int(key): CudaVersion.parse(release) for key, release in formats.items()}
    known = [key for key in table if key <= number]
    if not known:
        return Needs(min(table.values()))
    return Needs(table[max(known)], newer_than=number > max(table))


def _loose(name: str, data: Buffer, piece: scan.Piece) -> DeviceImage:
    """The image that lies outside of fatbins."""
    if piece.form == "tileir":
        return _of_tileir(name, (data[piece.at + 8], data[piece.at + 9]))
    if piece.form == "ltoir":
        head = bytes(data[piece.at : piece.at + 28])
        content = bytes(data[piece.at : piece.at + piece.size]) if piece.size else None
        note = "" if content else "LTO-IR has no length, so that its end is not known"
        return _looked_into(DeviceImage(name, "ltoir", "", data=content, note=note), head)
    if piece.form == "ptx":
        start = _with_comments(data, piece.at)
        content = bytes(data[start : piece.at + min(piece.size, scan.MOST_UNPACKED)])
        return _looked_into(DeviceImage(name, "ptx", "", data=content), content)
    content = bytes(data[piece.at : piece.at + min(piece.size, scan.MOST_UNPACKED)])
    number = int.from_bytes(content[48:52], "little")
    arch = number & 0xFF if content[7] == 51 else number >> 8 & 0xFFFF  # EI_OSABI of CUDA 12 and before
    return _looked_into(DeviceImage(name, "cubin", f"sm_{arch}", data=content), content)


def _with_comments(data: Buffer, at: int) -> int:
    """Where PTX begins whose ``.version`` is at a place: at the comment before it, which names the compiler."""
    before = data[max(0, at - _MOST_COMMENT) : at]
    matched = _COMMENT.search(before)
    return at - len(before) + matched.start() if matched else at


_MOST_COMMENT: Final = 1024
_COMMENT: Final = re.compile(rb"(?:[ \t]*//[^\n\0]*\n|[ \t\r]*\n)+\Z")
#: Bytes of the header that is read of an image of each kind.
_LEAST: Final[dict[Kind, int]] = {"ptx": 0, "cubin": 64, "ltoir": 28, "tileir": 12}
_PTX_FACTS: Final = re.compile(rb"\.version[ \t]+(\d+)\.(\d+).*?\.target[ \t]+(?:sm|compute)_(\d{2,3}[af]?)", re.DOTALL)
_PTX_RELEASE: Final = re.compile(rb"Cuda compilation tools, release (\d+)\.(\d+)")


def _looked_into(image: DeviceImage, content: bytes) -> DeviceImage:
    """The image with what its bytes say; what they do not say stays as the header has it."""
    if len(content) < _LEAST[image.kind]:
        return replace(image, note=f"it has {len(content)} bytes; expected at least {_LEAST[image.kind]}")
    if image.kind == "ptx":
        facts = _PTX_FACTS.search(content[:65536])
        if facts is None:
            return replace(image, note="its .version and .target cannot be read")
        isa = int(facts[1]), int(facts[2])
        made = _PTX_RELEASE.search(content[:4096])
        producer = CudaVersion(int(made[1]), int(made[2])) if made else None
        return replace(image, arch=f"sm_{facts[3].decode()}", ptx_isa=isa, needs=_of_ptx(isa), producer=producer)
    if image.kind == "ltoir":
        version = content[6], content[7]
        needs = needs_for_nvvm_ir(version)
        arch = f"sm_{int.from_bytes(content[26:28], 'little') // 10}"
        producer = None if needs.newer_than or version < min(NVVM_IR.values()) else needs.version
        return replace(image, arch=image.arch or arch, needs=needs, producer=producer)
    return _of_cubin(image, content)


#: Sections of variables, which other code need not see.
_VARIABLES: Final = re.compile(rb"\.nv\.(?:global|constant)")


def _of_cubin(image: DeviceImage, content: bytes) -> DeviceImage:
    seen = inspect(content)
    flags = int.from_bytes(content[48:52], "little")
    suffix = image.suffix
    if noted := _NOTED_ARCH.search(content):
        suffix = suffix or (noted[2].decode() if int(noted[1]) == image.number else "")
    elif content[7] == 51 and flags & 0x800:
        suffix = "a"
    return replace(
        image,
        arch=f"sm_{image.number}{suffix}",
        producer=seen.producer,
        needs=seen.needs or image.needs,
        relocatable=content[16:18] == b"\1\0",  # ET_REL
        virtual_arch=_virtual_arch(content, flags),
        note="; ".join(seen.problems),
        empty=not (seen.problems or seen.text_sections or seen.defined or seen.undefined or _VARIABLES.search(content)),
    )


def _virtual_arch(content: bytes, flags: int) -> str | None:
    """EF_CUDA_VIRTUAL_SM of CUDA 12's cubins; CUDA 13 has it in a note."""
    if content[7] == 51:
        number = flags >> 16 & 0xFF
    else:
        at = content.find(b"\xe8\x03\x00\x00NVIDIA Corp\0")  # the note of type 1000, "cuinfo"
        number = Struct("<HHH").unpack_from(content, at + 16)[1] if 0 <= at <= len(content) - 22 else 0
    return f"sm_{number}" if number else None
