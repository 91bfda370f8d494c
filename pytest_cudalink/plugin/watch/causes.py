"""Why tests fail, or are skipped: what a driver or nvJitLink refused in the phase, or that there is no driver."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, Final

import pytest

from ...base.finding import Finding
from ...base.regular_files import DATA, read_bounded
from ...base.safe_text import text_of
from ...base.words import counted
from ...report.wording import cause_record, explanation, not_emulated
from ..records import LEDGER
from ..run import MakesCollectReport, Run
from . import DESCENDANTS
from .check import Check, Phase, section_of

if TYPE_CHECKING:
    from ...emulator.control import DriverControl
    from ...loader.jitlink.jitlink_calls import RefusedInput
    from .descendants import Descendants

_NOT_EMULATED: Final = "cudalink: not emulated"
_WHY: Final = "cudalink: why"
#: Errors of fixtures of wider scopes that are recognized when a later test raises them again.
_ERRORS_KEPT: Final = 16
_ADVICE: Final = (
    "A real driver performs what an emulated one refused here with CUDA_ERROR_NOT_SUPPORTED (801). "
    "--cudalink-unsupported=skip skips such tests."
)
#: What libraries say that find no driver: cuda.bindings, cuda.pathfinder and the loader, numba, PyTorch, this project.
_NO_DRIVER: Final = (
    r"(?i)libcuda\.so|nvcuda\.dll|CUDA driver library|NVIDIA display driver|no NVIDIA driver|no CUDA driver"
)
#: What the CUDA runtime says, in whatever library it is: that it needs a newer driver, or any, and that the emulated
#: one lacks the tables that it asks for once in a process.
_INSUFFICIENT: Final = r"cudaErrorInsufficientDriver|CUDA driver version is insufficient"
_NOT_SUPPORTED: Final = r"cudaErrorNotSupported|CUDA.*operation not supported"
#: What the driver and the runtime say of calls that an open capture forbids, whosever it is: 900 and 906 of cuda.h.
_OF_CAPTURE: Final = r"(?i)capture_?(unsupported|implicit)|a capturing|is capturing|during capture|\b90[06]\b"
#: The same of a capture that such a call has invalidated: 901.
_INVALID_CAPTURE: Final = r"(?i)capture_?invalidated|capture invalidated|\b901\b"
#: How libraries say so, too: enough where the runtime of the process is known to have been refused.
_REPEATED: Final = (
    r"cudaErrorNotSupported|operation not supported|not supported with this CUDA|(?i:error|code|status)\W{1,3}801\b"
)
#: What libraries say that swallowed the refusal of a question for the version, as RMM does: it must be a release.
_NEEDS: Final = r"(?i:requires|needs) CUDA (\d{1,3}\.\d{1,2})(?![.\d])"
#: Members of the events of refusals that are not shown as calls that are not emulated.
_SHOWN_APART: Final = {"image", "linker failed"}
#: The call by which the runtime asks for them.
_ASKS: Final = "cuGetExportTable"
_RUNTIME: Final = "the CUDA runtime"
_NO_TABLES: Final = "it asks the driver for undocumented tables, which an emulated one lacks"


class Causes(Check):
    """Explains each phase that failed, and may turn a failure after a refused call into a skip.

    There once this process has a driver to watch or native code. The evidence of a cause is the calls that are not
    emulated, with why.
    """

    has_signs = True

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._skips = run.settings.unsupported.value == "skip"
        self._driver: DriverControl | None = None
        self._below: Descendants | None = None
        self._refused = self._events = self._looked = 0
        self._input: RefusedInput | None = None
        self._has_cause = False
        #: Where the CUDA runtime of this process was refused; it asks once, and repeats that answer in every call.
        self._runtime_refused = ""
        #: Errors after that refusal, as `_kind` has them: a library may raise its own, without the code.
        self._of_refused_runtime: set[tuple[object, ...]] = set()
        self._unexplained: set[str] = set()
        #: The test that began last, how many captures were open then, and the test that left one; how many were ever
        #: invalidated then, and the test that last did.
        self._test, self._captures, self._left_open = "", 0, ""
        self._invalid, self._invalidated = 0, ""
        #: The last errors that were raised after a refusal. pytest keeps the error of a fixture of a wider scope, and
        #: raises it again in every test that asks for the fixture.
        self._known: list[tuple[BaseException, Finding]] = []

    def watch(self) -> None:
        """Explain what the emulated driver of this process refuses, and those of processes below it.

        The signs are those of all checks of the driver.
        """
        self._driver, self._below = self._run.emulated, self._run.part(DESCENDANTS)
        assert self._driver is not None  # (`lifecycle` has looked)
        self._reporter.add_signs(*self._driver.signs, self._below.count)

    def refused_input(self, refused: RefusedInput) -> None:
        """Explain with an input that nvJitLink refused the phase that is about to end."""
        self._input = refused

    def _since_last_phase(self, nodeid: str) -> Sequence[dict[str, Any]]:
        """Return the events of the calls that were refused since the last phase, in a test or outside of tests."""
        if self._driver is None:
            return ()
        first, self._events = self._events, self._driver.event_count()
        if first == self._events or (refused := self._driver.refusal_count) == self._refused:
            return ()
        self._refused = refused
        events = _as_called(self._driver.refusals(first))
        if any(event["call"] == _ASKS for event in events):
            self._runtime_refused = self._runtime_refused or nodeid or "code outside of tests"
        return events

    def _forget(self) -> None:
        self._since_last_phase("")
        self._refused_below("")
        self._input = None

    def _refused_below(self, nodeid: str) -> Sequence[dict[str, Any]]:
        """Return the calls that were refused since the last phase in processes that a test has started."""
        return () if self._below is None else _as_called(self._below.refusals(nodeid))

    def _of(
        self, error: BaseException | None, nodeid: str = "", report: pytest.TestReport | None = None
    ) -> Finding | None:
        """Return what an error of a phase may come from; nothing without an error."""
        # what the test itself did comes last, and counts first
        events, refused = [*self._refused_below(nodeid), *self._since_last_phase(nodeid)], self._input
        self._input = None
        if error is None:
            if functions := {_name(event) for event in events if event.get("unsupported")}:
                facts = self._run.part(LEDGER).test
                facts.passed_over = sorted(functions.union(facts.passed_over))
            return None
        cause = next(filter(None, map(_of_link_error, _chain(error))), None)
        if cause is None and (events or refused):
            cause = self._explained(events, refused)
        if cause is not None:
            self._known.append((error, cause))
            self._remember(error, cause)
            return cause
        if (known := next((earlier for known, earlier in self._known if known is error), None)) is not None:
            return known
        if (of_runtime := self._of_runtime(error, report)) is not None:
            self._remember(error, of_runtime)
            return of_runtime
        if self._driver is None:
            return _missing_driver(error, self._run.config)
        return self._of_capture(error, self._driver)

    def left_open(self, error: BaseException) -> str:
        """Return the earlier test whose open capture an error comes from; "" if there is none."""
        if not self._left_open or self._driver is None or not self._driver.state().captures:
            return ""
        return self._left_open if _telling(error, _OF_CAPTURE) else ""

    def _of_capture(self, error: BaseException, driver: DriverControl) -> Finding | None:
        """Return what an error comes from that says something of a capture."""
        from ...linker import causes

        state = driver.state()
        number, call, by_mode = state.invalid
        if number and (said := _telling(error, _INVALID_CAPTURE)):
            where = "" if number > self._invalid else self._invalidated
            return causes.invalid_capture(said, _in_header({"call": call}), where, by_mode=by_mode)
        if (self._left_open or state.captures) and (said := _telling(error, _OF_CAPTURE)):
            return causes.open_capture(said, self._left_open)
        return None

    def _remember(self, error: BaseException, cause: Finding) -> None:
        """Recognize the error when the refused runtime of this process leads to it again."""
        if any(name == _RUNTIME for name, _ in cause.evidence) and (kind := _kind(error)):
            self._of_refused_runtime.add(kind)

    def _explained(self, events: Sequence[dict[str, Any]], refused: RefusedInput | None) -> Finding | None:
        """Return the last refusal that explains a failure."""
        from ...linker import causes

        for event in reversed(events):
            if "linker failed" in event:
                return causes.linker_failed(_in_header(event), str(event["linker failed"]))
            if "image" not in event:
                break
            if cause := causes.explain(_of_driver(event, self._driver)):
                return cause
        if refused is not None and (cause := _of_nvjitlink(refused)):
            return cause
        calls = dict.fromkeys((_name(event), _note(event)) for event in events if not _SHOWN_APART & event.keys())
        return _not_emulated(*calls) if calls else None

    # -- the CUDA runtime, and a missing driver

    def _of_runtime(self, error: BaseException, report: pytest.TestReport | None) -> Finding | None:
        """Return what the words of the CUDA runtime say; None where they say nothing, or that there is no driver.

        Libraries such as Warp write them to stderr, and raise others.
        """
        from ...linker import causes
        from ...probes import driver_version_elsewhere
        from ...versions import CudaVersion

        words, note, output = _NOT_SUPPORTED, _NO_TABLES, ""
        if self._runtime_refused:
            words = _REPEATED
            note = f"it was refused in {self._runtime_refused}, and repeats that for as long as its process lasts"
            if report is not None:
                output = f"{report.capstdout}\n{report.capstderr}"
        says = _telling(error, words) or re.search(words, output) or _kind(error) in self._of_refused_runtime
        if not says and self._runtime_refused and (needs := re.search(_NEEDS, _telling(error, _NEEDS))):
            # the driver is of that release, and only who was refused its version says that it is not
            says = (driver_version_elsewhere() or (0, 0)) >= CudaVersion.parse(needs[1])
        if self._driver is not None and says:
            return _not_emulated((_RUNTIME, note))
        said = _telling(error, _INSUFFICIENT)
        if said and (version := driver_version_elsewhere()) is not None:
            return causes.insufficient_driver(said, version)
        return None

    # -- reports

    def begin(self, nodeid: str) -> None:
        """Note that calls so far belong to no test, and drop errors that no later test can raise again.

        A long run would keep the frames of all.
        """
        self._forget()
        # without a call since the last test, nothing has changed, and asking costs more than the test
        if self._driver is not None and self._events != self._looked:
            self._looked = self._events
            state, before, test = self._driver.state(), self._captures, self._test or "code outside of tests"
            self._captures = state.captures
            if state.invalid[0] > self._invalid:
                self._invalid, self._invalidated = state.invalid[0], test
            if self._captures > before:
                self._left_open = test
            elif not self._captures:
                self._left_open = ""
        self._test = nodeid
        del self._known[:-_ERRORS_KEPT]

    def forget_errors(self) -> None:
        """Keep no error, whose frames keep the objects of its test alive."""
        self._known.clear()

    def sections(self, phase: Phase) -> Sequence[Finding]:
        """Explain the report of a phase that failed; a phase that did not fail stays as it is."""
        cause = self._of(phase.error, phase.nodeid, phase.report)
        if self._has_cause and phase.when == "setup":  # a plugin runs the test again
            self._has_cause, self._run.part(LEDGER).test.cause = False, None
        if cause is None or not phase.report.failed:
            if self._runtime_refused and phase.report.failed:
                self._unexplained.add(phase.nodeid)
            return ()
        self._has_cause = True
        self._run.part(LEDGER).test.refuse(cause)
        return [_section(cause, skips=self._skips)]

    def finish(self) -> None:
        """Report how many failures the refused CUDA runtime of this process may have caused unseen."""
        if self._unexplained:
            failed = f"{counted(len(self._unexplained), 'later test')} without a known cause"
            self._run.part(LEDGER).outside.of_processes.append(
                f"the CUDA runtime of a process was refused in {self._runtime_refused}, and refuses every later call; "
                f"{failed} may have failed because of it: --cudalink-processes=isolated shows which"
            )

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> MakesCollectReport:
        """Know what is refused while a file is collected."""
        del collector
        self._forget()
        return (yield)

    # the only hook that reports a failed collection before its report goes on and costs a passing run nothing
    def pytest_exception_interact(
        self, call: pytest.CallInfo[object], report: pytest.CollectReport | pytest.TestReport
    ) -> None:
        """Explain why a file cannot be collected."""
        if isinstance(report, pytest.CollectReport) and call.excinfo is not None:
            cause = self._of(call.excinfo.value)
            if cause is not None:
                report.sections.append(section_of(_section(cause)))
                report.cudalink_cause = cause_record(cause)  # type: ignore[attr-defined]


def explain_crash(run: Run, call: tuple[str, str], last: pytest.TestReport) -> Finding:
    """Return what shows that a process died of a refused call, which its library did not expect.

    The facts of the test, in the process that waited for the other, get function and note of the call, and go onto its
    last report.
    """
    event = dict(zip(("call", "note"), call, strict=True))
    cause = _not_emulated((_name(event), _note(event)))
    run.part(LEDGER).test.refuse(cause)
    run.part(LEDGER).put_on(last)
    return _section(cause, skips=run.settings.unsupported.value == "skip")


def explain_unasked(
    config: pytest.Config, report: pytest.TestReport | pytest.CollectReport, error: BaseException
) -> None:
    """Explain a failure for want of a driver in a run for which nothing asks; of other failures it knows nothing."""
    if report.failed and (cause := _missing_driver(error, config)) is not None:
        report.sections.append(section_of(_section(cause)))


def _missing_driver(error: BaseException, config: pytest.Config) -> Finding | None:
    said = _telling(error, _NO_DRIVER) or _telling(error, _INSUFFICIENT)
    from ...emulator import preload

    if not said or preload.emulated_driver() is not None or preload.driver_exists():
        return None
    from .. import settings
    from ..conditions import run_driver

    why = "this process finds no CUDA driver, real or emulated"
    fixes = (run_driver.remedy(config, settings.resolve(config)), "with a GPU, install the NVIDIA driver")
    return Finding("error", said, why=why, kind="no_driver", suggestion=fixes)


def _not_emulated(*calls: tuple[str, str]) -> Finding:
    """Return the cause of a failure after calls that are not emulated; each with why."""
    from ...linker import causes

    return replace(causes.not_emulated(*calls[-1]), evidence=calls)


def _section(cause: Finding, *, skips: bool = False) -> Finding:
    if not cause.evidence:
        return Finding("note", explanation(cause), kind=_WHY)
    text = (*(f"{function}: {note}" for function, note in cause.evidence), "", _ADVICE)
    reason = f"cudalink: needs a real driver: {not_emulated([function for function, _ in cause.evidence])}"
    return Finding("unknown" if skips else "note", reason, evidence=text, kind=_NOT_EMULATED)


def _telling(error: BaseException, words: str) -> str:
    """Return the line of an error or of one that it comes from in which the words stand; empty without one."""
    for raised in _chain(error):
        for line in text_of(raised).splitlines():
            if re.search(words, line):
                return f"{type(raised).__name__}: {line.strip()[:200]}"
    return ""


def _kind(error: BaseException) -> tuple[object, ...]:
    """Return what errors share that one line raises with one text; nothing of an assertion, which compares values."""
    places = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    if not places or isinstance(error, AssertionError):
        return ()
    return type(error), text_of(error), places[-1]


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those that it comes from, each once; the error that a user sees first."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _as_called(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the events without those of the runtime that a Python function of it asked, to answer as it does."""
    if not events:
        return []
    calls = ["", *(str(event["call"]) for event in events), ""]
    of_python = [
        before.startswith("cuda") or after.startswith("cuda") for before, after in zip(calls, calls[2:], strict=False)
    ]
    return [event for event, asked in zip(events, of_python, strict=True) if event["call"] != _ASKS or not asked]


def _name(event: dict[str, Any]) -> str:
    """Return the name of what was refused: the function, or the CUDA runtime, which calls one for itself."""
    return _RUNTIME if event["call"] == _ASKS else str(event["call"])


def _in_header(event: dict[str, Any]) -> str:
    """Return the name that a function has in cuda.h."""
    return re.sub(r"_v\d+$", "", str(event["call"]))


def _note(event: dict[str, Any]) -> str:
    """Return why a call was refused, with the process that a test has started for it."""
    note = _NO_TABLES if event["call"] == _ASKS else str(event.get("note", ""))
    return f"{note} (in {event['process']})" if "process" in event else note


def _of_driver(event: dict[str, Any], control: DriverControl | None) -> Any:
    """Return the refusal that an event of an emulated driver reports."""
    from ...artifacts import read_words
    from ...linker.causes import Refusal
    from ...versions import CudaVersion

    assert control is not None
    call = _in_header(event)
    version = CudaVersion.from_driver(event["version"]) if "version" in event else control.version
    return Refusal(
        call=call,
        code=int(event["result"]),
        image=read_words(event["image"]),
        backend="driver",
        version=version,
        loads=not call.startswith("cuLink"),
        arch=f"sm_{event['for']}",
    )


def _of_nvjitlink(refused: RefusedInput) -> Finding | None:
    """Return why nvJitLink refused an input; None where its version does not explain it."""
    from ... import probes
    from ...artifacts import inspect
    from ...linker.causes import Refusal, explain

    content = refused.content
    with suppress(OSError, RuntimeError):
        if refused.call == "nvJitLinkAddFile":
            content = read_bounded(refused.content.decode("utf-8", "surrogateescape"), DATA)
        version = probes.version_of_nvjitlink(refused.library)
        if version is not None:
            return explain(Refusal(refused.call, refused.code, inspect(content), "nvjitlink", version))
    return None


def _of_link_error(error: BaseException) -> Finding | None:
    """Return the cause of an error of the bundled linker, which knows the input that was refused."""
    errors = sys.modules.get("pytest_cudalink.linker.errors")
    if errors is None or not isinstance(error, errors.LinkError):
        return None
    from ...linker.causes import of_link_error

    return of_link_error(error)
