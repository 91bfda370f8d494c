"""Fifty-two cells of the atlas, measured again by ``atlas_again.py``, which shares no code with what made the atlas."""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from pytest_cudalink import toolchains
from pytest_cudalink.compat import atlas

SCRIPT = Path(__file__).with_name("atlas_again.py")
KINDS = ("nvvm-ltoir", "merged-cubin", "merged-lto-cubin", "merged-ltoir")
ARCHS = ("sm_100f", "sm_103", "sm_110", "sm_121")
#: What nvJitLink merges, and what it is asked for.
MERGES = {
    "merged-cubin": ("cubin", "Cubin"),
    "merged-lto-cubin": ("ltoir", "Cubin"),
    "merged-ltoir": ("ltoir", "LTOIR"),
}
NVVM = {"12.9": "nvidia-cuda-nvcc-cu12==12.9.86", "13.5": "nvidia-nvvm==13.5.37"}

Cell = tuple[str, str, str, str]  # kind, architecture, producer, consumer


def cells() -> list[Cell]:
    """Forty cells of nvJitLink in the newer grids: of each kind and architecture, and every kind of answer."""
    found = atlas.load()
    chance = random.Random(2867)
    asked: dict[str, list[Cell]] = {}
    for grid in found.grids:
        if grid.step == "nvjitlink" and (grid.kind in KINDS or grid.arch in ARCHS):
            for producer, letters in grid.rows.items():
                for consumer, letter in zip(grid.consumers, letters, strict=True):
                    group = grid.kind if grid.kind in KINDS else grid.arch
                    if found.answers[letter].status != "not-made" and (group != "nvvm-ltoir" or producer in NVVM):
                        asked.setdefault(group, []).append((grid.kind, grid.arch, producer, consumer))
    return [cell for group in (*KINDS, *ARCHS) for cell in sorted(chance.sample(asked[group], 5))]


def ask(folder: Path, library: Path, release: str, arch: str, **job: str) -> int:
    """The code of a step in a separate process; negative for the signal that ended it."""
    words = {"library": str(library), "release": release, "arch": arch, "words": "", "result": "Cubin", **job}
    words["out"] = str(folder / job["out"])
    words["files"] = " ".join(str(folder / name) for name in job.get("files", "").split())
    done = subprocess.run([sys.executable, SCRIPT, json.dumps(words)], capture_output=True, text=True, check=False)
    code = done.stdout.rpartition("code ")[2].strip()
    assert done.returncode < 0 or code, done.stderr
    return done.returncode or int(code)


def has_kernel(image: bytes) -> bool:
    """Whether a cubin defines the kernel."""
    symbols = ELFFile(io.BytesIO(image)).get_section_by_name(".symtab")
    return any(one.name == "doubled" and one["st_shndx"] != "SHN_UNDEF" for one in symbols.iter_symbols())


@pytest.fixture(scope="module")
def nvvm(tmp_path_factory) -> dict[str, Path]:
    """LibNVVM of some releases."""
    found = {}
    for release, wheel in NVVM.items():
        folder = tmp_path_factory.mktemp("nvvm")
        subprocess.run(["uv", "pip", "install", "-q", "--no-deps", "--target", str(folder), wheel], check=True)
        (found[release],) = folder.rglob("libnvvm.so*")
    return found


@pytest.mark.weekly
@pytest.mark.slow  # it needs the toolchain of each release, and two wheels of the package index
def test_forty_cells_again(tmp_path, nvvm) -> None:
    """Another program with another kernel gets the status and the code of the atlas."""
    chosen = cells()
    assert len(set(chosen)) == 40
    assert {atlas.load().ask(made, read, kind, "nvjitlink", arch).status for kind, arch, made, read in chosen} >= {
        "works", "refused", "wrong",
    }  # fmt: skip
    different = {}
    for cell in chosen:
        kind, arch, producer, consumer = cell
        folder = tmp_path / "-".join(cell)
        folder.mkdir()
        maker, reader = toolchains.add(producer), toolchains.add(consumer)
        base = kind.rpartition("-")[2] if kind not in MERGES else MERGES[kind][0]
        for step in ("kernel", "function"):
            code = ask(folder, maker.library("nvrtc"), producer, arch, do=f"{step} {base}", out=step)
            assert code == 0, (cell, step)
        files = "kernel function"
        if kind == "nvvm-ltoir":
            assert ask(folder, nvvm[producer], producer, arch, do="nvvm", out="function") == 0
        elif kind in MERGES:
            merge = {"do": f"link {base}", "result": MERGES[kind][1], "words": "-r", "files": files, "out": "merged"}
            assert ask(folder, maker.library("nvJitLink"), producer, arch, **merge) == 0, cell
            files = "merged"
        linker = reader.library("nvJitLink")
        code = ask(folder, linker, consumer, arch, do=f"link {kind.rpartition('-')[2]}", files=files, out="image")
        status = "crashed" if code < 0 else "refused" if code else "works"
        if status == "works" and not has_kernel((folder / "image").read_bytes()):
            status = "wrong"
        known = atlas.load().ask(producer, consumer, kind, "nvjitlink", arch)
        assert known is not None
        if (status, abs(code)) != (known.status, known.code):
            different[cell] = (status, code, str(known))
    assert different == {}


@pytest.mark.weekly
@pytest.mark.slow  # it needs the package index
def test_twelve_cells_of_tile_ir_again(tmp_path, monkeypatch) -> None:
    """Tileiras as pip installs it gets another kernel, and answers as in the atlas; that of 13.1 lacks its libNVVM."""
    found = atlas.load()
    asked: dict[int, list[Cell]] = {}
    for grid in (one for one in found.grids if one.step == "tileiras"):
        for producer, letters in grid.rows.items():
            for consumer, letter in zip(grid.consumers, letters, strict=True):
                asked.setdefault(found.answers[letter].code, []).append((grid.kind, grid.arch, producer, consumer))
    assert sorted(asked) == [0, 1, 2, 3]
    chance = random.Random(174)
    first = ("tileir", "sm_100", "13.1", "13.1")
    chosen = [first, *(cell for code in sorted(asked) for cell in chance.sample(asked[code], 3 if code else 2))]
    assert len(set(chosen)) == 12
    homes = {}
    for name in ("cuda-tile==1.7.0", *dict.fromkeys(consumer for *_, consumer in chosen)):
        wanted = name if "==" in name else f"cuda-toolkit[nvcc,nvvm,tileiras]=={name}.*"
        subprocess.run(["uv", "pip", "install", "-q", "--target", str(tmp_path / name), wanted], check=True)
        homes[name] = tmp_path / name / "nvidia" / "cu13"
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "cuda-tile==1.7.0"))

    def compiled(cell: Cell) -> int:
        """The exit code of tileiras; -1 if its cubin lacks the kernel."""
        _, arch, producer, consumer = cell
        assert ask(tmp_path, Path(), producer, arch, do="tile", out="code") == 0
        command = [
            homes[consumer] / "bin" / "tileiras",
            "--gpu-name",
            arch,
            tmp_path / "code",
            "-o",
            tmp_path / "cubin",
        ]
        done = subprocess.run(command, capture_output=True, check=False)
        return done.returncode or -1 + has_kernel((tmp_path / "cubin").read_bytes())

    assert compiled(first) == 5
    library = homes["13.1"] / "nvvm" / "lib64" / "libnvvm.so"
    library.parent.mkdir()
    library.symlink_to(homes["13.1"] / "lib" / "libnvvm.so.4")
    measured = {cell: found.ask(cell[2], cell[3], "tileir", "tileiras", cell[1]).code for cell in chosen}
    assert {cell: compiled(cell) for cell in chosen} == measured


@pytest.mark.weekly
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "function", "linker", "code"),
    [
        ("12.9", "13.5", "13.5", 0),
        ("13.5", "12.9", "13.5", 0),
        ("12.9", "13.5", "13.4", 14),
        ("13.5", "12.9", "13.4", 14),
        ("13.0", "12.9", "13.0", 0),
        ("13.0", "12.9", "12.9", 6),
    ],
)
def test_lto_ir_of_two_releases(tmp_path, nvvm, kernel, function, linker, code) -> None:
    """NvJitLink links what NVRTC and libNVVM of any two releases made if it is not older than either."""
    made = ask(tmp_path, toolchains.add(kernel).library("nvrtc"), kernel, "sm_90", do="kernel ltoir", out="kernel")
    assert (made, ask(tmp_path, nvvm[function], function, "sm_90", do="nvvm", out="function")) == (0, 0)
    job = {"do": "link ltoir", "files": "kernel function", "out": "image"}
    assert ask(tmp_path, toolchains.add(linker).library("nvJitLink"), linker, "sm_90", **job) == code
    assert code or has_kernel((tmp_path / "image").read_bytes())


@pytest.mark.weekly
@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "members"),
    [
        ("sm_100f", {"sm_100", "sm_103", "sm_107"}),
        ("sm_103f", {"sm_103", "sm_107"}),
        ("sm_110f", {"sm_110"}),
        ("sm_120f", {"sm_120", "sm_121"}),
    ],
)
def test_members_of_a_family(tmp_path, family, members) -> None:
    """PTX for a family links for its members that are not smaller, and for no other GPU."""
    chain = toolchains.add("13.5")
    for step in ("kernel", "function"):
        assert ask(tmp_path, chain.library("nvrtc"), "13.5", family, do=f"{step} ptx", out=step) == 0
    job = {"do": "link ptx", "files": "kernel function", "out": "image"}
    archs = ("sm_90", "sm_100", "sm_103", "sm_107", "sm_110", "sm_120", "sm_121")
    codes = {arch: ask(tmp_path, chain.library("nvJitLink"), "13.5", arch, **job) for arch in archs}
    assert codes == {arch: 0 if arch in members else 4 for arch in archs}


@pytest.mark.weekly
@pytest.mark.slow
@pytest.mark.parametrize(("debug", "code"), [("i32 3, i32 1", 0), ("i32 3, i32 2", 0), ("i32 0, i32 0", 3)])
@pytest.mark.parametrize("release", NVVM)
def test_versions_in_nvvm_ir(tmp_path, nvvm, release, debug, code) -> None:
    """LibNVVM refuses the version 0.0 of debug metadata, as numba-cuda-mlir wrote it (#218)."""
    assert ask(tmp_path, nvvm[release], release, "sm_90", do="nvvm", out="x", debug=debug) == code


@pytest.mark.parametrize(
    ("release", "answers"),
    [
        pytest.param("12.1", None, marks=pytest.mark.slow),
        pytest.param("12.2", 1, marks=pytest.mark.slow),
        ("13.0", 1),
        pytest.param("13.5", 1, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("word", ["native", "all", "all-major"])
def test_words_that_are_not_one_architecture(tmp_path, release, answers, word) -> None:
    """NVRTC and nvJitLink refuse the words that nvcc has for several architectures; nvJitLink 12.1 ends the process."""
    chain = toolchains.add(release)
    assert ask(tmp_path, chain.library("nvrtc"), release, word, do="kernel cubin", out="x") == 5
    link = {"do": "link ptx", "out": "x"}
    if answers is None:
        with pytest.raises(AssertionError, match=f"fatal   : Unknown arch name '{word}'"):
            ask(tmp_path, chain.library("nvJitLink"), release, word, **link)
    else:
        assert ask(tmp_path, chain.library("nvJitLink"), release, word, **link) == answers
