"""Reading ``cells.toml``: toolkits and the cells that use them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Cell", "CellsError", "load_cells"]

_CELL_KEYS = frozenset({"ctk"})


class CellsError(ValueError):
    """The file of cells cannot be used; names the file, the cell and the key."""


@dataclass(frozen=True)
class Cell:
    """One environment and one run of a suite.

    Attributes
    ----------
    name : str
        Such as ``"ctk-13.0"``.
    ctk : str
        CUDA release of the toolkit.
    packages : tuple of str
        Requirements that make exactly this toolkit.
    """

    name: str
    ctk: str
    packages: tuple[str, ...]

    @property
    def description(self) -> str:
        """One line for lists."""
        return f"The link suite on the wheels of CUDA {self.ctk}."


def load_cells(path: Path | str) -> list[Cell]:
    """Read the cells of a file, in its order.

    Raises
    ------
    CellsError
        If it is no TOML, or a cell has an unknown key or an unknown toolkit.
    """
    path = Path(path)
    try:
        content: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        msg = f"{path}: {error}"
        raise CellsError(msg) from error
    toolkits = content.get("toolkits", {})
    cells = []
    for name, cell in content.get("cells", {}).items():
        if unknown := set(cell) - _CELL_KEYS:
            msg = f"{path}: cell {name!r} has unknown keys {sorted(unknown)}; known: {sorted(_CELL_KEYS)}"
            raise CellsError(msg)
        ctk = cell.get("ctk")
        if ctk not in toolkits:
            msg = f"{path}: cell {name!r}: ctk = {ctk!r} is not among the toolkits {sorted(toolkits)}"
            raise CellsError(msg)
        cells.append(Cell(name, ctk, tuple(toolkits[ctk]["packages"])))
    return cells
