"""Running a test in a process of its own, so that a crash is that test's failure and the rest goes on.

The child is another pytest with the same command line that collects only the one test. It is started anew rather than
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
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from . import pytest_private as _compat
from . import results as recording
from .marker import PLAN

if TYPE_CHECKING:
    from .run import Session

__all__ = ["Child", "Isolation", "Task", "join"]

_LAST_WORDS: Final = 20
#: Options of pytest and its plugins that a child must not have: they select tests, or write files of the whole run.
_NOT_FOR_CHILDREN: Final[dict[str, Any]] = {
    "basetemp": None,
    "log_file": os.devnull,
    "xmlpath": None,
    "pastebin": None,
    "report_log": None,
    "htmlpath": None,
    "json_report": False,
    "lf": False,
    "failedfirst": False,
    "newfirst": False,
    "stepwise": False,
    "stepwise_skip": False,
    "cacheclear": False,
    "keyword": "",
    "markexpr": "",
    "deselect": None,
    "collectonly": False,
    "numprocesses": None,
    "maxfail": 0,
    "dist": "no",
    "tx": [],
    "reruns": None,
    "splits": None,
    "group": None,
    "num_shards": 1,
    "shard_id": 0,
    "usepdb": False,
}
#: Options that a plugin sets when the run begins, and that must be the same in a child.
_HANDED_OVER: Final = ("randomly_seed",)


class Task(NamedTuple):
    """What a child is started for, as the variable ``CUDALINK_ISOLATED`` tells it.

    Attributes
    ----------
    nodeid : str
        The test, as the process that waits calls it.
    path : str
        File of the test.
    reports : str
        File that the reports go to.
    events : str
        File that the events of the emulated driver go to.
    worker : str or None
        The xdist worker that waits.
    options : dict
        Values of options, by their ``dest``.
    """

    nodeid: str
    path: str
    reports: str
    events: str
    worker: str | None
    options: dict[str, Any]


class _End(NamedTuple):
    """How a child ended."""

    how: str
    signal: str | None = None
    exitcode: int | None = None


class Isolation:
    """A plugin object of the process that starts the others; registered when a test is to be isolated.

    Parameters
    ----------
    run : Session
    """

    def __init__(self, run: Session) -> None:
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
        """Run a test elsewhere; returns its reports, the last of which is of its teardown, whatever happened."""
        self._run.wake()
        with tempfile.TemporaryDirectory(prefix="cudalink-") as scratch:
            folder = Path(scratch)
            began = time.perf_counter()
            end = _run_child(self._run, item, folder)
            spent = time.perf_counter() - began
            found = _read(item, folder / "reports")
            complete = bool(found) and found[-1].when == "teardown"
            # what a process exits with after its last report is pytest's own word on the test
            if end.exitcode is None or not complete:
                found = _with_end(item, found, self._story(item, end, folder, started=bool(found)), spent)
            _echo(item.config, found)
            return found

    def _story(self, item: pytest.Item, end: _End, folder: Path, *, started: bool) -> str:
        """Tell how a process ended, to the record file too."""
        last = recording.crash_events(str(folder / "events"), None)
        lines = [f"cudalink: the process of this test {end.how}"]
        if last:
            lines += ["last calls of the driver:", *(f"  {line}" for line in last)]
        if output := _last_words(folder / "stderr"):
            lines += ["last words on its stderr:", *(f"  {line}" for line in output)]
        if not started and end.signal is None and (output := _last_words(folder / "stdout")):
            lines += ["last words on its stdout:", *(f"  {line}" for line in output)]
        if self._run.writer is not None:
            self._run.writer.write(
                "crash",
                nodeid=item.nodeid,
                worker=self._run.worker,
                signal=end.signal,
                exitcode=end.exitcode,
                last_events=last,
            )
        return "\n".join(lines)


def _last_words(file: Path) -> list[str]:
    """What faulthandler says of the test's own frames, innermost first; else the end of the text."""
    if not file.exists():
        return []
    lines = file.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    fatal = next((number for number, line in enumerate(lines) if line.startswith("Fatal Python error")), None)
    if fatal is None:
        return lines[-_LAST_WORDS:]
    frames = takewhile(lambda line: "/_pytest/" not in line and "/pluggy/" not in line, lines[fatal:])
    return list(frames)[:_LAST_WORDS]


def _with_end(
    item: pytest.Item, found: Sequence[pytest.TestReport], story: str, spent: float
) -> list[pytest.TestReport]:
    """The reports of a process that did not end well: the phase that it was in has failed."""
    phases = [report for report in found if _compat.subtest_description(report) is None]
    last = phases[-1] if phases else None
    if last is not None and last.when == "teardown":
        recording.fail(last, "end of the process", story)
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
    """Tear down, here, what the next test does not share with this one; an error is this test's, as in any run."""
    call = pytest.CallInfo.from_call(
        lambda: _compat.teardown_until(item, nextitem),
        when="teardown",
        reraise=(pytest.exit.Exception, KeyboardInterrupt),
    )
    last.duration += call.duration
    if call.excinfo is not None:
        error = item.repr_failure(call.excinfo)
        recording.fail(last, "teardown of fixtures of a wider scope", str(error), error)


def _run_child(run: Session, item: pytest.Item, folder: Path) -> _End:
    """Run one test in a process of its own, which leaves its reports, events and output in a folder."""
    config = item.config
    events = folder / "events"
    given = os.environ.get("CUDALINK_EMULATOR_EVENTS") or run.settings.events.value
    options = {name: getattr(config.option, name) for name in _HANDED_OVER if hasattr(config.option, name)}
    task = Task(item.nodeid, str(item.path), str(folder / "reports"), str(events), run.worker, options)
    environment = {
        **os.environ,
        **run.withheld,
        "CUDALINK_ISOLATED": json.dumps(task._asdict()),
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


def _arguments(run: Session) -> list[str]:
    """The command line of a child: that of the run, but for what pytest reads too early to be changed later."""
    arguments = run.arguments
    where = arguments.index("--") if "--" in arguments else len(arguments)
    option = run.config.option
    instead = []
    if getattr(option, "capture", None) == "no":
        instead.append("--capture=fd")  # a child has no terminal: what it prints comes with its reports
    if getattr(option, "debug", None):
        instead.append(f"--debug={os.devnull}")
    return [*arguments[:where], *instead, *arguments[where:]]


def _read(item: pytest.Item, file: Path) -> list[pytest.TestReport]:
    """What a child handed over: its reports are returned, its warnings passed on."""
    found = []
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        try:
            ((kind, data),) = json.loads(line).items()
        except ValueError:
            break  # cut by the crash
        if kind == "warning":
            _warn(item, data)
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
    """Show what a child has captured where it would have been seen at once; with ``-s`` not again with a failure."""
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


def join(config: pytest.Config, task: Task) -> None:
    """In the child: collect the one test, leave the files of the whole run alone, and hand the reports over."""
    for name, value in {**_NOT_FOR_CHILDREN, **task.options}.items():
        if hasattr(config.option, name):
            setattr(config.option, name, value)
    _, separator, rest = task.nodeid.partition("::")
    config.args = [f"{task.path}{separator}{rest}"]
    config.pluginmanager.register(Child(config, task), "cudalink-isolated")


class Child:
    """A plugin object of the child: keeps the one test, and writes its reports and warnings.

    Parameters
    ----------
    config : pytest.Config
    task : Task
    """

    def __init__(self, config: pytest.Config, task: Task) -> None:
        self._config, self._task = config, task
        self._file = os.open(task.reports, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def _write(self, kind: str, data: Any) -> None:
        os.write(self._file, json.dumps({kind: data}, default=str).encode() + b"\n")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the test, under the name that it has in the run: outside of the rootdir that hangs on the arguments."""
        rest = self._task.nodeid.partition("::")[2]
        items[:] = [item for item in items if item.nodeid.partition("::")[2] == rest]
        for item in items:
            _compat.rename(item, self._task.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._write("report", self._config.hook.pytest_report_to_serializable(config=self._config, report=report))

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage, when: str) -> None:
        if when == "runtest":  # what else there is to be warned of, the other process has met itself
            category = warning_message.category
            self._write(
                "warning",
                {
                    "message": str(warning_message.message),
                    "module": category.__module__,
                    "category": category.__name__,
                    "filename": warning_message.filename,
                    "lineno": warning_message.lineno,
                },
            )

    def pytest_unconfigure(self) -> None:
        os.close(self._file)
