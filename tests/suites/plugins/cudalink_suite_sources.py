"""Gives installed packages what the tests of a checkout need and a wheel lacks: modules of the checkout, and names.

pytest loads this by ``-p``, in the process of a suite: it belongs to no package.
"""

from __future__ import annotations

import importlib
import os

import pytest

__all__: list[str] = []


def entries(variable: str) -> list[list[str]]:
    """The entries of a variable, each ``WHERE=WHAT``."""
    return [one.split("=") for one in os.environ.get(variable, "").split(os.pathsep) if one]


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    # pytest-cudalink has loaded the driver: its hook is a wrapper
    for package, folder in entries("CUDALINK_SUITE_SOURCES"):
        importlib.import_module(package).__path__.append(folder)  # last: what is installed comes first
    for module, where in entries("CUDALINK_SUITE_NAMES"):
        package, _, name = module.rpartition(".")
        target = importlib.import_module(package)
        if not hasattr(target, name):
            setattr(target, name, getattr(importlib.import_module(where), name))
