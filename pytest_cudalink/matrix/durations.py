"""Reads from record files how long the cells of a matrix took when they last ran."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ..report import records

__all__ = ["read_durations"]

#: How the lines begin that are parsed; the rest is most of a file.
_READ: Final = (b'{"event": "run"', b'{"event": "end"')


def read_durations(paths: Iterable[Path]) -> dict[str, float]:
    """Return the seconds of the newest run of each cell, by the cell's name.

    A cell whose newest run did not finish, or has a damaged record, is left out.

    Parameters
    ----------
    paths : iterable of Path
        Record files, and folders of them.
    """
    newest: dict[str, tuple[float, float | None]] = {}
    for path in paths:
        names = [path] if path.is_file() else [Path(top, name) for top, _, files in os.walk(path) for name in files]
        for file in sorted(one for one in names if one.suffix == ".jsonl"):
            cell, began, seconds = _read(file)
            if cell not in newest or began >= newest[cell][0]:
                newest[cell] = began, seconds
    return {cell: seconds for cell, (_, seconds) in newest.items() if seconds is not None}


def _read(file: Path) -> tuple[str, float, float | None]:
    """Return the cell of a record, when its run began, and its seconds; None if the run did not finish."""
    try:
        with file.open("rb") as stream:
            found = records.parse(line for line in stream if line.startswith(_READ))
        if found.run is not None:
            seconds = float(found.end.duration) if found.end is not None else None
            return str(found.run.cell or file.stem), float(found.run.time), seconds
    except (OSError, records.RecordError, TypeError, ValueError):  # damaged, or values of another type
        pass
    return file.stem, 0.0, None
