"""The wheel, the cells and the sessions."""

import fcntl
import mmap
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import tomllib
import types
import zipfile
from pathlib import Path

import pytest
import yaml

from campaigns.release.__main__ import PYTHONS
from campaigns.release.build import MACHINES, differences, target
from native_build import sources
from pytest_cudalink import emulator
from pytest_cudalink.base import compiler as cc
from pytest_cudalink.base.elf import ElfImage, read_header
from pytest_cudalink.matrix import load_cells
from tests.emulator import checkers

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "pytest_cudalink"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PLATFORMS = (ROOT / "docs" / "reference" / "platforms.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_wheel_content(wheel: Path) -> None:
    """Data files, the type marker, licence and notice are in it; tests and scripts of maintainers are not."""
    names = zipfile.ZipFile(wheel).namelist()
    parts = ["matrices/dispatch.toml", "matrices/cells.toml", "data/toolchains.toml", "py.typed"]
    parts += [f"stubs/lib/libstub_{name}.so" for name in ("cuda", "cudart", "nvrtc")]
    parts += [f"stubs/include/stub_{name}.h" for name in ("cuda", "cudart", "nvrtc")]
    parts += ["stubs/cmake/cudalink_stubs-config.cmake"]
    assert [part for part in parts if f"pytest_cudalink/{part}" not in names] == []
    assert not [name for name in names if "/generated/" in name]
    # each file costs each start of pytest: `cudalink stubs` compiles these sources, and nothing others
    sources = {name for name in names if re.search(r"\.[chS]$", name) and "/stubs/include/" not in name}
    kept = {path for path in (PACKAGE / "stubs" / "native").iterdir() if path.suffix != ".in"}  # (a template)
    assert sources == {f"pytest_cudalink/stubs/native/{path.name}" for path in kept}
    code = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    tables = {name.partition("/data/")[2] for name in names if "/data/" in name and name.endswith(".toml")}
    known = {name for name in tables if name in code or f'"{Path(name).stem}"' in code}
    assert {*re.findall(r'read_table\("([^"]+)"\)', code)} <= tables == known
    assert {name.rpartition("/")[2] for name in names if "/licenses/" in name} == {"LICENSE", "NOTICE"}
    maintainers = {path.name for path in (ROOT / "tools").iterdir()} - {"__init__.py"}
    assert not maintainers.intersection(name.rpartition("/")[2] for name in names)
    assert not [name for name in names if name.startswith("pytest_cudalink/matrices/") and name.endswith(".py")]
    assert {name.split("/")[0].split("-")[0] for name in names} == {"pytest_cudalink"}


@pytest.mark.slow
def test_sdist_has_no_library_of_this_machine(tmp_path: Path) -> None:
    """Nothing is compiled for an sdist, the same from every machine; its metadata has a version that Twine 6 reads."""
    command = ["uv", "build", "-q", "--sdist", "--out-dir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
        metadata = archive.extractfile(min(names, key=lambda name: (not name.endswith("/PKG-INFO"), len(name))))
        assert metadata.readline() == b"Metadata-Version: 2.4\n"
    assert any(name.endswith("/pytest_cudalink/emulator/native/link.c") for name in names)
    assert [name for name in names if re.search(r"/pytest_cudalink/[^/]+/(lib|generated)/", name)] == []


@pytest.mark.slow
def test_wheel_metadata(wheel: Path) -> None:
    """Entry points, extras and the Python floor are those of the plan."""
    archive = zipfile.ZipFile(wheel)
    (entry_points,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("entry_points.txt"))
    (metadata,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("METADATA"))
    assert metadata.startswith("Metadata-Version: 2.4\n")
    assert "[pytest11]\ncudalink = pytest_cudalink:plugin" in entry_points
    assert "cudalink = pytest_cudalink.cli:main" in entry_points
    for extra in ("cu12", "cu13", "nox", "tox", "report", "audit"):
        assert f"Provides-Extra: {extra}" in metadata
    for major in (12, 13):  # what links there: the bindings, and nvJitLink of the same CUDA
        needs = [line for line in metadata.splitlines() if f"extra == 'cu{major}'" in line]
        for name in ("cuda-bindings", "cuda-toolkit[cudart,nvjitlink,nvrtc]"):
            assert any(f" {name}<{major + 1},>={major}" in line for line in needs), needs
    assert "Requires-Python: >=3.11" in metadata
    urls = {line.split(": ", 1)[1].split(",")[0] for line in metadata.splitlines() if line.startswith("Project-URL: ")}
    assert urls == {"Homepage", "Documentation", "Source", "Issues", "Changelog"}


def test_pythons_are_those_that_the_release_runs_on() -> None:
    """The classifiers, the session `dist` and the page of platforms name the same Pythons."""
    project = PYPROJECT["project"]
    classified = re.findall(r":: Python :: (3\.\d+)$", "\n".join(project["classifiers"]), re.MULTILINE)
    assert tuple(classified) == PYTHONS
    assert f"CPython {', '.join(PYTHONS[:-1])} and {PYTHONS[-1]}" in PLATFORMS
    assert project["requires-python"] == f">={PYTHONS[0]}"


def test_links_of_the_readme_are_absolute() -> None:
    """The package index shows the README without the repository: relative links and pictures would lead nowhere."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)\s]+)", readme) + re.findall(r"(?:src|srcset|href)=\"([^\"]+)", readme)
    assert targets
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []


@pytest.mark.parametrize("machine", MACHINES)
def test_platform_of_a_wheel(machine: str) -> None:
    """The tag of a wheel for a target names machine and glibc, the form with the year, too; the page says the same."""
    platforms = sources.wheel_platform(target(machine))
    assert platforms == f"manylinux2014_{machine}.manylinux_2_17_{machine}"
    assert sources.wheel_platform(f"{machine}-linux-gnu.2.28") == f"manylinux_2_28_{machine}"
    assert sources.zig_for(target(machine))[-2:] == ["-target", f"{machine}-linux-gnu.2.17"]
    assert "glibc 2.17" in PLATFORMS


@pytest.mark.parametrize("name", ["x86_64-linux-musl", "riscv64-linux-gnu.2.17", "x86_64-linux-gnu", "native"])
def test_target_that_no_wheel_is_for(name: str) -> None:
    """Anything but Linux with a version of glibc on a known machine is refused, with what is expected."""
    with pytest.raises(cc.CompilerError, match=f"the target of the wheel is '{name}'; expected x86_64-linux-gnu.2.17"):
        sources.zig_for(name)


@pytest.mark.slow
def test_wheel_has_nothing_of_the_folder_that_it_was_built_in(wheel: Path) -> None:
    """Libraries hold no path of the build and no debug information; every member has one time and a plain mode."""
    archive = zipfile.ZipFile(wheel)
    for member in archive.infolist():
        content = archive.read(member)
        if content.startswith(b"\x7fELF"):
            assert str(ROOT).encode() not in content, member.filename
            assert b"cudalink-build-" not in content, member.filename
            assert b".debug_info" not in content, member.filename
        assert member.external_attr >> 16 & 0o7777 in {0o644, 0o755}, member.filename
    assert len({member.date_time for member in archive.infolist()}) == 1


def test_differences_of_two_builds(tmp_path: Path) -> None:
    """A file that is missing, and one with other bytes, is named; equal ones are not."""
    for name in ("one/a1", "one/b1", "one/c1", "other/a1", "other/b2", "other/d1"):
        (path := tmp_path / name[:-1]).parent.mkdir(exist_ok=True)
        path.write_text(name[-1], encoding="utf-8")
    assert differences((tmp_path / "one").iterdir(), (tmp_path / "other").iterdir()) == ["b", "c", "d"]


@pytest.mark.parametrize("system", ["win32", "darwin"])
def test_other_systems_get_pure_python(system: str, monkeypatch) -> None:
    """On Windows and macOS the build hook compiles nothing and asks for no compiler; the compiler names the system."""
    names = ("hatchling", "hatchling.builders", "hatchling.builders.hooks", "hatchling.builders.hooks.plugin")
    for name in names:
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    interface = types.ModuleType(f"{names[-1]}.interface")
    interface.BuildHookInterface = object
    monkeypatch.setitem(sys.modules, interface.__name__, interface)
    hook = runpy.run_path(str(ROOT / "hatch_build.py"))["NativeBuildHook"]()
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    assert hook.dependencies() == []
    data = {"force_include": {}}
    hook.initialize("standard", data)
    assert data == {"force_include": {}}
    with pytest.raises(cc.CompilerError, match=f"cannot be built on {system}; they are written for Linux"):
        cc.build(cc.SharedLibrary("liba.so", ()), ROOT)


def test_citation() -> None:
    """CITATION.cff has what its format requires, and version and date of the newest section of the changelog."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = PYPROJECT["project"]
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["license"] == project["license"]
    assert citation["repository-code"] == project["urls"]["Source"]
    sections = re.findall(r"^## (\S+) \((\S+)\)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    version, date = sections[0] if sections else ("0.1.0", "None")
    assert (citation["version"], str(citation.get("date-released"))) == (version, date)


def test_fragments_of_the_changelog() -> None:
    """Each is one sentence of at most 40 words, in a file that towncrier reads."""
    kinds = {kind["directory"] for kind in PYPROJECT["tool"]["towncrier"]["type"]}
    for path in (ROOT / "changelog.d").glob("*.md"):
        text = path.read_text(encoding="utf-8")
        assert re.fullmatch(rf"[a-z-]+\.({'|'.join(kinds)})\.md", path.name), path
        assert re.findall(r"[.!?](?=\s)", text) == ["."], path
        assert text.endswith(".\n"), path
        assert len(text.split()) <= 40, path


def test_sessions_are_described_and_run_on_another_python() -> None:
    """One session for each cell, under its name, each with a description; -P copies them, which fails for a partial."""
    for words, names in (
        ((), {cell.name for cell in load_cells(ROOT / "matrices" / "cells.toml")}),
        (("-s", "tests", "-P", "3.13"), {"tests-3.13"}),
    ):
        command = [sys.executable, "-m", "nox", "-l", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
        sessions = re.findall(r"^[*-] (\S+).*? -> (\S.*)$", done.stdout, re.MULTILINE)
        assert names <= dict(sessions).keys()
        assert len(sessions) == len(re.findall(r"^[*-] ", done.stdout, re.MULTILINE))


def test_libraries_beside_the_package() -> None:
    """An editable install has them in the source tree, where the package looks."""
    folder = emulator.library_folder()
    assert folder == Path(emulator.__file__).parent / "lib"
    names = ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1")
    assert all((folder / part / name).is_file() for part in ("", "absent") for name in names)


def test_no_library_can_be_unloaded() -> None:
    """Each has DF_1_NODELETE, whichever part built it: threads that used it end after a dlclose."""
    package = Path(emulator.__file__).parents[1]
    libraries = sorted(package.glob("**/lib/**/*.so*"))
    assert {path.relative_to(package).parts[0] for path in libraries} == {
        *("artifacts", "emulator", "linker", "loader", "stubs")
    }
    for path in libraries:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            flags = ElfImage(content, read_header(content)).tags.get(0x6FFFFFFB, [0])  # DT_FLAGS_1
        assert flags[0] & 8, path.name  # DF_1_NODELETE


@pytest.mark.weekly
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("clang") is None, reason="needs clang")
def test_clang(tmp_path: Path) -> None:
    """Clang takes the sources without a warning, and what it makes links; `nox -s dist` asks zig."""
    for _, library in sources.libraries(cc):
        cc.build(library, tmp_path, ["clang"], flags=("-O0", "-g0"))
    program = (
        "from tests.emulator.cu import *; start(); code, image, log = link([(PTX, small_ptx())]); "
        "assert code == 0 and len(image) > 1000, (code, log); assert load(image)[0] == 0; "
        "print(ctypes.CDLL('libcuda.so').cuInit(0))"
    )
    done = checkers.run([sys.executable, "-c", program], libraries=tmp_path)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("no-such-compiler -O3", "there is no command 'no-such-compiler' on the PATH; unset CC"),
        (" ", "CC=' '.*no command ''"),
        ("'", 'CC="\'".*cannot be split into words'),
    ],
)
def test_compiler_that_is_no_command(named: str, words: str, monkeypatch) -> None:
    """A CC that does not exist, has no word, or has an open quote is refused with the value, and what to do."""
    monkeypatch.setenv("CC", named)
    with pytest.raises(cc.CompilerError, match=words):
        cc.find_compiler()


def test_compiler_in_a_folder_with_spaces(tmp_path: Path, monkeypatch) -> None:
    """A CC that is one path, as CMake gives it, is not split at its spaces."""
    program = tmp_path / "my tools" / "cc"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setenv("CC", str(program))
    assert cc.find_compiler() == [str(program)]


def test_compiler_that_refuses(tmp_path: Path) -> None:
    """The error has the command and the compiler's own words, and nothing half-made is left."""
    source = tmp_path / "bad.c"
    source.write_text("int answer(void) { return unknown_name; }\n", encoding="utf-8")
    out = tmp_path / "out"
    with pytest.raises(cc.CompilerError, match=r"bad\.c[\s\S]*failed with exit code 1[\s\S]*unknown_name"):
        cc.build(cc.SharedLibrary("libbad.so", (source,)), out)
    assert list(out.iterdir()) == []


@pytest.mark.slow
def test_build_hook_shows_the_compilers_error(tmp_path: Path) -> None:
    """A build whose compiler fails says so, and makes no wheel without the libraries."""
    command = [sys.executable, "-m", "build", "--wheel", "--installer=uv", "--outdir", str(tmp_path), str(ROOT)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "CC": f"{shutil.which('false')}"}
    )
    assert done.returncode != 0
    assert "failed with exit code 1" in done.stdout + done.stderr
    assert not list(tmp_path.glob("*.whl"))


def test_libraries_of_a_source_tree_are_built_once(tmp_path, monkeypatch) -> None:
    """They are built again where a file, a library or the compiler differs from those that they were built with."""
    source, library = tmp_path / "pytest_cudalink/part/native/a.c", tmp_path / "pytest_cudalink/part/lib/liba.so"
    for file in (source, library):
        file.parent.mkdir(parents=True)
        file.write_text("1")
    monkeypatch.setenv("CC", sys.executable)
    assert not sources.is_current(tmp_path, cc.find_compiler)
    with sources.building(tmp_path, cc.find_compiler) as current:
        assert not current
        with (tmp_path / "pytest_cudalink/base/lib/lock").open() as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with sources.building(tmp_path, cc.find_compiler) as current:
        assert current
    assert sources.is_current(tmp_path, cc.find_compiler)

    def is_current() -> bool:
        return sources.is_current(tmp_path, cc.find_compiler)

    source.write_text("2")
    assert not is_current()
    source.write_text("1")
    (header := source.with_name("b.h")).touch()
    assert not is_current()
    header.unlink()
    monkeypatch.setenv("CC", "sh")
    assert not is_current()
    monkeypatch.setenv("CC", sys.executable)
    assert is_current()
    library.unlink()
    assert not is_current()
