"""Being told when a module is imported, without importing it.

One finder stands first in ``sys.meta_path``. It knows a few names; for these it lets the other finders find the module
as they would, and adds a step after its execution. Every other import costs one look into a dictionary.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["STEERED", "ImportWatch"]

#: Modules whose import calls for steering: those of the targets that come with the plugin, and where versions are
#: asked. A constant, so that start-up imports none of that; a test compares.
STEERED = (
    "pytest_cudalink.linker.forcing",
    "cuda.core.experimental._linker",
    "cuda.core._linker",
    "numba.cuda.cudadrv.driver",
    "cuda.bindings._internal.nvjitlink",
    "cuda.bindings.nvjitlink",
    "cuda.bindings.driver",
    "cuda.bindings.runtime",
)

_Told = Callable[[ModuleType], None]


class _Loader(Loader):
    """Executes a module with its own loader, then tells."""

    def __init__(self, loader: Loader, told: _Told) -> None:
        self.loader, self._told = loader, told

    def __getattr__(self, name: str) -> Any:
        # who finds a module without importing it may ask its loader for more, such as its source
        return getattr(object.__getattribute__(self, "loader"), name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # resources, source and pickling go by the loader of the module: nobody needs to see ours
        module.__loader__ = self.loader
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        self._told(module)


class ImportWatch(MetaPathFinder):
    """Calls back when a module of some name has just been executed; at once for one that is imported already.

    Parameters
    ----------
    told : callable
        Called with the module. What it raises is raised by the import.
    """

    def __init__(self, told: _Told) -> None:
        self._told = told
        self._names: set[str] = set()
        self._busy = threading.local()

    def watch(self, names: Sequence[str]) -> None:
        """Add names; the parents of a name are not imported."""
        new = [name for name in names if name not in self._names]
        self._names.update(new)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        for name in new:
            module = sys.modules.get(name)
            if module is not None:
                self._told(module)

    def stop(self) -> None:
        """Leave ``sys.meta_path``; modules stay as they are."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a watched module as the other finders would."""
        if fullname not in self._names:
            return None
        # a finder that asks all others, such as that of numba-cuda, comes back to this one
        busy: set[str] = self._busy.__dict__.setdefault("names", set())
        if fullname in busy:
            return None
        busy.add(fullname)
        try:
            spec = _find(fullname, path, target, self)
        finally:
            busy.discard(fullname)
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Loader(spec.loader, self._told)
        return spec


def _find(
    fullname: str, path: Sequence[str] | None, target: ModuleType | None, without: MetaPathFinder
) -> ModuleSpec | None:
    for finder in list(sys.meta_path):
        find = getattr(finder, "find_spec", None)
        if finder is without or find is None:
            continue
        spec: ModuleSpec | None = find(fullname, path, target)
        if spec is not None:
            return spec
    return None
