"""Which items are related, and where they come from."""

from __future__ import annotations

import itertools

import pytest

from pytest_cudalink.guardrails.items import Item
from pytest_cudalink.guardrails.relations import libraries_by_name, numbered_like_cuda, shared_groups
from pytest_cudalink.guardrails.rules import check_pair
from pytest_cudalink.versions import CudaVersion


def item(name: str, version: str | None, kind: str = "dynamic-libs", *, of: str = "ctk", via: str = "site-packages"):
    release = CudaVersion.parse(version) if version else None
    return Item(kind, name, f"/{via}/{version}/{kind}/{name}", via, of, release, "as the test says")


NVRTC, NVJITLINK = ("dynamic-libs", "nvrtc"), ("dynamic-libs", "nvJitLink")


@pytest.mark.parametrize(
    ("a", "b", "related"),
    [
        (NVRTC, ("headers", "nvrtc"), True),
        (NVRTC, ("headers", "cudart"), True),
        (NVRTC, ("headers", "cccl"), True),
        (NVRTC, NVJITLINK, False),
        (NVRTC, ("headers", "nvjitlink"), False),
        (NVRTC, ("dynamic-libs", "cudart"), False),
        (NVRTC, ("binaries", "nvcc"), False),
        (NVJITLINK, ("headers", "nvjitlink"), True),
        (NVJITLINK, ("dynamic-libs", "cublas"), False),
        (("dynamic-libs", "cudart"), ("headers", "cudart"), True),
        (("dynamic-libs", "cublas"), ("dynamic-libs", "cusolver"), True),
        (("dynamic-libs", "cublasLt"), ("headers", "cublas"), True),
        (("dynamic-libs", "cusolver"), ("headers", "cublas"), False),
        (("dynamic-libs", "npps"), ("headers", "npp"), True),
        (("dynamic-libs", "npps"), ("dynamic-libs", "nppc"), True),
        (("dynamic-libs", "cufftw"), ("headers", "cufft"), True),
        (("dynamic-libs", "nvvm"), ("headers", "nvvm"), True),
        (("dynamic-libs", "curand"), ("dynamic-libs", "cufft"), False),
        *[
            (x, y, True)
            for x, y in itertools.combinations(
                [
                    *(("headers", name) for name in ("cccl", "cudart", "nvcc", "nvfatbin", "nvvm")),
                    ("static-libs", "cudadevrt"),
                    ("bitcode-libs", "device"),
                    ("binaries", "nvcc"),
                ],
                2,
            )
        ],
        (("binaries", "ptxas"), ("binaries", "nvcc"), False),
    ],
)
def test_relations(a, b, related: bool) -> None:
    """Who must be of one release with whom; both ways round, and the minor version counts."""
    for first, second in ((a, b), (b, a)):
        older, newer = item(first[1], "13.0", first[0]), item(second[1], "13.2", second[0])
        same = item(second[1], "13.0", second[0])
        assert bool(shared_groups(older, newer)) is related
        assert check_pair(older, newer).status == ("incompatible" if related else "compatible")
        assert check_pair(older, same).status == "compatible"


def test_only_the_toolkits_libraries_count_by_name() -> None:
    """Headers of the same name, and libraries that are not the toolkit's, are left out."""
    nvrtc = item("nvrtc", "13.0")
    others = [item("nvrtc", "13.2", "headers"), item("nccl", None, of="other"), item("cuda", None, of="driver")]
    assert libraries_by_name([*others, nvrtc]) == {"nvrtc": nvrtc}


def test_wheel_names() -> None:
    """Names with and without the suffix of CUDA 12; libraries that number themselves are not among them."""
    assert numbered_like_cuda("nvidia-cuda-nvrtc")
    assert numbered_like_cuda("nvidia-cuda-runtime-cu12")
    assert not numbered_like_cuda("nvidia-cublas")
    assert not numbered_like_cuda("nvidia-cublas-cu12")
