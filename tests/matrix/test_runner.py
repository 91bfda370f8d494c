"""What nox, tox and CI share: how a cell is installed and run, with which arguments, and what is said of its end."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

from pytest_cudalink import toolchains
from pytest_cudalink.compat.settings_table import OPTIONS
from pytest_cudalink.matrix import CellsError, load_cells, runner
from pytest_cudalink.report import read
from pytest_cudalink.report import records as rec
from pytest_cudalink.versions import CudaVersion

PROJECT = """[project]
name = "p"
dependencies = ["one>=1.1", "one<9", "two", "nvidia-x"]
optional-dependencies = { late = ["two>=0.2"] }
"""
BARE = 'kind = "bare"\nimports = ["m"]\nhidden = []\n'


@pytest.fixture
def cell_of(tmp_path, monkeypatch):
    """Make a cell of the project in this folder: ``cell_of("ctk = '13.0'")``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CUDALINK_REQUIREMENT", raising=False)
    (tmp_path / "pyproject.toml").write_text(PROJECT)

    def make(keys: str = ""):
        (tmp_path / "cells.toml").write_text(f"[cells.a]\n{keys}\n")
        return load_cells(tmp_path / "cells.toml")[0]

    return make


#: Arguments that name what is to be run.
PATHS = [
    *(["tests"], ["slow"], ["-x", "tests"], ["tests/nothing.py"], ["test_x.py::test_y"], ["-k", "a", "slow"]),
    *(["missing.py"], ["--lf", "slow"], ["--lf", "tests/nothing.py"], ["--maxfail=1", "slow/x"], ["../elsewhere"]),
    *(["--lf", "x::y"], ["x::y"]),
]


@pytest.mark.parametrize(
    "options",
    [
        *PATHS,
        *([], ["-x"], ["-k", "link"], ["-k", "tests"], ["-m", "slow", "-x"], ["--maxfail", "1"], ["-n", "0"]),
        *(["--ignore", "tests/slow"], ["--deselect", "tests/a.py::b"], ["--ignore=tests/slow"], ["-rA", "-q"]),
        *(["--html", "out/a.html"], ["--benchmark-json", "out/there.json"], ["--of-a-plugin", "out/there.json", "-x"]),
        *(["--cudalink-provenance", "slow"], ["word"]),
        *([option.flag, "out/there.json"] for option in OPTIONS if option.flag),
    ],
)
def test_options_are_added_and_a_path_replaces(options: list[str], cell_of, tmp_path) -> None:
    """Options and their values come after the cell's arguments, also where a value is the name of a folder.

    A path, also a misspelt one, is run instead of the cell's tests.
    """
    for name in ("tests", "slow", "out"):
        (tmp_path / name).mkdir()
    (tmp_path / "out" / "there.json").touch()
    cell = cell_of('tests = ["-n", "2", "tests"]')
    assert runner.arguments(cell, options, tmp_path) == [*([] if options in PATHS else ["-n", "2", "tests"]), *options]


STEPS = [sys.executable, "-m", "pytest_cudalink.cli.bare_cell"]


@pytest.mark.parametrize(
    ("keys", "program", "install", "variables"),
    [
        ("", ["pytest", "-x"], ["-e", "{root}"], set()),
        ('install = "wheel"\nextras = ["b", "a"]', ["pytest", "-x"], ["{root}[b,a]"], set()),
        ('install = "none"\nresolution = "lowest"', ["pytest", "-x"], [], set()),
        ('hidden = ["/opt/c*"]', ["python", "-m", "pytest_cudalink.matrix", "pytest", "-x"], ["-e", "{root}"], set()),
        (BARE, STEPS, ["{root}"], {"PYTHONPATH"}),
        (BARE + 'packages = { one = "1" }', STEPS, ["{root}"], {"PYTHONPATH", "PIP_CONSTRAINT", "UV_CONSTRAINT"}),
        ('kind = "bare"\ncommand = "pytest -rA"\nhidden = []', ["pytest", "-rA", "-x"], ["{root}"], set()),
    ],
)  # fmt: skip
def test_how_a_cell_is_run(cell_of, tmp_path, keys, program, install, variables) -> None:
    """The program with its arguments, what installs the project, and the variables that only some cells have."""
    cell = cell_of(keys)
    assert runner.command(cell, ["-x"], tmp_path) == program
    assert runner.project_requirement(cell, tmp_path) == [word.format(root=tmp_path) for word in install]
    environment = runner.environment(cell, tmp_path)
    own = cell.environment(tmp_path / ".cudalink")
    pins = str(tmp_path / ".cudalink" / "a.requirements.txt")
    folder = str(Path(runner.__file__).parents[2])
    assert environment == own | {name: folder if name == "PYTHONPATH" else pins for name in variables}


def test_names_that_the_environment_gives(tmp_path, monkeypatch) -> None:
    """Variables name another file of cells, and another build of the plugin; its own project needs none."""
    monkeypatch.delenv("CUDALINK_REQUIREMENT", raising=False)
    monkeypatch.delenv("CUDALINK_CELLS", raising=False)
    assert runner.cells_file(tmp_path) == tmp_path / "matrices" / "cells.toml"
    assert runner.plugin_requirement(tmp_path) == ["pytest-cudalink"]
    monkeypatch.setenv("CUDALINK_CELLS", "x.toml")
    monkeypatch.setenv("CUDALINK_REQUIREMENT", "x.whl")
    assert runner.cells_file(tmp_path) == tmp_path / "x.toml"
    assert runner.plugin_requirement(tmp_path) == ["x.whl"]
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "pytest-cudalink"')
    assert runner.plugin_requirement(tmp_path) == []


VERSIONS = {"one": "2.0", "two": "0.2", "three": "3", "nvidia-x": "1"}


class Uv:
    """Stands in for uv: keeps what it is asked, and answers with the version of each package, or an exit code."""

    def __init__(self, monkeypatch) -> None:
        self.asked: list[tuple[object, ...]] = []
        self.code = 0
        monkeypatch.setattr(runner.shutil, "which", lambda name, path=None: f"/bin/{name}" if path is None else None)
        monkeypatch.setattr(runner.subprocess, "run", self.run)

    def run(self, command, *, input, cwd, timeout, **options):  # noqa: A002 (as of subprocess)
        assert command[:3] == ["/bin/uv", "pip", "compile"]
        assert options == {"capture_output": True, "text": True, "check": False}
        assert command[3:6] == ["-q", "--no-header", "--no-annotate"]
        assert command[-1] == "-"
        self.asked.append((input.split("\n"), " ".join(command[6:-1]), cwd, timeout))
        if timeout is not None and self.code is None:
            raise subprocess.TimeoutExpired(command, timeout)
        names = dict.fromkeys(name for name in VERSIONS if any(line.startswith(name) for line in input.split("\n")))
        pins = "".join(f" {name}=={VERSIONS[name]} \n" for name in names)
        return SimpleNamespace(returncode=self.code, stdout=f"# why\n  # why\n \n{pins}", stderr="\nno version\n")


@pytest.fixture
def uv(monkeypatch) -> Uv:
    """What stands in for uv."""
    return Uv(monkeypatch)


PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
OLDEST = "--no-progress --python-version {} --resolution lowest-direct"
ONE = ["one>=1.1", "one<9", "one"]
LATE = ["one>=1.1", "one<9", "two", "nvidia-x", "two>=0.2"]


@pytest.mark.parametrize(
    ("keys", "asked", "pins", "constraints"),
    [
        ("", [], None, []),
        ('packages = { one = "latest", two = "0.1" }\nresolution = "highest"', [], None, []),
        ('packages = { one = "lowest", two = "0.1" }', [(ONE, f"{OLDEST} --no-deps")], ["one==2.0"], ["-r"]),
        (
            'packages = { one = "lowest", two = "lowest" }\nextras = ["late"]\npython = "3.14t"',
            [(ONE, f"{OLDEST} --no-deps"), (["two", "two>=0.2"], f"{OLDEST} --no-deps")],
            ["one==2.0", "two==0.2"],
            ["-r"],
        ),
        (BARE + 'packages = { one = "lowest", two = "0.1", three = "latest" }', [(LATE[:2], f"{OLDEST} --no-deps")],
         ["one==2.0", "two==0.1"], ["-c"]),
        (BARE + 'packages = { three = "latest" }', [], [], ["-c"]),
        (
            'resolution = "lowest-direct"\nextras = ["late"]\npackages = { one = "lowest", two = "latest" }',
            [
                (["two", "two>=0.2"], "--no-progress --python-version {} --no-deps"),
                (["one", "two", *ONE, "two==0.2"], f"{OLDEST} {{}}/pyproject.toml --extra=late"),
            ],
            ["one==2.0", "two==0.2"],
            ["-r"],
        ),
        ('resolution = "lowest-direct"', [([""], f"{OLDEST} {{}}/pyproject.toml")], [], ["-r"]),
        (
            'resolution = "lowest"\ninstall = "none"\npackages = { one = ">1" }',
            [(["one>1", "one>1"], "--no-progress --python-version {} --resolution lowest")],
            ["one==2.0"],
            ["-r"],
        ),
    ],
)  # fmt: skip
def test_versions_that_uv_chooses(cell_of, tmp_path, uv, keys, asked, pins, constraints) -> None:
    """Uv is asked only for what pip cannot find, and every installer gets its answer."""
    cell = cell_of(keys)
    runner.resolve(cell, tmp_path)
    file = tmp_path / ".cudalink" / "a.requirements.txt"
    python = "3.14" if "3.14" in keys else PYTHON
    assert uv.asked == [(lines, text.format(python, tmp_path), tmp_path, None) for lines, text in asked]
    assert (file.read_text().split("\n") if file.exists() else None) == (None if pins is None else [*pins, ""])
    assert runner.constraints(cell, tmp_path) == [*constraints, *([str(file)] * bool(constraints))]


def test_versions_that_cannot_be_chosen(cell_of, tmp_path, uv, monkeypatch) -> None:
    """Without a lower bound the first release ever would count; what uv says is passed on, and that it is missing."""

    def said(keys: str) -> str:
        with pytest.raises(CellsError) as caught:
            runner.choose_versions(cell_of(keys), tmp_path, pytest.fail)
        return str(caught.value)

    unlimited = (
        f"the cell a asks for two = 'lowest', but nothing in {tmp_path / 'pyproject.toml'} or the cell limits its "
        "version{}; write a requirement such as 'two>=1.0', or the version into the cell"
    )
    assert said('packages = { two = "lowest" }') == unlimited.format("")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "p"\ndynamic = ["dependencies"]\n')
    assert said('packages = { two = "lowest" }') == unlimited.format("; its dependencies are dynamic")
    uv.code = 1
    lowest = 'resolution = "lowest"'
    assert said(lowest) == "the versions of the cell a cannot be resolved by uv: no version"
    monkeypatch.setattr(runner.shutil, "which", lambda name, path=None: None)
    assert said(lowest) == "the cell a asks for the oldest versions, which uv finds and pip cannot; install uv"


@pytest.mark.parametrize(
    ("keys", "asked", "newer"),
    [
        ('ctk = "13.0"', LATE[:4], "one==2.0\ntwo==0.2\n"),
        ('ctk = "13.0"\nextras = ["late"]\npackages = ["three"]', [*LATE, "three"], "one==2.0\ntwo==0.2\nthree==3\n"),
        ('ctk = "13.0"\npackages = { one = "latest" }', LATE[:4], "two==0.2\n"),
        ('ctk = "13.0"\ninstall = "none"', None, None),
        ('ctk = "13.0"\nresolution = "lowest"', None, None),
        ('ctk = "13.0"\nresolution = "lowest-direct"', None, None),
        ("", None, None),
    ],
)
def test_releases_without_the_toolkit(cell_of, tmp_path, uv, keys, asked, newer) -> None:
    """They are noted for the run, but for parts of the toolkit and for what the cell chooses; an older note is gone."""
    cell, warned = cell_of(keys), []
    file = tmp_path / ".cudalink" / "a.newer.txt"
    file.parent.mkdir()
    file.touch()
    if "lowest" in keys:
        runner.note_newer(cell, tmp_path)
    else:
        runner.choose_versions(cell, tmp_path, warned.append)
    assert [program for program, *_ in uv.asked] == ([asked] if asked else [])
    assert (file.read_text() if file.exists() else None) == newer
    assert warned == []
    # warnings of the cell come before anything is chosen
    runner.choose_versions(cell_of('extras = ["no"]\npackages = { one = "lowest" }'), tmp_path, warned.append)
    assert warned[0].startswith("a: the project has no extra 'no'")
    assert (tmp_path / ".cudalink" / "a.requirements.txt").read_text() == "one==2.0\n"
    uv.code = 1
    runner.note_newer(cell, tmp_path)
    assert not file.exists()


def test_the_plugin_that_is_not_found(cell_of, tmp_path, uv, monkeypatch) -> None:
    """The words name another build where uv finds none, and are empty where nothing can be said."""
    cell = cell_of()
    uv.code = 1
    assert runner.newest("x", tmp_path) == ""
    assert uv.asked == [(["x"], "--no-deps", tmp_path, 20)]
    assert runner.plugin_missing(cell, tmp_path) == (
        "the plugin cannot be installed into the cell a: 'pytest-cudalink' is not found; name another build in the "
        "environment variable CUDALINK_REQUIREMENT: a version on your package index, the path of a wheel, or a URL"
    )
    assert uv.asked[1][2] == tmp_path
    assert runner.plugin_missing(cell_of(BARE), tmp_path) == ""
    uv.code = None  # no answer in time
    assert runner.newest("x") is None
    assert runner.plugin_missing(cell, tmp_path) == ""
    uv.code = 0
    assert runner.newest("one") == "# why\n  # why\n \n one==2.0"
    assert runner.plugin_missing(cell, tmp_path) == ""
    places: list[tuple[str, str | None]] = []
    monkeypatch.setattr(runner.shutil, "which", lambda name, path=None: places.append((name, path)))
    assert runner.newest("x") is None
    assert places == [("uv", None), ("uv", str(Path(sys.executable).parent))]
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "pytest-cudalink"')
    uv.code = 1
    assert runner.plugin_missing(cell, tmp_path) == ""


def test_a_python_that_is_missing(cell_of, monkeypatch) -> None:
    """A name on the PATH is asked whether it starts; a cell without a Python takes any."""
    assert runner.python_missing(cell_of()) == ""
    cell, programs = cell_of('python = "3.13"'), {"python3.13": "/p"}
    run = mock.Mock(side_effect=[SimpleNamespace(returncode=0), SimpleNamespace(returncode=1)])
    monkeypatch.setattr(runner.shutil, "which", programs.get)
    monkeypatch.setattr(runner.subprocess, "run", run)
    assert runner.python_missing(cell) == ""
    words = (
        "no Python 3.13 here; install it, as with `uv python install 3.13`, or leave the cell out with "
        "--allow-missing=a"
    )
    assert runner.python_missing(cell) == words
    assert run.mock_calls == [mock.call(["/p", "-c", ""], capture_output=True, check=False)] * 2
    programs.clear()
    assert runner.python_missing(cell) == words


def test_a_cell_says_what_it_fetches(cell_of, tmp_path, monkeypatch) -> None:
    """A toolchain that the cache lacks is named before it is fetched; one that is there is not."""
    monkeypatch.setenv("CUDALINK_CACHE", str(tmp_path / "cache"))
    cell, added, said = cell_of('ctk = "13.0"\ndriver = "12.9"'), [], []
    monkeypatch.setattr(toolchains, "add", lambda version, layout: added.append((version, layout)))
    assert runner.prepare(cell, tmp_path, said.append) == runner.environment(cell, tmp_path)
    assert added == list(cell.toolchains) == [("12.9", "libs")]
    folder = tmp_path / "cache" / "toolchains" / "12.9"
    assert said == [f"fetching the toolchain 12.9 (44 to 133 MB, once) into {folder}"]
    there = toolchains.Toolchain(CudaVersion(12, 9), tmp_path, "libs", {})
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib64" / "libnvJitLink.so.12").touch()
    monkeypatch.setattr(toolchains, "find", lambda *_: there)
    runner.prepare(cell, tmp_path, pytest.fail)


def test_notes_of_a_cell(cell_of, tmp_path) -> None:
    """A note says why there is no record; the first one stays, until the cell begins again or a record is there."""
    cell, folder = cell_of(), tmp_path / ".cudalink"
    file, record = folder / "a.missing.txt", folder / "a.jsonl"
    runner.begin(cell, tmp_path)
    began = "its run began, and nothing says how it ended"
    assert runner.notes([folder, tmp_path / "nowhere"]) == {"a": began}
    assert not runner.is_explained(cell, tmp_path)
    runner.note(cell, tmp_path, f" an {'x' * 3000}\n error \udce9".encode(errors="replace").decode())
    runner.note(cell, tmp_path, "another")
    assert runner.notes([tmp_path]) == {"a": f"an {'x' * 1996}"}
    assert runner.is_explained(cell, tmp_path)
    file.write_bytes(b"caf\xe9 \xc3\xa9\n no")
    assert runner.notes([folder]) == {"a": "caf\ufffd é no"}
    record.touch()
    runner.begin(cell, tmp_path)
    assert (file.read_text(), record.exists()) == (began, False)
    file.unlink()
    assert not runner.is_explained(cell, tmp_path)
    record.touch()
    assert runner.is_explained(cell, tmp_path)
    runner.note(cell, tmp_path, "nothing")
    assert runner.notes([folder]) == {}
    file.touch()
    for age, name in enumerate(["a.jsonl", "a.missing.txt"]):
        os.utime(folder / name, (age, age))
    for _ in range(2):
        runner.forget_older(cell, tmp_path, 1)
    assert [path.name for path in folder.iterdir()] == ["a.missing.txt"]
    for name in "hgfedcba":
        (folder / name).mkdir()
        (folder / name / "b.missing.txt").write_text(name)
    assert runner.notes([folder])["b"] == "h"


BEGAN = [rec.RunRecord(run="r", cell="a"), rec.StartRecord(nodeid="t.py::a")]
ENDED = [rec.RunRecord(run="r", cell="a"), rec.EndRecord(exitstatus=1, duration=1.0, counts={})]
ADVICE = "; run with --cudalink-processes=isolated or restarted, so that a crash ends one test only"
ABORT = rec.CrashRecord(nodeid="t.py::a", signal="SIGABRT", exitcode=None)


@pytest.mark.parametrize(
    ("records", "code", "words", "crashes"),
    [
        (BEGAN, -6, "pytest was killed by SIGABRT (t.py::a)", [("t.py::a", "SIGABRT", None)]),
        (BEGAN, 0, "pytest ended with exit code 0 (t.py::a)", [("t.py::a", None, 0)]),
        ([*BEGAN, ABORT], -6, "pytest was killed by SIGABRT (t.py::a)", [("t.py::a", "SIGABRT", None)]),
        ([*BEGAN, rec.StartRecord(nodeid="t.py::b"), ABORT], 3, "pytest ended with exit code 3 (t.py::b)",
         [("t.py::a", "SIGABRT", None), ("t.py::b", None, 3)]),
        (BEGAN[:1], 137, "pytest was killed by SIGKILL (outside tests)", [(None, "SIGKILL", None)]),
        (ENDED, 1, "", []),
        ([BEGAN[0], rec.EndRecord(exitstatus=0), rec.ExitRecord(exitcode=1)], 1, "", []),
        (ENDED, 0, "pytest ended with exit code 0 (after the last test)", [(None, None, 0)]),
        ([BEGAN[0], BEGAN[1], ENDED[1]], -11, "pytest was killed by SIGSEGV (after the last test)",
         [(None, "SIGSEGV", None)]),
        ([], 1, "", []),
        (None, 1, "", []),
    ],
)  # fmt: skip
def test_how_a_run_ended(cell_of, tmp_path, records, code, words, crashes) -> None:
    """The record gets what pytest could not write itself; a note that began with the run is gone."""
    cell, file = cell_of(), tmp_path / ".cudalink" / "a.jsonl"
    runner.begin(cell, tmp_path)
    if records is None:
        file.mkdir()
    elif records:
        with rec.Writer(file) as writer:
            for record in records:
                writer.write(record)
    else:
        file.write_text("damaged")
    assert runner.conclude(cell, tmp_path, code, "") == (words and words + ADVICE)
    assert runner.notes([tmp_path]) == {}
    runner.conclude(cell, tmp_path, code, "")  # where the note is gone
    if records:
        assert [(crash.nodeid, crash.signal, crash.exitcode) for crash in read(file).crashes] == crashes


@pytest.mark.parametrize(
    ("outcome", "code", "output"), [("passed", 1, [["1 passed", "FAIL"]]), ("failed", 1, []), ("passed", 0, [])]
)
def test_a_run_that_is_red_without_a_failing_test(cell_of, tmp_path, outcome, code, output) -> None:
    """As for a limit of coverage: the record gets the exit code and the last lines, unless a test says it."""
    cell, file = cell_of(), tmp_path / ".cudalink" / "a.jsonl"
    with rec.Writer(file) as writer:
        for record in (BEGAN[0], rec.TestRecord(nodeid="t.py::a", outcome=outcome), rec.EndRecord(exitstatus=code)):
            writer.write(record)
    assert runner.conclude(cell, tmp_path, code, "1 passed\n\x1b[31mFAIL\x1b[0m\n") == ""
    ended = read(file).exit
    assert ([ended.output] if ended else []) == output
    assert ended is None or ended.exitcode == code


@pytest.mark.parametrize(
    ("keys", "code", "said", "note"),
    [
        ("", 4, "1\n2\n\n3\n4\n~^ \n5\n\x1b[1mE 6\x1b[0m\n7", "pytest ended with exit code 4: 2 | 3 | 4 | 5 | E 6 | 7"),
        ("", -9, " \n", "pytest was killed by SIGKILL"),
        (BARE, 2, "no", "the steps of the cell ended with exit code 2: no"),
    ],
)  # fmt: skip
def test_a_run_without_a_record(cell_of, tmp_path, keys, code, said, note) -> None:
    """The note has how it ended, and the last lines of its output."""
    cell = cell_of(keys)
    runner.begin(cell, tmp_path)
    assert runner.conclude(cell, tmp_path, code, said) == ""
    assert runner.notes([tmp_path]) == {"a": note}


#: Leaves a process behind that has its stderr, and writes which, and more than is kept.
LEAVES = """import os, time
child = os.fork()
if child:
    os.write(2, b"x" * 5000)
    time.sleep(0.3)
    os.write(2, str(child).encode())
else:
    time.sleep(600)
"""


def test_errors_are_shown_and_kept(capfd) -> None:
    """All of it on stdout, the last of it for a note; a process that is left behind keeps no caller waiting."""
    end = bytearray()
    began = time.monotonic()
    with runner.copied(end) as stderr:
        subprocess.run([sys.executable, "-c", LEAVES], stderr=stderr, check=True)
    assert time.monotonic() - began < 300
    shown = capfd.readouterr().out
    child = shown.removeprefix("x" * 5000)
    os.kill(int(child), 9)
    assert end.decode() == shown[-4096:]
    for descriptor in (stderr, stderr + 1, stderr - 1):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_errors_that_nobody_reads(monkeypatch) -> None:
    select = runner.select.select

    def late(*waited: object) -> object:
        time.sleep(0.2)
        return select(*waited)

    monkeypatch.setattr(runner, "select", SimpleNamespace(select=late))
    monkeypatch.setattr(runner.os, "write", mock.Mock(side_effect=BrokenPipeError))
    end = bytearray()
    with runner.copied(end) as stderr:
        subprocess.run([sys.executable, "-c", "import os; os.write(2, b'x')"], stderr=stderr, check=True)
    assert end == b"x"


def test_stderr_of_systems_without_select(monkeypatch) -> None:
    """There the program's stderr goes where its stdout goes."""
    monkeypatch.setattr(runner.os, "name", "nt")
    with runner.copied(bytearray()) as stderr:
        assert stderr == subprocess.STDOUT
