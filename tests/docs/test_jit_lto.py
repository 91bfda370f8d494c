"""The page on JIT-LTO shows the figures beside it: its tables, its plots and what it claims."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

__all__ = ()

ROOT = Path(__file__).parents[2]
PLOTS = ("time", "code", "link")
#: How far LTO may be from the single source.
LTO_LIMIT = 0.02


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that makes the page."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import jit_lto_page

    return jit_lto_page


@pytest.fixture
def contents(made: ModuleType) -> list[dict[str, Any]]:
    """The figures of every device."""
    found = made.figures()
    assert found
    return found


def test_page_has_the_figures_of_the_data(made: ModuleType, contents: list[dict[str, Any]]) -> None:
    """Writing the generated parts again changes nothing, and a changed figure would change the page."""
    text = made.PAGE.read_text(encoding="utf-8")
    assert made.page(text, contents) == text
    row = contents[0]["kernels"]["gather"]["variants"][0]
    row["times"]["memory"]["median"] += 1.0
    assert made.page(text, contents) != text


@pytest.mark.parametrize("plot", PLOTS)
def test_plots_are_of_the_data(made: ModuleType, contents: list[dict[str, Any]], plot: str) -> None:
    """A plot carries the digest of its figures and the devices' names, and the page shows it with a description."""
    file, _label = made.PLOTS[plot]
    svg = (made.IMAGES / file).read_text(encoding="utf-8")
    assert made.digest(contents, plot) in svg
    assert [panel["title"] for panel in made.points(contents, plot) if panel["title"] not in svg] == []
    assert re.search(rf"!\[\w[^]]{{30,}}\]\(\.\./images/{re.escape(file)}\)", made.PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("plot", PLOTS)
def test_plots_are_drawn_the_same_again(made: ModuleType, contents: list[dict[str, Any]], plot: str) -> None:
    """Matplotlib of the same release draws the same bytes."""
    pytest.importorskip("matplotlib", reason="needs matplotlib: nox -s jit-lto")
    svg = (made.IMAGES / made.PLOTS[plot][0]).read_text(encoding="utf-8")
    if f"Matplotlib v{metadata.version('matplotlib')}" not in svg:
        pytest.skip("the plot was drawn by another release of matplotlib")
    assert made.draw(contents, plot) == svg


def test_lto_is_as_fast_as_the_single_source(made: ModuleType, contents: list[dict[str, Any]]) -> None:
    """On every device and release, LTO is within the limit, with the same instructions and no call."""
    for content in contents:
        assert not content["about"]["emulated"]
        assert len(list(made.linked_by_nvjitlink(content, "lto"))) == 12
        for name, kernel in content["kernels"].items():
            for row in kernel["variants"]:
                if (row["way"], row["linker"]) != ("lto", "nvjitlink"):
                    continue
                single = made.variant(content, name, row["release"], "single", "nvrtc")
                for size in made.SIZES:
                    assert abs(row["times"][size]["ratio_median"] - 1.0) <= LTO_LIMIT
                for figure in (*made.CODE, "code"):
                    assert row[figure] == single[figure]
                assert row["calls"] == 0


def test_other_links_keep_their_calls_and_cost_time(made: ModuleType, contents: list[dict[str, Any]]) -> None:
    """On every device and release, PTX and cubins leave calls, and no kernel is as fast as the single source."""
    for content in contents:
        for way in ("ptx", "cubin"):
            rows = list(made.linked_by_nvjitlink(content, way))
            assert len(rows) == 12
            assert all(row["calls"] > 0 for row in rows)
            assert all(row["times"][size]["ratio_median"] > 1.01 for row in rows for size in made.SIZES)


def test_what_the_text_says_holds(made: ModuleType, contents: list[dict[str, Any]]) -> None:
    """The sentences between the tables are true of the data of every device."""
    for content in contents:
        rows = [row for kernel in content["kernels"].values() for row in kernel["variants"]]
        refused = {(row["release"], row["way"]): row["refused"]["code"] for row in rows if "refused" in row}
        newer = {("13.2", "single"): 222, ("13.2", "ptx"): 222, ("13.2", "cubin"): 209}
        assert refused == {**newer, **{(release, "lto"): 221 for release in ("12.9", "13.0", "13.2")}}
        assert all(max(row["deviation"].values()) <= 1.0 for row in rows if "refused" not in row)
        # the images of this machine's links are those that were prepared
        assert all(row["same image"] and all(row["same image"].values()) for row in content["links"] if _ours(row))
        assert {row["linker"] for row in content["links"]} == {
            *("driver", "nvJitLink 12.9", "nvJitLink 13.0", "nvJitLink 13.2")
        }
        assert all((row["cache files"] > 0) == (row["cache"] != "off") for row in content["links"] if _compiles(row))
        assert all(row["cache files"] == 0 for row in content["links"] if row["kind"] == "cubin")
        old, new = (made.variant(content, "stencil", release, "cubin", "nvjitlink") for release in ("12.9", "13.0"))
        assert old["local bytes"] > new["local bytes"] == 0
        assert old["times"]["memory"]["median"] > new["times"]["memory"]["median"]
        single, driven = (made.variant(content, "stencil", "13.0", "single", linker) for linker in ("nvrtc", "driver"))
        assert driven["registers"] > single["registers"]
        assert driven["blocks per multiprocessor"] < single["blocks per multiprocessor"]
        assert all(row["times"][size]["ratio_median"] < 3 for row in rows if "times" in row for size in made.SIZES)


def test_machine_code_is_the_same_on_every_device(made: ModuleType, contents: list[dict[str, Any]]) -> None:
    """The table of the machine code holds for all devices, though it names the first."""
    tables = [made.code_table([content]).rpartition("\n\n")[0] for content in contents]
    assert len(set(tables)) == 1


def _ours(row: dict[str, Any]) -> bool:
    return bool(row["linker"] != "driver")


def _compiles(row: dict[str, Any]) -> bool:
    return bool(row["kind"] != "cubin")
