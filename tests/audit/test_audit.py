"""The audit of wheels, on libraries that are made here, damaged ones, and the plugin's fixture."""

import io
import mmap
import os
import re
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from struct import Struct
from typing import Any, Final

import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cudalink.audit import Audit, AuditError, Dependency, FileAudit, audit, loadable
from pytest_cudalink.audit.device_code import DeviceImage
from pytest_cudalink.audit.loadable import (
    LoadableLibrary,
    cuda_functions,
    data_ranges,
    is_elf,
    loaded_by,
    read_dynamic,
    read_elf,
    resolve,
)
from pytest_cudalink.audit.opened import OpenedLibrary
from pytest_cudalink.audit.scan import Scan
from pytest_cudalink.audit.wheel import audit_scan
from pytest_cudalink.base.elf import HEADER, MAGIC, ElfError
from pytest_cudalink.base.finding import Finding
from pytest_cudalink.cli import main
from pytest_cudalink.compat.libraries import (
    is_foreign,
    is_system,
    is_unversioned_symbol,
    majors_of,
    sought_part,
    stem_of,
)
from pytest_cudalink.environment.loader_search import expanded
from pytest_cudalink.versions import CudaVersion, Needs
from tests.stubs.conftest import compile_c

USES = "extern int cudaMalloc(); int f(void) { return cudaMalloc(); }"


def bundled(folder: Path, name: str, *flags: str) -> Path:
    """A library of CUDA's as a wheel brings it along."""
    return compile_c(folder / name, "int cudaMalloc(void) { return 0; }", *flags)


def test_bundled_where_the_loader_does_not_look(tmp_path, capsys) -> None:
    """A library in another folder of the wheel does not help a file whose RPATH does not lead there."""
    library = bundled(tmp_path / "other", "libcudart.so.12")
    compile_c(tmp_path / "pkg/libuse.so", USES, str(library), "-Wl,-rpath,$ORIGIN/../../other")
    assert main(["audit", str(tmp_path), "--require", "none"]) == 1
    printed = capsys.readouterr().out
    assert "loads with CUDA 12\n" in printed
    assert "needs libcudart.so.12  (CUDA 12; 0 symbols; no RPATH leads to other/libcudart.so.12)" in printed


@pytest.mark.parametrize(
    ("tags", "needs", "reached"),
    [
        ("--disable-new-dtags", ("libmiddle.so",), True),  # RPATH holds for what is loaded on its behalf
        ("--enable-new-dtags", ("libmiddle.so",), False),  # RUNPATH does not
        ("--enable-new-dtags", ("libcudart.so.12", "libmiddle.so"), True),  # already loaded when it is asked for
    ],
)
def test_bundled_for_another_library(tags: str, needs: tuple[str, ...], reached: bool, run, tmp_path) -> None:
    """What the file that loads a library is able to find counts for that library, as for the dynamic loader."""
    libs = tmp_path / "pkg.libs"
    library = bundled(libs, "libcudart.so.12")
    compile_c(libs / "libmiddle.so", USES.replace("f(", "middle("), str(library))
    flags = ("-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN/../pkg.libs", f"-Wl,{tags}", "-Wl,--allow-shlib-undefined")
    top = compile_c(tmp_path / "pkg/libtop.so", "int x;", *flags, *(str(libs / name) for name in needs))
    audited = audit(tmp_path)
    assert ("none" in audited.majors) == reached
    assert (run(f"import ctypes; ctypes.CDLL({str(top)!r})").returncode == 0) == reached


def test_our_stubs_pass(stubs) -> None:
    """Our own stubs load anywhere, and no search takes them for the real libraries."""
    audited = audit(stubs["cudart"].parent)
    audited.check("11", "12", "13", "none")
    assert audited.libraries == {}


def test_table_and_exit_codes(cuda_library, built, tmp_path, capsys) -> None:
    """0 without faults, 1 for a missing required major or a finding, 2 for a file that is not a wheel."""
    good = built("libuse.so", {cuda_library("libcudart.so.13", "cudaMalloc"): "cudaMalloc"})
    assert main(["audit", str(good)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{good}: 1 ELF file; loads with CUDA 13",
        "  libuse.so  needs libcudart.so.13  (CUDA 13; 1 symbol)",
        "  libuse.so  needs at least libcudart of CUDA 13.0  (wants cudaMalloc of CUDA 13.0)",
    ]
    built("libnew.so", {cuda_library("libcudart.so.13", "cudaDevSmResourceSplit"): "cudaDevSmResourceSplit"})
    assert main(["audit", str(good.parent)]) == 0
    highest = "  libnew.so  needs at least libcudart of CUDA 13.1  (wants cudaDevSmResourceSplit of CUDA 13.1)"
    assert capsys.readouterr().out.splitlines()[-1] == highest
    assert main(["audit", str(good), "--require", "13", "--symbols"]) == 0
    assert "      cudaMalloc@libcudart.so.13\n" in capsys.readouterr().out
    assert main(["audit", str(good), "--require", "12,13,none"]) == 1
    assert capsys.readouterr().out.splitlines()[3:] == [
        "  required: cannot be loaded with CUDA 12, because of libcudart.so.13",
        "  required: cannot be loaded without CUDA, because of libcudart.so.13",
    ]
    assert main(["audit", str(good), "--require", "14"]) == 2
    assert "expected one of 11, 12, 13, none" in capsys.readouterr().err
    text = tmp_path / "text.so"
    text.write_text("not ELF", encoding="utf-8")
    for wrong, words in ((text, "neither a wheel nor an ELF file"), (tmp_path / "none.whl", "")):
        assert main(["audit", str(wrong)]) == 2
        assert words in capsys.readouterr().err
    (tmp_path / "bad.whl").write_bytes(b"PK\3\4 nonsense")
    assert main(["audit", str(tmp_path / "bad.whl")]) == 2
    assert "not a wheel" in capsys.readouterr().err


@pytest.mark.parametrize("require", [(), ("--require", "11,12,13,none")])
def test_pure_wheel(require, make_wheel, capsys) -> None:
    """A wheel that has nothing to do with CUDA passes, also beside others that need CUDA; none is a special case."""
    path = make_wheel("x-1-py3-none-any.whl", {"x/a.py": b"print(1)\n"}, "nvidia-cuda-runtime==99")
    assert main(["audit", str(path), *require]) == 0
    assert capsys.readouterr().out == (f"{path}: no library; loads with CUDA 11, CUDA 12, CUDA 13, no CUDA at all\n")


def test_fixture(cuda_library, built, pytester) -> None:
    """``audit_wheel(...).check(...)`` fails a test with a line for each reason, and passes a good one."""
    bad = built("libuse.so", {cuda_library("libcudart.so.12", "cudaMalloc"): "cudaMalloc"})
    good = built("libgood.so", {})
    pytester.makepyfile(
        f"""
        def test_good(audit_wheel):
            audit_wheel({str(good)!r}).check("11", "12", "13", "none")

        def test_bad(audit_wheel):
            audit_wheel({str(bad)!r}).check("12", "13", "none")
        """
    )
    result = pytester.runpytest("-p", "cudalink")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            f"E*AssertionError: {bad}",
            "E*cannot be loaded with CUDA 13: needs libcudart.so.12",
            "E*cannot be loaded without CUDA: needs libcudart.so.12",
        ]
    )


@pytest.fixture(scope="module")
def sample(tmp_path_factory) -> bytes:
    """The bytes of a library that needs a version of a symbol."""
    folder = tmp_path_factory.mktemp("sample")
    (folder / "cudart.map").write_text("libcudart.so.12 { global: cudaMalloc; local: *; };", encoding="utf-8")
    library = bundled(folder, "libcudart.so.12", f"-Wl,--version-script={folder / 'cudart.map'}")
    return compile_c(folder / "libuse.so", USES, str(library)).read_bytes()


@settings(max_examples=150)
@given(
    end=st.integers(0, 1 << 16), changes=st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=8)
)
def test_damaged_files(end, changes, sample, tmp_path_factory) -> None:
    """A cut or changed file is a finding or is read as it is; nothing escapes, nothing hangs."""
    bytes_ = bytearray(sample[: 5 + end % (len(sample) - 4)])
    for at, value in changes:
        bytes_[4 + at % (len(bytes_) - 4)] = value
    path = tmp_path_factory.mktemp("damaged") / "libuse.so"
    path.write_bytes(bytes_)
    try:
        audited = audit(path)
    except AuditError as error:
        assert "has no library" in str(error)
    else:
        assert audited.files or audited.findings


@pytest.fixture(scope="module")
def sample_wheel(sample) -> bytes:
    """The bytes of a compressed wheel with that library and a text."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("libuse.so", sample)
        archive.writestr("text.py", "x = 1\n")
    return content.getvalue()


@pytest.mark.parametrize(
    ("offset", "value", "words"),
    [
        (14, 0, "BadZipFile"),  # the checksum
        (6, 1, "encrypted"),
        (8, 99, "NotImplementedError"),  # the compression
    ],
)
def test_unreadable_member(offset: int, value: int, words: str, sample_wheel, tmp_path, capsys) -> None:
    """A member that cannot be unpacked is a finding that names it, and the others are read."""
    path = tmp_path / "x.whl"
    changed = bytearray(sample_wheel)
    for begin, at in ((0, offset), (changed.index(b"PK\1\2"), offset + 2)):  # its head, and its entry of the directory
        changed[begin + at] = value
    path.write_bytes(changed)
    assert main(["audit", str(path)]) == 1
    printed = capsys.readouterr().out
    assert "  unreadable: libuse.so: cannot be read: " in printed
    assert words in printed


@settings(max_examples=150)
@given(data=st.data())
def test_damaged_wheels(data, sample_wheel, tmp_path_factory) -> None:
    """A cut or changed wheel is refused, has a finding or is read as it is; nothing else escapes."""
    changed = bytearray(sample_wheel)
    directory = sample_wheel.index(b"PK\1\2")
    places = st.one_of(st.integers(0, 60), st.integers(directory, len(changed) - 1), st.integers(0, len(changed) - 1))
    for _ in range(data.draw(st.integers(0, 8))):
        changed[data.draw(places)] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("damaged") / "x.whl"
    path.write_bytes(changed[: len(changed) - data.draw(st.sampled_from([0, 0, 0, 1, 30, 200]))])
    try:
        audited = audit(path)
    except AuditError as error:
        assert str(path) in str(error)
    else:
        assert audited.files or audited.findings


def test_tables_that_never_end(sample, tmp_path) -> None:
    """Versions that claim to be many, each its own successor, are a finding within seconds."""
    data = bytearray(sample)
    at = ELFFile(io.BytesIO(sample)).get_section_by_name(".gnu.version_r")["sh_offset"]
    data[at + 2 : at + 4] = b"\xff" * 2  # vn_cnt
    auxiliary = at + int.from_bytes(data[at + 8 : at + 12], "little")
    data[auxiliary + 12 : auxiliary + 16] = bytes(4)  # vna_next
    (tmp_path / "lib.so").write_bytes(data)
    before = time.monotonic()
    (finding,) = audit(tmp_path / "lib.so").findings
    assert "again and again" in str(finding)
    assert time.monotonic() - before < 60


def test_a_long_name_of_every_symbol(tmp_path) -> None:
    """A megabyte of name that every symbol has is a finding, and does not fill memory."""
    name = "x" * ((1 << 20) - 8)
    source = f"void {name}(void) {{}}" + "".join(f"void f{number}(void) {{}}" for number in range(300))
    path = compile_c(tmp_path / "lib.so", source)
    data = bytearray(path.read_bytes())
    elf = ELFFile(io.BytesIO(bytes(data)))
    symbols = elf.get_section_by_name(".dynsym")
    long = next(symbol["st_name"] for symbol in symbols.iter_symbols() if symbol.name == name)
    for index in range(1, symbols.num_symbols()):
        at = symbols["sh_offset"] + index * symbols["sh_entsize"]
        data[at : at + 4] = long.to_bytes(4, "little")
    path.write_bytes(data)
    (finding,) = audit(path).findings
    assert "the same long name again and again" in str(finding)


ALL = ("11", "12", "13")


@pytest.mark.parametrize(
    ("name", "stem", "majors"),
    [
        ("libcudart.so.12", "libcudart", ("12",)), ("libcudart.so.11.0", "libcudart", ("11",)),
        ("libcudart.so", "libcudart", ALL), ("libcudart.so.120", "libcudart", ()),
        ("libcudart-d0da41ae.so.12.9.79", "libcudart", ("12",)), ("libcudart.faf08d9a.so.12", "libcudart", ("12",)),
        ("libcupti.so.11.7", "libcupti", ("11",)), ("libcusolver.so.11", "libcusolver", ("11", "12")),
        ("libnvrtc-builtins.so.12.9", "libnvrtc-builtins", ("12",)), ("libnvrtc.alt.so.13", "libnvrtc", ("13",)),
        ("libnppial-0123abcd.so.13.0.2", "libnppial", ("13",)), ("libcublasMp.so.0", "libcublasMp", ALL),
        *((f"{stem}.so{rest}", stem, ALL) for stem, rest in (
            ("libcudnn_ops", ".9"), ("libcudla", ".1"), ("libnvperf_host", ""), ("libcufile_rdma", ".1"),
            ("libcutensorMg", ".2"), ("libcusolverMp", ".0"), ("libnvtx3interop", ""), ("libnvcomp", ".5"),
            ("libnvidia-ml", ".1"), ("libnvcuvid", ".1"),
        )),
        ("libtorch.so.12", "libtorch", None), ("libcudart", "libcudart", None), ("xlibnpp.so", "xlibnpp.so", None),
        ("cudart64_12.dll", "libcudart", ("12",)), ("CUDART64_12.DLL", "libcudart", ("12",)),
        ("kernel32.dll", "kernel32.dll", None),
    ],
)  # fmt: skip
def test_names_of_libraries(name: str, stem: str, majors: tuple[str, ...] | None) -> None:
    """Every library of CUDA and of its products counts, under the names that tools for wheels give them, too."""
    assert (stem_of(name), majors_of(name)) == (stem, majors)


@pytest.mark.parametrize(
    ("name", "system"),
    [
        *((f"lib{name}", True) for name in ("c.so.6", "stdc++.so.6", "gomp-a34b3233.so.1.0.0", "python3.12.so.1.0")),
        *((name, True) for name in ("libnuma.so.1", "ld-linux-x86-64.so.2", "KERNEL32.dll", "MSVCP140.dll")),
        *((name, False) for name in ("libcuda.so.1", "libc.so.6x", "libmine.so", "mine.dll", "kernel32.dllx")),
        *(("api-ms-win-crt-1-1-0.dll", True), ("libtorch", False), ("libc10.so", False)),
    ],
)
def test_libraries_without_cuda(name: str, system: bool) -> None:
    """Those of the system, of compilers and of Python."""
    assert is_system(name) is system
    foreign = [is_foreign(f"libmine.so{end}", followed=followed) for followed in (True, False) for end in ("", ".1")]
    assert foreign == [True, False, True, True]


def test_functions_and_parts_of_names() -> None:
    """The forms of functions of libraries without symbol versions, and names that a search takes for CUDA's."""
    pairs = "libcuda.so.1 cuInit, libcuda.so.1 cudaMalloc, libcuda.so.1 xcuInit, libnvidia-ml.so.1 nvmlInit"
    asked = [is_unversioned_symbol(*word.split()) for word in f"{pairs}, libcudart.so.12 cuInit".split(", ")]
    assert asked == [True, False, False, True, False]
    names = "libcudart_stub.so", "my-libnvrtc.so", "libnvJitLink-1.so", "libcuda.so", "libmine.so"
    assert [*map(sought_part, names)] == ["libcudart", "libnvrtc", "libnvJitLink", "libcuda.so", None]
    assert [cuda_functions()[name] for name in ("cudaMalloc", "cuInit")] == ["libcudart", "libcuda"]


# -- what is read of files


def test_bytes_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From its start, in memory up to a bound; a mapping ends with the block, unless a caller keeps a view."""
    monkeypatch.setattr(loadable, "_IN_MEMORY", 4)
    for content, kind in ((b"1234", bytes), (b"12345", mmap.mmap)):
        (tmp_path / "x").write_bytes(content)
        with (tmp_path / "x").open("rb") as stream:
            stream.seek(2)
            with loadable.buffer(stream) as data:
                assert isinstance(data, kind)
                assert data[:] == content
    with pytest.raises(ValueError, match="closed"):
        data[:]
    with (tmp_path / "x").open("w+b") as stream:
        stream.write(b"67890")
        with loadable.buffer(stream) as data:
            view = memoryview(data)
        assert bytes(view) == b"67890"
    with loadable.buffer(io.BytesIO(b"123456")) as data:
        assert data == b"123456"
        loadable.count_read(data, 6)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/smaps")
@pytest.mark.parametrize("how", ["searched", "read"])
def test_what_was_read_of_a_mapped_file_leaves_memory(tmp_path: Path, monkeypatch, how: str) -> None:
    """Of a file of 24 windows, less than the half is in memory; how much of one window is, the system decides."""
    monkeypatch.setattr(loadable, "_IN_MEMORY", 4)
    monkeypatch.setattr(loadable, "_WINDOW", window := 64 * mmap.PAGESIZE)
    (tmp_path / "file").write_bytes(bytes(24 * window))
    with (tmp_path / "file").open("rb") as stream, loadable.buffer(stream) as data:
        if how == "searched":
            assert data.find(b"mark") == -1
        else:
            for start in range(0, len(data), window):
                assert not any(data[start : start + window])
                loadable.count_read(data, window)
        mapping = Path("/proc/self/smaps").read_text().partition(str(tmp_path / "file"))[2]
    assert int(re.search(r"Rss: *(\d+) kB", mapping)[1]) * 1024 < 12 * window


def test_a_mapped_file_is_searched_as_bytes_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where something lies across the border of two windows, and after pages were given back."""
    monkeypatch.setattr(loadable, "_IN_MEMORY", 4)
    monkeypatch.setattr(loadable, "_WINDOW", page := mmap.PAGESIZE)
    content = bytearray(5 * page + 7)
    for at in (0, page - 2, 2 * page, 5 * page - 1, 5 * page + 3):
        content[at : at + 4] = b"mark"
    (tmp_path / "file").write_bytes(content)
    with (tmp_path / "file").open("rb") as stream, loadable.buffer(stream) as data:
        for start in range(0, len(content), 61):
            for end in (None, start + 3, start + 4, start + 2 * page, 5 * page + 1, len(content) + 9):
                wanted = content.find(b"mark", start, *([] if end is None else [end]))
                assert data.find(b"mark", start, *([] if end is None else [end])) == wanted
        assert data.find(b"mark") == 0
        loadable.count_read(data, page)
        assert data[: len(content)] == content


_READS: Final = """
import sys
from pathlib import Path
from pytest_cudalink.audit.device_code import images
def peak():
    return next(int(line.split()[1]) for line in Path("/proc/self/status").open() if line.startswith("VmHWM"))
list(images(sys.argv[1]))  # what is imported and allocated once
before = peak()
assert not list(images(sys.argv[2]))
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_a_large_file_is_not_in_memory_at_once(tmp_path: Path) -> None:
    """The memory that an audit takes does not grow with the largest file."""
    small, large = tmp_path / "small", tmp_path / "large"
    for path, size in ((small, 1), (large, 160 << 20)):
        path.write_bytes(b"x" * 100)
        os.truncate(path, size)
    done = subprocess.run(
        [sys.executable, "-c", _READS, str(small), str(large)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 32 << 10  # KiB


CUBIN = Path(__file__).parents[1] / "data/artifacts/13.0/user.cubin"


def test_what_is_read_of_a_library(cuda_library, tmp_path: Path) -> None:
    """What it needs, wants and defines of CUDA; the quick reader leaves out symbols that cannot be CUDA's."""
    cudart = cuda_library("libcudart.so.12", "cudaMalloc", "cudaGetDevice")
    other = compile_c(tmp_path / "libother.so", "int other(void) { return 0; } int cuOther(void) { return 0; }")
    source = """
        extern int cudaMalloc(void), other(void), cuOther(void), cudaGetDevice(void) __attribute__((weak));
        int mine(void) { return other() + cuOther() + (cudaGetDevice ? cudaGetDevice() : 0); }
        int cudaFree(void) { return cudaMalloc(); }
    """
    old, new = "-Wl,--disable-new-dtags,-rpath,/a::$ORIGIN", "-Wl,--enable-new-dtags,-rpath,/b"
    path = compile_c(tmp_path / "libx.so", source, "-nostdlib", old, str(cudart), str(other))
    versioned = tuple((name, "libcudart.so.12", "libcudart.so.12") for name in ("cudaGetDevice", "cudaMalloc"))
    needed, weak = ("libcudart.so.12", "libother.so"), frozenset({"cudaGetDevice"})
    quick = LoadableLibrary(
        "libx.so", needed, ("/a", "", "$ORIGIN"), (), (("cuOther", "", ""), *versioned), frozenset(), frozenset(), weak
    )
    dynamic = read_dynamic(path)
    assert dynamic is not None
    assert replace(dynamic, undefined=tuple(sorted(dynamic.undefined))) == quick
    assert dynamic.machine == ""
    content = bytearray(path.read_bytes())
    for number, machine in ((62, "x86_64"), (183, "aarch64"), (3, "")):
        content[18:20] = number.to_bytes(2, "little")
        thorough = read_elf(io.BytesIO(content))
        assert thorough is not None
        assert replace(thorough, undefined=tuple(sorted(thorough.undefined))) == replace(
            quick, undefined=(*quick.undefined, ("other", "", "")), wanted=frozenset({"cudaMalloc"}),
            defined=frozenset({"cudaFree"}), machine=machine,
        )  # fmt: skip
    assert quick.rpaths == ("/a", "", "$ORIGIN")
    user = compile_c(
        tmp_path / "liby.so", "extern int cuOther(void); int y(void) { return cuOther(); }", new, str(other)
    )
    dynamic = read_dynamic(user)
    assert dynamic is not None
    assert (dynamic.rpath, dynamic.runpath, dynamic.rpaths, dynamic.undefined) == ((), ("/b",), ("/b",), ())


@pytest.mark.parametrize(
    ("content", "damaged"),
    [
        (CUBIN.read_bytes(), False), (b"", False), (b"INPUT(libcudart.so.12)\n" * 10, False),
        *((b"\x7fELF" + head, False) for head in (b"\1\1", b"\1\2", b"\2\2\1")),
        *((b"\x7fELF" + head, True) for head in (b"\2\1", b"\3\1", b"")),
    ],
)  # fmt: skip
def test_files_that_no_loader_loads(content: bytes, damaged: bool, tmp_path: Path) -> None:
    """Device code, scripts of linkers and libraries of other machines are none; a header that is cut off is damaged."""
    (tmp_path / "x").write_bytes(content)
    for read in (lambda: read_elf(io.BytesIO(content)), lambda: read_dynamic(tmp_path / "x")):
        if damaged:
            with pytest.raises(ElfError, match="^its header is damaged$"):
                read()
        else:
            assert read() is None


@pytest.mark.parametrize(
    ("sections", "ranges"),
    [
        ([("rodata", 1, 2, 0, 10), ("b", 1, 3, 20, 5)], [(0, 10), (20, 5)]),
        ([("a", 8, 2, 0, 10), ("b", 1, 1, 0, 10), ("c", 1, 6, 0, 10), (".eh_frame", 1, 2, 0, 10)], []),
        ([("a", 1, 2, 0, 10), ("b", 1, 2, 2, 3), ("c", 1, 2, 5, 10), ("d", 1, 2, 15, 0), ("d", 1, 2, 15, 1)],
         [(0, 10), (10, 5), (15, 1)]),
        ([("a", 1, 2, -1, 10), ("b", 1, 2, -2, 10)], [(-2, 2)]),
        ([("a", 1, 2, 10_000, 10)], []),
    ],
)  # fmt: skip
def test_sections_with_strings(sections: list[tuple[str, int, int, int, int]], ranges: list[tuple[int, int]]) -> None:
    """Constant data and variables as far as they lie in the file, each byte once; negative places are from the end."""
    texts = b"\0".join([b"", *(name.encode() for name, *_ in sections), b""])
    size = 64 * (2 + len(sections)) + len(texts)
    rows = [("", 3, 0, size - len(texts), len(texts)), *sections]
    layout = Struct("<IIQQQQIIQQ")
    table = b"".join(
        layout.pack(texts.find(f"\0{name}\0".encode()) + 1, kind, flags, 0, at % size if at < 0 else at, most, *[0] * 4)
        for name, kind, flags, at, most in rows
    )
    head = MAGIC + HEADER.pack(62, 0, 64, 0, 0, 64, len(rows), 0)[len(MAGIC) :]
    expected = [(at % size, most) for at, most in ranges]
    assert data_ranges(io.BytesIO(head + table + texts)) == expected


def test_what_is_an_elf_file() -> None:
    """By its first bytes, which can be read again; other files have no sections."""
    for content, expected in ((b"\x7fELF\2", True), (b"\x7fEL", False), (b"MZ..", False)):
        stream = io.BytesIO(content)
        assert (is_elf(stream), stream.tell()) == (expected, 0)
    assert data_ranges(io.BytesIO(b"text")) == []


# -- what was read is judged, without files


def elf(*needed: str, soname: str | None = None, **more: Any) -> LoadableLibrary:
    """A library that needs others; ``undefined`` is ``"SYMBOL@LIBRARY …"``, and sets are words."""
    undefined = tuple(
        (symbol, library, library)
        for symbol, _, library in (word.partition("@") for word in more.pop("undefined", "").split())
    )
    wanted, defined = (frozenset(more.pop(name, "").split()) for name in ("wanted", "defined"))
    rpath, runpath = more.pop("old", ()), more.pop("rpath", ())
    return LoadableLibrary(soname, needed, rpath, runpath, undefined, wanted, defined, **more)


def judged(elves: dict[str, LoadableLibrary], *requires: str, path: str = "x.whl", **more: Any) -> Audit:
    """The audit of a wheel with these libraries and requirements."""
    lines = ["Metadata-Version: 2.1", "Name: x", "Version: 1", *(f"Requires-Dist: {n}" for n in requires), "", ""]
    metadata = {"x-1.dist-info/METADATA": "\n".join(lines).encode()}
    return audit_scan(Scan(path, **{"elves": elves, "metadata": metadata, **more}))


def said(audited: Audit, kind: str = "") -> list[tuple[str, str, str]]:
    """Path, severity and text of the findings, or of those of a kind."""
    return [(f.place, f.severity, f.what) for f in audited.findings if kind in ("", f.kind)]


CUDART, CUDART_13, DRIVER = "libcudart.so.12", "libcudart.so.13", "libcuda.so.1"
RUNTIME = "nvidia-cuda-runtime-cu12"


@pytest.mark.parametrize(
    ("whole", "parts", "there", "runpath", "old", "severity", "words"),
    [
        ("libcudnn-74a4c495.so.9", "libcudnn_ops.so libcudnn_adv.so", "", "$ORIGIN", "", "note",
         "adv.so and 1 more by"),
        ("libcudnn.so.9", "libcudnn_ops.so", "x.libs/libcudnn_ops.so.9", "$ORIGIN", "", "", ""),
        ("libcudnn.so.9", "libcudnn_ops.so", "x/libcudnn_ops.so.9", "$ORIGIN", "", "note", "ops.so.9 lies where"),
        ("libnvrtc-d540eb83.so.12.1", "libnvrtc-builtins.so.12.1", "", "", "", "error",
         ", which the wheel does not have"),
        ("libnvrtc.so.13", "libnvrtc-builtins.so.13.0", "x.libs/libnvrtc-builtins.so.13.0", "", "", "note", "lies"),
        ("libnvrtc.so.13", "libnvrtc-builtins.so.13.0", "x.libs/libnvrtc-builtins.so.13.0", "", "$ORIGIN", "", ""),
        ("libnvrtc.so.12", "libnvrtc-builtins.so.12.1", "", "$ORIGIN/../nvidia/cuda_nvrtc/lib", "", "", ""),
        ("libnvrtc.so.12", "libnvrtc.so.12 libcuda.so.1", "", "", "", "", ""),
    ],
)  # fmt: skip
def test_a_copy_without_its_parts(whole, parts, there, runpath, old, severity, words) -> None:
    """A library that opens its parts by name needs them where the loader looks for it; other wheels' are not known."""
    user = elf(whole, **{"old" if old else "rpath": ("$ORIGIN/../x.libs",)})  # an RPATH is also that of what it loads
    copy = {"x/user.so": user, f"x.libs/{whole}": elf(rpath=(runpath,) if runpath else ())}
    opened = {f"x.libs/{whole}": tuple(map(OpenedLibrary, parts.split()))}
    audited = judged({**copy, **({there: elf()} if there else {})}, opened=opened)
    at = (f"x.libs/{whole}", severity)
    assert [outcome[:2] for outcome in said(audited, "unprovided")] == [at] * bool(severity)
    assert all(words in text for _, _, text in said(audited, "unprovided"))


NVRTC, BUILTINS = "libnvrtc-d7c32a86.so.12.0.140", "libnvrtc-builtins-8cb4db2d.so.12.0.140"


@pytest.mark.parametrize(
    ("linked", "severities"),
    [
        ([f"{NVRTC} {BUILTINS}"], []), ([f"1.so {BUILTINS}", NVRTC], []),
        ([f"{NVRTC} libnvrtc-builtins.so"], []),
        ([f"{NVRTC} libnvrtc-builtins-00c0ffee.so.12.4.99"], ["error"]),
        ([NVRTC, BUILTINS], ["error"]), ([f"{NVRTC} {BUILTINS}", NVRTC], ["error"]),
        ([f"{NVRTC} libnvrtc-builtins-00c0ffee.so.12.0"], ["error"]),
        ([f"{NVRTC} libcudart.so.12", "libcudart.so.12"], ["error"]),
    ],
)  # fmt: skip
def test_nvrtc_loaded_with_its_builtins(linked, severities) -> None:
    """NVRTC finds builtins of any name that are loaded with it, as in cumm-cu120 0.6.3, and opens none.

    A program may first open a file that is linked with NVRTC alone; builtins of another release have other symbols; and
    cuDNN has none.
    """
    cudnn, rpath = "libcudnn.so.9", ("$ORIGIN", "$ORIGIN/../x.libs")
    users = {f"x/{at}.so": elf(*names.split(), cudnn, rpath=rpath) for at, names in enumerate(linked)}
    others = {"libnvrtc-builtins.so", "libnvrtc-builtins-00c0ffee.so.12.4.99"} & {*" ".join(linked).split()}
    elves = {**users, **{f"x.libs/{name}": elf() for name in (NVRTC, BUILTINS, cudnn, *others)}}
    parts = {NVRTC: "libnvrtc-builtins.so.12.0", cudnn: "libcudnn_ops.so.9"}
    audited = judged(elves, opened={f"x.libs/{name}": (OpenedLibrary(part),) for name, part in parts.items()})
    assert [severity for _, severity, _ in said(audited, "unprovided")] == [*severities, "note"]


def test_what_a_file_depends_on() -> None:
    """The libraries of CUDA with their symbols; those of the wheel count where an RPATH leads to them."""
    cufft, cublas = "libcufft.so.11", "libcublas.so.12"
    elves = {
        "x/a.so": elf(
            *(CUDART, DRIVER, cufft, cublas, "libc.so.6"), rpath=("$ORIGIN/../lib",), soname="a",
            undefined=f"cudaMalloc@{CUDART} cufftPlan1d@{cufft} cuInit free@libc.so.6 printf nvmlInit cuMine@libc.so.6",
        ),
        "lib/libcufft.so.11": elf(),
        "other/mine.so": elf(soname=cublas),
    }  # fmt: skip
    first, *_ = judged(elves).files
    assert first == FileAudit(
        "x/a.so",
        "a",
        (
            Dependency(CUDART, ("12",), (f"cudaMalloc@{CUDART}",), False, None),
            Dependency(DRIVER, ("11", "12", "13"), ("cuInit",), False, None),
            Dependency(cufft, ("12",), (f"cufftPlan1d@{cufft}",), True, None),
            Dependency(cublas, ("12",), (), False, "other/mine.so"),
        ),
        ("$ORIGIN/../lib",),
        ("12",),
    )
    audited = judged(elves)
    assert audited.bundled == ("lib/libcufft.so.11", "other/mine.so")
    assert audited.libraries == {cublas: ("x/a.so",), DRIVER: ("x/a.so",), CUDART: ("x/a.so",)}
    assert list(audited.libraries) == sorted(audited.libraries)
    assert (audited.path, audited.majors) == ("x.whl", ("12",))


TWELVE, THIRTEEN, BOTH = elf(CUDART), elf(CUDART_13), elf(CUDART, CUDART_13)
EVERY = ("11", "12", "13", "none")


@pytest.mark.parametrize(
    ("path", "elves", "majors", "findings"),
    [
        ("x.whl", {"a.so": elf("libc.so.6")}, EVERY, {}),
        ("x.whl", {"a.so": TWELVE, "b.so": elf(DRIVER), "c.so": elf()}, ("12",), {}),
        ("x.whl", {"a.so": TWELVE, "b.so": THIRTEEN, "c.so": elf()}, (),
         {"x.whl": "no CUDA major satisfies every file: a.so loads with 12; b.so loads with 13"}),
        ("x.whl", {"a.so": BOTH}, (), {"x.whl": "no CUDA major satisfies every file: a.so loads with nothing"}),
        ("x.whl", {"cu12/a.so": TWELVE, "cu13/a.so": THIRTEEN, "b.so": elf(DRIVER)}, ("12", "13"), {}),
        ("x.whl", {"cu12/a.so": TWELVE, "a.so": THIRTEEN}, (),
         {"x.whl": "no CUDA major satisfies every file: cu12/a.so loads with 12; a.so loads with 13"}),
        ("x.whl", {"cu12/a.so": THIRTEEN}, ("13",),
         {"cu12/a.so": "its name says CUDA 12, and it loads with CUDA 13 only"}),
        ("x.whl", {"cu12/a.so": elf("libcufft.so.12", "libcudnn.so.9")}, ("13",),
         {"cu12/a.so": "its name says CUDA 12, and it loads with CUDA 13 only"}),
        ("x.whl", {"a.so": elf("libcusparse.so.12"), "b.so": elf("libcudart.so.11.0")}, (),
         {"x.whl": "no CUDA major satisfies every file: a.so loads with 12, 13; b.so loads with 11"}),
        ("x.whl", {"cu11/a.so": elf("libcusparse.so.12")}, ("12", "13"),
         {"cu11/a.so": "its name says CUDA 11, and it loads with CUDA 12, 13 only"}),
        ("x.whl", {"a.so": elf("libcufft.so.11", rpath=("$ORIGIN",)), "libcufft.so.11": elf()}, EVERY, {}),
        ("x.whl", {"a.so": elf(CUDART, rpath=("$ORIGIN/$LIB",)), expanded(f"$LIB/{CUDART}", ""): elf()}, ("12",), {}),
        ("x_cu11-1.whl", {"cu12/a.so": BOTH}, (),
         {"cu12/a.so": "its name says CUDA 12, and it loads with no CUDA major",
          "x_cu11-1.whl": "no CUDA major satisfies every file: cu12/a.so loads with nothing"}),
        ("x_cu12-1.whl", {"a.so": elf("libcudnn.so.9"), "b.so": THIRTEEN}, ("13",),
         {"b.so": "the name of the wheel says CUDA 12, and it loads with CUDA 13 only"}),
    ],
)  # fmt: skip
def test_majors(
    path: str, elves: dict[str, LoadableLibrary], majors: tuple[str, ...], findings: dict[str, str]
) -> None:
    """Those that have every needed library; a file whose path says a major counts for that one alone."""
    audited = judged(elves, RUNTIME, "nvidia-cuda-runtime", path=path)
    assert audited.majors == majors
    assert {name: text for name, severity, text in said(audited, "majors") if severity == "error"} == findings


NOWHERE = "and needs no library that has it: link it with CUDA's or a stub"


@pytest.mark.parametrize(
    ("elves", "text"),
    [
        ({"a.so": elf(wanted="cudaMalloc cudaFree cuInit nvrtcVersion")},
         f"calls cuInit, cudaFree, cudaMalloc and 1 more, {NOWHERE}"),
        ({"a.so": elf(CUDART, wanted="cudaMalloc")}, ""),
        ({"a.so": elf(DRIVER, "libc.so.6", wanted="cudaMalloc")}, f"calls cudaMalloc, {NOWHERE}"),
        ({"a.so": elf("libtorch.so", wanted="cudaMalloc")}, ""),
        ({"a.so": elf(wanted="cudaMalloc", defined="cudaMalloc")}, ""),
        ({"a.so": elf("b.so", rpath=("$ORIGIN",), wanted="cudaMalloc"), "b.so": elf("c.so", rpath=("$ORIGIN",)),
          "c.so": elf(defined="cudaMalloc")}, ""),
        ({"a.so": elf("b.so", rpath=("$ORIGIN",), wanted="cudaMalloc"), "b.so": elf(CUDART)}, ""),
        ({"a.so": elf(wanted="cudaMalloc"), "b.so": elf("a.so", CUDART, rpath=("$ORIGIN",))}, ""),
        ({"a.so": elf(wanted="cudaMalloc"), "b.so": elf("a.so", "libtorch.so", rpath=("$ORIGIN",))}, ""),
        ({"a.so": elf(wanted="cudaMalloc"), "b.so": elf(CUDART)}, f"calls cudaMalloc, {NOWHERE}"),
        ({"a.so": elf(CUDART, rpath=("$ORIGIN",), wanted="cudaMalloc"), CUDART: elf()}, f"calls cudaMalloc, {NOWHERE}"),
        ({"a.so": elf("b.so", rpath=("$ORIGIN",), wanted="cudaMalloc"), "b.so": elf("a.so", rpath=("$ORIGIN",))},
         f"calls cudaMalloc, {NOWHERE}"),
    ],
)  # fmt: skip
def test_functions_that_no_library_has(elves: dict[str, LoadableLibrary], text: str) -> None:
    """The file itself, what it loads and what loads it may have them, and an unknown library may load CUDA's."""
    faults = said(judged(elves), "symbols")
    assert faults == ([("a.so", "error", text)] if text else [])


def test_without_metadata_any_library_may_load_cudas() -> None:
    """A name with a version is the system's only where the requirements show that no other wheel brings it."""
    elves = {"a.so": elf("libmine.so.1", wanted="cudaMalloc")}
    assert said(judged(elves), "symbols") == [("a.so", "error", f"calls cudaMalloc, {NOWHERE}")]
    assert said(judged(elves, metadata={}), "symbols") == []


SEARCHED = "so that a search for a part of CUDA's name finds it: rename it"
TWICE = "a process may load both; leave the copy out of the wheel"
UNKNOWN = "of libcudart, which no known release exports"
DLL, INLINED = "cudart64_12.dll", ("AddData", "Complete", "Create", "Destroy")
WANTED = ", ".join(f"__nvJitLink{name}_12_9" for name in INLINED[:3])
DEFINE = "define NVJITLINK_NO_INLINE when compiling"
BROUGHT = "which has the library, too"
LONG = "cuda".ljust(77, "x")


@pytest.mark.parametrize(
    ("elves", "requires", "kind", "findings"),
    [
        ({"libcudart_stub.so": elf(soname="x_libnvrtc.so")}, (), "name", [
            ("libcudart_stub.so", "error", f"{name} is not CUDA's library, but its name contains {part!r}, {SEARCHED}")
            for name, part in (("libcudart_stub.so", "libcudart"), ("x_libnvrtc.so", "libnvrtc"))
        ]),
        ({"x/libcudart.so.12": elf(soname="libcudart.so.12"), "libmine.so": elf()}, (), "", []),
        (dict.fromkeys(("libcudart-d0da41ae.so.12.9.79", "libnvrtc-builtins.alt.so.13.0"), elf()), (), "", []),
        ({"a.so": elf(rpath=("/opt/a", "$ORIGIN", "/b", "/c", "/d"))}, (), "rpath",
         [("a.so", "note", "RPATH names /opt/a, /b, /c and 1 more, of the machine that built it: use $ORIGIN")]),
        ({"a.so": elf(CUDART, undefined=" ".join(f"cudaNo{n}@{CUDART}" for n in "1234")),
          **dict.fromkeys(("b.dll", "B.PYD"), elf(DLL, undefined=f"cudaNo@{DLL}"))}, (RUNTIME,), "symbols", [
            ("a.so", "error", f"wants cudaNo1, cudaNo2, cudaNo3 and 1 more {UNKNOWN}"),
            ("b.dll", "note", f"wants cudaNo {UNKNOWN}"), ("B.PYD", "note", f"wants cudaNo {UNKNOWN}"),
        ]),
        ({"a.so": elf("libnvJitLink.so.12", undefined=" ".join(
            f"__nvJitLink{name}_12_9@libnvJitLink.so.12" for name in INLINED
        ))}, ("nvidia-nvjitlink-cu12>=12.9",), "inlined", [
            ("a.so", "note",
             f"wants {WANTED}, which <nvJitLink.h> inlines: {DEFINE}"),
        ]),
        ({"lib/libcudart.so.12": elf(), "a.so": elf(CUDART), "b.so": elf(CUDART)}, (RUNTIME,), "twice", [
            ("lib/libcudart.so.12", "note",
             f"is a copy of libcudart, and a.so needs {CUDART}, as 1 other file does, of another package: {TWICE}"),
        ]),
        ({"lib/libcudart.so.12": elf(), **dict.fromkeys(("a.so", "b.so", "c.so"), elf(CUDART))}, (RUNTIME,), "twice", [
            ("lib/libcudart.so.12", "note",
             f"is a copy of libcudart, and a.so needs {CUDART}, as 2 other files do, of another package: {TWICE}"),
        ]),
        ({"libcudart.so.12": elf(), "a.so": elf(CUDART, rpath=("$ORIGIN",))}, (RUNTIME,), "twice", [
            ("libcudart.so.12", "note",
             f"is a copy of libcudart, and its requirements bring {RUNTIME}, {BROUGHT}: {TWICE}"),
        ]),
        ({"libcudart.so.12": elf(), "a.so": elf(CUDART_13)}, ("nvidia-cuda-runtime>=13,<14",), "", []),
        ({"lib/libcudart.so.12": elf(), "a.so": elf(CUDART)}, (RUNTIME,), "twice", [
            ("lib/libcudart.so.12", "note",
             f"is a copy of libcudart, and a.so needs {CUDART} of another package: {TWICE}"),
        ]),
        ({"libcurand.so.10": elf()}, ("nvidia-curand-cu12", "nvidia-curand"), "twice", [
            ("libcurand.so.10", "note",
             f"is a copy of libcurand, and its requirements bring nvidia-curand-cu12, {BROUGHT}: {TWICE}"),
        ]),
        ({"libcudart.so.12": elf(), "a.so": elf("libcublas.so.12")}, ("nvidia-cublas-cu12",), "", []),
        ({"libcuda.so.1": elf()}, (), "", []),
        ({"a.so": elf()}, ("NVIDIA cu ==", f"{LONG} ==", f"{LONG}x ==", "cupy cu =="), "metadata", [
            ("x-1.dist-info/METADATA", "error",
             f"Requires-Dist is {line}; expected NAME[EXTRAS] SPECIFIER; MARKER: it was not compared")
            for line in ("'NVIDIA cu =='", f"'{LONG} =='", f"'{LONG}x =...'")
        ]),
    ],
)  # fmt: skip
def test_findings(
    elves: dict[str, LoadableLibrary], requires: tuple[str, ...], kind: str, findings: list[tuple[str, ...]]
) -> None:
    """Each finding names the file, what is wrong with it, and what to do."""
    audited = judged(elves, *requires)
    assert sorted(said(audited)) == sorted(findings)
    assert {finding.kind for finding in audited.findings} == ({kind} if kind else set())


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"metadata": {}}, "has no METADATA; expected one; its requirements were not compared: build the wheel again"),
        (
            {"metadata": {"a.dist-info/METADATA": b"", "b.dist-info/METADATA": b""}},
            "has 2 METADATA; expected one; its ",
        ),
        ({"metadata": {"x/a.dist-info/METADATA": b""}}, "has no METADATA; expected one; its "),
        ({"metadata": {"x.dist-info/METADATA": b"", "x/a.dist-info/METADATA": b""}}, ""),
        ({"metadata": {}, "path": "folder"}, ""),
        ({"metadata": {}, "elves": {"a.so": elf("libc.so.6"), CUDART: elf()}}, ""),
    ],
)
def test_metadata_of_a_wheel(more: dict[str, Any], text: str) -> None:
    """A wheel that needs something of CUDA has one METADATA; what it vendors does not count."""
    faults = said(judged(**{"elves": {"a.so": TWELVE}, **more}), "metadata")
    assert [fault[:2] for fault in faults] == ([("x.whl", "error")] if text else [])
    assert all(words.startswith(text) for *_, words in faults)


X86, ARM, WINDOWS = (f"{RUNTIME}; {name}" for name in (
    "platform_machine == 'x86_64'", "platform_machine == 'aarch64'", "sys_platform == 'win32'",
))  # fmt: skip


@pytest.mark.parametrize(
    ("elves", "requires", "lacking"),
    [
        ({"a.so": TWELVE}, X86.partition(";")[0], []),
        ({"a.so": elf(CUDART, machine="aarch64")}, ARM, []),
        ({"a.so": elf(CUDART, machine="aarch64")}, X86, [""]),
        ({"a.so": elf(CUDART, machine="aarch64"), "b.so": elf()}, ARM, []),
        ({"a.so": elf(CUDART, machine="x86_64"), "b.so": elf(machine="aarch64")}, X86, []),
        ({"a.pyd": TWELVE, "b.so": elf()}, WINDOWS, []),
        ({"A.DLL": TWELVE}, WINDOWS, []),
        ({"a.so": TWELVE}, WINDOWS, [""]),
    ],
)
def test_requirements_of_each_target(elves: dict[str, LoadableLibrary], requires: str, lacking: list[str]) -> None:
    """A finding of some targets names the first of them; which targets there are follows from the libraries."""
    texts = [text for *_, text in said(judged(elves, requires), "undeclared")]
    assert [text.partition(f"needs {CUDART}")[0] for text in texts] == lacking


def test_requirements_of_each_python() -> None:
    """Those of the tags of a wheel, and those that its Requires-Python accepts."""
    lines = f"{RUNTIME}; python_version < '3.12'"
    path = "x-1-cp311.cp312-cp311.cp312-linux_x86_64.whl"
    ((*_, text),) = said(judged({"a.so": TWELVE}, lines, path=path), "undeclared")
    assert text.partition(": ")[0] == "Python 3.12 on Linux x86_64"
    metadata = f"Metadata-Version: 2.1\nName: x\nRequires-Python: <3.12\nRequires-Dist: {lines}\n\n".encode()
    assert said(judged({"a.so": TWELVE}, metadata={"x-1.dist-info/METADATA": metadata}), "undeclared") == []
    audited = judged(
        {"a.so": TWELVE}, path="folder",
        metadata={"a/x/y.dist-info/METADATA": f"Requires-Dist: {RUNTIME}\n\n".encode(), "a/x.dist-info/METADATA": b""},
    )  # fmt: skip
    assert [finding.kind for finding in audited.findings] == ["undeclared"]


@pytest.mark.parametrize(
    ("needed", "weight"),
    [
        *(("libtorch.so", "note"), ("libmine.so", "error"), ("libc.so.6", "error"), ("libnuma.so.1", "error")),
        *(("libhwloc.so.15", "error"), ("libhwloc.so.15 numpy", "note"), ("libnuma.so.1 numpy", "error")),
    ],
)
def test_files_that_need_other_wheels(needed: str, weight: str) -> None:
    """What an unknown library loads is not known; one of the wheel or of the system loads nothing.

    A name with a version is the system's where no requirement can bring it.
    """
    library, *requires = needed.split()
    audited = judged({"a.so": elf(CUDART, library), "libmine.so": elf()}, *requires)
    assert [outcome[1] for outcome in said(audited, "undeclared")] == [weight]


def test_what_an_audit_is_asked() -> None:
    """Majors that are missing, what is bundled, and everything that is an error, in one message."""
    cufft, cublas = ("lib/libcufft.so.11", "lib/libcublas.so.12")
    user = elf("libnvrtc.so.12", CUDART, "libcudnn.so.9")
    audited = judged({"a.so": TWELVE, "b.so": user, cufft: elf(), cublas: elf()}, RUNTIME)
    assert audited.lacking(("12", "13")) == {"13": (CUDART, "libnvrtc.so.12")}
    assert audited.lacking(("none",)) == {"none": (CUDART, "libcudnn.so.9", "libnvrtc.so.12")}
    with pytest.raises(AuditError, match="^major '14': expected one of 11, 12, 13, none$"):
        audited.lacking(("14",))
    with pytest.raises(AssertionError) as caught:
        audited.check("13", "none", bundles=False)
    (error,) = audited.errors
    assert str(caught.value).splitlines() == [
        "x.whl",
        f"  b.so: {error.what}",
        f"  contains CUDA libraries: {cufft}, {cublas}",
        f"  cannot be loaded with CUDA 13: needs {CUDART}, libnvrtc.so.12",
        f"  cannot be loaded without CUDA: needs {CUDART}, libcudnn.so.9, libnvrtc.so.12",
    ]
    sound = judged({"a.so": TWELVE, "b.so": elf(rpath=("/opt",))}, RUNTIME)
    sound.check("12", bundles=False)
    sound.check()
    with pytest.raises(AssertionError, match=r"^x.whl\n  contains no CUDA library$"):
        sound.check(bundles=True)
    judged({"libcufft.so.11": elf()}).check(bundles=True)


def test_audit_as_data() -> None:
    """Plain data under the names of the attributes."""
    image = DeviceImage("a.so", "cubin", "sm_80", group=1)
    audited = judged({"a.so": TWELVE}, RUNTIME, images=[image])
    plain = audited.to_json()
    assert list(plain) == [
        *("path", "files", "findings", "majors", "needs", "suggestions", "bundled", "device_code", "libraries")
    ]
    assert (plain["path"], plain["majors"], plain["libraries"]) == ("x.whl", ("12",), {CUDART: ("a.so",)})
    assert plain["suggestions"] == {"libcudart (CUDA 12)": audited.suggestions["libcudart (CUDA 12)"]}
    (group,) = plain["device_code"]
    answers = group["answers"]
    assert (group["paths"], next(iter(answers)), answers["sm_80"]["12.0"]) == (["a.so"], "sm_70", "native")
    assert replace(audited, device_code=None).to_json()["device_code"] == []
    assert Audit("x", (), (), ()).to_json()["suggestions"] == {}


def test_what_is_not_audited() -> None:
    """A folder without anything to audit, and a file that is called a wheel and has no METADATA."""
    text = ": has no library, nothing that opens CUDA and no METADATA; give a wheel, or a folder of one"
    for path, metadata in (("folder", {"x.dist-info/METADATA": b""}), ("x.whl", {}), ("x.whl", {"a/b/METADATA": b""})):
        with pytest.raises(AuditError, match=f"^{path}{text}$"):
            audit_scan(Scan(path, metadata=metadata))
    assert judged({}).majors == EVERY
    opened = {"a.py": (OpenedLibrary("libnvrtc.so.12", demanded=True),)}
    damaged = {"libcudnn.so.9": (OpenedLibrary("libcudnn_ops.so.9"),)}
    assert said(judged({}, opened=damaged), "unprovided") == []
    fault, ltoir = Finding("error", "", place="", kind=""), {"a": Needs(CudaVersion(12, 0))}
    for more in ({"opened": opened}, {"ltoir": ltoir}, {"findings": [fault]}):
        assert audit_scan(Scan("folder", **more)).majors == EVERY


LIB, USER = ("$ORIGIN/../lib",), elf("b.so", rpath=("$ORIGIN/../lib",))
DATA = "x-1.data/platlib/lib/b.so"
TOP, MIDDLE = elf("mid.so", old=("$ORIGIN/lib",)), "lib/mid.so"


@pytest.mark.parametrize(
    ("elves", "expected"),
    [
        ({"x/a.so": USER, "lib/b.so": elf()}, {"x/a.so b.so": "lib/b.so"}),
        ({"x/a.so": elf("b.so", old=LIB), "lib/b.so": elf()}, {"x/a.so b.so": "lib/b.so"}),
        ({"a.so": elf("b.so", rpath=("${ORIGIN}",)), "b.so": elf()}, {"a.so b.so": "b.so"}),
        ({"a.so": elf("b.so", rpath=("$ORIGINAL", "/lib", "lib", "$ORIGIN/lib/x")), "lib/b.so": elf()}, {}),
        ({"x/a.so": elf("b.so", rpath=LIB, old=("$ORIGIN",)), "x/b.so": elf()}, {}),
        ({"x/a.so": USER, "lib/b-1.so": elf(soname="b.so")}, {"x/a.so b.so": "lib/b-1.so"}),
        ({"x/a.so": USER, "lib/b.so": elf(), "lib/c.so": elf(soname="b.so")}, {"x/a.so b.so": "lib/b.so"}),
        ({"x/a.so": USER, DATA: elf()}, {"x/a.so b.so": DATA}),
        ({"x/a.so": elf("b.so", rpath=("$ORIGIN", *LIB)), "lib/b.so": elf(), "x/b.so": elf()},
         {"x/a.so b.so": "x/b.so"}),
        ({"top.so": TOP, MIDDLE: elf("low.so"), "lib/low.so": elf()},
         {"top.so mid.so": MIDDLE, f"{MIDDLE} low.so": "lib/low.so"}),
        ({MIDDLE: elf("low.so"), "top.so": TOP, "lib/low.so": elf()},
         {"top.so mid.so": MIDDLE, f"{MIDDLE} low.so": "lib/low.so"}),
        ({"top.so": TOP, MIDDLE: elf("low.so", rpath=("/x",)), "lib/low.so": elf()}, {"top.so mid.so": MIDDLE}),
        ({"top.so": elf("mid.so", rpath=TOP.rpath, old=TOP.rpath), MIDDLE: elf("low.so"), "lib/low.so": elf()},
         {"top.so mid.so": MIDDLE}),
        ({"top.so": elf("low.so", "mid.so", rpath=("$ORIGIN/lib",)), MIDDLE: elf("low.so"), "lib/low.so": elf()},
         {"top.so low.so": "lib/low.so", "top.so mid.so": MIDDLE, f"{MIDDLE} low.so": "lib/low.so"}),
    ],
)  # fmt: skip
def test_what_the_loader_takes(elves: dict[str, LoadableLibrary], expected: dict[str, str]) -> None:
    """RUNPATH counts for a file alone, RPATH also for what it loads; a library that is loaded already is taken."""
    asked: list[None] = []
    taken, loaders = resolve(elves, lambda: asked.append(None))
    assert {f"{path} {name}": file for path, names in taken.items() for name, file in names.items()} == expected
    assert loaders == {path: {key.split()[0] for key, file in expected.items() if file == path} for path in elves}
    assert len(asked) in (len(elves), 2 * len(elves), 3 * len(elves))
    assert resolve(elves) == (taken, loaders)


def test_who_loads_a_file() -> None:
    """The nearest first, each once, in the order of their names."""
    loaders = {"d": {"c", "b", "d"}, "c": {"a"}, "b": {"a", "e"}, "a": {"d"}, "e": set()}
    assert loaded_by("d", loaders) == [*"bcae"]
