"""The audit of wheels, on libraries that are made here, damaged ones, and the plugin's fixture."""

from __future__ import annotations

import io
import json
import os
import shutil
import time
import zipfile
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cudalink.audit import AuditError, audit
from pytest_cudalink.cli import main
from tests.stubs.conftest import compile_c

CUDA = {
    "libcudart.so.12": "cudaMalloc cudaFree",
    "libcudart.so.13": "cudaMalloc cudaFree",
    "libnvrtc.so.13": "nvrtcVersion",
    "libnvJitLink.so.12": "__nvJitLinkCreate_12_9",
    "libcublas.so.12": "cublasCreate_v2",
    "libcusparse.so.12": "cusparseCreate",
}


@pytest.fixture(scope="module")
def cuda(tmp_path_factory) -> Path:
    """Libraries with CUDA's names and symbol versions, and a driver, which has none of the latter."""
    folder = tmp_path_factory.mktemp("cuda")
    for name, symbols in CUDA.items():
        script = folder / f"{name}.map"
        script.write_text(f"{name} {{ global: {';'.join(symbols.split())}; local: *; }};", encoding="utf-8")
        source = "".join(f"int {symbol}(void) {{ return 0; }}\n" for symbol in symbols.split())
        compile_c(folder / name, source, f"-Wl,--version-script={script}")
    compile_c(folder / "libcuda.so.1", "int cuInit(unsigned f) { return (int)f; }")
    return folder


def user(path: Path, cuda: Path, *names: str, flags: tuple[str, ...] = ()) -> Path:
    """A library that needs some of them, and calls one function of each."""
    calls = {**{name: CUDA[name].split()[0] for name in CUDA}, "libcuda.so.1": "cuInit"}
    declared = "".join(f"extern int {calls[name]}();\n" for name in names)
    called = " + ".join(f"{calls[name]}(0)" for name in names) or "0"
    return compile_c(
        path, f"{declared}int use{path.name[3]}(void) {{ return {called}; }}", *flags, *(str(cuda / n) for n in names)
    )


def wheel(path: Path, folder: Path, compression: int = zipfile.ZIP_DEFLATED) -> Path:
    """A wheel with the content of a folder."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        for file in sorted(folder.rglob("*")):
            archive.write(file, file.relative_to(folder))
    return path


def test_wheel_that_needs_one_major(cuda, tmp_path) -> None:
    """A wheel linked with CUDA 12 names the library, the file that pulls it in, and the symbols with their version."""
    user(tmp_path / "tree/pkg/libuse.so", cuda, "libcudart.so.12", "libnvJitLink.so.12")
    user(tmp_path / "tree/pkg/libother.so", cuda)
    (tmp_path / "tree/pkg/__init__.py").write_text("", encoding="utf-8")
    (tmp_path / "tree/x-1.dist-info").mkdir()
    requires = "Requires-Dist: nvidia-cuda-runtime-cu12\nRequires-Dist: nvidia-nvjitlink-cu12>=12.9\n"
    (tmp_path / "tree/x-1.dist-info/METADATA").write_text(f"Name: x\nVersion: 1\n{requires}", encoding="utf-8")

    found = audit(wheel(tmp_path / "x-1-py3-none-any.whl", tmp_path / "tree"))

    assert found.majors == ("12",)
    assert found.libraries == {"libcudart.so.12": ("pkg/libuse.so",), "libnvJitLink.so.12": ("pkg/libuse.so",)}
    by_path = {file.path: file for file in found.files}
    assert by_path["pkg/libother.so"].majors == ("11", "12", "13", "none")
    assert by_path["pkg/libuse.so"].dependencies[0].symbols == ("cudaMalloc@libcudart.so.12",)
    assert by_path["pkg/libuse.so"].dependencies[1].symbols == ("__nvJitLinkCreate_12_9@libnvJitLink.so.12",)
    assert found.errors == ()
    assert found.lacking(["12", "13", "none"]) == {
        "13": ("libcudart.so.12", "libnvJitLink.so.12"),
        "none": ("libcudart.so.12", "libnvJitLink.so.12"),
    }


@pytest.mark.parametrize(
    ("names", "majors"),
    [
        ((), ("11", "12", "13", "none")),
        (("libcuda.so.1",), ("11", "12", "13")),
        (("libcudart.so.13",), ("13",)),
        (("libnvrtc.so.13", "libcuda.so.1"), ("13",)),
        (("libcusparse.so.12",), ("12", "13")),
        (("libcusparse.so.12", "libcublas.so.12"), ("12",)),
    ],
)
def test_majors(names: tuple[str, ...], majors: tuple[str, ...], cuda, tmp_path) -> None:
    """The majors are those that have every library with that SONAME; a driver must be there for libcuda.so.1."""
    assert audit(user(tmp_path / "libuse.so", cuda, *names)).majors == majors


def test_driver_symbols(cuda, tmp_path) -> None:
    """The driver has no symbol versions: its functions are known by their names."""
    (file,) = audit(user(tmp_path / "libuse.so", cuda, "libcuda.so.1")).files
    assert file.dependencies[0].symbols == ("cuInit",)


def test_contradicting_files(cuda, tmp_path) -> None:
    """Two files that need different majors: no CUDA satisfies the wheel, and that is a finding."""
    user(tmp_path / "a/libuse.so", cuda, "libcudart.so.12")
    user(tmp_path / "a/libmore.so", cuda, "libcudart.so.13")
    found = audit(tmp_path / "a")
    assert found.majors == ()
    assert [finding.kind for finding in found.findings] == ["majors"]
    assert "libuse.so loads with 12" in found.findings[0].text
    assert "libmore.so loads with 13" in found.findings[0].text
    user(tmp_path / "a/libboth.so", cuda, "libcudart.so.12", "libnvrtc.so.13")
    assert "libboth.so loads with nothing" in audit(tmp_path / "a").findings[0].text


USES = "extern int cudaMalloc(); int f(void) { return cudaMalloc(); }"


def bundled(folder: Path, name: str) -> Path:
    """A library of CUDA's as a wheel brings it along."""
    return compile_c(folder / name, "int cudaMalloc(void) { return 0; }")


@pytest.mark.parametrize("name", ["libcudart-d0da41ae.so.12.9.79", "libcudart.faf08d9a.so.12"])
def test_bundled_library(name, tmp_path) -> None:
    """A library in the wheel is not a dependency; a name with a hash, as tools for wheels give it, is CUDA's."""
    mangled = bundled(tmp_path / "tree/x.libs", name)
    compile_c(tmp_path / "tree/pkg/libuse.so", USES, str(mangled), "-Wl,-rpath,$ORIGIN/../x.libs")
    found = audit(tmp_path / "tree")
    assert found.majors == ("11", "12", "13", "none")
    assert found.libraries == {}
    assert found.bundled == (f"x.libs/{name}",)
    assert not [finding for finding in found.findings if finding.kind == "name"]
    dependency = next(d for file in found.files for d in file.dependencies)
    assert (dependency.library, dependency.majors, dependency.bundled) == (mangled.name, ("12",), True)


@pytest.mark.parametrize("rpath", [(), ("-Wl,-rpath,$ORIGIN",), ("-Wl,-rpath,$ORIGIN/../../other",)])
def test_bundled_where_the_loader_does_not_look(rpath: tuple[str, ...], tmp_path, capsys) -> None:
    """A library in another folder of the wheel does not help a file whose RPATH does not lead there."""
    library = bundled(tmp_path / "other", "libcudart.so.12")
    compile_c(tmp_path / "pkg/libuse.so", USES, str(library), *rpath)
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

    found = audit(tmp_path)

    assert ("none" in found.majors) == reached
    assert (run(f"import ctypes; ctypes.CDLL({str(top)!r})").returncode == 0) == reached


def test_bundled_in_the_data_folder(tmp_path) -> None:
    """Files in NAME.data/platlib are installed next to those of the wheel's root, and are found from there."""
    library = bundled(tmp_path / "x-1.data/platlib/x.libs", "libcudart.so.12")
    compile_c(tmp_path / "pkg/libuse.so", USES, str(library), "-Wl,-rpath,${ORIGIN}/../x.libs")
    assert audit(tmp_path).libraries == {}


@pytest.mark.parametrize(
    ("library", "majors"),
    [
        ("libcupti.so.11.7", ("11",)),
        ("libnvrtc-builtins.so.12.9", ("12",)),
        ("libnppial-0123abcd.so.13.0.2", ("13",)),
        *((name, ("11", "12", "13")) for name in (
            "libcudnn_ops.so.9", "libcudla.so.1", "libnvperf_host.so", "libcufile_rdma.so.1", "libcutensorMg.so.2",
            "libcusolverMp.so.0", "libnvtx3interop.so", "libnvcomp.so.5", "libnvidia-ml.so.1", "libnvcuvid.so.1",
        )),
    ],
)  # fmt: skip
def test_less_known_libraries(library: str, majors: tuple[str, ...], tmp_path) -> None:
    """Every library of CUDA and of its products counts: a machine without CUDA has none."""
    real = compile_c(tmp_path / library, "int x;")
    compile_c(tmp_path / "libuse.so", "int y;", "-Wl,--no-as-needed", str(real))
    assert audit(tmp_path / "libuse.so").majors == majors


def test_undefined_functions(stubs, tmp_path) -> None:
    """Functions of CUDA that no library has are a finding, unless they are weak or an unknown library may have them."""
    calls = "extern int cudaMalloc(void), cudaFree(void) WEAK; int f(void) { return cudaMalloc() + cudaFree(); }"
    strong, weak = calls.replace("WEAK", ""), calls.replace("WEAK", "__attribute__((weak))")
    (finding,) = audit(compile_c(tmp_path / "libbad.so", strong)).findings
    assert (finding.kind, finding.path) == ("symbols", "libbad.so")
    assert finding.text.startswith("calls cudaFree, cudaMalloc, and needs no library that has it")
    (finding,) = audit(compile_c(tmp_path / "libless.so", weak)).findings
    assert finding.text.startswith("calls cudaMalloc, and needs")

    (tmp_path / "good").mkdir()
    stub = shutil.copy(stubs["cudart"], tmp_path / "good")
    compile_c(tmp_path / "good/libuse.so", strong, str(stub), "-Wl,-rpath,$ORIGIN")
    other = compile_c(tmp_path / "libtorch.so", "int x;")
    compile_c(tmp_path / "good/libmore.so", strong, "-Wl,--no-as-needed", str(other))
    compile_c(
        tmp_path / "good/libcublasuser.so", "extern int cublasCreate_v2(); int f(void) { return cublasCreate_v2(); }"
    )
    assert audit(tmp_path / "good").findings == ()


@pytest.mark.parametrize(
    "name", ["libcudart_stub.so", "libnvrtc_stub.so", "lib_my_libcudart.so", "libcudart.so.12.bak"]
)
def test_names_that_searches_hit(name: str, tmp_path) -> None:
    """A stub whose name contains the name of CUDA's library is found by other programs: that is to be repaired."""
    compile_c(tmp_path / name, "int x;")
    (finding,) = audit(tmp_path).findings
    assert finding.kind == "name"
    assert finding.text.startswith(f"{name} is not CUDA's library, but its name contains 'lib")


@pytest.mark.parametrize("name", ["libnvrtc-builtins.so.13.0", "libnvrtc.alt.so.13", "libnvrtc-builtins.alt.so.13.0"])
def test_names_of_cudas_own(name: str, tmp_path) -> None:
    """Libraries that NVIDIA's wheels contain are not taken for stubs with a bad name."""
    compile_c(tmp_path / name, "int x;")
    assert audit(tmp_path).findings == ()


def test_soname_that_searches_hit(tmp_path) -> None:
    """The SONAME counts too, whatever the file is called."""
    compile_c(tmp_path / "libcudart_stub.so", "int x;").rename(tmp_path / "libgood.so")
    assert [finding.kind for finding in audit(tmp_path).findings] == ["name"]


def test_our_stubs_pass(stubs) -> None:
    """Our own stubs load anywhere, and no search takes them for the real libraries."""
    found = audit(stubs["cudart"].parent)
    found.check("11", "12", "13", "none")
    assert found.libraries == {}


def test_rpaths(cuda, tmp_path) -> None:
    """RPATHs are listed; those of the machine that built the wheel are one note, because no user fails by them."""
    flags = ("-Wl,-rpath,$ORIGIN/../nvidia/lib:/usr/local/cuda/lib64:/opt/rocm",)
    user(tmp_path / "libuse.so", cuda, "libcudart.so.13", flags=flags)
    found = audit(tmp_path)
    assert found.files[0].rpaths == ("$ORIGIN/../nvidia/lib", "/usr/local/cuda/lib64", "/opt/rocm")
    (finding,) = found.findings
    assert (finding.path, finding.kind, finding.severity) == ("libuse.so", "rpath", "note")
    assert finding.text == "RPATH names /usr/local/cuda/lib64, /opt/rocm, of the machine that built it: use $ORIGIN"
    found.check()


def test_rpaths_without_dependencies(cuda, tmp_path, capsys) -> None:
    """The table has the RPATHs of every file, also of one that needs nothing of CUDA."""
    user(tmp_path / "libuse.so", cuda, flags=("-Wl,-rpath,$ORIGIN/lib",))
    assert main(["audit", str(tmp_path)]) == 0
    assert "  libuse.so  RPATH $ORIGIN/lib\n" in capsys.readouterr().out


def test_table_and_exit_codes(cuda, tmp_path, capsys) -> None:
    """0 without faults, 1 for a missing required major or a finding, 2 for a file that is not a wheel."""
    good = user(tmp_path / "libuse.so", cuda, "libcudart.so.13")
    assert main(["audit", str(good)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{good}: 1 ELF file; loads with CUDA 13",
        "  libuse.so  needs libcudart.so.13  (CUDA 13; 1 symbol)",
        "  libuse.so  needs at least libcudart of CUDA 13.0  (wants cudaMalloc of CUDA 13.0)",
    ]
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


def test_nothing_to_audit(cuda, tmp_path) -> None:
    """A folder of sources, and an archive that only ends in .whl, are errors: nothing was audited."""
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/a.py").write_text("", encoding="utf-8")
    for path in (tmp_path / "tree", wheel(tmp_path / "x.whl", tmp_path / "tree")):
        with pytest.raises(AuditError, match="has no library, nothing that opens CUDA and no METADATA; give a wheel"):
            audit(path)


def test_json(cuda, tmp_path, capsys) -> None:
    """``--format=json`` prints one object for each path, with everything that was found."""
    path = user(tmp_path / "libuse.so", cuda, "libcudart.so.12")
    assert main(["audit", "--format=json", "--require", "13", str(path)]) == 1
    (answer,) = json.loads(capsys.readouterr().out)
    assert answer["majors"] == ["12"]
    assert answer["libraries"] == {"libcudart.so.12": ["libuse.so"]}
    assert answer["lacking"] == {"13": ["libcudart.so.12"]}
    assert answer["files"][0]["dependencies"][0]["symbols"] == ["cudaMalloc@libcudart.so.12"]


def test_fixture(cuda, tmp_path, pytester) -> None:
    """``audit_wheel(...).check(...)`` fails a test with a line for each reason, and passes a good one."""
    bad = user(tmp_path / "libuse.so", cuda, "libcudart.so.12")
    good = user(tmp_path / "libgood.so", cuda)
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
def sample(cuda, tmp_path_factory) -> bytes:
    """The bytes of a library with dependencies."""
    return user(tmp_path_factory.mktemp("sample") / "libuse.so", cuda, "libcudart.so.12").read_bytes()


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
        found = audit(path)
    except AuditError as error:
        assert "has no library" in str(error)
    else:
        assert found.files or found.findings


@pytest.fixture(scope="module")
def sample_wheel(sample, tmp_path_factory) -> bytes:
    """The bytes of a compressed wheel with that library and a text."""
    folder = tmp_path_factory.mktemp("sample-wheel")
    (folder / "tree").mkdir()
    (folder / "tree/libuse.so").write_bytes(sample)
    (folder / "tree/text.py").write_text("x = 1\n", encoding="utf-8")
    return wheel(folder / "x.whl", folder / "tree").read_bytes()


def changed_archive(data: bytes, offset: int, value: int) -> bytes:
    """A ZIP file with one byte changed in the head of its first member and in its entry of the directory."""
    changed = bytearray(data)
    for begin, at in ((0, offset), (changed.index(b"PK\1\2"), offset + 2)):
        changed[begin + at] = value
    return bytes(changed)


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
    path.write_bytes(changed_archive(sample_wheel, offset, value))
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
        found = audit(path)
    except AuditError as error:
        assert str(path) in str(error)
    else:
        assert found.files or found.findings


def test_a_member_that_fills_the_disk(tmp_path) -> None:
    """A wheel whose library would have 1 GB, by what the archive says, is a finding, and is not unpacked."""
    path = tmp_path / "bomb-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.so", b"\x7fELF" + bytes(1 << 20))
    said, more = (((1 << power) + 4).to_bytes(4, "little") for power in (20, 30))
    assert path.read_bytes().count(said) == 2
    path.write_bytes(path.read_bytes().replace(said, more))
    (finding,) = audit(path).findings
    assert "would become 1073741828" in str(finding)


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
    long = next(one["st_name"] for one in symbols.iter_symbols() if one.name == name)
    for index in range(1, symbols.num_symbols()):
        at = symbols["sh_offset"] + index * symbols["sh_entsize"]
        data[at : at + 4] = long.to_bytes(4, "little")
    path.write_bytes(data)
    (finding,) = audit(path).findings
    assert "the same long name again and again" in str(finding)


def test_libraries_of_other_machines_are_passed_over(sample, tmp_path) -> None:
    """A library of 32 bits, or of the other byte order, needs nothing of CUDA, which has none."""
    for at in (4, 5):
        data = bytearray(sample)
        data[at] ^= 3
        (tmp_path / f"lib{at}.so").write_bytes(data)
    (tmp_path / "libuse.so").write_bytes(sample)
    found = audit(tmp_path)
    assert [file.path for file in found.files] == ["libuse.so"]
    assert "unreadable" not in str(found)


@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_paths_that_never_end(kind: str, tmp_path, capsys) -> None:
    """A pipe or a device is refused, and not waited for."""
    path = tmp_path / "x.whl"
    if kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    assert main(["audit", str(path)]) == 2
    assert "give a wheel, a folder or a shared library" in capsys.readouterr().err
