"""Running a test in a process of its own, so that a crash is that test's failure and the rest goes on.

The child is another pytest with the same command line that collects only the one test. It is started anew rather than
forked: a forked process cannot use a driver that its parent has initialized. Its reports come back through a file, each
written at once, so that what came before a crash is there.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from . import _compat, recording
from .markers import PLAN

if TYPE_CHECKING:
    from .session import Session

__all__ = ["Child", "Isolation", "early", "join"]

_TEST, _REPORTS, _WORKER = "CUDALINK_ISOLATED", "CUDALINK_ISOLATED_REPORTS", "CUDALINK_ISOLATED_WORKER"
_EVENTS: Final = "CUDALINK_ISOLATED_EVENTS"
_LAST_WORDS: Final = 20
#: Options of pytest and its plugins that a child must not have: they select tests, or write files of the whole run.
_NOT_FOR_CHILDREN: Final[dict[str, Any]] = {
    "xmlpath": None,
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
    "usepdb": False,
}


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
        for report in self._reports(item):
            item.ihook.pytest_runtest_logreport(report=report)
        _compat.teardown_until(item, nextitem)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _reports(self, item: pytest.Item) -> list[pytest.TestReport]:
        """Run a test elsewhere; returns its reports, with one for a crash if there was one."""
        self._run.wake()
        with tempfile.TemporaryDirectory(prefix="cudalink-") as scratch:
            folder = Path(scratch)
            reports, events = folder / "reports", folder / "events"
            began = time.perf_counter()
            done = _run_child(self._run, item, reports, events)
            spent = time.perf_counter() - began
            found = _read(item.config, reports)
            if not any(report.when == "teardown" for report in found):
                found += self._crashed(item, done, found, events, spent)
            return found

    def _crashed(
        self,
        item: pytest.Item,
        done: subprocess.CompletedProcess[str],
        found: list[pytest.TestReport],
        events: Path,
        spent: float,
    ) -> list[pytest.TestReport]:
        """The reports that the process did not get to write."""
        code = done.returncode
        name = signal.Signals(-code).name if code < 0 and -code in set(signal.Signals) else None
        how = f"was killed by {name or f'signal {-code}'}" if code < 0 else f"ended with exit code {code}"
        last = recording.crash_events(str(events), None)
        lines = [f"cudalink: the process of this test {how}"]
        if last:
            lines += ["last calls of the driver:", *(f"  {line}" for line in last)]
        if output := _last_words(done.stderr):
            lines += ["last words on its stderr:", *(f"  {line}" for line in output)]
        if not found and code >= 0 and (output := _last_words(done.stdout)):
            lines += ["last words on its stdout:", *(f"  {line}" for line in output)]
        if self._run.writer is not None:
            self._run.writer.write(
                "crash",
                nodeid=item.nodeid,
                worker=self._run.worker,
                signal=name,
                exitcode=code if code >= 0 else None,
                last_events=last,
            )
        when = "call" if any(report.when == "setup" for report in found) else "setup"
        failed = _report(item, when, "failed", "\n".join(lines), spent)
        return [failed, _report(item, "teardown", "passed", None, 0.0)]


def _last_words(text: str) -> list[str]:
    """What faulthandler says of the test's own frames, innermost first; else the end of the text."""
    lines = text.strip().splitlines()
    fatal = next((number for number, line in enumerate(lines) if line.startswith("Fatal Python error")), None)
    if fatal is None:
        return lines[-_LAST_WORDS:]
    frames = takewhile(lambda line: "/_pytest/" not in line and "/pluggy/" not in line, lines[fatal:])
    return list(frames)[:_LAST_WORDS]


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


def _run_child(run: Session, item: pytest.Item, reports: Path, events: Path) -> subprocess.CompletedProcess[str]:
    config = item.config
    worker: Any = getattr(config, "workerinput", None)
    arguments = worker["mainargv"][1:] if worker else [str(argument) for argument in config.invocation_params.args]
    given = os.environ.get("CUDALINK_EMULATOR_EVENTS") or run.settings.events.value
    environment = {
        **os.environ,
        _TEST: item.nodeid,
        _REPORTS: str(reports),
        _WORKER: run.worker or "",
        "CUDALINK_EMULATOR_EVENTS": str(events),
        _EVENTS: str(events),
        "PYTHONFAULTHANDLER": "1",
    }
    for name in [name for name in environment if name.startswith(("PYTEST_XDIST_", "PYTEST_CURRENT_TEST"))]:
        del environment[name]
    command = [sys.executable, "-m", "pytest", *arguments]
    done = subprocess.run(  # noqa: S603 (the command of this very run)
        command,
        cwd=config.invocation_params.dir,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if given and events.exists():
        with Path(given).open("ab") as file:
            file.write(events.read_bytes())
    return done


def _read(config: pytest.Config, reports: Path) -> list[pytest.TestReport]:
    found = []
    if reports.exists():
        for line in reports.read_text(encoding="utf-8").splitlines():
            try:
                data = json.loads(line)
            except ValueError:
                break  # cut by the crash
            report = config.hook.pytest_report_from_serializable(config=config, data=data)
            # JSON has no tuples: pytest looks at the type of a skip's place
            if isinstance(report.longrepr, list):
                report.longrepr = tuple(report.longrepr)
            report.user_properties = [tuple(one) for one in report.user_properties]
            found.append(report)
    return found


def early(options: argparse.Namespace) -> None:
    """In the child, before its driver is loaded: the driver's events go where the parent looks for them."""
    if _EVENTS in os.environ:
        options.cudalink_events = os.environ[_EVENTS]


def join(config: pytest.Config) -> None:
    """In the child: collect the one test, leave the files of the whole run alone, and hand the reports over."""
    nodeid = os.environ.get(_TEST)
    if nodeid is None or hasattr(config, "workerinput"):
        return
    for name, value in _NOT_FOR_CHILDREN.items():
        if hasattr(config.option, name):
            setattr(config.option, name, value)
    file, _, rest = nodeid.partition("::")
    config.args = [f"{config.rootpath / file}::{rest}"]
    config.pluginmanager.register(Child(config, nodeid, Path(os.environ[_REPORTS])), "cudalink-isolated")


class Child:
    """A plugin object of the child: keeps the one test, and writes its reports.

    Parameters
    ----------
    config : pytest.Config
    nodeid : str
        The test.
    reports : Path
        File that the reports go to.
    """

    def __init__(self, config: pytest.Config, nodeid: str, reports: Path) -> None:
        self._config, self._nodeid = config, nodeid
        self._file = os.open(reports, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid == self._nodeid]

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        os.write(self._file, json.dumps(data, default=str).encode() + b"\n")

    def pytest_unconfigure(self) -> None:
        os.close(self._file)
