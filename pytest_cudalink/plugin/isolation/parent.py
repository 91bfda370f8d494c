"""The parent of isolated tests: runs each in its own process, so that a crash is that test's and the run goes on.

The child is another pytest with the same command line. It is started rather than forked from this process: a forked
process cannot use a driver that its parent has initialized. Where several tests are isolated, one child collects them,
and forks for each, as long as that is safe; otherwise each test has a new child. With
``--cudalink-processes=restarted`` the tests share one child, which is replaced when it dies. Reports come back through
a file, each written at once, so that what came before a crash is there.
"""

import os
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from ...base.process_end import ProcessEnd, crash_events
from ...base.safe_text import block
from ...report.asked_for import AskedFor
from ...report.wording import call_in_words, refused_last
from .. import pytest_private
from ..conditions import FAULTS, faults
from ..items import PLAN
from ..records import LEDGER, RECORD_FILE
from ..records.ledger import fail
from ..run import Mode, Run
from ..watch import LIFETIMES, REPORTER
from ..watch.violation_checks import lose_events
from . import processes

_LAST_LINES: Final = 20
_GOES_ON: Final = ProcessEnd()
#: What ends a child that runs a test: any exception of a plugin, such as pytest-timeout, which fails the test.
_STOPS: Final = (Exception, pytest.fail.Exception)


class Isolation:
    """A plugin object of the process that starts the others; registered when a test has to be isolated."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._all = run.settings.tests.value == "isolated"
        self._shares = run.settings.tests.value == "restarted"
        self._paths: list[str] = []
        self._warm = False
        self._failure = ("", "")  # how the last process ended that never reached a test, and the test that shows it
        self._servers = run.part(processes.Servers)
        self._due: set[str] = set()  # the tests that began and were to run in another process, and those that did
        self._done: set[str] = set()
        self._isolated: set[str] = set()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        isolated = [item for item in session.items if self._isolates(item)]
        self._isolated = {item.nodeid for item in isolated}
        self._warm = len(isolated) > 1
        if not self._all:
            self._paths = list(dict.fromkeys(str(item.path) for item in isolated))

    def take_over(self, session: pytest.Session) -> None:
        """Run the rest of the tests in another process, because this one can no longer run them."""
        self._shares = True
        self.pytest_collection_finish(session)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "setup" and (self._shares or report.nodeid in self._isolated):
            self._due.add(report.nodeid)

    def asked_for(self) -> list[AskedFor]:
        """Return how many tests ran in another process, of those that were to."""
        here = len(self._due - self._done)
        left = {"another plugin or a conftest ran it": here} if here else {}
        return [AskedFor("isolation", len(self._due), len(self._due) - here, left)]

    def _isolates(self, item: pytest.Item) -> bool:
        plan = item.stash.get(PLAN, None)
        return self._all or (plan is not None and plan.isolate)

    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        if not (self._shares or self._isolates(item)):
            return None
        self._done.add(item.nodeid)
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        collected, stop = self._reports(item, nextitem)
        if stop is not None:
            for report in collected:
                item.ihook.pytest_runtest_logreport(report=report)
            raise stop
        *reports, last = collected
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        _tear_down(item, nextitem, last)
        item.ihook.pytest_runtest_logreport(report=last)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _reports(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> tuple[list[pytest.TestReport], BaseException | None]:
        """Run a test in another process; return its reports, and the exception with which the test ends the run.

        Without such an exception the last report is always that of the teardown.
        """
        with tempfile.TemporaryDirectory(dir=self._servers.folder) as made:
            folder = Path(made)
            began = time.perf_counter()
            try:
                end = self._run_child(item, nextitem, folder)
            except _STOPS as error:
                end = ProcessEnd(stopped=str(error))
            spent = time.perf_counter() - began
            _pass_on_events(self._run, folder / "events")
            given = _read(self._run, folder / "reports", item)
            for name, why in given.stops.items():
                setattr(item.session, name, why or getattr(item.session, name))
            reports = given.reports
            if given.ended is None and end != _GOES_ON:
                faults.lose(self._run)
            if given.stop is not None:
                _echo(item.config, reports)
                return reports, given.stop
            complete = bool(reports) and reports[-1].when == "teardown"
            # pytest's own exit code after the last report is authoritative; a shared process goes on
            orderly = end == _GOES_ON or (end.exitcode is not None and end.exitcode == given.ended)
            refused = end.exitcode == pytest.ExitCode.USAGE_ERROR and not reports  # before there was a session
            shown = self._repeats(item, end, folder, failed=not (given.began or end.stopped))
            if not (complete and orderly):
                crashed = not (orderly or refused or end.stopped)
                last = crash_events(str(folder / "events"), None)
                call = refused_last(last) if crashed and not complete else None
                skips = call is not None and self._run.settings.unsupported.value == "skip"
                story = block(_story(end, last, folder, started=given.began))
                if shown:
                    story = f"cudalink: the process of this test {end}, as that of {shown} did"
                if crashed and not skips:
                    self._write_crash(item.nodeid, end, last, _last_lines(folder / "stderr"))
                reports = _with_end(item, reports, story, spent, folder, crashed=crashed)
                if call is not None:
                    from ..watch.causes import explain_crash

                    dead = next(report for report in reversed(reports) if report.failed)
                    seen = explain_crash(self._run, call, reports[-1])
                    self._run.part(REPORTER).show(item, dead, [seen])
            if (check := self._run.get(LIFETIMES)) is not None:
                check.add_late(item, reports[-1])
            _echo(item.config, reports)
            return reports, None

    def _repeats(self, item: pytest.Item, end: ProcessEnd, folder: Path, *, failed: bool) -> str:
        """Return which test shows what ended this process too before it reached a test; the run ends, if there is one.

        The next process would fail in the same way.
        """
        (before, shown), self._failure = self._failure, ("", "")
        if not failed:
            return ""
        self._failure = (processes.start_failure(end, folder, item), item.nodeid)
        if self._failure[0] != before:
            return ""
        item.session.shouldfail = (
            f"cudalink: two processes in a row {end} before they reached a test, with the error that "
            f"{shown or item.nodeid} shows; no further test was run"
        )
        return shown

    def _run_child(self, item: pytest.Item, nextitem: pytest.Item | None, folder: Path) -> ProcessEnd:
        forks = self._isolates(item)
        if not forks or self._warm:
            mode: Mode = "copies" if forks else "shared"
            server = self._servers.get(self._paths if forks else [], self._end_server, mode=mode)
            if server.failed is not None and not self._failure[0]:
                self._failure = (processes.start_failure(server.failed, server.folder, item), "")
            if not server.refusal:
                leaves = forks or (nextitem is not None and self._isolates(nextitem))
                end = server(item, None if leaves else nextitem, folder)
                if end is not None:
                    return end
            self._run.new_processes[server.refusal] += 1
        alone = processes.ServerProcess(self._run, folder, [processes.key(item)], mode="alone")
        alone(item, None, folder)
        return alone.close()

    def _end_server(self, server: processes.ServerProcess) -> None:
        """Let a process that waits for tests end; one that dies now fails the run."""
        waits = server.alive
        end = server.close()
        ended = _read(self._run, server.folder / "reports").ended
        if ended is None:
            faults.lose(self._run)
        if waits and (end.exitcode is None or end.exitcode != ended):
            self._run.part(LEDGER).outside.problems.append(f"the process of the tests {end} after the last test")
            self._write_crash(None, end, [], _last_lines(server.folder / "stderr"))

    def _write_crash(self, nodeid: str | None, end: ProcessEnd, last: list[str], frames: list[str]) -> None:
        if (file := self._run.get(RECORD_FILE)) is not None:
            from ...report.records import CrashRecord

            file.write(CrashRecord, end, nodeid=nodeid, last_events=last, frames=frames)


def _story(end: ProcessEnd, last: Sequence[str], folder: Path, *, started: bool) -> str:
    """Return how a process ended, after which calls of the driver, in lines."""
    lines = [f"cudalink: the process of this test {end}"]
    if last:
        lines += ["last calls of the driver:", *(f"  {call_in_words(event)}" for event in last)]
    if output := _last_lines(folder / "stderr"):
        lines += ["last lines of stderr:", *(f"  {line}" for line in output)]
    if not started and end.signal is None and (stdout := _last_lines(folder / "stdout")):
        lines += ["last lines of stdout:", *(f"  {line}" for line in stdout)]
    return "\n".join(lines)


def _pass_on_events(run: Run, events: Path) -> None:
    """Append the events of a test to the file that the user asked for."""
    given = os.environ.get("CUDALINK_EMULATOR_EVENTS") or run.settings.events.value
    if given and events.exists():
        try:
            with Path(given).open("ab") as file:
                file.write(events.read_bytes())
        except OSError as error:
            lose_events(run, error.strerror or str(error))


def _last_lines(file: Path) -> list[str]:
    """Return what faulthandler says of the test's own frames, innermost first; otherwise the end of the text."""
    lines = processes.text_in(file).strip().splitlines()
    fatal = next((number for number, line in enumerate(lines) if line.startswith("Fatal Python error")), None)
    if fatal is None:
        return lines[-_LAST_LINES:]
    current = next((number for number, line in enumerate(lines) if line.startswith("Current thread")), fatal + 1)
    frames = takewhile(lambda line: "/_pytest/" not in line and "/pluggy/" not in line, lines[current:])
    return [lines[fatal], *frames][:_LAST_LINES]


def _with_end(
    item: pytest.Item, reports: Sequence[pytest.TestReport], story: str, spent: float, folder: Path, *, crashed: bool
) -> list[pytest.TestReport]:
    """Return the reports of a process that died: the phase that it was in has failed, and captured what it wrote."""
    phases = [report for report in reports if pytest_private.subtest_description(report) is None]
    last = phases[-1] if phases else None
    if last is not None and last.when == "teardown":
        fail(last, "end of the process", story)
        last.cudalink_crashed = crashed  # type: ignore[attr-defined]
        return [*reports]
    ended = f"{last.when} {last.outcome}" if last is not None else "rerun"  # plugins bring their own outcomes
    when: Any = "setup" if ended.endswith("rerun") else "call" if ended == "setup passed" else "teardown"
    failed = _report(item, when, "failed", story, spent)
    failed.cudalink_crashed = crashed  # type: ignore[attr-defined]
    written = {name: processes.text_in(folder / f"reports-{name}") for name in ("stdout", "stderr")}
    failed.sections = [(f"Captured {name} {when}", text) for name, text in written.items() if text]
    return [*reports, failed, *([] if when == "teardown" else [_report(item, "teardown", "passed", None, 0.0)])]


def _report(item: pytest.Item, when: Any, outcome: Any, longrepr: str | None, duration: float) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords=dict.fromkeys(item.keywords, 1),
        outcome=outcome,
        longrepr=longrepr,
        when=when,
        duration=duration,
    )


def _tear_down(item: pytest.Item, nextitem: pytest.Item | None, last: pytest.TestReport) -> None:
    """Tear down, in this process, what the next test does not share; an error is this test's, as in any run."""
    call = pytest.CallInfo.from_call(
        lambda: pytest_private.teardown_until(item, nextitem),
        when="teardown",
        reraise=(pytest.exit.Exception, KeyboardInterrupt),
    )
    last.duration += call.duration
    if call.excinfo is not None:
        error = item.repr_failure(call.excinfo)
        fail(last, "teardown of fixtures of a wider scope", str(error), error)


class _HandedOver(SimpleNamespace):
    """What a child handed over."""

    reports: list[pytest.TestReport]
    ended: int | None = None  # pytest's exit code in it
    stops: Mapping[str, str | bool] = {}  # attributes of the session that say that it is to end
    stop: BaseException | None = None  # the exception that ends the run
    began = False  # whether it came as far as a test


def _read(run: Run, file: Path, item: pytest.Item | None = None) -> _HandedOver:
    """Return what a child handed over that ran a test, or several; what no report shows is added to the run."""
    handed_over = _HandedOver(reports=[])
    for kind, data in processes.lines_of(file):
        match kind:
            case "began":
                handed_over.began = True
            case "report":
                handed_over.reports.append(_as_report(run.config, data))
            case "ended" | "stops":
                setattr(handed_over, kind, data)
            case "exit":
                handed_over.stop = pytest.exit.Exception(data["reason"], data["returncode"])
            case "interrupt":
                handed_over.stop = KeyboardInterrupt()
            case "warning" if item is not None:
                _warn(item, data)
            case "faults":
                run.part(FAULTS).add(data)
            case "outside":
                run.part(LEDGER).outside.add_outside(data, f"[{item.nodeid}] " if item is not None else "")
    return handed_over


def _as_report(config: pytest.Config, data: dict[str, Any]) -> pytest.TestReport:
    """Return the report that a child has written."""
    report: Any = config.hook.pytest_report_from_serializable(config=config, data=data)
    # JSON has no tuples: pytest looks at the type of a skip's place
    if isinstance(report.longrepr, list):
        report.longrepr = tuple(report.longrepr)
    report.sections = [tuple(section) for section in report.sections]
    report.user_properties = [tuple(pair) for pair in report.user_properties]
    return cast("pytest.TestReport", report)


def _warn(item: pytest.Item, data: dict[str, Any]) -> None:
    """Pass a warning on, under its own category where this process knows it too."""
    name = data["module"]
    # the plugin's modules are imported when a run uses them, which may be the child alone
    module = import_module(name) if name.partition(".")[0] == "pytest_cudalink" else sys.modules.get(name)
    category: Any = getattr(module, data["category"], None)
    if not (isinstance(category, type) and issubclass(category, Warning)):
        category = UserWarning
    message = warnings.WarningMessage(data["message"], category, data["filename"], data["lineno"])
    item.ihook.pytest_warning_recorded.call_historic(
        kwargs={"warning_message": message, "when": "runtest", "nodeid": item.nodeid, "location": None}
    )


def _echo(config: pytest.Config, reports: Sequence[pytest.TestReport]) -> None:
    """Show what a child captured if the run shows output at once; with ``-s`` not again with a failure."""
    if (capture := getattr(config.option, "capture", None)) not in ("no", "tee-sys"):
        return
    for report in reports:
        streams = {f"Captured {name} {report.when}": getattr(sys, name) for name in ("stdout", "stderr")}
        for title, text in report.sections:
            if title in streams:
                encoding = getattr(streams[title], "encoding", None) or "utf-8"
                streams[title].write(text.encode(encoding, "backslashreplace").decode(encoding))
        if capture == "no":
            shown = ("Captured stdout", "Captured stderr")
            report.sections = [section for section in report.sections if not section[0].startswith(shown)]
