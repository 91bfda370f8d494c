"""The walk sees what is left behind, and each place of its list has a reason."""

from collections.abc import Callable

import pytest

from campaigns.interrupts import walk
from campaigns.interrupts.__main__ import allowed

pytestmark = pytest.mark.slow
held: list[int] = []


def acquire() -> int:
    held.append(1)
    return 1


def careless() -> None:
    """Take, and give back only after the ``try`` has begun."""
    acquired = acquire()
    try:
        repr(acquired)
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
    walked = walk.Walk(run, lambda: {"held": list(held)}, lambda: None, held.clear)
    count = walked.count()
    for number in range(count):
        assert walked.at(number)
    assert 0 < walked.signals < walked.walked == count
    assert any(place.signal for place, _ in walked.failures) is left


def test_every_place_has_a_reason() -> None:
    """Each line of allowed.txt stands below a reason."""
    assert allowed()
    assert all(allowed().values())
