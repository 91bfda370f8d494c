"""Versions and the tables that order them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cudalink.compat.architectures import ARCHITECTURES, dropped_by, known_architectures, parse_architecture
from pytest_cudalink.compat.releases import (
    LATEST_KNOWN,
    NVVM_IR,
    PTX_ISA,
    may_exist,
    needs_for_nvvm_ir,
    needs_for_ptx_isa,
    ptx_isa_of,
    version_named,
)
from pytest_cudalink.versions import (
    FIRST_BRANCH,
    CudaVersion,
    Needs,
    distribution_version,
    ranges,
    skew_remedy,
    specifier_of,
)

versions = st.builds(CudaVersion, st.integers(0, 99), st.integers(0, 99))


@given(versions)
def test_text_round_trip(version: CudaVersion) -> None:
    """What `str` writes, `parse` reads."""
    assert CudaVersion.parse(str(version)) == version


@pytest.mark.parametrize(
    ("text", "expected"),
    [("13", (13, 0)), ("13.0.88", (13, 0)), (" 12.9 ", (12, 9)), ("13.0.0.1", (13, 0)), ("9999.9999", (9999, 9999))],
)
def test_parse_forms(text: str, expected: tuple[int, int]) -> None:
    """A major alone and a full version are understood, and four digits are a number."""
    assert CudaVersion.parse(text) == expected


def test_parse_refuses() -> None:
    """Anything else is an error that shows the form; a specifier stays as it is, and a number stands for all of it."""
    for text in ("", "13.", ".0", "v13.0", "13.0-rc1", "١٣.٠", "13.0.x"):
        with pytest.raises(ValueError, match="MAJOR.MINOR"):
            CudaVersion.parse(text)
    assert [str(specifier_of(version)) for version in ("13.2", ">=13.2")] == ["==13.2.*", ">=13.2"]


@given(versions, versions)
def test_needs_and_order(needed: CudaVersion, consumer: CudaVersion) -> None:
    """An exact need is met by the release itself, a "newer than" only by later ones."""
    assert Needs(needed).met_by(consumer) == (consumer >= needed)
    assert Needs(needed, newer_than=True).met_by(consumer) == (consumer > needed)
    assert [str(Needs(needed)), str(Needs(needed, newer_than=True))] == [f"CUDA {needed}", f"newer than CUDA {needed}"]


@pytest.mark.parametrize("release", sorted(PTX_ISA))
def test_ptx_need_of_each_release(release: CudaVersion) -> None:
    """PTX that a release writes is read by it; 12.6 repeats the ISA of 12.5."""
    needs = needs_for_ptx_isa(PTX_ISA[release])
    assert needs.met_by(release)
    assert needs.version == (CudaVersion(12, 5) if release == (12, 6) else release)


@pytest.mark.parametrize(
    ("isa", "expected"),
    [
        ((1, 0), Needs(CudaVersion(12, 0))),
        ((8, 9), Needs(CudaVersion(12, 9), newer_than=True)),
        ((9, 9), Needs(LATEST_KNOWN, newer_than=True)),
    ],
)
def test_unknown_ptx_isa(isa: tuple[int, int], expected: Needs) -> None:
    """An unknown number is "newer than" the last known one below it, an old one is read by all."""
    assert needs_for_ptx_isa(isa) == expected


@given(st.tuples(st.integers(0, 20), st.integers(0, 200)))
def test_needs_is_monotonic(number: tuple[int, int]) -> None:
    """A larger NVVM IR number never needs an older release."""
    following = (number[0], number[1] + 1)
    assert needs_for_nvvm_ir(number) <= needs_for_nvvm_ir(following)


def test_ptx_isa_of_releases() -> None:
    """A release after the table reads at least what the last known one reads; one before it is an error.

    A newer release never reads less PTX; each has its own NVVM IR version, so the number names the release.
    """
    assert [list(PTX_ISA), list(PTX_ISA.values())] == [sorted(PTX_ISA), sorted(PTX_ISA.values())]
    assert list(NVVM_IR.values()) == sorted(set(NVVM_IR.values()))
    assert [needs_for_nvvm_ir(number) for number in NVVM_IR.values()] == [Needs(release) for release in NVVM_IR]
    assert {release: ptx_isa_of(release) for release in PTX_ISA} == PTX_ISA
    assert ptx_isa_of(CudaVersion(15, 0)) == PTX_ISA[LATEST_KNOWN]
    with pytest.raises(ValueError, match="older than 12.0"):
        ptx_isa_of(CudaVersion(11, 8))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (" 12.8.1 ", "'12.8.1' has three numbers"),
        ("11.8", "CUDA 11.8 cannot be emulated; .*; choose one of these$"),
        ("13.9", "CUDA 13.9 cannot .*; choose one of these, or upgrade pytest-cudalink$"),
    ],
)
def test_versions_of_emulated_drivers(text: str, said: str) -> None:
    """What is known; a newer one may come with a newer release of this package."""
    assert version_named(LATEST_KNOWN) == LATEST_KNOWN
    with pytest.raises(ValueError, match=f"^{said}"):
        version_named(text)


def test_versions_that_may_exist() -> None:
    """Each once, the newest that is known first; a range names those of a major, in order, however they are given."""
    releases = map(CudaVersion.parse, ("13.1", "12.9", "12.0", "12.5", "11.8", "11.7"))
    assert ranges(releases) == "11.7 to 11.8, 12.0 to 12.9, 13.1"
    listed = list(may_exist())
    assert listed[0] == LATEST_KNOWN
    assert sorted(listed) == [CudaVersion(major, minor) for major in range(FIRST_BRANCH) for minor in range(10)]


def test_architectures_of_releases() -> None:
    """13.0 renamed sm_101; family-specific targets came with 12.9; an older release knows what the first one does."""
    old, older, newest = (known_architectures(CudaVersion(*release)) for release in ((12, 9), (12, 8), (13, 0)))
    assert ("sm_101a" in old, "sm_101a" in newest, "sm_110a" in newest) == (True, False, True)
    assert ("sm_100f" in older, "sm_100f" in old, "sm_100a" in older) == (False, True, True)
    oldest = [known_architectures(CudaVersion(*release))[0] for release in ((11, 8), (12, 0), (13, 0))]
    assert oldest == ["sm_50", "sm_50", "sm_75"]
    assert {name.lstrip("sm_0123456789") for name in known_architectures()} == {"", "a", "f"}
    assert set(known_architectures(CudaVersion(13, 2))) < set(known_architectures())


@pytest.mark.parametrize(
    ("arch", "release", "dropped"),
    [
        ("sm_70", CudaVersion(12, 9), False),
        ("sm_70", CudaVersion(13, 0), True),
        ("sm_70", CudaVersion(13, 1), True),
        ("sm_75", CudaVersion(13, 0), False),
        ("sm_999", CudaVersion(13, 0), False),
    ],
)
def test_dropped_architectures(arch: str, release: CudaVersion, dropped: bool) -> None:
    """A release drops an architecture for all later ones; nothing is known of others."""
    assert dropped_by(release, arch) is dropped


@given(st.sampled_from(ARCHITECTURES), st.sampled_from(["sm", "compute", "lto"]))
def test_parse_architecture(architecture, prefix: str) -> None:
    """Every known architecture is understood with each prefix and each of its suffixes."""
    for suffix in ("", *architecture.suffixes):
        assert parse_architecture(f"{prefix}_{architecture.number}{suffix}") == (prefix, architecture.number, suffix)


@pytest.mark.parametrize("text", ["sm90", "sm_9", "sm_91", "sm_80a", "SM_90", "sm_90 ", "", "gfx90a"])
def test_unknown_architecture_lists_the_known(text: str) -> None:
    """The error lists what there is."""
    with pytest.raises(ValueError, match=r"unknown architecture .* known: sm_50, .*sm_90a"):
        parse_architecture(text)


@pytest.mark.parametrize(
    ("number", "version"), [(0, (0, 0)), (12080, (12, 8)), (13000, (13, 0)), (13019, (13, 1)), (11040, (11, 4))]
)
def test_driver_numbers(number: int, version: tuple[int, int]) -> None:
    """Thousands are the major, tens the minor; the last digit does not count."""
    assert CudaVersion.from_driver(number) == version
    with pytest.raises(ValueError, match="negative"):
        CudaVersion.from_driver(-1)


def test_an_architecture_is_known_from_its_release_on() -> None:
    """The release that introduces an architecture knows it, the one before does not."""
    for arch in ARCHITECTURES:
        name = f"sm_{arch.number}"
        assert name in known_architectures(arch.since)
        assert arch.dropped is None or name not in known_architectures(arch.dropped)
        before = [release for release in PTX_ISA if release < arch.since]
        assert not before or name not in known_architectures(max(before))
        later = [release for release in PTX_ISA if arch.dropped and arch.since <= release < arch.dropped]
        assert not later or name in known_architectures(max(later))


@pytest.mark.parametrize(
    ("needs", "driver", "remedy"),
    [
        (Needs(CudaVersion(13, 2)), False, "install 'nvidia-nvjitlink>=13.2'"),
        (Needs(CudaVersion(13, 2), newer_than=True), False, "install 'nvidia-nvjitlink>13.2'"),
        (Needs(CudaVersion(12, 9)), False, "install 'nvidia-nvjitlink-cu12>=12.9'"),
        (Needs(CudaVersion(13, 2)), True, "install a driver for CUDA 13.2 or newer"),
        (Needs(CudaVersion(13, 2), newer_than=True), True, "install a driver for CUDA 13.2 at least"),
    ],
)
def test_skew_remedy(needs: Needs, driver: bool, remedy: str) -> None:
    """A wheel of the right name and bound, as by default, or a driver; the other way round, an older compiler."""
    expected = f"linker understands up to 12.8: {remedy}, or compile with CUDA 12.8 or older"
    assert skew_remedy(needs, CudaVersion(12, 8), driver=driver) == expected
    assert driver or skew_remedy(needs, CudaVersion(12, 8)) == expected


@pytest.mark.parametrize(("text", "read"), [("12.09.86", "12.9.86"), ("1.0rc1", "1.0rc1"), ("13.0-custom", "None")])
def test_the_version_of_a_distribution(text: str, read: str) -> None:
    """One that PEP 440 does not know is none."""
    assert str(distribution_version(text)) == read
