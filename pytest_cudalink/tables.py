"""Where the data files of the project lie: inside an installed wheel, or at the root of a source tree."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

__all__ = ["matrices_dir", "read_matrix"]

_PACKAGE = Path(__file__).parent


def matrices_dir() -> Path:
    """The folder ``matrices/``: shipped inside the package, or beside it in a checkout and an editable install."""
    inside = _PACKAGE / "matrices"
    return inside if inside.is_dir() else _PACKAGE.parent / "matrices"


def read_matrix(name: str) -> dict[str, Any]:
    """Parse one TOML file of ``matrices/``."""
    return tomllib.loads((matrices_dir() / name).read_text(encoding="utf-8"))
