"""Reruns one test in forked copies of a process that has collected, each under another condition."""

from __future__ import annotations

import json
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from ...base.regular_files import read_bounded
from ...base.safe_text import line
from .. import pytest_private
from ..parts import ASKED, COPIES, RECORD_FILE
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
        # the events of a copy have no reader: a file of all would be as long as there are runs and calls
        self._servers = processes.Servers(run, "copies", processes.ServerProcess.close, events=False)
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
            server = self._server = self._servers.get(self._paths, forks=True)
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

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        try:
            return (yield)
        finally:
            self._servers.end()


class RunsAgain(ABC):
    """A plugin object that runs each test again after the test's own run, whose reports are pytest's.

    `run`: in a controller of xdist, one that only adds up.
    `passed`: whether the test has passed in its own run; one that has not need not pass in another.
    `failing`: the findings that fail the run, each with the command that repeats it.
    """

    #: How records call its findings, and the words for one of them and for several.
    category = ""
    found = ("", "")
    passed = False

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

            file.writer.write(
                FindingRecord(
                    nodeid=nodeid,
                    category=self.category,
                    kind=finding.kind,
                    what=finding.what,
                    evidence=list(finding.evidence),
                    repeat=repeat,
                    operations=list(operations),
                )
            )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if pytest_private.subtest_description(report) is None or report.failed:
            self.passed = (self.passed or report.when == "setup") and report.passed and not hasattr(report, "wasxfail")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self.passed = False
        done = yield
        if not (item.session.shouldstop or item.session.shouldfail):
            self.again(item)
        return done

    @abstractmethod
    def again(self, item: pytest.Item) -> None:
        """Run a test again, as often as it takes."""


class ProcessNotes:
    """What each process of a run has found, a line for each test, because a worker of xdist may die.

    `folder`: that of all processes.
    `suffix`: ends the name of a process's file.
    """

    def __init__(self, folder: Path, suffix: str) -> None:
        self._folder, self._suffix = folder, suffix

    def add(self, worker: str | None, found: object) -> None:
        """Note what was found in a test; raises OSError if it cannot be written."""
        with (self._folder / f"{worker or 'main'}{self._suffix}").open("a", encoding="utf-8") as file:
            file.write(f"\n{json.dumps(found)}\n")  # the line before may be cut

    def of(self, worker: str) -> Iterator[Any]:
        """Yield what a process has noted; None for a line that cannot be read."""
        lines: list[bytes] = []
        with suppress(OSError):  # it ran no test
            lines = read_bounded(self._folder / f"{worker}{self._suffix}", _LONGEST).splitlines()
        for text in filter(None, lines):
            try:
                yield json.loads(text)
            except ValueError:
                yield None


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
