"""Spreads cells over machines: as evenly as their durations allow, and in the same way on each machine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import fmean

from .cells import Cell

__all__ = ["parse_shard", "shard", "spread"]

_SHARD = re.compile(r"([1-9]\d{0,4})/([1-9]\d{0,4})")


def parse_shard(text: str) -> tuple[int, int]:
    """Return number and count of a shard such as ``"3/10"``.

    Raises
    ------
    ValueError
        If the text is something else.
    """
    found = _SHARD.fullmatch(text)
    if found is None or int(found[1]) > int(found[2]):
        msg = f"the shard is {text!r}; expected NUMBER/COUNT such as 3/10, with a number from 1 to the count"
        raise ValueError(msg)
    return int(found[1]), int(found[2])


def spread(cells: Sequence[Cell], count: int, seconds: Mapping[str, float]) -> list[list[Cell]]:
    """Return so many lists of cells, whose sums of seconds are as even as taking the longest first makes them.

    Parameters
    ----------
    cells : sequence of Cell
    count : int
    seconds : mapping of str to float
        How long cells took when they last ran, by name; any other cell counts as their mean.
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


def shard(cells: Sequence[Cell], number: int, count: int, seconds: Mapping[str, float]) -> list[Cell]:
    """Return the cells of one shard; all shards together have each cell once."""
    return spread(cells, count, seconds)[number - 1]
