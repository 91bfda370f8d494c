"""The campaign itself, in a form that takes seconds: its inputs are what they say, and it sees what goes wrong."""

import json

import pytest

from campaigns.mutated_records.__main__ import campaign, try_batch
from campaigns.mutated_records.mutations import CELLS, RECORDS, SAVED, mutated
from pytest_cudalink.report import text

pytestmark = pytest.mark.slow


def test_the_same_seed_gives_the_same_inputs() -> None:
    first, again, other = ([mutated(seed, number) for number in range(300)] for seed in (1, 1, 2))
    assert first == again != other
    assert {kind for kind, _ in first} == {"record", "saved", "cells"}
    sound = {*RECORDS, *SAVED, *CELLS}
    assert sum(data not in sound for _, data in first) > 280


def test_the_samples_are_sound() -> None:
    """So that every fault is one of a mutation."""
    for record in RECORDS:
        assert {json.loads(line)["event"] for line in record.splitlines()} >= {"run", "start", "link", "test"}
    assert json.loads(SAVED[0])["format"] == "cudalink-report"


@pytest.mark.parametrize("fault", ["raises", "obeyed"])
def test_a_finding_is_named_by_its_input(fault, monkeypatch, capsys) -> None:
    """The campaign fails, and says which input it was."""

    def faulty(*_):
        if fault == "raises":
            raise KeyError(fault)
        return "a\x1b"

    monkeypatch.setattr(text, "markdown", faulty)
    _, findings = try_batch(1, [1, 2])
    assert [text.splitlines()[0] for text in findings] == ["input 1 of seed 1:", "input 2 of seed 1:"]


def test_a_campaign_prints_its_counts(capsys) -> None:
    assert campaign(8, 1, 1)
    out = capsys.readouterr().out
    assert out.startswith("8 mutated inputs, seed 1, ")
    assert "records: named as damaged: " in out
