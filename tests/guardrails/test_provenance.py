"""Where a library is from, for whom it was loaded, and what may not be in one process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytest_cudalink.audit import libraries
from pytest_cudalink.guardrails import attribution, provenance
from pytest_cudalink.guardrails.provenance import Library
from pytest_cudalink.loader.loads import LoadedObject, Opening
from pytest_cudalink.plugin.watch.provenance import _CANDIDATE

ADVICE = "install the wheel that brings libcudart, and require it in the project's metadata"


@pytest.fixture(autouse=True)
def fresh_metadata():
    """Each test installs its own distributions."""
    attribution.cache_clear()
    yield
    attribution.cache_clear()


@pytest.fixture
def site(tmp_path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of this environment in which distributions are installed."""
    folder = tmp_path / "env" / "lib" / "site-packages"
    folder.mkdir(parents=True)
    monkeypatch.syspath_prepend(str(folder))
    return folder


def put(path: Path) -> Path:
    """Make a file with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def install(site: Path, name: str, version: str, *files: str) -> list[Path]:
    """Install a distribution with empty files."""
    record = put(site / f"{name.replace('-', '_')}-{version}.dist-info" / "RECORD")
    record.write_text("".join(f"{file},,\n" for file in files))
    attribution.cache_clear()
    return [put(site / file) for file in files]


def described(path: Path | str, soname: str = "", **given) -> Library:
    """The library that was loaded from a path."""
    one = LoadedObject(str(path), soname or Path(path).name, ())
    found = provenance.describe(one, given.get("objects", [one]), given.get("openings", ()))
    assert found is not None
    return found


def library(name: str = "libcudart", version: str = "13.0", place: str = "wheels", path: str = "") -> Library:
    """A library as `provenance.describe` returns it."""
    soname = f"{name}.so.{version.partition('.')[0] or 13}"
    path = path or f"/{place}/{version}/{soname}"
    return Library(name, soname, path, path, place, "", version, "", "")


# -- places


def test_a_wheel_of_this_environment(site) -> None:
    """A file of a RECORD, with the distribution that owns it and the release that its version says."""
    (path,) = install(site, "nvidia-cuda-runtime-cu12", "12.9.79", "nvidia/cuda_runtime/lib/libcudart.so.12")

    found = described(path)

    assert (found.place, found.owner, found.version) == ("wheels", "nvidia-cuda-runtime-cu12 12.9.79", "12.9")
    assert (found.name, found.soname) == ("libcudart", "libcudart.so.12")


def test_a_bundled_copy(site) -> None:
    """A renamed copy belongs to the wheel that brought it."""
    (path,) = install(site, "torch", "2.9.0", "torch/lib/libcudart-d0da41ae.so.11.0")

    found = described(path)

    assert (found.name, found.place, found.owner) == ("libcudart", "wheels", "torch 2.9.0")


def test_a_file_that_no_record_lists(site) -> None:
    """Below a folder of this environment that is a wheel's place, too."""
    assert described(put(site / "mine" / "libnvrtc.so.13")).place == "wheels"


def test_another_environment(tmp_path) -> None:
    """Its wheels are not those of this environment."""
    (path,) = install(tmp_path / "other" / "site-packages", "nvidia-cuda-runtime", "13.0.96", "nvidia/libcudart.so.13")

    found = described(path)

    assert (found.place, found.owner) == ("system", "nvidia-cuda-runtime 13.0.96")


@pytest.mark.parametrize("listed", [True, False])
def test_a_link(site, tmp_path, listed) -> None:
    """The real path is judged, and both are shown; an installer's link into its cache is a wheel's file."""
    real = put(tmp_path / "cache" / "libcudart.so.13.0.96")
    path = site / "nvidia" / "libcudart.so.13"
    install(site, "nvidia-cuda-runtime", "13.0.96", *(["nvidia/libcudart.so.13"] if listed else ["nvidia/other"]))
    path.unlink(missing_ok=True)
    path.symlink_to(real)

    found = described(path)

    assert (found.path, found.real_path) == (str(path), str(real))
    assert found.place == ("wheels" if listed else "system")
    assert f"{path}, which is {real}" in found.label


def test_conda(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the prefix of this Python, if that has ``conda-meta``."""
    path = put(tmp_path / "lib" / "libcudart.so.13.0.96")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert described(path).place == "system"
    (tmp_path / "conda-meta").mkdir()

    assert described(path).place == "conda"


def test_the_driver(tmp_path) -> None:
    """A driver fits every expectation; a toolkit's stub of it does not."""
    driver = described(put(tmp_path / "libcuda.so.580.65.06"), "libcuda.so.1")
    stub = described(put(tmp_path / "lib64" / "stubs" / "libcuda.so"), "libcuda.so.1")

    assert (driver.place, driver.version, driver.release) == ("driver", "580.65.06", None)
    assert provenance.is_from(driver, "wheels")
    assert stub.place == "system"
    assert not provenance.is_from(stub, "wheels")


def test_other_libraries() -> None:
    """What is not CUDA's is not described."""
    one = LoadedObject("/usr/lib/libcurl.so.4", "libcurl.so.4", ())

    assert provenance.describe(one, [one], ()) is None


def test_every_name_of_the_table_is_a_candidate() -> None:
    """The plugin looks at names before it reads the table."""
    table = libraries._table()

    assert [name for name in (*table.libraries, *table.families) if not _CANDIDATE.match(name)] == []


@pytest.mark.parametrize(
    ("expected", "fits"),
    [("any", True), ("wheels", False), ("conda", False), ("system", True), ("/opt:/usr", True), ("/op:/home", False)],
)
def test_expectation(expected, fits) -> None:
    """A word is a place; anything else is folders."""
    assert provenance.is_from(library(place="system", path="/opt/cuda/lib64/libcudart.so.13"), expected) is fits


# -- for whom


def test_a_chain_of_libraries(site) -> None:
    """What needs it, what needs that, and the code that opened the outermost; the order of the loader decides."""
    (outer,) = install(site, "mine", "1.0", "mine/_ext.abi3.so")
    objects = [
        LoadedObject(str(outer), "", ("libmiddle.so",)),
        LoadedObject("/x/libmiddle.so", "libmiddle.so", ("libcublas.so.13",)),
        LoadedObject("/x/libcublas.so.13", "libcublas.so.13", ("libcublasLt.so.13",)),
        LoadedObject("/x/libother.so", "libother.so", ("libcublas.so.13",)),
    ]

    found = provenance.describe(objects[2], objects, [Opening(str(outer), "a.py:3", "")])

    assert found is not None
    assert found.for_whom == f"/x/libmiddle.so, for {outer} (mine 1.0), opened at a.py:3"


def test_libraries_that_need_each_other() -> None:
    """A circle ends."""
    objects = [
        LoadedObject("/x/libcublas.so.13", "libcublas.so.13", ("libcublasLt.so.13",)),
        LoadedObject("/x/libcublasLt.so.13", "libcublasLt.so.13", ("libcublas.so.13",)),
    ]

    found = provenance.describe(objects[0], objects, ())

    assert found is not None
    assert found.for_whom == "/x/libcublasLt.so.13"


def test_not_known() -> None:
    """What C code opened is not known."""
    assert described("/x/libcudart.so.13").for_whom == ""


def test_opened_by_this_plugin() -> None:
    """A probe is no use; a second opening is."""
    one = LoadedObject("/x/libnvJitLink.so.13", "libnvJitLink.so.13", ())
    probe = Opening(one.soname, "", "pytest-cudalink")

    assert provenance.describe(one, [one], [probe]).is_probed
    assert not provenance.describe(one, [one], [probe, Opening(one.soname, "a.py:1", "")]).is_probed
    assert provenance.used_by(one, [], [probe]) == ""
    assert provenance.used_by(one, [LoadedObject("/x/libmine.so", "", (one.soname,))], []) == "/x/libmine.so"


# -- what does not belong together


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        (library(version="12.9"), library(version="13.0"), "majors"),
        (library(version="13.0"), library(version="13.2"), "minors"),
        (library(version="13.0"), library(version="13.0", place="system"), ""),
        (library(version="13.0"), library("libnvrtc", version="13.2"), ""),
        (library(version="13.0"), library(version="13.0"), ""),
        (library("libcuda", "12.9", "driver"), library("libcuda", "13.0", "emulated"), ""),
        (library(version="13.0"), library(version="", place="system"), ""),
    ],
)
def test_two_of_one_library(one, other, kind) -> None:
    """Releases decide; the driver's libraries, and one file under two names, are never a clash."""
    assert provenance.clash(one, other) == provenance.clash(other, one) == kind


def test_majors_by_soname() -> None:
    """Where no release is known, the SONAMEs tell."""
    first = described("/x/libcufft.so.11")
    second = described("/y/libcufft.so.12")

    assert provenance.clash(first, second) == "majors"


@pytest.mark.parametrize(
    ("producer", "linker", "mixed"),
    [
        ("13.0", "12.9", True),
        ("12.9", "13.0", True),
        ("13.0", "13.2", False),
        (None, "13.0", False),
        ("13.0", None, False),
    ],
)
def test_producer_and_linker(producer, linker, mixed) -> None:
    """Majors are compared, where both are known."""
    assert provenance.mixed_majors(producer, linker) is mixed


def test_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the file, the release, for whom, what was expected, and the variable that led there."""
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/cuda/lib64")
    found = described("/opt/cuda/lib64/libcudart.so.13.0.96", "libcudart.so.13")

    first, *lines = provenance.foreign(found, "wheels", "wheels (from option)").splitlines()

    wrong, _, expected = first.partition("; ")
    assert wrong == "libcudart.so.13 is from the system: /opt/cuda/lib64/libcudart.so.13.0.96"
    assert expected == "expected a wheel of this environment"
    assert lines == [
        "  --cudalink-provenance is wheels (from option)",
        "  CUDA 13.0: its file name",
        "  loaded for: not known",
        f"  LD_LIBRARY_PATH names /opt/cuda/lib64: unset it, or {ADVICE}",
    ]
