"""Test CUDA JIT-link code against every driver and toolkit pair, with or without a GPU.

Importing this package touches no CUDA library; every module that needs one loads it at first use.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .environment.requirements import Raises

__all__ = ["Raises"]

#: Modules that moved: by package, the name that still imports, and where the module is now.
_MOVED: Final = {
    "pytest_cudalink": {"violations": "base.finding", "compat.documented": "compat.link_rules"},
    "pytest_cudalink.audit": {"installed": "environment.installed"},
    "pytest_cudalink.guardrails": {"doctor": "doctor", "system": "doctor.system"},
}


def keep_old_paths(package: str) -> None:
    """Let the modules that moved out of a package be imported from it as before; the package calls this.

    They stand in ``sys.modules``, because a finder in ``sys.meta_path`` would be asked by every import of a program.
    """
    for name, place in _MOVED[package].items():
        old = sys.modules[f"{package}.{name}"] = ModuleType(f"{package}.{name}", f"Moved to `{__name__}.{place}`.")
        vars(old)["__getattr__"] = partial(_of_moved, place)
        setattr(sys.modules[package], name, old)


def _of_moved(place: str, name: str) -> object:
    """Return what a module that moved has under a name."""
    if name.startswith("__") and name != "__all__":  # asked of every module, by what looks for one
        raise AttributeError(name)
    return getattr(import_module(f"{__name__}.{place}"), name)


keep_old_paths(__name__)


class _OwnModules:
    """Finds the modules of this package as every finder but pytest's does."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not name.startswith("pytest_cudalink."):
            return None
        passed = ("AssertionRewritingHook", type(self).__name__)  # blocks nest; an old finder, as six's, has no method
        finds = [getattr(other, "find_spec", None) for other in sys.meta_path if type(other).__name__ not in passed]
        return next((spec for find in finds if find and (spec := find(name, path, target)) is not None), None)


@contextmanager
def own_imports() -> Generator[None]:
    """Import modules of this package without pytest inside of the block; tests see ``sys.meta_path`` as it was.

    Pytest rewrites the assertions of a distribution with a plugin: it reads every module by its source, which costs a
    run with an emulated driver a seventh. ``PYTEST_DONT_REWRITE`` keeps the assertions, not the time.
    """
    finder = _OwnModules()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def __getattr__(name: str) -> object:
    """`Raises`, which most who import this package do not ask for; and `plugin`, as pytest's entry point asks."""
    if name == "Raises":
        return import_module(f"{__name__}.environment.requirements").Raises
    if name != "plugin":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with own_imports():
        return import_module(f"{__name__}.plugin")
