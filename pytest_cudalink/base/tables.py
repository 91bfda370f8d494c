"""Tables: the data files, those of ``matrices/``, which users read, too, and of ``data/``; and rows by their keys."""

from collections.abc import Hashable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_PACKAGE = Path(__file__).parents[1]


def matrices_dir() -> Path:
    """Return the folder ``matrices/``: inside an installed package, next to it in a source tree or editable install."""
    inside = _PACKAGE / "matrices"
    return inside if inside.is_dir() else _PACKAGE.parent / "matrices"


def read_matrix(name: str) -> dict[str, Any]:
    """Parse one TOML file of ``matrices/``, such as ``"dispatch.toml"``."""
    return _parsed(matrices_dir() / name)


@cache
def read_table(path: str) -> dict[str, Any]:
    """Parse one TOML file of ``data/``, such as ``"emulator/errors.toml"``; each is read once."""
    return _parsed(_PACKAGE / "data" / path)


def grouped(rows: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return the values of each key, in the order in which they come."""
    groups: dict[K, list[V]] = {}
    for key, value in rows:
        groups.setdefault(key, []).append(value)
    return groups


def _parsed(file: Path) -> dict[str, Any]:
    import tomllib  # most starts of pytest read no table

    return tomllib.loads(file.read_text(encoding="utf-8"))
