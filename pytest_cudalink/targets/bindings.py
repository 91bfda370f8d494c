"""Faked versions for every library that asks cuda-bindings: its functions that return a version are wrapped at import.

Without a fake each wrapper passes the call on. Code that calls the C functions without Python does not see a fake. The
same modules, and others, get the wrappers of `link_seams`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from types import ModuleType
from typing import Any, Final

from .. import probes
from ..versions import CudaVersion
from . import link_seams

_VERSION_SYMBOL: Final = "__nvJitLinkVersion"


def _absent() -> Exception:
    """Return the error that cuda-bindings raises if no libnvJitLink is found."""
    from cuda.pathfinder import DynamicLibNotFoundError

    error: Exception = DynamicLibNotFoundError('Failure finding "libnvJitLink.so": faked absent by fake_versions')
    return error


def _wrap(name: str, answer: Callable[..., Any]) -> Callable[[ModuleType], None]:
    """Return what wraps a function of a module; `answer` is called with the module, the function and its arguments."""

    def install(module: ModuleType) -> None:
        original = getattr(module, name, None)
        if original is not None:
            setattr(module, name, wraps(original)(partial(answer, module, original)))

    return install


def _inspected(_module: ModuleType, original: Any, name: str) -> Any:
    fakes = probes.fakes()
    if not fakes.fakes_nvjitlink or name != _VERSION_SYMBOL:
        return original(name)
    if not isinstance(fakes.nvjitlink, CudaVersion):
        raise _absent()
    # 0 stands for a library without the function, any other number for one with it
    return int(fakes.nvjitlink >= probes.FIRST_USABLE_NVJITLINK)


def _nvjitlink_version(_module: ModuleType, original: Any) -> Any:
    fakes = probes.fakes()
    if not fakes.fakes_nvjitlink:
        return original()
    if not isinstance(fakes.nvjitlink, CudaVersion):
        raise _absent()
    if fakes.nvjitlink < probes.FIRST_USABLE_NVJITLINK:
        from cuda.bindings._internal.utils import FunctionNotFoundError

        msg = f"function nvJitLinkVersion is not found: nvJitLink {fakes.nvjitlink}, faked by fake_versions"
        raise FunctionNotFoundError(msg)
    return tuple(fakes.nvjitlink)


def _driver_version(module: ModuleType, original: Any) -> Any:
    """Return ``(error, 1000 * major + 10 * minor)``."""
    fakes = probes.fakes()
    if not fakes.fakes_driver:
        return original()
    errors = module.CUresult if hasattr(module, "CUresult") else module.cudaError_t
    if not isinstance(fakes.driver, CudaVersion):
        return errors(999), None  # CUDA_ERROR_UNKNOWN
    return errors(0), fakes.driver.major * 1000 + fakes.driver.minor * 10


_VERSIONS: Final[dict[str, Callable[[ModuleType], None]]] = {
    "cuda.bindings._internal.nvjitlink": _wrap("_inspect_function_pointer", _inspected),
    "cuda.bindings.nvjitlink": _wrap("version", _nvjitlink_version),
    "cuda.bindings.driver": _wrap("cuDriverGetVersion", _driver_version),
    "cuda.bindings.runtime": _wrap("cudaDriverGetVersion", _driver_version),
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
