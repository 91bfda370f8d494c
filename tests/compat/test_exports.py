"""What CUDA libraries export: the table, compared with the libraries that are here, and facts known from the field."""

import json
from bisect import bisect_left
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cudalink import toolchains
from pytest_cudalink.base.tables import read_table
from pytest_cudalink.compat import exports
from pytest_cudalink.compat.exports import Pin, brought_by, is_open, pin_of, pinned_versions
from pytest_cudalink.compat.releases import PTX_ISA
from pytest_cudalink.versions import CudaVersion
from tests.compat.test_make_exports import needs_gnu_ld
from tools import dynamic_symbols, make_exports
from tools.package_index import IndexedFile, Version

ROOT = Path(__file__).parents[2]
SONAME = "libcuda.so.1"
#: Of the made-up libraries below.
RELEASES = [CudaVersion(12, minor) for minor in (0, 1, 2, 3)]


@cache
def libraries_here() -> list[tuple[str, CudaVersion, Path]]:
    """The libraries of cached toolchains and of installed wheels, where the wheel is the newest of its release."""
    libraries = []
    for stem in exports.libraries():
        for major, name in exports.distributions(stem).items():
            soname = exports.sonames(stem)[major]
            for chain in toolchains.installed():
                versions = exports.wheel_versions(stem, chain.version)
                if chain.version.major == major and versions[-1:] == (chain.packages.get(name),):
                    libraries += [(stem, chain.version, file) for file in Path(chain.path).glob(f"lib64/{soname}")]
            with suppress(metadata.PackageNotFoundError):
                wheel = metadata.distribution(name)
                release = exports.release_of_wheel(name, wheel.version)
                if release and exports.wheel_versions(stem, release)[-1:] == (wheel.version,):
                    files = [Path(file.locate()) for file in wheel.files or () if file.name == soname]
                    libraries += [(stem, release, file) for file in files]
    # cached toolchains share files
    return list({file.stat().st_ino: (stem, release, file) for stem, release, file in libraries}.values())


def defined_symbols(file: Path) -> set[str]:
    """C names that the section .dynsym defines, without the version nodes."""
    with file.open("rb") as opened:
        section = ELFFile(opened).get_section_by_name(".dynsym")
        return {
            symbol.name
            for symbol in section.iter_symbols()
            if symbol.entry.st_shndx not in {"SHN_UNDEF", "SHN_ABS"}
            and symbol.entry.st_info.bind != "STB_LOCAL"
            and not symbol.name.startswith("_Z")
        }


def test_real_libraries(toolkit) -> None:
    """Every symbol of every library that is here, and no other, is in the table."""
    here = libraries_here()
    assert {"libnvJitLink", "libnvrtc", "libcudart"} <= {stem for stem, *_ in here}
    for stem, release, file in here:
        assert defined_symbols(file) == exports.symbols(stem, release), (file, release)


def test_beginnings_of_real_libraries(toolkit) -> None:
    """The tables are found without PT_DYNAMIC; where a tool has moved the strings away, none are invented."""
    stems = set()
    for stem, release, file in libraries_here():
        with file.open("rb") as opened:
            read = dynamic_symbols.of_beginning(opened.read(1 << 16), exports.sonames(stem)[release.major])
            if read is None:
                read = dynamic_symbols.of_file(opened)
                assert read.soname in exports.sonames(stem).values()
            else:
                stems.add(stem)
        assert make_exports._c_names(read) == exports.symbols(stem, release)
        recorded = json.loads((exports.DATA / f"{stem}.json").read_text("utf-8"))["majors"][str(release.major)]
        assert [*read.nodes] == [[], *(change["nodes"] for change in recorded["changes"] if "nodes" in change)][-1]
    assert {"libnvJitLink", "libcudart"} <= stems


@pytest.mark.parametrize(
    ("stem", "symbol", "since"),
    [
        ("libnvJitLink", "nvJitLinkVersion", {12: "12.3", 13: "13.0"}),
        ("libnvJitLink", "nvJitLinkDestroy", {12: "12.3", 13: "13.0"}),  # NVIDIA/cccl#10083
        ("libnvJitLink", "__nvJitLinkDestroy_12_0", {12: "12.0", 13: None}),
        ("libnvJitLink", "__nvJitLinkGetErrorLog_13_1", {12: None, 13: "13.1"}),  # NVIDIA/cuvs#1862
        ("libnvJitLink", "__nvJitLinkGetErrorLogSize_12_9@libnvJitLink.so.12", {12: "12.9", 13: None}),
        ("libcudart", "cudaGetDriverEntryPointByVersion", {12: "12.5", 13: "13.0"}),  # NVIDIA/cccl#5970
        ("libcudart", "cudaMalloc@libcudart.so.13", {12: "12.0", 13: "13.0"}),
        ("libcusolver", "cusolverDnXgeev", {12: "12.6", 13: "13.0"}),
        ("libcuda", "cuCtxGetDevice_v2", {12: None, 13: "13.0"}),  # numba/numba#10188
        ("libcuda", "cuLogsUnregisterCallback", {12: "12.9", 13: "13.0"}),
        ("libcuda", "cuGraphGetId", {12: None, 13: "13.1"}),
        ("libcuda", "cuGetProcAddress_v2_ptsz", {12: None, 13: None}),  # given by cuGetProcAddress alone
    ],
)
def test_known_from_the_field(stem, symbol, since) -> None:
    """The first release of each symbol that a bug report was about."""
    firsts = {major: exports.since(stem, major, symbol) for major in since}
    assert {major: release and str(release) for major, release in firsts.items()} == since


def test_symbols_of_releases() -> None:
    """Before 12.3 nvJitLink exports no plain name; then cuFFT lost three functions, which a wheel of 12.2 may want."""
    for minor in (0, 1, 2):
        names = exports.symbols("libnvJitLink", CudaVersion(12, minor))
        assert len(names) == 13 * (minor + 1)
        assert all(name.startswith("__nvJitLink") for name in names)
    assert "nvJitLinkCreate" in exports.symbols("libnvJitLink", CudaVersion(12, 3))
    assert [exports.until("libcufft", 12, name) for name in ("cufftEnterCS", "cufftPlan1d")] == [(12, 3), None]
    there = ["cufftEnterCS" in exports.symbols("libcufft", CudaVersion(12, minor)) for minor in (2, 3)]
    assert there == [True, False]
    # an update of a release can have more than its first wheel: the floor names the wheel
    last = exports.wheel_versions("libcusolver", CudaVersion(12, 6))[-1]
    assert exports.first_wheel("libcusolver", 12, "cusolverDnXgeev") == last == "11.7.1.2"


def test_driver_of_580() -> None:
    """The libcuda of 13.0 has the 707 symbols that were counted in driver 580, and no wheel."""
    assert len(exports.symbols("libcuda", CudaVersion(13, 0))) == 707
    assert (exports.distributions("libcuda"), exports.wheel_versions("libcuda", CudaVersion(13, 0))) == ({}, ())
    assert exports.first_wheel("libcuda", 13, "cuInit") is None
    assert CudaVersion(12, 7) in exports.releases("libcuda", 12)


def test_sonames() -> None:
    """The names are those of the field: cuFFT and cuSOLVER count for themselves."""
    for stem, numbers in {"libcudart": (12, 13), "libcufft": (11, 12), "libcusolver": (11, 12)}.items():
        assert exports.sonames(stem) == {12: f"{stem}.so.{numbers[0]}", 13: f"{stem}.so.{numbers[1]}"}
    assert exports.sonames("libnvvm") == {12: "libnvvm.so.4", 13: "libnvvm.so.4"}
    same = [stem for stem in exports.libraries() if len(set(exports.sonames(stem).values())) == 1]
    assert same == ["libcufile", "libcufile_rdma", "libcurand", "libcusparse", "libnvvm", "libcuda"]


@pytest.mark.parametrize(
    ("distribution", "version", "release"),
    [
        *(("nvidia-nvjitlink", "13.1.80", "13.1"), ("Nvidia_nvJitLink", "13.1.80", "13.1")),
        *(("nvidia-nvjitlink", "13.9.1", "13.9"), ("nvidia-nvjitlink", "not a version", None)),
        *(("nvidia-cublas", "13.10.0.20", "13.5"), ("nvidia-cublas", "13.1.0.3", "13.0")),
        ("nvidia-cublas", "13.1.0.4", "13.0"),  # no such wheel: that of the one before it
        *(("nvidia-cublas", version, None) for version in ("99.0", "1.0", "not a version")),
        ("nvidia-cublas-cu12", "12.5.3.2", "12.5"),  # no metapackage requires it
        *(("nvidia-cusolver-cu12", "11.7.1.2", "12.6"), ("nvidia-nccl-cu12", "2.27.3", None)),
    ],
)
def test_release_of_wheel(distribution, version, release) -> None:
    """A wheel's version leads to its CUDA release."""
    named = exports.release_of_wheel(distribution, version)
    assert (named and str(named)) == release


def test_every_release_has_an_answer() -> None:
    """Every library has wheels in each release since its first one, but for 12.7, newer ones in newer releases."""
    for stem, library in make_exports.LIBRARIES.items():
        assert exports.distributions(stem) == library.distributions
        for major, name in library.distributions.items():
            known = [release for release in PTX_ISA if release.major == major and release != (12, 7)]
            having = list(exports.releases(stem, major))
            assert having == known[known.index(having[0]) :]
            wheels = {release: exports.wheel_versions(stem, release) for release in having}
            assert all(wheels.values())
            for release, versions in wheels.items():
                assert {exports.release_of_wheel(name, version) for version in versions} == {release}
            in_order = [version for versions in wheels.values() for version in versions]
            assert in_order == sorted(in_order, key=Version), (stem, major)
            if library.numbered:  # no update brings a function: the release of CUDA is a floor that says all
                symbols = {symbol for release in having for symbol in exports.symbols(stem, release)}
                firsts = {exports.first_wheel(stem, major, symbol) for symbol in symbols}
                assert firsts <= {versions[0] for versions in wheels.values()}, (stem, major)
    assert exports.releases("libcufile", 12)[0] == (12, 6)


def test_unknown_library() -> None:
    """The error names the libraries; an unknown major, release or symbol is just empty."""
    with pytest.raises(ValueError, match=r"the library is 'cudart'; expected one of libcublas, .*libcuda"):
        exports.sonames("cudart")
    assert exports.releases("libcudart", 14) == ()
    assert exports.distributions("libtorch") == {}
    numbered = ["libcudart", "libnvJitLink", "libnvfatbin", "libnvrtc", "libnvvm", "libcupti"]
    assert [*filter(exports.is_numbered, (*exports.libraries(), "libcupti", "libtorch"))] == numbered
    for release in (CudaVersion(12, 7), CudaVersion(14, 0)):
        assert exports.wheel_versions("libcudart", release) == ()
        assert exports.symbols("libcudart", release) == frozenset()
    for ask in (exports.since, exports.until, exports.first_wheel):
        assert [ask("libcudart", major, "cudaNo") for major in (13, 14)] == [None, None]


def by_wheel(history: list[list[frozenset[str]]]) -> dict:
    """What the maker writes for wheels with these exports, some in each release."""
    wheels = {f"{r}.{w}": names for r, release in enumerate(history) for w, names in enumerate(release)}

    class Reader:
        def result(self, file: IndexedFile) -> make_exports.Read:
            exported = dynamic_symbols.Exports(wheels[str(file.version)], (), "libx.so")
            return make_exports.Read({"libx": ("libx.so", exported)}, {})

    files = [IndexedFile(version, "", Version(version), None, None, yanked=False) for version in wheels]
    changes, unread = make_exports._changes(files, "libx", Reader())
    assert unread == {}
    numbers = {str(release): [f"{r}.{w}" for w in range(len(history[r]))] for r, release in enumerate(RELEASES)}
    return {"distribution": "x", "numbered": False, "wheels": numbers, "changes": changes}


names = st.frozensets(st.sampled_from("abc"))


@given(st.lists(st.lists(names, min_size=1, max_size=3), min_size=4, max_size=4))
def test_since_and_until(history) -> None:
    """The reader gets back what the maker was given, from wheel to wheel."""
    spans, newest = exports._major(by_wheel(history)).spans, [release[-1] for release in history]
    assert set(spans) == frozenset().union(*newest)
    for name, span in spans.items():
        having = [release for release, present in zip(RELEASES, newest, strict=True) if name in present]
        later = [release for release in RELEASES if release > having[-1]]
        assert (span.since, span.until) == (having[0], later[0] if later else None)
        first = [f"{r}.{w}" for r, release in enumerate(history) for w, here in enumerate(release) if name in here]
        assert span.wheel == first[0]


@pytest.fixture(scope="module")
def beginning() -> tuple[bytes, dynamic_symbols.Exports]:
    """The beginning of the emulated driver as far as it is needed, and what it exports."""
    library = ROOT / "pytest_cudalink/emulator/lib/libcuda.so.1"
    with library.open("rb") as opened:
        data = opened.read()
        right = dynamic_symbols.of_file(opened)
    read = dynamic_symbols.of_beginning
    needed = bisect_left(range(len(data)), 1, key=lambda size: read(data[:size], SONAME) is not None)
    assert needed < len(data)
    return data[:needed], right


@needs_gnu_ld
@settings(max_examples=50)
@given(st.data())
def test_damaged_beginnings(beginning, data) -> None:
    """A beginning that is too short gives no answer; one with changed bytes raises nothing."""
    library, right = beginning
    assert dynamic_symbols.of_beginning(library[: data.draw(st.integers(0, len(library) - 1))], SONAME) is None
    assert dynamic_symbols.of_beginning(library + b"more", SONAME) == right
    changed = bytearray(library)
    for _ in range(data.draw(st.integers(1, 20))):
        changed[data.draw(st.integers(0, 1 << 14))] = data.draw(st.integers(0, 255))
    dynamic_symbols.of_beginning(bytes(changed), SONAME)


def test_the_wheels_of_every_toolchain() -> None:
    """The wheels that this project installs for a release belong to that release."""
    for release, parts in read_table("toolchains.toml")["releases"].items():
        for library in (*parts["libs"], *parts.get("ctk", ())):
            pin = pin_of(library["name"], library["version"])
            assert pin is not None, library
            assert str(pin.release) == release, library


def test_the_versions_of_a_release() -> None:
    """Each belongs to the release, and so do the versions between them."""
    assert pinned_versions("nvidia-cuda-cccl", CudaVersion(13, 5)) == ("13.3.5.0.6",)
    versions = pinned_versions("nvidia-cuda-nvrtc", CudaVersion(13, 0))
    assert len(versions) > 1
    for version in (*versions, f"{versions[0]}.1"):
        pin = pin_of("nvidia-cuda-nvrtc", version)
        assert pin is not None
        assert pin.release == (13, 0)
        assert Version(pin.toolkit).release[:2] == (13, 0)
    assert pinned_versions("numpy", CudaVersion(13, 0)) == ()
    assert pin_of("numpy", "2.0") is None


@pytest.mark.parametrize("version", ["1.0", "13.0.88rc1", "99.0", "not a version"])
def test_versions_without_a_release(version: str) -> None:
    """Known releases require no version that is older or newer than theirs, and no pre-release."""
    assert pin_of("nvidia-cuda-nvrtc", version) is None


@pytest.mark.parametrize(
    ("wheel", "release", "expected"),
    [
        *(("nvidia-nvjitlink", release, release != "1.0") for release in ("13.0", "99.0", "1.0")),
        *(("nvidia-nvjitlink-cu12", release, release == "12.8") for release in ("12.8", "12.6", "11.8")),
        ("nvidia-cuda-nvrtc", "13.0", False),
    ],
)
def test_wheels_that_are_bounded_from_below_only(wheel: str, release: str, expected: bool) -> None:
    """Only nvJitLink, since cuda-toolkit 12.8.2; a release after the table's is taken to be like its last one."""
    assert is_open(wheel, CudaVersion.parse(release)) is expected


def test_the_wheels_of_an_extra() -> None:
    """By release: since CUDA 13 more wheels come with an extra; an extra that a release does not have brings none."""
    assert brought_by(frozenset({"nvrtc"}), CudaVersion(12, 9)) == {"nvidia-cuda-nvrtc-cu12"}
    assert brought_by(frozenset({"nvcc"}), CudaVersion(13, 5)) > {"nvidia-cuda-nvcc", "nvidia-nvvm"}
    assert brought_by(frozenset({"nvvm"}), CudaVersion(12, 9)) == frozenset()
    assert brought_by(frozenset({"all"}), CudaVersion(13, 5)) > {"nvidia-cublas", "nvidia-nvjitlink"}


def test_the_order_of_releases_is_that_of_their_numbers(monkeypatch) -> None:
    """A newer release may have an older wheel, and 13.10 is newer than 13.9."""
    older, newer = Pin(CudaVersion(13, 9), "13.9.0"), Pin(CudaVersion(13, 10), "13.10.0")
    monkeypatch.setattr(exports, "_pins", lambda: {"of-this-test": {"2.0": older, "1.0": newer}})
    assert [pin_of("of-this-test", version) for version in ("1.5", "2.0")] == [newer, older]
    table = {"versions": {"13.9.0": {"a": ["of-this-test==1.0"]}, "13.10.0": {"a": ["of-this-test<14,>=2.0"]}}}
    monkeypatch.setattr(exports, "read_table", lambda _: table)
    assert is_open("of-this-test", CudaVersion(13, 10))
