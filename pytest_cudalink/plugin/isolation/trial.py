"""One more run of a test, in the process that was forked for it: what the test called, raised, broke and left."""

from __future__ import annotations

import ctypes
import gc
import logging
import re
import sys
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import Any, Final

import pytest

from ...base.finding import Violation
from ...base.safe_text import text_of
from ...emulator.control import DriverControl, DriverState, telling_frames
from ...loader.contexts import STICKY_ERRORS
from ...loader.jitlink import jitlink_calls
from ...report.naming import Frame, Raised, Said, came_of
from .. import pytest_private
from ..hook_order import register
from ..run import MakesReport, run_of
from ..settings import COMPILER, LINKER
from ..watch import CAUSES, REPORTER

#: Libraries of NVIDIA's whose own calls of the driver fail in no run: what they do then is not the program's doing.
_CLOSED: Final = ("libnvJitLink.so", "libnvrtc", "libnvvm.so")
#: Seconds for which a thread that was asked to end may still have its contexts.
_LINGERING: Final = 0.5
#: Warnings of Python and pytest, that no test checks for an error of the driver: an exception that
#: was not caught must name its cause like any other.
_OF_OTHERS: Final = (
    DeprecationWarning,
    PendingDeprecationWarning,
    ResourceWarning,
    pytest.PytestUnhandledThreadExceptionWarning,
    pytest.PytestUnraisableExceptionWarning,
)
#: What numpy warns of where the numbers are wrong, such as those that no copy has brought.
_NO_ALARM: Final = re.compile(r"^(?:divide by zero|overflow|underflow|invalid value) encountered|^Mean of empty slice")
#: Titles of what was logged, and a line of a record that a test has cleared, in pytest's own format.
_LOG: Final = ("log setup", "log call", "log teardown")
_ALARM: Final = re.compile(r"(?:WARNING|ERROR|CRITICAL) +(?!asyncio:)")


#: The name under which the process that forks knows the plugin object that watches tests.
_WITNESS: Final = "cudalink-witness"


def prepare(item: pytest.Item) -> None:
    """Import, register and find, once in the process that forks, what each run of a test would have to again."""
    from ...emulator import faults
    from ...linker import causes  # noqa: F401 (what a test that fails imports)
    from ..records import facts  # noqa: F401 (what a test that fails imports)

    item.location  # noqa: B018 (the item keeps it)
    config = item.config
    if config.pluginmanager.has_plugin(_WITNESS):
        return
    reporter = run_of(config).part(REPORTER)
    register(config, _Witness(), "witness")
    faults.code_of(0)
    with suppress(OSError):
        ctypes.CDLL("libgcc_s.so.1")  # the C library opens it for the first stack that the driver notes
    reporter.between()  # each copy would look at what was loaded since the last look
    gc.collect()
    gc.freeze()  # what was imported just now, too


def under_fault(
    item: pytest.Item, driver: DriverControl, *, number: int, code: int, stays: str, again: bool, others: Sequence[str]
) -> dict[str, Any]:
    """Run a test while one of its calls fails; return the values of a `SweptTrial`.

    `number`: of the call; 0 lets all of them pass, and adds their stacks.
    `stays`: one of `control.STAYS`.
    `again`: whether the test runs once more afterwards, with no fault.
    `others`: the libraries besides the driver whose calls count, too.
    """
    if others:
        jitlink_calls.meddle(driver.sweep_of_others, nvjitlink=LINKER in others, nvrtc=COMPILER in others)
    pytest_private.shorten_failures(item)
    before, known = driver.state(), {*vars(item)}
    driver.start_sweep(number, code, stays)
    try:
        witness = _watched(item, lambda: driver.swept_stack(number), driver.state)
    finally:
        count = driver.end_sweep()
    run_of(item.config).part(CAUSES).forget_errors()
    # pytest and, on the item, rerunfailures keep the failure, whose frames keep the objects of the test alive
    for name in ("last_exc", "last_value", "last_traceback", "last_type"):
        vars(sys).pop(name, None)
    for name in vars(item).keys() - known:
        delattr(item, name)
    gc.collect()
    calls = driver.swept_calls(stacks=not number)
    # an error that stays lets nothing be freed any more, and the next test fail
    lasts = stays == "device" or code in STICKY_ERRORS
    result = {
        "outcome": witness.outcome,
        "calls": [call.function for call in calls],
        "unlisted": count - len(calls),
        "failing": [at for at, call in enumerate(calls, 1) if call.failed],
        "messages": witness.messages,
        "notices": witness.said(),
        "violations": witness.violations,
        "lasts": lasts,
        "alive": {} if lasts else _alive(driver, others),
        "before": before,
        "begun": witness.begun,
        "after": None if lasts else _state(driver, before),
        "stacks": [] if number else [None if call.caller.startswith(_CLOSED) else call.stack for call in calls],
    }
    if again and not lasts:
        second = _watched(item)
        result["later"] = second.message if second.outcome == "failed" else ""
    return result


def under_schedule(
    item: pytest.Item,
    driver: DriverControl,
    *,
    seed: int,
    displaced: Sequence[int] | None,
    full_traceback: bool,
    promised: bool,
    left_out: Sequence[int] | None,
) -> dict[str, Any]:
    """Run a test while its queued work happens when a seed says.

    `displaced`: numbers of the operations that may be late; None for all.
    `full_traceback`: whether to write the failure of the test, which is slow.
    `promised`: whether calls are counted that wait although that is not promised.
    `left_out`: numbers of those that do not wait; None for all.
    """
    if not full_traceback:
        pytest_private.shorten_failures(item)
    if promised:
        driver.leave_out_waits(left_out)
    # stacks are read of a run that reports a failure, or in which nothing was displaced
    driver.start_schedule(seed, displaced, stacks=full_traceback or displaced == [])
    try:
        witness = _watched(item)
    finally:
        driver.end_schedule()
        driver.keep_waits()
    # the work of a run that passed is read only where nothing was displaced
    wanted = witness.outcome == "failed" or witness.violations or displaced == []
    return {
        "outcome": witness.outcome,
        "message": witness.message,
        "text": "\n".join(witness.texts),
        "place": witness.place,
        "violations": witness.violations,
        "works": driver.scheduled_work() if wanted else [],
        "waits": driver.unpromised_waits() if promised and wanted else [],
    }


def _state(driver: DriverControl, before: DriverState) -> DriverState:
    """Return what a run has left for later calls, once threads that are about to end have ended."""
    until = time.monotonic() + _LINGERING
    while len((state := driver.state()).threads) > len(before.threads) and time.monotonic() < until:
        time.sleep(0.005)
    return state


def _alive(driver: DriverControl, others: Sequence[str]) -> dict[str, tuple[int, int]]:
    handles = {"nvJitLink handle": (jitlink_calls.live_handles(), 0)} if LINKER in others else {}
    programs = {"NVRTC program": (jitlink_calls.live_programs(), 0)} if COMPILER in others else {}
    return {**driver.alive(), **handles, **programs}


def _watched(
    item: pytest.Item, call: Callable[[], Sequence[str]] = tuple, state: Callable[[], DriverState | None] = lambda: None
) -> _Witness:
    """Run a test; return what watched it, which the next run begins again.

    `call`: returns the stack of the call that has failed.
    `state`: returns the state of the driver.
    """
    witness = item.config.pluginmanager.get_plugin(_WITNESS)
    assert isinstance(witness, _Witness)
    witness.begin(call, state)
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
    return witness


class _Witness:
    """A plugin object that notes what a test raised, what it warned of and wrote, and which rules it broke."""

    def begin(self, call: Callable[[], Sequence[str]], state: Callable[[], DriverState | None]) -> None:
        """Begin with a run of a test: forget the one before."""
        self._call, self._state = call, state
        self.begun: DriverState | None = None
        self.outcome = "passed"
        self.messages: list[Raised] = []
        self.texts: list[str] = []
        self.place = ""
        self._written: dict[str, str] = {}
        self._logged: dict[str, list[Said]] = {}
        self._notices: list[Said] = []
        self.violations: list[str] = []

    @property
    def message(self) -> str:
        """The first line of what it raised."""
        return self.messages[0].text.partition("\n")[0] if self.messages else "it failed"

    def said(self) -> list[Said]:
        """Return what it warned of, logged and wrote."""
        written = [
            Said(line, title.endswith(_LOG) and _ALARM.match(line) is not None)
            for title, text in self._written.items()
            for line in text.splitlines()
        ]
        return [*self._notices, *chain(*self._logged.values()), *written]

    def pytest_runtest_call(self) -> None:
        self.begun = self._state()

    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, None, None]:
        yield
        gc.collect()  # what dies with its own exception must say so while pytest listens
        pytest_private.collect_unraisable(item.config)
        self._take_records(item)

    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> MakesReport:
        report = yield
        if call.excinfo is not None:
            if report.failed:
                self.outcome = "failed"
                self.texts.append(report.longreprtext)
                raised = call.excinfo.traceback[-1]
                self.place = self.place or f"{raised.path}:{raised.lineno + 1}"
            elif report.skipped and self.outcome == "passed":
                self.outcome = "skipped"
            stack = self._call()
            self.messages += [
                Raised(_text(raised), came_of(stack, _frames(raised))) for raised in _chain(call.excinfo.value)
            ]
        self._take_records(item)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # the report of a phase has what those before it have written, too; that of a subtest its own
        subtest = pytest_private.subtest_description(report)
        begin = f"{subtest} {len(self._written)} " if subtest is not None else ""
        self._written |= {begin + title: text for title, text in report.sections if title.startswith("Captured")}

    def _take_records(self, item: pytest.Item) -> None:
        """Note what was logged, whose levels the captured text may not show."""
        for when, records in pytest_private.log_records(item).items():
            self._logged[when] = [
                # asyncio logs uncaught exceptions: these name their causes themselves
                Said(_message(record), record.levelno >= logging.WARNING and record.name != "asyncio")
                for record in records
            ]

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage) -> None:
        text = text_of(warning_message.message)
        self._notices.append(
            Said(text, not (_NO_ALARM.search(text) or issubclass(warning_message.category, _OF_OTHERS)))
        )

    def pytest_cudalink_violation(self, violation: Violation) -> None:
        # no numbers of objects: they differ between runs
        self.violations.append(f"{violation.rule}, noticed by {violation.call}: {violation.what}")
        fix = f"fix  {violation.fix}"
        self.texts += [fix] if violation.fix and fix not in self.texts else []


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those before it, as a traceback shows them, those of a group, and that of a doctest."""
    seen: set[int] = set()
    waiting: list[Any] = [error]
    while waiting:
        raised = waiting.pop(0)
        if not isinstance(raised, BaseException) or id(raised) in seen:
            continue
        seen.add(id(raised))
        yield raised
        waiting += [raised.__cause__, None if raised.__suppress_context__ else raised.__context__]
        waiting += getattr(raised, "exceptions", ())
        if type(raised).__module__ in ("doctest", "_pytest.doctest"):  # UnexpectedException, MultipleDoctestFailures
            waiting += [*getattr(raised, "exc_info", ())[1:2], *getattr(raised, "failures", ())]


def _text(error: BaseException) -> str:
    """Return the type of an exception, its message and its notes; of a doctest, what it has got."""
    message = text_of(error)
    if type(error).__module__ == "doctest":
        example, got = getattr(error, "example", None), getattr(error, "got", None)
        # the example alone: that of another exception comes behind it
        message = f"{example.source.strip()} gave {got.strip()}" if example is not None and got is not None else ""
    notes = [note for note in getattr(error, "__notes__", ()) if isinstance(note, str)]
    return "\n".join([f"{type(error).__name__}: {message}".rstrip(": "), *notes])


def _frames(error: BaseException) -> list[Frame]:
    """Return the frames of the traceback of an exception that tell something, innermost first."""
    frames = []
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        first, last, *_ = next(islice(code.co_positions(), traceback.tb_lasti // 2, None), (None, None))
        first = first or traceback.tb_lineno
        frames.append(Frame(code.co_filename, first, last or first, code.co_name))
        traceback = traceback.tb_next
    return [frame for frame in reversed(frames) if telling_frames([f"{frame.file}:{frame.first} in {frame.function}"])]


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 (logging itself only prints that the arguments do not fit)
        return str(record.msg)
