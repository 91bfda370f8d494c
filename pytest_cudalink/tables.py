"""Readers of the data files: those of ``matrices/``, and the tables inside the package."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["matrices_dir", "read_matrix", "read_table"]

_PACKAGE = Path(__file__).parent


def matrices_dir() -> Path:
    """Return the folder ``matrices/``: inside an installed package, next to it in a source tree or editable install."""
    inside = _PACKAGE / "matrices"
    return inside if inside.is_dir() else _PACKAGE.parent / "matrices"


def read_matrix(name: str) -> dict[str, Any]:
    """Parse one TOML file of ``matrices/``, such as ``"dispatch.toml"``."""
    return tomllib.loads((matrices_dir() / name).read_text(encoding="utf-8"))


@cache
def read_table(path: str) -> dict[str, Any]:
    """Parse one TOML file inside the package, such as ``"emulator/data/errors.toml"``; each is read once."""
    return tomllib.loads((_PACKAGE / path).read_text(encoding="utf-8"))
