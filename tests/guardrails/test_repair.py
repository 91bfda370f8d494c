"""The commands that repair a set of items."""

from dataclasses import replace

import pytest

from pytest_cudalink.compat.releases import LATEST_KNOWN
from pytest_cudalink.guardrails import repair as repair_rules
from pytest_cudalink.guardrails.items import ALREADY_LOADED
from pytest_cudalink.guardrails.repair import by_hand, published_releases, repair, worth
from pytest_cudalink.versions import CudaVersion
from tests.guardrails.test_rules import item

NVRTC, NVJITLINK = ("dynamic-libs", "nvrtc"), ("dynamic-libs", "nvJitLink")


@pytest.mark.parametrize(
    ("items", "version", "command"),
    [
        ([NVJITLINK, NVRTC], "13.0", "pip install 'cuda-toolkit[nvjitlink,nvrtc]==13.0.*' 'nvidia-nvjitlink==13.0.*'"),
        ([NVJITLINK], "12.9", "pip install 'cuda-toolkit[nvjitlink]==12.9.*' 'nvidia-nvjitlink-cu12==12.9.*'"),
        ([NVJITLINK], "12.6", "pip install 'cuda-toolkit[nvjitlink]==12.6.*'"),
        ([("binaries", "nvdisasm")], "13.5", "pip install 'cuda-toolkit[nvdisasm]==13.5.*'"),
        ([("binaries", "nvdisasm")], "13.1", "pip install 'cuda-toolkit[nvcc]==13.1.*'"),
        ([("binaries", "ptxas")], "13.5", "pip install 'cuda-toolkit[nvcc]==13.5.*'"),
        ([("bitcode-libs", "device"), ("headers", "nvvm")], "12.9", "pip install 'cuda-toolkit[nvcc]==12.9.*'"),
        ([("bitcode-libs", "device"), ("binaries", "nvcc")], "13.0", "pip install 'cuda-toolkit[nvcc,nvvm]==13.0.*'"),
        ([("dynamic-libs", "cublasLt")], "13.0", "pip install 'cuda-toolkit[cublas]==13.0.*'"),
        ([("dynamic-libs", "npps")], "13.0", "pip install 'cuda-toolkit[npp]==13.0.*'"),
        ([("dynamic-libs", "cudla")], "13.0", "pip install 'cuda-toolkit[all]==13.0.*'"),
        ([("dynamic-libs", "cudla")], "13.5", "pip install 'cuda-toolkit[all]==13.5.*'"),
        ([NVRTC], "11.8", "pip install 'cuda-toolkit[nvrtc]==11.8.*'"),
        ([NVRTC], "11.4", ""),
        ([NVRTC], "12.7", ""),
    ],
)
def test_repair(items, version, command) -> None:
    """The command names extras that the release has, and bounds the nvJitLink that newer ones leave open."""
    made = [item(name, version, kind) for kind, name in items]
    assert str(repair(made, CudaVersion.parse(version))) == command


def test_worth() -> None:
    """What the driver runs counts most, then what is loaded, then a wheel, then the newer release."""
    ranked = [
        item("a", "13.2"),
        item("a", None, via="conda"),
        *(item("a", version, via="conda") for version in ("12.8", "13.0")),
        item("a", "12.8"),
        item("a", "12.8", via=ALREADY_LOADED),
    ]
    assert sorted({*ranked}, key=lambda trial: worth(trial, CudaVersion(13, 0))) == ranked
    assert max(ranked[:-1], key=lambda trial: worth(trial, None)) is ranked[0]


NVCC, PTXAS = ("binaries", "nvcc"), ("binaries", "ptxas")


@pytest.mark.parametrize(
    ("items", "version", "expected"),
    [
        ([(NVCC, "12.8")], "12.9", ""),
        ([(NVRTC, "12.8"), (NVCC, "12.8")], "12.9", ""),
        ([(NVCC, "13.0"), (PTXAS, "12.9")], "12.9", ""),
        ([(NVCC, "12.9")], "12.9", "pip install 'cuda-toolkit[nvcc]==12.9.*'"),
        ([(NVCC, "12.9")], "13.0", "pip install 'cuda-toolkit[nvcc]==13.0.*'"),
    ],
)
def test_no_wheel_brings_programs_up_to_cuda_12(items, version: str, expected: str) -> None:
    """A program of another release cannot be exchanged by a wheel of CUDA 12; one that is to stay can."""
    made = [item(name, release, kind) for (kind, name), release in items]
    assert str(repair(made, CudaVersion.parse(version))) == expected


@pytest.mark.parametrize(
    ("items", "advice"),
    [
        ([NVCC], "put the bin folder of a CUDA 12.9 toolkit first on PATH"),
        ([NVRTC, NVCC], "put the bin folder of a CUDA 12.9 toolkit first on PATH"),
        ([NVRTC], "use an installed CUDA 12.9 for all of these, or a release from 11.8 on, which has wheels"),
    ],
)
def test_advice(items, advice: str) -> None:
    """Where there is no command, the advice names PATH for programs and an installed toolkit for the rest."""
    assert by_hand([item(name, "13.0", kind) for kind, name in items], CudaVersion(12, 9)) == advice
    programs = [replace(item("nvcc", "13.0", "binaries"), wheel=name) for name in "dbeca"]
    assert by_hand(programs, CudaVersion(12, 9)).startswith("uninstall a and b and c and d and e, and put ")


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("12.7", "'cuda-toolkit[nvjitlink]>=12.0,<12.8'"),
        ("12.8", "'cuda-toolkit[nvjitlink]>=12.0,<12.9' 'nvidia-nvjitlink-cu12>=12.0,<12.9'"),
        ("12.10", "'cuda-toolkit[nvjitlink]>=12.0,<12.11' 'nvidia-nvjitlink-cu12>=12.0,<12.11'"),
        ("99.0", "'cuda-toolkit[nvjitlink]>=99.0,<99.1' 'nvidia-nvjitlink>=99.0,<99.1'"),
    ],
)
def test_an_open_linker_up_to_a_release(version: str, words: str) -> None:
    """It is bounded where the newest cuda-toolkit up to that release leaves it open, published or not."""
    assert str(repair([item("nvJitLink", "12.6")], CudaVersion.parse(version), at_most=True)) == f"pip install {words}"


@pytest.mark.parametrize(
    ("version", "command"),
    [
        ("12.7", "pip install 'cuda-toolkit[nvrtc]>=12.0,<12.8'"),
        ("11.7", ""),
        ("11.8", "pip install 'cuda-toolkit[nvrtc]>=11.0,<11.9'"),
        ("99.0", "pip install 'cuda-toolkit[nvrtc]>=99.0,<99.1'"),
    ],
)
def test_repair_up_to_a_release(version: str, command: str) -> None:
    """With at_most an older release of the same major will do; one that is not known yet is taken to have wheels."""
    assert str(repair([item("nvrtc", "11.8")], CudaVersion.parse(version), at_most=True)) == command


def test_wheels_of_a_newer_major_go_first() -> None:
    """In the order of their names, so that the command is the same in every run."""
    items = [replace(item("nvrtc", "13.0"), wheel=name) for name in "fbdace"]
    others = (
        ("cudart", "12.8", "same"), ("cufft", "11.8", "old"), ("curand", None, "unknown"),
        ("nvJitLink", "13.0", ""),
    )  # fmt: skip
    items += [replace(item(name, version), wheel=wheel) for name, version, wheel in others]
    assert str(repair(items, CudaVersion(12, 9))).startswith("pip uninstall -y a b c d e f && pip install ")


def test_published_releases_are_in_order() -> None:
    """From the oldest that has wheels to the newest known."""
    published = published_releases()
    assert published == sorted(published)
    assert (published[0], published[-1]) == (CudaVersion(11, 8), LATEST_KNOWN)
    assert CudaVersion(12, 7) not in published


def test_wheels_of_an_earlier_major_are_none_of_this_one(monkeypatch) -> None:
    """Where a major has no wheels yet, no release of it can be installed."""
    monkeypatch.setattr(repair_rules, "published_releases", lambda: (CudaVersion(11, 8), CudaVersion(13, 0)))
    assert str(repair([item("nvrtc", "13.0")], CudaVersion(12, 9), at_most=True)) == ""
