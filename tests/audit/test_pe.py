"""DLLs of Windows wheels: imports, exports, names that are opened, and damaged files. The DLLs are made here."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cudalink.audit import AuditError, audit
from pytest_cudalink.audit.libraries import majors_of, soname_of_dll, stem_of
from pytest_cudalink.audit.needs import needs_of
from pytest_cudalink.cli import main
from pytest_cudalink.versions import CudaVersion

_BASE = 0x1000  # where the only section lies in memory
_RAW = 0x400  # and in the file


def dll(imports: Mapping[str, tuple[str, ...]], data: bytes = b"") -> bytes:
    """A DLL for x86-64 with one section that has the import tables and some data."""
    section = bytearray(20 * (len(imports) + 1))

    def put(content: bytes) -> int:
        section.extend(bytes(-len(section) % 8))
        at = len(section)
        section.extend(content)
        return _BASE + at

    for index, (name, symbols) in enumerate(imports.items()):
        names = [put(b"\0\0" + symbol.encode() + b"\0") for symbol in symbols]
        table = put(struct.pack(f"<{len(names) + 1}Q", *names, 0))
        row = struct.pack("<IIIII", table, 0, 0, put(name.encode() + b"\0"), table)
        section[20 * index : 20 * index + 20] = row
    put(b"\0" + data + b"\0\0")
    section.extend(bytes(-len(section) % 0x200))

    coff = struct.pack("<HHIIIHH", 0x8664, 1, 0, 0, 0, 240, 0x2022)
    optional = struct.pack("<HBBIIIII", 0x20B, 14, 0, 0, len(section), 0, 0, 0)
    optional += struct.pack("<QII", 0x180000000, 0x1000, 0x200) + struct.pack("<HHHHHHI", 6, 0, 0, 0, 6, 0, 0)
    optional += struct.pack("<IIIHH", _BASE + len(section), _RAW, 0, 3, 0) + struct.pack(
        "<QQQQII", 1 << 20, 1 << 12, 1 << 20, 1 << 12, 0, 16
    )
    directories = [(0, 0)] * 16
    directories[1] = (_BASE, 20 * (len(imports) + 1))
    optional += b"".join(struct.pack("<II", *one) for one in directories)
    assert len(optional) == 240
    header = struct.pack("<8sIIIIIIHHI", b".rdata", len(section), _BASE, len(section), _RAW, 0, 0, 0, 0, 0x40000040)
    head = b"MZ" + bytes(58) + struct.pack("<I", 64) + b"PE\0\0" + coff + optional + header
    return head + bytes(_RAW - len(head)) + bytes(section)


@pytest.mark.parametrize(
    ("name", "soname"),
    [
        ("cudart64_12.dll", "libcudart.so.12"),
        ("cudart64_110.dll", "libcudart.so.11.0"),
        ("nvrtc64_120_0.dll", "libnvrtc.so.12"),
        ("nvrtc64_112_0.dll", "libnvrtc.so.11.2"),
        ("nvrtc-builtins64_130.dll", "libnvrtc-builtins.so.13.0"),
        ("nvJitLink_130_0.dll", "libnvJitLink.so.13"),
        ("NVJITLINK_120_0.DLL", "libnvJitLink.so.12"),
        ("cublasLt64_13.dll", "libcublasLt.so.13"),
        ("cufft64_11.dll", "libcufft.so.11"),
        ("cusolver64_11.dll", "libcusolver.so.11"),
        ("curand64_10.dll", "libcurand.so.10"),
        ("cudnn64_9.dll", "libcudnn.so.9"),
        ("nvcuda.dll", "libcuda.so.1"),
        ("kernel32.dll", None),
        ("cuda_runtime.dll", None),
        ("libcudart.so.12", None),
    ],
)
def test_names(name: str, soname: str | None) -> None:
    """The name of a DLL says which library it is, and of which major."""
    assert soname_of_dll(name) == soname
    if soname and name.endswith(".dll"):
        assert (majors_of(name), stem_of(name)) == (majors_of(soname), stem_of(soname))


def test_imports(make_wheel, capsys) -> None:
    """Imported libraries, their majors, and the floor of the imported functions."""
    module = dll(
        {
            "KERNEL32.dll": ("ExitProcess",),
            "cudart64_12.dll": ("cudaMalloc", "cudaGetDriverEntryPointByVersion"),
            "nvcuda.dll": ("cuInit",),
        }
    )
    path = make_wheel("x_cu12-1-cp312-cp312-win_amd64.whl", {"x/_x.pyd": module}, "nvidia-cuda-runtime-cu12>=12.4")

    assert main(["audit", "--format=json", str(path)]) == 1

    (answer,) = json.loads(capsys.readouterr().out)
    assert answer["majors"] == ["12"]
    assert sorted(answer["libraries"]) == ["cudart64_12.dll", "nvcuda.dll"]
    floors = {(one["stem"], *one["floor"]) for one in answer["needs"] if one["floor"]}
    assert floors == {("libcudart", 12, 5)}
    (finding,) = answer["findings"]
    assert finding["kind"] == "floor"
    assert finding["suggestion"][0] == "nvidia-cuda-runtime-cu12>=12.5,<13"
    assert main(["audit", str(path)]) == 1
    assert "1 DLL; loads with CUDA 12\n" in capsys.readouterr().out


def test_bundled(make_wheel) -> None:
    """A DLL inside the wheel is no need, and counts as bundled."""
    user = dll({"cudart64_12.dll": ("cudaMalloc",)})
    path = make_wheel("x-1-cp312-cp312-win_amd64.whl", {"x/_x.pyd": user, "x.libs/cudart64_12.dll": dll({})})
    found = audit(path)
    assert found.bundled == ("x.libs/cudart64_12.dll",)
    assert found.needs == ()
    with pytest.raises(AssertionError, match=r"contains CUDA libraries: x\.libs/cudart64_12\.dll"):
        found.check(bundles=False)


def test_name_against_content(make_wheel) -> None:
    """A wheel for "cuda12.1" that was built with CUDA 13, as llama-cpp-python's wheels were."""
    path = make_wheel(
        "llama-0.3+cuda12.1-py3-none-win_amd64.whl", {"llama/ggml.dll": dll({"cudart64_13.dll": ("cudaMalloc",)})}
    )
    assert next((one.kind, one.text) for one in audit(path).errors) == (
        "majors",
        "the name of the wheel says CUDA 12, and it loads with CUDA 13 only",
    )


def test_opened(make_wheel) -> None:
    """Names that are opened at run time, in strings of one byte and of two for each character."""
    wide = b"\0\0" + "C:\\cuda\\nvJitLink_120_0.dll".encode("utf-16-le")
    module = dll({}, b"nvrtc64_%d_0.dll\0cannot open cufft64_11.dll\0" + wide)
    needs = needs_of(make_wheel("x_cu12-1-cp312-cp312-win_amd64.whl", {"x.dll": module}))
    assert {(need.stem, need.major, need.evidence) for need in needs} == {
        ("libnvrtc", 12, "names nvrtc64_%d_0.dll"),
        ("libnvJitLink", 12, "names nvJitLink_120_0.dll"),
    }


def test_ltoir(make_wheel) -> None:
    """LTO-IR in a DLL counts as it does in an ELF file."""
    header = bytearray(64)
    header[:8] = b"\xed\x43\x4e\x7f\x01\x40\x02\x5d"  # NVVM IR 2.93: CUDA 12.9
    header[16:20], header[26:28] = (64).to_bytes(4, "little"), (750).to_bytes(2, "little")
    needs = needs_of(make_wheel("x_cu12-1-cp312-cp312-win_amd64.whl", {"x.dll": dll({}, bytes(header))}))
    assert {(need.how, need.floor) for need in needs} == {("ltoir", CudaVersion(12, 9))}


def test_missing_pefile(make_wheel, monkeypatch) -> None:
    """Without pefile a DLL is a finding that says what to install."""
    monkeypatch.setitem(__import__("sys").modules, "pefile", None)
    (finding,) = audit(make_wheel("x-1-cp312-cp312-win_amd64.whl", {"x.dll": dll({})})).findings
    assert finding.kind == "unreadable"
    assert "install pytest-cudalink[audit]" in finding.text


SAMPLE = dll({"cudart64_12.dll": ("cudaMalloc", "cudaFree"), "nvrtc64_120_0.dll": ("nvrtcVersion",)}, b"nvcuda.dll")


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_damaged_dlls(data, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A cut or changed DLL is a finding or is read as it is; nothing escapes, nothing hangs."""
    changed = bytearray(SAMPLE[: data.draw(st.integers(2, len(SAMPLE)))])
    for _ in range(data.draw(st.integers(0, 8))):
        at = data.draw(st.one_of(st.integers(2, 0x1A0), st.integers(2, len(SAMPLE) - 1)))
        if at < len(changed):
            changed[at] = data.draw(st.integers(0, 255))
    path: Path = tmp_path_factory.mktemp("damaged")
    (path / "x.dll").write_bytes(changed)
    began = time.monotonic()
    try:
        found = audit(path)
    except AuditError as error:
        assert "has no library" in str(error)
    else:
        assert found.files or found.findings
    assert time.monotonic() - began < 60


def test_many_imports(make_wheel: Callable[..., Path]) -> None:
    """Tables that name the same function again and again are bounded."""
    began = time.monotonic()
    audit(make_wheel("x-1-py3-none-win_amd64.whl", {"x.dll": dll({f"a{n}.dll": ("f",) * 40 for n in range(2000)})}))
    assert time.monotonic() - began < 60
