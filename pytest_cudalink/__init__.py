"""Test CUDA JIT-link code against every driver and toolkit pair, with or without a GPU.

Importing this package touches no CUDA library; every module that needs one loads it at first use.
"""

from __future__ import annotations

import sys
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


class _OldPath(ModuleType):
    """The old path of a module that moved, which is imported when one of its names is first used.

    It stands in ``sys.modules``, because a finder in ``sys.meta_path`` would be asked by every import of a program.
    """

    def __init__(self, name: str, place: str) -> None:
        super().__init__(name, f"Moved to `{__name__}.{place}`.")
        self._place = place

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") and name != "__all__":  # asked of every module, by what looks for one
            raise AttributeError(name)
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{self._place}"), name)


def keep_old_paths(package: str) -> None:
    """Let the modules that moved out of a package be imported from it as before; the package calls this."""
    for name, place in _MOVED.get(package, {}).items():
        path = f"{package}.{name}"
        sys.modules[path] = _OldPath(path, place)
        setattr(sys.modules[package], name, sys.modules[path])


keep_old_paths(__name__)


def __getattr__(name: str) -> object:
    """`Raises`, imported when it is asked for: most who import this package do not."""
    if name == "Raises":
        from .environment.requirements import Raises

        return Raises
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
