"""What a runner gives to pytest when the user writes arguments after ``--``."""

from __future__ import annotations

import pytest

from pytest_cudalink import toolchains
from pytest_cudalink.matrix import load_cells, nox, runner
from pytest_cudalink.plugin.settings import OPTIONS
from pytest_cudalink.versions import CudaVersion


@pytest.fixture
def cell(tmp_path):
    """A cell with tests of its own, in a project that has the folder."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "slow").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "there.json").touch()
    (tmp_path / "cells.toml").write_text('[cells.a]\ntests = ["-n", "2", "tests"]\n')
    return load_cells(tmp_path / "cells.toml")[0]


@pytest.mark.parametrize(
    "given",
    [
        *([], ["-x"], ["-k", "link"], ["-k", "tests"], ["-m", "slow", "-x"], ["--maxfail", "1"], ["-n", "0"]),
        *(["--ignore", "tests/slow"], ["--deselect", "tests/a.py::b"], ["--ignore=tests/slow"], ["-rA", "-q"]),
        *(["--html", "out/a.html"], ["--benchmark-json", "out/there.json"], ["--of-a-plugin", "out/there.json", "-x"]),
        ["--cudalink-provenance", "slow"],
        *([option.flag, "out/there.json"] for option in OPTIONS if option.flag),
    ],
)
def test_options_are_added(given: list[str], cell, tmp_path) -> None:
    """Options and their values come after the cell's arguments, also where a value is the name of a folder."""
    assert runner.arguments(cell, given, tmp_path) == ["-n", "2", "tests", *given]


@pytest.mark.parametrize(
    "given",
    [
        *(["tests"], ["slow"], ["-x", "tests"], ["tests/nothing.py"], ["test_x.py::test_y"], ["-k", "a", "slow"]),
        *(["missing.py"], ["--lf", "slow"], ["--lf", "tests/nothing.py"], ["--maxfail=1", "slow/x"], ["../elsewhere"]),
    ],
)
def test_a_path_replaces(given: list[str], cell, tmp_path) -> None:
    """A path, also a misspelt one, is run instead of the cell's tests."""
    assert runner.arguments(cell, given, tmp_path) == given


class Session:
    """A nox session that notes what it is asked to do."""

    def __init__(self, *posargs: str) -> None:
        self.posargs = list(posargs)
        self.ran: list[tuple[str, ...]] = []
        self.said: list[str] = []

    def install(self, *_words: str) -> None:
        pass

    def run(self, *words: str, **_options: object) -> None:
        self.ran.append(words)

    def warn(self, text: str) -> None:
        self.said.append(text)

    def log(self, text: str) -> None:
        self.said.append(text)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], ("pytest", "-n", "2", "tests")),
        (["-x", "-k", "link"], ("pytest", "-n", "2", "tests", "-x", "-k", "link")),
        (["slow/test_a.py::test_b", "-x"], ("pytest", "slow/test_a.py::test_b", "-x")),
    ],
    ids=str,
)
def test_nox_passes_them(given, expected, cell, tmp_path, monkeypatch) -> None:
    """`nox -s CELL -- ARGS` runs the cell's tests with them, or the tests that they name."""
    pytest.importorskip("nox")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CUDALINK_MATRIX_JUDGE", raising=False)
    session = Session(*given)

    nox.run_cell(session, cell, tmp_path)

    assert session.ran == [expected]
    assert session.said == []


def test_a_cell_says_what_it_fetches(tmp_path, monkeypatch) -> None:
    """A toolchain that the cache lacks is named before it is fetched; one that is there is not."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDALINK_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cells.toml").write_text('[cells.a]\nctk = "13.0"\ndriver = "12.9"\n')
    (cell,) = load_cells(tmp_path / "cells.toml")
    added = []
    monkeypatch.setattr(toolchains, "add", lambda version, layout: added.append((version, layout)))
    session = Session()

    runner.prepare(cell, tmp_path, session.log)

    assert added == list(cell.toolchains)
    folder = tmp_path / "cache" / "toolchains" / "12.9"
    assert f"fetching the toolchain 12.9 (44 to 133 MB, once) into {folder}" in session.said
    there = toolchains.Toolchain(CudaVersion(12, 9), tmp_path, "libs", {})
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib64" / "libnvJitLink.so.12").touch()
    monkeypatch.setattr(toolchains, "find", lambda *_: there)
    runner.prepare(cell, tmp_path, pytest.fail)
