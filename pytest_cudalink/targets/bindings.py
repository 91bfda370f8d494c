"""Faked versions for every library that asks cuda-bindings: its functions that return a version are wrapped at import.

Without a fake each wrapper passes the call on. Code that calls the C functions without Python does not see a fake. The
same modules, and others, get the wrappers of `link_seams`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any, Final

from .. import probes
from ..versions import CudaVersion
from . import link_seams

__all__ = ["SEAMS"]

_VERSION_SYMBOL: Final = "__nvJitLinkVersion"


def _absent() -> Exception:
    """Return the error that cuda-bindings raises if no libnvJitLink is found."""
    from cuda.pathfinder import DynamicLibNotFoundError

    error: Exception = DynamicLibNotFoundError('Failure finding "libnvJitLink.so": faked absent by fake_versions')
    return error


def _wrap(module: ModuleType, name: str, make: Callable[[Any], Callable[..., Any]]) -> None:
    original = getattr(module, name, None)
    if original is not None:
        setattr(module, name, wraps(original)(make(original)))


def _nvjitlink_internal(module: ModuleType) -> None:
    def make(original: Any) -> Callable[..., Any]:
        def inspect(name: str) -> Any:
            fakes = probes.fakes()
            if not fakes.fakes_nvjitlink or name != _VERSION_SYMBOL:
                return original(name)
            faked = fakes.nvjitlink
            if not isinstance(faked, CudaVersion):
                raise _absent()
            # 0 stands for a library without the function, any other number for one with it
            return int(faked >= probes.FIRST_USABLE_NVJITLINK)

        return inspect

    _wrap(module, "_inspect_function_pointer", make)


def _nvjitlink(module: ModuleType) -> None:
    def make(original: Any) -> Callable[..., Any]:
        def version() -> Any:
            fakes = probes.fakes()
            if not fakes.fakes_nvjitlink:
                return original()
            faked = fakes.nvjitlink
            if not isinstance(faked, CudaVersion):
                raise _absent()
            if faked < probes.FIRST_USABLE_NVJITLINK:
                from cuda.bindings._internal.utils import FunctionNotFoundError

                msg = f"function nvJitLinkVersion is not found: nvJitLink {faked}, faked by fake_versions"
                raise FunctionNotFoundError(msg)
            return tuple(faked)

        return version

    _wrap(module, "version", make)


def _driver(name: str) -> Callable[[ModuleType], None]:
    """Return what wraps a function that returns ``(error, 1000 * major + 10 * minor)``."""

    def install(module: ModuleType) -> None:
        def make(original: Any) -> Callable[..., Any]:
            errors = module.CUresult if hasattr(module, "CUresult") else module.cudaError_t
            success, failure = errors(0), errors(999)  # CUDA_SUCCESS, CUDA_ERROR_UNKNOWN

            def version() -> Any:
                fakes = probes.fakes()
                if not fakes.fakes_driver:
                    return original()
                faked = fakes.driver
                if not isinstance(faked, CudaVersion):
                    return failure, None
                return success, faked.major * 1000 + faked.minor * 10

            return version

        _wrap(module, name, make)

    return install


_VERSIONS: Final[dict[str, Callable[[ModuleType], None]]] = {
    "cuda.bindings._internal.nvjitlink": _nvjitlink_internal,
    "cuda.bindings.nvjitlink": _nvjitlink,
    "cuda.bindings.driver": _driver("cuDriverGetVersion"),
    "cuda.bindings.runtime": _driver("cudaDriverGetVersion"),
}


def _all_of(name: str) -> Callable[[ModuleType], None]:
    wraps_name = [seams[name] for seams in (_VERSIONS, link_seams.SEAMS) if name in seams]

    def install(module: ModuleType) -> None:
        for wrap in wraps_name:
            wrap(module)

    return install


#: By module name: what wraps the functions of that module when it is imported.
SEAMS: Final[dict[str, Callable[[ModuleType], None]]] = {
    name: _all_of(name) for name in {**_VERSIONS, **link_seams.SEAMS}
}
