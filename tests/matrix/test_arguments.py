"""What a runner gives to pytest when the user writes arguments after ``--``."""

from __future__ import annotations

import pytest

from pytest_cudalink.matrix import load_cells, runner


@pytest.fixture
def cell(tmp_path):
    """A cell with tests of its own, in a project that has the folder."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "slow").mkdir()
    (tmp_path / "cells.toml").write_text('[cells.a]\ntests = ["-n", "2", "tests"]\n')
    return load_cells(tmp_path / "cells.toml")[0]


@pytest.mark.parametrize(
    "given",
    [
        *([], ["-x"], ["-k", "link"], ["-k", "tests"], ["-m", "slow", "-x"], ["--maxfail", "1"], ["-n", "0"]),
        *(["--ignore", "tests/slow"], ["--deselect", "tests/a.py::b"], ["--ignore=tests/slow"], ["-rA", "-q"]),
    ],
)
def test_options_are_added(given: list[str], cell, tmp_path) -> None:
    """Options and their values come after the cell's arguments, also where a value is the name of a folder."""
    assert runner.arguments(cell, given, tmp_path) == ["-n", "2", "tests", *given]


@pytest.mark.parametrize(
    "given",
    [
        *(["tests"], ["slow"], ["-x", "tests"], ["tests/nothing.py"], ["test_x.py::test_y"], ["-k", "a", "slow"]),
        *(["missing.py"], ["--lf", "slow"], ["../elsewhere"]),
    ],
)
def test_a_path_replaces(given: list[str], cell, tmp_path) -> None:
    """A path, also a misspelt one, is run instead of the cell's tests."""
    assert runner.arguments(cell, given, tmp_path) == given
