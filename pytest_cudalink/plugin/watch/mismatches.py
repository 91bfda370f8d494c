"""Fails what linked on another backend than the forced one, and what could not be forced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from .check import Check, Phase, Seen

if TYPE_CHECKING:
    import pytest

    from ..run import Run


_SECTION: Final = "cudalink forced backend"


class UnsteeredLinkWarning(UserWarning):
    """Code that no target steers linked on another backend than the forced one, under ``--cudalink-unsteered=warn``."""


class Mismatches(Check):
    """There once something linked otherwise than it was forced: no test passes over that.

    The error may be caught by the code that linked, expected by the test, or raised where no test runs; the next report
    of a phase fails with it then, or the run.

    `pending`: how often each problem occurred that no report has shown.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.pending: Counter[str] = Counter()
        self._outside: Counter[str] = Counter()
        self._warnings: Counter[str] = Counter()

    def add(self, text: str, *, warn: bool = False, once: bool = False) -> None:
        """Fail the current test with a problem, or warn of it there; outside of tests, the run.

        `once`: do not say how often it occurred: each try to import a library fails in the same way.
        """
        run = self._run
        if run.is_isolated and not run.collected:
            return  # the process that waits for this one has collected, too
        with run.lock:
            problems = self._warnings if warn else self._outside if run.nodeid is None else self.pending
            problems[text] = 1 if once else problems[text] + 1

    def sections(self, phase: Phase) -> Iterator[Seen]:
        yield from self._warned()
        shown, self.pending = self.pending, Counter()
        failed = phase.report.failed
        if text := "\n".join(one for one in _with_number(shown) if not failed or one not in phase.report.longreprtext):
            yield Seen(_SECTION, text)

    def _warned(self) -> list[Seen]:
        warned, self._warnings = self._warnings, Counter()
        return [Seen(_SECTION, text, "warn", category=UnsteeredLinkWarning) for text in _with_number(warned)]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Leave out of the summary what the error of a collected file shows."""
        if report.failed:
            for text in [text for text in self._outside if text in report.longreprtext]:
                del self._outside[text]

    def finish(self) -> list[Seen]:
        """Fail the run for those that no report will show, or warn of them."""
        texts = [*_with_number(self.pending), *_with_number(self._outside)]
        return [*(Seen(_SECTION, text) for text in texts), *self._warned()]


def _with_number(problems: Counter[str]) -> list[str]:
    return [text if number == 1 else f"{text} ({number} times)" for text, number in problems.items()]
