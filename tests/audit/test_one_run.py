"""One run of ``cudalink audit`` with no option: needs, device code and copies, briefly."""

import json
import re
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_cudalink.audit import AuditError
from pytest_cudalink.audit import members as budget
from pytest_cudalink.audit import scan as scan_module
from pytest_cudalink.audit.device_code import DeviceImage, UnreadImage, code_of
from pytest_cudalink.audit.loadable import LoadableLibrary
from pytest_cudalink.audit.members import members_of
from pytest_cudalink.audit.opened import OpenedLibrary
from pytest_cudalink.audit.scan import (
    Scan,
    completed,
    file_majors,
    hinted_major,
    read_nvjitlink_needs,
    scan_members,
    scan_path,
    wheel_major,
)
from pytest_cudalink.cli import main
from pytest_cudalink.cli.audit_device_code import served
from pytest_cudalink.versions import CudaVersion, Needs
from tests.audit.test_audit import elf
from tests.audit.test_pe import dll
from tests.stubs.conftest import compile_c

DATA = Path(__file__).parents[1] / "data" / "device_code"
OLD, NEW = Needs(CudaVersion(12, 8)), Needs(CudaVersion(13, 0))


def cubin(path: str, arch: str, needs: Needs | None = OLD, **more) -> DeviceImage:
    return DeviceImage(path, "cubin", arch, needs=needs, group=1, section=".nv_fatbin", **more)


def test_device_code_of_a_wheel(make_wheel, capsys) -> None:
    """A wheel with device code has a line about it, and JSON has the answer of each driver; others have none."""
    path = make_wheel("x-1-py3-none-any.whl", {"x/none.fatbin": (DATA / "none.fatbin").read_bytes(), "x/a.py": b""})
    assert main(["audit", str(path)]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "device code" in line]
    assert line.startswith("  device code  of 1 file runs on sm_")
    assert main(["audit", str(path), "--format=json"]) == 0
    (plain,) = json.loads(capsys.readouterr().out)
    assert plain["device_code"][0]["paths"] == ["x/none.fatbin"]
    assert set(plain["device_code"][0]["answers"]["sm_90"]) >= {"12.0", "13.0"}
    assert main(["audit", str(make_wheel("y-1-py3-none-any.whl", {"y/a.py": b""}))]) == 0
    assert "device code" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("images", "lines"),
    [
        ([], []),
        (
            [cubin("a", "sm_80"), cubin("b", "sm_80", NEW)],
            [
                "of 2 files runs on sm_80 to sm_89 with drivers from 580 on",
                "of some of 2 files runs on sm_80 to sm_89 with every driver from 525 on",
            ],
        ),
        ([cubin("a", "sm_70")], ["of 1 file runs on sm_70 to sm_75 with every driver from 525 on"]),
        ([cubin("a", "sm_80"), cubin("a", "sm_90")],
         ["of 1 file runs on sm_80 to sm_90 with every driver from 525 on"]),
        ([cubin("a", "sm_80"), cubin("a", "sm_120")],
         ["of 1 file runs on sm_80 to sm_89, sm_120 to sm_121 with every driver from 525 on"]),
        ([cubin("a", "sm_87")], ["of 1 file runs on none of sm_70 to sm_121"]),
        ([cubin("a", "sm_70", NEW)], ["of 1 file runs on sm_70 to sm_75 with drivers from 580 on"]),
        ([cubin("a", "sm_80", relocatable=True)], ["in 1 file, for linkers only"]),
        ([cubin("a", "sm_90", note="x")],
         ["of 1 file runs on sm_90 with every driver from 525 on; as far as the headers of packed images say"]),
    ],
)  # fmt: skip
def test_where_it_runs(images, lines) -> None:
    """GPUs with the same drivers share an entry; what runs in some files alone has a line of its own."""
    assert [line.removeprefix("  device code  ") for line in served(code_of("x.whl", images))] == lines


@pytest.mark.parametrize(
    ("name", "hint", "of_wheel"),
    [
        ("cu12/x.so", "12", None), ("x_cu13.abi3.so", "13", None), ("CU12/x", "12", None), ("x-cuda_11.so", "11", None),
        ("cu12/cuda-12.so", "12", None), ("cu12/cu13.so", None, None), ("cu1234.so", None, None), ("x.so", None, None),
        ("acu12.so", None, None), ("x_cu12-1-py3-none.whl", "12", "12"), ("cu11/cupy_cuda12x-1-py3.whl", None, "12"),
        ("cu13\\x-1+cu121-py3.whl", None, "12"), ("numba_cuda-12.0-py3.whl", "12", None), ("x-1-cu12.whl", "12", None),
        ("x_cu12-1.zip", "12", None), ("x_cu13-1+cu12-py3.whl", None, None), ("x_cu12.whl", "12", "12"),
        ("x-1+a-cu12-py3.whl", "12", None),
    ],
)  # fmt: skip
def test_names_that_say_a_major(name: str, hint: str | None, of_wheel: str | None) -> None:
    """The one major in a path, and that in the name or the local version of a wheel."""
    assert (hinted_major(name), wheel_major(name)) == (hint, of_wheel)


TWELVE, THIRTEEN, EITHER = elf("libcudart.so.12"), elf("libcudart.so.13"), elf("libcusolver.so.11", "libc.so.6")


@pytest.mark.parametrize(
    ("wheel", "elves", "name", "majors"),
    [
        ("", {}, "x.py", (11, 12, 13)), ("", {}, "cu12/x.py", (12,)), ("", {}, "cu14/x.py", (11, 12, 13)),
        ("x_cu13-1-py3.whl", {}, "x.py", (13,)), ("x_cu13-1-py3.whl", {}, "cu12/x.py", (12,)),
        ("x_cu13-1-py3.whl", {"a.so": TWELVE}, "a.so", (12,)),
        ("", {"a.so": EITHER}, "a.so", (11, 12)),
        ("", {"cu13/a.so": EITHER}, "cu13/a.so", (11, 12)),
        ("", {"cu12/a.so": EITHER}, "cu12/a.so", (12,)),
        ("", {"a.so": TWELVE}, "x.py", (12,)),
        ("", {"a.so": TWELVE, "b.so": THIRTEEN}, "x.py", (12, 13)),
        ("", {"a.so": TWELVE, "b.so": THIRTEEN, "c.so": EITHER}, "x.py", (12, 13)),
        ("", {"a.so": EITHER, "b.so": TWELVE}, "a.so", (12,)),
        ("", {"a.so": EITHER, "b.so": THIRTEEN}, "a.so", (11, 12)),
        ("", {"a.so": EITHER}, "x.py", (11, 12)),
        ("", {"a.so": elf("libcudart.so.12", "libcudart.so.13")}, "a.so", (11, 12, 13)),
        ("", {"a.so": elf("libcudart.so.12", rpath=("$ORIGIN",)), "libcudart.so.12": elf()}, "a.so", (11, 12, 13)),
    ],
)  # fmt: skip
def test_majors_of_a_file(wheel: str, elves: dict[str, LoadableLibrary], name: str, majors: tuple[int, ...]) -> None:
    """By what it links, then by its folder, the name of the wheel, and the other files."""
    assert file_majors(Scan(wheel, elves=elves), name) == majors


def test_device_code_that_needs_a_linker() -> None:
    """The newest LTO-IR, and the newest compiler of what refuses an older nvJitLink than its own."""
    lto = [DeviceImage("a", "ltoir", "sm_80", needs=needs) for needs in (OLD, NEW, None)]
    made = [cubin("a", "sm_80", producer=release) for release in (CudaVersion(12, 9), CudaVersion(12, 0), None)]
    images = [
        *lto,
        *made,
        DeviceImage("a", "ptx", "sm_80", needs=Needs(CudaVersion(13, 5)), producer=CudaVersion(13, 5)),
    ]
    refuses = b"libnvJitLink.so.need at least version "
    for data, code, linked, expected in (
        (refuses, [UnreadImage("a", ""), *images], (), ({"a": NEW}, {"a": CudaVersion(12, 9)})),
        (refuses[16:] + refuses[:16], images, (), ({"a": NEW}, {"a": CudaVersion(12, 9)})),
        (b"x" + refuses[:-1], images, (), ({"a": NEW}, {})),
        (refuses[9:], images, (), ({"a": NEW}, {})),
        (refuses, images, ["libnvJitLink.so.12"], ({"a": NEW}, {})),
        (refuses, [], (), ({}, {})),
    ):
        scan = Scan("")
        read_nvjitlink_needs(scan, "a", data, code, linked)
        assert (scan.ltoir, scan.jitify) == expected


LTOIR = b"\xed\x43\x4e\x7f\x01\x40\x02\x5d" + bytes(8) + b"\x40\0\0\0" + bytes(6) + b"\x84\x03" + bytes(36)
OPENS = b"import ctypes\nctypes.CDLL('libnvrtc.so.12')\n"
ARTIFACTS = DATA.parent / "artifacts"


def test_what_is_read_of_each_file(tmp_path, monkeypatch) -> None:
    """Libraries, the names in them, sources, METADATA and device code; what cannot be read is a finding, not an end."""
    user = compile_c(tmp_path / "x.so", 'const char *n[] = {"libnvrtc.so.12", "nvrtc64_120_0.dll"};').read_bytes()
    jitify = b"\0nvJitLink_120_0.dll\0need at least version \0" + (ARTIFACTS / "12.9/user.cubin").read_bytes()
    files = {
        "a.so": user, "b.dll": dll({"cudart64_12.dll": ("cudaMalloc",)}, jitify), "c.py": OPENS, "d.py": b"print(1)",
        "e.py": b"print CDLL", "f.py": OPENS + b"print x", "g.ltoir": LTOIR, "g.LTOIR": LTOIR, "h.txt": OPENS,
        "i-1.dist-info/METADATA": b"i", "x/i.egg-info/PKG-INFO": b"p", "PKG-INFO": b"n", "j.so": b"\x7fELF\2\1",
        "k.so": (ARTIFACTS / "12.9/user.cubin").read_bytes(),
        "l.dll": dll({}, jitify.replace(b"nvJit", b"nvjot")),
        "p.dll": dll({"cudart64_12.dll": ("cudaFree",)}, jitify.replace(b"nvJit", b"nvjot")),
        "o.dll": dll({}, jitify.replace(b"need", b"want") + b"\0.version 8.0\n.target sm_80\n.address_size 64\n\0"),
        "m.cubin": b"nothing", "n.py": OPENS.replace(b"12", b"14") + OPENS.replace(b"12", b"13") + OPENS,
    }  # fmt: skip
    (tmp_path / "wheel").mkdir()
    for name, content in files.items():
        (tmp_path / "wheel" / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / "wheel" / name).write_bytes(content)
    monkeypatch.setattr(scan_module, "MOST_NAMES", 2)
    scanned = scan_path(tmp_path / "wheel")
    assert scanned.path == str(tmp_path / "wheel")
    assert list(scanned.elves) == ["a.so", "b.dll", "l.dll", "o.dll", "p.dll"]
    assert scanned.elves["b.dll"].needed == ("cudart64_12.dll",)
    nvrtc = OpenedLibrary("libnvrtc.so.12", demanded=True)
    assert scanned.opened == {
        "a.so": (OpenedLibrary("libnvrtc.so.12"),), "c.py": (nvrtc,),
        "b.dll": (OpenedLibrary("cudart64_12.dll"), OpenedLibrary("nvJitLink_120_0.dll")),
        "n.py": (nvrtc, OpenedLibrary("libnvrtc.so.13", demanded=True)),
        "p.dll": (OpenedLibrary("cudart64_12.dll"),), "o.dll": (OpenedLibrary("nvJitLink_120_0.dll"),),
    }  # fmt: skip
    assert scanned.ltoir == {"g.ltoir": Needs(CudaVersion(12, 9))}
    assert scanned.jitify == {"b.dll": CudaVersion(12, 9)}
    assert [(image.path, image.kind, image.data) for image in scanned.images] == [
        ("b.dll", "cubin", None), ("g.ltoir", "ltoir", None), ("l.dll", "cubin", None), ("o.dll", "cubin", None),
        ("o.dll", "ptx", None), ("p.dll", "cubin", None),
    ]  # fmt: skip
    assert scanned.metadata == {"i-1.dist-info/METADATA": b"i", "x/i.egg-info/PKG-INFO": b"p"}
    assert [(finding.place, finding.kind, finding.severity) for finding in scanned.findings] == [
        ("e.py", "unreadable", "note"), ("f.py", "unreadable", "error"), ("j.so", "unreadable", "error"),
        ("n.py", "unreadable", "error"),
    ]  # fmt: skip
    assert scanned.findings[1].what.startswith("Python ")
    assert scanned.findings[2].what == "cannot be read: ElfError: its header is damaged"
    assert scanned.findings[3].what == "names 3 libraries of CUDA; expected at most 2: the rest was not compared"


def test_what_a_wheel_costs_ends_its_scan(tmp_path, monkeypatch) -> None:
    """Of a wheel that is open, too; METADATA is read up to a bound, and images are unpacked to one."""
    with zipfile.ZipFile(tmp_path / "x.whl", "w") as archive:
        archive.writestr("x-1.dist-info/METADATA", "Name: x")
        archive.write(DATA / "size.fatbin", "x.fatbin")
    monkeypatch.setattr(scan_module, "_MOST_TEXT", 6)
    monkeypatch.setattr(scan_module, "MOST_UNPACKED", 0)
    scanned = scan_path(tmp_path / "x.whl")
    assert scanned.metadata == {"x-1.dist-info/METADATA": b"Name: "}
    assert {image.needs for image in scanned.images if image.kind == "cubin"} == {Needs(CudaVersion(13, 0))}
    with pytest.raises(AuditError, match=r"x\.whl: would become larger than "):
        scanned.budget.spend(1 << 60)
    monkeypatch.setattr(budget, "MOST_ENTRIES", 1)
    said = "x.whl: has 2 entries; expected at most 1: unpack it, and audit the folder"
    with pytest.raises(AuditError, match=f"{re.escape(said)}$"):
        scan_path(tmp_path / "x.whl")
    monkeypatch.setattr(budget, "MOST_ENTRIES", 2)
    monkeypatch.setattr(budget, "LEAST_BYTES", 8)
    monkeypatch.setattr(budget, "MOST_RATIO", 0)
    asked = budget.Budget("y")
    with pytest.raises(AuditError, match="^y: would become larger than 8 "):
        scan_members("y", members_of(tmp_path / "x.whl", asked), asked)
    inside = Scan("", elves={"lib/a.so": elf(soname="libx.so.1"), "b.so": elf()}).present
    assert inside == {"libx.so.1": "lib/a.so", "a.so": "lib/a.so", "b.so": "b.so"}
    spent: list[int] = []
    scan = Scan("", elves={"a.so": elf()}, budget=SimpleNamespace(spend=lambda: spent.append(1)))
    assert (scan.resolved, scan.resolved, spent) == (({"a.so": {}}, {"a.so": set()}),) * 2 + ([1],)


def test_packed_cubins_follow_their_neighbours() -> None:
    """A cubin whose header does not say its release has that of the file's other cubins, and their suffix."""
    read = cubin("a", "sm_90a", NEW, data=b"x")
    fault = UnreadImage("a", "damaged")
    listed = completed(
        [read, cubin("a", "sm_90", None, note="large"), fault, cubin("a", "sm_120f", None, note="large")]
    )
    assert listed == [cubin("a", "sm_90a", NEW), cubin("a", "sm_90a", NEW), fault, cubin("a", "sm_120f", NEW)]
    more = [read, cubin("a", "sm_90", OLD), cubin("a", "sm_90f", None), cubin("a", "sm_120", None)]
    assert [(image.arch, image.needs) for image in completed([*more, cubin("a", "sm_75", OLD, data=b"x")])] == [
        ("sm_90a", NEW), ("sm_90a", OLD), ("sm_90f", NEW), ("sm_120", NEW), ("sm_75", OLD),
    ]  # fmt: skip
    alone = cubin("a", "sm_120", None, note="large")
    ptx = DeviceImage("a", "ptx", "sm_120", needs=NEW)
    assert completed([alone, replace(ptx, data=b"x")]) == [alone, ptx]
    says = [cubin("a", "sm_80", OLD), cubin("a", "sm_80a", NEW, data=b"x"), cubin("a", "sm_80", NEW, data=b"x")]
    assert [(i.arch, i.needs) for i in completed(says)] == [("sm_80a", OLD), ("sm_80a", NEW), ("sm_80", NEW)]


def test_needs_are_folded(cuda_library, built, make_wheel, capsys) -> None:
    """Files with the same need share a line, which counts them; ``--symbols`` shows each."""
    cudart = cuda_library("libcudart.so.13", "cudaMalloc")
    files = {f"x/{name}.so": built(f"{name}.so", {cudart: "cudaMalloc"}, "", f"-Wl,-rpath,/{name}") for name in "abcd"}
    path = make_wheel("x-1-py3-none-any.whl", files, "nvidia-cuda-runtime>=13.0,<14")
    assert main(["audit", str(path)]) == 0
    out = capsys.readouterr().out
    assert "  x/a.so and 3 more files  need libcudart.so.13  (CUDA 13; 1 symbol)\n" in out
    assert "  x/a.so  RPATH /a\n" in out
    assert "  1 more RPATH: --symbols shows every file\n" in out
    assert "  rpath (note): 1 more: --symbols shows all\n" in out
    assert out.count("RPATH names") == 3
    assert main(["audit", str(path), "--symbols"]) == 0
    out = capsys.readouterr().out
    assert out.count(" needs libcudart.so.13  ") == 4
    assert out.count("RPATH names") == 4
    assert "more" not in out


def test_opened_libraries_are_folded(make_wheel, capsys) -> None:
    """A library that may be opened has a line with all its majors; the driver has none."""
    source = b"import ctypes as c\ntry:\n    c.CDLL('libnvrtc.so'), c.CDLL('libcuda.so.1')\nexcept OSError:\n    pass\n"
    assert main(["audit", str(make_wheel("x-1-py3-none-any.whl", {"x/a.py": source}))]) == 0
    out = capsys.readouterr().out
    assert "  x/a.py  may open libnvrtc of CUDA 11, 12, 13  (names libnvrtc.so)\n" in out
    assert "  x/a.py  may open the driver  (names libcuda.so.1)\n" in out
