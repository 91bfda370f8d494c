"""Damage that killed nvJitLink although the earlier checks passed it, and sound images that look like it."""

import struct
from io import BytesIO

import pytest
from elftools.elf.elffile import ELFFile

from pytest_cudalink.artifacts import inspect

from .test_artifacts import SAMPLES, TOOLKITS, section_table
from .test_artifacts import field as changed


def header_of(image: bytes, name: str) -> int:
    """Where the header of a section is."""
    return section_table(image) + 64 * ELFFile(BytesIO(image)).get_section_index(name)


def content_of(image: bytes, name: str) -> tuple[int, int]:
    """Where the bytes of a section are, and how many."""
    section = ELFFile(BytesIO(image)).get_section_by_name(name)
    return section["sh_offset"], section["sh_size"]


def the_problem(image: bytes) -> str:
    """The only problem of an image."""
    (problem,) = inspect(image).problems
    return problem


def test_a_section_grows_over_its_neighbour() -> None:
    """NvJitLink 13.0 died of a .nv.info whose size reaches into the next section."""
    image = changed(SAMPLES["13.0/user.cubin"], 2400, "<Q", 0x30)
    assert ".nv.info and .nv.compat overlap at byte" in the_problem(image)


@pytest.mark.parametrize("toolkit", TOOLKITS)
@pytest.mark.parametrize("name", [".symtab", ".text.user_transform", ".nv.callgraph", ".debug_frame"])
def test_sections_do_not_overlap(toolkit: str, name: str) -> None:
    """A section over the ELF header, or over the section table, is refused; one behind another is not."""
    image = SAMPLES[f"{toolkit}/user.cubin"]
    header = header_of(image, name)
    table = section_table(image)
    assert inspect(image).problems == ()
    assert inspect(changed(image, header + 24, "<Q", 0)).problems
    assert inspect(changed(image, header + 24, "<Q", table & ~0xFFF)).problems


def test_mercury_may_lie_where_the_plain_section_lies() -> None:
    """Ptxas lets a section of Mercury share the bytes of the plain one, all of them; two plain ones share none."""
    image = SAMPLES["13.5/user-sm_100.cubin"]
    start, size = content_of(image, ".nv.callgraph")
    mercury = header_of(image, ".nv.merc.nv.callgraph")
    shared = changed(changed(image, mercury + 24, "<Q", start), mercury + 32, "<Q", size)
    assert inspect(shared).problems == ()
    assert ".nv.callgraph overlap at byte" in the_problem(changed(shared, mercury + 32, "<Q", size - 8))
    notes = content_of(image, ".note.nv.cuinfo")
    tools = header_of(image, ".note.nv.tkinfo")
    twice = changed(changed(image, tools + 24, "<Q", notes[0]), tools + 32, "<Q", notes[1])
    assert the_problem(twice).startswith("damaged cubin: .note.nv.")
    assert "overlap at byte" in the_problem(twice)


@pytest.mark.parametrize("toolkit", TOOLKITS)
@pytest.mark.parametrize("name", [".symtab", ".nv.info", ".nv.callgraph", ".nv.compat"])
def test_the_name_that_a_type_obliges_to(toolkit: str, name: str) -> None:
    """NvJitLink dies of a symbol table with another name."""
    image = SAMPLES[f"{toolkit}/user-sm_100.cubin"]
    header = header_of(image, name)
    (at,) = struct.unpack_from("<I", image, header)
    assert f"has the type of {name}" in the_problem(changed(image, header, "<I", at + len(name)))


@pytest.mark.parametrize(
    ("sample", "name", "known"),
    [
        ("user.cubin", ".rela.debug_frame", {0x02, 0x49}),
        ("user-sm_100.cubin", ".nv.merc.rela.debug_frame", {0x10002, 0x1000E, 0x1003D}),
    ],
)
@pytest.mark.parametrize("toolkit", TOOLKITS)
def test_relocations_of_debug_frames(toolkit: str, sample: str, name: str, known: set[int]) -> None:
    """Of all relocation types, only those that compilers write are passed on."""
    image = SAMPLES[f"{toolkit}/{sample}"]
    try:
        start, _ = content_of(image, name)
    except TypeError:  # CUDA 12 writes .rel.debug_frame for this architecture
        start, _ = content_of(image, name.replace(".rela", ".rel"))
    base = min(known) & 0x10000
    for kind in range(base, base + 0x100):
        problems = inspect(changed(image, start + 8, "<I", kind)).problems
        assert bool(problems) == (kind not in known), hex(kind)


@pytest.mark.parametrize("at", [4, 40, 58, 60, 62])
def test_members_are_objects(at: int) -> None:
    """A member of a library is read like an object that is given alone, also one without device code."""
    library = SAMPLES["nvcc/user.a"]
    member = library.index(b"\x7fELF")
    assert inspect(changed(library, member + at, "<H", 0xFFFF)).problems
    host = library.replace(b"__nv_relfatbin", b"__no_relfatbin")
    assert "library without device code" in the_problem(host)
    assert "library without device code" not in the_problem(changed(host, member + at, "<H", 0xFFFF))


def archive(*members: bytes) -> bytes:
    text = b"!<arch>\n"
    for index, member in enumerate(members):
        text += f"{f'm{index}.o/':16}{0:<12}{0:<6}{0:<6}{644:<8}{len(member):<10}`\n".encode()
        text += member + b"\n" * (len(member) % 2)
    return text


def test_members_without_a_fatbin_must_be_sound() -> None:
    """A host object or a cubin beside the device code is checked as it is alone."""
    device, cubin = SAMPLES["nvcc/user.o"], SAMPLES["13.0/user.cubin"]
    host = device.replace(b"__nv_relfatbin", b"__no_relfatbin")
    assert inspect(archive(device, host, cubin)).problems == ()
    assert "overlap" in the_problem(archive(device, host, changed(cubin, 2400, "<Q", 0x30)))
    data = header_of(host, ".data")
    assert "overlap" in the_problem(archive(device, changed(changed(host, data + 24, "<Q", 0), data + 32, "<Q", 1)))


def test_the_indexes_of_a_library() -> None:
    """NvJitLink dies of a NUL among the long names, and of names and members that the indexes do not have."""
    library = SAMPLES["nvcc/user.a"]
    names = library.index(b"tmpxft")
    assert "table of names has a NUL at byte 7" in the_problem(changed(library, names + 7, "<B", 0))
    assert "is at byte 467" in the_problem(changed(library, 75, "<B", 467 & 0xFF))
    assert "index of 4294967288 symbols" in the_problem(changed(library, 68, "<I", 0xF8FFFFFF))
    for index, problem in (
        (b"\0\0\1", "index of 0 symbols has 3"),
        (b"\0\0\0\1", "index of 1 symbols has 4"),
        (bytes(4), ""),
    ):
        alone = b"!<arch>\n" + b"%-48s%-10d`\n" % (b"/", len(index)) + index + b"\n" * (len(index) % 2)
        assert problem in (*inspect(alone).problems, "")[0], index
    assert inspect(library.replace(b"300       `", b"       300`")).problems == ()
    assert "name behind the end" in the_problem(library.replace(b"/0      ", b"/36     "))


def test_a_call_graph_behind_the_last_section() -> None:
    """The table that .nv.callgraph refers to may refer to nowhere: that was an IndexError."""
    image = SAMPLES["13.0/main.cubin"]
    table = section_table(image)
    wild = changed(image, table + 40, "<I", 0xFFFF)  # the link of section 0, which nothing else reads
    assert "refers to section 65535" in the_problem(changed(wild, header_of(image, ".nv.callgraph") + 40, "<I", 0))
