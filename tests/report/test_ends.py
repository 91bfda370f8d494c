"""The end of a run against its lines: what does not agree makes the cell incomplete."""

from collections import Counter

import pytest

from pytest_cudalink import cli
from pytest_cudalink.report.cell_run import Lines, doubts
from pytest_cudalink.report.records import CollectedRecord, EndRecord

from .test_merge import RUN, cell_of, lines, result

A, B = "t.py::a", "t.py::b"


def run(code: int | None = 0, counts: dict[str, int] | None = None, **others) -> Lines:
    """The lines of a run of two tests that passed."""
    content = {
        "ends": [EndRecord(exitstatus=code, counts={"passed": 2} if counts is None else counts)],
        "collected": [CollectedRecord(tests={"t.py": ["a", "b"]})],
        "started": Counter([A, B]),
        "ended": Counter([A, B]),
        "outcomes": Counter(passed=2),
        **others,
    }
    return Lines(**content)


FAILED = "pytest ended with exit code 1, and no test failed: a plugin failed the run, as a limit of coverage does"
MANY = [f"t.py::{number}" for number in range(5)]
THREE_ENDS = [EndRecord(exitstatus=3), EndRecord(), EndRecord(exitstatus=1)]
NONE_RAN = {"ended": Counter(), "started": Counter(), "outcomes": Counter()}
NOT_COLLECTED = "1 test ran, but did not belong to the collected ones: "


def collected(*tests: str) -> CollectedRecord:
    """The record of what a run collected in one file, and a text file that is a test."""
    return CollectedRecord(tests={"t.py": [*tests], "w.txt": [""]})


@pytest.mark.parametrize(
    ("lines_of_run", "explained", "said"),
    [
        (run(), False, []),
        (run(None), False, []),
        (run(1), True, []),
        (run(1), False, [FAILED]),
        # what is missing after another exit code is said of that
        (run(2, {}, ended=Counter()), False, []),
        (Lines(started=Counter([A])), False, []),
        (run(ends=[]), False, []),
        # several ends
        (run(ends=[EndRecord(exitstatus=0)] * 2), False,
         ["2 ends, with exit codes 0 and 0; expected one run in a file"]),
        (run(ends=THREE_ENDS), True, ["3 ends, with exit codes 3 and unknown and 1; expected one run in a file"]),
        # tests that began, more often than they ended
        (run(started=Counter([A, A, B])), False, [f"1 test began without a result: {A}"]),
        (run(started=Counter([A, *MANY])), False, [f"5 tests began without a result: {', '.join(MANY[:3])}, …"]),
        (run(started=Counter([A, *MANY[:3]])), False, [f"3 tests began without a result: {', '.join(MANY[:3])}"]),
        (run(0, {"passed": 2, "rerun": 1}, ended=Counter([A, A, B]), outcomes=Counter(passed=2, rerun=1)), False, []),
        # counts
        (run(counts={"passed": 3}), False, ["the end counts 3 passed; the record has 2 passed"]),
        (run(counts={}), False, ["the end counts no tests; the record has 2 passed"]),
        (run(1, {"passed": 1, "failed": 1, "error": 0}), True,
         ["the end counts 1 failed, 1 passed; the record has 2 passed"]),
        (run(counts={"passed": 2, "failed": 0}), False, []),
        # tests that were not collected; those that failed may be files
        (run(collected=[]), False, [f"2 tests ran, but did not belong to the collected ones: {A}, {B}"]),
        (run(collected=[collected("b")]), False, [f"{NOT_COLLECTED}{A}"]),
        (run(collected=[collected("a"), collected("b")]), False,
         ["the record has 2 events 'collected'; expected one run in a file"]),
        # nothing ran
        (run(0, {}, **NONE_RAN), False, ["pytest ended with exit code 0, and no test ran"]),
        (run(1, {}, **NONE_RAN), True, []),
        # another program counts nothing, and need not say what it collected
        (run(ends=[EndRecord(exitstatus=0)], collected=[], outcomes=Counter()), False, []),
        (run(ends=[EndRecord(exitstatus=0)], collected=[], started=Counter([A, A])), False,
         [f"1 test began without a result: {A}"]),
    ],
)  # fmt: skip
def test_doubts(lines_of_run, explained, said) -> None:
    """The comments say of what."""
    texts = doubts(lines_of_run, {A, B, *MANY}, explained=explained)
    assert [text.removeprefix("the record has ") if " ends," in text else text for text in texts] == said


def test_a_file_that_failed_was_not_collected(tmp_path) -> None:
    """It stands in the record like a test of its name."""
    assert doubts(run(1, collected=[CollectedRecord(tests={"t.py": ["a"]})]), {A}, explained=True) == []
    end = {**WHOLE, "exitstatus": 1, "counts": {"passed": 1, "error": 1}}
    cell = cell_of(lines(tmp_path / "c.jsonl", RUN, COLLECTED, START, result(), result("f.py", "error"), end))
    assert (cell.outcomes["f.py"], cell.problems) == ("E", [])


COLLECTED = {"event": "collected", "time": 5.2, "tests": {"t.py": ["t"]}}
START = {"event": "start", "time": 5.5, "nodeid": "t.py::t"}
WHOLE = {"event": "end", "time": 9.0, "exitstatus": 0, "duration": 2.5, "counts": {"passed": 1}}
TWO, ONE_SKIPPED = {**WHOLE, "counts": {"passed": 2}}, {**WHOLE, "counts": {"passed": 1, "skipped": 1}}


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ((COLLECTED, START, result(), WHOLE), ""),
        ((COLLECTED, START, result(), {**WHOLE, "exitstatus": 1}), FAILED),
        ((COLLECTED, START, START, result(), WHOLE), "1 test began without a result: t.py::t"),
        ((COLLECTED, START, result(), result("w.txt"), TWO), f"{NOT_COLLECTED}w.txt"),
        ((COLLECTED, START, result(), result("f.py", "skipped"), ONE_SKIPPED), ""),
        ((COLLECTED, START, result(), result("t.py::b", "skipped"), ONE_SKIPPED), f"{NOT_COLLECTED}t.py::b"),
        (
            (COLLECTED, START, result(), WHOLE, RUN, COLLECTED, START, result(), WHOLE),
            "{file}: line 6 begins another run",
        ),
    ],
)
def test_the_report_of_such_a_record(events, said, tmp_path) -> None:
    """Its cell is incomplete, and the exit code of the report is 1."""
    file = lines(tmp_path / "c.jsonl", RUN, *events)
    fault = cell_of(file).fault
    assert fault.startswith(said.format(file=file)) if said else not fault
    assert cli.main(["report", str(file), "-q"]) == bool(said)
