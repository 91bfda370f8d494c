"""The runners of cells conclude: they add to a record how its pytest ended, and fail where it died; here nox does."""

import os
import subprocess
import sys

import pytest

from pytest_cudalink.cli import main
from pytest_cudalink.matrix import load_cells
from pytest_cudalink.report import read

nox = pytest.importorskip("nox")

from nox.command import CommandFailed  # noqa: E402

from pytest_cudalink.matrix import nox as our_nox  # noqa: E402
from tests.matrix.test_nox import Session, failure  # noqa: E402
from tests.nested import NO_AUTOLOAD  # noqa: E402

CELLS = '[cells.one]\nctk = "13.0"\ntests = ["test_it.py"]\n'


@pytest.fixture
def cell(pytester, monkeypatch):
    """Make a project of one cell; return the cell with the function that writes its test."""
    path = pytester.path / "cells.toml"
    path.write_text(CELLS)
    (cell,) = load_cells(path)
    monkeypatch.setattr(
        our_nox.runner, "prepare", lambda cell, root, _say: cell.environment(root / our_nox.runner.RECORDS)
    )
    monkeypatch.delenv("CUDALINK_MATRIX_JUDGE", raising=False)
    return cell


class Program(Session):
    """A session of nox that runs one program in place of the cell's, and fails as nox does."""

    def __init__(self, *command: str) -> None:
        super().__init__()
        self.command = [sys.executable, *command]

    def run(self, *_: str, env: dict[str, str], stdout: int | None, stderr: int) -> None:
        """Run the program; an exit code other than 0 is an error."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("CUDALINK_")}
        done = subprocess.run(self.command, env=clean | env | NO_AUTOLOAD, stderr=stderr, check=False)
        if done.returncode:
            raise failure(done.returncode)


PYTEST = ("-m", "pytest", "-p", "cudalink", "-q", "test_it.py")


def test_nox(pytester, cell) -> None:
    """A session whose pytest died fails, and the record names the test; `test_runner` has other ends."""
    pytester.path.joinpath("test_it.py").write_text("import os\ndef test(): os.abort()\n")
    session = Program(*PYTEST)
    with pytest.raises(CommandFailed):
        our_nox.run_cell(session, cell, pytester.path)
    (warned,) = (message[1] for message in session.asked if message[0] == "warn")
    assert str(warned).startswith("pytest was killed by SIGABRT (test_it.py::test)")
    record = cell.environment(pytester.path / our_nox.runner.RECORDS)["CUDALINK_REPORT"]
    assert [(crash.nodeid, crash.signal) for crash in read(record).crashes] == [("test_it.py::test", "SIGABRT")]


DIES = "import sys; print('\\x1b[31mno conftest\\x1b[0m\\n\\nE  no module', file=sys.stderr); sys.exit(4)"


def report(folder, capfd) -> tuple[int, str]:
    """Return exit code and text of the plain report."""
    code = main(["report", str(folder / ".cudalink")])
    return code, capfd.readouterr().out


def test_nox_before_the_first_test(pytester, cell, capfd) -> None:
    """The plain report is red and names the cell, with exit code and last lines, until a run has a record."""
    with pytest.raises(CommandFailed):
        our_nox.run_cell(Program("-c", DIES), cell, pytester.path)
    assert "no conftest\x1b[0m\n\nE  no module\n" in capfd.readouterr().out
    code, text = report(pytester.path, capfd)
    assert code == 1
    assert "1 cell did not run" in text
    assert "one   no records: pytest ended with exit code 4: no conftest | E no module\n" in text
    pytester.path.joinpath("test_it.py").write_text("def test(): pass\n")
    our_nox.run_cell(Program(*PYTEST), cell, pytester.path)
    capfd.readouterr()
    assert report(pytester.path, capfd)[0] == 0
