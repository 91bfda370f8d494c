"""Several reports together: what is new, fixed, flaky, and still failing."""

import pytest

from pytest_cudalink.report.cell_run import CellRun
from pytest_cudalink.report.compare import KINDS, history, in_order
from pytest_cudalink.report.matrix_report import MatrixReport
from pytest_cudalink.report.origin import Origin


def report(letters, cell="cell", started=None, **cell_values):
    """A report of one cell, with tests a, b, … by their letters; "." for one that did not run."""
    outcomes = {chr(ord("a") + number): letter for number, letter in enumerate(letters) if letter != "."}
    origins = [Origin(started=started)]
    return MatrixReport([CellRun(cell, outcomes=outcomes, finished=True, origins=origins, **cell_values)])


def kinds(*reports):
    compared = history(list(zip("abcd", reports, strict=False)))
    return {test.test: (kind, test.letters) for kind in KINDS for test in compared.of(kind)}


@pytest.mark.parametrize(
    ("letters", "kind"),
    [
        *((letters, "new") for letters in ("PF", "PSF", ".F", "SF", "xE", "PPC")),
        *((letters, "fixed") for letters in ("FP", "FSD", "CX", "Ex")),
        *((letters, "still") for letters in ("FF", "PFC", "F.F")),
        *((letters, "flaky") for letters in ("PFP", "FPF", "FPFP", "PFPS")),
        *((letters, None) for letters in ("FPP", "FS", "FFS", "FPS", "FU", "PS", "PP", "PFP.")),
    ],
)
def test_kinds(letters, kind):
    expected = {"a": (kind, letters)} if kind else {}
    assert kinds(*map(report, letters)) == expected


def test_a_test_whose_records_differ_is_flaky():
    """So is one that failed in one record of an older report; differing skips say nothing."""
    both = {"a": [["P", "x.jsonl"], ["F", "y.jsonl"]], "b": [["P", "x.jsonl"], ["S", "y.jsonl"]]}
    failures = {"a": [["F", "x.jsonl"], ["E", "y.jsonl"]]}
    assert kinds(report("PP"), report("PP", differing=both)) == {"a": ("flaky", "PP")}
    assert kinds(report("P"), report("E", differing=failures)) == {"a": ("new", "PE")}
    assert kinds(report("PP", differing=both), report("FP")) == {"a": ("flaky", "PF")}
    assert kinds(report("PP", differing=both), report(".P")) == {}
    assert kinds(report("FP"), report("F", differing=both), report("P.", differing=both)) == {"a": ("flaky", "FFP")}


def test_reports_are_sorted_by_date_where_all_have_one():
    first, second = report("P", started="2026-11-01T00:00:00Z"), report("P", started="2026-11-02T00:00:00Z")
    undated = report("P")
    assert [name for name, _ in in_order([("a", second), ("b", first)])] == ["b", "a"]
    assert [name for name, _ in in_order([("b", first), ("a", first)])] == ["b", "a"]
    assert [name for name, _ in in_order([("b", second), ("?", undated), ("a", first)])] == ["b", "?", "a"]
