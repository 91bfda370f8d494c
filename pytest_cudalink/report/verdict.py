"""The verdict on a matrix in one sentence, and the figures below it, at the top of every form of the report. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from ..base.safe_text import line
from ..base.words import counted
from .compare import Comparison, findings, incomplete
from .matrix_report import MatrixReport
from .wording import linked_on, share

Level = Literal["good", "warn", "bad"]

#: A sign for each level, so that nothing depends on colour alone.
SYMBOLS: Final[dict[Level, str]] = {"good": "✓", "warn": "!", "bad": "✗"}
_HOSTILE: Final = "finding of faults and schedules|findings of faults and schedules"


@dataclass(frozen=True)
class ReportVerdict:
    """The verdict on a report."""

    level: Level  # "warn" if no test fails and every cell ran, but some results are in doubt, or there are none
    words: str  # one sentence: "3 tests fail in some cells only; 2 cells did not run"


def verdict(report: MatrixReport, comparison: Comparison | None = None) -> ReportVerdict:
    """Return the verdict on all cells: what fails first, then what is missing."""
    missing = {*report.missing}
    faults = incomplete(report, comparison).keys() - missing
    there = findings(report, comparison)
    numbers = [
        (len(comparison.regressions) if comparison else 0, "regression|regressions"),
        (
            len(comparison.worse) if comparison else 0,
            "crash, violation or finding is new|crashes, violations or findings are new",
        ),
        (len(report.partial), "test fails in some cells only|tests fail in some cells only"),
        (
            len(report.failing_everywhere),
            "test fails in every cell that ran it|tests fail in every cell that ran them",
        ),
        (
            len(report.failing_without_gpu),
            "test fails because it needs a GPU|tests fail because they need a GPU",
        ),
        (there["crashed"], "crash|crashes"),
        (there["violations"], "violation|violations"),
        (there["hostile"], _HOSTILE),
        (len(missing - report.allowed), "cell did not run|cells did not run"),
        (len(faults), "cell is incomplete|cells are incomplete"),
        (there["repeats"], "test has records that differ|tests have records that differ"),
    ]
    bad = [f"{number} {_form(number, text)}" for number, text in numbers if number]
    shares = share(report.share[0], len(report.tests), report.share[1])
    if bad:
        return ReportVerdict("bad", "; ".join([*bad, *shares]))
    if not report.counts.total():
        return ReportVerdict("warn", "no test ran")
    ran, *gpu = shares or [counted(len(report.tests), "test")]
    fine = f"no test fails: {ran} in {counted(len(report.cells), 'cell')}"
    allowed = [f"{counted(len(missing), 'cell')} did not run, which is allowed"] if missing else []
    return ReportVerdict("good", "; ".join([fine, *gpu, *allowed]))


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
    counts, links, there = report.counts, report.links, findings(report, comparison)
    found = [
        (len(report.cells), "cell|cells", False, "cells"),
        (len(report.tests), "test|tests", False, "all"),
        (counts["P"] + counts["D"], "passed", False, "has=PD"),
        (counts["F"] + counts["E"], "failed or error", True, "has=FE"),
        (there["crashed"], "crashed", True, "has=C" if counts["C"] else "crashed"),
        (sum(len(cell.lost) for cell in report.cells), "lost", True, "lost"),
        (counts["S"], "skipped", False, "has=S"),
        *_if_any(sum("U" in row for row in report.judged), "needs a GPU|need a GPU", "show=gpu"),
        (len(report.partial), "fails in some cells only|fail in some cells only", True, "show=some"),
        (len(report.skipped_everywhere), "skipped in every cell", False, "show=skipped"),
        (there["violations"], "violation|violations", True, "violations"),
        (there["hostile"], _HOSTILE, True, "findings"),
        (len(incomplete(report, comparison)), "incomplete cell|incomplete cells", True, "incomplete"),
        (there["repeats"], "test whose records differ|tests whose records differ", True, "repeats"),
    ]
    for key, number in sorted(links.items()):
        where = line(linked_on(key))
        found.append((number, f"link {where}" if number == 1 else f"links {where}", False, "cells"))
    not_steered = sum(cell.not_steered for cell in report.cells)
    found += _if_any(not_steered, "link not steered|links not steered", "unsteered")
    modules = sum(cell.unlinked_modules for cell in report.cells)
    found += _if_any(modules, "module that no seen link made|modules that no seen link made", "unsteered")
    if comparison is not None:
        where = "regressions" if comparison.regressions else "worse" if comparison.worse else "incomplete"
        found += [
            (comparison.regression_count, "regression|regressions", True, where),
            (len(comparison.fixed), "fixed", False, "fixed"),
        ]
    return [
        Figure(number, _form(number, text), alarm, shows) for number, text, alarm, shows in found if number or not alarm
    ]


def _if_any(number: int, text: str, shows: str) -> list[tuple[int, str, bool, str]]:
    """Return a figure that is not bad news, and that is left out if it is 0."""
    return [(number, text, False, shows)] if number else []


def _form(number: int, text: str) -> str:
    """Return the singular or the plural of ``"ONE|MANY"``."""
    one, _, many = text.partition("|")
    return one if number == 1 or not many else many
