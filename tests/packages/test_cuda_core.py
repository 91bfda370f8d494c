"""Releases of cuda-core with releases of cuda-bindings: run in the cells that have an axis for each of them."""

from __future__ import annotations

import importlib

import pytest

from pytest_cudalink import probes

CORE, BINDINGS = (probes.wheel_version(name) for name in ("cuda-core", "cuda-bindings"))


@pytest.mark.skipif(CORE is None or BINDINGS is None, reason="this cell chooses no cuda-core and cuda-bindings")
@pytest.mark.xfail(
    CORE == "1.0.0" and str(BINDINGS).startswith("13.0."),
    reason="cuda-core 1.0.0 needs cuDevSmResourceSplit of cuda-bindings 13.1 (NVIDIA/cuda-python#2063)",
    raises=ImportError,
    strict=True,
)
def test_cuda_core_imports() -> None:
    """It imports, but for the pair that was released without having been tested."""
    importlib.import_module("cuda.core")
