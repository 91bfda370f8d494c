"""Tests that several records of one cell have."""

from __future__ import annotations

from pytest_cudalink.report.cell_run import CellRun
from pytest_cudalink.report.merge import joined


def test_tests_of_several_records() -> None:
    """Those with one outcome are counted; the others have each outcome with its files, or the number of the record."""
    first = CellRun("c", ["a.jsonl", "b.jsonl"], outcomes={"same": "P", "other": "F", "alone": "P"}, repeated=2)
    second, third = CellRun("c", outcomes={"same": "P", "new": "S"}), CellRun("c", outcomes={"same": "P", "other": "P"})
    found = joined([first, second, third])
    assert found.outcomes == {"same": "P", "other": "P", "alone": "P", "new": "S"}
    assert found.differing == {"other": [["F", "a.jsonl, b.jsonl"], ["P", "record 3"]]}
    assert found.repeated == 3


def test_a_single_record_repeats_nothing() -> None:
    """What a saved report says of its cells stays."""
    only = CellRun("c", outcomes={"a": "P"}, differing={"a": [["F", "x"], ["P", "y"]]}, repeated=2)
    assert joined([only]) == only
