"""Finds the tests that several records of one cell have. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from .cell_run import CellRun


def joined(runs: Sequence[CellRun]) -> CellRun:
    """Return the records of one cell as one run; tests that several of them have are counted, or named if they differ.

    Shards have no test in common. An attempt that a plugin repeats within a run is not a second record.

    `runs`: in the order in which they began; the last result of a test counts.
    """
    result = runs[0]
    for run in runs[1:]:
        result = result.joined(run)
    found: dict[str, list[list[str]]] = {}
    for number, run in enumerate(runs, 1):
        name = ", ".join(run.files) or f"record {number}"
        for test, letter in run.outcomes.items():
            found.setdefault(test, []).append([letter, name])
    several = {test: results for test, results in found.items() if len(results) > 1}
    differing = {test: results for test, results in several.items() if len({letter for letter, _ in results}) > 1}
    result.differing = {**result.differing, **differing}
    result.repeated += len(several) - len(differing)
    return result
