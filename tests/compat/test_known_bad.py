"""Known-bad combinations: the table, which entries a set of versions meets, and those that can be run here."""

import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from importlib import metadata
from itertools import product
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from pytest_cudalink import toolchains
from pytest_cudalink.base.tables import read_table
from pytest_cudalink.compat import atlas, exports, known_bad
from pytest_cudalink.versions import CudaVersion

ROOT = Path(__file__).parents[2]
CCCL = {"nvidia-cuda-cccl": "13.0.85", "nvidia-cuda-nvrtc": "13.2.86"}
LINKS = read_table("cudadevrt.toml")["links"]


def met(versions: dict[str, str], **facts) -> set[str]:
    return {entry.id for entry in known_bad.known_bad(versions, **facts)}


@pytest.mark.parametrize("entry", known_bad.entries(), ids=lambda entry: entry.id)
def test_every_entry_can_be_read(entry) -> None:
    """Ranges are PEP 440, threads can be followed, the test is in the project, and there is advice in one sentence."""
    for spec in (*entry.versions.values(), *entry.unless.values(), entry.driver):
        SpecifierSet(spec)
    assert entry.versions
    for name in (*entry.newer, *entry.newer.values()):
        assert name in entry.versions
    for thread in entry.threads:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", thread)
    assert entry.threads or entry.seen == "measured"
    assert entry.seen in {"measured", "reported"}
    assert set(entry.kinds) <= {"ptx", "ltoir", "cubin", "archive"}
    assert entry.advice
    assert "\n" not in entry.text
    if entry.test.startswith("nox -s "):
        name = entry.test.removeprefix("nox -s ")
        sessions = tomllib.loads((ROOT / "tools" / "sessions.toml").read_text(encoding="utf-8"))["session"]
        assert name in sessions or f"def {name}(" in (ROOT / "noxfile.py").read_text(encoding="utf-8")
    elif entry.test:
        assert (ROOT / entry.test).is_file()


def test_components_are_the_distributions_of_the_exports() -> None:
    """Each component is a library whose wheels have known releases."""
    known = {name for stem in exports.libraries() for name in exports.distributions(stem).values()}
    for wheels in known_bad.components().values():
        assert set(wheels) <= known


NEWER_ARCHIVE = {"nvidia-nvjitlink": "13.0.88", "nvidia-cuda-runtime": "13.1.80"}
CORE = {"cuda-core": "1.1.1", "cuda-bindings": "13.4.4"}
NVJITLINK_12 = "nvidia-nvjitlink-cu12"


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        (NEWER_ARCHIVE, "cudadevrt-newer-than-nvjitlink"),
        (NEWER_ARCHIVE | {NVJITLINK_12: "12.9.86"}, "cudadevrt-newer-than-nvjitlink"),
        ({"nvidia-nvjitlink": "13.1.115", "nvidia-cuda-runtime": "13.0.96"}, ""),
        ({"nvjitlink": "13.2", "cudadevrt": "13.2"}, ""),
        ({"nvjitlink": "13.2", "cudadevrt": "13.3"}, "cudadevrt-newer-than-nvjitlink"),
        ({"nvjitlink": "13.2.0", "cudadevrt": "13.2.1"}, ""),
        ({"nvjitlink": "13.0", "cudadevrt": "14.0"}, ""),
        ({"cuda-bindings": "13.3.1", "nvidia-cufile": "1.19.0.109"}, "cuda-bindings-13-3-cufile-13-4"),
        ({"cuda-bindings": "13.3.1", "nvidia-cufile": "1.18.1.6"}, ""),
        ({"Cuda_Core": "1.1.0", "cuda-bindings": "13.4.4"}, "cuda-core-frees-link-options"),
        (CORE | {"cuda-core": "1.1.0rc1"}, "cuda-core-frees-link-options"),
        (CORE | {"cuda-core": "1.1.0", "nvidia-nvjitlink": "13.0.88"}, ""),
        ({"nvidia-cuda-nvcc": "13.2.86", "nvidia-nvvm": "13.0.88", "nvidia-cuda-crt": "13.0.88"}, ""),
        ({"nvidia-nvvm": "13.0.88", "nvidia-cuda-crt": "13.2.86"}, ""),
        ({"cuda-core": "not a version"}, ""),
        ({"cuda-core": "1.2.2"}, "cuda-core-without-bindings"),
        ({"cuda-core": "0.6.0", "cuda-bindings": "12.8.0"}, "cuda-core-bindings-12-8"),
        (
            {"numba-cuda": "0.20.1", "cuda-bindings": "13.0.3", "cuda-core": "1.0.0"},
            "cuda-core-1-0-0-bindings-13-0 cuda-core-frees-link-options numba-cuda-0-20-without-core",
        ),
        (CORE, ""),
        (CORE | {NVJITLINK_12: "12.2.140"}, "cuda-core-old-nvjitlink"),
        (CORE | {NVJITLINK_12: "12.3.101"}, ""),
        (CORE | {"cuda-core": "1.2.0", NVJITLINK_12: "12.2.140"}, ""),
        ({"libcudf-cu12": "26.6.0"}, "libcudf-cu12-undeclared-nvjitlink"),
        ({"libcudf-cu12": "26.6.0", NVJITLINK_12: "12.8.93"}, "libcudf-cu12-undeclared-nvjitlink"),
        ({"libcudf-cu12": "26.6.0", NVJITLINK_12: "12.9.86"}, ""),
        ({"libcudf-cu12": "26.8.0"}, ""),
        ({"torch-memory-saver": "0.0.9", "nvidia-cuda-runtime": "13.0.96"}, "torch-memory-saver-0-0-9"),
        ({"torch-memory-saver": "0.0.9.post1", "nvidia-cuda-runtime": "13.0.96"}, ""),
        (CCCL | {"nvidia-cuda-runtime-cu12": "12.6.77"}, "cccl-13-older-runtime-headers"),
        (CCCL | {"nvidia-cuda-runtime-cu12": "12.8.90"}, ""),
        (CCCL | {"nvidia-cuda-runtime-cu12": "12.6.77", "nvidia-cuda-runtime": "13.0.96"}, ""),
        ({"tilelang": "0.1.15"}, "tilelang-0-1-15-entry-points"),
        ({"numba": "not a version", "nvjitlink": "?"}, ""),
        ({}, ""),
    ],
)
def test_which_entries_are_met(versions, expected) -> None:
    """Boundaries of ranges, names of distributions in any spelling, and components by their CUDA release."""
    assert met(versions) == {*expected.split()}


def test_a_condition_that_is_not_decided_counts_as_met() -> None:
    """Without architecture and driver the entry is returned, and says what is open; a known one decides."""
    versions = {"numba": "0.62.1", "nvidia-nvjitlink-cu12": "12.8.93", "nvidia-cuda-nvrtc": "13.0.88"}
    both = known_bad.known_bad(versions)
    assert {entry.id: entry.open_conditions() for entry in both} == {
        "nvjitlink-12-8-cubins-of-13": ("for sm_100, sm_100f, sm_120", "if it links cubin"),
        "numba-driver-580": ("on drivers >=580",),
    }
    assert met(versions, arch="sm_90", driver="575.51.03") == set()
    assert met(versions, arch="sm_120a", driver="580.65.06", kinds=["cubin", "ptx"]) == {entry.id for entry in both}
    assert met(versions, arch="sm_120", driver="575.51.03", kinds=["ptx"]) == set()
    assert both[0].open_conditions(arch="sm_120", kinds=["cubin"]) == ()
    assert both[0].sentence("sm_120", None) == (True, f"known to fail: {both[0].text}; only if it links cubin")
    assert both[1].sentence(None, "580.65.06") == (False, f"known to fail: {both[1].text}")
    assert replace(both[1], driver="", kinds=("ptx", "cubin")).open_conditions() == ("if it links ptx, cubin",)


def test_the_text_names_threads() -> None:
    """One line for a page: combination, what happens, threads."""
    (entry,) = known_bad.known_bad({"torch-memory-saver": "0.0.9", "cudart": "13.0"})
    assert entry.text == (
        "torch_memory_saver 0.0.9 with CUDA 13: import fails: libcudart.so.12: cannot open shared object file "
        "(fzyzcjy/torch_memory_saver#74)"
    )
    assert replace(entry, threads=()).text == f"{entry.title}: {entry.happens}"
    assert replace(entry, threads=("a/b#1", "a/c#2")).text.endswith(" (a/b#1, a/c#2)")
    assert entry.links == ("https://github.com/fzyzcjy/torch_memory_saver/issues/74",)


def test_the_atlas_and_the_entries_have_one_verdict() -> None:
    """An entry for code of a compiler fails in every cell of the atlas, and each crash of the atlas is an entry."""
    measured = atlas.load()
    named = {
        (made, read, kind, arch): measured.ask(made, read, kind, "nvjitlink", arch)
        for entry in known_bad.entries()
        if set(entry.versions) == {"nvjitlink", "nvrtc"}
        for made in filter(SpecifierSet(entry.versions["nvrtc"]).contains, measured.releases)
        for read in filter(SpecifierSet(entry.versions["nvjitlink"]).contains, measured.releases)
        for kind, arch in product(entry.kinds, entry.arch)
    }
    crashes = {
        (made, read, grid.kind, grid.arch)
        for grid in measured.grids
        if grid.step == "nvjitlink" and grid.kind in ("ptx", "ltoir", "cubin")  # a fatbin has one of these in it
        for made, letters in grid.rows.items()
        for read, letter in zip(grid.consumers, letters, strict=True)
        if measured.answers[letter].status == "crashed"
    }
    assert {cell for cell, answer in named.items() if answer is None or answer.works} == set()
    assert crashes == {cell for cell, answer in named.items() if answer and answer.status == "crashed"}


# -- entries that run here


def code_of_link(nvjitlink: Path, archive: Path) -> int:
    """Code of a link with the archive, in a separate process."""
    command = [sys.executable, str(ROOT / "tools/make_cudadevrt.py"), "--link", str(nvjitlink), str(archive)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (code,) = {int(line.split(",")[1]) for line in done.stdout.splitlines() if line.startswith("[")}
    return code


def test_an_archive_links_where_nvjitlink_is_not_older() -> None:
    """The rule, on every measured pair; nvJitLink 12.5 to 12.9 take archives of CUDA 13 too, without a promise."""
    for nvjitlink, row in LINKS.items():
        for archive, code in row.items():
            linker, made = CudaVersion.parse(nvjitlink), CudaVersion.parse(archive)
            if made.major > linker.major:
                assert code == (0 if linker >= (12, 5) else 3)
            else:
                assert code == (0 if made <= linker else 3), (nvjitlink, archive)


@pytest.mark.weekly
@pytest.mark.slow
def test_measured_pairs_of_the_toolchains_here() -> None:
    """Each nvJitLink and each libcudadevrt.a in the cache, and of the installed wheels: the code of the table."""
    files = [(chain.version, Path(chain.path) / "lib64") for chain in toolchains.installed()]
    for name in ("nvidia-nvjitlink", "nvidia-nvjitlink-cu12"):
        for file in metadata.files(name) if name in {dist.name for dist in metadata.distributions()} else ():
            if file.name.startswith("libnvJitLink.so."):
                release = exports.release_of_wheel(name, metadata.version(name))
                files.append((release, Path(file.locate()).parent))
    linkers = {release: next(folder.glob("libnvJitLink.so.1[23]"), None) for release, folder in files if release}
    archives = {release: folder / "libcudadevrt.a" for release, folder in files if release}
    measured = {
        (str(release), str(made)): code_of_link(linker, archive)
        for release, linker in linkers.items()
        for made, archive in archives.items()
        if linker and archive.exists() and str(release) in LINKS and str(made) in LINKS[str(release)]
    }
    assert measured
    assert measured == {(release, made): LINKS[release][made] for release, made in measured}
