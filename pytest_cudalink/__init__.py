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
    # pytest's finder would read each module by its source
    hooks = [pair for pair in enumerate(sys.meta_path) if type(pair[1]).__name__ == "AssertionRewritingHook"]
    for _, hook in hooks:
        sys.meta_path.remove(hook)
    try:
        return import_module(f"{__name__}.plugin")
    finally:
        for place, hook in hooks:  # another thread may have added a finder, or taken one out
            sys.meta_path.insert(place, hook)
