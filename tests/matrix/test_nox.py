"""The sessions of nox for cells: what each installs and runs, and what is said of one that fails."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

nox = pytest.importorskip("nox")

from nox.command import CommandFailed  # noqa: E402

from pytest_cudalink.cli import main  # noqa: E402
from pytest_cudalink.matrix import CellsError, load_cells  # noqa: E402
from pytest_cudalink.matrix import nox as ours  # noqa: E402
from pytest_cudalink.report import read  # noqa: E402
from pytest_cudalink.toolchains import ToolchainError  # noqa: E402
from tests.nested import NO_AUTOLOAD  # noqa: E402

CELLS = '[cells.a]\npython = "3.12"\ntags = ["t"]\n[cells.b]\ngpu = true\n'
BARE = 'kind = "bare"\nimports = ["m"]\npackages = { m = "1" }'


def failure(code: int) -> CommandFailed:
    """The error of a command, as this release of nox raises it."""
    said = f"Returned code {code}"
    return CommandFailed(said, return_code=code) if hasattr(CommandFailed(), "return_code") else CommandFailed(said)


class Session:
    """A session that keeps what it is asked, and fails where it must."""

    def __init__(self, *posargs: str, **errors: BaseException) -> None:
        self.posargs, self.errors = posargs, errors
        self.asked: list[tuple[object, ...]] = []

    def __getattr__(self, name: str):
        def ask(*words: object, **options: object) -> None:
            self.asked.append((name, *words, *([options] if options else [])))
            if name in self.errors:
                raise self.errors[name]

        return ask


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A project of two cells, one of which needs a GPU; the variables of nox are not set."""
    for name in ("CUDALINK_CELLS", "CUDALINK_MATRIX_JUDGE", "CUDALINK_REQUIREMENT", "NOXSESSION"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cells.toml").write_text(CELLS)
    (tmp_path / "pyproject.toml").write_text('[dependency-groups]\ntest = ["x>1", "y"]\n')
    return tmp_path


@pytest.fixture
def defined(monkeypatch) -> dict[str, tuple[dict, object]]:
    """The options and functions of the sessions that a noxfile defines, besides that of its own, ``lint``."""
    sessions: dict[str, tuple[dict, object]] = {}

    def session(*, allow_parallel=None, **options):
        chosen = options if allow_parallel is None else {**options, "allow_parallel": allow_parallel}
        return lambda function: sessions.update({chosen.pop("name"): (chosen, function)})

    monkeypatch.setattr(nox, "session", session)
    monkeypatch.setattr(nox.registry, "get", lambda: {"lint": None})
    monkeypatch.setattr(nox.options, "error_on_missing_interpreters", True)
    monkeypatch.setattr(sys, "argv", ["nox", "-l"])
    return sessions


def test_sessions_of_a_file(project, defined, monkeypatch) -> None:
    """One for each cell, which knows it, and one that reports on those without a GPU."""
    worked: list[object] = []
    monkeypatch.setattr(ours, "run_cell", lambda session, **known: worked.append((session, known)))
    monkeypatch.setattr(ours, "_report", lambda session, **known: worked.append((session, known)))
    cells = ours.sessions("cells.toml")
    assert [cell.name for cell in cells] == ["a", "b"]
    assert {name: options for name, (options, _) in defined.items()} == {
        "a": {"python": "3.12", "tags": ["t"], "default": False, "allow_parallel": True},
        "b": {"python": None, "tags": ["gpu"], "default": False, "allow_parallel": False},
        "report": {"requires": ["a"], "default": False},
    }
    words = {name: function.__doc__ for name, (_, function) in defined.items()}
    merged = "Run every cell that needs no GPU, then merge the records of all into one report."
    assert words == {"a": cells[0].description, "b": cells[1].description, "report": merged}
    for name, (_, function) in defined.items():
        function(name)
    assert worked == [
        *((cell.name, {"cell": cell, "root": project}) for cell in cells),
        ("report", {"cells": [cells[0]], "root": project, "path": project / "cells.toml"}),
    ]
    assert nox.options.error_on_missing_interpreters is True
    assert "CUDALINK_MATRIX_JUDGE" not in os.environ


def test_sessions_as_a_noxfile_wants_them(project, defined, monkeypatch) -> None:
    """Another file, without a report, run by default, on a nox that does not know `allow_parallel`."""
    monkeypatch.setattr(nox, "session", lambda *, name, **options: lambda function: defined.update({name: options}))
    monkeypatch.setenv("CUDALINK_CELLS", "cells.toml")
    ours.sessions(report=None, default=True, root="..")
    assert {name: options["default"] for name, options in defined.items()} == {"a": True, "b": True}
    assert "allow_parallel" not in defined["a"]


@pytest.mark.parametrize(
    ("arguments", "variable", "asked"),
    [
        (["-sreport"], "", True),
        (["-s", "a", "report"], "", True),
        (["--session=report"], "", True),
        (["-s", "a", "--", "report"], "", False),
        ([], "a,report", True),
        (["reports"], "", False),
    ],
)
def test_the_report_judges(project, defined, monkeypatch, arguments, variable, asked) -> None:
    """Where it is asked for, a cell that fails or has no Python does not stop nox; an outer nox has said when."""
    monkeypatch.setattr(sys, "argv", ["nox", *arguments])
    if variable:
        monkeypatch.setenv("NOXSESSION", variable)
    began = time.time()
    ours.sessions("cells.toml")
    assert nox.options.error_on_missing_interpreters is not asked
    assert ("CUDALINK_MATRIX_JUDGE" in os.environ) is asked
    if asked:
        assert began <= float(os.environ["CUDALINK_MATRIX_JUDGE"]) <= time.time()
        monkeypatch.setenv("CUDALINK_MATRIX_JUDGE", "7")
        ours.sessions("cells.toml")
        assert os.environ["CUDALINK_MATRIX_JUDGE"] == "7"


@pytest.mark.parametrize(
    ("content", "report", "words"),
    [
        (None, "r", "cudalink: No such file or directory: cells.toml; `cudalink init` writes one"),
        ("[cell]", "r", "cells.toml:1: cell: unknown key; did you mean 'cells'?"),
        ("[cells.a]", "lint", "the session 'lint' of the noxfile has the name of the one that merges the records; c"),
        ("[cells.lint]", "r", "cells.toml: the cell 'lint' has the name of another session of the noxfile; rename"),
        ("[cells.a]\n[cells.r]", "r", "cells.toml: the cell 'r' has the name of another session of the noxfile; re"),
    ],
)
def test_a_file_that_cannot_be_used(project, defined, content, report, words) -> None:
    """The text for the user ends nox."""
    if content is None:
        (project / "cells.toml").unlink()
    else:
        (project / "cells.toml").write_text(content)
    with pytest.raises(SystemExit) as caught:
        ours.sessions("cells.toml", report=report)
    assert str(caught.value).startswith(words)


@pytest.fixture
def run(project, monkeypatch):
    """Run the session of a cell with these keys: what the session was asked, what was concluded, and the note."""

    def run_cell(keys: str, session: Session, said: str = "", *, judged: bool = False, choose: object = None):
        (project / "cells.toml").write_text(f"[cells.a]\n{keys}\n")
        (cell,) = load_cells(project / "cells.toml")
        concluded: list[object] = []

        @contextmanager
        def copied(end: bytearray):
            end += b"\xff end"
            yield 7

        def choose_versions(*words: object) -> None:
            concluded.append(words == (cell, project, session.warn) or words[:2] == (cell, project))
            if choose is not None:
                raise choose

        def conclude(*words: object) -> str:
            concluded.append(words[2:])
            return said

        monkeypatch.setattr(ours.runner, "choose_versions", choose_versions)
        monkeypatch.setattr(ours.runner, "prepare", lambda cell, root, say: say("fetches") or {"V": "1"})
        monkeypatch.setattr(ours.runner, "copied", copied)
        monkeypatch.setattr(ours.runner, "conclude", conclude)
        monkeypatch.setattr(ours.runner, "newest", lambda *_: "")
        if judged:
            monkeypatch.setenv("CUDALINK_MATRIX_JUDGE", "1")
        try:
            ours.run_cell(session, cell, project)
        except CommandFailed:
            concluded.append("raised")
        return session.asked, concluded, ours.runner.notes([project])["a"]

    return run_cell


BEGAN = "its run began, and nothing says how it ended"
INSTALLS = ("install", "-e", "{root}", "pytest-cudalink")
HOW = {"env": {"V": "1"}, "stdout": 7, "stderr": 7}
STEPS = ("run", sys.executable, "-m", "pytest_cudalink.cli.bare_cell", {"external": True, **HOW})
PINS = "{root}/.cudalink/a.requirements.txt"
END = (True, (0, "\ufffd end"))


@pytest.mark.parametrize(
    ("keys", "installs", "runs"),
    [
        ('tests = ["t"]\ngroups = ["test"]\npackages = ["z"]\nresolution = "lowest"',
         (*INSTALLS, "x>1", "y", "z", "-r", PINS), ("run", "pytest", "t", "-x", HOW)),
        (BARE, ("install", "{root}", "-c", PINS), STEPS),
        ('install = "none"\nhidden = ["/opt/c*"]', ("install", "pytest-cudalink"),
         ("run", "python", "-m", "pytest_cudalink.matrix", "pytest", "-x", HOW)),
    ],
)  # fmt: skip
def test_a_cell_that_passes(run, project, keys, installs, runs) -> None:
    """What is installed, fetched and run, in this order."""
    asked, concluded, note = run(keys, Session("-x"))
    assert asked == [tuple(word.format(root=project) for word in installs), ("log", "fetches"), runs]
    assert (tuple(concluded), note) == (END, BEGAN)


def test_a_cell_that_exits_with_0_in_a_test(run, project) -> None:
    """It fails with what was concluded, or is red; a cell that the report judges, none on a GPU, takes no arguments."""
    (project / "pyproject.toml").unlink()
    assert run("", Session("-x"), "died")[0][-1] == ("error", "died")
    asked, *_ = run("", Session("-x"), "died", judged=True)
    assert (asked[2][1:-1], asked[3]) == (("pytest",), ("skip", "RED: died"))
    assert run("gpu = true", Session("-x"), "died", judged=True)[0][-1] == ("error", "died")


@pytest.mark.parametrize(
    ("error", "keys", "how", "concluded"),
    [
        (failure(3), "", "pytest ended with exit code 3", (3, "\ufffd end")),
        (failure(-6), BARE, "the steps of the cell was killed by SIGABRT", (-6, "\ufffd end")),
        (CommandFailed("no such program"), "", "pytest ended with no such program", None),
        (CommandFailed(None), "", "pytest ended with an error", None),
    ],
)
def test_a_command_that_fails(run, error, keys, how, concluded) -> None:
    """The note says how, and how to see why; what was concluded is a warning; a judged session is skipped."""
    for judged, said in ((False, "died"), (False, ""), (True, "died")):
        asked, verdicts, note = run(keys, Session(run=error), said, judged=judged)
        asked = [call for call in asked if call[0] not in ("install", "run", "log")]
        warned = [("warn", "died")] if concluded and said else []
        assert asked == [*warned, *([("skip", f"RED: {how}")] if judged else [])]
        assert verdicts == [True, *([concluded] if concluded else []), *([] if judged else ["raised"])]
        assert note == f"{how}; `nox -s a` shows why"


def test_an_installation_that_fails(run) -> None:
    """Where the plugin was not found the note says how to name another; nothing is concluded."""
    asked, verdicts, note = run("", Session(install=failure(1)))
    assert (asked[1][0], verdicts, note) == ("warn", [True, "raised"], asked[1][1])
    assert note.startswith("the plugin cannot be installed into the cell a: 'pytest-cudalink' is not found")
    asked, verdicts, note = run(BARE, Session(install=failure(1)), judged=True)
    assert asked[1:] == [("skip", "RED: the installation ended with exit code 1")]
    assert (verdicts, note) == ([True], "the installation ended with exit code 1; `nox -s a` shows why")


@pytest.mark.parametrize("error", [CellsError(["no such version"]), ToolchainError("no network"), OSError("no space")])
def test_what_cannot_be_made(run, error) -> None:
    """The note and the session have the words of the error."""
    assert run("", Session(), choose=error) == ([("error", str(error))], [True], str(error))


def test_a_group_that_is_missing(run, project) -> None:
    words = f"{project / 'pyproject.toml'} lacks a dependency group of the cell a; expected no, such"
    assert run('groups = ["no", "such"]', Session())[0] == [("error", words)]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SimpleNamespace(return_code=5, reason="Returned code 3"), 5),
        (SimpleNamespace(reason="Returned code -6"), -6),
        (SimpleNamespace(reason="Killed"), None),
        (SimpleNamespace(reason=None), None),
    ],
)
def test_exit_codes_of_each_nox(error, code) -> None:
    """Older ones have them in the sentence alone."""
    assert ours._exit_code(error) == code


def test_the_report(project, monkeypatch) -> None:
    """It names the cells that did not run, leaves what older runs left, and installs the plugin or its checkout."""
    (project / "cells.toml").write_text("[cells.old]\n[cells.noted]\n[cells.python]\n[cells.began]\n")
    cells = load_cells(project / "cells.toml")
    folder = project / ".cudalink"
    folder.mkdir()
    (folder / "old.jsonl").touch()
    os.utime(folder / "old.jsonl", (5, 5))
    (folder / "noted.missing.txt").write_text("why")
    python = {"old": "", "python": "no Python", "began": ""}
    monkeypatch.setattr(ours.runner, "python_missing", lambda cell: python[cell.name])
    session = Session("--html", "x")
    ours._report(session, cells[:1], project, project / "cells.toml")
    assert (folder / "old.jsonl").exists()
    monkeypatch.setenv("CUDALINK_MATRIX_JUDGE", "6")
    ours._report(session, cells, project, project / "cells.toml")
    asked = [
        ("install", "pytest-cudalink", "rich", "jinja2"),
        (
            *("run", "cudalink", "report", str(folder), "--cells", str(project / "cells.toml"), "--tags", "!gpu"),
            *("--html", "x"),
        ),
    ]
    assert session.asked == asked * 2
    assert ours.runner.notes([folder]) == {
        "old": "it did not run; `nox -s old` shows why",
        "noted": "why",
        "python": "no Python",
        "began": "it did not run; `nox -s began` shows why",
    }
    (project / "pyproject.toml").write_text('[project]\nname = "pytest-cudalink"')
    ours._report(session, [], project, project / "cells.toml")
    assert session.asked[-2] == ("install", str(project), "rich", "jinja2")


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
DIES = "import sys; print('\\x1b[31mno conftest\\x1b[0m\\n\\nE  no module', file=sys.stderr); sys.exit(4)"


def test_how_real_runs_end(pytester, monkeypatch, capfd) -> None:
    """A pytest that died before its tests leaves a note, one that died in a test a crash; the report is red for both.

    `test_runner` has other ends.
    """
    pytester.path.joinpath("cells.toml").write_text('[cells.one]\nctk = "13.0"\ntests = ["test_it.py"]\n')
    (cell,) = load_cells("cells.toml")
    records = ours.runner.RECORDS
    monkeypatch.setattr(ours.runner, "prepare", lambda cell, root, _say: cell.environment(root / records))
    monkeypatch.delenv("CUDALINK_MATRIX_JUDGE", raising=False)

    def reported(session: Program, text: str | None = None) -> tuple[int, str, list[object]]:
        """The exit code and text of the plain report after a run, and its warnings; before, what the run printed."""
        pytester.makepyfile(test_it=text or "")
        ended = pytest.raises(CommandFailed) if text != "def test(): pass" else nullcontext()
        with ended:
            ours.run_cell(session, cell, pytester.path)
        printed = capfd.readouterr().out
        code = main(["report", str(pytester.path / records)])
        return code, printed + capfd.readouterr().out, [str(words[1]) for words in session.asked if words[0] == "warn"]

    code, text, _ = reported(Program("-c", DIES))
    assert "no conftest\x1b[0m\n\nE  no module\n" in text
    assert (code, "1 cell did not run" in text) == (1, True)
    assert "one   no records: pytest ended with exit code 4: no conftest | E no module\n" in text
    code, _, (warned,) = reported(Program(*PYTEST), "import os\ndef test(): os.abort()")
    assert (code, warned.partition(";")[0]) == (1, "pytest was killed by SIGABRT (test_it.py::test)")
    crashes = read(cell.environment(pytester.path / records)["CUDALINK_REPORT"]).crashes
    assert [(crash.nodeid, crash.signal) for crash in crashes] == [("test_it.py::test", "SIGABRT")]
    assert reported(Program(*PYTEST), "def test(): pass")[0] == 0
