"""Imports of this package that leave pytest out: a leaf as small as it can be, because pytest's own loader loads it."""

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

_PACKAGE: Final = f"{__name__.partition('.')[0]}."


class _OwnModules:
    """Finds the modules of this package as every finder but pytest's does."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not name.startswith(_PACKAGE):
            return None
        passed = ("AssertionRewritingHook", type(self).__name__)  # blocks nest
        others = [other for other in sys.meta_path if type(other).__name__ not in passed]
        return next((spec for other in others if (spec := other.find_spec(name, path, target)) is not None), None)


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
