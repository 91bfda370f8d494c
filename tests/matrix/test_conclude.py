"""The runners of cells conclude: nox and tox add to a record how its pytest ended, and fail where it died."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from pytest_cudalink.cli import main
from pytest_cudalink.matrix import CellsError, load_cells
from pytest_cudalink.report import read

nox = pytest.importorskip("nox")
tox = pytest.importorskip("tox")

from nox.command import CommandFailed  # noqa: E402
from tox.tox_env.errors import Fail  # noqa: E402

from pytest_cudalink.matrix import nox as our_nox  # noqa: E402
from pytest_cudalink.matrix import tox as our_tox  # noqa: E402
from tests.report.samples import write  # noqa: E402

CELLS = '[cells.one]\nctk = "13.0"\ntests = ["test_it.py"]\n'
#: How the test of a cell ends its process, with the exit code that the runner sees.
ENDS = {"abort": ("os.abort()", -signal.SIGABRT), "exit": ("os._exit(0)", 0), "green": ("pass", 0)}


def failure(code: int) -> CommandFailed:
    """The error of a command, as this release of nox raises it."""
    said = f"Returned code {code}"
    return CommandFailed(said, return_code=code) if hasattr(CommandFailed(), "return_code") else CommandFailed(said)


class Session:
    """A session of nox that installs nothing, runs pytest for real, and keeps what is said."""

    posargs = ()

    def __init__(self, run) -> None:
        self.pytest, self.warned = run, []

    def install(self, *_: str) -> None:
        """Install nothing."""

    def run(self, _program: str, *arguments: str, env: dict[str, str], stderr: int) -> None:
        """Run pytest as nox does: an exit code other than 0 is an error."""
        assert stderr > 0
        if code := self.pytest(arguments, env):
            raise failure(code)

    def log(self, words: str) -> None:
        """Say nothing of what goes on."""

    def warn(self, words: str) -> None:
        """Keep a warning."""
        self.warned.append(words)

    def skip(self, words: str) -> None:
        """Say in the summary that the session was skipped."""
        self.warned.append(words)

    def error(self, words: str) -> None:
        """Fail the session."""
        raise AssertionError(words)


@pytest.fixture
def run(run_pytest):
    """Run pytest with the variables of a cell, and return its exit code."""

    def with_variables(arguments, env) -> int:
        with pytest.MonkeyPatch.context() as patch:
            for name in [name for name in os.environ if name.startswith("CUDALINK_")]:
                patch.delenv(name)
            for name, value in env.items():
                patch.setenv(name, value)
            return run_pytest(*arguments).ret

    return with_variables


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


def crashes(cell, folder):
    """Return the record's crashes."""
    record = cell.environment(folder / our_nox.runner.RECORDS)["CUDALINK_REPORT"]
    return [(one.nodeid, one.signal or one.exitcode) for one in read(record).crashes]


@pytest.mark.parametrize("judged", [False, True])
@pytest.mark.parametrize("end", ENDS)
def test_nox(pytester, run, cell, monkeypatch, end, judged) -> None:
    """A session whose pytest died fails, or leaves that to the report; the record names the test."""
    pytester.path.joinpath("test_it.py").write_text(f"import os\ndef test(): {ENDS[end][0]}\n")
    if judged:
        monkeypatch.setenv("CUDALINK_MATRIX_JUDGE", "1")
    session = Session(run)
    if end == "green" or judged:
        our_nox.run_cell(session, cell, pytester.path)
    else:
        with pytest.raises((CommandFailed, AssertionError)) as caught:
            our_nox.run_cell(session, cell, pytester.path)
        said = [*session.warned, str(caught.value)]
        assert any("pytest was killed by SIGABRT" in one or "pytest ended with exit code 0" in one for one in said)
    if judged:
        assert [one for one in session.warned if one.startswith("RED: ")] == session.warned[-(end != "green") :]
    expected = {"abort": [("test_it.py::test", "SIGABRT")], "exit": [("test_it.py::test", 0)], "green": []}
    assert crashes(cell, pytester.path) == expected[end]


@pytest.mark.parametrize("end", ENDS)
def test_tox(pytester, run, cell, monkeypatch, end) -> None:
    """An environment whose pytest died fails with the words of the record, also where the exit code is 0."""
    pytester.path.joinpath("test_it.py").write_text(f"import os\ndef test(): {ENDS[end][0]}\n")
    monkeypatch.setattr(our_tox, "_cells", lambda: [cell])
    environment = SimpleNamespace(name=cell.name, core={"tox_root": pytester.path})
    our_tox.tox_before_run_commands(environment)
    code = run((), cell.environment(pytester.path / our_nox.runner.RECORDS))
    assert code == ENDS[end][1]
    request = SimpleNamespace(cmd=["python", "-m", "pytest"])
    outcomes = [SimpleNamespace(exit_code=code, request=request, out="", err="")]
    if end == "green":
        our_tox.tox_after_run_commands(environment, outcomes)
        assert crashes(cell, pytester.path) == []
        return
    with pytest.raises(Fail, match="SIGABRT" if end == "abort" else "exit code 0"):
        our_tox.tox_after_run_commands(environment, outcomes)
    assert [nodeid for nodeid, _ in crashes(cell, pytester.path)] == ["test_it.py::test"]


BARE = '[cells.one]\nkind = "bare"\nimports = ["m"]\npackages = { m = "1.0" }\n[cells.two]\nhidden = ["/opt/cuda*"]\n'


class Recorded:
    """A session of nox that keeps its calls."""

    posargs = ()

    def __init__(self) -> None:
        self.calls: list[tuple] = []

    def log(self, words: str) -> None:
        """Say nothing of what goes on."""

    def warn(self, words: str) -> None:
        """Say nothing of what does not fit."""

    def install(self, *arguments: str) -> None:
        """Keep what is installed."""
        self.calls.append(arguments)

    def run(self, *arguments: str, **options) -> None:
        """Keep what is run."""
        self.calls.append((*arguments, options.get("external")))


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A project with a bare cell and one that hides something, whose versions are chosen without uv."""
    (tmp_path / "cells.toml").write_text(BARE)
    monkeypatch.delenv("CUDALINK_MATRIX_JUDGE", raising=False)
    monkeypatch.setattr(our_nox.runner, "resolve", lambda cell, root: None)
    return load_cells(tmp_path / "cells.toml")


def test_nox_runs_bare_and_hiding_cells(tmp_path, bare) -> None:
    """The wheel with constraints and nothing else, steps by nox's own Python; pytest behind what hides."""
    one, two = Recorded(), Recorded()
    our_nox.run_cell(one, bare[0], tmp_path)
    constraints = str(tmp_path / ".cudalink" / "one.requirements.txt")
    assert one.calls == [
        (str(tmp_path), "-c", constraints),
        (sys.executable, "-m", "pytest_cudalink.cli.bare_cell", True),
    ]
    our_nox.run_cell(two, bare[1], tmp_path)
    assert two.calls[1] == ("python", "-m", "pytest_cudalink.matrix", "pytest", None)


def test_tox_runs_bare_and_hiding_cells(tmp_path, bare) -> None:
    """The same, as settings of tox, which refuses a program of another environment unless it is allowed."""
    one, two = (our_tox._settings(cell, tmp_path, None) for cell in bare)
    assert (one["package"], one["deps"], one["allowlist_externals"]) == ("wheel", [], [sys.executable])
    assert one["commands"][0].args == [sys.executable, "-m", "pytest_cudalink.cli.bare_cell"]
    assert two["commands"][0].args == ["python", "-m", "pytest_cudalink.matrix", "pytest"]
    assert "allowlist_externals" not in two


def test_tox_chooses_versions_once(tmp_path, bare, monkeypatch) -> None:
    """Before the first installation, and a failure is that of the environment."""
    chosen = []
    monkeypatch.setattr(our_tox, "_cells", lambda: bare)
    monkeypatch.setattr(our_tox._Project, "resolved", set())
    monkeypatch.setattr(our_tox.runner, "resolve", lambda cell, root: chosen.append(cell.name))
    environment = SimpleNamespace(name="one", core={"tox_root": tmp_path})
    our_tox.tox_on_install(environment)
    our_tox.tox_on_install(environment)
    assert chosen == ["one"]

    def refuse(cell, root) -> None:
        raise CellsError(["no such version"])

    monkeypatch.setattr(our_tox.runner, "resolve", refuse)
    with pytest.raises(Fail, match="no such version"):
        our_tox.tox_on_install(SimpleNamespace(name="two", core={"tox_root": tmp_path}))


class Program(Session):
    """A session of nox that runs a program in place of pytest."""

    def __init__(self, program: str) -> None:
        super().__init__(None)
        self.program = program

    def run(self, *_: str, env: dict[str, str], stderr: int) -> None:
        """Run the program; fail as nox does."""
        done = subprocess.run([sys.executable, "-c", self.program], env=os.environ | env, stderr=stderr, check=False)
        if done.returncode:
            raise failure(done.returncode)


DIES = "import sys; print('\\x1b[31mno conftest\\x1b[0m\\n\\nE  no module', file=sys.stderr); sys.exit(4)"
#: Leaves a process behind that has its stderr, and tells which.
LEAVES = "import os, time; child = os.fork(); os.write(2, str(child).encode()) if child else time.sleep(600)"


def report(folder, capfd) -> tuple[int, str]:
    """Return exit code and text of the plain report."""
    code = main(["report", str(folder / ".cudalink")])
    return code, capfd.readouterr().out


@pytest.mark.parametrize("judged", [False, True])
def test_nox_before_the_first_test(pytester, run, cell, monkeypatch, capfd, judged) -> None:
    """The plain report is red and names the cell, with exit code and last lines, until a run has a record."""
    if judged:
        monkeypatch.setenv("CUDALINK_MATRIX_JUDGE", "1")
    session = Program(DIES)
    if judged:
        our_nox.run_cell(session, cell, pytester.path)
        assert session.warned == ["RED: pytest ended with exit code 4"]
    else:
        with pytest.raises(CommandFailed):
            our_nox.run_cell(session, cell, pytester.path)
    assert "no conftest\x1b[0m\n\nE  no module\n" in capfd.readouterr().out
    code, text = report(pytester.path, capfd)
    assert code == 1
    assert "1 cell did not run" in text
    assert "one   no records: pytest ended with exit code 4: no conftest | E no module\n" in text
    pytester.path.joinpath("test_it.py").write_text("def test(): pass\n")
    our_nox.run_cell(Session(run), cell, pytester.path)
    capfd.readouterr()
    assert report(pytester.path, capfd)[0] == 0


def test_nox_is_interrupted(pytester, cell, capfd) -> None:
    """A run whose end nobody saw is red, too."""
    session = Program("")
    session.install = interrupt
    with pytest.raises(KeyboardInterrupt):
        our_nox.run_cell(session, cell, pytester.path)
    code, text = report(pytester.path, capfd)
    assert code == 1
    assert "one   no records: its run began, and nothing says how it ended\n" in text


def interrupt(*_: str) -> None:
    """Behave as nox when the user presses Ctrl+C."""
    raise KeyboardInterrupt


def test_a_process_that_is_left_behind(pytester, cell, capfd) -> None:
    """It keeps nobody waiting, although it can still write to stderr."""
    our_nox.run_cell(Program(LEAVES), cell, pytester.path)
    os.kill(int(capfd.readouterr().out), signal.SIGKILL)
    assert "pytest ended with exit code 0: " in report(pytester.path, capfd)[1]


def test_tox_before_the_first_test(pytester, cell, monkeypatch, capfd) -> None:
    """The same, from the output that tox keeps."""
    monkeypatch.setattr(our_tox, "_cells", lambda: [cell])
    monkeypatch.setattr(our_tox._Project, "began", set())
    environment = SimpleNamespace(name=cell.name, core={"tox_root": pytester.path})
    our_tox.tox_before_run_commands(environment)
    request = SimpleNamespace(cmd=["pytest"])
    our_tox.tox_after_run_commands(environment, [SimpleNamespace(exit_code=4, request=request, out="", err="no\nE")])
    code, text = report(pytester.path, capfd)
    assert code == 1
    assert "one   no records: pytest ended with exit code 4: no | E\n" in text


def test_tox_cannot_make_the_environment(pytester, cell, monkeypatch, capfd) -> None:
    """A record of an earlier run does not stand for a run that never began."""
    monkeypatch.setattr(our_tox, "_cells", lambda: [cell])
    monkeypatch.setattr(our_tox._Project, "began", set())
    write(pytester.path / ".cudalink", "one", {"a": "passed"})
    assert report(pytester.path, capfd)[0] == 0
    environment = SimpleNamespace(name=cell.name, core={"tox_root": pytester.path})
    with pytest.raises(SystemExit):
        end(environment)
    code, text = report(pytester.path, capfd)
    assert code == 1
    assert "one   no records: its environment could not be made; `tox -e one` shows why\n" in text


def end(environment) -> None:
    """Behave as tox where pip fails: it exits, and tears the environment down on its way."""
    try:
        sys.exit(1)
    finally:
        our_tox.tox_env_teardown(environment)
