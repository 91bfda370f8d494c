"""DLLs of Windows wheels: imports, exports, names that are opened, and damaged files. The DLLs are made here."""

import json
import struct
import time
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cudalink.audit import AuditError, audit, loadable
from pytest_cudalink.audit.loadable import LoadableLibrary
from pytest_cudalink.cli import main
from pytest_cudalink.compat.libraries import majors_of, soname_of_dll, stem_of

_BASE = 0x1000  # where the only section lies in memory
_RAW = 0x400  # and in the file


def dll(
    imports: Mapping[str, tuple[str | int, ...]],
    data: bytes = b"",
    *,
    delayed: Mapping[str, tuple[str, ...]] | None = None,
    exports: tuple[str, ...] = (),
    name: bytes = b".rdata",
) -> bytes:
    """A DLL for x86-64 with one section that has the tables of symbols and some data; a number is an ordinal."""
    section = bytearray(20 * (len(imports) + 1))
    directories = [(0, 0)] * 16
    directories[1] = (_BASE, len(section))

    def put(content: bytes) -> int:
        section.extend(bytes(-len(section) % 8))
        at = len(section)
        section.extend(content)
        return _BASE + at

    def thunks(symbols: tuple[str | int, ...]) -> int:
        rows = [1 << 63 | name if isinstance(name, int) else put(b"\0\0" + name.encode() + b"\0") for name in symbols]
        return put(struct.pack(f"<{len(rows) + 1}Q", *rows, 0))

    for index, (library, symbols) in enumerate(imports.items()):
        table = thunks(symbols)
        row = struct.pack("<IIIII", table, 0, 0, put(library.encode() + b"\0"), table)
        section[20 * index : 20 * index + 20] = row
    if delayed:
        rows = [
            struct.pack("<8I", 1, put(library.encode() + b"\0"), 0, table, table, 0, 0, 0)
            for library, symbols in delayed.items()
            if (table := thunks(symbols))
        ]
        directories[13] = (put(b"".join(rows) + bytes(32)), 32 * (len(rows) + 1))
    if exports:
        names = struct.pack(f"<{len(exports)}I", *(put(export.encode() + b"\0") for export in exports))
        ordinals = struct.pack(f"<{len(exports)}H", *range(len(exports)))
        places = put(struct.pack("<I", _BASE) * (len(exports) + 1)), put(names), put(ordinals)
        count = len(exports)
        directories[0] = (put(struct.pack("<IIIIIIIIII", 0, 0, 0, 0, 1, count + 1, count, *places)), 40)
    put(b"\0" + data + b"\0\0")
    section.extend(bytes(-len(section) % 0x200))

    coff = struct.pack("<HHIIIHH", 0x8664, 1, 0, 0, 0, 240, 0x2022)
    optional = struct.pack("<HBBIIIII", 0x20B, 14, 0, 0, len(section), 0, 0, 0)
    optional += struct.pack("<QII", 0x180000000, 0x1000, 0x200) + struct.pack("<HHHHHHI", 6, 0, 0, 0, 6, 0, 0)
    optional += struct.pack("<IIIHH", _BASE + len(section), _RAW, 0, 3, 0) + struct.pack(
        "<QQQQII", 1 << 20, 1 << 12, 1 << 20, 1 << 12, 0, 16
    )
    optional += b"".join(struct.pack("<II", *directory) for directory in directories)
    assert len(optional) == 240
    header = struct.pack("<8sIIIIIIHHI", name, len(section), _BASE, len(section), _RAW, 0, 0, 0, 0, 0x40000040)
    head = b"MZ" + bytes(58) + struct.pack("<I", 64) + b"PE\0\0" + coff + optional + header
    return head + bytes(_RAW - len(head)) + bytes(section)


@pytest.mark.parametrize(
    ("name", "soname"),
    [
        ("cudart64_12.dll", "libcudart.so.12"), ("cudart64_110.dll", "libcudart.so.11.0"),
        ("nvrtc64_120_0.dll", "libnvrtc.so.12"), ("nvrtc64_112_0.dll", "libnvrtc.so.11.2"),
        ("nvrtc-builtins64_130.dll", "libnvrtc-builtins.so.13.0"),
        ("nvJitLink_130_0.dll", "libnvJitLink.so.13"), ("NVJITLINK_120_0.DLL", "libnvJitLink.so.12"),
        ("cublasLt64_13.dll", "libcublasLt.so.13"), ("cufft64_11.dll", "libcufft.so.11"),
        ("cusolver64_11.dll", "libcusolver.so.11"), ("curand64_10.dll", "libcurand.so.10"),
        ("cudnn64_9.dll", "libcudnn.so.9"), ("nvcuda.dll", "libcuda.so.1"), ("NVCUDA.DLL", "libcuda.so.1"),
        ("NVRTC-BUILTINS64_130.DLL", "libnvrtc-builtins.so.13.0"),
        ("nppial64_12.dll", "libnppial.so.12"), ("cudart.dll", "libcudart.so"), ("kernel32.dll", None),
        ("cuda_runtime.dll", None), ("libcudart.so.12", None),
    ],
)  # fmt: skip
def test_names(name: str, soname: str | None) -> None:
    """The name of a DLL says which library it is, and of which major."""
    assert soname_of_dll(name) == soname
    if soname and name.endswith(".dll"):
        assert (majors_of(name), stem_of(name)) == (majors_of(soname), stem_of(soname))


def test_what_is_read_of_a_dll(monkeypatch) -> None:
    """Names of imports, at once and delayed, and of exports; not what has only a number."""
    content = dll(
        {"KERNEL32.dll": ("ExitProcess",), "cudart64_12.dll": ("cudaMalloc", 7)},
        delayed={"nvcuda.dll": ("cuInit",), "cudart64_12.dll": ("cudaFree",)},
        exports=("cudaMalloc", "use"),
    )
    functions = [("ExitProcess", "KERNEL32.dll"), ("cudaMalloc", "cudart64_12.dll"), ("cuInit", "nvcuda.dll")]
    functions.append(("cudaFree", "cudart64_12.dll"))
    undefined = tuple((symbol, name, name) for symbol, name in functions)
    for most in (4, 3):
        monkeypatch.setattr(loadable, "_MOST_SYMBOLS", most)
        assert loadable.read_pe("x/a.pyd", BytesIO(content)) == LoadableLibrary(
            "a.pyd", ("KERNEL32.dll", "cudart64_12.dll", "nvcuda.dll"), (), (), undefined[:most],
            frozenset({"cudaMalloc", "cuInit", "cudaFree"}), frozenset({"cudaMalloc"}),
        )  # fmt: skip
    assert loadable.read_pe("a.dll", BytesIO(dll({}))) == LoadableLibrary(
        "a.dll", (), (), (), (), frozenset(), frozenset()
    )


@pytest.mark.parametrize(
    ("name", "head", "is_one"),
    [("x.DLL", b"MZ\0", True), ("x.pyd", b"MZ", True), ("x.exe", b"MZ", False), ("x.dll", b"ZM", False)],
)
def test_what_is_a_dll(name: str, head: bytes, is_one: bool) -> None:
    """By its name and its first bytes, which can be read again."""
    stream = BytesIO(head)
    assert (loadable.is_pe(name, stream), stream.tell()) == (is_one, 0)


@pytest.mark.parametrize(("name", "counts"), [(b".rdata", True), (b".data", True), (b".text", False)])
def test_sections_with_strings(name: bytes, counts: bool) -> None:
    content = dll({}, name=name)
    assert loadable.pe_data_ranges(BytesIO(content)) == ([(_RAW, len(content) - _RAW)] if counts else [])


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
    floors = {(need["stem"], *need["floor"]) for need in answer["needs"] if need["floor"]}
    assert floors == {("libcudart", 12, 5)}
    (finding,) = answer["findings"]
    assert finding["kind"] == "floor"
    assert finding["suggestion"][0] == "nvidia-cuda-runtime-cu12>=12.5,<13"
    assert main(["audit", str(path)]) == 1
    assert "1 DLL; loads with CUDA 12\n" in capsys.readouterr().out


def test_missing_pefile(make_wheel, monkeypatch) -> None:
    """Without pefile a DLL is a finding that says what to install."""
    monkeypatch.setitem(__import__("sys").modules, "pefile", None)
    (finding,) = audit(make_wheel("x-1-cp312-cp312-win_amd64.whl", {"x.dll": dll({})})).findings
    said = "DLLs are read by pefile, which is not installed; install pytest-cudalink[audit]"
    assert (finding.kind, finding.what) == ("unreadable", f"cannot be read: ModuleNotFoundError: {said}")


SAMPLE = dll({"cudart64_12.dll": ("cudaMalloc", "cudaFree"), "nvrtc64_120_0.dll": ("nvrtcVersion",)}, b"nvcuda.dll")


@pytest.mark.weekly
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
        audited = audit(path)
    except AuditError as error:
        assert "has no library" in str(error)
    else:
        assert audited.files or audited.findings
    assert time.monotonic() - began < 60


def test_many_imports(make_wheel: Callable[..., Path]) -> None:
    """Tables that name the same function again and again are bounded."""
    began = time.monotonic()
    audit(make_wheel("x-1-py3-none-win_amd64.whl", {"x.dll": dll({f"a{n}.dll": ("f",) * 40 for n in range(2000)})}))
    assert time.monotonic() - began < 60
