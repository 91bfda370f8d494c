"""Commands to paste: a shell runs each, from the folder of the run, and it finds the same again."""

import os
import random
import subprocess
import sys
from itertools import cycle
from pathlib import Path
from shlex import quote
from unittest.mock import Mock

import pytest

from pytest_cudalink.emulator import emulation_for
from pytest_cudalink.plugin.conditions import run_driver
from pytest_cudalink.plugin.hostile.reruns import _OF_PYTEST, command
from pytest_cudalink.report import read
from pytest_cudalink.report.records import FindingRecord
from tests.planted import expected
from tests.plugin.test_schedules import EARLY
from tests.plugin.test_schedules import HEAD as QUEUE

#: A test for each bug; those fail whose project's own option, variable or ini key did not arrive.
MODULE = """
from tests.planted import error_paths as planted
@pytest.fixture(autouse=True)
def context(request):
    assert request.config.getoption("--mine") == request.config.getini("mine")
    with planted.current_context():
        yield

@pytest.mark.parametrize(("name", "text"), {parameters!r})
def test(name, text):
    planted.BROKEN[name]()
"""
CONFTEST = """
def pytest_addoption(parser):
    parser.addoption("--mine", default="")
    parser.addini("mine", "what --mine must say", default="")
"""
KEPT = "disable_test_id_escaping_and_forfeit_all_rights_to_community_support = true\n"
#: Parts of names of tests; most would run a command or end a word.
TEXTS = (
    "plain",
    "a';touch pwned;'",
    "$(touch pwned)`touch pwned`",
    ' "x"  y ',
    "-x",
    "a[b::c]",
    "é\u202e%s",
    "\n#!\\n",
    "\ud800",
)
#: Words of a command line, of which a run has some.
ARGUMENTS = (
    ("--cudalink-checks=order=fail,nvjitlink=off",),
    ("--cudalink-checks", "lifetimes=report"),
    ("--cudalink-device=h100:2,memory=8GiB",),
    ("--cudalink-unsupported=skip",),
    ("--cudalink-processes=isolated",),
    ("--cudalink-require", "driver"),
    ("--cudalink-faults=cuGraphCreate:900=2",),
    ("-o", "cudalink_fault_budget=4000"),
    ("-o", "cudalink_link_timeout=50"),
    ("-p", "no:cacheprovider"),
    ("-pno:doctest", "-vv"),
    ("-k", "test and not (absent)"),
    ("-xvm", "not skip"),
    ("--tb", "short", "-rA"),
    ("-n1",),
    ("--import-mode=importlib",),
    ("-W", "ignore:-p no such:DeprecationWarning"),
    ("--junitxml=j.xml", "--basetemp", "base"),
    ("-c", "../other.ini"),
    ("--rootdir=..",),
    ("@words",),
)
VARIABLES = (
    ("CUDALINK_CHECKS", "lifetimes=report"),
    ("CUDALINK_UNSUPPORTED", "skip"),
    ("CUDALINK_FAULT_BUDGET", "3000:1/1"),
    ("PYTEST_ADDOPTS", "-W 'ignore:a b' --durations=3"),
    ("PYTHONHASHSEED", "1"),
)
KEYS = (
    "cudalink_checks = nvjitlink=report",
    "cudalink_unsupported = skip",
    "addopts = --strict-markers",
    "console_output_style = count",
)


def paste(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a line as a shell does that finds the programs of this environment."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**os.environ, "PATH": path}
    return subprocess.run(["sh", "-c", line], cwd=folder, env=env, capture_output=True, text=True, check=False)


def check(finding: FindingRecord, folder: Path) -> None:
    """Paste the command of a finding: the first words of the finding come again, and no other command runs."""
    done = paste(finding.repeat, folder)
    said = done.stdout + done.stderr
    head = finding.what.partition(", called at ")[0].partition(" under ")[0]
    assert (done.returncode, head in said) == (1, True), f"{finding.repeat}\n{said}"
    assert not [*folder.parent.rglob("pwned")], finding.repeat


@pytest.fixture
def started(pytester: pytest.Pytester, toolkit):
    """Run the tests from a folder below the root; return what was found, and that folder."""

    def go(module: str, *arguments: str, ini: str = "", **variables: str) -> tuple[list[FindingRecord], Path]:
        folder = pytester.path / "a b$(touch pwned)"
        (folder / "sub").mkdir(parents=True)
        for file, text in {
            pytester.path / "pytest.ini": f"[pytest]\n{ini}",
            pytester.path / "other.ini": f"[pytest]\n{ini}",
            pytester.path / "conftest.py": CONFTEST,
            folder / "sub" / "test_it's.py": module,
            folder / "words": "-p\ncudalink\n-k\ntest\n",
        }.items():
            file.write_text(text, encoding="utf-8")
        given = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **variables}
        words = ["-p", "cudalink", "-p", "xdist", "--cudalink-driver=13.0", "--cudalink-report=r.jsonl", *arguments]
        done = paste(
            " ".join([*(f"{name}={quote(value)}" for name, value in given.items()), "pytest", *map(quote, words)]),
            folder,
        )
        print(done.stdout, done.stderr)
        return read(folder / "r.jsonl").findings, folder

    return go


def module_of(parameters: list[tuple[str, str]]) -> str:
    return QUEUE + MODULE.format(parameters=parameters)


@pytest.mark.parametrize(
    ("wanted", "changes"),
    [
        ("pytest t.py::A", {"place": "t.py::A::test\ud800"}),
        ("pytest t.py::A::test", {"place": "t.py::A::test[\ud800::b]"}),
        ("/nowhere/py.test", {"argv": "/nowhere/py.test"}),
        ("python -m pytest", {"argv": "/nowhere/mine.py"}),
        ("nox -s c --", {"NOX_CURRENT_SESSION": "c"}),
        ("tox -e c --", {"TOX_ENV_NAME": "c"}),
        ("pytest --cudalink-driver=13.0 --cudalink-faults=cuInit:9=2", {"faults": "cuInit:9=2"}),
        ("pytest --cudalink-driver=13.0 --cudalink-device=h100:2", {"device": "h100:2"}),
        ("pytest --cudalink-driver=13.0 --cudalink-checks=lifetimes=report", {"lifetime": "report"}),
    ],
)
def test_words(pytester: pytest.Pytester, monkeypatch, wanted: str, changes: dict[str, str]) -> None:
    """The command starts as the run did, with the driver that the run was started on; it names what a shell can."""
    pytester.path.joinpath("noxfile.py").touch()
    place, argv = changes.get("place", ""), changes.get("argv", str(Path(sys.executable).with_name("pytest")))
    variables = dict.fromkeys((*_OF_PYTEST, "NOX_CURRENT_SESSION", "TOX_ENV_NAME"), "")
    for name, value in {**variables, "PATH": str(Path(sys.executable).parent), "CUDALINK_CELL": "c"}.items():
        monkeypatch.setenv(name, changes.get(name, value))
    of_driver = {name: value for name, value in changes.items() if name in ("faults", "device", "lifetime")}
    monkeypatch.setattr(run_driver, "inherited", lambda _: bool(of_driver))
    run = Mock(config=pytester.parseconfig("-p", "no:cudalink"), arguments=[], withheld={})
    run.emulation, run.settings.lifetime.value = emulation_for("13.0", **of_driver), changes.get("lifetime", "fail")
    run.start.argv, run.start.orig_argv, run.settings.items.return_value = [argv], ["python", argv], ()
    assert command(run, "--again", place).replace("'", "") == f"{wanted} --again"


@pytest.mark.slow
def test_settings_and_quotes(started) -> None:
    """Options, variables and ini keys come again; no name of a test ends its word."""
    findings, folder = started(
        module_of([("two_buffers", TEXTS[1])]),
        *("--cudalink-fault-sweep=cuMemAlloc", "-k", "test", "--mine", "a $(touch pwned)", "sub"),
        ini="mine = a $(touch pwned)\n",
        CUDALINK_CHECKS="lifetimes=report",
    )
    (leak,) = findings
    assert leak.repeat.startswith("PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 CUDALINK_CHECKS=lifetimes=report ")
    assert " 'sub/test_it'\"'\"'s.py::test[two_buffers-a'\"'\"';touch pwned;'\"'\"']' -p cudalink " in leak.repeat
    assert leak.repeat.endswith(" --mine 'a $(touch pwned)' --cudalink-fault-sweep=5:2")
    check(leak, folder)


@pytest.mark.weekly
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_every_planted_finding(started, seed) -> None:
    """Under random options, wherever they come from."""
    rng = random.Random(seed)
    planted = expected("error_paths")
    names = sorted(planted)[seed::5]
    words = rng.sample(ARGUMENTS, 6)
    ini = "".join(f"{key}\n" for key in rng.sample(KEYS, 2)) + rng.choice(["", KEPT])
    late = seed % 2 == 0
    findings, folder = started(
        module_of([*zip(names, cycle(TEXTS[seed::5]))]) + (EARLY if late else ""),
        *(word for group in words for word in group),
        *(("--cudalink-schedules=6:7",) if late else ()),
        *("--cudalink-fault-sweep", "--mine", "a b", rng.choice(["sub", "sub/test_it's.py", "."])),
        ini=f"mine = a b\ncudalink_processes = deadline=3\n{ini}",
        **dict(rng.sample(VARIABLES, 2)),
    )
    assert {finding.kind for finding in findings} >= {planted[name] for name in names}
    for finding in {(finding.nodeid, finding.kind): finding for finding in findings}.values():
        check(finding, folder)
