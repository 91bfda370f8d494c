"""The page of comparisons shows all figures."""

from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def page(script) -> ModuleType:
    """The module that makes the page."""
    return script("benchmarks", "side_by_side")


def row(median: float, low: float, high: float, rounds: int = 9) -> dict[str, Any]:
    return {"table": "a", "name": "b", "median": median, "low": low, "high": high, "least": low, "rounds": rounds}


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        (row(2, 1.9, 2.1), row(1, 0.9, 1.1), "behind"),
        (row(1, 0.9, 1.1), row(2, 1.9, 2.1), "ahead"),
        (row(1, 0.9, 1.2), row(1.1, 1.0, 1.2), "even"),
        (row(1.05, 1.05, 1.05, 1), row(1, 1, 1, 1), "even"),
        (row(3, 3, 3, 1), row(1, 1, 1, 1), "behind"),
    ],
)
def test_verdicts(page, ours: dict[str, Any], theirs: dict[str, Any], verdict: str) -> None:
    """A side is ahead beyond the middle half of the rounds; one round decides large differences only."""
    assert page.Comparison("case", "a", "b", ours, theirs).verdict == verdict


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (2.06e-9, "2.06 ns"),
        (4.89e-4, "489 µs"),
        (0.0932, "93.2 ms"),
        (1.424, "1.42 s"),
        (42.93, "42.9 s"),
        (170, "170 s"),
    ],
)
def test_times_have_three_digits(page, seconds: float, text: str) -> None:
    assert page.time_text(seconds) == text
