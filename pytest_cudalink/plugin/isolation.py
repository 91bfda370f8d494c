"""The parent of isolated tests: runs each in its own process, so that a crash fails that test and the run goes on.

The child is another pytest with the same command line that collects only the one test. It is started rather than
forked: a forked process cannot use a driver that its parent has initialized. Its reports come back through a file, each
written at once, so that what came before a crash is there.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from . import ledger, pytest_private, record_file
from .facts import fail
from .plan import PLAN
from .run import Run, Task

__all__ = ["Isolation"]

_LAST_LINES: Final = 20
#: Options that a plugin sets when the run begins, and that must be the same in a child.
_HANDED_OVER: Final = ("randomly_seed",)


class _End(NamedTuple):
    """How a child ended."""

    how: str
    signal: str | None = None
    exitcode: int | None = None


class Isolation:
    """A plugin object of the process that starts the others; registered when a test has to be isolated.

    Parameters
    ----------
    run : Run
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._all = run.settings.isolate.value == "yes"

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        plan = item.stash.get(PLAN, None)
        if not (self._all or (plan is not None and plan.isolate)):
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        *reports, last = self._reports(item)
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        _tear_down(item, nextitem, last)
        item.ihook.pytest_runtest_logreport(report=last)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _reports(self, item: pytest.Item) -> list[pytest.TestReport]:
        """Run a test in its own process; return its reports, of which the last is always that of the teardown."""
        ledger.of(self._run)  # reads the facts on the reports
        with tempfile.TemporaryDirectory(prefix="cudalink-") as scratch:
            folder = Path(scratch)
            began = time.perf_counter()
            end = _run_child(self._run, item, folder)
            spent = time.perf_counter() - began
            found = _read(self._run, item, folder / "reports")
            complete = bool(found) and found[-1].when == "teardown"
            # what a process exits with after its last report is pytest's own word on the test
            if end.exitcode is None or not complete:
                found = _with_end(item, found, self._story(item, end, folder, started=bool(found)), spent)
            _echo(item.config, found)
            return found

    def _story(self, item: pytest.Item, end: _End, folder: Path, *, started: bool) -> str:
        """Return how a process ended, in lines, and write it to the record file."""
        last = record_file.crash_events(str(folder / "events"), None)
        lines = [f"cudalink: the process of this test {end.how}"]
        if last:
            lines += ["last calls of the driver:", *(f"  {line}" for line in last)]
        if output := _last_lines(folder / "stderr"):
            lines += ["last lines of stderr:", *(f"  {line}" for line in output)]
        if not started and end.signal is None and (output := _last_lines(folder / "stdout")):
            lines += ["last lines of stdout:", *(f"  {line}" for line in output)]
        if (file := record_file.of(self._run)) is not None:
            file.writer.write(
                "crash",
                nodeid=item.nodeid,
                worker=self._run.worker,
                signal=end.signal,
                exitcode=end.exitcode,
                last_events=last,
            )
        return "\n".join(lines)


def _last_lines(file: Path) -> list[str]:
    """Return what faulthandler says of the test's own frames, innermost first; otherwise the end of the text."""
    if not file.exists():
        return []
    lines = file.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    fatal = next((number for number, line in enumerate(lines) if line.startswith("Fatal Python error")), None)
    if fatal is None:
        return lines[-_LAST_LINES:]
    frames = takewhile(lambda line: "/_pytest/" not in line and "/pluggy/" not in line, lines[fatal:])
    return list(frames)[:_LAST_LINES]


def _with_end(
    item: pytest.Item, found: Sequence[pytest.TestReport], story: str, spent: float
) -> list[pytest.TestReport]:
    """Return the reports of a process that died: the phase that it was in has failed."""
    phases = [report for report in found if pytest_private.subtest_description(report) is None]
    last = phases[-1] if phases else None
    if last is not None and last.when == "teardown":
        fail(last, "end of the process", story)
        return [*found]
    outcome: str | None = last.outcome if last is not None else None  # plugins bring their own, such as "rerun"
    when: Any = "teardown"
    if last is None or outcome == "rerun":
        when = "setup"
    elif last.when == "setup" and outcome == "passed":
        when = "call"
    failed = _report(item, when, "failed", story, spent)
    return [*found, failed] if when == "teardown" else [*found, failed, _report(item, "teardown", "passed", None, 0.0)]


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


def _run_child(run: Run, item: pytest.Item, folder: Path) -> _End:
    """Run one test in its own process, which leaves its reports, events and output in a folder."""
    config = item.config
    events = folder / "events"
    given = os.environ.get("CUDALINK_EMULATOR_EVENTS") or run.settings.events.value
    options = {name: getattr(config.option, name) for name in _HANDED_OVER if hasattr(config.option, name)}
    task = Task(
        nodeid=item.nodeid,
        path=str(item.path),
        reports=str(folder / "reports"),
        events=str(events),
        worker=run.worker,
        options=options,
    )
    environment = {
        **os.environ,
        **run.withheld,
        "CUDALINK_ISOLATED": json.dumps(vars(task)),
        "CUDALINK_EMULATOR_EVENTS": str(events),
        "PYTHONFAULTHANDLER": "1",
    }
    for name in [name for name in environment if name.startswith(("PYTEST_XDIST_", "PYTEST_CURRENT_TEST"))]:
        del environment[name]
    try:
        with (folder / "stdout").open("wb") as stdout, (folder / "stderr").open("wb") as stderr:
            done = subprocess.run(  # noqa: S603 (the command of this very run)
                [sys.executable, "-m", "pytest", *_arguments(run)],
                cwd=config.invocation_params.dir,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                check=False,
            )
    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 (such as that of pytest-timeout: this test's)
        return _End(f"was stopped: {error}")
    finally:
        if given and events.exists():
            with Path(given).open("ab") as file:
                file.write(events.read_bytes())
    code = done.returncode
    if code >= 0:
        return _End(f"ended with exit code {code}", exitcode=code)
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return _End(f"was killed by {name}", signal=name)


def _arguments(run: Run) -> list[str]:
    """Return the command line of a child: the run's, except for what pytest reads too early to be changed later."""
    arguments = run.arguments
    where = arguments.index("--") if "--" in arguments else len(arguments)
    option = run.config.option
    instead = []
    if getattr(option, "capture", None) == "no":
        instead.append("--capture=fd")  # a child has no terminal: what it prints comes with its reports
    if getattr(option, "debug", None):
        instead.append(f"--debug={os.devnull}")
    return [*arguments[:where], *instead, *arguments[where:]]


def _read(run: Run, item: pytest.Item, file: Path) -> list[pytest.TestReport]:
    """Return the reports that a child handed over, pass its warnings on, and add what no report shows."""
    found = []
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        try:
            ((kind, data),) = json.loads(line).items()
        except ValueError:
            break  # cut by the crash
        if kind == "warning":
            _warn(item, data)
            continue
        if kind == "outside":
            outside = ledger.of(run).outside
            outside.problems += [f"[{item.nodeid}] {text}" for text in data["problems"]]
            outside.violations += [f"[{item.nodeid}] {text}" for text in data["violations"]]
            continue
        report = item.config.hook.pytest_report_from_serializable(config=item.config, data=data)
        # JSON has no tuples: pytest looks at the type of a skip's place
        if isinstance(report.longrepr, list):
            report.longrepr = tuple(report.longrepr)
        report.sections = [tuple(one) for one in report.sections]
        report.user_properties = [tuple(one) for one in report.user_properties]
        found.append(report)
    return found


def _warn(item: pytest.Item, data: dict[str, Any]) -> None:
    """Pass a warning on, under its own category where this process knows it too."""
    category: Any = getattr(sys.modules.get(data["module"]), data["category"], None)
    if not (isinstance(category, type) and issubclass(category, Warning)):
        category = UserWarning
    message = warnings.WarningMessage(data["message"], category, data["filename"], data["lineno"])
    item.ihook.pytest_warning_recorded.call_historic(
        kwargs={"warning_message": message, "when": "runtest", "nodeid": item.nodeid, "location": None}
    )


def _echo(config: pytest.Config, reports: Sequence[pytest.TestReport]) -> None:
    """Show what a child captured if the run shows output at once; with ``-s`` not again with a failure."""
    capture = getattr(config.option, "capture", None)
    if capture not in ("no", "tee-sys"):
        return
    for report in reports:
        streams = {f"Captured {name} {report.when}": getattr(sys, name) for name in ("stdout", "stderr")}
        for title, text in report.sections:
            if title in streams:
                streams[title].write(text)
        if capture == "no":
            shown = ("Captured stdout", "Captured stderr")
            report.sections = [section for section in report.sections if not section[0].startswith(shown)]
