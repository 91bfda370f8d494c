"""The tables of the emulated driver, as Python reads them: ``data/*.toml``."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["table"]

_DATA = Path(__file__).parent / "data"


@cache
def table(name: str) -> dict[str, Any]:
    """One of them by the name of its file without ``.toml``."""
    return tomllib.loads((_DATA / f"{name}.toml").read_text(encoding="utf-8"))
