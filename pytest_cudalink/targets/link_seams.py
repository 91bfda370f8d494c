"""Links that code makes through the bindings itself: the function that completes a link is wrapped at import.

One link is one call of it, however many inputs there were, whether it succeeds or is refused. A call that reaches no
linker, because its arguments are wrong or the library is missing, is not a link.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from types import ModuleType
from typing import Any, Final

from .unsteered import UnsteeredLink, caller, covered, is_covered, report, seen

#: Set on a wrapper, so that a module that takes the function over from another one is left as it is.
_WRAPPED: Final = "_cudalink_seen"


def _wrap(owner: Any, name: str, link: Callable[..., Any]) -> None:
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
    if isinstance(owner, ModuleType) and not _is_being_imported(owner):
        from .steering import replace_everywhere

        replace_everywhere(original, wrapper)


def _is_being_imported(module: ModuleType) -> bool:
    """Whether other modules cannot have taken names from this one yet; to look through all modules takes a while."""
    return bool(getattr(module.__spec__, "_initializing", False))


def _completing(name: str, call: str, backend: str, refusals: str) -> Callable[[ModuleType], None]:
    """Return what wraps a function of a module that completes a link, and raises an error of the module if refused."""

    def install(module: ModuleType) -> None:
        def link(complete: Any, *arguments: Any, **keywords: Any) -> Any:
            with seen(module.__name__, call, backend, refusals=getattr(module, refusals)):
                return complete(*arguments, **keywords)

        _wrap(module, name, link)

    return install


def _driver(module: ModuleType) -> None:
    def link(complete: Any, *arguments: Any, **keywords: Any) -> Any:
        with covered():
            answer = complete(*arguments, **keywords)
        code = answer[0]
        result = "ok" if int(code) == 0 else f"{type(code).__name__}: {getattr(code, 'name', int(code))}"
        report(UnsteeredLink(module.__name__, "cuLinkComplete", caller(), "driver", result))
        return answer

    _wrap(module, "cuLinkComplete", link)


#: The linkers of numba before it took cuda.core's, with the function that completes a link and its backend.
_OF_NUMBA: Final = {
    "CtypesLinker": ("cuLinkComplete", "driver"),
    "CudaPythonLinker": ("cuLinkComplete", "driver"),
    "MVCLinker": ("cubinlinker", "unknown"),
}


def _numba(module: ModuleType) -> None:
    for name, (call, backend) in _OF_NUMBA.items():
        linker = getattr(module, name, None)
        if linker is not None:
            _wrap(linker, "complete", partial(_of_numba, module.__name__, call, backend))


def _of_numba(via: str, call: str, backend: str, complete: Any, linker: Any) -> Any:
    with seen(via, call, backend):
        return complete(linker)


#: By module name: what sees the links that are made through that module.
SEAMS: Final[dict[str, Callable[[ModuleType], None]]] = {
    "cuda.bindings.nvjitlink": _completing("complete", "nvJitLinkComplete", "nvjitlink", "nvJitLinkError"),
    "cuda.bindings.driver": _driver,
    # cuda-bindings 13.5
    "cuda.bindings._v2.driver": _completing("link_complete", "cuLinkComplete", "driver", "DriverError"),
    "cuda.cuda": _driver,  # up to cuda-python 12.5 it is not an alias of cuda.bindings.driver
    "numba.cuda.cudadrv.driver": _numba,  # up to numba-cuda 0.22, and in numba itself
}
