"""The campaign itself: it must see a death, a hang and an unknown error, and go on behind them."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_cudalink.report import merge, text

from . import records
from .commands import try_round
from .edges import EDGES
from .mutations import mutated, subjects

ROOT = Path(__file__).parents[2]
#: Rounds in which the fault that a campaign was written for shows in 99 of 100 runs.
ROUNDS = {"crash": 20, "nvml-forks": 40, "unloads": 4, "daemons": 10, "descendants": 4, "first-forks": 12}
PROGRAM = """\
import os, sys, time
from campaigns.abuse import __main__ as abuse
from campaigns.abuse.scenarios import Outcome, Scenario

def prepare():
    tried = iter(range(1000))
    def use(subject, data):
        {deed}
        return Outcome.ACCEPTED
    return use

abuse.SCENARIOS["faulty"] = Scenario("faulty", frozenset({{"cubin"}}), prepare, emulated=False)
if any(one.startswith("--child") for one in sys.argv):
    sys.exit(abuse.main())
sys.exit(not abuse.campaign("faulty", 12, 1, 2, (__file__,), seconds={seconds}))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("deed", "seconds", "said"),
    [
        ("pass", 600, "12 accepted\n"),
        # however slow a machine is, each process tries an input
        ("pass", 0, "10 not tried, 2 accepted\n"),
        ("os._exit(1)", 0, "10 not tried, 2 signal\n"),
        ("next(tried) != 3 or os.kill(os.getpid(), 11)", 600, r"10 accepted, 2 signal\n(.*\n)+.*ended with -11"),
        ("next(tried) != 3 or time.sleep(60)", 600, r"10 accepted, 2 hang\n(.*\n)+.*hung"),
        ("next(tried) != 3 or 1 / 0", 600, r"10 accepted, 2 unexpected\n"),
        ("next(tried) != 5 or os._exit(1)", 600, r"10 accepted, 2 signal\n"),
    ],
    ids=["sound", "no-time", "no-time-exit", "signal", "hang", "unexpected", "exit"],
)
def test_a_failure_is_seen_and_the_rest_is_tried(tmp_path: Path, deed: str, seconds: int, said: str) -> None:
    """Of 12 inputs in two processes, each of which does the deed for each input."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(deed=deed, seconds=seconds), encoding="utf-8")
    env = {"PYTHONPATH": str(ROOT), "CUDALINK_ABUSE_HANG": "6" if "sleep" in deed else "60"}
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False, env=env)
    assert done.returncode == (deed != "pass")
    assert re.search(f"cubin: {said}", done.stdout), done.stdout + done.stderr
    assert "Traceback" in done.stderr if "1 / 0" in deed else not done.stderr


@pytest.mark.slow
def test_the_same_seed_gives_the_same_inputs() -> None:
    """Of every kind, and few of them as they were."""
    chosen = subjects()
    assert {subject.kind for subject in chosen} == {"cubin", "ptx", "ltoir", "fatbin", "object", "library"}
    first, again, other = (
        [(subject.name, data) for _, subject, data in mutated(chosen, seed, range(200))] for seed in (1, 1, 2)
    )
    assert first == again != other
    assert sum(data != next(s.data for s in chosen if s.name == name) for name, data in first) > 190

    files, again, other = ([records.mutated(seed, number) for number in range(300)] for seed in (1, 1, 2))
    assert files == again != other
    assert {kind for kind, _ in files} == {"record", "saved", "cells"}
    assert sum(data not in {*records.RECORDS, *records.SAVED, *records.CELLS} for _, data in files) > 280


@pytest.mark.slow
def test_the_samples_are_sound() -> None:
    """So that every fault is one of a mutation."""
    for record in records.RECORDS:
        assert {json.loads(line)["event"] for line in record.splitlines()} >= {"run", "start", "link", "test"}
    assert json.loads(records.SAVED[0])["format"] == "cudalink-report"


@pytest.mark.slow
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


@pytest.mark.parametrize(
    "scenario", [pytest.param(name, marks=[pytest.mark.slow] if name == "first-forks" else []) for name in EDGES]
)
def test_rounds_at_the_edges(scenario: str) -> None:
    """Each round of a campaign ends as it must, and none hangs; `nox -s abuse` runs them longer."""
    command = [sys.executable, "-m", "campaigns.abuse", scenario, f"--inputs={ROUNDS[scenario]}", "--processes=1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
