"""Where a library is from, for whom it was loaded, and what may not be in one process."""

import ctypes
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_cudalink import toolchains
from pytest_cudalink.compat import libraries
from pytest_cudalink.guardrails import attribution, provenance
from pytest_cudalink.guardrails.provenance import Library, ProcessEnvironment
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
    loaded = LoadedObject(str(path), soname or Path(path).name, ())
    library = provenance.describe(loaded, given.get("objects", [loaded]), given.get("openings", ()))
    assert library is not None
    return library


def library(
    name: str = "libcudart", version: str = "13.0", place: str = "wheels", path: str = "", soname: str = "", **more
) -> Library:
    """A library as `provenance.describe` returns it."""
    soname = soname or f"{name}.so.{version.partition('.')[0] or 13}"
    path = path or f"/{place}/{version}/{soname}"
    return replace(Library(name, soname, path, path, place, "", version, "cuda.h", ""), **more)


# -- places


@pytest.mark.parametrize(
    ("place", "name", "version", "file", "release"),
    [
        ("wheels", "nvidia-cuda-runtime-cu12", "12.9.79", "nvidia/cuda_runtime/lib/libcudart.so.12", "12.9"),
        ("wheels", "torch", "2.9.0", "torch/lib/libcudart-d0da41ae.so.11.0", "11.0"),
        ("system", "nvidia-cuda-runtime", "13.0.96", "nvidia/libcudart.so.13", "13.0"),
    ],
)
def test_the_owner(site, tmp_path, place, name, version, file, release) -> None:
    """A file of a RECORD, renamed or not, belongs to its distribution; wheels elsewhere are not this environment's."""
    (path,) = install(site if place == "wheels" else tmp_path / "other" / "site-packages", name, version, file)
    library = described(path)
    assert (library.name, library.soname, library.place) == ("libcudart", path.name, place)
    assert (library.owner, library.version) == (f"{name} {version}", release)


@pytest.mark.parametrize("listed", [True, False])
def test_a_link(site, tmp_path, listed) -> None:
    """The real path is judged, and both are shown; an installer's link into its cache is a wheel's file."""
    real = put(tmp_path / "cache" / "libcudart.so.13.0.96")
    path = site / "nvidia" / "libcudart.so.13"
    install(site, "nvidia-cuda-runtime", "13.0.96", *(["nvidia/libcudart.so.13"] if listed else ["nvidia/other"]))
    path.unlink(missing_ok=True)
    path.symlink_to(real)
    library = described(path)
    assert (library.path, library.real_path) == (str(path), str(real))
    assert library.place == ("wheels" if listed else "system")
    assert f"{path}, which is {real}" in library.label


def test_the_driver(tmp_path) -> None:
    """A driver fits every expectation; a toolkit's stub of it does not."""
    driver = described(put(tmp_path / "libcuda.so.580.65.06"), "libcuda.so.1")
    stub = described(put(tmp_path / "lib64" / "stubs" / "libcuda.so"), "libcuda.so.1")
    assert (driver.place, driver.version, driver.release) == ("driver", "580.65.06", None)
    assert provenance.is_from(driver, "wheels")
    assert stub.place == "system"
    assert not provenance.is_from(stub, "wheels")


def test_every_place(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package itself, toolchains, wheels, conda and the system: the first that fits; only wheels have an owner."""
    wheels, conda = tmp_path / "w" / "site-packages", tmp_path / "conda"
    (conda / "conda-meta").mkdir(parents=True)
    environment = ProcessEnvironment.of(
        [str(wheels), str(tmp_path / "dist-packages"), "", "/x"], [str(conda), "/opt", str(conda)], {}
    )
    assert environment == ProcessEnvironment(frozenset({wheels, tmp_path / "dist-packages"}), (conda, Path("/opt")), {})
    assert provenance._toolchains() == toolchains.cache_root().resolve()
    monkeypatch.setattr(provenance, "_toolchains", lambda: tmp_path / "toolchains")
    no_header, no_number = "no cuda.h above {}", "its file name has no version"
    for path, place, version, witness in (
        (Path(provenance.__file__).parent / "libcuda.so.13.0", "emulated", "13.0", "its file name"),
        (tmp_path / "libnvidia-ptxjitcompiler.so.1", "driver", "", no_number),
        (tmp_path / "toolchains" / "libcublas.so.13.1.0", "toolchains", "", no_header),
        (wheels / "libnvrtc.so.13", "wheels", "", no_header),
        (conda / "libnvrtc.so.13.0.88", "conda", "13.0", "its file name"),
        (tmp_path / "libnvrtc.so.13", "system", "", no_header),
        *((path, "system", "", no_header) for path in (Path("/opt/libnvrtc.so.13"), tmp_path / "libcudart.so.20261.1")),
    ):
        loaded = LoadedObject(str(path), "", ())
        library = provenance.describe(loaded, [loaded], (), environment)
        assert library is not None, path
        assert (library.soname, library.place, library.owner) == (path.name, place, "")
        assert (library.version, library.witness) == (version, witness.format(path)), path
    other = LoadedObject("/usr/lib/libcurl.so.4", "libcurl.so.4", ())
    assert provenance.describe(other, [other], ()) is None


def test_a_link_to_a_wheel(site, tmp_path) -> None:
    """The path as it was opened says the release first, then the file itself."""
    (real,) = install(site, "nvidia-cuda-runtime-cu12", "12.9.79", "a/libcudart.so.12")
    (listed,) = install(site, "nvidia-cuda-runtime", "13.0.96", "b/libcudart.so.13")
    listed.unlink()
    for link, version in ((tmp_path / "libcudart.so", "12.9"), (listed, "13.0")):
        link.symlink_to(real)
        assert described(link, "libcudart.so.1").version == version
    assert described(real).witness.startswith("nvidia-cuda-runtime-cu12 12.9.79 is of cuda-toolkit 12.9.")
    assert described(real, "libcudart.so.1").soname == "libcudart.so.1"


@pytest.mark.parametrize(
    ("number", "code", "version"), [(13010, 0, "13.1"), (13010, 1, ""), (0, 0, ""), (OSError, 0, ""), (None, 0, "")]
)
def test_what_a_loaded_runtime_says(number, code: int, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime that is loaded is asked where nothing else says its release; no other library is, and none loaded."""

    def answer(reference) -> int:
        reference._obj.value = number
        return code

    def open_loaded(path: str, mode: int) -> SimpleNamespace:
        assert (path, mode) == ("/x/libcudart.so.13", os.RTLD_NOLOAD)
        if number is OSError:
            raise OSError
        return SimpleNamespace(**({"cudaRuntimeGetVersion": answer} if number is not None else {}))

    monkeypatch.setattr(ctypes, "CDLL", open_loaded)
    library = described("/x/libcudart.so.13")
    assert library.version == version
    assert not version or library.witness == "cudaRuntimeGetVersion of the loaded library"
    assert described("/x/libnvrtc.so.13").version == ""


def test_every_name_of_the_table_is_a_candidate() -> None:
    """The plugin looks at names before it reads the table."""
    table = libraries._table()
    assert [name for name in (*table.libraries, *table.families) if not name.startswith(_CANDIDATE)] == []


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
        LoadedObject("/x/libother.so", "libother.so", ("libcublas.so.13", "")),
    ]
    openings = [Opening("libcublas.so.13", "b.py:1", ""), Opening(str(outer), "a.py:3", "")]
    library = provenance.describe(objects[2], objects, openings)
    assert library is not None
    assert library.for_whom == f"/x/libmiddle.so, for {outer} (mine 1.0), opened at a.py:3"


def test_circles_and_long_chains() -> None:
    circle = [LoadedObject("/x/a.so", "a.so", ("b.so",)), LoadedObject("/x/b.so", "b.so", ("a.so",))]
    assert provenance.used_by(circle[0], circle, ()) == "/x/b.so"
    objects = [LoadedObject(f"/x/{n}.so", f"{n}.so", (f"{n - 1}.so",)) for n in range(1, 12)]
    loaded = LoadedObject("/x/libcudart.so.13", "0.so", ())
    assert provenance.used_by(loaded, objects, ()) == ", for ".join(f"/x/{n}.so" for n in range(1, 9))


@pytest.mark.parametrize(
    ("where", "through", "words"),
    [
        ("a.py:1", "numba", "opened through numba at a.py:1"),
        ("a.py:1", "", "opened at a.py:1"), ("", "numba", "opened through numba"), ("", "", "opened"),
        ("a.py:1", "pytest-cudalink", "opened through pytest-cudalink at a.py:1"),
    ],
)  # fmt: skip
def test_openings_in_words(where: str, through: str, words: str) -> None:
    """What opened it and where, as far as that is known; that is a use."""
    library = described("/x/libcudart.so.13", openings=[Opening("libcudart.so.13", where, through)])
    assert (library.for_whom, library.is_probed) == (words, False)


def test_opened_by_this_plugin() -> None:
    """A probe is no use; a second opening is, and who opened a library without one is not known."""
    loaded = LoadedObject("/x/libnvJitLink.so.13", "libnvJitLink.so.13", ())
    probe = Opening(loaded.soname, "", "pytest-cudalink")
    unopened = provenance.describe(loaded, [loaded], [])
    assert (unopened.for_whom, unopened.is_probed, library().is_probed) == ("", False, False)
    assert provenance.describe(loaded, [loaded], [probe]).is_probed
    assert not provenance.describe(loaded, [loaded], [probe, Opening(loaded.soname, "a.py:1", "")]).is_probed
    assert provenance.used_by(loaded, [], [probe]) == ""
    assert provenance.used_by(loaded, [LoadedObject("/x/libmine.so", "", (loaded.soname,))], []) == "/x/libmine.so"


# -- what does not belong together


@pytest.mark.parametrize(
    ("mine", "other", "kind"),
    [
        (library(version="12.9"), library(version="13.0"), "majors"),
        (library(version="13.0"), library(version="13.2"), "minors"),
        (library(version="13.0"), library(version="13.0", place="system"), ""),
        (library(version="13.0"), library("libnvrtc", version="13.2"), ""),
        (library("libcuda", "12.9", "driver"), library("libcuda", "13.0", "emulated"), ""),
        (library(version="13.0"), library(version="", place="system"), ""),
        (library(version="12.9", path="/x/a.so"), library(version="13.0", path="/x/a.so"), ""),
        (library(version="", soname="libcudart.so"), library(version="", place="system"), ""),
        (library(version="", soname="libcudart.so.12"), library(version="", place="system"), "majors"),
    ],
)
def test_two_of_one_library(mine, other, kind) -> None:
    """Releases decide, else SONAMEs; the driver's libraries, and one file under two names, are never a clash."""
    assert provenance.clash(mine, other) == provenance.clash(other, mine) == kind


@pytest.mark.parametrize(
    ("producer", "linker", "mixed"),
    [
        ("13.0", "12.9", True), ("12.9", "13.0", True), ("13.0", "13.2", False), (None, "13.0", False),
        ("13.0", None, False),
    ],
)  # fmt: skip
def test_producer_and_linker(producer, linker, mixed) -> None:
    """Majors are compared, where both are known."""
    assert provenance.mixed_majors(producer, linker) is mixed


def test_the_variables_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """They count where no other ones are given; an empty entry is no folder."""
    monkeypatch.chdir("/")
    monkeypatch.setenv("LD_LIBRARY_PATH", ":/opt/cuda/lib64")
    lib = described("/opt/cuda/lib64/libcudart.so.13.0.96", "libcudart.so.13")
    text = provenance.foreign(lib, "wheels", "wheels (from option)")
    assert text.startswith(f"libcudart.so.13 is from the system: {lib.path}; expected a wheel of this environment\n")
    assert text.endswith(f"\n  LD_LIBRARY_PATH names /opt/cuda/lib64: unset it, or {ADVICE}")


MINE = {"owner": "torch 2.9.0", "for_whom": "/x/a.so"}


@pytest.mark.parametrize(
    ("library", "expected", "variables", "text"),
    [
        (
            library(version="", real_path="/real/libcudart.so.13"), "system",
            {"CUDA_PATH": "/opt:/real:wheels", "CUDA_HOME": "/"},
            """\
libcudart.so.13 is from a wheel: /wheels//libcudart.so.13; expected the system
  --cudalink-provenance is SETTING
  the file is /real/libcudart.so.13
  CUDA release not known: cuda.h
  loaded for: not known
  CUDA_PATH names /real; CUDA_HOME names /: unset it, or \
uninstall the copy or let the loader find the system's libcudart first""",
        ),
        (
            library(**MINE), "system", {},
            """\
libcudart.so.13 is from a wheel: /wheels/13.0/libcudart.so.13; expected the system
  --cudalink-provenance is SETTING
  CUDA 13.0: cuda.h
  it belongs to torch 2.9.0
  loaded for: /x/a.so
  Uninstall torch 2.9.0 or let the loader find the system's libcudart first""",
        ),
        (
            library(place="system"), "conda", {},
            """\
libcudart.so.13 is from the system: /system/13.0/libcudart.so.13; expected the conda prefix
  --cudalink-provenance is SETTING
  CUDA 13.0: cuda.h
  loaded for: not known
  Install the conda package that brings libcudart""",
        ),
        (
            library(place="toolchains"), "/a:/b", {},
            """\
libcudart.so.13 is from the cache of toolchains: /toolchains/13.0/libcudart.so.13; expected a file below /a or /b
  --cudalink-provenance is SETTING
  CUDA 13.0: cuda.h
  loaded for: not known
  Let the loader find libcudart below that folder first""",
        ),
    ],
)  # fmt: skip
def test_whole_messages(library: Library, expected: str, variables: dict[str, str], text: str) -> None:
    """Lines on what is not known are left out or say so; the variables of the process that was looked at count."""
    environment = ProcessEnvironment(frozenset(), (), variables)
    assert provenance.foreign(library, expected, "SETTING", environment) == text


def test_two_copies_in_words() -> None:
    """Each with its place and owner, when it was loaded, and for whom."""
    copies = (library(version="", real_path="/real"), "at start"), (library(place="system", **MINE), "later")
    assert (
        provenance.together("majors", *copies)
        == """\
two majors of libcudart in one process:
  libcudart.so.13 (version not known) (wheels): /wheels//libcudart.so.13, which is /real
    loaded at start, for: not known
  libcudart.so.13 13.0 (system, torch 2.9.0): /system/13.0/libcudart.so.13
    loaded later, for: /x/a.so"""
    )


def test_faults() -> None:
    """A place and the first clash are wrong where a place is expected; a second major alone where none is."""
    mine, minor, major = (library(version=version, place="system") for version in ("13.0", "13.1", "12.9"))
    process = provenance.ProcessEnvironment.of([], [], {"LD_LIBRARY_PATH": "/system"})
    before = [(library("libnvrtc"), "a"), (minor, "b"), (major, "c")]
    loaded = (mine, "d")
    elsewhere = provenance.foreign(mine, "wheels", "SETTING", process)
    minors, majors = (provenance.together(kind, before[at], loaded) for at, kind in ((1, "minors"), (2, "majors")))
    one_copy = f"\n  {provenance.ONE_COPY}"
    for expected, given, texts in (
        ("wheels", before, [elsewhere, f"{minors}{one_copy}"]),
        ("system", before[2:], [f"{majors}{one_copy}"]),
        ("any", before, [majors]),
        ("any", before[:2], []),
    ):
        assert [*provenance.faults(loaded, given, expected, "SETTING", process)] == texts
