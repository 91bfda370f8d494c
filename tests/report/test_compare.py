"""What changed between two reports, what is wrong with a report, and the figures of both."""

from itertools import product

import pytest

from pytest_cudalink.report.cell_run import CellRun, UnsteeredLinks
from pytest_cudalink.report.compare import FAIL_ON, OutcomeChange, compare, damage, figures, findings, incomplete
from pytest_cudalink.report.matrix_report import MatrixReport
from pytest_cudalink.report.records import CrashRecord, FindingRecord, ViolationRecord

GROUPS = {"good": "PxXD", "bad": "FEC", "skipped": "SU", "not run": "."}
CHANGES = {
    **dict.fromkeys(product(("good", "skipped", "not run"), ("bad",)), "regressions"),
    ("bad", "good"): "fixed",
    ("good", "skipped"): "skipped",
    **dict.fromkeys(product(("good", "bad", "skipped"), ("not run",)), "gone"),
}


def cell(name: str, letters: str, **fields) -> CellRun:
    """A finished cell with a test for each letter, a, b, …; "." for a test that did not run."""
    outcomes = {test: letter for test, letter in zip("abcdefghij", letters, strict=False) if letter != "."}
    return CellRun(name, outcomes=outcomes, **{"finished": True, "exitstatus": 0, **fields})


def changes(new: list[CellRun], old: list[CellRun]) -> dict[str, list[OutcomeChange]]:
    """The kinds of changes that there are."""
    compared = compare(MatrixReport(new), MatrixReport(old))
    return {kind: some for kind in ("regressions", "fixed", "skipped", "gone") if (some := getattr(compared, kind))}


@pytest.mark.parametrize(("before", "now"), [*product(GROUPS, GROUPS)])
def test_the_kind_of_each_change(before: str, now: str) -> None:
    """By what the outcomes before and now mean; a test that did not change is not named."""
    for first, second in product(GROUPS[before], GROUPS[now]):
        expected = {CHANGES[before, now]: [OutcomeChange("a", "c", first + second)]} if (before, now) in CHANGES else {}
        assert changes([cell("c", second)], [cell("c", first)]) == expected
    assert compare(MatrixReport([cell("c", "PS")]), MatrixReport([cell("c", "PS")])).changes == []


def test_cells_and_tests_of_one_report_only() -> None:
    """They did not run in the other one; those of the newer report come first. Each report has its name and sums."""
    new, old = [cell("x", "F.F"), cell("n", "F")], [cell("o", "P"), cell("x", "PP.")]
    assert changes(new, old) == {
        "regressions": [*(OutcomeChange("a", "x", "PF"), OutcomeChange("c", "x", ".F"), OutcomeChange("a", "n", ".F"))],
        "gone": [OutcomeChange("b", "x", "P."), OutcomeChange("a", "o", "P.")],
    }
    sums = [(step.name, step.totals) for step in compare(MatrixReport(new), MatrixReport(old)).reports]
    assert sums == [("older report", {"P": 3}), ("this report", {"F": 3})]


def reports() -> tuple[MatrixReport, MatrixReport]:
    """A report with a finding of each kind, and an older one."""
    first = cell(
        "a",
        "FEPSPP",
        crashes=[CrashRecord()],
        violations=[ViolationRecord(), ViolationRecord(), ViolationRecord(allowed=True)],
        findings=[FindingRecord()],
        versions={"ctk": {"requested": "13.0", "found": "12.9", "source": "", "kind": ""}},
        differing={test: [["P", "1"], ["F", "2"]] for test in "cef"},
        links={"cuda.core/nvjitlink": 2, "cuda.core/driver": 1},
    )
    cut = cell("cut", "P..S", finished=False, exitstatus=None, damage=["line 1: no", "line 2: no"])
    new = MatrixReport([first, cut], ["lost", "free"], damaged={"x": "not JSON"}, allowed=frozenset({"free"}))
    old = MatrixReport([cell("a", "PFF"), cell("cut", "P"), cell("never", "P")], damaged={"y": "empty"})
    return new, old


def test_what_is_wrong_with_a_report() -> None:
    """Cells without a complete run and files that cannot be read, with the reasons, and the number of each finding."""
    new, old = reports()
    comparison = compare(new, old)
    assert (comparison.broken, comparison.unread) == (["cut", "never", "lost"], {"y": "empty"})
    unfinished = new.cells[1].fault
    alone = {"x": "not JSON", "lost": "no records", "free": "no records (allowed)", "cut": unfinished}
    assert incomplete(new) == alone
    assert incomplete(new, comparison) == {"y (older report)": "empty", **alone, "never": "no records"}
    assert damage(new) == ["not JSON", "line 1: no"]
    assert damage(new, comparison) == ["not JSON", "line 1: no", "empty"]
    counts = {"regressions": 0, "failed": 2, "crashed": 1, "incomplete": 3, "violations": 2, "hostile": 1}
    counts |= {"mismatch": 1, "skipped-everywhere": 1, "damaged": 2, "repeats": 3, "not-run": len(new.not_run["cut"])}
    assert findings(new, None) == counts
    assert [*counts] == [*FAIL_ON]
    assert findings(new, comparison) == {**counts, "regressions": 4 + 4, "incomplete": 5, "damaged": 3}


def test_the_figures_of_a_report() -> None:
    """Each has its number, its words, whether it is bad news, and the part of the page that shows it."""
    new, old = reports()
    shown = [(figure.number, figure.text, figure.alarm, figure.shows) for figure in figures(new, compare(new, old))]
    of_links = [(1, "link on cuda.core/driver", False, "cells"), (2, "links on cuda.core/nvjitlink", False, "cells")]
    assert shown == [
        (2, "cells", False, "cells"),
        (6, "tests", False, "all"),
        (4, "passed", False, "has=PD"),
        (2, "failed or error", True, "has=FE"),
        (1, "crashed", True, "crashed"),
        (2, "skipped", False, "has=S"),
        (1, "fails in some cells only", True, "show=some"),
        (1, "skipped in every cell", False, "show=skipped"),
        (2, "violations", True, "violations"),
        (1, "finding of faults and schedules", True, "findings"),
        (6, "incomplete cells", True, "incomplete"),
        (3, "tests whose records differ", True, "repeats"),
        *of_links,
        (8, "regressions", True, "regressions"),
        (1, "fixed", False, "fixed"),
    ]


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (cell("a", "D"), []),
        (cell("a", "C"), [("1 crashed", True, "has=C")]),
        (cell("a", "U"), [("1 needs a GPU", False, "show=gpu")]),
        (cell("a", "UUP"), [("2 need a GPU", False, "show=gpu")]),
        (cell("a", "P", violations=[ViolationRecord()]), [("1 violation", True, "violations")]),
        (cell("a", "P", differing={"a": []}), [("1 test whose records differ", True, "repeats")]),
        (
            cell("a", "P", without_result=["b"], crashes=[CrashRecord()]),
            [("1 crashed", True, "crashed"), ("1 lost", True, "lost"), ("1 incomplete cell", True, "incomplete")],
        ),
        *(
            (cell("a", "P", **fields), [(words, False, "unsteered")])
            for words, fields in {
                "1 link not steered": {"unsteered": [UnsteeredLinks(forced="driver")]},
                "2 links not steered": {"unsteered": [UnsteeredLinks(forced="driver", number=2)]},
                "1 module that no seen link made": {"unlinked_modules": 1},
                "2 modules that no seen link made": {"unlinked_modules": 2},
            }.items()
        ),
    ],
)
def test_figures_that_only_some_reports_have(run: CellRun, expected: list[tuple[str, bool, str]]) -> None:
    """A bad figure is left out where it is 0, and so is one that most reports do not have."""
    always = {"cells", "all", "has=PD", "has=S", "show=skipped"}
    shown = [(f"{figure.number} {figure.text}", figure.alarm, figure.shows) for figure in figures(MatrixReport([run]))]
    assert [figure for figure in shown if figure[2] not in always] == expected
    assert {figure[2] for figure in shown} >= always
    assert shown[0] == ("1 cell", False, "cells")


def test_a_documented_failure_counts_as_passed() -> None:
    shown = [f"{figure.number} {figure.text}" for figure in figures(MatrixReport([cell("a", "D")]))]
    assert shown == ["1 cell", "1 test", "1 passed", "0 skipped", "0 skipped in every cell"]


def test_a_cell_that_is_incomplete_now_is_a_regression() -> None:
    """Without a test that fails newly, the figure shows the incomplete cells."""
    new, old = MatrixReport([cell("a", "P", finished=False)]), MatrixReport([cell("a", "P")])
    (figure,) = (figure for figure in figures(new, compare(new, old)) if figure.text == "regression")
    assert (figure.number, figure.alarm, figure.shows) == (1, True, "incomplete")
    assert "regression" not in {figure.text.rstrip("s") for figure in figures(new, compare(new, new))}


def test_what_is_new_against_an_older_report() -> None:
    """A crash, a violation and a finding that no failing test shows; a cell that the older report does not have."""
    broken = [ViolationRecord(nodeid="a", what="freed"), ViolationRecord(nodeid="b", check="order")]
    now = {
        "crashes": [CrashRecord(), CrashRecord(nodeid="b")],
        "violations": [*broken, ViolationRecord(nodeid="a", what="seen", allowed=True)],
        "findings": [FindingRecord(nodeid="a", category="fault", kind="leak")] * 2,
    }
    fault, outside = ("fault: leak", "a", "c"), ("crash", "outside tests", "c")
    new = MatrixReport([cell("c", "PF", **now), cell("first", "P", exitstatus=3)], ["gone", "may"], allowed={"may"})

    def worse(**then: object) -> list[tuple[str, str, str]]:
        return compare(new, MatrixReport([cell("c", "PF", **then)])).worse

    assert worse() == [outside, ("violation: freed", "a", "c"), fault, fault]
    assert worse(findings=now["findings"][:1]) == [outside, ("violation: freed", "a", "c"), fault]
    assert worse(**{**now, "crashes": []}) == [outside]
    assert worse(**now) == []
    assert compare(new, MatrixReport([cell("c", "FF", violations=broken)])).worse == [outside, fault, fault]
    (unnamed,) = compare(MatrixReport([cell("c", "PP", violations=broken[1:])]), MatrixReport([cell("c", "PP")])).worse
    assert unnamed == ("violation: order", "b", "c")  # one without a name goes by its check
    old = MatrixReport([cell("c", "PF")])
    assert compare(new, old).broken == ["first", "gone"]
    assert compare(new, MatrixReport(old.cells, ["gone", "first"])).broken == []
    assert findings(new, compare(new, old))["regressions"] == 4 + 2
    by_name = {figure.text: (figure.number, figure.shows) for figure in figures(new, compare(new, old))}
    assert by_name["regressions"] == (6, "worse")
