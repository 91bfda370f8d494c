"""numba-cuda-mlir as a target: the linker of numba-cuda, in a separate package."""

from __future__ import annotations

from typing import ClassVar

from .numba_cuda import NumbaCuda

__all__ = ["NumbaCudaMlir"]


class NumbaCudaMlir(NumbaCuda):
    """``numba_cuda_mlir``: its links count for it, not cuda.core; its ``_have_nvjitlink`` returns what is forced."""

    name: ClassVar[str] = "numba-cuda-mlir"
    modules: ClassVar[tuple[str, ...]] = ("numba_cuda_mlir.numba_cuda.cudadrv.driver",)
    distribution: ClassVar[str | None] = "numba-cuda-mlir"
