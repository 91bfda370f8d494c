"""The CUDA release of a wheel, by what the releases of cuda-toolkit require."""

import pytest
from packaging.version import Version

from pytest_cudalink.base.tables import read_table
from pytest_cudalink.compat import exports
from pytest_cudalink.compat.exports import Pin, brought_by, is_open, pin_of, pinned_versions
from pytest_cudalink.versions import CudaVersion


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
