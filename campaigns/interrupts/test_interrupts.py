"""A share of the walk, and that the walk sees what is left behind."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from campaigns.interrupts import walk
from campaigns.interrupts.__main__ import allowed
from pytest_cudalink import toolchains

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
held: list[int] = []


def acquire() -> int:
    held.append(1)
    return 1


def careless() -> None:
    """Take, and give back only after the ``try`` has begun."""
    one = acquire()
    try:
        repr(one)
    finally:
        held.clear()


def careful() -> None:
    """Give back whatever was taken, and again where that was interrupted."""
    try:
        acquire()
        held.clear()
    except BaseException:
        held.clear()
        raise


@pytest.mark.parametrize(("run", "left"), [(careless, True), (careful, False)])
def test_the_walk_sees_what_is_left(monkeypatch, run: Callable[[], None], left: bool) -> None:
    """A handle that is noted after the call that made it is lost where a signal can arrive."""
    monkeypatch.setattr(walk, "_WALKED", (__file__,))
    found = walk.Walk(run, lambda: {"held": list(held)}, lambda: None, held.clear)
    count, signals = found.count()
    for number in range(count):
        assert found.at(number)
    assert 0 < found.signals == len(signals) < found.walked == count
    assert any(place.signal for place, _ in found.failures) is left


@pytest.fixture
def campaign(toolkit) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run ``python -m campaigns.interrupts`` with arguments."""
    toolchains.add(str(toolkit))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "campaigns.interrupts", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    return run


@pytest.mark.weekly
def test_nothing_is_left_behind(campaign) -> None:
    """Bytecodes of every scenario, the same ones in every run; ``nox -s interrupts`` walks all of them."""
    done = campaign("--points=5")
    assert done.returncode == 0, done.stdout + done.stderr
    walked = re.findall(r"^[\w-]+: (\d+) of \d+ bytecodes", done.stdout, re.MULTILINE)
    assert sum(map(int, walked)) > 120


@pytest.mark.weekly
def test_signals_at_random_times(campaign) -> None:
    """Real signals arrive where no tracing raises: inside calls of the libraries."""
    done = campaign("--signals=30")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing was left behind" in done.stdout


def test_every_place_has_a_reason() -> None:
    """Each line of allowed.txt stands below a reason."""
    assert allowed()
    assert all(allowed().values())
