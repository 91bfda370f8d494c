"""What is made at its first use: attributes of objects, and the names that a package offers."""

import functools
import re
import sys
from collections.abc import Callable
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


class cached_property(functools.cached_property[T]):  # noqa: N801 (as the one of functools)
    """Cached property without the lock of functools in Python 3.11, which a forked child may find held by a thread."""

    def __init__(self, func: Callable[[Any], T]) -> None:
        super().__init__(func)
        self.lock = nullcontext()


def names_of(package: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package that imports a module when one of its names is first used.

    Code that imports one module of the package does not pay for the others. The names are those that the package
    imports for type checkers: they are read off its file, an import on each line.
    """
    offers = sys.modules[package]
    text = Path(str(offers.__file__)).read_text(encoding="utf-8")
    imports = re.findall(r"^    from (\.\S+) import (.+)$", text, re.MULTILINE)
    places = {name.partition(" ")[0]: module for module, names in imports for name in names.split(", ")}
    offers.__dir__ = lambda: sorted({*vars(offers), *places})  # type: ignore[method-assign] # PEP 562; autodoc asks it
    vars(offers).setdefault("__all__", sorted(places))

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(places[name], package), name)
        setattr(offers, name, value)
        return value

    return find
