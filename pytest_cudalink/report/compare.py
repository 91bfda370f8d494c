"""Compares two reports."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from .cell_run import BAD, GOOD, NOT_RUN, SKIPPED
from .matrix_report import MatrixReport

__all__ = [
    "FAILING",
    "FAILING_AGAINST",
    "FAIL_ON",
    "Comparison",
    "OutcomeChange",
    "compare",
    "damage",
    "findings",
    "incomplete",
]

#: The kinds of findings that ``--fail-on`` can name, each with its meaning.
FAIL_ON = {
    "regressions": "the older report does not have this failing test, crash, violation, finding or incomplete cell",
    "failed": "a test fails",
    "crashed": "a process died",
    "incomplete": "a cell has no records, or its run did not finish",
    "violations": "a rule of lifetimes, of order or of nvJitLink's contract was broken, even if the test then passed",
    "hostile": "a test is wrong when a call fails, or fails under a schedule",
    "mismatch": "a version that was found is not the requested one",
    "skipped-everywhere": "a test is skipped in every cell",
    "damaged": "a record file or saved report cannot be read, or has lines that are not valid",
    "repeats": "records of one cell have different outcomes for a test",
    "not-run": "a cell did not run tests that other cells ran",
}


#: The kinds that fail a report, and one that is compared with an older one.
FAILING: Final = ("failed", "crashed", "incomplete", "violations", "hostile", "damaged", "repeats")
FAILING_AGAINST: Final = ("regressions", "damaged", "repeats")


@dataclass(frozen=True)
class OutcomeChange:
    """The change of one test in one cell; before and now are letters."""

    test: str
    cell: str
    before: str
    now: str


@dataclass
class Comparison:
    """The differences between two reports."""

    # tests that fail now and did not fail before: they passed, were skipped, or did not run
    regressions: list[OutcomeChange] = field(default_factory=list)
    fixed: list[OutcomeChange] = field(default_factory=list)  # tests that failed before and pass now
    # tests that passed before and are skipped now, or need a GPU now
    skipped: list[OutcomeChange] = field(default_factory=list)
    gone: list[OutcomeChange] = field(default_factory=list)  # tests that ran before and do not run now
    # cells that are missing or incomplete now, and were not in the older report
    broken: list[str] = field(default_factory=list)
    # cells and files of the older report that could not be read, each with the reason
    unread: dict[str, str] = field(default_factory=dict)
    # crashes, violations and findings that the older report does not have: what, test and cell
    worse: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def regression_count(self) -> int:
        """Number of things that fail now and did not in the older report: tests, what no test shows, and cells."""
        return len(self.regressions) + len(self.worse) + len(self.broken)


def compare(new: MatrixReport, old: MatrixReport) -> Comparison:
    """Return the differences by test and cell; a cell that only one report has counts as not run in the other."""
    before = {cell.name: cell.outcomes for cell in old.cells}
    now = {cell.name: cell.outcomes for cell in new.cells}
    whole = {cell.name for cell in new.cells if not cell.fault}
    known = {*old.missing, *(cell.name for cell in old.cells if cell.fault)}
    cells = dict.fromkeys([*before, *now, *(name for name in new.missing if name not in new.allowed)])
    result = Comparison(broken=[name for name in cells if name not in whole and name not in known])
    result.unread = old.faults_of_files
    result.worse = [*(_findings(new, hidden=True) - _findings(old, hidden=False)).elements()]
    for name in [*now, *(name for name in before if name not in now)]:
        first, second = before.get(name, {}), now.get(name, {})
        for test in [*second, *(test for test in first if test not in second)]:
            change = OutcomeChange(test, name, first.get(test, NOT_RUN), second.get(test, NOT_RUN))
            if change.now in BAD and change.before not in BAD:
                result.regressions.append(change)
            elif change.before in BAD and change.now in GOOD:
                result.fixed.append(change)
            elif change.before in GOOD and change.now in SKIPPED:
                result.skipped.append(change)
            elif change.now == NOT_RUN:
                result.gone.append(change)
    return result


def _findings(report: MatrixReport, *, hidden: bool) -> Counter[tuple[str, str, str]]:
    """Return what, test and cell of crashes, violations and findings; or only of those that no test's failure shows."""
    found: Counter[tuple[str, str, str]] = Counter()
    for cell in report.cells:
        bad = cell.failing_tests
        every = [
            *(("crash", one.nodeid) for one in cell.crashes),
            *((f"violation: {one.what or one.check}", one.nodeid) for one in cell.failing_violations),
        ]
        shown = [(what, nodeid) for what, nodeid in every if not (hidden and nodeid in bad)]
        shown += [(f"{one.category}: {one.kind}", one.nodeid) for one in cell.findings]
        found.update((what, nodeid or "outside tests", cell.name) for what, nodeid in shown)
    return found


def incomplete(report: MatrixReport, comparison: Comparison | None = None) -> dict[str, str]:
    """Return the cells without records and those whose run is incomplete, each with the reason."""
    comparison = comparison or Comparison()
    return {
        **{f"{name} (older report)": why for name, why in comparison.unread.items()},
        **report.damaged,
        **{name: report.why_missing(name) for name in [*report.missing, *comparison.broken]},
        **{cell.name: cell.fault for cell in report.cells if cell.fault},
    }


def damage(report: MatrixReport, comparison: Comparison | None = None) -> list[str]:
    """Return what is wrong with files that were read, one text for each cell or file."""
    return [*report.faults_of_files.values(), *(comparison or Comparison()).unread.values()]


def findings(report: MatrixReport, comparison: Comparison | None) -> dict[str, int]:
    """Return the number of findings of each kind of `FAIL_ON`."""
    counts = report.counts
    return {
        "regressions": comparison.regression_count if comparison else 0,
        "failed": counts["F"] + counts["E"],
        "crashed": sum(cell.crashed for cell in report.cells),
        "incomplete": len(incomplete(report, comparison).keys() - (report.allowed & {*report.missing})),
        "violations": sum(len(cell.failing_violations) for cell in report.cells),
        "hostile": sum(len(cell.findings) for cell in report.cells),
        "mismatch": sum(len(cell.mismatches) for cell in report.cells),
        "skipped-everywhere": len(report.skipped_everywhere),
        "damaged": len(damage(report, comparison)),
        "repeats": sum(len(cell.differing) for cell in report.cells),
        "not-run": sum(map(len, report.not_run.values())),
    }
