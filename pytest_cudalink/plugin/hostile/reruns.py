"""Reruns of a test after its own run: what they found, and the command that finds it again.

Such a command is for the user to paste into a shell, in the folder of the run. It has the words of the run's own
command line, so that every option counts again, of whatever plugin; only what chose the tests, and what writes files of
the whole run, is left out. The rest comes back by itself, from ini files, or stands before the command, from the
environment.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

import msgspec
import pytest

from ...base.regular_files import read_bounded
from ...base.safe_text import line, quote
from ...base.words import counted
from ...compat.names import DEFAULT_ARCHITECTURE
from ...compat.settings_table import OPTIONS
from ...report.asked_for import AskedFor
from .. import pytest_private
from ..conditions import run_driver
from ..isolation import COPIES
from ..isolation.child import NOT_FOR_CHILDREN
from ..isolation.processes import interpreter_options
from ..run import Run
from ..start import from_controller
from ..watch.check import Check

#: Bytes of what one process has noted.
_LONGEST: Final = 256 << 20
#: Options, by their ``dest``, that spread the tests of a run over processes or go on with an earlier one, and have no
#: place in the run of one test; besides those that a child leaves out.
_OF_THE_RUN: Final = frozenset(
    (
        *("distload", "maxprocesses", "maxworkerrestart", "looponfail", "testrunuid", "stepwise_reset"),
        *("verbose", "cudalink_report"),
    )
)
#: Those of what is repeated.
_REPEATED: Final = frozenset(("cudalink_fault_sweep", "cudalink_schedules"))
#: Variables of pytest that change a run, and that the user's shell may lack.
_OF_PYTEST: Final = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTEST_DISABLE_PLUGIN_AUTOLOAD")


@dataclass
class RerunTotals:
    """What the reruns of one test, or of several, found; those of one kind have more fields, and failures of a type."""

    tests: int = 0  # how many tests were run again
    runs: int = 0  # how often
    lost: dict[str, int] = field(default_factory=dict)  # number of runs that could not be made, by the reason
    skipped: dict[str, int] = field(default_factory=dict)  # number of tests that were not run again, by the reason
    spared: dict[str, int] = field(default_factory=dict)  # the same of those that need not
    failures: list[Any] = field(default_factory=list)

    def add(self, other: Self) -> None:
        """Add what was found in other tests."""
        for name, theirs in vars(other).items():
            mine = getattr(self, name)
            if isinstance(mine, dict):
                mine = dict(Counter(mine) + Counter(theirs))
            else:
                mine = mine | theirs if isinstance(mine, set) else mine + theirs
            setattr(self, name, mine)

    def asked_for(self, kind: str) -> AskedFor:
        """Return how many of the tests were run again."""
        due = self.tests + sum(self.skipped.values())
        return AskedFor(kind, due + sum(self.spared.values()), self.tests, self.skipped, self.spared)

    def __str__(self) -> str:
        """Return the number of runs and of tests."""
        due = self.tests + sum(self.skipped.values())
        of = f"{self.tests} of " if self.tests < due else ""
        return f"{counted(self.runs, 'run')} of {of}{counted(due, 'test')}"


T = TypeVar("T", bound=RerunTotals)


class RunsAgain(Check, ABC, Generic[T]):
    """A check that runs each test again after the test's own run, whose reports are pytest's.

    `run`: in a controller of xdist, one that only adds up.
    `passed`: whether the test has passed in its own run; one that has not need not pass in another.
    Raises pytest.UsageError if the run has no emulated driver.
    """

    name: ClassVar[str]  # how records call its findings
    does: ClassVar[str]  # what an emulated driver does for it
    passed = False
    totals: T
    notes: ProcessNotes[T]

    def __init__(self, run: Run) -> None:
        if run.emulated is None:
            why = f"{self.does}, and this run has none"
            raise pytest.UsageError(f"cudalink: {why}; add --cudalink-driver=13.0, or the version that you test with")
        super().__init__(run)
        self._copies = run.part(COPIES)
        self._folder: str = from_controller(run.config).get(self.name) or ""  # the controller's, in a worker of xdist

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if pytest_private.subtest_description(report) is None or report.failed:
            self.passed = (self.passed or report.when == "setup") and report.passed and not hasattr(report, "wasxfail")

    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        done = yield
        if not (item.session.shouldstop or item.session.shouldfail or item.nodeid in self.notes.done):
            totals = type(self.totals)()
            try:
                self.again(item, totals)
                self.notes.add(item.nodeid, totals)
            finally:
                self.totals.add(totals)
        return done

    @abstractmethod
    def again(self, item: pytest.Item, totals: T) -> None:
        """Run a test again, as often as it takes, and add what that finds."""

    def as_json(self) -> Any:
        """Return everything for the process that adds up."""
        return msgspec.to_builtins(self.totals)

    def add(self, counts: Mapping[str, Any]) -> None:
        """Add what `as_json` returned in another process."""
        self.totals.add(msgspec.convert(counts, type(self.totals)))

    def add_notes(self, worker: str) -> None:
        """Add what a worker of xdist has noted in this run before it died."""
        for nodeid, noted in self.notes.of(worker)[0].items():
            if nodeid not in self.notes.done:
                self.totals.add(noted)


class ProcessNotes(Generic[T]):
    """What each process of a run has found, a line for each test, because a worker of xdist may die.

    `folder`: that of all processes.
    `suffix`: ends the name of a process's file.
    `done`: what an earlier run has found, by test.
    `kept`: whether everything could be noted.
    """

    def __init__(self, run: Run, folder: Path, suffix: str, kind: type[T]) -> None:
        self.folder, self._suffix, self._kind, self._worker = folder, suffix, kind, run.worker
        self.done: dict[str, T] = {}
        self.kept = True

    def add(self, nodeid: str, totals: T) -> None:
        """Note what was found in a test."""
        try:
            with (self.folder / f"{self._worker or 'main'}{self._suffix}").open("a", encoding="utf-8") as file:
                # the line before may be cut
                file.write(f"\n{json.dumps([nodeid, msgspec.to_builtins(totals)])}\n")
        except OSError:
            self.kept = False

    def of(self, worker: str) -> tuple[dict[str, T], int]:
        """Return what a process has noted, by test, and how many lines cannot be read."""
        noted, damaged, lines = {}, 0, [b""]
        with suppress(OSError):  # it ran no test
            lines = read_bounded(self.folder / f"{worker}{self._suffix}", _LONGEST).splitlines()
        for text in filter(None, lines):
            try:
                nodeid, content = json.loads(text)
                # another version's may lack what is found here
                noted[str(nodeid)] = msgspec.convert({name: content[name] for name in vars(self._kind())}, self._kind)
            except (ValueError, TypeError, LookupError, msgspec.MsgspecError):
                damaged += 1
        return noted, damaged


def show(item: pytest.Item, text: str, *, verbosity: int) -> None:
    """Show from a verbosity on what the other runs of a test have found, while the next tests wait."""
    reporter: Any = item.config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None and item.config.get_verbosity() >= verbosity:
        reporter.ensure_newline()
        reporter.write_line(line(f"cudalink: {text}: {item.nodeid}"))


# -- the command that finds something again


def command(run: Run, option: str, place: str = "") -> str:
    """Return the command that runs one test again under an option, or all tests of the run.

    `place`: of the test, as `key` returns it; empty for the tests of the run.
    """
    test = [_in_quotes(_argument(run, place))] if place else []
    return " ".join([*_variables(run), *map(quote, _program(run)), *test, *map(quote, [*_options(run, place), option])])


def _in_quotes(word: str) -> str:
    quoted = quote(word)
    return f"'{word}'" if quoted == word else quoted


def _options(run: Run, place: str) -> Iterator[str]:
    """Yield the words of the run's command line that count for one test, or for all, and what they leave out."""
    config = run.config
    for dest, words in pytest_private.words_of(config, run.arguments):
        chooses = dest in NOT_FOR_CHILDREN or dest in _OF_THE_RUN or dest.startswith("cov") or not dest
        if not (dest in _REPEATED or (place and chooses)) and all(map(_can_be_passed, words)):
            yield from words
    if place and not pytest_private.finds_setup(config, place.partition("::")[0]):
        yield f"--rootdir={_relative(run, config.rootpath)}"
        yield "-c"
        yield _relative(run, config.inipath) if config.inipath is not None else os.devnull
    emulation = run.emulation
    if emulation is not None and run_driver.inherited(config):
        yield f"--cudalink-driver={emulation.version}"
        for name, value, default in (
            ("device", str(emulation.devices), DEFAULT_ARCHITECTURE),
            ("faults", emulation.faults, ""),
            ("checks", f"lifetimes={run.settings.lifetime.value}", "lifetimes=fail"),
        ):
            if value != default:
                yield f"--cudalink-{name}={value}"


def _variables(run: Run) -> Iterator[str]:
    """Yield the assignments that stand before the command; a session of nox or tox makes its own."""
    known = {**os.environ, **run.withheld}
    given = {setting.source for _, setting in run.settings.items()}
    ours = [
        option.env
        for option in OPTIONS
        if f"environment {option.env}" in given and option.ini not in _OF_THE_RUN | _REPEATED
    ]
    for name in (*_OF_PYTEST, *(ours if not _session(run) else ())):
        if (value := known.get(name)) and _can_be_passed(value):
            yield f"{name}={quote(value)}"


def _session(run: Run) -> list[str]:
    """Return the command of the session of nox or tox that the run is; empty if it is not one."""
    cell = os.environ.get("CUDALINK_CELL")
    folder = run.config.invocation_params.dir
    if cell and os.environ.get("NOX_CURRENT_SESSION") == cell and (folder / "noxfile.py").is_file():
        return ["nox", "-s", cell, "--"]
    return ["tox", "-e", cell, "--"] if cell and os.environ.get("TOX_ENV_NAME") == cell else []


def _program(run: Run) -> list[str]:
    """Return the words that started pytest, as short as the user's shell finds them."""
    if session := _session(run):
        return session
    script, options = Path(run.start.argv[0]), interpreter_options(run.start.orig_argv)
    python = [_short("python", Path(sys.executable)), *options]
    if script.name not in ("pytest", "py.test"):
        return [*python, "-m", "pytest"]
    return [*python, str(script)] if options else [_short(script.name, script)]


def _short(name: str, path: Path) -> str:
    """Return the name of a program where the shell finds this one by it, else its path."""
    program = shutil.which(name)
    same = program is not None and os.path.realpath(Path(program).parent) == os.path.realpath(path.parent)
    return name if same else str(path)


def _argument(run: Run, place: str) -> str:
    """Return the argument of pytest that names a test, or the nearest thing that an argument can name."""
    file, separator, names = place.partition("::")
    path = _relative(run, Path(file))
    if "[" in path:  # pytest reads parameters from there on
        while "[" in path:
            path = str(Path(path).parent)
        return path
    while separator and not _can_be_passed(names):
        names, separator, _ = names.rpartition("[" if "[" in names else "::")
    return f"{path}::{names}" if separator else path


def _relative(run: Run, path: Path) -> str:
    """Return a path from the folder of the run; it begins with no character to which pytest gives a meaning."""
    relative = os.path.relpath(path, run.config.invocation_params.dir)
    return f"./{relative}" if relative.startswith(("-", "@")) else relative


def _can_be_passed(word: str) -> bool:
    try:
        quote(word)
    except ValueError:
        return False
    return True
