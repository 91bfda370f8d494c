"""How the failures of several reports changed: new, fixed, flaky, and those that stay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from .cell_run import BAD, GOOD, NOT_RUN
from .matrix_report import MatrixReport
from .origin import Origin

Kind = Literal["new", "fixed", "flaky", "still"]

#: The meaning of each kind, in the order in which they are shown.
KINDS: Final[Mapping[Kind, str]] = {
    "new": "fails now, and did not fail when it ran before",
    "fixed": "passes now, and failed when it ran before",
    "flaky": "changed between pass and failure more than once, or differs between records of one report",
    "still": "fails now, and failed when it ran before",
}


@dataclass(frozen=True)
class Step:
    """One report of a history."""

    name: str
    origin: Origin
    totals: Mapping[str, int]  # number of results by letter


@dataclass(frozen=True)
class HistoryChange:
    """The results of one test in one cell, with a letter for each report; "." where it did not run, as in the grid."""

    test: str
    cell: str
    kind: Kind
    letters: str


@dataclass(frozen=True)
class History:
    """Several reports, the oldest first; the last is the current one."""

    reports: tuple[Step, ...]
    changes: tuple[HistoryChange, ...]  # by kind in the order of `KINDS`, cell by cell

    def of(self, kind: Kind) -> list[HistoryChange]:
        """Return the changes of one kind."""
        return [one for one in self.changes if one.kind == kind]


def in_order(reports: Sequence[tuple[str, MatrixReport]]) -> list[tuple[str, MatrixReport]]:
    """Return named reports by the time at which their runs began; in the given order if one has no time."""
    starts = [report.origin.started for _, report in reports]
    if None in starts:
        return list(reports)
    return sorted(reports, key=lambda pair: str(pair[1].origin.started))


def history(reports: Sequence[MatrixReport], names: Sequence[str]) -> History:
    """Return how the tests that failed in any report changed, by test and cell.

    `reports`: the oldest first; the last is the current one.
    `names`: a name for each report.
    """
    steps = [Step(name, one.origin, dict(one.counts)) for name, one in zip(names, reports, strict=True)]
    found = list(_changes(reports))
    order = list(KINDS)
    return History(tuple(steps), tuple(sorted(found, key=lambda one: order.index(one.kind))))


def _changes(reports: Sequence[MatrixReport]) -> Iterator[HistoryChange]:
    """Yield the changes, cell by cell, in the order of the current report."""
    cells = [{cell.name: cell for cell in report.cells} for report in reports]
    for name in cells[-1]:
        runs = [one.get(name) for one in cells]
        outcomes = [run.outcomes if run is not None else {} for run in runs]
        differ = {
            test
            for run in runs
            if run is not None
            for test, results in run.differing.items()
            if (seen := {letter for letter, _ in results}) & BAD and seen & GOOD
        }
        failed = {test for one in outcomes for test, letter in one.items() if letter in BAD}
        for test in outcomes[-1]:
            if test in failed or test in differ:
                letters = "".join(one.get(test, NOT_RUN) for one in outcomes)
                if kind := _kind(letters, test in differ):
                    yield HistoryChange(test, name, kind, letters)


def _kind(letters: str, differs: bool) -> Kind | None:
    """Return what the results of a test in a cell are together; None if they are nothing to report.

    A report in which the test was skipped, or did not run, says nothing about it.
    """
    failures = [letter in BAD for letter in letters if letter in BAD or letter in GOOD]
    changes = sum(before != now for before, now in pairwise(failures))
    if differs or changes > 1:
        return "flaky"
    before = failures[-2] if len(failures) > 1 else None
    if letters[-1] in BAD:
        return "still" if before else "new"
    if letters[-1] in GOOD and before:
        return "fixed"
    return None
