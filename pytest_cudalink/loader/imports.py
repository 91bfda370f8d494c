"""Calling back when a module is imported, without importing it; and postponing work until such an import.

One finder stands first in ``sys.meta_path``. It knows a few names; for these it lets the other finders find the module
as they would, and adds a step after its execution. Every other import costs one look into a dictionary.
"""

import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

#: Modules whose import starts a postponed steering: those of the targets that come with the plugin, and those that
#: report versions or link. A constant, so that start-up imports neither targets nor seams; a test compares them.
STEERED = (
    "cuda.core.experimental._linker",
    "cuda.core._linker",
    "numba.cuda.cudadrv.driver",
    "numba_cuda_mlir.numba_cuda.cudadrv.driver",
    "cuda.bindings._internal.nvjitlink",
    "cuda.bindings.nvjitlink",
    "cuda.bindings.driver",
    "cuda.bindings._v2.driver",
    "cuda.cuda",
    "cuda.bindings.runtime",
)

_Callback = Callable[[ModuleType], None]
#: Modules that a `_Loader` is executing, by name, with what else to call back: a module that is imported half-way, by
#: one that wakes a watch, stands in ``sys.modules`` and has no functions yet.
_executing: dict[str, list[_Callback]] = {}


class _Loader(Loader):
    """Executes a module with the module's own loader, then calls back."""

    def __init__(self, loader: Loader, callback: _Callback) -> None:
        self.loader, self._callback = loader, callback

    def __getattr__(self, name: str) -> Any:
        # code that finds a module without importing it may ask the loader for more, such as the source
        return getattr(object.__getattribute__(self, "loader"), name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # resources, source and pickling use the loader of the module, so they must see the original
        module.__loader__ = self.loader
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        later = _executing.setdefault(module.__name__, [])
        try:
            self.loader.exec_module(module)
        finally:
            _executing.pop(module.__name__, None)
        self._callback(module)
        while later:
            later.pop(0)(module)


class ImportWatch(MetaPathFinder):
    """Calls back when a watched module has just been executed; at once for one that was imported before.

    `callback`: called with the module. What it raises is raised by the import.
    """

    def __init__(self, callback: _Callback) -> None:
        self._callback = callback
        self._names: set[str] = set()
        self._busy = threading.local()

    def watch(self, names: Sequence[str]) -> None:
        """Add names; the parents of a name are not imported."""
        new = [name for name in names if name not in self._names]
        try:
            self._names.update(new)
            if self not in sys.meta_path:
                sys.meta_path.insert(0, self)
            for name in new:
                module = sys.modules.get(name)
                later = _executing.get(name)
                if later is not None:
                    later.append(self._callback)
                    if _executing.get(name) is later or not _remove(later, self._callback):
                        continue
                    # another thread has executed the module meanwhile, and looked before the callback was there
                if module is not None:
                    self._callback(module)
        except BaseException:
            self._names.difference_update(new)  # so that a second call calls back for them
            raise

    def stop(self) -> None:
        """Leave ``sys.meta_path``; modules stay as they are."""
        _remove(sys.meta_path, self)

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
        others = (getattr(finder, "find_spec", None) for finder in list(sys.meta_path) if finder is not self)
        busy.add(fullname)
        try:
            spec = next((spec for find in others if find and (spec := find(fullname, path, target)) is not None), None)
        finally:
            busy.discard(fullname)
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Loader(spec.loader, self._callback)
        return spec


def _remove(values: list[Any], value: object) -> bool:
    """Remove a value, and return whether it was there; another thread may remove the same."""
    try:
        values.remove(value)
    except ValueError:
        return False
    return True


_postponed: list[Callable[[], None]] = []
#: What imports of a thread would start, while it holds them.
_held = threading.local()
#: A second thread that needs the postponed work waits until the first has done it.
_starting = threading.RLock()


@contextmanager
def held_starts() -> Generator[None]:
    """Start what is postponed until an import of the block only behind it: its modules are half-way before."""
    if hasattr(_held, "starts"):
        yield
        return
    starts: list[Callable[[], None]] = []
    _held.starts = starts
    try:
        yield
    finally:
        del _held.starts
    for start in starts:
        start()


def postpone(start: Callable[[], object], *, until: Sequence[str]) -> Callable[[], None]:
    """Postpone a call until one of some modules is imported, or until `start_postponed`.

    `start`: called at once if one of the modules is imported already. Called once, unless an exception that is not an
    Exception ends it: then it is still postponed.
    `until`: full names of modules.
    Returns what cancels the call; harmless after it.
    """
    running = False

    def begin() -> None:
        nonlocal running
        with _starting:
            if begin not in _postponed or running:  # (what it starts may import one of the modules)
                return
            try:
                running = True
                start()
                cancel()
            except Exception:
                cancel()
                raise
            finally:
                running = False  # a call that Ctrl-C or a timeout ended stays postponed: the next link needs it

    def cancel() -> None:
        imports.stop()
        _remove(_postponed, begin)

    imports = ImportWatch(lambda _module: _held.starts.append(begin) if hasattr(_held, "starts") else begin())
    try:
        _postponed.append(begin)
        imports.watch(until)
    except BaseException:
        cancel()
        raise
    return cancel


def start_postponed() -> None:
    """Make every postponed call now, in the order in which they were postponed."""
    if _postponed:
        with _starting:
            for begin in _postponed.copy():
                begin()
