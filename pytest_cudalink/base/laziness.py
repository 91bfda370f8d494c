"""What is made at its first use: attributes of objects, and the names that a package offers."""

import functools
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from importlib import import_module
from typing import Any, TypeVar

T = TypeVar("T")


class cached_property(functools.cached_property[T]):  # noqa: N801 (as the one of functools)
    """Cached property without the lock of functools in Python 3.11, which a forked child may find held by a thread."""

    def __init__(self, func: Callable[[Any], T]) -> None:
        super().__init__(func)
        self.lock = nullcontext()


def names_of(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package that imports a module when one of its names is first used.

    Code that imports one module of the package does not pay for the others. The same names stand in an import for type
    checkers, which `tests/base/test_laziness.py` compares.

    `modules`: by module, as in an import of the package: the names that the package offers of it, with spaces between.
    """
    places = {name: module for module, names in modules.items() for name in names.split()}
    offers = sys.modules[package]
    offers.__dir__ = lambda: sorted({*vars(offers), *places})  # type: ignore[method-assign] # PEP 562; autodoc asks it
    vars(offers).setdefault("__all__", sorted(places))

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(places[name], package), name)
        setattr(offers, name, value)
        return value

    return find
