"""The page on JIT-LTO shows the figures beside it: its tables and its plots."""

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "hardware" / "jit-lto.md"
PLOTS = ("time", "code", "link")


@pytest.fixture
def made(script) -> ModuleType:
    """The module that makes the page."""
    return script("benchmarks", "jit_lto_page")


@pytest.fixture
def contents(made: ModuleType) -> list[dict[str, Any]]:
    """The figures of every device."""
    figures = made.figures()
    assert figures
    return figures


def test_page_has_the_figures_of_the_data(made: ModuleType, contents: list[dict[str, Any]]) -> None:
    """The page has each table that the figures make, and a changed figure changes its table."""
    shown = re.findall(r"{generated} benchmarks.jit_lto_page (\S+)", PAGE.read_text(encoding="utf-8"))
    assert set(shown) == made.blocks().keys()
    row = contents[0]["kernels"]["gather"]["variants"][0]
    before = made.times_table(contents, "memory")
    row["times"]["memory"]["median"] += 1.0
    assert made.times_table(contents, "memory") != before


@pytest.mark.parametrize("plot", PLOTS)
def test_plots_are_of_the_data(made: ModuleType, contents: list[dict[str, Any]], plot: str) -> None:
    """A plot carries the digest of its figures and the devices' names, and the page shows it with a description."""
    file, _label = made.PLOTS[plot]
    svg = (made.IMAGES / file).read_text(encoding="utf-8")
    assert made.digest(contents, plot) in svg
    assert [panel["title"] for panel in made.points(contents, plot) if panel["title"] not in svg] == []
    assert re.search(rf"!\[\w[^]]{{30,}}\]\(\.\./images/{re.escape(file)}\)", PAGE.read_text(encoding="utf-8"))
