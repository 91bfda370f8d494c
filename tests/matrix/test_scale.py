"""The section on a thousand cells has the measured figures and the published prices."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "side-by-side.md"


@pytest.fixture(scope="module")
def scale():
    """The benchmark as a module."""
    specification = importlib.util.spec_from_file_location("cudalink_scale", ROOT / "benchmarks" / "scale.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_tables(scale) -> None:
    """The page has each table that the figures make."""
    text = PAGE.read_text(encoding="utf-8")
    assert [one for one in scale.blocks() if f"{{generated}} benchmarks.scale {one}\n" not in text] == []


def test_figures_in_sentences(scale) -> None:
    """The sentences have the figures of the file."""
    found, text = scale.figures(), " ".join(PAGE.read_text(encoding="utf-8").split())
    report = found["report"]
    assert f"merges them in {report['merge_s']} s" in text
    assert f"in {report['page_s']} s; its largest process takes {report['memory_mb']} MB" in text
    assert (
        f"{found['cell']['cold_install_s']} s with an empty cache of uv, and {found['cell']['warm_install_s']} s"
        in text
    )


def test_prices_name_their_source(scale) -> None:
    """The page has each price with its source and the day on which it was read."""
    text, prices = PAGE.read_text(encoding="utf-8"), scale.figures()["prices"]
    assert f"${prices['github_linux_2_minute']} for Linux" in text
    assert text.count(f"read {prices['read']}") == 1
