"""pynvjitlink as a target: it links through a copy of nvJitLink inside its extension module, and never on the driver.

It is watched, and its links fail where the driver is forced. ``pynvjitlink.patch`` makes numba link through it.
"""

from __future__ import annotations

import weakref
from functools import wraps
from types import ModuleType
from typing import Any, ClassVar, Final

from .base import Target
from .choice import Backend
from .events import LinkInput
from .recipes import recipe_for
from .steering import Watch

_NAME: Final = "pynvjitlink"
_PACKAGE: Final = "pynvjitlink-cu12"
#: The linker's methods that complete a link.
_LINKS: Final = ("get_linked_cubin", "get_linked_ptx")


class Pynvjitlink(Target):
    """``pynvjitlink.api.NvJitLinker``; there is nothing to force, because nvJitLink is all that it has."""

    name: ClassVar[str] = _NAME
    modules: ClassVar[tuple[str, ...]] = ("pynvjitlink.api",)
    distribution: ClassVar[str | None] = _PACKAGE
    backends: ClassVar[tuple[Backend, ...]] = ("nvjitlink",)

    def install(self, module: ModuleType) -> None:
        """Watch the linker class, in place: `pynvjitlink.patch` and users hold it by name."""
        version = self.version() or "0"
        recipe_for(_PACKAGE, version).check(module, version)
        linker: Any = module.NvJitLinker
        linker.__init__ = _made(linker.__init__)
        linker.add_data = _added(linker.add_data)
        for name in _LINKS:
            setattr(linker, name, _linked(getattr(linker, name)))

    def force(self, module: ModuleType, backend: Backend | None) -> None:
        """Set nothing: each link is compared with the choice."""

    def which_backend(self, module: ModuleType) -> str:
        """Return the one backend that there is."""
        del module
        return "nvjitlink"


#: The watch of each living linker.
_WATCHES: Final[weakref.WeakKeyDictionary[Any, Watch]] = weakref.WeakKeyDictionary()


def _made(original: Any) -> Any:
    @wraps(original)
    def make(self: Any, *options: str) -> None:
        watched = Watch(_NAME)
        watched.backend = "nvjitlink"
        with watched.step():
            original(self, *options)
        _WATCHES[self] = watched

    return make


def _added(original: Any) -> Any:
    @wraps(original)
    def add_data(self: Any, input_type: Any, data: Any, name: str) -> None:
        watched = _WATCHES.get(self)
        if watched is None:  # made before the library was watched
            original(self, input_type, data, name)
            return
        code = bytes(data) if isinstance(data, bytes | bytearray) else None
        watched.add(LinkInput(str(getattr(input_type, "name", "unknown")).lower(), str(name), code))
        with watched.step():
            original(self, input_type, data, name)

    return add_data


def _linked(original: Any) -> Any:
    @wraps(original)
    def link(self: Any) -> Any:
        watched = _WATCHES.get(self) or Watch(_NAME)
        watched.backend = "nvjitlink"
        with watched.step(last=True):
            return original(self)

    return link
