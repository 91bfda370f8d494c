"""The cells that could still run, and which of them tells causes apart."""

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_cudalink.matrix import load_cells
from pytest_cudalink.matrix.runner import paths
from pytest_cudalink.report.cell_run import CellRun
from pytest_cudalink.report.matrix_report import MatrixReport, Plan

ROOT = Path(__file__).parents[2]
TEST = "tests/cells/test_a.py::test"


def plan_of(file: Path) -> Plan:
    """The plan of a file of cells, as the command makes it."""
    cells = load_cells(file)
    return Plan({cell.name: cell.axes for cell in cells}, {cell.name: [*paths(cell.tests, ROOT)] for cell in cells})


def run(name: str, letter: str, *, status: int = 0, **axes: str) -> CellRun:
    """A finished run of a cell with one test."""
    axes = {"nvjitlink": axes["ctk"], "backend": "auto", "policy": "strict-major", "python": "3.11", **axes}
    return CellRun(name, axes=axes, finished=True, exitstatus=status, outcomes={TEST: letter})


def test_the_next_cell_of_our_own_matrix() -> None:
    """Three cells whose toolkit, driver and nvJitLink the failing one changed together: the file has one that tells."""
    report = MatrixReport(
        [
            run("ctk-13.0-driver-13.0", "P", ctk="13.0", driver="13.0"),
            run("ctk-13.0-driver-12.9", "P", ctk="13.0", driver="12.9"),
            run("ctk-13.2-driver-13.2", "F", ctk="13.2", driver="13.2"),
        ],
        plan=plan_of(ROOT / "matrices" / "cells.toml"),
    )
    words = "either ctk 13.2, or driver 13.2, or nvjitlink 13.2"
    (partial,) = report.partial
    assert partial.explanation == f"{words}; run ctk-13.0-driver-13.2 to tell"
    elsewhere = "tests/toolkit/test_a.py::test"  # no cell with a driver runs this folder
    cells = [replace(cell, outcomes={elsewhere: cell.outcomes[TEST]}) for cell in report.cells]
    (partial,) = MatrixReport(cells, plan=report.plan).partial
    assert partial.explanation == words


@pytest.mark.parametrize("letter", [".", "S", "F"])
def test_a_cell_that_was_interrupted_may_still_decide(letter) -> None:
    """A run that ended before the test is worth another; one that has its result, or skipped it, is not."""
    plan = Plan({"a": {"ctk": "1"}, "b": {"ctk": "2"}, "c": {"ctk": "2", "driver": "1"}})
    third = run("c", letter, status=2, ctk="2", driver="1")
    if letter == ".":
        third.outcomes.clear()
    cells = [run("a", "P", ctk="1", driver="1"), run("b", "F", ctk="2", driver="2"), third]
    words = "either ctk 2, or nvjitlink 2" if letter == "F" else "either ctk 2, or driver 2, or nvjitlink 2"
    (partial,) = MatrixReport(cells, plan=plan).partial
    assert partial.explanation == words + ("; run c to tell" if letter == "." else "")
    third.exitstatus = 0
    (partial,) = MatrixReport(cells, plan=plan).partial
    assert partial.explanation == words


def test_what_a_cell_would_be() -> None:
    """A value that the cell asks for counts; one that the machine chooses is that of the cells which asked alike."""
    plan = Plan(
        {
            "ran": {"ctk": "13.0", "driver": "auto", "nvjitlink": "auto", "backend": "auto"},
            "newest": {"ctk": "latest", "driver": "absent", "backend": "nvjitlink"},
            "another": {"ctk": "13.2", "driver": "auto", "nvjitlink": "auto", "backend": "auto"},
            "forced": {"ctk": "12.9", "driver": "auto", "nvjitlink": "absent", "backend": "driver", "python": "3.12"},
            "gpu": {"ctk": "13.0", "driver": "real"},
        }
    )
    ran = run("ran", "P", ctk="13.0", driver="none", arch="sm_90")
    assert Plan().lacking([ran]) == {}
    unread = CellRun("a", finished=True, unread=True, damage=["has format 2"])  # it did run
    assert list(Plan({"a": {}, "b": {}}).lacking([unread])) == ["b"]
    lacking = plan.lacking([ran, run("strange", "P", ctk="13.0", backend="driver")])
    alike = {"policy": "strict-major", "arch": "sm_90", "python": "3.11"}
    assert lacking == {
        "newest": {"driver": "none", "backend": "nvjitlink", **alike},
        "another": {"ctk": "13.2", "driver": "none", "nvjitlink": "13.2", "backend": "auto", **alike},
        "forced": alike | plan.axes["forced"] | {"driver": "12.9", "nvjitlink": "none"},
        "gpu": {"ctk": "13.0", "nvjitlink": "13.0", **alike},
    }


@pytest.mark.parametrize(
    ("arguments", "runs"),
    [
        *((words.split(), True) for words in ("", "tests", "tests/cells/", "-n auto tests/cells/test_a.py", TEST)),
        *((words.split(), True) for words in ("-k link", "--html tests/toolkit -n auto -x", "-x tests/cells")),
        (["tests/toolkit", "tests/cells"], True),
        *((words.split(), False) for words in ("-x tests/toolkit", "tests/cell", "tests/cells/test_a.py::tes")),
    ],
)
def test_which_tests_a_cell_runs(arguments, runs, tmp_path) -> None:
    """A folder, a file or a test that pytest is given; a cell that gives it nothing but options runs all."""
    assert Plan({"a": {}}, {"a": [*paths(arguments, tmp_path)]}).runs("a", TEST) is runs
    assert Plan({"a": {}}).runs("a", TEST)


def test_axes_that_only_some_cells_have() -> None:
    """A cell that does not ask for a package lacks it; a word stands for what another cell got for it."""
    plan = Plan(
        {
            "old": {"ctk": "13.0", "numpy": "lowest", "kind": "bare", "hidden": "yes"},
            "again": {"ctk": "13.0", "numpy": "lowest", "kind": "bare", "hidden": "yes"},
            "exact": {"ctk": "13.0", "numpy": "1.26.4"},
            "range": {"ctk": "13.0", "numpy": "1.*"},
            "plain": {"ctk": "13.0", "resolution": "lowest"},
        }
    )
    further = {"numpy": "1.20.0", "kind": "bare", "hidden": "mount namespace"}
    lacking = plan.lacking([run("old", "P", ctk="13.0", driver="none", **further)])
    shown = {name: {key: values.get(key) for key in (*further, "resolution")} for name, values in lacking.items()}
    assert shown == {
        "again": {**further, "resolution": None},
        "exact": {"numpy": "1.26.4", "kind": "none", "hidden": "none", "resolution": None},
        "range": {"numpy": None, "kind": "none", "hidden": "none", "resolution": None},
        "plain": {"numpy": "none", "kind": "none", "hidden": "none", "resolution": "lowest"},
    }
