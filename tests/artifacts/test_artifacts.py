"""Looking at images: what they are, and that damage is found before a library sees it."""

import re
import struct
from io import BytesIO
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import given
from hypothesis import strategies as st

from pytest_cudalink.artifacts import inspect, read_words
from pytest_cudalink.versions import CudaVersion, Needs

ARTIFACTS = Path(__file__).parents[1] / "data" / "artifacts"
SAMPLES = {str(path.relative_to(ARTIFACTS)): path.read_bytes() for path in ARTIFACTS.rglob("*") if path.is_file()}
CUBINS = [name for name in SAMPLES if name.endswith(".cubin")]
TOOLKITS = ["12.9", "13.0", "13.2", "13.5"]


@pytest.mark.parametrize("name", SAMPLES)
def test_kind(name: str) -> None:
    """Each sample is what its name says, and sound."""
    kind = {"o": "object", "a": "library"}.get(name.rsplit(".", 1)[1], name.rsplit(".", 1)[1])
    artifact = inspect(SAMPLES[name])
    assert (artifact.kind, artifact.problems, artifact.size) == (kind, (), len(SAMPLES[name]))


@pytest.mark.parametrize("toolkit", TOOLKITS)
@pytest.mark.parametrize("name", ["main.ptx", "main.ltoir", "main.cubin", "linked.cubin", "user-sm_100.cubin"])
def test_producer(toolkit: str, name: str) -> None:
    """PTX, LTO-IR and cubins name the release that made them; so do cubins whose ELF ABI does not."""
    artifact = inspect(SAMPLES[f"{toolkit}/{name}"])
    assert artifact.producer == CudaVersion.parse(toolkit)
    assert artifact.needs == Needs(CudaVersion.parse(toolkit))
    assert artifact.arch == ("sm_100" if "sm_100" in name else "sm_90")


@pytest.mark.parametrize("toolkit", TOOLKITS)
@pytest.mark.parametrize("kind", ["ptx", "cubin"])
def test_symbols(toolkit: str, kind: str) -> None:
    """Kernels, definitions and undefined symbols are those of the source."""
    main, user = (inspect(SAMPLES[f"{toolkit}/{name}.{kind}"]) for name in ("main", "user"))
    assert (main.kernels, main.undefined) == (("apply_transform",), ("user_transform",))
    assert main.defined == ("apply_transform",)
    assert (user.kernels, user.defined, user.undefined) == ((), ("user_transform",), ())
    assert main.relocatable
    linked = inspect(SAMPLES[f"{toolkit}/linked.cubin"])
    assert (linked.relocatable, linked.undefined) == (False, ())
    assert sorted(linked.text_sections) == [".text.apply_transform", ".text.user_transform"]


def test_ptx_facts() -> None:
    """ISA version and target come from the directives, also without NVIDIA's comment."""
    artifact = inspect(b"/* mine */ // really\n.version 8.5 .target sm_80, debug\n.address_size 64\n")
    assert (artifact.ptx_isa, artifact.target, artifact.producer) == ((8, 5), "sm_80", None)
    assert artifact.needs == Needs(CudaVersion(12, 5))
    assert artifact.describe() == "ptx for sm_80, PTX ISA 8.5"


def test_words_of_an_image() -> None:
    """What an emulated driver said of an image, alone and in a container, is described as the image itself."""
    described = {("ptx sm_90 13.0 9.0",): "ptx for sm_90, made by CUDA 13.0", ("tileir damaged",): "tileir"}
    described[("fatbin", "ptx sm_90 13.0 9.0")] = "fatbin for sm_90, made by CUDA 13.0"
    assert {words: read_words(words).describe() for words in described} == described


PTX = b""".version 9.0
.target sm_90
.address_size 64
.extern .func (.param .b32 r) declared (.param .b32 a);
.extern .func later (.param .b32 a);
.extern .global .align 4 .b8 elsewhere[];
.visible .func (.param .b32 r) prototype (.param .b32 a) ;
.visible .func later (.param .b32 a) { ret; }
.weak .func weakling () { ret; }
.func internal () { ret; }
.visible .global .align 4 .b8 table[16] = {1, 2};
.visible .const .f32 scale = 0f3F800000;
// .visible .func commented () { ret; }
.file 1 "" "/a//b/*.visible .func f"
.visible .entry kernel( .param .u64 p ) .maxntid 128, 1, 1 { ret; }
.entry hidden() { ret; } /* .entry no() { ret; } */
.visible .shared .align 8 .u64 $a_9 ;
.visible .func .noreturn stop;
"""


def test_ptx_symbols() -> None:
    """Declarations define nothing; weak and internal symbols do not clash; a later definition resolves an extern."""
    artifact = inspect(PTX)
    assert artifact.kernels == ("kernel", "hidden")
    assert artifact.defined == ("later", "kernel", "table", "scale", "$a_9")
    assert artifact.undefined == ("declared", "elsewhere")


@pytest.mark.parametrize(
    ("name", "leaves", "lto"),
    [
        ("nvcc/user.fatbin", [("cubin", True), ("ptx", True)], False),
        ("nvcc/user-plain.fatbin", [("cubin", False), ("ptx", False)], False),
        ("nvcc/user-lto.fatbin", [("ltoir", True)], True),
        ("nvcc/user.o", [("cubin", True), ("ptx", True)], False),
        ("nvcc/user-lto.o", [("ltoir", True)], True),
        ("nvcc/user.a", [("cubin", True), ("ptx", True)], False),
    ],
)
def test_containers(name: str, leaves: list[tuple[str, bool]], lto: bool) -> None:
    """Fatbins, objects and archives are opened as far as they are not packed."""
    artifact = inspect(SAMPLES[name])
    assert [(leaf.kind, leaf.compressed) for leaf in artifact.leaves] == leaves
    assert artifact.needs_lto is lto
    assert artifact.arch == "sm_90"


def test_uncompressed_parts_are_inspected() -> None:
    """Unpacked parts of a fatbin are checked like separate files."""
    artifact = inspect(SAMPLES["nvcc/user-plain.fatbin"])
    assert artifact.producer == CudaVersion(13, 0)
    damaged = SAMPLES["nvcc/user-plain.fatbin"].replace(b"\x7fELF\x02", b"\x7fELF\x01")
    assert "64-bit" in inspect(damaged).problems[0]


@pytest.mark.parametrize("data", [b"", b"\0", b"hello", b"\x7fEL", b"!<arch>", b"\xed\x43\x4e", b"// only a comment\n"])
def test_unknown(data: bytes) -> None:
    """What no linker reads is said to be so."""
    artifact = inspect(data)
    assert artifact.kind == "unknown"
    assert "not an image that a CUDA linker reads" in artifact.problems[0]
    assert inspect(b".version " + b"9" * 10_000 + b".0\n.target sm_90\n").kind == "unknown"  # no number of a version


def test_takes_bytes_only() -> None:
    """A path is not bytes; the error says what to do."""
    with pytest.raises(TypeError, match="read the file first"):
        inspect("main.ptx")  # type: ignore[arg-type]


@given(st.sampled_from(CUBINS), st.data())
def test_a_truncated_cubin_is_always_found(name: str, data: st.DataObject) -> None:
    """NvJitLink and the driver crash on truncated cubins, so not one length may pass."""
    image = SAMPLES[name]
    cut = data.draw(st.integers(0, len(image) - 1))
    assert inspect(image[:cut]).problems


@given(st.sampled_from(sorted(SAMPLES)), st.data())
def test_damage_never_raises(name: str, data: st.DataObject) -> None:
    """Any bytes of any sample may change; the answer is an Artifact, and its facts can be asked for."""
    image = bytearray(SAMPLES[name])
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(image) - 1))
        image[at] = data.draw(st.integers(0, 255))
    artifact = inspect(image)
    assert isinstance(artifact.describe(), str)
    assert isinstance(artifact.needs_lto, bool)
    assert list(artifact.leaves)


@pytest.mark.parametrize("name", ["nvcc/user.fatbin", "nvcc/user-plain.fatbin", "nvcc/user.o", "nvcc/user.a"])
@given(data=st.data())
def test_a_truncated_container_is_found(name: str, data: st.DataObject) -> None:
    """A container that lost more than padding has a problem."""
    image = SAMPLES[name]
    cut = data.draw(st.integers(0, len(image) - 8))
    assert inspect(image[:cut]).problems


def field(image: bytes, offset: int, layout: str, value: int) -> bytes:
    """The image with one field changed."""
    changed = bytearray(image)
    struct.pack_into(layout, changed, offset, value)
    return bytes(changed)


def section_table(image: bytes) -> int:
    """Where the section headers are."""
    return struct.unpack_from("<Q", image, 40)[0]


CUBIN = SAMPLES["13.0/main.cubin"]
#: The number of sections, which is the first invalid index; where the section headers are; and some of them.
(COUNT,) = struct.unpack_from("<H", CUBIN, 60)
TABLE = section_table(CUBIN)
FIRST, THIRD, FOURTH, RELOCATIONS = (TABLE + 64 * number for number in (1, 3, 4, 12))


@pytest.mark.parametrize(
    ("offset", "layout", "value", "words"),
    [
        (4, "<B", 1, "64-bit"),
        (40, "<Q", 1 << 40, "section table ends at byte"),
        (58, "<H", 40, "section headers of 40 bytes"), (62, "<H", 3, "which is not a string table"),
        (TABLE + 4, "<I", 1, "section 0 has type 1"), (FIRST + 24, "<Q", 1 << 33, "ends at byte"),
        (THIRD + 40, "<I", COUNT, "refers to section"), (THIRD + 56, "<Q", 7, "in entries of 7"),
        (THIRD + 44, "<I", 900, "first global symbol 900"),
        (RELOCATIONS + 44, "<I", COUNT, f"relocates section {COUNT} of {COUNT}"),
        (FOURTH + 44, "<I", COUNT, f"refers to section {COUNT} of {COUNT}"),
        (FOURTH + 48, "<Q", 3, "not a power of two"), (FOURTH + 48, "<Q", 0, "has alignment 0"),
    ],
)  # fmt: skip
def test_damage_is_named(offset: int, layout: str, value: int, words: str) -> None:
    """The problem says which field is wrong."""
    problem = inspect(field(CUBIN, offset, layout, value)).problems[0]
    assert problem.startswith("damaged cubin: ")
    assert words in problem


@pytest.mark.parametrize("align", [3, 6, 0xFFFF])
def test_segments_are_aligned_to_powers_of_two(align: int) -> None:
    """A segment with another alignment is refused; zero and one mean none."""
    image = SAMPLES["13.0/linked.cubin"]
    first = struct.unpack_from("<Q", image, 32)[0]
    (problem,) = inspect(field(image, first + 48, "<Q", align)).problems
    assert f"segment 0 has alignment {align}, not a power of two" in problem
    for none in (0, 1):
        assert inspect(field(image, first + 48, "<Q", none)).problems == ()


def places(image: bytes, name: str) -> dict[str, int]:
    """Where the header of a section is, its content, and the last symbol in it if it is a table of those."""
    elf = ELFFile(BytesIO(image))
    section = elf.get_section_by_name(name)
    header = section_table(image) + 64 * elf.get_section_index(name)
    start, size = section["sh_offset"], section["sh_size"]
    return {"header": header, "content": start, "last symbol": start + size - 24}


@pytest.mark.parametrize("name", ["12.9/user-sm_100.cubin", *(name for name in CUBINS if not name.startswith("12."))])
def test_the_note_that_the_flags_name(name: str) -> None:
    """From ELF ABI 8 on the top byte of e_flags is a section that nvJitLink follows: every other one is refused."""
    image = SAMPLES[name]
    for value in set(range(256)) - {image[51]}:
        assert f"section {value} is the note about CUDA" in inspect(field(image, 51, "<B", value)).problems[0]


@pytest.mark.parametrize("toolkit", TOOLKITS)
@pytest.mark.parametrize(
    ("name", "place", "offset", "layout", "value", "words"),
    [
        (".text.user_transform", "header", 4, "<I", 0, "has type 0x0"),
        (".nv.info.user_transform", "header", 44, "<I", 0, "refers to no section as its code"),
        (".nv.capmerc.text.user_transform", "header", 44, "<I", 1, "which is not a function"),
        (".nv.capmerc.text.user_transform", "header", 24, "<B", 1, "not aligned"),
        (".nv.capmerc.text.user_transform", "content", 0, "<I", 256, "section 256 as its plain code"),
        (".nv.capmerc.text.user_transform", "content", 7, "<B", 0, "has form 0"),
        (".nv.capmerc.text.user_transform", "content", 8, "<I", 1 << 24, "has count 16777216, .text."),
        (".nv.merc.debug_frame", "content", 12, "<Q", 1 << 16, "common information at byte 0x10000"),
        (".nv.merc.rela.debug_frame", "header", 56, "<Q", 7, "in entries of 7"),
        (".nv.merc.rela.debug_frame", "content", 32, "<I", 0x17F02, "frame: entry 1 has relocation type 0x17f02"),
        (".nv.merc.rela.debug_frame", "content", 36, "<I", 0, "refers to no symbol"),
        (".nv.merc.nv.info", "content", 1, "<B", 0, "no register count for user_transform"),
        (".nv.merc.nv.info", "content", 8, "<I", 0, "0 registers for user_transform"),
        (".nv.merc.symtab", "header", 4, "<I", 2, "more than one symbol table"),
        (".nv.merc.symtab", "last symbol", 4, "<B", 0x11, "is not a function"),
        (".nv.merc.symtab", "last symbol", 4, "<B", 0x22, "is not that of .symtab"),
        (".nv.merc.symtab", "last symbol", 6, "<H", 0, "lies in section 0"),
        (".nv.merc.symtab", "last symbol", 8, "<Q", 256, "is not that of .symtab"),
        # nvJitLink dies where the word that says where the count follows has other bits than compilers write
        (".nv.capmerc.text.user_transform", "content", 4, "<I", 0xFFFFFFFF, "1073741823 counts, expected 1"),
        # nvJitLink dies of information about all functions that refers to code
        (".nv.info", "header", 44, "<I", 1, "is about all functions"),
        (".nv.merc.nv.info", "header", 44, "<I", 1, "is about all functions"),
        # nvJitLink prints "unexpected reloc section" for a .debug_frame of another type, and links wrongly
        (".debug_frame", "header", 4, "<I", 0xFF, ".debug_frame has type 0xff"),
        (".nv.merc.debug_frame", "header", 4, "<I", 0xFF, ".nv.merc.debug_frame has type 0xff"),
        (".nv.callgraph", "header", 4, "<I", 0xFF, ".nv.callgraph has type 0xff"),
        (".nv.compat", "header", 4, "<I", 0xFF, ".nv.compat has type 0xff"),
    ],
)
def test_damage_in_mercury_is_named(
    toolkit: str, name: str, place: str, offset: int, layout: str, value: int, words: str
) -> None:
    """The second set of tables, since sm_100, is checked by its own rules and compared with the first."""
    image = SAMPLES[f"{toolkit}/user-sm_100.cubin"]
    at = places(image, name)[place] + offset
    (problem,) = inspect(field(image, at, layout, value)).problems
    assert words in problem


def test_count_of_mercury_whose_meaning_is_not_known() -> None:
    """CUTLASS's kernels count 1.7 for each 16 bytes of code; nvdisasm and nvJitLink take a count of the bytes, too."""
    image = SAMPLES["12.9/user-sm_100.cubin"]
    place = places(image, ".nv.capmerc.text.user_transform")["content"] + 8
    header = places(image, ".text.user_transform")["header"]
    (size,) = struct.unpack_from("<Q", image, header + 32)
    assert inspect(field(image, place, "<I", size)).problems == ()
    assert inspect(field(image, place, "<I", size + 1)).problems


def test_linked_mercury_of_another_form() -> None:
    """No linker reads it, so that nothing of it can be wrong: that of cuBLAS has form 0, and larger counts."""
    linked = field(SAMPLES["13.0/user-sm_100.cubin"], 16, "<H", 2)  # ET_EXEC
    place = places(linked, ".nv.capmerc.text.user_transform")["content"]
    for offset, value in ((4, 0x1915), (8, 0xFFFFFFFF)):
        assert inspect(field(linked, place + offset, "<I", value)).problems == ()
    assert "section 256 as its plain code" in inspect(field(linked, place, "<I", 256)).problems[0]


def test_tables_of_names_without_alignment() -> None:
    """The ELF specification lets 0 mean 1, and cuBLAS 12 and cuDNN 9 have cubins with it."""
    image = SAMPLES["12.9/user.cubin"]
    for name in (".shstrtab", ".strtab"):
        image = field(image, places(image, name)["header"] + 48, "<Q", 0)
    assert inspect(image).problems == ()


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (SAMPLES["13.0/main.ltoir"][:20], "LTO-IR header"),
        (SAMPLES["13.0/main.ltoir"][:-1], "32-bit words"),
        (field(SAMPLES["13.0/main.ltoir"], 16, "<I", 2516), "code starts at byte 2516, the image has 2516"),
        (field(SAMPLES["nvcc/user.fatbin"], 24, "<Q", 1 << 20), "entry ends at byte 1048640, the image has 1256"),
        (field(SAMPLES["12.9/main.cubin"], 49, "<B", 0x45), "damaged cubin: .*no CUDA release sets 0x4000"),
        (field(CUBIN, places(CUBIN, ".rela.text.apply_transform")["header"] + 56, "<Q", 7), "in entries of 7"),
        (b".version 9.0\n.target sm_90\n\0.visible", "NUL at byte"),
        (b".version 9.0\n", "no .target"),
        (SAMPLES["nvcc/user.o"].replace(b"__nv_relfatbin", b"__no_relfatbin"), "host object without device code"),
        (SAMPLES["nvcc/user.a"].replace(b"__nv_relfatbin", b"__no_relfatbin"), "^damaged library: library without"),
        (b"\x7fELF".ljust(18, b"\0") + b"\xbe\x01", "^damaged object"),  # the number of CUDA's machine is 0xbe
    ],
    ids=["header", "word", "code", "payload", "flags", "relocations", "nul", "target", "object", "library", "machine"],
)
def test_damage_of_other_kinds_is_named(image: bytes, words: str) -> None:
    """What ends inside a header, lacks what a linker needs, or has what no release writes is not passed on."""
    assert re.search(words, inspect(image).problems[0])


def test_ltoir_that_may_be() -> None:
    """A number after the table is "newer than" the last release, and has no producer; a lost word finds the linker."""
    artifact = inspect(field(SAMPLES["13.2/main.ltoir"], 7, "<B", 250))
    assert (artifact.producer, artifact.needs) == (None, Needs(CudaVersion(13, 5), newer_than=True))
    assert inspect(SAMPLES["13.0/main.ltoir"][:-4]).problems == ()


TILE = SAMPLES["tile/add-13.5.tileir"]


@pytest.mark.parametrize("version", ["13.1", "13.3", "13.5"])
def test_tile_ir(version: str) -> None:
    """Bytecode of CUDA Tile has the number of the release whose tileiras reads it, and no architecture."""
    artifact = inspect(SAMPLES[f"tile/add-{version}.tileir"])
    assert (artifact.needs, artifact.arch, artifact.producer) == (Needs(CudaVersion.parse(version)), None, None)
    assert artifact.describe() == f"tileir, for tileiras of CUDA {version}"


@pytest.mark.parametrize("name", ["add", "add-plain"])
def test_tile_ir_in_a_fatbin(name: str) -> None:
    """An entry that nvFatbin added has the version of its bytecode also where it is packed, and no architecture."""
    (part,) = inspect(SAMPLES[f"tile/{name}.fatbin"]).parts
    assert (part.kind, part.needs, part.arch, part.problems) == ("tileir", Needs(CudaVersion(13, 3)), None, ())
    assert part.compressed == (name == "add")


@pytest.mark.parametrize(("major", "minor"), [(13, 255), (14, 0)])
def test_tile_ir_that_no_known_release_reads(major: int, minor: int) -> None:
    """A version that is not known yet is newer than the last known one."""
    artifact = inspect(field(TILE, 8, "<H", minor << 8 | major))
    assert artifact.problems == ()
    assert artifact.needs is not None
    assert artifact.needs.newer_than
    assert artifact.describe().startswith("tileir, for tileiras newer than CUDA 13.")


def test_a_cubin_of_tileiras() -> None:
    """It is a cubin as others are, with its kernel."""
    artifact = inspect(SAMPLES["tile/add.cubin"])
    assert (artifact.kernels, artifact.arch, artifact.relocatable) == (("add",), "sm_90", False)


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (TILE[:11], "Tile IR header ends at byte 12, the image has 11"),
        (TILE[:7] + b"\1" + TILE[8:], "does not end with NUL"),
        (field(TILE, 8, "<H", 13), "of version 13.0; the first one is 13.1"),
        (field(TILE, 10, "<H", 2), "unknown version tag 0x2"),
        (field(TILE, 14, "<B", 3), "at byte 12 is aligned to 3 bytes"),
        (TILE[:13] + b"\xff" * 9 + TILE[22:], "at byte 12 has no whole header"),
        (TILE[:13], "at byte 12 has no whole header"),
        (TILE[:300], "Tile IR section at byte"),
        (TILE[:-1], "without the byte that ends it"),
        (TILE[:12] + b"\0", "without a section of strings"),
        (TILE + b"\0\0x", f"byte {len(TILE) + 2} stands behind the end"),
    ],
)
def test_damaged_tile_ir(image: bytes, words: str) -> None:
    """Tileiras 13.5 refuses each of these, too (measured 2026-11-24)."""
    (problem,) = inspect(image).problems
    assert problem.startswith("damaged tileir: ")
    assert words in problem


def test_tile_ir_that_may_be() -> None:
    """The mark of a preview, and the zeros that a fatbin pads with, are no damage."""
    assert inspect(field(TILE, 10, "<H", 1)).problems == ()
    assert inspect(TILE + bytes(7)).problems == ()


@pytest.mark.parametrize(
    ("tail", "words"),
    [
        (b"/*", "comment at byte 27 that does not end"),
        (b"/* " * 1_000_000, "comment at byte 27 that does not end"),
        (b".visible .func (.param .b32 r) f (.param .b32 a)", "ends in the head of .func f"),
        (b".func a " * 200_000, "ends in the head of .func a"),
        (b".visible .global .align 4 .b8 table", "ends in the declaration of a .visible variable"),
        (b".visible .global " + b"a" * 200_000, "ends in the declaration of a .visible variable"),
        (b".extern .global " + b"a " * 200_000, "ends in the declaration of a .extern variable"),
    ],
    ids=["comment", "comments", "function", "functions", "variable", "name", "names"],
)
def test_ptx_that_ends_inside(tail: bytes, words: str) -> None:
    """Text that ends too early is found in one pass: trying every place again takes hours for these."""
    assert words in inspect(b".version 9.0\n.target sm_90\n" + tail).problems[0]


@pytest.mark.parametrize("tail", [b".func" + b" " * 1_000_000, b".func (" * 200_000, b"// " * 500_000])
def test_ptx_of_nothing_but_beginnings(tail: bytes) -> None:
    """Beginnings that declare nothing are passed over once."""
    assert inspect(b".version 9.0\n.target sm_90\n" + tail).problems == ()
