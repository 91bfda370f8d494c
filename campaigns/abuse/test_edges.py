"""A share of the campaigns at the edges of a process; ``nox -s abuse`` runs them longer."""

import subprocess
import sys
from pathlib import Path

import pytest

from .edges import EDGES

ROOT = Path(__file__).parents[2]
#: Rounds in which the fault that a campaign was written for shows in 99 of 100 runs.
ROUNDS = {"crash": 20, "nvml-forks": 40, "unloads": 4, "daemons": 10, "first-forks": 12}
ROUNDS["descendants"] = 4
SLOW = ("first-forks",)


@pytest.mark.parametrize(
    "scenario", [pytest.param(scenario, marks=[pytest.mark.slow] if scenario in SLOW else []) for scenario in EDGES]
)
def test_rounds_at_the_edges(scenario: str) -> None:
    """Each round of a campaign ends as it must, and none hangs."""
    command = [sys.executable, "-m", "campaigns.abuse", scenario, f"--inputs={ROUNDS[scenario]}", "--processes=1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
