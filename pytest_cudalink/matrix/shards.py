"""Spreads cells over machines: as evenly as their durations allow, and in the same way on each machine."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Final

from ..base.regular_files import open_regular
from .cells import Cell

#: How the lines begin that are parsed; the rest is most of a file.
_READ: Final = (b'{"event": "run"', b'{"event": "end"')
_SHARD = re.compile(r"([1-9]\d{0,4})/([1-9]\d{0,4})")


def parse_shard(text: str) -> tuple[int, int]:
    """Return number and count of a shard such as ``"3/10"``.

    Raises ValueError if the text is something else.
    """
    found = _SHARD.fullmatch(text)
    if found is None or int(found[1]) > int(found[2]):
        msg = f"the shard is {text!r}; expected NUMBER/COUNT such as 3/10, with a number from 1 to the count"
        raise ValueError(msg)
    return int(found[1]), int(found[2])


def spread(cells: Sequence[Cell], count: int, seconds: Mapping[str, float]) -> list[list[Cell]]:
    """Return so many lists of cells, whose sums of seconds are as even as taking the longest first makes them.

    `seconds`: how long cells took when they last ran, by name; any other cell counts as their mean.
    """
    usual = fmean(seconds.values()) if seconds else 1.0
    cost = {cell.name: max(seconds.get(cell.name, usual), 0.001) for cell in cells}
    order = {cell.name: number for number, cell in enumerate(cells)}
    parts: list[list[Cell]] = [[] for _ in range(count)]
    sums = [0.0] * count
    for cell in sorted(cells, key=lambda one: (-cost[one.name], one.name)):
        least = min(range(count), key=sums.__getitem__)
        parts[least].append(cell)
        sums[least] += cost[cell.name]
    return [sorted(part, key=lambda one: order[one.name]) for part in parts]


def read_durations(paths: Iterable[Path]) -> dict[str, float]:
    """Return the seconds of the newest run of each cell, by the cell's name.

    A cell whose newest run did not finish, or has a damaged record, is left out.

    `paths`: record files, and folders of them.
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
    from ..report import records

    try:
        with open_regular(file) as stream:
            found = records.parse(line for line in stream if line.startswith(_READ))
        if found.run is not None:
            seconds = float(found.end.duration) if found.end is not None else None
            return str(found.run.cell or file.stem), float(found.run.time), seconds
    except (OSError, records.RecordError, TypeError, ValueError):  # damaged, or values of another type
        pass
    return file.stem, 0.0, None
