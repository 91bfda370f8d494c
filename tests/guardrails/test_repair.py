"""The commands that repair a set of items."""

from __future__ import annotations

import pytest

from pytest_cudalink.guardrails.items import Item
from pytest_cudalink.guardrails.repair import repair
from pytest_cudalink.versions import CudaVersion


def item(name: str, version: str | None, kind: str = "dynamic-libs", *, of: str = "ctk", via: str = "site-packages"):
    release = CudaVersion.parse(version) if version else None
    return Item(kind, name, f"/{via}/{version}/{kind}/{name}", via, of, release, "as the test says")


NVRTC, NVJITLINK = ("dynamic-libs", "nvrtc"), ("dynamic-libs", "nvJitLink")


@pytest.mark.parametrize(
    ("items", "version", "command"),
    [
        ([NVJITLINK, NVRTC], "13.0", "pip install 'cuda-toolkit[nvjitlink,nvrtc]==13.0.*' 'nvidia-nvjitlink==13.0.*'"),
        ([NVJITLINK], "12.9", "pip install 'cuda-toolkit[nvjitlink]==12.9.*'"),
        ([("bitcode-libs", "device"), ("headers", "nvvm")], "12.9", "pip install 'cuda-toolkit[nvcc]==12.9.*'"),
        ([("bitcode-libs", "device"), ("binaries", "nvcc")], "13.0", "pip install 'cuda-toolkit[nvcc,nvvm]==13.0.*'"),
        ([("dynamic-libs", "cublasLt")], "13.0", "pip install 'cuda-toolkit[cublas]==13.0.*'"),
        ([("dynamic-libs", "npps")], "13.0", "pip install 'cuda-toolkit[npp]==13.0.*'"),
        ([("dynamic-libs", "cudla")], "13.0", "pip install 'cuda-toolkit[all]==13.0.*'"),
        ([NVRTC], "11.8", "pip install 'cuda-toolkit[nvrtc]==11.8.*'"),
        ([NVRTC], "11.4", ""),
        ([NVRTC], "12.7", ""),
    ],
)
def test_repair(items, version, command) -> None:
    """The command names extras that the release has, and pins the nvJitLink that cuda-toolkit 13 leaves open."""
    made = [item(name, version, kind) for kind, name in items]
    assert repair(made, CudaVersion.parse(version)) == command
