"""Calls that an emulated driver refused as not emulated: shown with the tests that fail because of them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Final

import pytest

from ..report.wording import not_emulated
from .facts import skip_unsupported

if TYPE_CHECKING:
    from ..emulator.control import DriverControl
    from .run import Run

__all__ = ["Refusals"]

_SECTION: Final = "cudalink: not emulated"
#: Errors of fixtures of wider scopes that are recognized when a later test raises them again.
_ERRORS_KEPT: Final = 16
_ADVICE: Final = (
    "A real driver performs what an emulated one refused here with CUDA_ERROR_NOT_SUPPORTED (801). "
    "--cudalink-unsupported=skip skips such tests."
)


class Refusals:
    """A plugin object that names the refused calls of each phase that failed, and may turn the failure into a skip.

    Parameters
    ----------
    run : Run
    driver : DriverControl
        The emulated driver of this process.
    """

    def __init__(self, run: Run, driver: DriverControl) -> None:
        self._run, self._driver = run, driver
        self._skips = run.settings.unsupported.value == "skip"
        self._refused, self._events = driver.unsupported_count, 0
        #: The last errors that were raised after a refusal. pytest keeps the error of a fixture of a wider scope, and
        #: raises it again in every test that asks for the fixture.
        self._known: list[tuple[BaseException, tuple[tuple[str, str], ...]]] = []

    def _since_last_phase(self) -> tuple[tuple[str, str], ...]:
        """Return function and note of the calls that were refused since the last phase, each pair once."""
        refused, count = self._driver.unsupported_count, self._driver.event_count()
        first, self._events = self._events, count
        if refused == self._refused:
            return ()
        self._refused = refused
        return self._driver.unsupported(first)

    def _of(self, error: BaseException | None) -> tuple[tuple[str, str], ...]:
        """Return the refused calls that an error of a phase may come from; empty without an error."""
        new = self._since_last_phase()
        if error is None:
            return ()
        if new:
            self._known.append((error, new))
            return new
        return next((calls for known, calls in self._known if known is error), ())

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        """Note that calls so far belong to no test."""
        self._since_last_phase()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add the refused calls to the report of a phase that failed; a phase that did not fail stays as it is."""
        report = yield
        calls = self._of(call.excinfo.value if call.excinfo is not None else None)
        if not calls or not report.failed:
            return report
        report.sections.append((_SECTION, _text(calls)))
        facts = self._run.part("ledger").test
        facts.refused = [{"function": function, "note": note} for function, note in calls]
        if call.when == "teardown":  # the ledger has handed the facts of this test over
            report.cudalink = facts.as_json()  # type: ignore[attr-defined]
            if self._run.settings.properties.value == "on":
                report.user_properties.append(facts.refused_property())
        if self._skips:
            _skip(item, report, calls)
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Add the refused calls to the report of a file that cannot be collected."""
        del collector
        self._since_last_phase()
        report = yield
        calls = self._since_last_phase()
        if calls and report.failed:
            report.sections.append((_SECTION, _text(calls)))
        return report

    @pytest.hookimpl
    def pytest_runtest_logfinish(self) -> None:
        """Forget the errors that no later test can raise again; a long run would keep the frames of all."""
        del self._known[:-_ERRORS_KEPT]


def _text(calls: Sequence[tuple[str, str]]) -> str:
    return "\n".join([*(f"{function}: {note}" for function, note in calls), "", _ADVICE])


def _skip(item: pytest.Item, report: pytest.TestReport, calls: Sequence[tuple[str, str]]) -> None:
    path, line, _ = item.reportinfo()
    reason = f"cudalink: needs a real driver: {not_emulated([function for function, _ in calls])}"
    skip_unsupported(report, (str(path), (line or 0) + 1, f"Skipped: {reason}"))
