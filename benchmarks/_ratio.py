"""Time two ways of doing the same, in turn within one run, so that a busy machine slows both."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial


def in_turn(ours: Callable[[], float], theirs: Callable[[], float], rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of both in each round, after one round that is not counted; they take turns in going first."""
    ours(), theirs()
    first, second = [], []
    for number in range(rounds):
        pair = ((ours, first), (theirs, second)) if number % 2 else ((theirs, second), (ours, first))
        for measure, times in pair:
            times.append(measure())
    return first, second


def _timed(prepare: Callable[[], Callable[[], object]]) -> float:
    action = prepare()
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def ratio(
    ours: Callable[[], Callable[[], object]], theirs: Callable[[], Callable[[], object]], rounds: int
) -> tuple[float, float, float]:
    """Least seconds of `ours` and of `theirs`, and the quotient of the two.

    The quotient is the smaller of two: the quotient of the least times, and the median of the quotients of the rounds.
    A busy machine raises one of them; code that became slower raises both.

    Both functions are called in every round, untimed, and return the action that is timed.
    """
    first, second = in_turn(partial(_timed, ours), partial(_timed, theirs), rounds)
    quotients = [a / b for a, b in zip(first, second, strict=True)]
    best = min(first), min(second)
    return *best, min(best[0] / best[1], statistics.median(quotients))


def report(name: str, ours: float, theirs: float, quotient: float, limit: float) -> bool:
    """Print one line; return whether the limit holds."""
    ok = quotient <= limit
    mark = "ok  " if ok else "FAIL"
    print(f"{mark} {name}: {ours * 1e3:.2f} ms against {theirs * 1e3:.2f} ms, ratio {quotient:.3f} (limit {limit})")
    return ok
