"""The facts of one cell: its description, axes, toolchains, tags and environment."""

import pytest

from pytest_cudalink.matrix import Cell, select
from pytest_cudalink.matrix.cells import KEYS_VARIABLE, RunKeys
from pytest_cudalink.matrix.keys import CellValues


def made(name: str = "c", **values) -> Cell:
    return Cell(name, CellValues(**values), ())


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"description": "mine", "ctk": "13.0"}, "mine"),
        ({}, "no toolkit"),
        ({"ctk": "13.0", "source": "local"}, "CUDA 13.0, from a local folder"),
        ({"ctk": "13.0", "driver": "real", "gpu": True}, "CUDA 13.0, driver real, on a real GPU"),
        (
            {"ctk": "13.0", "driver": "12.9", "nvjitlink": "13.1", "backend": "driver", "python": "3.12"},
            "CUDA 13.0, emulated driver 12.9, nvJitLink 13.1, driver forced, Python 3.12",
        ),
        ({"ctk": "13.0", "hidden": ("/a", "/b")}, "CUDA 13.0, without /a, /b"),
    ],
)
def test_description(values: dict, words: str) -> None:
    """The cell's own text, or its values in words."""
    assert made(**values).description == words


def test_a_bare_cell_runs_its_steps_or_pytest() -> None:
    """Its run learns the imports and the command; that of pytest does not need them."""
    steps = made(kind="bare", imports=("a", "b"), command="python -m a")
    assert steps.tests == ("import::a", "import::b", "command::python -m a")
    assert made(kind="bare", imports=("a",)).tests == ("import::a",)
    suite = made(kind="bare", imports=("a",), command="pytest --pyargs a")
    assert [run_keys.program for run_keys in (steps, suite, made())] == ["the steps of the cell", "pytest", "pytest"]
    assert (steps.run_keys.imports, steps.run_keys.command) == (("a", "b"), "python -m a")
    assert (suite.run_keys.imports, suite.run_keys.command) == ((), "")
    assert "hidden" not in steps.axes


def test_keys_that_a_run_learns() -> None:
    """They come back from the environment as they were written; without them there are none."""
    environment = made(kind="bare", imports=("a",), command="x").environment("r")
    run_keys = RunKeys.read(environment)
    assert (run_keys.axes, run_keys.imports, run_keys.command) == ({"kind": "bare"}, ["a"], "x")
    assert RunKeys.read({}) == RunKeys.read({KEYS_VARIABLE: ""}) == RunKeys(axes={}, packages={})


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"driver": "real", "nvjitlink": "absent"}, ()),
        ({"nvjitlink": "12.9"}, (("12.9", "libs"),)),
        ({"driver": "13.0"}, (("13.0", "libs"),)),
        ({"source": "local", "local": "/opt"}, ()),
        ({"source": "local"}, ()),
        ({"source": "local", "ctk": "13.0"}, (("13.0", "ctk"),)),
    ],
)
def test_toolchains(values: dict, expected: tuple) -> None:
    """Those of an emulated driver, of another nvJitLink and of a local toolkit that no folder has."""
    assert made(**values).toolchains == expected


def test_variables_of_a_cell() -> None:
    """Keys in braces are filled in; other braces stay. Its place in the file does not distinguish a cell."""
    assert Cell("c", CellValues(), (), line=3) == Cell("c", CellValues(), (), line=4)
    env = {"A": "{ctk}-{nothing}-{gpu}", "B": "{}"}
    variables = made(ctk="13.0", gpu=True, env=env).environment("r")
    assert (variables["A"], variables["B"]) == ("13.0-{nothing}-{gpu}", "{}")


def test_tags_that_follow() -> None:
    """From what differs from the toolkit, what is forced, and the machine; a selection takes spaces and a "!"."""
    both = made("both", ctk="13.0", driver="13.1", nvjitlink="12.9", backend="nvjitlink")
    gpu = made("gpu", gpu=True, tags=("pu",))
    assert (both.tags, gpu.tags) == (("skew", "cross-major", "forced"), ("pu", "gpu"))
    assert (made(backend="each").tags, made(ctk="13.0", driver="13.1").tags) == ((), ("skew",))
    cells = [both, gpu, made("plain")]
    assert select(cells, " gpu , forced ") == [both, gpu]
    assert select(cells, ["pu", " "]) == [gpu]
    assert select(cells, " ") == cells
    assert select(cells, "!gpu") == [both, cells[2]]
    assert select(cells, " !gpu") == [both, cells[2]]
    assert select([gpu, made("one", tags=("y",))], "!y") == [gpu]
