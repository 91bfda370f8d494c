"""What is read off the bytes of device code: fatbins, cubins, LTO-IR and PTX that are made or changed by hand."""

import struct
import sys
from importlib import import_module
from io import BytesIO
from pathlib import Path

import lz4.block
import pytest
import zstandard
from elftools.elf.elffile import ELFFile

from pytest_cudalink.audit.device_code import DeviceImage, UnreadImage, all_images, images, scan
from pytest_cudalink.audit.device_code.images import _of_ltoir
from pytest_cudalink.compat.releases import NVVM_IR, needs_for_ptx_isa
from pytest_cudalink.versions import CudaVersion, Needs

module = import_module("pytest_cudalink.audit.device_code.images")
DATA = Path(__file__).parents[1] / "data" / "artifacts"
OLD, NEW = ((DATA / release / "user.cubin").read_bytes() for release in ("12.9", "13.0"))
PTX = b".version 8.4\n.target sm_80\n.address_size 64\n"
CUBIN, LTOIR, TEXT = 2, 8, 1
LZ4, ZSTD, SPECIFIC, FAMILY = 0x2000, 0x8000, 0x10_0000, 0x20_0000
OF_13 = Needs(CudaVersion(13, 0))


def entry(
    kind: int, payload: bytes, *, arch: int = 80, version: tuple[int, int] = (1, 8), flags: int = 0, size: int = 0
) -> bytes:
    """An entry of a fatbin; `size` is that of the unpacked payload, and the version that of PTX or of the format."""
    numbers = (kind, 0x101, 64, len(payload), len(payload), 0, version[1], version[0], arch, 0, 0, flags, 0, size)
    return struct.pack("<HHIQIIHHIIIQQQ", *numbers) + payload


def fatbin_of(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return scan.MAGIC + struct.pack("<HHQ", 1, 16, len(body)) + body


def packed(content: bytes) -> bytes:
    """An entry of PTX in a zstd frame."""
    return entry(TEXT, zstandard.compress(content), version=(8, 0), flags=ZSTD, size=len(content))


def ltoir(arch: int = 900, version: tuple[int, int] = (2, 1), length: int = 64) -> bytes:
    """The header of LTO-IR, of a version of NVVM IR."""
    return b"\xed\x43\x4e\x7f\x01\x41" + bytes(version) + bytes(8) + struct.pack("<I6sH", length, b"\1" * 6, arch)


class Read:
    """Reads bytes as the only file of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def everything(self, content: bytes, name: str = "x.bin") -> list[DeviceImage | UnreadImage]:
        file = self.folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content)
        return list(all_images(self.folder))

    def image(self, content: bytes, name: str = "x.bin") -> DeviceImage:
        (image,) = self.everything(content, name)
        assert isinstance(image, DeviceImage)
        return image


@pytest.fixture
def read(tmp_path: Path) -> Read:
    return Read(tmp_path)


def test_what_an_image_is_without_more() -> None:
    """The defaults say nothing, and its bytes are not shown."""
    image = DeviceImage("x", "ptx", "sm_90a")
    assert image == DeviceImage("x", "ptx", "sm_90a", None, None, None, False, None, "", 0, 0, None, None, "")
    assert (image.number, image.suffix, DeviceImage("x", "ptx", "").number) == (90, "a", 0)
    assert "secret" not in repr(DeviceImage("x", "ptx", "", data=b"secret"))


# -- pieces, and entries of fatbins

WHOLE = fatbin_of(entry(TEXT, PTX))


@pytest.mark.parametrize(
    ("content", "size"),
    [
        (WHOLE, len(WHOLE)), (fatbin_of(entry(99, b"")), 16 + 64), (fatbin_of(b""), 0),
        (WHOLE[:-1], 0),  # it ends in its entry
        (WHOLE[:31], 0),
        (WHOLE[:4] + b"\2" + WHOLE[5:], 0),  # another version of the fatbin
        (WHOLE[:6] + b"\x0f" + WHOLE[7:], 0),  # another size of its header
        (WHOLE[:16] + b"\0" + WHOLE[17:], 0),  # an entry of no kind
        (WHOLE[:19] + b"\2" + WHOLE[20:], 0),  # another version of the entry
        (WHOLE[:20] + b"\x3f" + WHOLE[21:], 0),  # an entry whose header is too short, and one that is too long
        (WHOLE[:20] + struct.pack("<I", len(WHOLE) - 15) + WHOLE[24:], 0),
        (WHOLE[:20] + struct.pack("<I", len(WHOLE) - 16) + WHOLE[24:], len(WHOLE)),
        (WHOLE[:8] + struct.pack("<Q", 63) + WHOLE[16:], 0),
    ],
)  # fmt: skip
def test_fatbins(content: bytes, size: int) -> None:
    """A fatbin is one that is whole, and whose first entry can be one, wherever it lies."""
    assert scan.fatbin_size(content, 0) == size
    assert scan.fatbin_size(b"data" + content, 4) == size
    assert [piece.size for piece in scan.pieces(b"data" + content, text=False)] == ([size] if size else [])


def test_entries() -> None:
    """Each entry with what its header says; those of other kinds are passed over, and what is no entry is named."""
    rows = [(TEXT, 0, 9), (CUBIN, LZ4 | SPECIFIC, 3), (LTOIR, ZSTD | FAMILY | 0x1_0000, 9), (7, 0, 3), (128, 0, 3)]
    whole = fatbin_of(*[entry(kind, b"0123456789", flags=flags, size=1000) for kind, flags, _ in rows])
    content = bytearray(whole)
    for number, (*_, used) in enumerate(rows):
        struct.pack_into("<I", content, 16 + 74 * number + 16, used)
    entries = list(scan.entries(memoryview(content)))
    assert [(e.kind, e.arch, e.version, e.packing, e.scrambled, len(e.payload)) for e in entries] == [
        ("ptx", "sm_80", (1, 8), "", False, 10), ("cubin", "sm_80a", (1, 8), "lz4", False, 3),
        ("ltoir", "sm_80f", (1, 8), "zstd", True, 9), ("tileir", "sm_80", (0, 1), "", False, 10),
    ]  # fmt: skip
    assert {entry.size for entry in entries} == {1000}
    struct.pack_into("<I", content, 16 + 74 + 16, 11)  # more of it is packed than it has
    assert [len(entry.payload) for entry in scan.entries(memoryview(content))][1] == 10
    for cut, said in (
        (74 - 63, "the fatbin ends in the entry at byte 312"),
        (1, "the fatbin entry at byte 312 has a "),
    ):
        with pytest.raises(ValueError, match=said):
            list(scan.entries(memoryview(content)[:-cut]))
    (alone,) = scan.entries(memoryview(fatbin_of(entry(128, b"", version=(0xD01, 0)))))
    assert (alone.version, len(alone.payload)) == ((13, 1), 0)
    struct.pack_into("<I", content, 20, 63)
    with pytest.raises(ValueError, match="byte 16 has a header of 63 bytes and 10 more, which end behind it"):
        list(scan.entries(memoryview(content)))


@pytest.mark.parametrize(
    ("flags", "size", "without", "note"),
    [
        (ZSTD | 0x1_0000, 4, "", "its packed bytes are scrambled"),
        (ZSTD, 1001, "", "it would become 1001 bytes; expected at most 1000"),
        (ZSTD, 1000, "zstandard", "the package zstandard is not installed (pytest-cudalink[audit])"),
        (LZ4, 1000, "lz4.block", "the package lz4 is not installed (pytest-cudalink[audit])"),
        (ZSTD, 1000, "", ""), (LZ4, 1000, "", ""), (0, 0, "", ""),
    ],
)  # fmt: skip
def test_what_stays_packed(flags: int, size: int, without: str, note: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is named; what can be unpacked is the same however it was packed."""
    content = bytes(1000)
    packer = zstandard.compress if flags & ZSTD else lz4.block.compress if flags & LZ4 else bytes
    payload = packer(content, **({"store_size": False} if flags & LZ4 else {}))
    monkeypatch.setattr(scan, "MOST_UNPACKED", 1000)
    if without:
        monkeypatch.setitem(sys.modules, without, None)
    (piece,) = scan.entries(memoryview(fatbin_of(entry(CUBIN, payload, flags=flags, size=size))))
    assert scan.unpacked(piece) == (None if note else content, note)


def tileir(*head: int) -> bytes:
    return b"\x7fTileIR\0" + bytes(head)


@pytest.mark.parametrize(
    ("content", "form"),
    [
        *[(ltoir(version=(version, 1)), "ltoir" if 1 <= version <= 9 else None) for version in (0, 1, 9, 10)],
        *[(ltoir(length=length), "ltoir" if 40 <= length <= 4096 else None) for length in (39, 40, 4096, 4097)],
        *[(ltoir(arch=arch), "ltoir" if 500 <= arch <= 2000 else None) for arch in (499, 500, 2000, 2001)],
        (ltoir()[:27], None), (ltoir()[:6], None),
        *[(tileir(major, 1, 1, 0), "tileir" if 13 <= major <= 99 else None) for major in (12, 13, 99, 100)],
        (tileir(13, 1, 0, 0), "tileir"), (tileir(13, 1, 2, 0), None), (tileir(13, 1, 0, 1), None),
        (tileir(13, 1, 1), None), (PTX, "ptx"), (PTX[1:], None), (b".version 8.4\n.func", None),
        (NEW, "cubin"),
        (NEW[:18] + b"\x3e" + NEW[19:], None),  # for x86-64
        (NEW[:63], None),
    ],
)  # fmt: skip
def test_pieces(content: bytes, form: str | None) -> None:
    """Each form by its header; only a whole file has a known end, where the header does not say it."""
    alone, inside = (list(scan.pieces(before + content, text=True)) for before in (b"", b"data"))
    assert [(piece.form, piece.at) for piece in alone + inside] == ([(form, 0), (form, 4)] if form else [])
    if form:
        assert [piece.size for piece in alone + inside] == [
            len(content), 0 if form in ("ltoir", "tileir") else len(content),
        ]  # fmt: skip
    assert bool(list(scan.pieces(content, text=False))) is (form not in ("ptx", None))


def test_windows_lose_nothing(monkeypatch) -> None:
    """What lies across the border of two windows is found once, and what begins inside of something else is not."""
    content = b"".join(
        (bytes(3), fatbin_of(entry(CUBIN, NEW)), b"x", PTX, bytes(2), ltoir(), OLD, scan.MAGIC[:2], bytes(3), PTX)
    )
    whole = list(scan.pieces(content, text=True))
    assert [piece.form for piece in whole] == ["fatbin", "ptx", "ltoir", "cubin", "ptx"]
    for window in (*range(1, 70), 700, len(content) - 1, len(content)):
        monkeypatch.setattr(scan, "_WINDOW", window)
        assert list(scan.pieces(content, text=True)) == whole


def test_end_of_a_cubin() -> None:
    """That of its last table; a file that begins as one is one, and so is the rest where a table ends behind it."""
    segments = NEW[:32] + struct.pack("<Q", 3000) + NEW[40:54] + struct.pack("<HH", 56, 10) + NEW[58:]
    for content, end in (
        (NEW, len(NEW)),
        (segments.ljust(5000), 3560),
        (NEW[:40] + bytes(8) + NEW[48:60] + bytes(4), 64),
    ):
        more = content.ljust(5000, b"\1")
        assert [piece.size for piece in scan.pieces(more, text=False)] == [5000]
        assert [piece.size for piece in scan.pieces(b"data" + more, text=False)] == [end]
        cut = more[: end - 1]
        assert [piece.size for piece in scan.pieces(b"data" + cut, text=False)] == ([end - 1] if end > 64 else [])


def archive(*members: bytes) -> bytes:
    """An archive of objects, each at an even place."""
    heads = [str(len(member)).ljust(10).encode().rjust(58) + b"`\n" for member in members]
    bodies = [member + b"\n" * (len(member) % 2) for member in members]
    return b"!<arch>\n" + b"".join(head + body for head, body in zip(heads, bodies, strict=True))


def dll(*sections: tuple[bytes, int, int]) -> bytes:
    """The headers of a DLL, with name, place and size of its sections."""
    rows = b"".join(struct.pack("<8sIIII16x", name, 0, 0, size, at) for name, at, size in sections)
    return b"MZ".ljust(60) + struct.pack("<I4sHHIIIHH8x", 64, b"PE\0\0", 0, len(sections), 0, 0, 0, 8, 0) + rows


def test_names_of_sections() -> None:
    """Of an ELF file, of those in an archive, and of a DLL; sections without bytes in the file have no place."""
    rows = [s for s in ELFFile(BytesIO(NEW)).iter_sections() if s["sh_type"] != "SHT_NOBITS" and s["sh_size"]]
    ends = [row["sh_offset"] + row["sh_size"] for row in rows]
    alone = scan.Sections(NEW)
    assert [alone.name_at(row["sh_offset"]) for row in rows] == [row.name for row in rows]
    assert [alone.name_at(end - 1) for end in ends] == [row.name for row in rows]
    assert [alone.name_at(place) for place in (0, len(NEW))] == ["", ""]
    index = [section.name for section in ELFFile(BytesIO(NEW)).iter_sections()].index(rows[0].name)
    empty = bytearray(NEW)
    empty[struct.unpack_from("<Q", NEW, 40)[0] + 64 * index + 4] = 8  # SHT_NOBITS
    assert scan.Sections(bytes(empty)).name_at(rows[0]["sh_offset"]) == ""
    (table, count) = struct.unpack_from("<Q", NEW, 40)[0], struct.unpack_from("<H", NEW, 60)[0]
    lying = NEW[:40] + struct.pack("<Q", len(NEW) + 60 + table) + NEW[48:]  # its table is that of the next member
    cut = NEW[: table + 64 * count - 1]
    for members in ((b"text", NEW), (b"odd", NEW), (b"12345", NEW), (NEW, b"odd"), (lying, NEW), (cut, NEW)):
        whole = archive(*members)
        assert members[0] not in (lying, cut) or scan.Sections(whole).name_at(68 + rows[0]["sh_offset"]) == ""
        start = whole.index(NEW)
        sections = scan.Sections(whole)
        assert [sections.name_at(start + row["sh_offset"]) for row in rows] == [row.name for row in rows]
        assert sections.name_at(start - 1) == ""
    assert scan.Sections(archive(NEW).replace(str(len(NEW)).encode(), b"?" * 4)).name_at(200) == ""
    sections = scan.Sections(dll((b".rdata", 300, 20), (b".nv_fatb", 200, 100), (b"\xe4", 400, 1)))
    assert [sections.name_at(place) for place in (199, 200, 299, 300, 319, 320, 400)] == [
        "", ".nv_fatb", ".nv_fatb", ".rdata", ".rdata", "", "\xe4",
    ]  # fmt: skip
    assert scan.Sections(dll((b".rdata", 0, 100)).replace(b"PE\0\0", b"NE\0\0")).name_at(50) == ""


# -- files


@pytest.mark.parametrize("name", ["x.ptx", "X.CUBIN", "x.fatbin", "x.ltoir", "x.bin", "ptx"])
@pytest.mark.parametrize("content", [b"", b"nothing"])
def test_files_that_promise_device_code(name: str, content: bytes, read: Read) -> None:
    """A file whose name promises device code and that has none is a fault; no other file has to have some."""
    fault = UnreadImage(name, "has no device code that can be read; expected some, as its name says: build it again")
    assert read.everything(content, name) == ([fault] if "." in name and name != "x.bin" else [])
    assert read.image(PTX, name).arch == "sm_80"


@pytest.mark.parametrize(
    ("name", "counts"), [("a.py", True), ("a", True), ("v1.2/md", True), ("a.MD", False), ("a.ptx.txt", False)]
)
def test_names_of_documents(name: str, counts: bool, read: Read) -> None:
    assert bool(read.everything(PTX, name)) is counts


def test_groups_and_places(read: Read) -> None:
    """Images of one fatbin are a group, all loose ones another; each has its place, and a linker gets LTO-IR first."""
    whole = fatbin_of(entry(TEXT, PTX), entry(LTOIR, ltoir()))
    listed = read.everything(b"data" + whole + NEW + whole + PTX)
    second = 4 + len(whole) + len(NEW)
    assert [(image.kind, image.at, image.group, image.relocatable) for image in listed] == [
        ("ptx", 4, 1, None), ("ltoir", 4, 1, True), ("cubin", 4 + len(whole), 0, True),
        ("ptx", second, 2, None), ("ltoir", second, 2, True), ("ptx", second + len(whole), 0, None),
    ]  # fmt: skip


def test_too_many_images(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    """The images up to a bound are read, and the rest is named."""
    monkeypatch.setattr(module, "_MOST_IMAGES", 2)
    whole = fatbin_of(*[entry(TEXT, PTX)] * 2)
    assert len(read.everything(whole)) == 2
    listed = read.everything(whole + whole)
    assert [type(image) for image in listed] == [DeviceImage, DeviceImage, UnreadImage]
    assert listed[-1] == UnreadImage("x.bin", "has more than 2 images; the rest was not read")


def test_how_far_a_file_is_unpacked(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    """To a bound, or to a multiple of its size; what just fits is unpacked, and what is not packed always is."""
    content = PTX.ljust(4000)
    whole = fatbin_of(packed(content), packed(content), entry(TEXT, PTX))
    for least, ratio, first, second in (
        (8000, 0, True, True),
        (7999, 0, True, False),
        (3999, 0, False, False),
        (0, -(-8000 // len(whole)), True, True),
        (0, 4000 // len(whole), False, False),
    ):
        monkeypatch.setattr(module, "_LEAST_UNPACKED", least)
        monkeypatch.setattr(module, "_MOST_RATIO", ratio)
        listed = read.everything(whole)
        assert [image.data is not None for image in listed] == [first, second, True], (least, ratio)
        assert {i.note for i in listed if i.data is None} <= {"the images of this file would become too large"}
    damaged = fatbin_of(packed(content).replace(b"\x28\xb5\x2f\xfd", bytes(4)), packed(content))
    monkeypatch.setattr(module, "_LEAST_UNPACKED", 4000)
    assert [image.data is not None for image in read.everything(damaged)] == [False, True]


def test_what_headers_say(read: Read) -> None:
    """Nothing is unpacked where there is no room; faults are no images."""
    whole = fatbin_of(packed(PTX), entry(TEXT, PTX, version=(8, 0)))
    (read.folder / "empty.ptx").touch()
    assert len(read.everything(whole)) == 3
    assert [image.kind for image in images(read.folder)] == ["ptx", "ptx"]
    first, second = module.in_file("x.bin", whole, room=0)
    assert (first.arch, first.ptx_isa, first.packed, first.data, first.note) == ("sm_80", (8, 0), True, None, "")
    assert first.needs == needs_for_ptx_isa((8, 0))
    assert (second.ptx_isa, second.packed, second.data) == ((8, 4), False, PTX)


# -- images


@pytest.mark.parametrize(
    ("arch", "version", "needs"),
    [(90, (1, 8), OF_13), (99, (1, 8), OF_13), (90, (1, 7), None), (100, (1, 8), None), (120, (1, 8), None)],
)
def test_form_of_a_packed_cubin(arch: int, version: tuple[int, int], needs: Needs | None, read: Read) -> None:
    """CUDA 13 writes another form, which CUDA 12 writes from sm_100 on, too."""
    image = read.image(fatbin_of(entry(CUBIN, b"?", arch=arch, version=version, flags=ZSTD, size=1000)))
    assert (image.kind, image.arch, image.needs, image.packed) == ("cubin", f"sm_{arch}", needs, True)
    assert image.note.startswith("it cannot be unpacked: ")
    short = read.image(fatbin_of(entry(CUBIN, NEW[:64], arch=89, flags=SPECIFIC)))  # which its bytes do not say
    assert (short.arch, short.needs, short.data) == ("sm_89a", OF_13, NEW[:64])


@pytest.mark.parametrize(
    ("number", "needs"),
    [
        (1, Needs(CudaVersion(12, 0))), (57, Needs(CudaVersion(12, 0))), (58, Needs(CudaVersion(12, 0))),
        (62, Needs(CudaVersion(12, 6))), (63, Needs(CudaVersion(12, 6))), (67, Needs(CudaVersion(13, 3))),
        (99, Needs(CudaVersion(13, 3), newer_than=True)),
    ],
)  # fmt: skip
def test_formats_of_ltoir(number: int, needs: Needs, read: Read) -> None:
    """Packed LTO-IR names its format, which an interval of releases writes."""
    assert _of_ltoir(number) == needs
    image = read.image(fatbin_of(entry(LTOIR, b"?", version=(1, number), flags=ZSTD)))
    assert (image.kind, image.arch, image.needs, image.relocatable) == ("ltoir", "sm_80", needs, True)


def test_loose_ltoir(read: Read) -> None:
    """A file of LTO-IR is one image; in other bytes only its header is known. A fatbin names the architecture."""
    head = ltoir(arch=1030)
    whole = head + b"\1" * 100
    alone = read.image(whole)
    assert (alone.kind, alone.arch, alone.data, alone.note) == ("ltoir", "sm_103", whole, "")
    inside = read.image(b"data" + head + bytes(100))
    assert (inside.arch, inside.data, inside.note) == (
        "sm_103", None, "LTO-IR has no length, so that its end is not known",
    )  # fmt: skip
    assert read.image(fatbin_of(entry(LTOIR, head, arch=90, flags=SPECIFIC))).arch == "sm_90a"


@pytest.mark.parametrize(
    ("version", "needs", "producer"),
    [
        ((2, 50), Needs(CudaVersion(12, 0)), None),
        ((2, 51), Needs(CudaVersion(12, 0)), CudaVersion(12, 0)),
        ((2, 98), Needs(CudaVersion(13, 0)), CudaVersion(13, 0)),
        ((9, 9), Needs(max(NVVM_IR), newer_than=True), None),
    ],
)
def test_versions_of_ltoir(version: tuple[int, int], needs: Needs, producer: CudaVersion | None, read: Read) -> None:
    """A version of NVVM IR that no table knows names no release that made it."""
    image = read.image(ltoir(version=version))
    assert (image.producer, image.needs) == (producer, needs)


FACTS = b".version 8.4\n.target sm_80"
COMPILER = b"Cuda compilation tools, release 12.6"
COMMENT = b"// " + COMPILER + b", V12.6.20\n\n"


@pytest.mark.parametrize(
    ("before", "kept"),
    [
        (COMMENT, COMMENT), (b"data\0" + COMMENT, COMMENT), (b"data\n" + COMMENT, b"\n" + COMMENT),
        (b"/" * 1020 + b"\0\n\r\n", b"\n\r\n"), (b"data", b""), (b"//" + b"x" * 1100 + b"\n", b"\n"),
    ],
)  # fmt: skip
def test_comment_before_ptx(before: bytes, kept: bytes, read: Read) -> None:
    """PTX begins with the comment that names its compiler, of which a kilobyte is read."""
    image = read.image(before + PTX + b"\0data")
    assert image.data == kept + PTX
    assert image.at == len(before)
    assert image.producer == (CudaVersion(12, 6) if COMMENT in before else None)
    assert (image.arch, image.ptx_isa, image.needs) == ("sm_80", (8, 4), needs_for_ptx_isa((8, 4)))


def test_most_of_a_loose_image(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a bound is not kept of PTX, nor of a cubin."""
    monkeypatch.setattr(scan, "MOST_UNPACKED", 1000)
    assert len(read.image(PTX.ljust(5000)).data) == 1000
    assert len(read.image(NEW).data) == 1000


def test_ptx_that_cannot_be_read(read: Read) -> None:
    """What the header of the entry says remains; NULs behind PTX are no part of it, and those behind a cubin are."""
    image = read.image(fatbin_of(entry(TEXT, b"version 8.0\0\0", version=(8, 4), arch=90)))
    assert (image.arch, image.ptx_isa, image.data) == ("sm_90", (8, 4), b"version 8.0")
    assert image.note == "its .version and .target cannot be read"
    for more, note in ((0, ""), (1, "its .version and .target cannot be read")):
        far = b"//".ljust(65536 - len(FACTS) + more) + FACTS
        assert read.image(fatbin_of(entry(TEXT, far))).note == note
    for more, producer in ((0, CudaVersion(12, 6)), (1, None)):
        far = b"//".ljust(4096 - len(COMPILER) + more) + COMPILER + b"\n" + PTX
        assert read.image(fatbin_of(entry(TEXT, far))).producer == producer
    assert read.image(fatbin_of(entry(CUBIN, NEW + bytes(8)))).data == NEW + bytes(8)
    assert read.image(fatbin_of(entry(TEXT, PTX.replace(b"sm_80", b"compute_100f")))).arch == "sm_100f"


def changed(cubin: bytes, flags: int, *, more: bytes = b"", kind: int = 1) -> bytes:
    """A cubin with other flags and another type; more bytes stand behind it."""
    return cubin[:16] + struct.pack("<H", kind) + cubin[18:48] + struct.pack("<I", flags) + cubin[52:] + more


@pytest.mark.parametrize(
    ("cubin", "arch", "virtual"),
    [
        (changed(OLD, 0x5A055A), "sm_90", "sm_90"), (changed(OLD, 0x50055A), "sm_90", "sm_80"),
        (changed(OLD, 0x00055A), "sm_90", None), (changed(OLD, 0x590559), "sm_89", "sm_89"),
        (changed(OLD, 0x5A0D5A), "sm_90a", "sm_90"),  # the flag for "a"
        (changed(NEW, 0x6005A04), "sm_90", "sm_90"), (changed(NEW, 0x6007804), "sm_120", "sm_90"),
        (changed(NEW, 0x6005A04 | 0x800), "sm_90", "sm_90"),
        (changed(NEW.replace(b"-arch sm_90 ", b"-arch sm_90a"), 0x6005A04), "sm_90a", "sm_90"),
        (changed(NEW.replace(b"-arch sm_90 ", b"-arch sm_90f"), 0x6005A04), "sm_90f", "sm_90"),
        (changed(NEW.replace(b"-arch sm_90 ", b"-arch sm_89a"), 0x6005A04), "sm_90", "sm_90"),
        (changed(NEW.replace(b"NVIDIA Corp\0", b"NVIDIA Cor.\0"), 0x6005A04), "sm_90", None),
    ],
)  # fmt: skip
def test_architecture_of_a_cubin(cubin: bytes, arch: str, virtual: str | None, read: Read) -> None:
    """By its flags, whose places CUDA 13 has moved, and by the options in its notes."""
    image = read.image(cubin)
    assert (image.arch, image.virtual_arch) == (arch, virtual)


def test_architectures_of_a_cubin_in_a_fatbin(read: Read) -> None:
    """The header of the entry goes before the notes of the cubin, which are read as long as their bytes are there."""
    for text in (b"-arch sm_90 ", b"-arch sm_90a"):
        cubin = NEW.replace(b"-arch sm_90 ", text)
        assert read.image(fatbin_of(entry(CUBIN, cubin, arch=90, flags=FAMILY))).arch == "sm_90f"
    note = b"\xe8\x03\x00\x00NVIDIA Corp\0" + struct.pack("<HHH", 2, 75, 0)
    without = NEW.replace(b"NVIDIA Corp\0", b"NVIDIA Cor.\0")
    whole = [fatbin_of(entry(CUBIN, without + note[: len(note) - cut])) for cut in (0, 1)]
    assert [read.image(image).virtual_arch for image in whole] == ["sm_75", None]


def test_what_a_cubin_is(read: Read) -> None:
    """A relocatable one must be linked first; its maker, what it needs, and its problem are those of the inspection."""
    kinds = {1: True, 2: False, 0x101: False}
    assert {kind: read.image(changed(NEW, 0x6005A04, kind=kind)).relocatable for kind in kinds} == kinds
    image = read.image(NEW)
    assert (image.producer, image.needs, image.note) == (CudaVersion(13, 0), OF_13, "")
    cut = read.image(fatbin_of(entry(CUBIN, NEW[:1500], arch=90)))
    assert cut.note == "damaged cubin: section table ends at byte 1984, the image has 1500"
