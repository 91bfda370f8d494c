"""Wrappers of the functions of cuda-bindings, put in at import: faked versions, and links that code makes through them.

Without a fake each wrapper passes the call on. Code that calls the C functions without Python does not see a fake. One
link is one call of the function that completes it, however many inputs there were, whether it succeeds or is refused.
A call that reaches no linker, because its arguments are wrong or the library is missing, is not a link.
"""

from collections.abc import Callable
from functools import partial, wraps
from types import ModuleType
from typing import Any, Final

from .. import probes
from ..base.tables import grouped
from ..versions import CudaVersion
from .steering import UnsteeredLink, caller, covered, is_covered, replace_everywhere, report, reported_link

#: Set on a wrapper, so that a module that takes the function over from another one is left as it is.
_WRAPPED: Final = "_cudalink_seen"


def _watch(owner: Any, name: str, link: Callable[..., Any]) -> None:
    """Replace a function of a module or class, and in every module that has imported it by name before.

    `link` is called with the function and its arguments; it makes the link and reports it.
    """
    original = getattr(owner, name, None)
    if original is None or hasattr(original, _WRAPPED):
        return

    @wraps(original)
    def wrapper(*arguments: Any, **keywords: Any) -> Any:
        if is_covered():
            return original(*arguments, **keywords)
        return link(original, *arguments, **keywords)

    setattr(wrapper, _WRAPPED, True)
    setattr(owner, name, wrapper)
    # other modules cannot have taken names from one that is being imported; to look through all modules takes a while
    if isinstance(owner, ModuleType) and not getattr(owner.__spec__, "_initializing", False):
        replace_everywhere(original, wrapper)


def _completing(name: str, call: str, backend: str, refusals: str) -> Callable[[ModuleType], None]:
    """Return what wraps a function of a module that completes a link, and raises an error of the module if refused."""

    def install(module: ModuleType) -> None:
        def link(complete: Any, *arguments: Any, **keywords: Any) -> Any:
            with reported_link(module.__name__, call, backend, refusals=getattr(module, refusals)):
                return complete(*arguments, **keywords)

        _watch(module, name, link)

    return install


def _driver(module: ModuleType) -> None:
    def link(complete: Any, *arguments: Any, **keywords: Any) -> Any:
        with covered():
            answer = complete(*arguments, **keywords)
        code = answer[0]
        result = "ok" if int(code) == 0 else f"{type(code).__name__}: {getattr(code, 'name', int(code))}"
        report(UnsteeredLink(module.__name__, "cuLinkComplete", caller(), "driver", result))
        return answer

    _watch(module, "cuLinkComplete", link)


#: The linkers of numba before it took cuda.core's, with the function that completes a link and its backend.
_OF_NUMBA: Final = {
    "CtypesLinker": ("cuLinkComplete", "driver"),
    "CudaPythonLinker": ("cuLinkComplete", "driver"),
    "MVCLinker": ("cubinlinker", "unknown"),
}


def _numba(module: ModuleType) -> None:
    for name, (call, backend) in _OF_NUMBA.items():
        if (linker := getattr(module, name, None)) is not None:
            _watch(linker, "complete", partial(_of_numba, module.__name__, call, backend))


def _of_numba(via: str, call: str, backend: str, complete: Any, linker: Any) -> Any:
    with reported_link(via, call, backend):
        return complete(linker)


#: By module name: what sees the links that are made through that module.
_LINK_SEAMS: Final[dict[str, Callable[[ModuleType], None]]] = {
    "cuda.bindings.nvjitlink": _completing("complete", "nvJitLinkComplete", "nvjitlink", "nvJitLinkError"),
    "cuda.bindings.driver": _driver,
    # cuda-bindings 13.5
    "cuda.bindings._v2.driver": _completing("link_complete", "cuLinkComplete", "driver", "DriverError"),
    "cuda.cuda": _driver,  # up to cuda-python 12.5 it is not an alias of cuda.bindings.driver
    "numba.cuda.cudadrv.driver": _numba,  # up to numba-cuda 0.22, and in numba itself
}


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


#: By module name: what wraps the functions of that module, in order, when it is imported.
SEAMS: Final = grouped([*_VERSIONS.items(), *_LINK_SEAMS.items()])
