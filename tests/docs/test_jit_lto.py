"""The pages made by benchmarks show their figures: JIT-LTO with its tables and plots, and the comparisons."""

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "hardware" / "jit-lto.md"


def test_page_and_plots_have_the_figures_of_the_data(script) -> None:
    """A changed figure changes its table; a plot has the digest of its figures, and the page shows it, described."""
    made, page = script("benchmarks", "jit_lto_page"), PAGE.read_text(encoding="utf-8")
    contents = made.figures()
    assert {*re.findall(r"{generated} benchmarks.jit_lto_page (\S+)", page)} == made.blocks().keys()
    for plot, (file, _label) in made.PLOTS.items():
        svg = (made.IMAGES / file).read_text(encoding="utf-8")
        assert made.digest(contents, plot) in svg
        assert [panel["title"] for panel in made.points(contents, plot) if panel["title"] not in svg] == []
        assert re.search(rf"!\[\w[^]]{{30,}}\]\(\.\./images/{re.escape(file)}\)", page)
    row = contents[0]["kernels"]["gather"]["variants"][0]
    before = made.times_table(contents, "memory")
    row["times"]["memory"]["median"] += 1.0
    assert made.times_table(contents, "memory") != before


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
def test_verdicts(script, ours: dict[str, Any], theirs: dict[str, Any], verdict: str) -> None:
    """A side is ahead beyond the middle half of the rounds; one round decides large differences only."""
    page = script("benchmarks", "side_by_side")
    assert page.Comparison("case", "a", "b", ours, theirs).verdict == verdict


def test_times_have_three_digits(script) -> None:
    texts = {2.06e-9: "2.06 ns", 4.89e-4: "489 µs", 0.0932: "93.2 ms", 1.424: "1.42 s", 42.93: "42.9 s", 170: "170 s"}
    assert {seconds: script("benchmarks", "side_by_side").time_text(seconds) for seconds in texts} == texts
