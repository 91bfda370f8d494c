"""The audit of device code: finding it, what drivers do with it, and what nvJitLink makes of its PTX."""

import argparse
import io
import json
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
import time
import zipfile
from collections import Counter
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from campaigns.conformance.fatbin_record import CASES
from campaigns.conformance.fatbin_record import fatbin as fatbin_of
from pytest_cudalink import artifacts
from pytest_cudalink.audit import AuditError
from pytest_cudalink.audit import members as budget
from pytest_cudalink.audit.device_code import (
    DeviceImage,
    DriverOutcome,
    all_images,
    code_of,
    device_code,
    images,
    scan,
    what_happens,
)
from pytest_cudalink.audit.device_code.assemble import assemble
from pytest_cudalink.cli import audit, audit_device_code
from pytest_cudalink.cli.arguments import CommandError
from pytest_cudalink.compat.architectures import ARCHITECTURES, architecture_of, gpus
from pytest_cudalink.compat.releases import DRIVER_RELEASES, driver_named, drivers_in, needs_for_ptx_isa
from pytest_cudalink.versions import CudaVersion, Needs
from tests.stubs.conftest import compile_c

DATA = Path(__file__).parents[1] / "data"
SAMPLES = DATA / "device_code"
DRIVERS = sorted(DRIVER_RELEASES)
OLD, NEW, NEXT = CudaVersion(12, 2), CudaVersion(12, 9), CudaVersion(13, 0)


def facts(path: Path) -> list[tuple]:
    """Kind, architecture and PTX ISA of each image, with what only the unpacked image says."""
    return [(image.kind, image.arch, image.ptx_isa, image.producer) for image in images(path)]


def ptx(arch: str, isa: tuple[int, int] = (8, 0)) -> DeviceImage:
    return DeviceImage("x", "ptx", arch, ptx_isa=isa, needs=needs_for_ptx_isa(isa))


def cubin(arch: str, release: tuple[int, int] = (12, 0)) -> DeviceImage:
    return DeviceImage("x", "cubin", arch, needs=Needs(CudaVersion(*release)), producer=CudaVersion(*release))


def wheel(path: Path, **members: bytes) -> Path:
    """A wheel with members; two underscores of a name stand for a dot."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"pkg/{name.replace('__', '.')}", content)
    return path


def command(*arguments: object) -> tuple[int, str]:
    """Exit code and output of ``cudalink audit`` for device code."""
    parser = argparse.ArgumentParser()
    audit.configure(parser)
    out = io.StringIO()
    options = parser.parse_args([str(argument) for argument in arguments])
    assert audit.mode_of(options) == ("device_code", "")
    with redirect_stdout(out):
        code = audit_device_code.run(options)
    return code, out.getvalue()


# -- finding it --


def test_packed_images_say_what_unpacked_ones_do() -> None:
    """LZ4 and zstd hide nothing but the release of LTO-IR, which is scrambled; its format names the oldest."""
    expected = facts(SAMPLES / "none.fatbin")
    assert expected == [
        ("cubin", "sm_80", None, (13, 0)), ("ptx", "sm_80", (9, 0), None), ("cubin", "sm_90a", None, (13, 0)),
        ("ltoir", "sm_90a", None, (13, 0)), ("cubin", "sm_100f", None, (13, 0)),
    ]  # fmt: skip
    for name in ("speed", "size"):
        listed = list(images(SAMPLES / f"{name}.fatbin"))
        assert [(i.kind, i.arch, i.ptx_isa) for i in listed] == [fact[:3] for fact in expected]
        assert [i.producer for i in listed if i.kind == "cubin"] == [NEXT] * 3
        (lto,) = (image for image in listed if image.kind == "ltoir")
        assert lto.needs == Needs(NEXT)
        assert lto.data is None
        assert "scrambled" in lto.note


@pytest.mark.parametrize(("name", "package"), [("speed", "lz4"), ("size", "zstandard")])
def test_without_the_packages_the_headers_remain(name, package, monkeypatch) -> None:
    """Kind, architecture and PTX ISA are in the headers; the note says which package would tell more."""
    monkeypatch.setitem(sys.modules, "lz4.block", None)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    listed = list(images(SAMPLES / f"{name}.fatbin"))
    assert [(i.kind, i.arch, i.ptx_isa) for i in listed] == [fact[:3] for fact in facts(SAMPLES / "none.fatbin")]
    packed = [image for image in listed if image.packed and image.kind == "ptx"]
    assert packed
    assert all(package in image.note and image.data is None for image in packed)
    old = [image for image in listed if image.kind == "cubin" and image.number < 100]
    assert {image.needs for image in old} == {Needs(NEXT)}  # the form of the cubin is in the header, too


@pytest.mark.parametrize("toolkit", ["12.9", "13.0", "13.2", "13.5"])
def test_loose_images(toolkit) -> None:
    """PTX, LTO-IR and cubins in files by themselves, of several releases."""
    loose = {image.path: image for image in images(DATA / "artifacts" / toolkit)}
    release = CudaVersion.parse(toolkit)
    assert {image.producer for image in loose.values()} == {release}
    assert loose["user.ptx"].needs == Needs(release)
    assert {image.arch for name, image in loose.items() if "sm_100" not in name} == {"sm_90"}
    assert loose["user-sm_100.cubin"].arch == "sm_100"
    assert [loose[f"{name}.cubin"].relocatable for name in ("linked", "user")] == [False, True]
    assert loose["user.cubin"].virtual_arch == "sm_90"


def test_cubin_whose_sections_lie_behind_its_tables(tmp_path) -> None:
    """Compilers write them before, CUPTI's cubins have them behind: none may be cut off."""
    content = bytearray((DATA / "artifacts/12.9/linked.cubin").read_bytes())
    table, names = struct.unpack_from("<Q", content, 40)[0], struct.unpack_from("<H", content, 62)[0]
    place = table + 64 * names + 24
    offset, length = struct.unpack_from("<QQ", content, place)
    struct.pack_into("<Q", content, place, len(content))
    content += content[offset : offset + length]
    file = tmp_path / "libx.so"
    file.write_bytes(b"in front " + bytes(content) + b" behind" * 99)
    (image,) = images(file)
    assert image.data is not None
    assert len(image.data) == len(content)


def test_virtual_architecture() -> None:
    """The PTX architecture that a cubin was made from is shown where it is another one."""
    (image,) = images(SAMPLES / "virtual.cubin")
    assert (image.arch, image.virtual_arch) == ("sm_86", "sm_80")
    assert "cubin for sm_86 made from PTX for sm_80" in command(SAMPLES / "virtual.cubin", "--device-code")[1]


def test_archives_and_objects() -> None:
    """The fatbins of host objects are for a linker, in an archive, too."""
    for name in ("user.o", "user.a"):
        listed = list(images(DATA / "artifacts" / "nvcc" / name))
        assert {(image.kind, image.arch, image.section) for image in listed} == {
            ("cubin", "sm_90", "__nv_relfatbin"),
            ("ptx", "sm_90", "__nv_relfatbin"),
        }
        assert all(image.relocatable for image in listed)


def library(path: Path, section: str, content: Path) -> Path:
    """A shared library with a file in a section of it."""
    assembly = rf".section {section},\"a\"\n.balign 8\n.incbin \"{content}\"\n.previous\n"
    return compile_c(path, f'__asm__("{assembly}"); int f(void) {{ return 1; }}')


def test_library_in_a_wheel(tmp_path) -> None:
    """A fatbin in .nv_fatbin, one in .rodata, and PTX in a string of it, each with its section and its group."""
    both = library(tmp_path / "liba.so", ".nv_fatbin", SAMPLES / "size.fatbin").read_bytes()
    text = library(tmp_path / "libb.so", ".rodata", DATA / "artifacts" / "12.9" / "user.ptx").read_bytes()
    listed = list(images(wheel(tmp_path / "x.whl", liba__so=both, libb__so=text)))
    assert [(image.path, image.section, image.kind) for image in listed if image.kind == "ptx"] == [
        ("pkg/liba.so", ".nv_fatbin", "ptx"),
        ("pkg/libb.so", ".rodata", "ptx"),
    ]
    assert len(listed) == 6
    assert listed[-1].producer == (12, 9)  # by the compiler's comment in front of .version
    assert artifacts.inspect(listed[-1].data).problems == ()


def test_tile_ir(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found in fatbins, by the header where it is packed, and by itself; an unknown release is newer."""
    for name in ("lz4", "lz4.block", "zstandard"):
        monkeypatch.setitem(sys.modules, name, None)
    names = ("add.fatbin", "add-plain.fatbin", "add-13.3.tileir")
    packed, plain, code = ((DATA / "artifacts/tile" / name).read_bytes() for name in names)
    path = wheel(tmp_path / "x.whl", a=packed, b=plain, c=code, d=b"?" + code)
    listed = list(images(path))
    expected = ("tileir", "", Needs(CudaVersion(13, 3)), "")
    assert [(image.kind, image.arch, image.needs, image.note) for image in listed] == [expected] * 4
    assert "    Tile IR for every GPU that its compiler knows; needs CUDA 13.3\n" in command("--device-code", path)[1]
    (newer,) = images(wheel(tmp_path / "y.whl", a=code[:9] + b"\x63" + code[10:]))
    assert newer.needs is not None
    assert newer.needs.newer_than


def test_dll(tmp_path) -> None:
    """The section of a DLL whose name is .nv_fatb is read as that of an ELF file is."""
    code = (SAMPLES / "size.fatbin").read_bytes()
    start = 0x400
    header = struct.pack("<4sHHIIIHH", b"PE\0\0", 0x8664, 1, 0, 0, 0, 0, 0x2022)
    row = struct.pack("<8sIIIIIIHHI", b".nv_fatb", len(code), 0x1000, len(code), start, 0, 0, 0, 0, 0)
    image = (b"MZ".ljust(0x3C, b"\0") + struct.pack("<I", 0x80)).ljust(0x80, b"\0") + header + row
    file = tmp_path / "x.dll"
    file.write_bytes(image.ljust(start, b"\0") + code)
    assert {image.section for image in images(file)} == {".nv_fatb"}
    assert [image.arch for image in images(file)] == ["sm_80", "sm_80", "sm_90a", "sm_90a", "sm_100f"]


def test_ptx_in_sources(tmp_path) -> None:
    """PTX in a string of Python counts, and ends with the string; in documents and headers it is an example."""
    code = 'A = """\n.version 8.4\n.target sm_80\n.address_size 64\n"""\nB = ".version 1 .target"\n'
    for name in ("a.py", "a.md", "a.h"):
        (tmp_path / name).write_text(code, encoding="utf-8")
    (image,) = images(tmp_path)
    assert (image.path, image.arch, image.ptx_isa) == ("a.py", "sm_80", (8, 4))
    assert image.data.endswith(b".address_size 64\n")


@pytest.mark.parametrize(("isa", "said"), [("7.8", ""), ("8.0", "; needs CUDA 12.0"), ("8.1", "; needs CUDA 12.1")])
def test_ptx_older_than_the_table(isa, said, tmp_path) -> None:
    """PTX that CUDA 11.8 wrote needs no release of CUDA 12, alone and in a fatbin."""
    text = f".version {isa}\n.target sm_80\n".encode()
    major, _, minor = isa.partition(".")
    entry = struct.pack("<HHIQIIHHIIIQQQ", 1, 0x101, 64, len(text), 0, 0, int(minor), int(major), 80, 0, 0, 0, 0, 0)
    (tmp_path / "a.ptx").write_bytes(text)
    (tmp_path / "b.fatbin").write_bytes(scan.MAGIC + struct.pack("<HHQ", 1, 16, len(entry + text)) + entry + text)
    for name in ("a.ptx", "b.fatbin"):
        code, out = command(tmp_path / name, "--gpu=A100")
        assert (code, f"PTX for sm_80; PTX ISA {isa}{said}\n" in out) == (1 if isa == "8.1" else 0, True)


def test_what_cannot_be_read_is_named(tmp_path) -> None:
    """A damaged member, and a fatbin that ends in an entry; the rest of both is read."""
    good = (SAMPLES / "none.fatbin").read_bytes()
    (cut,) = (at for at in [good.rindex(b"\x7fELF")])
    torn = good[:8] + struct.pack("<Q", cut - 16 - 40) + good[16 : cut - 40]
    path = wheel(tmp_path / "x.whl", a__fatbin=good, b__fatbin=b"data" + torn, c__fatbin=good)
    raw = bytearray(path.read_bytes())
    raw[200] ^= 0xFF
    path.write_bytes(raw)
    code = device_code(path)
    assert {fault.path for fault in code.faults} == {"pkg/a.fatbin", "pkg/b.fatbin"}
    assert {name for group in code.groups for name in group.paths} == {"pkg/b.fatbin", "pkg/c.fatbin"}
    with pytest.raises(AssertionError, match=r"pkg/b\.fatbin: fatbin at byte 4: "):
        code.check([])


def test_member_that_would_fill_the_disk(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that claims to become a thousand times larger is named, and not unpacked; a wheel, refused."""
    path = wheel(tmp_path / "x.whl", big=bytes(65 << 20))
    assert "expected at most 100 times more" in device_code(path).faults[0].text
    monkeypatch.setattr(budget, "LEAST_BYTES", 0)
    with pytest.raises(AuditError, match="would become larger than"):
        list(all_images(wheel(tmp_path / "y.whl", big=bytes(1 << 20))))


@pytest.mark.parametrize(("number", "kind", "least"), [(2, "cubin", 64), (8, "ltoir", 28)])
@pytest.mark.parametrize("missing", [1, 20, 28])
def test_image_that_ends_in_its_header(number, kind, least, missing, tmp_path) -> None:
    """An entry of a fatbin too short for its kind is an image that only the header of the entry describes."""
    size = least - missing
    body = struct.pack("<HHIQIIHHIIIQQQ", number, 0x101, 64, size, 0, 0, 8, 1, 80, 0, 0, 0, 0, 0) + bytes(size)
    (tmp_path / "x.fatbin").write_bytes(scan.MAGIC + struct.pack("<HHQ", 1, 16, len(body)) + body)
    (image,) = images(tmp_path / "x.fatbin")
    assert (image.kind, image.arch) == (kind, "sm_80")
    assert image.note == f"it has {size} bytes; expected at least {least}"


def test_time_follows_from_the_size(tmp_path) -> None:
    """Many heads that promise much cost what their bytes do."""
    file = tmp_path / "x.bin"
    promise = (
        b"\x7fELF\2\1\1\x41\x08" + bytes(9) + struct.pack("<HIQQQIHHHHHH", 190, 1, 0, 64, 64, 0, 64, 56, 9, 64, 9, 0)
    )
    file.write_bytes((promise + b".version 8.0\n.target sm_80\n" + scan.MAGIC + bytes(60)) * 20_000)
    start = time.process_time()
    list(all_images(file))
    assert time.process_time() - start < 20


# -- the rule --


@pytest.mark.parametrize(
    ("code", "arch", "driver", "expected"),
    [
        ([cubin("sm_80")], "sm_86", OLD, "native"), ([cubin("sm_86")], "sm_80", OLD, "209"),
        ([cubin("sm_80")], "sm_90", OLD, "209"),
        ([cubin("sm_80")], "sm_87", OLD, "209"),  # Tegra
        ([cubin("sm_87")], "sm_89", OLD, "209"), ([cubin("sm_90a")], "sm_90", OLD, "native"),
        ([cubin("sm_100a")], "sm_103", NEXT, "209"), ([cubin("sm_100f")], "sm_103", NEXT, "native"),
        ([cubin("sm_100f")], "sm_120", NEXT, "209"), ([cubin("sm_120")], "sm_121", NEXT, "native"),
        # any minor of the driver's major, none of the next
        ([cubin("sm_80", (12, 9))], "sm_80", OLD, "native"),
        ([cubin("sm_80", (13, 0))], "sm_80", NEW, "200"),
        ([cubin("sm_80", (12, 0)), cubin("sm_80", (13, 0))], "sm_80", NEW, "native"),  # of equal ones the first
        ([ptx("sm_80", (9, 0)), ptx("sm_80", (8, 0))], "sm_80", OLD, "compiled"),  # and the last
        ([ptx("sm_80", (8, 0)), ptx("sm_80", (9, 0))], "sm_80", OLD, "222"),
        # mach#62: no cubin for the L4, and PTX of a newer toolkit than R535
        ([cubin("sm_75"), ptx("sm_75", (8, 3))], "sm_89", OLD, "222"),
        ([cubin("sm_75"), ptx("sm_75", (8, 3))], "sm_89", CudaVersion(12, 3), "compiled"),
        ([ptx("sm_90a")], "sm_100", NEXT, "218"), ([ptx("sm_90a")], "sm_90", NEXT, "compiled"),
        ([ptx("sm_100f", (8, 8))], "sm_103", NEXT, "compiled"),
        ([ptx("sm_100f", (8, 8))], "sm_120", NEXT, "209"),
        ([ptx("sm_90")], "sm_89", OLD, "209"),
        ([DeviceImage("x", "ltoir", "sm_80")], "sm_90", OLD, "linked"),
        ([DeviceImage("x", "ltoir", "sm_90")], "sm_80", OLD, "209"),
        ([], "sm_80", OLD, "209"),
        ([cubin("sm_120")], "sm_120", OLD, "no driver"),
        ([cubin("sm_70")], "sm_70", CudaVersion(13, 1), "no driver"),
        ([cubin("sm_70")], "sm_70", NEXT, "native"),
    ],
)  # fmt: skip
def test_rule(code, arch, driver, expected) -> None:
    assert str(what_happens(code, arch, driver).outcome) == expected


ARCHS = st.sampled_from([f"sm_{architecture.number}" for architecture in ARCHITECTURES])
TARGETS = st.builds(
    lambda architecture, suffix: f"sm_{architecture.number}{suffix}",
    st.sampled_from(ARCHITECTURES),
    st.sampled_from("af "),
)
CODE = st.lists(
    st.one_of(
        st.builds(ptx, TARGETS.map(str.strip), st.sampled_from([(7, 8), (8, 0), (8, 4), (9, 0), (9, 5)])),
        st.builds(cubin, TARGETS.map(str.strip), st.sampled_from([(12, 0), (12, 9), (13, 0)])),
    ),
    max_size=5,
)


@given(CODE, ARCHS, st.sampled_from(DRIVERS), st.sampled_from(DRIVERS))
@settings(max_examples=300, deadline=None)
def test_newer_drivers_take_what_older_ones_do(code, arch, first, other) -> None:
    """What a driver takes, every newer one that has the GPU takes, too; a native cubin always wins."""
    before, after = (what_happens(code, arch, driver).outcome for driver in sorted((first, other)))
    if DriverOutcome.UNDRIVEN not in (before, after):
        assert not (after.fails and not before.fails)
    exact, special = cubin(arch, (12, 0)), f"{arch}a"
    if after is not DriverOutcome.UNDRIVEN and all(image.arch != special for image in code):
        assert what_happens([exact, *code], arch, max(first, other)) == (DriverOutcome.NATIVE, exact)


def recorded_choices() -> list[tuple[str, list[Any]]]:
    """The recorded cases whose images are as their entries say, with what a driver answered."""
    (file,) = (DATA.parents[1] / "campaigns" / "conformance" / "recorded").glob("fatbins-580*.json")
    answers = json.loads(file.read_text(encoding="utf-8"))["answers"][""]
    return [
        (text, answers[case]["module"])
        for case, text in CASES.items()
        if all("@" not in word or word.endswith("@isa=9.9") for word in text.split())
        and not {"|", "raw"} & {*text.split()}
    ]


@pytest.mark.parametrize(
    ("text", "recorded"), recorded_choices(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_as_a_driver_chooses(tmp_path: Path, text: str, recorded: list[Any]) -> None:
    """The audit says of a fatbin what driver 580 answered to it on an H100."""
    (tmp_path / "code.fatbin").write_bytes(fatbin_of(text))
    listed = [image for image in images(tmp_path / "code.fatbin") if image.kind != "ltoir"]
    answer = what_happens(listed, "sm_90", CudaVersion(13, 0))
    if recorded[0]:
        assert str(answer.outcome) == str(recorded[0])
    else:
        name = recorded[1].encode()
        assert answer.outcome is (DriverOutcome.NATIVE if name.startswith(b"cubin") else DriverOutcome.COMPILED)
        assert name in answer.image.data


def test_gpu_names() -> None:
    """No name of the table is that of two GPUs, and every architecture but sm_88, sm_101 and sm_107 has one."""
    for name, number in gpus().items():
        assert architecture_of(name) == f"sm_{number}"
    assert {architecture.number for architecture in ARCHITECTURES} - set(gpus().values()) == {88, 101, 107}
    names = ("NVIDIA GeForce RTX 3070 Ti", "NVIDIA A100-SXM4-80GB", "H100 PCIe", "Tesla V100", "compute_90a")
    assert [architecture_of(name) for name in names] == ["sm_86", "sm_80", "sm_90", "sm_70", "sm_90"]


@pytest.mark.parametrize("text", ["470", "11.8", "12.11", "latest", "", ">=535", "12.9.1"])
def test_names_of_drivers(text) -> None:
    """A branch, a release of one, or a CUDA version; one that is taken for another would be answered by guessing."""
    named = {"535": OLD, "535.104.05": OLD, "R570": (12, 8), "12.4": (12, 4), "700": (13, 5), "540": OLD}
    assert {name: driver_named(name) for name in named} == named
    said = (
        "drivers of one CUDA release answer alike; write 12.9" if text == "12.9.1" else "expected a release from 525 on"
    )
    with pytest.raises(ValueError, match=said):
        driver_named(text)


def test_ranges_of_drivers() -> None:
    assert drivers_in(">=525") == tuple(DRIVERS)
    assert drivers_in(">=12.3, <550") == ((12, 3),)
    assert drivers_in("535") == (OLD,)
    for text in (">=", "<", ">=525,<"):
        with pytest.raises(ValueError, match=f"{re.escape(text)}': '[<>=]+' is not a bound"):
            drivers_in(text)
    with pytest.raises(ValueError, match="no known driver is in this range"):
        drivers_in(">535,<545")


def test_table() -> None:
    """Neighbouring drivers that do the same share a column; old GPUs alone fail nothing."""
    code, out = command(SAMPLES / "none.fatbin", "--device-code")
    assert code == 0
    assert "cubins for sm_80, sm_90a, sm_100f; made by CUDA 13.0" in out
    assert "PTX for sm_80; PTX ISA 9.0; needs CUDA 13.0" in out
    assert "driver             525-565    570        575  580       590-620" in out
    assert command(SAMPLES / "none.fatbin", "--driver", ">=580", "--require-archs", "80,sm_90")[0] == 0
    assert command(SAMPLES / "none.fatbin", "--require-archs", "75")[0] == 1


def test_json() -> None:
    code, out = command(SAMPLES / "size.fatbin", "--format=json", "--gpu", "L4", "--driver", "535")
    (printed,) = json.loads(out)
    assert code == 1
    assert printed["groups"][0]["answers"] == {"sm_89": {"12.2": "200"}}
    assert printed["groups"][0]["images"][1]["ptx_isa"] == "9.0"
    assert len(printed["failures"]) == 1


@pytest.mark.parametrize("wrong", [["--gpu", "L5"], ["--driver", "470"], ["--require-archs", "85"]])
def test_wrong_questions(wrong) -> None:
    with pytest.raises(CommandError, match=r"'(L5|470|sm_85)'"):
        command(SAMPLES / "size.fatbin", *wrong)


# -- assembling --

GOOD = """.version 9.0
.target {target}
.address_size 64
.visible .entry k(.param .u64 p) {{ .reg .b32 %r<3>; mov.u32 %r1, %tid.x; {more} ret; }}
"""


def outcomes(path: Path, toolchain) -> dict[str, str]:
    return {outcome.arch: outcome.outcome for outcome in assemble(path, toolchain)}


def test_assemble_serves_what_has_no_cubin(toolchain, tmp_path) -> None:
    """PTX is linked for each architecture that it serves, except where the same fatbin has a cubin."""
    (tmp_path / "a.ptx").write_text(GOOD.format(target="sm_90", more=""), encoding="utf-8")
    served = ["sm_90", "sm_100", "sm_103", "sm_110", "sm_120", "sm_121"]
    assert outcomes(tmp_path, toolchain) == dict.fromkeys(served, "assembled")
    packed = outcomes(SAMPLES / "size.fatbin", toolchain)
    assert packed == dict.fromkeys(["sm_87", "sm_110", "sm_120", "sm_121"], "assembled")


def test_assemble_names_what_fails(toolchain, tmp_path) -> None:
    """An instruction that only sm_90a has fails on its target's own architecture, with nvJitLink's words."""
    (tmp_path / "a.ptx").write_text(GOOD.format(target="sm_120f", more="no.such %r1;"), encoding="utf-8")
    code, out = command(tmp_path, "--assemble", "--toolchain", "13.0")
    assert code == 1
    assert "failed: a.ptx: PTX 9.0 for sm_120f, on sm_120f" in out
    assert any("no" in outcome.log for outcome in assemble(tmp_path, toolchain) if outcome.fails)


def test_assemble_tells_incomplete(toolchain, tmp_path) -> None:
    """Functions of other images are no fault of PTX."""
    call = "call other;"
    text = GOOD.format(target="sm_121", more=call).replace(".visible", ".extern .func other;\n.visible")
    (tmp_path / "a.ptx").write_text(text, encoding="utf-8")
    assert outcomes(tmp_path, toolchain) == {"sm_121": "incomplete"}
    assert command(tmp_path, "--assemble", "--toolchain", "13.0")[0] == 0


def test_assemble_without_toolchain() -> None:
    with pytest.raises(CommandError, match=r"NVIDIA published no wheels of CUDA 12\.7"):
        command(SAMPLES / "size.fatbin", "--assemble", "--toolchain", "12.7")


# -- compared with NVIDIA's own reader --


def cuobjdump() -> str | None:
    installed = Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13" / "bin" / "cuobjdump"
    return str(installed) if installed.is_file() else shutil.which("cuobjdump")


COMPARED = [
    *(SAMPLES / f"{name}.fatbin" for name in ("none", "speed", "size")),
    *(DATA / "artifacts" / "nvcc" / name for name in ("user.o", "user.a", "user.fatbin")),
]


@pytest.mark.skipif(cuobjdump() is None, reason="needs cuobjdump: the wheel nvidia-cuda-cuobjdump, or a toolkit")
def test_agrees_with_cuobjdump(toolchain) -> None:
    """The same cubins and PTX, by architecture, as ``cuobjdump -lelf -lptx`` lists, which has no "f" for cubins."""
    for file in [*COMPARED, toolchain.path / "lib64" / "libcudadevrt.a"]:
        done = subprocess.run([cuobjdump(), "-lelf", "-lptx", file], capture_output=True, text=True, check=True)
        listed = Counter(
            (Path(name).suffix[1:], name.split(".")[-2])
            for name in done.stdout.split()
            if name.endswith((".cubin", ".ptx"))
        )
        assert Counter((i.kind, i.arch.rstrip("f")) for i in images(file) if i.kind != "ltoir") == listed


def test_mercury_of_cub() -> None:
    """Some kernels of CUB have another number in the second byte of Mercury's count; their cubins are sound."""
    image = (DATA / "artifacts" / "13.0" / "user-sm_100.cubin").read_bytes()
    head = struct.pack("<I", 0xC0000001)
    assert image.count(head) == 1
    for number in (0x101, 0x201):
        assert artifacts.inspect(image.replace(head, struct.pack("<I", 0xC0000000 | number))).problems == ()
    for number in (2, 0x10001):
        assert artifacts.inspect(image.replace(head, struct.pack("<I", 0xC0000000 | number))).problems


@pytest.mark.parametrize(
    ("units", "fails"),
    [
        ((("sm_90a",), ("sm_100a",)), False),  # each for one GPU: the program chooses
        ((("sm_90a", "sm_100a"), ("sm_100a", "sm_103a")), False),
        ((("sm_100f",), ("sm_90",)), False),
        ((("sm_90a",), ("sm_80",)), True),  # sm_80 may have been meant for every GPU
        ((("sm_100a",), ("sm_103a",)), True),  # nothing of the file fits
        ((("sm_100",), ("sm_90",)), True),
    ],
)
def test_translation_units_for_one_gpu_each(units, fails) -> None:
    """They are alternatives where one of the same file fits; the kernels of another file do not count."""
    images = [replace(cubin(arch), path="one", group=at) for at, archs in enumerate(units, 1) for arch in archs]
    driver = driver_named("580")
    code = code_of("x.whl", images)
    assert bool(code.failures(["sm_90"], [driver])) is fails
    assert code.served("sm_90", [driver])[driver] == (0 if fails else 1)
    apart = code_of("x.whl", [replace(image, path=str(image.group)) for image in images])
    assert apart.failures(["sm_90"], [driver])


def test_code_without_an_architecture_has_not_been_written_for_one_gpu() -> None:
    """Tile IR has none: a driver that takes nothing of its group fails."""
    tile = replace(cubin("sm_100a"), kind="tileir", arch="", path="one", group=1)
    code = code_of("x.whl", [tile, replace(cubin("sm_90a"), path="one", group=2)])
    driver = driver_named("580")
    assert [group.is_for_one_gpu for group in code.groups] == [False, True]
    assert len(code.failures(["sm_90"], [driver])) == sum(
        answer.outcome.fails for _, answer in code.answers("sm_90", driver)
    )


def test_images_without_code(tmp_path, monkeypatch) -> None:
    """What nvcc makes of host code for one GPU runs on none, and nothing misses it; a kernel beside it is judged."""
    empty, kernel = ((SAMPLES / f"{name}.cubin").read_bytes() for name in ("empty", "virtual"))
    assert [image.empty for image in images(SAMPLES)].count(True) == 1
    for name, code, fails in (("empty", (empty,), False), ("both", (empty, kernel), True)):
        file = wheel(tmp_path / f"{name}.whl", **{f"{at}__cubin": data for at, data in enumerate(code)})
        audited = device_code(file)
        assert bool(audited.failures(["sm_90"], [driver_named("580")])) is fails
        assert len(audited.judged) == len(code) - 1
    for part in ("problems", "defined", "undefined", "text_sections"):
        seen = replace(artifacts.inspect(empty), **{part: ("x",)})
        monkeypatch.setitem(images.__globals__, "inspect", lambda content, seen=seen: seen)
        assert [image.empty for image in images(SAMPLES / "empty.cubin")] == [False]
