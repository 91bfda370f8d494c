"""What CI can keep between the runs of a cell, and the keys under which it keeps that."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import toolchains
from .cells import Cell
from .runner import project_table

__all__ = ["Cached", "cached"]

#: Tables of pyproject.toml that decide which packages an environment has.
_DEPENDENCIES = ("dependencies", "optional-dependencies", "requires-python", "dynamic")


@dataclass(frozen=True)
class Cached:
    """One folder that CI can keep.

    Attributes
    ----------
    name : str
        ``"toolchains"`` (CUDA libraries that cells preload or emulate with) or ``"wheels"`` (uv's cache).
    folder : str
        Where it lies; a variable that names another place counts.
    key : str
        Equal for two cells, or for two runs, whenever the folder has the same use; other machines have another one.
    """

    name: str
    folder: str
    key: str


def cached(cell: Cell, root: Path) -> list[Cached]:
    """Return the folders that a cell fills, each with its key.

    Parameters
    ----------
    cell : Cell
    root : Path
        The project.
    """
    found = []
    if cell.toolchains:
        content = [(release, layout, toolchains.packages(release)) for release, layout in cell.toolchains]
        words = "-".join(f"{release}{'' if layout == 'libs' else f'-{layout}'}" for release, layout in cell.toolchains)
        found.append(Cached("toolchains", "~/.cache/pytest-cudalink", f"toolchains-{words}-{_digest(content)}"))
    project = project_table(root)
    requirements = [
        *({name: project.get("project", {}).get(name) for name in _DEPENDENCIES}.items()),
        project.get("dependency-groups", {}),
        project.get("build-system", {}),
    ]
    asked = [cell.packages, cell.values["extras"], cell.values["groups"], cell.values["resolution"], cell.python]
    found.append(Cached("wheels", "~/.cache/uv", f"wheels-{cell.ctk}-{_digest([asked, requirements])}"))
    return found


def _digest(content: Any) -> str:
    """Return the beginning of a hash of values and of this kind of machine."""
    text = json.dumps([content, sys.platform], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
