"""The campaign itself: it must see a death, a hang and an unknown error, and go on behind them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from campaigns.abuse.mutations import mutated, subjects

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]

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


def run(tmp_path: Path, deed: str, hang: int = 60, seconds: int = 600) -> subprocess.CompletedProcess[str]:
    """Run a campaign of 12 inputs in two processes, each of which does `deed` for each input."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(deed=deed, seconds=seconds), encoding="utf-8")
    env = {"PYTHONPATH": str(ROOT), "CUDALINK_ABUSE_HANG": str(hang)}
    return subprocess.run([sys.executable, program], capture_output=True, text=True, check=False, env=env)


@pytest.mark.parametrize(
    ("deed", "seconds", "said"),
    [
        ("pass", 600, "12 accepted"),
        ("pass", 0, "10 not tried, 2 accepted"),
        ("os._exit(1)", 0, "10 not tried, 2 signal"),
    ],
)
def test_seconds(tmp_path: Path, deed: str, seconds: int, said: str) -> None:
    """However slow a machine is, each process tries an input."""
    done = run(tmp_path, deed, seconds=seconds)
    assert (done.returncode, done.stderr) == (deed != "pass", "")
    assert f"cubin: {said}\n" in done.stdout


@pytest.mark.parametrize(
    ("deed", "said"),
    [
        ("next(tried) != 3 or os.kill(os.getpid(), 11)", r"cubin: 10 accepted, 2 signal\n(.*\n)+.*ended with -11"),
        ("next(tried) != 3 or time.sleep(60)", r"cubin: 10 accepted, 2 hang\n(.*\n)+.*hung"),
        ("next(tried) != 3 or 1 / 0", r"cubin: 10 accepted, 2 unexpected\n"),
        ("next(tried) != 5 or os._exit(1)", r"cubin: 10 accepted, 2 signal\n"),
    ],
    ids=["signal", "hang", "unexpected", "exit"],
)
def test_a_failure_is_seen_and_the_rest_is_tried(tmp_path: Path, deed: str, said: str) -> None:
    done = run(tmp_path, deed, hang=6 if "sleep" in deed else 60)
    assert done.returncode == 1
    assert re.search(said, done.stdout), done.stdout + done.stderr


def test_the_same_seed_gives_the_same_inputs() -> None:
    chosen = subjects()
    kinds = {subject.kind for subject in chosen}
    assert kinds == {"cubin", "ptx", "ltoir", "fatbin", "object", "library"}
    first, again, other = (
        [(subject.name, data) for _, subject, data in mutated(chosen, seed, range(200))] for seed in (1, 1, 2)
    )
    assert first == again != other
    assert sum(data != next(s.data for s in chosen if s.name == name) for name, data in first) > 190
