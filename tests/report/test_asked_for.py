"""What a run was asked for: one rule for all kinds, and its sentences."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cudalink.report import views
from pytest_cudalink.report.asked_for import KINDS, AskedFor, is_worth_a_look, judged, left_out, merged, unmet
from pytest_cudalink.report.cell_run import CellRun
from pytest_cudalink.report.matrix_report import MatrixReport
from pytest_cudalink.report.records import AskedRecord

reasons = st.dictionaries(st.sampled_from(("a", "b", "c")), st.integers(1, 5))
entries = st.builds(
    lambda what, happened, left, allowed, more: AskedFor(
        what, happened + sum(left.values()) + sum(allowed.values()) + more, happened, left, allowed
    ),
    st.sampled_from(list(KINDS)),
    st.integers(0, 5),
    reasons,
    reasons,
    st.integers(0, 2),
)


@given(entries)
def test_a_run_fails_for_what_was_left_out(entry: AskedFor) -> None:
    """It fails if anything was due that neither happened nor was allowed not to; never where all is allowed."""
    missing = entry.due - entry.happened - sum(entry.allowed.values())
    assert bool(unmet(judged(entry, allows=False))) is (missing > 0)
    assert unmet(judged(entry, allows=True)) == ""


@given(entries, st.booleans())
def test_everything_has_a_reason(entry: AskedFor, allows: bool) -> None:
    """What happened, what was left out and what was allowed add up, and judging twice changes nothing."""
    answer = judged(entry, allows=allows)
    assert answer.happened + sum(answer.left.values()) + sum(answer.allowed.values()) == entry.due == answer.due
    assert judged(answer, allows=allows) == answer


@given(st.lists(entries), st.randoms())
def test_parts_of_several_processes(some: list[AskedFor], random) -> None:
    """The sums do not depend on the order of the processes; kinds come in the order of the table."""
    joined = merged(some)
    assert [entry.what for entry in joined] == [what for what in KINDS if any(entry.what == what for entry in some)]
    for field in ("due", "happened"):
        assert sum(getattr(entry, field) for entry in joined) == sum(getattr(entry, field) for entry in some)
    random.shuffle(some)
    assert merged(some) == joined


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        (AskedFor("fault sweep", 3, 3), ""),
        (AskedFor("fault sweep", 3, 1, allowed={"a": 2}), ""),
        (AskedFor("fault sweep", 3, 1, {"failed": 1, "skipped": 1}), "1 of 3 tests were swept (1: failed; 1: skipped)"),
        (AskedFor("fault sweep", 2, 0, {"failed": 2}), "no test was swept (2: failed)"),
        (AskedFor("resume", 1, 0, {"gone": 1}),
         "no test of the interrupted sweep was among those of this run (1: gone)"),
        (AskedFor("links", 2, 1, {"x": 1}), "1 of 2 links were made (1: x)"),
    ],
)  # fmt: skip
def test_why_a_run_fails(entry: AskedFor, sentence: str) -> None:
    """A sentence says how many of how many, and each reason with its number."""
    expected = f"The run fails because {sentence}; --cudalink-require=none allows that." if sentence else ""
    assert unmet(entry) == expected


def test_what_was_left_out() -> None:
    """A line for each reason, whether it is allowed or not; one that is both is one line; none where more happened."""
    assert judged(AskedFor("links", 1, 3), allows=False) == AskedFor("links", 1, 3, {})
    entry = AskedFor("fault sweep", 6, 0, {"failed": 2, "late": 1}, {"failed": 1, "budget": 2})
    assert [*left_out(entry)] == ["3 tests not swept: failed", "1 test not swept: late", "2 tests not swept: budget"]
    assert [*left_out(AskedFor("checks", 1, 0, allowed={"checks are off": 1}))] == ["checks are off"]
    assert [*left_out(judged(AskedFor("faults", 1, 0), allows=False))] == [
        "1 fault of --cudalink-faults not triggered: for a reason that is not known"
    ]


def test_words_of_each_kind() -> None:
    """Each kind has a sentence for none and for several that reads as one."""
    for what, words in KINDS.items():
        single, many = words.name.split("|")
        done, _, all_done = words.done.partition("|")
        assert f"1 of 2 {many} {all_done or done} (" in unmet(AskedFor(what, 2, 1, {"x": 1}))
        assert f"no {single} {done} (" in unmet(AskedFor(what, 1, 0, {"x": 1}))
        assert single != many


def test_what_a_report_shows() -> None:
    """It shows what runs apart from the tests, and whatever did not happen, also of a kind that a newer version has."""
    apart = ["fault sweep", "calls", "resume", "schedules", "delays"]
    assert [what for what in KINDS if is_worth_a_look(what, 1, 1)] == apart
    assert all(is_worth_a_look(what, 2, 1) for what in (*KINDS, "new"))
    asked = [
        AskedRecord(what="driver", due=2, happened=2),
        AskedRecord(what="fault sweep", due=3, happened=1, left={"x": 1}, allowed={"y": 1, "z": 2}),
        AskedRecord(what="new", due=1),
    ]
    (shown,) = (s for s in views.sections(MatrixReport([CellRun("a", asked=asked)])) if s.id == "asked")
    assert shown.rows == (("a", "fault sweep: tests", 3, 1, "1: x", "1: y; 2: z"), ("a", "new", 1, 0, "", ""))
