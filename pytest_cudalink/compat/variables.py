"""The environment variables of the project: every name that some part reads, and which set ones no part does."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

from ..base.tables import read_table
from .settings import OPTIONS

_PREFIX = "CUDALINK_"


def known_variables() -> set[str]:
    """Return the name of every variable that some part of the project reads."""
    table = read_table("variables.toml")
    of_settings = {option.env for option in OPTIONS} - {""}
    return of_settings.union(*(table[group] for group in ("parts", "internal", "tests")))


def unread_variables(environment: Iterable[str]) -> list[str]:
    """Return a sentence for each variable of the project that is set and that no part reads.

    `environment`: the names of the variables that are set.
    """
    names = known_variables()
    prefixes = tuple(read_table("variables.toml")["prefixes"])
    return [
        f"the environment variable {name} is ignored: no part of pytest-cudalink reads it{_hint(name, names)}"
        for name in sorted(environment)
        if name.startswith(_PREFIX) and name not in names and not name.startswith(prefixes)
    ]


def _hint(name: str, names: Collection[str]) -> str:
    near = difflib.get_close_matches(name, names, 1, cutoff=0.8)
    return f"; did you mean {near[0]}?" if near else ""
