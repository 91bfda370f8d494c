"""cuda.core as a target.

The recipe sets the names by which the linker module decides. In addition, the module's `Linker` is replaced by a
subclass before other modules import the name. The subclass watches each link. A linker keeps the backend that it was
made with, so the choice may change, and be given back, while linkers live.
"""

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar, Final

from ..probes import libcuda
from .base import Backend, LinkInput, Recipe, StaleRecipeError, Target, recipe_for
from .steering import Watch, as_backend, current, is_covered, replace_everywhere, reported_link

_NAME: Final = "cuda.core"
_PACKAGE: Final = "cuda-core"
#: The names of a module are global: two threads must not make linkers of two backends at once.
_LOCK: Final = threading.RLock()


class CudaCore(Target):
    """``cuda.core.Linker``, and what links through it: ``Program`` with PTX, numba-cuda."""

    name: ClassVar[str] = _NAME
    # the first is that of releases before 0.5, which cannot be steered: their links are reported
    modules: ClassVar[tuple[str, ...]] = ("cuda.core.experimental._linker", "cuda.core._linker")
    distribution: ClassVar[str | None] = _PACKAGE

    def install(self, module: ModuleType) -> None:
        """Check that the switch is there, and watch the linker."""
        try:
            recipe = self._recipe()
            recipe.check(module, self.version() or "of an unknown version")
        except StaleRecipeError:
            _count_links(module)
            raise
        _replace_linker(module, _steered(module, recipe))

    def _recipe(self) -> Recipe:
        return recipe_for(_PACKAGE, self.version() or "0")

    def force(self, module: ModuleType, backend: Backend | None) -> None:
        """Set the module's names."""
        with _LOCK:
            self._recipe().apply(module, backend, _Bindings())

    def which_backend(self, module: ModuleType) -> str | None:
        """Return what the class method of 1.0 and later reports; in older releases only a linker knows."""
        which = getattr(module.Linker, "which_backend", None)
        return as_backend(which()) if which else None


class _Bindings(dict[str, Any]):
    """The modules of cuda.bindings that a recipe may name, imported on first use."""

    def __missing__(self, name: str) -> ModuleType:
        return import_module(f"cuda.bindings.{name}")


@contextmanager
def _set(module: ModuleType, recipe: Recipe, backend: Backend | None) -> Iterator[None]:
    """Set the module's names for one backend inside the block, and restore them after it."""
    with _LOCK:
        tables = ("_driver_input_types", "_nvjitlink_input_types")
        names = {name: getattr(module, name) for name in (*recipe.undecided, *tables) if hasattr(module, name)}
        recipe.apply(module, backend, _Bindings())
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
    """Return the backend that a linker was made with, from its handle: a number, or a CUlinkState of the driver."""
    own = getattr(linker, "backend", None)  # up to 0.7
    if isinstance(own, str):
        return as_backend(own) or "unknown"
    return "driver" if type(linker.handle).__name__ == "CUlinkState" else "nvjitlink"


#: The watch of each living linker, by the linker's id.
_WATCHES: Final[dict[int, Watch]] = {}


def _steered(module: ModuleType, recipe: Recipe) -> type:
    """Return a subclass of the module's linker that is watched, and that keeps the backend it was made with."""
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
                    module._lazy_init()  # noqa: SLF001 (fills the table of input types, which the options are read by)
                super().__init__(*object_codes, options=options)
                watched.backend = _backend_of(self)
            _WATCHES[id(self)] = watched
            weakref.finalize(self, _WATCHES.pop, id(self), None).atexit = False

        @wraps(original.link)
        def link(self, *arguments: Any, **keywords: Any) -> Any:
            watched = _WATCHES.get(id(self))
            with watched.step(last=True) if watched else nullcontext():
                return super().link(*arguments, **keywords)

    made: type = Linker
    return made


def _replace_linker(module: ModuleType, made: type) -> None:
    """Replace the module's linker by a subclass of it under the same name, also in the modules that import it."""
    original = module.Linker
    for name in ("__module__", "__qualname__", "__doc__"):
        setattr(made, name, getattr(original, name))
    module.Linker = made  # type: ignore[attr-defined]
    replace_everywhere(original, made)


def _count_links(module: ModuleType) -> None:
    """Report the links of a release that cannot be steered as links that no target steers."""
    original: Any = getattr(module, "Linker", None)
    if not hasattr(original, "link") or "_cudalink_seen" in vars(original):
        return

    class Linker(original):  # type: ignore[misc]
        __slots__ = ()
        _cudalink_seen = True

        @wraps(original.link)
        def link(self, *arguments: Any, **keywords: Any) -> Any:
            if is_covered():
                return super().link(*arguments, **keywords)
            try:
                backend = _backend_of(self)
            except Exception:  # noqa: BLE001 (a release that may lack the handle)
                backend = "unknown"
            with reported_link(_NAME, "Linker.link", backend):
                return super().link(*arguments, **keywords)

    _replace_linker(module, Linker)


@contextmanager
def _making(module: ModuleType, recipe: Recipe, watched: Watch) -> Iterator[None]:
    """Set the module's names as the choice wants them while a linker is made, and time that as a step of the link."""
    backend = watched.choice.backend
    with watched.step(), _set(module, recipe, backend) if _differs(module, backend) else nullcontext():
        watched.backend = backend or _decided(module) or "unknown"
        if backend == "driver":
            libcuda.library()  # raises our own DriverNotFoundError, so that the run can skip with one reason
        yield


def _decided(module: ModuleType) -> Backend | None:
    """Return the backend that the module's names stand for, or None if the library has not decided."""
    if getattr(module, "_use_nvjitlink_backend", None):
        return "nvjitlink"
    return "driver" if getattr(module, "_driver", None) else None


def _differs(module: ModuleType, backend: Backend | None) -> bool:
    """Whether one link needs other values of the module's names than the present ones."""
    if backend is not None:
        return _decided(module) != backend
    # a target that is left out links through this one, which is forced
    run = current()
    return run is not None and run.wanted(_NAME).backend is not None
