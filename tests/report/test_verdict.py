"""The verdict on a matrix in one sentence."""

import pytest

from pytest_cudalink.report.cell_run import CellRun, Detail
from pytest_cudalink.report.compare import FAILING, SYMBOLS, compare, findings, verdict
from pytest_cudalink.report.matrix_report import MatrixReport
from pytest_cudalink.report.records import CrashRecord, FindingRecord, ViolationRecord

from .samples import LAUNCH


def cell(name: str, letters: str, **fields) -> CellRun:
    """A finished cell with a test for each letter."""
    outcomes = {f"t.py::{number}": letter for number, letter in enumerate(letters)}
    return CellRun(name, outcomes=outcomes, **{"finished": True, "exitstatus": 0, **fields})


@pytest.mark.parametrize(
    ("cells", "missing", "severity", "what"),
    [
        ([cell("a", "PS"), cell("b", "PP")], [], "note", "no test fails: 2 tests in 2 cells"),
        ([cell("a", "FF"), cell("b", "PF")], ["c", "d"], "error",
         "1 test fails in some cells only; 1 test fails in every cell that ran it; 2 cells did not run"),
        ([cell("a", "P", violations=[ViolationRecord(nodeid="t", text="v", allowed=True)])], [], "note",
         "no test fails: 1 test in 1 cell"),
        ([cell("a", "P", findings=[{}], violations=[ViolationRecord(nodeid="t", text="v")])], [], "error",
         "1 violation; 1 finding of faults and schedules"),
        ([cell("a", "P", findings=[{}]), cell("b", "P", findings=[{}])], [], "error",
         "2 findings of faults and schedules"),
        ([cell("a", "C"), cell("b", "P")], [], "error", "1 test fails in some cells only; 1 crash"),
        ([cell("a", "P", finished=False)], ["gone"], "error", "1 cell did not run; 1 cell is incomplete"),
        ([cell("a", "P")], ["allowed"], "note",
         "no test fails: 1 test in 1 cell; 1 cell did not run, which is allowed"),
        ([], [], "unknown", "no test ran"),
        ([cell("a", "PPFFCC", violations=[ViolationRecord(nodeid="t", text="v")] * 2), cell("b", "FFFFPP")], [],
         "error", "4 tests fail in some cells only; 2 tests fail in every cell that ran them; 2 crashes; 2 violations"),
        ([cell("a", "P", finished=False), cell("b", "", finished=False)], [], "error", "2 cells are incomplete"),
        ([cell("a", "P", differing={"t.py::0": [["P", "1"], ["F", "2"]]})], [], "error",
         "1 test has records that differ"),
        ([cell("a", "PP", differing={name: [["P", "1"], ["S", "2"]] for name in ("t.py::0", "t.py::1")})], [], "error",
         "2 tests have records that differ"),
        ([cell("a", "PPUS"), cell("b", "PUU")], [], "note",
         "no test fails: 2 of 4 tests ran in 2 cells; 1 needs a GPU"),
        ([cell("a", "PFUU")], [], "error",
         "1 test fails in every cell that ran it; 2 of 4 tests ran; 2 need a GPU"),
        ([cell("a", "PSS")], ["allowed", "allowed too"], "note",
         "no test fails: 1 of 3 tests ran in 1 cell; 2 cells did not run, which is allowed"),
    ],
)  # fmt: skip
def test_verdict(cells, missing, severity, what) -> None:
    """What fails comes first, then what is missing; a cell that may be missing is no reason to worry."""
    report = MatrixReport(cells, missing=missing, allowed={"allowed", "allowed too"})
    answer = verdict(report)
    assert (answer.severity, answer.what) == (severity, what)
    assert SYMBOLS[answer.severity]


def test_a_failure_for_want_of_a_gpu() -> None:
    """It is red and has its own words; the same test may fail for another reason elsewhere."""
    refused = {f"t.py::{number}": Detail(cause=LAUNCH) for number in range(3)}
    first, second = cell("a", "FFFP", details=refused), cell("b", "FPFF", details={"t.py::0": Detail(cause=LAUNCH)})
    answer = verdict(MatrixReport([first, second]))
    words = "1 test fails in some cells only; 1 test fails in every cell that ran it; "
    words += "2 tests fail because they need a GPU; 3 of 4 tests ran; 1 needs a GPU"
    assert (answer.severity, answer.what) == ("error", words)
    failing = verdict(MatrixReport([cell("a", "FP", details={"t.py::0": Detail(cause=LAUNCH)})]))
    assert failing.what == "1 test fails because it needs a GPU; 1 of 2 tests ran; 1 needs a GPU"


def test_regressions_come_first() -> None:
    """Compared with an older report, what is worse than before is said first."""
    new, old = MatrixReport([cell("a", "F")]), MatrixReport([cell("a", "P")])
    assert verdict(new, compare(new, old)).what == "1 regression; 1 test fails in every cell that ran it"
    several = MatrixReport([cell("a", "FFF")])
    assert verdict(several, compare(several, old)).what.startswith("3 regressions; 3 tests fail")


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (1, "1 crash, violation or finding is new; 1 violation"),
        (2, "2 crashes, violations or findings are new; 2 violations"),
    ],
)
def test_what_is_new_behind_green_tests(number, words) -> None:
    """It comes before the totals, and only what the older report does not have counts."""
    new = MatrixReport([cell("a", "P", violations=[ViolationRecord(nodeid="t.py::0")] * number)])
    assert verdict(new, compare(new, MatrixReport([cell("a", "P")]))).what == words
    assert verdict(new, compare(new, new)).what == words.partition("; ")[2]


@pytest.mark.parametrize(
    ("letters", "fields", "missing", "red"),
    [
        ("P", {}, [], False),
        ("P", {}, ["allowed"], False),
        ("PSUxXD", {"violations": [ViolationRecord(nodeid="t", allowed=True)]}, [], False),
        ("PF", {}, [], True),
        ("PE", {}, [], True),
        ("PC", {"crashes": [CrashRecord(nodeid="t.py::1")]}, [], True),
        ("P", {}, ["gone"], True),
        ("P", {"exitstatus": 5}, [], True),
        ("P", {"problems": ["too few links"]}, [], True),
        ("P", {"crashes": [CrashRecord(nodeid="t.py::0"), CrashRecord()]}, [], True),
        ("P", {"violations": [ViolationRecord(nodeid="t.py::0")]}, [], True),
        ("P", {"findings": [FindingRecord()]}, [], True),
        ("P", {"differing": {"t.py::0": [["P", "1"], ["F", "2"]]}}, [], True),
    ],
)
def test_the_exit_code_and_the_words_have_one_verdict(letters, fields, missing, red) -> None:
    """What no test's result shows counts in both."""
    report = MatrixReport([cell("c", letters, **fields)], missing, allowed={"allowed"})
    by_word = findings(report, None)
    assert (any(by_word[word] for word in FAILING), verdict(report).severity == "error") == (red, red)
