"""The results of tests: turns the reports of all processes into lines of the record file."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from ...base.process_end import ProcessEnd, crash_events, end_of, has_crash
from ...base.safe_text import shortened
from ...base.words import counted
from ...report.records import CrashRecord, EndRecord, ExitRecord, StickyRecord, SubtestRecord, TestRecord, Writer
from ...report.wording import split_link_key
from .. import pytest_private
from ..run import Run, RunPart
from .facts import Environment
from .ledger import Ledger, is_unsupported
from .record_file import RecordFile

#: Characters of a failure and of its reason, so that the note on what is cut fits into the schema's 4,000.
_LONGREPR_LIMIT: Final = 3_950
#: The exit codes of a session in which every selected test ran.
_RAN: Final = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
#: Outcomes of an attempt that no later phase changes into another failure.
_FAILURES: Final = ("failed", "error", "rerun", "crashed")


def backends(links: Mapping[str, int]) -> dict[str, int]:
    """Return the number of links by backend, of counts by ``target/backend``."""
    counts: Counter[str] = Counter()
    for key, count in links.items():
        counts[split_link_key(key)[1]] += count
    return dict(counts)


@dataclass
class _Attempt:
    """The reports of one attempt so far."""

    outcome: str = ""
    duration: float = 0.0
    reason: str = ""
    longrepr: str = ""
    unsupported: str = ""
    subtests: list[SubtestRecord] = field(default_factory=list)


class Results(RunPart):
    """A plugin object that collects the reports of each test, wherever it ran, until its last one.

    `run`: one with a record file, in the process that runs no test for another.
    """

    def __init__(self, run: Run) -> None:
        file = run.get(RecordFile)
        assert file is not None  # (`lifecycle` opens it first)
        self._run, self._file, self._writer = run, file, file.writer
        self._open: dict[tuple[str | None, str], _Attempt] = {}
        self._attempts: Counter[tuple[str | None, str]] = Counter()
        self._counts: Counter[str] = Counter()
        self._began = time.perf_counter()
        self._session: pytest.Session | None = None
        self._code: int | None = None  # the exit code that the end of the record has
        self._died: dict[str | None, Any] = {}  # workers of xdist
        # not before, because pytest and plugins change the exit code until now; without a session there is an end, too
        run.config.add_cleanup(self._end)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        key = (pytest_private.worker_of(report), report.nodeid)
        when: str | None = report.when
        if when == "setup" and key in self._open:  # a rerun began before the last attempt was torn down
            self._close(*key, self._open[key], {})
        attempt = self._open.setdefault(key, _Attempt())
        described = pytest_private.subtest_description(report)
        if described is not None:
            outcome = "unsupported" if is_unsupported(report) else report.outcome
            attempt.subtests.append({"description": described, "outcome": outcome})
            if outcome == "unsupported":
                attempt.unsupported = _reason(report)
            return
        _add(attempt, report)
        if when not in ("setup", "call"):  # "teardown", or "???" where the process died
            self._close(*key, attempt, getattr(report, "cudalink", None) or {})
        if when not in ("setup", "call", "teardown"):
            self._crash(report.nodeid, key[0], getattr(report, "node", None))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Write a file that cannot be imported, or is skipped as a whole, like a test of its name."""
        if report.passed:
            return
        attempt = _Attempt("skipped", reason=_reason(report))
        if report.failed:
            text = report.longreprtext
            last = (text.splitlines() or [""])[-1]
            last = shortened(last.removeprefix("E").strip(), _LONGREPR_LIMIT)
            attempt = _Attempt("error", reason=last, longrepr=shortened(text, _LONGREPR_LIMIT))
        key = (None, report.nodeid)
        self._open[key] = attempt
        self._close(*key, attempt, {"cause": getattr(report, "cudalink_cause", None)})

    def end(self, session: pytest.Session) -> None:
        """Write what has no result yet, and what the sums of the ledger have."""
        for (worker, nodeid), attempt in list(self._open.items()):
            # an attempt that is to be repeated is not torn down; any other was interrupted, and has no result
            if attempt.outcome == "rerun":
                self._close(worker, nodeid, attempt, {})
        for worker, node in list(self._died.items()):
            self._crash(None, worker, node)
        for sticky in self._run.part(Ledger).totals.sticky:
            self._writer.write(StickyRecord(**sticky))
        self._session = session

    def _end(self) -> None:
        """Write the end of the run, with the exit code that pytest and other plugins have left."""
        code = int(pytest.ExitCode.INTERNAL_ERROR)
        # a plugin that fails now ends pytest
        if self._session is not None and not (sys.exception() and self._session.exitstatus in _RAN):
            code = int(self._session.exitstatus)
        self._code = code
        option = self._run.config.option
        failing = [*self._run.failing]
        if option.setuponly:
            failing.append("no test ran, only set-up and tear-down: --setup-only or --setup-plan")
        self._writer.write(
            EndRecord(
                exitstatus=code,
                duration=time.perf_counter() - self._began,
                counts=dict(self._counts),
                failing=failing,
                unlinked_modules=self._run.part(Ledger).totals.unlinked_modules,
            )
        )
        self._file.drop_earlier({nodeid for _, nodeid in self._attempts})

    def last_look(self, code: int, why: str) -> None:
        """Note that pytest ends with another exit code than the end of the record has."""
        if self._code in (None, code):
            return
        self._code = code
        with suppress(OSError), Writer(self._writer.path) as writer:
            writer.write(ExitRecord(exitcode=code, output=[why] if why else []))

    def fail_late(self, why: str) -> None:
        """Note that the process ends with 1 where pytest ended with 0."""
        if self._code == pytest.ExitCode.OK:
            self.last_look(int(pytest.ExitCode.TESTS_FAILED), why)

    def _close(self, worker: str | None, nodeid: str, attempt: _Attempt, facts: Mapping[str, Any]) -> None:
        """Write the line of an attempt."""
        del self._open[worker, nodeid]
        failed = sum(subtest["outcome"] == "failed" for subtest in attempt.subtests)
        if failed and attempt.outcome not in _FAILURES:
            attempt.outcome, attempt.reason = (
                "failed",
                f"{failed} of {counted(len(attempt.subtests), 'subtest')} failed",
            )
        if attempt.unsupported and attempt.outcome == "passed":
            attempt.outcome, attempt.reason = "unsupported", attempt.unsupported
        self._attempts[worker, nodeid] += 1
        self._counts[attempt.outcome] += 1
        links = facts.get("links", {})
        self._file.write(
            TestRecord,
            attempt,
            nodeid=nodeid,
            worker=worker,
            attempt=self._attempts[worker, nodeid],
            backends=backends(links),
            links=sum(links.values()),
            violations=sum(facts.get("violations", {}).values()),
            documented=facts.get("documented"),
            missing=facts.get("missing"),
            refused=facts.get("refused", []),
            unsteered=sum(facts.get("unsteered", {}).values()),
            cause=facts.get("cause"),
        )

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        if error:  # such as "Not properly terminated"; a test that it ran is reported next
            self._died[node.gateway.id] = node

    def _crash(self, nodeid: str | None, worker: str | None, node: Any) -> None:
        """Write how a worker of xdist died, unless a signal has let it write that."""
        self._died.pop(worker, None)
        if has_crash(self._writer.path, nodeid, worker):
            return
        process: Any = getattr(node, "workerinfo", None) or {}
        last = crash_events(os.environ.get("CUDALINK_EMULATOR_EVENTS"), process.get("pid"))
        code = pytest_private.exit_code_of_worker(node)
        end = end_of(code) if code is not None else ProcessEnd()
        self._file.write(CrashRecord, end, nodeid=nodeid, worker=worker, last_events=last)


def _add(attempt: _Attempt, report: pytest.TestReport) -> None:
    """Fold one phase into the attempt: a rerun or crash always wins, then the first failure, then the first skip."""
    attempt.duration += report.duration
    outcome = _outcome(report)
    if outcome in ("failed", "error") and attempt.outcome not in _FAILURES:
        attempt.reason = ""  # that of a skip or of an expected failure before
        attempt.outcome = outcome
    elif outcome in ("rerun", "crashed") or attempt.outcome in ("", "passed"):
        attempt.outcome = outcome
    if outcome in ("skipped", "xfailed", "xpassed", "unsupported"):
        attempt.reason = attempt.reason or _reason(report)
    if report.failed or outcome == "rerun":
        # of a plain text without the line on the worker that xdist adds
        text = report.longrepr if isinstance(report.longrepr, str) else report.longreprtext
        attempt.longrepr = attempt.longrepr or shortened(text, _LONGREPR_LIMIT)
        message = getattr(getattr(report.longrepr, "reprcrash", None), "message", None) or text
        first = (str(message).strip().splitlines() or [""])[0]
        attempt.reason = attempt.reason or shortened(first, _LONGREPR_LIMIT)


def _outcome(report: pytest.TestReport) -> str:
    outcome: str = report.outcome  # plugins bring their own, such as "rerun"
    if is_unsupported(report):
        return "unsupported"
    xfail = hasattr(report, "wasxfail")
    if report.when not in ("setup", "call", "teardown") or getattr(report, "cudalink_crashed", False):
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


def environment_facts() -> dict[str, str]:
    """Return the facts of the environment in words, by name."""
    return {name: f"{fact} ({fact.source})" for name, fact in Environment().items() if fact.value is not None}


def add_properties(config: pytest.Config, facts: Mapping[str, str]) -> None:
    """Give the suite of a JUnit report some facts as properties."""
    for name, value in facts.items():
        pytest_private.add_suite_property(config, f"cudalink.{name}", value)
