"""Fails what linked on another backend than the forced one, and what could not be forced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from . import ledger
from .facts import fail

if TYPE_CHECKING:
    from .run import Run

__all__ = ["Mismatches", "UnsteeredLinkWarning"]


class UnsteeredLinkWarning(UserWarning):
    """Code that no target steers linked on another backend than the forced one, under ``--cudalink-unsteered=warn``."""


class Mismatches:
    """A plugin object, there once something linked otherwise than it was forced: no test passes over that.

    The error may be caught by the code that linked, expected by the test, or raised where no test runs; the next report
    of a phase fails with it then, or the run.

    Attributes
    ----------
    pending : Counter of str
        How often each problem occurred that no report has shown.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.pending: Counter[str] = Counter()
        self._outside: Counter[str] = Counter()
        self._warnings: Counter[str] = Counter()

    def add(self, text: str, *, warn: bool = False, once: bool = False) -> None:
        """Fail the current test with a problem, or warn of it there; outside of tests, the run.

        Parameters
        ----------
        text : str
        warn : bool
        once : bool
            Do not say how often it occurred: each try to import a library fails in the same way.
        """
        run = self._run
        if run.is_isolated and not run.collected:
            return  # the process that waits for this one has collected, too
        problems = self._warnings if warn else self._outside if run.nodeid is None else self.pending
        problems[text] = 1 if once else problems[text] + 1

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        shown, self.pending = self.pending, Counter()
        warned, self._warnings = self._warnings, Counter()
        for text in _with_number(warned):
            try:
                item.warn(UnsteeredLinkWarning(text))
            except UnsteeredLinkWarning:  # the run turns warnings into errors
                shown[text] += 1
        if text := "\n".join(one for one in _with_number(shown) if not report.failed or one not in report.longreprtext):
            fail(report, "cudalink forced backend", text)
        return report

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Leave out of the summary what the error of a collected file shows."""
        if report.failed:
            for text in [text for text in self._outside if text in report.longreprtext]:
                del self._outside[text]

    def session_finish(self) -> None:
        """Fail the run for those that no report will show, or warn of them.

        Not a hook: another plugin's `pytest_sessionfinish` can be what linked first, too late for pytest to call this.
        """
        problems = [*_with_number(self.pending), *_with_number(self._outside)]
        for text in _with_number(self._warnings):
            try:
                self._run.config.issue_config_time_warning(UnsteeredLinkWarning(text), stacklevel=2)
            except UnsteeredLinkWarning:
                problems.append(text)
        if problems:
            ledger.of(self._run).outside.problems += problems


def _with_number(problems: Counter[str]) -> list[str]:
    return [text if number == 1 else f"{text} ({number} times)" for text, number in problems.items()]
