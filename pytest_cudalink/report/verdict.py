"""The verdict on a matrix in one sentence. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from ..base.plurals import counted
from .compare import Comparison, incomplete
from .matrix_report import MatrixReport
from .wording import share

Level = Literal["good", "warn", "bad"]

#: A sign for each level, so that nothing depends on colour alone.
SYMBOLS: Final[dict[Level, str]] = {"good": "✓", "warn": "!", "bad": "✗"}


@dataclass(frozen=True)
class ReportVerdict:
    """The verdict on a report."""

    level: Level  # "warn" if no test fails and every cell ran, but some results are in doubt, or there are none
    words: str  # one sentence: "3 tests fail in some cells only; 2 cells did not run"


def verdict(report: MatrixReport, comparison: Comparison | None = None) -> ReportVerdict:
    """Return the verdict on all cells: what fails first, then what is missing."""
    failing = [
        _some(len(comparison.regressions) if comparison is not None else 0, "regression", "regressions"),
        _some(
            len(comparison.worse) if comparison is not None else 0,
            "crash, violation or finding is new",
            "crashes, violations or findings are new",
        ),
        _some(len(report.partial), "test fails in some cells only", "tests fail in some cells only"),
        _some(
            len(report.failing_everywhere),
            "test fails in every cell that ran it",
            "tests fail in every cell that ran them",
        ),
        _some(
            len(report.failing_without_gpu),
            "test fails because it needs a GPU",
            "tests fail because they need a GPU",
        ),
        _some(sum(cell.crashed for cell in report.cells), "crash", "crashes"),
        _some(sum(len(cell.failing_violations) for cell in report.cells), "violation", "violations"),
        _some(
            sum(len(cell.findings) for cell in report.cells),
            "finding of faults and schedules",
            "findings of faults and schedules",
        ),
    ]
    missing = {*report.missing}
    faults = incomplete(report, comparison).keys() - missing
    failing += [
        _some(len(missing - report.allowed), "cell did not run", "cells did not run"),
        _some(len(faults), "cell is incomplete", "cells are incomplete"),
        _some(
            sum(len(cell.differing) for cell in report.cells),
            "test has records that differ",
            "tests have records that differ",
        ),
    ]
    bad = list(filter(None, failing))
    shares = share(report.share[0], len(report.tests), report.share[1])
    if bad:
        return ReportVerdict("bad", "; ".join([*bad, *shares]))
    if not report.counts.total():
        return ReportVerdict("warn", "no test ran")
    ran, *gpu = shares or [counted(len(report.tests), "test")]
    fine = f"no test fails: {ran} in {counted(len(report.cells), 'cell')}"
    allowed = _some(len(missing), "cell did not run, which is allowed", "cells did not run, which is allowed")
    return ReportVerdict("good", "; ".join(filter(None, [fine, *gpu, allowed])))


def _some(number: int, one: str, many: str) -> str:
    """Return a number with its noun; empty for 0."""
    return counted(number, one, many) if number else ""
