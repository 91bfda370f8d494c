"""Gives installed packages what the tests of a checkout need and a wheel lacks: modules of the checkout, and names.

Python imports this when it starts, in pytest and in the processes that tests start: its folder is in their PYTHONPATH.
"""

import importlib
import os
from types import ModuleType

from pytest_cudalink.loader.imports import ImportWatch


def entries(variable: str) -> list[list[str]]:
    """The entries of a variable, each ``WHERE=WHAT``."""
    return [pair.split("=") for pair in os.environ.get(variable, "").split(os.pathsep) if pair]


FOLDERS = dict(entries("CUDALINK_SUITE_SOURCES"))
NAMES = dict(entries("CUDALINK_SUITE_NAMES"))


def complete(package: ModuleType) -> None:
    """Add what is missing to a package that was just imported."""
    if package.__name__ in FOLDERS:
        package.__path__.append(FOLDERS[package.__name__])  # last: what is installed comes first
    for full_name, module in NAMES.items():
        where, _, name = full_name.rpartition(".")
        if where == package.__name__ and not hasattr(package, name):
            setattr(package, name, getattr(importlib.import_module(module), name))


ImportWatch(complete).watch([*FOLDERS, *(name.rpartition(".")[0] for name in NAMES)])
