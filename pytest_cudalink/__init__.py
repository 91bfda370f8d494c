"""Test CUDA JIT-link code against every driver and toolkit pair, with or without a GPU.

Importing this package touches no CUDA library; every module that needs one loads it at first use.
"""

from __future__ import annotations

import sys
from functools import partial
from importlib import import_module
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
    for name, place in _MOVED.get(package, {}).items():
        old = sys.modules[f"{package}.{name}"] = ModuleType(f"{package}.{name}", f"Moved to `{__name__}.{place}`.")
        vars(old)["__getattr__"] = partial(_of_moved, place)
        setattr(sys.modules[package], name, old)


def _of_moved(place: str, name: str) -> object:
    """Return what a module that moved has under a name."""
    if name.startswith("__") and name != "__all__":  # asked of every module, by what looks for one
        raise AttributeError(name)
    return getattr(import_module(f"{__name__}.{place}"), name)


keep_old_paths(__name__)


def __getattr__(name: str) -> object:
    """`Raises`, which most who import this package do not ask for; and `plugin`, as pytest's entry point asks."""
    if name == "Raises":
        return import_module(f"{__name__}.environment.requirements").Raises
    if name != "plugin":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    finders = sys.meta_path[:]
    sys.meta_path[:] = [finder for finder in finders if type(finder).__name__ != "AssertionRewritingHook"]
    try:
        return import_module(f"{__name__}.plugin")
    finally:
        sys.meta_path[:] = finders
