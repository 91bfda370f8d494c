"""Compares a report with older ones, counts what is wrong with it, and gives the verdict in one sentence. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Literal

from ..base.finding import Finding, Severity
from ..base.safe_text import line
from ..base.words import counted, either
from .cell_run import BAD, GOOD, NOT_RUN, SKIPPED, CellRun
from .matrix_report import MatrixReport
from .origin import Origin
from .wording import linked_on, share

Kind = Literal["new", "fixed", "flaky", "still"]

#: The meaning of each kind of change over several reports, in the order in which they are shown.
KINDS: Final[Mapping[Kind, str]] = {
    "new": "fails now, and did not fail when it ran before",
    "fixed": "passes now, and failed when it ran before",
    "flaky": "changed between pass and failure more than once, or differs between records of one report",
    "still": "fails now, and failed when it ran before",
}
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
class Step:
    """One of the compared reports."""

    name: str
    origin: Origin
    totals: Mapping[str, int]  # number of results by letter


@dataclass(frozen=True)
class OutcomeChange:
    """The results of one test in one cell, of which one failed or changed."""

    test: str
    cell: str
    letters: str  # a letter for each report, the oldest first; "." where it did not run, as in the grid
    differs: bool = False  # whether records of one report have both a pass and a failure

    @property
    def before(self) -> str:
        """The letter of the newest older report."""
        return self.letters[-2]

    @property
    def now(self) -> str:
        """The letter of the current report."""
        return self.letters[-1]

    @property
    def kind(self) -> Kind | None:
        """What all results are together; None if they are nothing to report.

        A report in which the test was skipped, or did not run, says nothing about it.
        """
        if self.now == NOT_RUN:
            return None
        failures = [letter in BAD for letter in self.letters if letter in BAD or letter in GOOD]
        if self.differs or sum(before != now for before, now in pairwise(failures)) > 1:
            return "flaky"
        before = failures[-2] if len(failures) > 1 else None
        if self.now in BAD:
            return "still" if before else "new"
        return "fixed" if self.now in GOOD and before else None


@dataclass
class Comparison:
    """The differences between a report and older ones; the newest of these decides what is a regression."""

    reports: tuple[Step, ...] = ()  # the oldest first; the last is the current one
    changes: list[OutcomeChange] = field(default_factory=list)  # cell by cell, in the order of the current report
    # cells that are missing or incomplete now, and were not in the older report
    broken: list[str] = field(default_factory=list)
    # cells and files of the older report that could not be read, each with the reason
    unread: dict[str, str] = field(default_factory=dict)
    # crashes, violations and findings that the older report does not have: what, test and cell
    worse: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def regressions(self) -> list[OutcomeChange]:
        """The tests that fail now and did not fail before: they passed, were skipped, or did not run."""
        return [change for change in self.changes if change.now in BAD and change.before not in BAD]

    @property
    def fixed(self) -> list[OutcomeChange]:
        """The tests that failed before and pass now."""
        return [change for change in self.changes if change.before in BAD and change.now in GOOD]

    @property
    def skipped(self) -> list[OutcomeChange]:
        """The tests that passed before and are skipped now, or need a GPU now."""
        return [change for change in self.changes if change.before in GOOD and change.now in SKIPPED]

    @property
    def gone(self) -> list[OutcomeChange]:
        """The tests that ran before and do not run now."""
        return [change for change in self.changes if change.now == NOT_RUN]

    @property
    def regression_count(self) -> int:
        """Number of things that fail now and did not in the older report: tests, what no test shows, and cells."""
        return len(self.regressions) + len(self.worse) + len(self.broken)

    def of(self, kind: Kind) -> list[OutcomeChange]:
        """Return the changes over all reports of one of `KINDS`."""
        return [change for change in self.changes if change.kind == kind]


def in_order(reports: Sequence[tuple[str, MatrixReport]]) -> list[tuple[str, MatrixReport]]:
    """Return named reports by the time at which their runs began; in the given order if one has no time."""
    starts = [report.origin.started for _, report in reports]
    if None in starts:
        return list(reports)
    return sorted(reports, key=lambda pair: str(pair[1].origin.started))


def compare(new: MatrixReport, old: MatrixReport) -> Comparison:
    """Return the differences by test and cell; a cell that only one report has counts as not run in the other."""
    return history([("older report", old), ("this report", new)])


def history(reports: Sequence[tuple[str, MatrixReport]]) -> Comparison:
    """Return the differences between two or more named reports, the oldest first; the last is the current one."""
    (_, old), (_, new) = reports[-2:]
    whole = {cell.name for cell in new.cells if not cell.fault}
    known = {*old.missing, *(cell.name for cell in old.cells if cell.fault)}
    expected = [name for name in new.missing if name not in new.allowed]
    cells = dict.fromkeys([*(cell.name for report in (old, new) for cell in report.cells), *expected])
    return Comparison(
        tuple(Step(name, report.origin, dict(report.counts)) for name, report in reports),
        [*_changes([report for _, report in reports])],
        broken=[name for name in cells if name not in whole and name not in known],
        unread=old.faults_of_files,
        worse=[*(_findings(new, hidden=True) - _findings(old, hidden=False)).elements()],
    )


def _changes(reports: Sequence[MatrixReport]) -> Iterator[OutcomeChange]:
    """Yield the tests of the last two reports of which a result failed or changed, cell by cell."""
    cells = [{cell.name: cell for cell in report.cells} for report in reports]
    old, new = cells[-2:]
    for name in dict.fromkeys([*new, *old]):
        runs = [by_name[name] if name in by_name else CellRun(name) for by_name in cells]
        differ = {
            test
            for run in runs
            for test, results in run.differing.items()
            if (seen := {letter for letter, _ in results}) & BAD and seen & GOOD
        }
        for test in dict.fromkeys([*runs[-1].outcomes, *runs[-2].outcomes]):
            letters = "".join([run.outcomes.get(test, NOT_RUN) for run in runs])
            if letters[-2] != letters[-1] or test in differ or not BAD.isdisjoint(letters):
                yield OutcomeChange(test, name, letters, test in differ)


def _findings(report: MatrixReport, *, hidden: bool) -> Counter[tuple[str, str, str]]:
    """Return what, test and cell of crashes, violations and findings; or only of those that no test's failure shows."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for cell in report.cells:
        bad = cell.failing_tests
        every = [("crash", crash.nodeid) for crash in cell.crashes]
        every += [(f"violation: {each.what or each.check}", each.nodeid) for each in cell.failing_violations]
        shown = [(what, nodeid) for what, nodeid in every if not (hidden and nodeid in bad)]
        shown += [(f"{finding.category}: {finding.kind}", finding.nodeid) for finding in cell.findings]
        counts.update((what, nodeid or "outside tests", cell.name) for what, nodeid in shown)
    return counts


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


# -- the verdict

#: A sign for each severity of a verdict, so that nothing depends on colour alone.
SYMBOLS: Final[dict[Severity, str]] = {"note": "✓", "unknown": "!", "error": "✗"}
_HOSTILE: Final = "finding of faults and schedules|findings of faults and schedules"


def verdict(report: MatrixReport, comparison: Comparison | None = None) -> Finding:
    """Return the verdict on all cells: what fails first, then what is missing; "unknown" if no test ran."""
    missing = {*report.missing}
    faults = incomplete(report, comparison).keys() - missing
    there, changes = findings(report, comparison), comparison or Comparison()
    numbers = [
        (len(changes.regressions), "regression|regressions"),
        (len(changes.worse), "crash, violation or finding is new|crashes, violations or findings are new"),
        (len(report.partial), "test fails in some cells only|tests fail in some cells only"),
        (len(report.failing_everywhere), "test fails in every cell that ran it|tests fail in every cell that ran them"),
        (len(report.failing_without_gpu), "test fails because it needs a GPU|tests fail because they need a GPU"),
        (there["crashed"], "crash|crashes"),
        (there["violations"], "violation|violations"),
        (there["hostile"], _HOSTILE),
        (len(missing - report.allowed), "cell did not run|cells did not run"),
        (len(faults), "cell is incomplete|cells are incomplete"),
        (there["repeats"], "test has records that differ|tests have records that differ"),
    ]
    bad = [f"{number} {either(number, text)}" for number, text in numbers if number]
    shares = share(report.share[0], len(report.tests), report.share[1])
    if bad:
        return Finding("error", "; ".join([*bad, *shares]))
    if not report.counts.total():
        return Finding("unknown", "no test ran")
    ran, *gpu = shares or [counted(len(report.tests), "test")]
    fine = f"no test fails: {ran} in {counted(len(report.cells), 'cell')}"
    allowed = [f"{counted(len(missing), 'cell')} did not run, which is allowed"] if missing else []
    return Finding("note", "; ".join([fine, *gpu, *allowed]))


@dataclass(frozen=True)
class Figure:
    """A count at the top of the report."""

    number: int
    text: str
    alarm: bool  # whether the count is bad news; such a figure is left out where it is 0
    # the part of the page that shows what is counted: a filter, such as "has=FE" for two letters or "show=some" for a
    # kind of test, or the ID of a section
    shows: str


def figures(report: MatrixReport, comparison: Comparison | None = None) -> list[Figure]:
    """Return the figures at the top of the report, each with the part of the page that it counts."""
    counts, there, changes = report.counts, findings(report, comparison), comparison or Comparison()
    where = "regressions" if changes.regressions else "worse" if changes.worse else "incomplete"
    # True for bad news; None for what is left out where it is 0, too
    rows: list[tuple[int, str, bool | None, str]] = [
        (len(report.cells), "cell|cells", False, "cells"),
        (len(report.tests), "test|tests", False, "all"),
        (counts["P"] + counts["D"], "passed", False, "has=PD"),
        (counts["F"] + counts["E"], "failed or error", True, "has=FE"),
        (there["crashed"], "crashed", True, "has=C" if counts["C"] else "crashed"),
        (sum(len(cell.lost) for cell in report.cells), "lost", True, "lost"),
        (counts["S"], "skipped", False, "has=S"),
        (sum("U" in row for row in report.judged), "needs a GPU|need a GPU", None, "show=gpu"),
        (len(report.partial), "fails in some cells only|fail in some cells only", True, "show=some"),
        (len(report.skipped_everywhere), "skipped in every cell", False, "show=skipped"),
        (there["violations"], "violation|violations", True, "violations"),
        (there["hostile"], _HOSTILE, True, "findings"),
        (len(incomplete(report, comparison)), "incomplete cell|incomplete cells", True, "incomplete"),
        (there["repeats"], "test whose records differ|tests whose records differ", True, "repeats"),
    ]
    for key, number in sorted(report.links.items()):
        place = line(linked_on(key))
        rows.append((number, f"link {place}" if number == 1 else f"links {place}", False, "cells"))
    not_steered = sum(cell.not_steered for cell in report.cells)
    rows.append((not_steered, "link not steered|links not steered", None, "unsteered"))
    modules = sum(cell.unlinked_modules for cell in report.cells)
    rows.append((modules, "module that no seen link made|modules that no seen link made", None, "unsteered"))
    if comparison is not None:
        rows.append((changes.regression_count, "regression|regressions", True, where))
        rows.append((len(changes.fixed), "fixed", False, "fixed"))
    return [
        Figure(number, either(number, text), bool(alarm), shows)
        for number, text, alarm, shows in rows
        if number or alarm is False
    ]
