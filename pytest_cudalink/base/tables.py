"""Readers of the data files: those of ``matrices/``, which users read, too, and those of ``data/``."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

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


def _parsed(file: Path) -> dict[str, Any]:
    import tomllib  # most starts of pytest read no table

    return tomllib.loads(file.read_text(encoding="utf-8"))
