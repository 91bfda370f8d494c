"""The cells of our own matrix that the gate runs, and the workflow that runs all of them."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from pytest_cudalink.matrix import load_cells
from pytest_cudalink.matrix.cells import Cell

ROOT = Path(__file__).parents[2]
GATE = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
CELLS = {cell.name: cell for cell in load_cells(ROOT / "matrices" / "cells.toml") if not cell.gpu}


def values(cells: list[Cell]) -> set[tuple[str, str]]:
    """Every axis with each of its values in some cells."""
    return {pair for cell in cells for pair in cell.axes.items()}


def test_the_gate_runs_every_value_of_each_axis() -> None:
    """Its cells are a part of the matrix that lacks no toolkit, driver, nvJitLink, backend, source or Python."""
    (names,) = re.findall(r"^wanted=\(\n(.*?)^\)", GATE, re.DOTALL | re.MULTILINE)
    wanted = names.split()
    assert len(wanted) == len(set(wanted)) < len(CELLS)
    assert values([CELLS[name] for name in wanted]) == values(list(CELLS.values()))


def test_the_whole_matrix_runs_on_schedule() -> None:
    """Every week, and when asked: all cells, each Python of theirs, and the plugin beside others on every pytest."""
    text = (ROOT / ".github" / "workflows" / "matrix.yml").read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    assert set(workflow[True]) == {"schedule", "workflow_dispatch"}  # YAML 1.1 reads "on" as true
    commands = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    (pythons,) = [one for one in commands if one.startswith("uv python install")]
    assert {cell.python for cell in CELLS.values() if cell.python} <= set(pythons.split())
    assert any(one.startswith("uv run --python 3.11 noxfile.py -s report") for one in commands)
    assert any(one.startswith("uv run --python 3.11 noxfile.py -s plugins") for one in commands)
