"""The matrix of a workflow: the Python and the machine of each cell."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from pytest_cudalink import cli
from pytest_cudalink.matrix import CellsError, ci, load_cells


def python_of(folder: Path, requires: str) -> str:
    """The Python of the cells of a project."""
    (folder / "pyproject.toml").write_text(f"[project]\nrequires-python = {json.dumps(requires)}\n")
    return ci.default_python(folder)


@pytest.mark.parametrize(
    ("requires", "python"),
    [
        *((text, "3.12") for text in ("", ">=3.8", ">=3.11,<4", ">=3.12.4", "~=3.12", ">3.11", "!=3.12.1")),
        *((text, "3.13") for text in (">=3.13", "~=3.13.2", "==3.13.*", ">=3.11,!=3.12.*")),
        *((text, "3.11") for text in ("<3.12", "~=3.11.0", ">=3.9,<3.12", "<=3.12,>3.11.2")),
        (">=3.14", "3.14"),
        (">=3.15", "3.15"),
        ("==3.12.4", "3.12.4"),
        (">=3.12,<3.12.6", "3.12.5"),
        ("==3.13", "3.13.0"),
    ],
)
def test_python(requires: str, python: str, tmp_path) -> None:
    """3.12 where the project allows it, else the nearest newer one, else 3.11."""
    assert python_of(tmp_path, requires) == python


@pytest.mark.parametrize("requires", ["<3.11", "==3.10.*", ">=4", "<3.12,>=3.12", "==2.7.*"])
def test_no_python(requires: str, tmp_path) -> None:
    """A project that no Python of the plugin can install is refused with its requirement."""
    with pytest.raises(CellsError) as raised:
        python_of(tmp_path, requires)
    assert str(raised.value) == (
        f"{tmp_path}/pyproject.toml: requires-python is {requires!r}; expected a range with Python 3.11 or newer, "
        "which the plugin needs; widen it"
    )


def test_unreadable(tmp_path) -> None:
    """A file that is not TOML, or has no range of versions, is named; without a file every Python is allowed."""
    assert ci.default_python(tmp_path) == "3.12"
    for text in ("[", '[project]\nrequires-python = "3.13"\n', "[project]\nrequires-python = 3.13\n"):
        (tmp_path / "pyproject.toml").write_text(text)
        with pytest.raises(CellsError, match=re.escape(str(tmp_path / "pyproject.toml"))):
            ci.default_python(tmp_path)


VERSIONS = st.builds(
    lambda minor, patch: f"3.{minor}" if patch is None else f"3.{minor}.{patch}",
    st.integers(8, 16),
    st.none() | st.integers(0, 12),
)
CLAUSES = st.builds(
    lambda operator, version: operator + version, st.sampled_from([">=", "<=", "<", ">", "!="]), VERSIONS
)


@given(st.lists(CLAUSES, max_size=3))
def test_python_is_allowed(tmp_path_factory, clauses: list[str]) -> None:
    """Whatever the range: the chosen Python satisfies it, and where none is chosen, no release does."""
    requires = ",".join(clauses)
    allowed = SpecifierSet(requires)
    try:
        python = python_of(tmp_path_factory.mktemp("python"), requires)
    except CellsError:
        assert not [1 for minor in range(11, 31) for patch in range(40) if f"3.{minor}.{patch}" in allowed]
        return
    # a minor version is installed as its newest patch release
    assert (python if python.count(".") == 2 else f"{python}.99") in allowed


CELLS = """
[defaults]
python = "3.11"
[cells.a]
[cells.g]
gpu = true
[cells.own]
gpu = true
runs-on = ["mine"]
"""


def rows(folder: Path, *options: str, capsys) -> dict[str, dict]:
    """What the workflow's command prints, by cell."""
    assert cli.main(["matrix", "github", "--file", str(folder / "cells.toml"), *options]) == 0
    return {row["cell"]: row for row in json.loads(capsys.readouterr().out)["include"]}


def test_machines(tmp_path, capsys) -> None:
    """Cells on a GPU go to the named machine, unless they name theirs; the others never do."""
    (tmp_path / "cells.toml").write_text(CELLS)
    given_labels = rows(tmp_path, "--gpu-runner", "self-hosted, gpu, ,", capsys=capsys)
    assert {name: row["runs-on"] for name, row in given_labels.items()} == {
        "a": ["ubuntu-latest"],
        "g": ["self-hosted", "gpu"],
        "own": ["mine"],
    }
    for options in ((), ("--gpu-runner", "")):
        assert rows(tmp_path, *options, capsys=capsys)["g"]["runs-on"] == ["ubuntu-latest"]


def test_pythons_of_cells(tmp_path, capsys, monkeypatch) -> None:
    """A cell's Python comes first; the project's range decides for the others, and does not count if there are none."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "cells.toml"
    file.write_text('[cells.a]\n[cells.b]\npython = "3.14t"\n')
    (tmp_path / "pyproject.toml").write_text('[project]\nrequires-python = ">=3.13"\n')
    assert {name: row["python"] for name, row in rows(tmp_path, capsys=capsys).items()} == {"a": "3.13", "b": "3.14t"}
    (tmp_path / "pyproject.toml").write_text('[project]\nrequires-python = "<3.11"\n')
    assert cli.main(["matrix", "github", "--file", str(file)]) == 1
    assert "pyproject.toml: requires-python is '<3.11'; expected a range with Python 3.11" in capsys.readouterr().err
    file.write_text('[cells.b]\npython = "3.11"\n')
    assert rows(tmp_path, capsys=capsys)["b"]["python"] == "3.11"


MANY = """
[defaults]
python = "3.11"
ctk = "12.9"
[cells.a]
tags = ["x", "y"]
description = "the first"
nvjitlink = "12.9"
[cells.b]
tags = ["y", "z"]
nvjitlink = "12.8"
[cells.c]
nvjitlink = "12.9"
[cells.d]
[cells.g]
gpu = true
[cells.own]
gpu = true
runs-on = ["mine"]
"""


@pytest.mark.parametrize(
    ("jobs", "cells"),
    [
        (6, ["a", "b", "c", "d", "g", "own"]),
        (5, ["a,c", "b,d", "g", "own"]),
        (4, ["a,b,c,d", "g", "own"]),
        (3, ["a,b,c,d", "g", "own"]),
    ],
)
def test_jobs(jobs: int, cells: list[str], tmp_path) -> None:
    """Each cell has a job while there are enough, then cells of one machine share it; a job says what it needs."""
    (tmp_path / "cells.toml").write_text(MANY)
    made = ci.github_matrix(load_cells(tmp_path / "cells.toml"), tmp_path, "gpu", jobs)["include"]
    assert [row["cell"] for row in made] == cells
    expected = {"cell": cells[0], "python": "3.11", "gpu": False, "tags": ["x", "y"], "runs-on": ["ubuntu-latest"]}
    expected |= {"description": "the first" if jobs == 6 else "2 cells", "toolchains": "12.9"}
    if jobs < 5:
        expected |= {"tags": ["x", "y", "z", "skew"], "description": "4 cells", "toolchains": "12.9-12.8"}
    assert made[0] == expected
    assert [row["runs-on"] for row in made[-2:]] == [["gpu"], ["mine"]]


def test_too_few_jobs(tmp_path) -> None:
    """Cells of two machines never share a job; a long cell has one of its own."""
    (tmp_path / "cells.toml").write_text(MANY)
    cells = load_cells(tmp_path / "cells.toml")
    with pytest.raises(CellsError) as raised:
        ci.github_matrix(cells, tmp_path, "gpu", 2)
    assert str(raised.value) == (
        "the cells need 3 kinds of machines and Pythons, and may have 2 jobs; select some with --tags or --shard"
    )
    made = ci.github_matrix(cells, tmp_path, "gpu", 5, {"a": 1, "b": 1, "c": 1, "d": 9})["include"]
    assert [row["cell"] for row in made] == ["d", "a,b,c", "g", "own"]
    assert ci.github_matrix(cells, tmp_path)["include"][4]["runs-on"] == ["ubuntu-latest"]
