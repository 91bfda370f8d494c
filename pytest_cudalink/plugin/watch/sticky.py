"""The guard against errors that stay: asks the contexts of this process after each test, and blames the test.

After such an error every later test of the process would fail, and after work without an end it would wait. What is
left of the run therefore goes on in a fresh process, with the machinery of isolated tests, or stops.
"""

import atexit
import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple

import pytest

from ...base.finding import Finding
from ...loader import contexts, loads
from .. import pytest_private
from ..hook_order import register
from ..records import LEDGER
from ..run import Run
from . import CAUSES
from .check import Check, Phase

_SECTION: Final = "cudalink sticky error"
#: Part of the title by which pytest shows the section of a teardown that passed with the failure of its test.
_LATE_SECTION: Final = "cudalink teardown after a sticky error"
_LAST_CALLS: Final = 8
_IN_CAPTURE: Final = 900  # CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED


class LeftBehind(NamedTuple):
    """What a test left behind."""

    nodeid: str
    code: int  # a CUresult, or `contexts.HANGS`
    when: str  # the phase of the test after which it was seen
    by: str = ""  # the earlier test whose open capture it met

    @property
    def error(self) -> str:
        """Name and code of the error, or that work does not end or a capture is open."""
        if self.by:
            return f"the open capture of {self.by}"
        if self.code == contexts.HANGS:
            return "work that does not end"
        from ...emulator.faults import name_of

        return f"{name_of(self.code)} ({self.code})"


class Sticky(Check):
    """The check of each process in which tests share contexts.

    `found`: what made the contexts of this process unusable.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._stops = run.settings.sticky.value == "stop"
        self._deadline = int(run.settings.sticky_deadline.value)
        self._pid = os.getpid()  # a forked copy runs one test alone
        self._question: Callable[[float], int] | None = None
        self._count, self._counted, self._is_loaded = loads.counter(), -1, False
        self._torn_down = False
        self._kept: list[Any] = []  # of a process that hangs: what frees memory of the device would wait
        self.found: LeftBehind | None = None
        self._is_new = False

    def start(self, session: pytest.Session, take_over: Callable[[], object]) -> None:
        """Look once before the first test, so that it is not blamed for what collecting the tests has left.

        `take_over`: lets the rest of the run go on in a fresh process.
        """
        self._take_over = take_over
        left = LeftBehind("", self._ask(), "collect")
        if left.code:
            self._pid = 0
            text = (
                f"collecting the tests left the contexts of the process with {left.error}; a fresh process would meet "
                "it again, so that no test is checked for it"
            )
            self._reporter.show_outside([Finding("error", text, kind=_SECTION)])
        if self._stops and self._run.task is None:
            register(self._run.config, _Stop(session), "sticky-stop")

    def _ask(self) -> int:
        """Return what the contexts of this process answer, see `contexts.RealContexts.ask`."""
        if self._question is None:
            count = self._count()
            # a machine with a driver takes as long to say that it is not loaded as a small test takes
            if count != self._counted or loads.library() is None:
                self._counted, self._is_loaded = count, contexts.is_loaded()
            self._question = contexts.question() if self._is_loaded else None
            if self._question is None:
                return 0
        return self._question(self._deadline)

    def pytest_fixture_post_finalizer(self) -> None:
        """Note that there is something to ask for after a teardown: it ended a fixture."""
        self._torn_down = True

    def look(self, phase: Phase) -> None:
        """Ask after a test, and after a teardown that ended a fixture."""
        asks = phase.when == "call" or phase.error is not None or (phase.when == "teardown" and self._torn_down)
        if asks and self.found is None and os.getpid() == self._pid:
            self._torn_down = False
            code = self._ask()
            by = "" if code or phase.error is None else self._run.part(CAUSES).left_open(phase.error)
            if code or by:
                self.found, self._is_new = LeftBehind(phase.nodeid, code or _IN_CAPTURE, phase.when, by), True
                self._note(phase.item)

    def sections(self, phase: Phase) -> Iterator[Finding]:
        """Fail the test after which the contexts of this process are unusable, whatever its outcome."""
        left, is_new, self._is_new = self.found, self._is_new, False
        if left is None or phase.nodeid != left.nodeid:
            return
        if phase.when == "teardown":
            yield from self._end(phase, left, is_late=not is_new)
        elif is_new or phase.when == "call" or phase.report.failed:  # a plugin may run the test again, in vain
            yield Finding("error", self._story(left), kind=_SECTION)

    def _note(self, item: pytest.Item) -> None:
        """Note in the facts of a test what it left behind, and prepare this process for its end."""
        left = self.found
        assert left is not None  # (the caller has just found it)
        self._run.part(LEDGER).test.sticky = {"code": left.code, "error": left.error}
        if self._stops:
            item.session.shouldfail = _sentence(left.nodeid, left.error)
        if left.code == contexts.HANGS:
            gc.disable()
            self._kept.append(dict(getattr(item, "funcargs", None) or {}))
            pytest_private.drop_fixtures(item.session)

    def _end(self, phase: Phase, left: LeftBehind, *, is_late: bool) -> Iterator[Finding]:
        """Tear down whatever this process has set up, without errors of other tests; hand over the rest of the run.

        A late teardown is that of a test that has failed already: with this error it can only fail.
        """
        report, session = phase.report, phase.item.session
        if not is_late:
            yield Finding("error", self._story(left), kind=_SECTION)
        elif phase.error is not None:
            yield Finding("note", report.longreprtext, kind=_LATE_SECTION)
            report.outcome, report.longrepr = "passed", None
            vars(report).pop("wasxfail", None)
        if left.code == contexts.HANGS:
            pytest_private.drop_fixtures(session)
        else:
            rest = pytest.CallInfo.from_call(
                lambda: pytest_private.teardown_until(phase.item, None),
                when="teardown",
                reraise=(pytest.exit.Exception, KeyboardInterrupt),
            )
            if rest.excinfo is not None:
                yield Finding("note", str(phase.item.repr_failure(rest.excinfo)), kind=_LATE_SECTION)
        if self._run.task is None and not self._stops:
            self._take_over()

    def _story(self, left: LeftBehind) -> str:
        """Return what a test left behind, in lines."""
        if left.code == contexts.HANGS:
            first = (
                f"cudalink: work on the device that this test left did not end within {self._deadline} s after its "
                f"{left.when} (--cudalink-processes=deadline=SECONDS)"
            )
        else:
            where = f"in the contexts of the process by this test, seen after its {left.when}"
            first = f"cudalink: {left.error} was {'met' if left.by else 'left'} {where}"
        goes_on = "the run stops here" if self._stops else "the tests after it run in a fresh process"
        last = self._last_calls(left)
        calls = ["last calls of the driver:", *(f"  {line}" for line in last)]
        if not last:
            calls = ["last calls of the driver: not known, because a real driver does not record them"]
        return "\n".join([first, *calls, f"{goes_on} (--cudalink-processes=sticky={self._run.settings.sticky.value})"])

    def _last_calls(self, left: LeftBehind) -> list[str]:
        """Return the last calls of an emulated driver up to the one that first answered with the error."""
        present = self._run.emulated
        if present is None:
            return []
        events = [event for event in present.events() if "call" in event]
        first = next((at for at, event in enumerate(events) if event["result"] == left.code), len(events))
        return [f"{event['call']} answered {event['result']}" for event in events[: first + 1][-_LAST_CALLS:]]

    def end(self, session: pytest.Session) -> None:
        """Let a process that hangs end without the destructors of its libraries, which would wait."""
        if self.found is not None and self.found.code == contexts.HANGS:
            atexit.register(_leave, session)


class _Stop:
    """A plugin object that stops the run for a test that ran in another process."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        facts = getattr(report, "cudalink", None)
        if facts and facts["sticky"] and not self._session.shouldfail:
            self._session.shouldfail = _sentence(report.nodeid, facts["sticky"]["error"])


def _sentence(nodeid: str, error: str) -> str:
    return f"cudalink: {nodeid} left the contexts of the process with {error}"


def _leave(session: pytest.Session) -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(int(session.exitstatus))
