"""What the tests of a run came to: gathered from the reports of all processes, for the summary and the record file."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
import uuid
from collections import Counter
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from . import pytest_private as _compat

if TYPE_CHECKING:
    from ..report import Writer
    from ..targets import LinkEvent
    from .run import Session

__all__ = [
    "Facts",
    "Reporter",
    "Results",
    "Totals",
    "add_suite_properties",
    "attach",
    "crash_events",
    "fail",
    "open_writer",
    "write_link",
    "write_run",
]

_LONGREPR_LIMIT: Final = 4_000
_LAST_EVENTS: Final = 20


@dataclass
class Facts:
    """What one attempt of a test did; rides on its last report, as plain values that cross a process border."""

    links: Counter[str] = field(default_factory=Counter)
    violations: int = 0
    documented: dict[str, str] | None = None
    missing: str | None = None
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    left_alone: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "links": dict(self.links)}

    def properties(self) -> list[tuple[str, str]]:
        """As a JUnit report shows them."""
        found = []
        if self.links:
            found.append(("cudalink.links", " ".join(f"{key}={count}" for key, count in sorted(self.links.items()))))
        if self.violations:
            found.append(("cudalink.violations", str(self.violations)))
        if self.documented:
            found.append(("cudalink.documented", "{requirement}: {raises}".format(**self.documented)))
        if self.missing:
            found.append(("cudalink.missing", self.missing))
        return found


def fail(report: pytest.TestReport, title: str, text: str, longrepr: Any = None) -> None:
    """Let a report be of a failure, whatever was made of it; one that is already shows the text beside its own."""
    if report.failed:
        report.sections.append((title, text))
    else:
        report.outcome, report.longrepr = "failed", text if longrepr is None else longrepr
        vars(report).pop("wasxfail", None)


def attach(report: pytest.TestReport, facts: Facts, *, properties: bool) -> None:
    """Put facts on the last report of a test."""
    report.cudalink = facts.as_json()  # type: ignore[attr-defined]
    if properties:
        report.user_properties.extend(facts.properties())


def backends(links: Mapping[str, int]) -> dict[str, int]:
    """Number of links by backend, of counts by ``target/backend``."""
    counts: Counter[str] = Counter()
    for key, count in links.items():
        counts[key.rpartition("/")[2]] += count
    return dict(counts)


@dataclass
class Totals:
    """What the summary shows; `violations` and `missing` count by test and by what would satisfy it."""

    links: Counter[str] = field(default_factory=Counter)
    violations: Counter[str] = field(default_factory=Counter)
    documented: list[tuple[str, str, str]] = field(default_factory=list)
    missing: Counter[str] = field(default_factory=Counter)
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    left_alone: dict[str, str] = field(default_factory=dict)
    mismatches: list[str] = field(default_factory=list)
    violations_outside: list[str] = field(default_factory=list)

    def add(self, nodeid: str, facts: Mapping[str, Any]) -> None:
        """Add the facts of one attempt."""
        if documented := facts["documented"]:
            self.documented.append((nodeid, documented["requirement"], documented["raises"]))
        if missing := facts["missing"]:
            self.missing[missing] += 1
        if violations := facts["violations"]:
            self.violations[nodeid] += violations
        self._join(facts)

    def outside(self) -> dict[str, Any]:
        """What belongs to no test, as plain values that cross a process border."""
        return {
            "links": dict(self.links),
            "missing": dict(self.missing),
            "verdicts": self.verdicts,
            "left_alone": self.left_alone,
            "mismatches": self.mismatches,
            "violations": self.violations_outside,
        }

    def add_outside(self, given: Mapping[str, Any], prefix: str = "") -> None:
        """Add what `outside` made, in this process or in another, whose violations get a prefix."""
        if given:
            self.missing.update(given["missing"])
            self.mismatches += given["mismatches"]
            self.violations_outside += [f"{prefix}{text}" for text in given["violations"]]
            self._join(given)

    def failing(self, lifetime: str) -> list[str]:
        """What the run fails for although no test shows it; `lifetime` is the mode of the checks."""
        return self.mismatches + (self.violations_outside if lifetime != "report" else [])

    def _join(self, facts: Mapping[str, Any]) -> None:
        self.links.update(facts["links"])
        self.verdicts += facts["verdicts"]
        self.left_alone.update(facts["left_alone"])


@dataclass
class _Attempt:
    """The reports of one attempt so far."""

    outcome: str = ""
    duration: float = 0.0
    reason: str = ""
    longrepr: str = ""
    subtests: list[dict[str, str]] = field(default_factory=list)


class Results:
    """A plugin object: gathers the reports of each test, wherever it ran, until its last one.

    Parameters
    ----------
    totals : Totals
        Added to.
    writer : Writer or None
        Of the record file; None without ``--cudalink-report``, or in a process that does not write tests.
    """

    def __init__(self, totals: Totals, writer: Writer | None) -> None:
        self._totals, self._writer = totals, writer
        self._open: dict[tuple[str | None, str], _Attempt] = {}
        self._attempts: Counter[tuple[str | None, str]] = Counter()
        self._counts: Counter[str] = Counter()
        self._began = time.perf_counter()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        facts: Mapping[str, Any] = getattr(report, "cudalink", None) or {}
        if facts:
            self._totals.add(report.nodeid, facts)
        if self._writer is not None:
            self._gather(self._writer, report, facts)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be imported, or is skipped as a whole, is written like a test of its name."""
        if self._writer is None or report.passed:
            return
        attempt = _Attempt("skipped", reason=_reason(report))
        if report.failed:
            text = report.longreprtext
            last = (text.strip().splitlines() or [""])[-1]
            attempt = _Attempt("error", reason=last.removeprefix("E").strip(), longrepr=text[:_LONGREPR_LIMIT])
        key = (None, report.nodeid)
        self._open[key] = attempt
        self._close(self._writer, *key, attempt, {})

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._writer is None:
            return
        for (worker, nodeid), attempt in list(self._open.items()):
            # an attempt that is to be repeated is not torn down; any other was interrupted, and came to nothing
            if attempt.outcome == "rerun":
                self._close(self._writer, worker, nodeid, attempt, {})
        self._writer.write(
            "end",
            exitstatus=int(session.exitstatus),  # what other plugins have made of it
            duration=time.perf_counter() - self._began,
            counts=dict(self._counts),
        )

    def _gather(self, writer: Writer, report: pytest.TestReport, facts: Mapping[str, Any]) -> None:
        key = (_compat.worker_of(report), report.nodeid)
        when: str | None = report.when
        if when == "setup" and key in self._open:  # a rerun began before the last attempt was torn down
            self._close(writer, *key, self._open[key], {})
        attempt = self._open.setdefault(key, _Attempt())
        described = _compat.subtest_description(report)
        if described is not None:
            attempt.subtests.append({"description": described, "outcome": report.outcome})
            return
        _add(attempt, report)
        if when not in ("setup", "call"):  # "teardown", or "???" where the process died
            self._close(writer, *key, attempt, facts)
        if when not in ("setup", "call", "teardown"):
            self._crash(writer, report, key[0])

    def _close(
        self, writer: Writer, worker: str | None, nodeid: str, attempt: _Attempt, facts: Mapping[str, Any]
    ) -> None:
        del self._open[worker, nodeid]
        failed = sum(subtest["outcome"] == "failed" for subtest in attempt.subtests)
        if failed and attempt.outcome == "passed":
            attempt.outcome, attempt.reason = "failed", f"{failed} of {len(attempt.subtests)} subtests failed"
        self._attempts[worker, nodeid] += 1
        self._counts[attempt.outcome] += 1
        links = facts.get("links", {})
        writer.write(
            "test",
            nodeid=nodeid,
            worker=worker,
            attempt=self._attempts[worker, nodeid],
            outcome=attempt.outcome,
            duration=attempt.duration,
            reason=attempt.reason,
            longrepr=attempt.longrepr,
            backends=backends(links),
            links=sum(links.values()),
            violations=facts.get("violations", 0),
            documented=facts.get("documented"),
            missing=facts.get("missing"),
            subtests=attempt.subtests,
        )

    @staticmethod
    def _crash(writer: Writer, report: pytest.TestReport, worker: str | None) -> None:
        process: Any = getattr(getattr(report, "node", None), "workerinfo", None) or {}
        last = crash_events(os.environ.get("CUDALINK_EMULATOR_EVENTS", ""), process.get("pid"))
        writer.write("crash", nodeid=report.nodeid, worker=worker, signal=None, exitcode=None, last_events=last)


def _add(attempt: _Attempt, report: pytest.TestReport) -> None:
    """Let one phase have its say; the first that is not a pass decides, and a rerun always does."""
    attempt.duration += report.duration
    outcome = _outcome(report)
    if outcome == "rerun" or attempt.outcome in ("", "passed"):
        attempt.outcome = outcome
    if outcome in ("skipped", "xfailed", "xpassed"):
        attempt.reason = attempt.reason or _reason(report)
    if report.failed or outcome == "rerun":
        text = _text(report)
        attempt.longrepr = attempt.longrepr or text[:_LONGREPR_LIMIT]
        attempt.reason = attempt.reason or _first_line(report, text)


def _text(report: pytest.TestReport) -> str:
    """What a report shows of a failure; of a plain text without the line on the worker that xdist puts before it."""
    return report.longrepr if isinstance(report.longrepr, str) else report.longreprtext


def _outcome(report: pytest.TestReport) -> str:
    outcome: str = report.outcome  # plugins bring their own, such as "rerun"
    xfail = hasattr(report, "wasxfail")
    if report.when not in ("setup", "call", "teardown"):
        return "crashed"
    if outcome == "failed" and report.when != "call":
        return "error"
    return {"skipped": "xfailed", "passed": "xpassed"}.get(outcome, outcome) if xfail else outcome


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    expected = getattr(report, "wasxfail", None)
    if expected is not None:
        return str(expected).removeprefix("reason: ")
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return ""


def _first_line(report: pytest.TestReport, text: str) -> str:
    message = getattr(getattr(report.longrepr, "reprcrash", None), "message", None) or text
    return (str(message).strip().splitlines() or [""])[0]


def crash_events(events: str, pid: int | None) -> list[str]:
    """The last lines that a process wrote to the event file of the emulated driver; none without such a file."""
    try:
        lines = Path(events).read_text(encoding="utf-8", errors="replace").splitlines() if events else []
    except OSError:
        return []
    if pid is not None:
        lines = [line for line in lines if f'"pid":{pid},' in line]
    return lines[-_LAST_EVENTS:]


# -- writing


def open_writer(run: Session, *, first: bool) -> Writer:
    """The writer of ``--cudalink-report``; the process that runs the tests' reports begins the file anew.

    Raises
    ------
    pytest.UsageError
        If the file cannot be written.
    """
    setting = run.settings.report
    from ..report import Writer

    try:
        return Writer(run.config.invocation_params.dir / setting.value, anew=first)
    except OSError as error:
        msg = f"cudalink: --cudalink-report is {setting}; it cannot be written: {error}"
        raise pytest.UsageError(msg) from error


def write_run(run: Session, writer: Writer, facts: Mapping[str, object]) -> None:
    """The first line: what this run is."""
    from ..environment.facts import Environment

    settings = run.settings
    requested = {"driver": settings.driver, "nvjitlink": settings.nvjitlink}
    environment = Environment()
    names = [name for name in environment if name not in ("arch", "gpu")]
    versions = {}
    for name in names:
        found, wanted = environment[name], requested.get(name)
        versions[name] = {
            "requested": wanted.value if wanted is not None and wanted.source != "default" else None,
            "found": found.value,
            "source": found.source,
            "kind": found.kind,
        }
    arch = environment["arch"]
    writer.write(
        "run",
        schema=1,
        run=uuid.uuid4().hex,
        cell=os.environ.get("CUDALINK_CELL"),
        worker=None,
        python=platform.python_version(),
        platform=f"{sys.platform}-{platform.machine()}",
        pytest=pytest.__version__,
        argv=[str(argument) for argument in run.config.invocation_params.args],
        settings={name: {"value": one.value, "source": one.source} for name, one in settings.items()},
        versions=versions,
        arch={"requested": settings.arch.value if settings.arch.source != "default" else None, "found": arch.value},
        facts=json.loads(json.dumps(dict(facts), default=str)),
    )


def add_suite_properties(config: pytest.Config) -> None:
    """What there is, as properties of the suite in a JUnit report."""
    if not _compat.writes_junit(config):
        return
    from ..environment.facts import Environment

    for name, found in Environment().items():
        if found.value is not None:
            _compat.add_suite_property(config, f"cudalink.{name}", f"{found} ({found.source})")


def write_link(writer: Writer, event: LinkEvent, worker: str | None) -> None:
    """One link, with what is only asked for when it is written down."""
    writer.write(
        "link",
        nodeid=event.nodeid,
        worker=worker,
        target=event.target,
        backend=event.backend,
        inputs=[{"kind": item.kind, "name": item.name, "producer": item.producer} for item in event.inputs],
        versions={"driver": event.driver, "nvjitlink": event.nvjitlink},
        duration=event.duration,
        result=event.result,
        message=event.message,
    )


class Reporter:
    """A plugin object, there once a test has facts: puts them on the test's last report.

    Parameters
    ----------
    run : Session
    """

    def __init__(self, run: Session) -> None:
        self._run = run

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, object]:
        report = yield
        if call.when == "teardown" and self._run.facts is not None:
            attach(report, self._run.facts, properties=self._run.settings.properties.value == "on")
        return report
