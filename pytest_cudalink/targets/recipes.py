"""Recipes that force each release of a library: `matrices/recipes.toml`, read and applied. Imports no library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

from .base import Backend, StaleRecipeError

_LITERALS: dict[str, object] = {"none": None, "true": True, "false": False}


@dataclass(frozen=True)
class Recipe:
    """The names to set in a module to force some releases of a library."""

    target: str
    versions: str  # PEP 440 specifier of the releases that the recipe is for
    tested: str  # the releases whose wheels the recipe was tested on
    module: str  # the module that has the switch
    # for each choice, names of that module and what to set them to: "none", "true", "false", or a key of the objects
    # that the target offers
    driver: Mapping[str, str]
    nvjitlink: Mapping[str, str]
    undecided: Mapping[str, str]
    needs: Sequence[str] = ()  # further names that the module must have

    def check(self, module: ModuleType, version: str) -> None:
        """Reject a module that does not have the switch, or has another one.

        Raises StaleRecipeError names the release, what is missing, and the releases that are known.
        """
        names = dict.fromkeys([*self.undecided, *self.needs])
        missing = [name for name in names if not hasattr(module, name)]
        if missing:
            raise StaleRecipeError(self._stale(version, f"{module.__name__} has no {', '.join(missing)}"))
        unlike = [
            f"{name} = {getattr(module, name)!r}"
            for name, value in self.undecided.items()
            if value in _LITERALS and getattr(module, name) is not _LITERALS[value]
        ]
        if unlike:
            raise StaleRecipeError(self._stale(version, f"{module.__name__} starts with {', '.join(unlike)}"))

    def _stale(self, version: str, found: str) -> str:
        return (
            f"cudalink cannot steer {self.target} {version}: {found}, which the recipe for {self.versions} "
            f"(tested on {self.tested}) relies on. Update pytest-cudalink, install a tested release, or name the "
            "targets that are to be forced, without this one, with --cudalink-target"
        )

    def apply(self, module: ModuleType, backend: Backend | None, objects: Mapping[str, Any]) -> None:
        """Set the module's names for a backend; None sets them as they were before the library decided."""
        values = {"driver": self.driver, "nvjitlink": self.nvjitlink, None: self.undecided}[backend]
        for name, value in values.items():
            setattr(module, name, _LITERALS[value] if value in _LITERALS else objects[value])


@cache
def recipes(target: str) -> tuple[Recipe, ...]:
    """Return every recipe of a target."""
    from ..base.tables import read_matrix

    rows: list[dict[str, Any]] = read_matrix("recipes.toml").get(target, [])
    return tuple(Recipe(target=target, **row) for row in rows)


def recipe_for(target: str, version: str) -> Recipe:
    """Return the recipe for a release.

    Raises StaleRecipeError if no recipe is for that release; lists the known ones.
    """
    from packaging.specifiers import SpecifierSet

    for recipe in recipes(target):
        if SpecifierSet(recipe.versions).contains(version, prereleases=True):
            return recipe
    known = "; ".join(recipe.versions for recipe in recipes(target)) or "none"
    msg = (
        f"cudalink cannot steer {target} {version}: expected {target} {known}. Install such a release, or name the "
        "targets that are to be forced, without this one, with --cudalink-target"
    )
    raise StaleRecipeError(msg)
