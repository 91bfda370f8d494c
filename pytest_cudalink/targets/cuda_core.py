"""cuda.core as a target.

The recipe sets the names by which the linker module decides. Besides, `Linker` is replaced by a subclass of itself, in
the module, before anybody imports the name: it watches each link, and in releases whose linkers go by the module's
names it sets these for the length of each call to what that one linker was made with. So the choice may change, and be
given back, while linkers live.
"""

from __future__ import annotations

import dataclasses
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from types import ModuleType
from typing import Any, ClassVar, Final

from .. import probes
from .base import Backend, Target
from .events import LinkInput
from .recipes import Recipe, recipe_for
from .steering import Watch, as_backend, current, replace_everywhere

__all__ = ["CudaCore"]

_NAME: Final = "cuda.core"
_PACKAGE: Final = "cuda-core"
#: Modules whose names are set are this process's: two threads must not make linkers of two backends at once.
_LOCK: Final = threading.RLock()


class CudaCore(Target):
    """``cuda.core.Linker``, and what links through it: ``Program`` of PTX, numba-cuda."""

    name: ClassVar[str] = _NAME
    modules: ClassVar[tuple[str, ...]] = ("cuda.core.experimental._linker", "cuda.core._linker")
    distribution: ClassVar[str | None] = _PACKAGE

    def install(self, module: ModuleType) -> None:
        """Check that the switch is there, and watch the linker."""
        recipe = self._recipe()
        recipe.check(module, self.version() or "of an unknown version")
        original = module.Linker
        steered = _steered(module, recipe)
        module.Linker = steered  # type: ignore[attr-defined]
        replace_everywhere(original, steered)

    def _recipe(self) -> Recipe:
        return recipe_for(_PACKAGE, self.version() or "0")

    def force(self, module: ModuleType, backend: Backend | None) -> None:
        """Set the module's names."""
        with _LOCK:
            self._recipe().apply(module, backend, _Objects())

    def which_backend(self, module: ModuleType) -> str | None:
        """The class method of 1.0 and later; before, only a linker knows."""
        which = getattr(module.Linker, "which_backend", None)
        return as_backend(which()) if which else None


class _Objects(dict[str, Any]):
    """What recipes may name, imported when they do."""

    def __missing__(self, name: str) -> Any:
        match name:
            case "driver":
                from cuda.bindings import driver

                return driver
            case "nvjitlink":
                from cuda.bindings import nvjitlink

                return nvjitlink
            case "driver-version":
                # only compared with nvJitLink's, to no effect
                return tuple(probes.driver_version() or (0, 0))
        raise KeyError(name)


@contextmanager
def _set(module: ModuleType, recipe: Recipe, backend: Backend | None) -> Iterator[None]:
    """The module's names set to one backend, and then as they were."""
    with _LOCK:
        tables = ("_driver_input_types", "_nvjitlink_input_types")
        names = {name: getattr(module, name) for name in (*recipe.undecided, *tables) if hasattr(module, name)}
        recipe.apply(module, backend, _Objects())
        try:
            yield
        finally:
            for name, value in names.items():
                setattr(module, name, value)


def _input(code: Any) -> LinkInput:
    kind = getattr(code, "code_type", None) or getattr(code, "_code_type", "unknown")
    content = getattr(code, "code", None)
    data = bytes(content) if isinstance(content, bytes | bytearray) else None
    return LinkInput(str(kind), str(getattr(code, "name", "") or ""), data)


def _backend_of(linker: Any) -> str:
    """The backend that one linker was made with, from its handle: a number, or a CUlinkState of the driver."""
    own = getattr(linker, "backend", None)  # up to 0.7
    if isinstance(own, str):
        return as_backend(own) or "unknown"
    return "driver" if type(linker.handle).__name__ == "CUlinkState" else "nvjitlink"


#: The watch of each linker that lives, by its id.
_WATCHES: Final[dict[int, Watch]] = {}


def _remember(linker: Any, watched: Watch) -> None:
    _WATCHES[id(linker)] = watched
    weakref.finalize(linker, _WATCHES.pop, id(linker), None).atexit = False


def _steered(module: ModuleType, recipe: Recipe) -> type:
    """A subclass of the module's linker that is watched, and that keeps the backend it was made with."""
    original: Any = module.Linker

    class Linker(original):  # type: ignore[misc]
        # as large as the original: other modules of cuda.core compare the sizes when they are imported
        __slots__ = ()

        def __init__(self, *object_codes: Any, options: Any = None) -> None:
            if current() is None:
                super().__init__(*object_codes, options=options)
                return
            watched = Watch(_NAME, map(_input, object_codes))
            with _making(module, recipe, watched):
                if options is not None:
                    options = _of_the_moment(module, recipe, options)
                super().__init__(*object_codes, options=options)
                watched.backend = _backend_of(self)
            _remember(self, watched)

        @wraps(original.link)
        def link(self, *arguments: Any, **keywords: Any) -> Any:
            watched = _WATCHES.get(id(self))
            with watched.step(last=True) if watched else nullcontext(), _at_home(module, recipe, self):
                return super().link(*arguments, **keywords)

    if recipe.instances == "global":
        for name in ("get_error_log", "get_info_log", "close"):
            setattr(Linker, name, _delegating(module, recipe, getattr(original, name)))
        Linker._MembersNeededForFinalize = _finalized(module, recipe)  # noqa: SLF001
    for name in ("__module__", "__qualname__", "__doc__"):
        setattr(Linker, name, getattr(original, name))
    made: type = Linker
    return made


@contextmanager
def _making(module: ModuleType, recipe: Recipe, watched: Watch) -> Iterator[None]:
    """A linker is made: with the names as its choice wants them."""
    backend = watched.choice.backend
    with watched.step(), _set(module, recipe, backend) if _differs(module, backend) else nullcontext():
        watched.backend = backend or _decided(module) or "unknown"
        if backend == "driver":
            _need_driver()
        yield


def _of_the_moment(module: ModuleType, recipe: Recipe, options: Any) -> Any:
    """Options made before the choice did not fill the table of input types, and may be for the other backend."""
    module._lazy_init()  # noqa: SLF001
    if recipe.options == "early" and isinstance(options, module.LinkerOptions):
        return dataclasses.replace(options)
    return options


def _at_home(module: ModuleType, recipe: Recipe, linker: Any) -> AbstractContextManager[None]:
    """The names as when this linker was made, where it goes by them."""
    watched = _WATCHES.get(id(linker)) if recipe.instances == "global" else None
    backend = as_backend(watched.backend) if watched else None
    return _set(module, recipe, backend) if backend else nullcontext()


def _delegating(module: ModuleType, recipe: Recipe, method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        with _at_home(module, recipe, self):
            return method(self, *arguments, **keywords)

    return call


def _finalized(module: ModuleType, recipe: Recipe) -> type:
    """Up to 0.6 the finalizer, too, goes by the module's names."""
    original: Any = module.Linker._MembersNeededForFinalize  # noqa: SLF001

    def close(self: Any) -> None:
        if self.handle is not None:
            with _set(module, recipe, "nvjitlink" if self.use_nvjitlink else "driver"):
                original.close(self)

    return type(original.__name__, (original,), {"__slots__": (), "close": close})


def _decided(module: ModuleType) -> Backend | None:
    """What the names say: a backend, or None when the library has not decided."""
    if getattr(module, "_use_nvjitlink_backend", None) or getattr(module, "_nvjitlink", None):
        return "nvjitlink"
    return "driver" if getattr(module, "_driver", None) else None


def _differs(module: ModuleType, backend: Backend | None) -> bool:
    """Whether one link needs the names set otherwise than they are."""
    if backend is not None:
        return _decided(module) != backend
    # a target that is left out, linking through this one that is forced
    run = current()
    return run is not None and run.wanted(_NAME).backend is not None


def _need_driver() -> None:
    """Say in our own words that there is no driver, so that the run can skip with one reason."""
    from ..probes import libcuda

    libcuda.library()
