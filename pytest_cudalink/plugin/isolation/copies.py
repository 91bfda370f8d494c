"""Reruns one test in forked copies of a process that has collected, each under another condition."""

from __future__ import annotations

import json
import os
import tempfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

import msgspec
import pytest

from ...base.regular_files import read_bounded
from ...base.safe_text import line
from ...base.words import counted
from ...report.asked_for import AskedFor
from .. import pytest_private
from ..parts import ASKED, COPIES, RECORD_FILE, SERVERS
from . import processes

if TYPE_CHECKING:
    from ...base.finding import Finding
    from ...base.process_end import ProcessEnd
    from ..run import Run

#: Bytes of what one process has noted.
_LONGEST: Final = 256 << 20
#: Conditions that a process is asked for with one line.
_PART: Final = 200


class Copies:
    """A plugin object that runs tests again, of which pytest sees no report."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._paths: list[str] = []
        self._servers = run.part(SERVERS)
        self._server: processes.ServerProcess | None = None  # the last one that was asked
        given: Any = getattr(run.config, "workerinput", None)
        workers = given["workercount"] if given else 1
        self._at_once = max(1, len(os.sched_getaffinity(0)) // workers)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._paths = list(dict.fromkeys(str(item.path) for item in session.items))

    def __call__(
        self, item: pytest.Item, asked: Sequence[Mapping[str, Any]]
    ) -> Iterator[tuple[int, ProcessEnd, dict[str, Any] | None]]:
        """Run a test under several conditions, each in a separate process, as many at once as there are cores.

        `asked`: for each condition the name of a function of `trial` as ``how``, and its arguments after the driver.
        Yields the number of the condition, from 0, in the order in which they end. One that no process could run does
        not come, see `why_not`.
        Yields how its process ended.
        Yields what the function returned; None if the process ended before.
        """
        deadline = int(self._run.settings.sticky_deadline.value)
        for start in range(0, len(asked), _PART):
            # the events of a copy have no reader: a file of all would be as long as there are runs and calls
            server = self._servers.get(self._paths, processes.ServerProcess.close, forks=True, events=False)
            self._server = server
            if not server.alive:
                return
            with tempfile.TemporaryDirectory(dir=self.folder) as made:
                folder, part = Path(made), asked[start : start + _PART]
                for number, end in server.trials(item, folder, part, deadline=deadline, at_once=self._at_once):
                    yield start + number, end, _read_trial(folder / f"reports-{number}")

    @property
    def folder(self) -> str:
        """The temporary folder, which is removed after the last test."""
        return str(self._servers.folder)

    @property
    def why_not(self) -> str:
        """Why no process could run what it was asked for last."""
        return (self._server and self._server.refusal) or "the process that runs the tests again ended"


@dataclass
class RerunTotals:
    """What the reruns of one test, or of several, found; those of one kind have more fields, and findings of a type."""

    tests: int = 0  # how many tests were run again
    runs: int = 0  # how often
    lost: dict[str, int] = field(default_factory=dict)  # number of runs that could not be made, by the reason
    skipped: dict[str, int] = field(default_factory=dict)  # number of tests that were not run again, by the reason
    spared: dict[str, int] = field(default_factory=dict)  # the same of those that need not
    findings: list[Any] = field(default_factory=list)

    def add(self, other: Self) -> None:
        """Add what was found in other tests."""
        for name, theirs in vars(other).items():
            mine = getattr(self, name)
            if isinstance(mine, dict):
                mine = dict(Counter(mine) + Counter(theirs))
            else:
                mine = mine | theirs if isinstance(mine, set) else mine + theirs
            setattr(self, name, mine)

    def asked(self, kind: str) -> AskedFor:
        """Return how many of the tests were run again."""
        due = self.tests + sum(self.skipped.values())
        return AskedFor(kind, due + sum(self.spared.values()), self.tests, self.skipped, self.spared)

    def __str__(self) -> str:
        """Return the number of runs and of tests."""
        due = self.tests + sum(self.skipped.values())
        of = f"{self.tests} of " if self.tests < due else ""
        return f"{counted(self.runs, 'run')} of {of}{counted(due, 'test')}"


T = TypeVar("T", bound=RerunTotals)


class RunsAgain(ABC, Generic[T]):
    """A plugin object that runs each test again after the test's own run, whose reports are pytest's.

    `run`: in a controller of xdist, one that only adds up.
    `passed`: whether the test has passed in its own run; one that has not need not pass in another.
    `failing`: the findings that fail the run, each with the command that repeats it.
    """

    #: How records call its findings, and the words for one of them and for several.
    category = ""
    found = ("", "")
    passed = False
    totals: T
    notes: ProcessNotes[T]

    def __init__(self, run: Run) -> None:
        self._run, self._copies = run, run.part(COPIES)
        run.part(ASKED)
        self.failing: list[str] = []

    def fail(self, finding: Finding, repeat: str, nodeid: str, operations: Sequence[Any] = ()) -> None:
        """Fail the run for a finding, and write it to the record of the run, if it has one.

        `repeat`: the command that finds it again.
        `operations`: as of `FindingRecord`.
        """
        self.failing.append("\n".join([finding.what, f"  repeat: {repeat}", *finding.evidence]))
        if (file := self._run.get(RECORD_FILE)) is not None:
            from ...report.records import FindingRecord

            file.write(
                FindingRecord, finding, nodeid=nodeid, category=self.category, repeat=repeat, operations=operations
            )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if pytest_private.subtest_description(report) is None or report.failed:
            self.passed = (self.passed or report.when == "setup") and report.passed and not hasattr(report, "wasxfail")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self.passed = False
        done = yield
        if not (item.session.shouldstop or item.session.shouldfail or item.nodeid in self.notes.done):
            found = type(self.totals)()
            try:
                self.again(item, found)
                self.notes.add(item.nodeid, found)
            finally:
                self.totals.add(found)
        return done

    @abstractmethod
    def again(self, item: pytest.Item, found: T) -> None:
        """Run a test again, as often as it takes, and add what that finds."""

    def as_json(self) -> Any:
        """Return everything for the process that adds up."""
        return msgspec.to_builtins(self.totals)

    def add(self, given: Mapping[str, Any]) -> None:
        """Add what `as_json` returned in another process."""
        self.totals.add(msgspec.convert(given, type(self.totals)))

    def add_notes(self, worker: str) -> None:
        """Add what a worker of xdist has noted in this run before it died."""
        for nodeid, found in self.notes.of(worker)[0].items():
            if nodeid not in self.notes.done:
                self.totals.add(found)


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

    def add(self, nodeid: str, found: T) -> None:
        """Note what was found in a test."""
        try:
            with (self.folder / f"{self._worker or 'main'}{self._suffix}").open("a", encoding="utf-8") as file:
                # the line before may be cut
                file.write(f"\n{json.dumps([nodeid, msgspec.to_builtins(found)])}\n")
        except OSError:
            self.kept = False

    def of(self, worker: str) -> tuple[dict[str, T], int]:
        """Return what a process has noted, by test, and how many lines cannot be read."""
        noted, damaged, lines = {}, 0, [b""]
        with suppress(OSError):  # it ran no test
            lines = read_bounded(self.folder / f"{worker}{self._suffix}", _LONGEST).splitlines()
        for text in filter(None, lines):
            try:
                nodeid, found = json.loads(text)
                noted[str(nodeid)] = msgspec.convert(found, self._kind)
            except (ValueError, TypeError, msgspec.MsgspecError):
                damaged += 1
        return noted, damaged


def show(item: pytest.Item, found: str, *, verbosity: int) -> None:
    """Show from a verbosity on what the other runs of a test have found, while the next tests wait."""
    reporter: Any = item.config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None and item.config.get_verbosity() >= verbosity:
        reporter.ensure_newline()
        reporter.write_line(line(f"cudalink: {found}: {item.nodeid}"))


def _read_trial(file: Path) -> dict[str, Any] | None:
    """Return what a process has written of its run."""
    for text in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        try:
            given: dict[str, Any] | None = json.loads(text).get("trial")
        except ValueError:
            break
        if given is not None:
            return given
    return None
