"""The cell of the matrix that a run belongs to: what it has besides the settings of the plugin."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...matrix.cell_facts import CellFacts
    from ..run import Run

__all__ = ["of_cell"]


def of_cell(run: Run) -> CellFacts | None:
    """Return the facts of the cell; None for a run without a cell, which imports nothing."""
    if not {"CUDALINK_CELL", "CUDALINK_CELL_KEYS"} & os.environ.keys():
        return None
    from ... import probes
    from ...matrix.cell_facts import cell_facts

    # where the record lies, next to what the runner noted, is withheld from other processes
    return cell_facts(probes.wheel_version, {**os.environ, **run.withheld})
