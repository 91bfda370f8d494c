"""numba-cuda as a target: it links through ``cuda.core.Linker``, and checks for nvJitLink with its own function.

numba-cuda-mlir comes from the same source, with the same linker in another package.
"""

import sys
from functools import wraps
from types import ModuleType
from typing import Any, ClassVar

from .. import probes
from .base import Backend, Target, recipe_for
from .steering import as_backend, current, on_behalf_of, replace_everywhere


class NumbaCuda(Target):
    """``numba.cuda``: its links count for it, not cuda.core; ``_have_nvjitlink`` returns what is forced or faked."""

    name: ClassVar[str] = "numba-cuda"
    modules: ClassVar[tuple[str, ...]] = ("numba.cuda.cudadrv.driver",)
    distribution: ClassVar[str | None] = "numba-cuda"

    def install(self, module: ModuleType) -> None:
        """Wrap ``_have_nvjitlink``, also in the modules that import it by name, and watch the linker."""
        version = self.version() or "0"
        recipe_for(self.name, version).check(module, version)
        replaced: Any = module._have_nvjitlink  # noqa: SLF001
        have = _have_nvjitlink(self.name, replaced)
        module._have_nvjitlink = have  # type: ignore[attr-defined] # noqa: SLF001
        replace_everywhere(replaced, have)
        linker: Any = module._Linker  # noqa: SLF001
        for name in ("complete", "get_linked_ptx"):
            setattr(linker, name, _own(self.name, getattr(linker, name)))

    def force(self, module: ModuleType, backend: Backend | None) -> None:
        """Set nothing: ``_have_nvjitlink`` and cuda.core ask for the current choice."""

    def which_backend(self, module: ModuleType) -> str | None:
        """Return what cuda.core reports, through which the library links."""
        del module
        core: Any = sys.modules.get("cuda.core._linker")
        which = getattr(core.Linker, "which_backend", None) if core else None
        run = current()
        # if only this library is forced, the answer of cuda.core is about other links
        if which is None or run is None or run.wanted("cuda.core").backend is None:
            return None
        return as_backend(which())


class NumbaCudaMlir(NumbaCuda):
    """``numba_cuda_mlir``: its links count for it, not cuda.core; its ``_have_nvjitlink`` returns what is forced."""

    name: ClassVar[str] = "numba-cuda-mlir"
    modules: ClassVar[tuple[str, ...]] = ("numba_cuda_mlir.numba_cuda.cudadrv.driver",)
    distribution: ClassVar[str | None] = "numba-cuda-mlir"


def _have_nvjitlink(target: str, original: Any) -> Any:
    """Return a wrapper of the library's cached function that answers what is forced or faked first."""
    asked = getattr(original, "__wrapped__", original)

    @wraps(asked)
    def have() -> bool:
        run = current()
        forced = run.wanted(target).backend if run else None
        if forced is not None:
            return forced == "nvjitlink"
        return bool(asked() if probes.fakes().fakes_nvjitlink else original())

    have.cache_clear = getattr(original, "cache_clear", lambda: None)  # type: ignore[attr-defined]
    return have


def _own(target: str, method: Any) -> Any:
    @wraps(method)
    def link(self: Any, *arguments: Any, **keywords: Any) -> Any:
        with on_behalf_of(target):
            return method(self, *arguments, **keywords)

    return link
