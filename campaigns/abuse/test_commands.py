"""Mutated files are what they say, and a round with them sees what goes wrong."""

import json
import sys

import pytest

from pytest_cudalink.report import merge, text

from .commands import try_round
from .records import CELLS, RECORDS, SAVED, mutated

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
def test_a_failure_is_named_by_its_input(fault, monkeypatch) -> None:
    """The round fails, and says by which input."""

    def faulty(*_):
        if fault == "raises":
            raise KeyError(fault)
        return "a\x1b"

    monkeypatch.setattr(merge, "_PARALLEL_FROM", sys.maxsize)
    monkeypatch.setattr(text, "markdown", faulty)
    with pytest.raises((KeyError, AssertionError)) as raised:
        try_round(1)
    assert raised.value.__notes__ == ["input 0 of seed 1, alone"]
