"""The lifetime checks of a run: shows each violation with the test during which it happened."""

from __future__ import annotations

import gc
from bisect import bisect_left
from collections.abc import Generator
from typing import TYPE_CHECKING, Final

import pytest

from . import descendants
from .parts import LEDGER, LIFETIMES

if TYPE_CHECKING:
    from ..emulator.control import Violation
    from .run import Run

__all__ = ["Lifetimes", "last_look", "of"]

_SECTION: Final = "cudalink lifetimes"


def of(run: Run) -> Lifetimes | None:
    """Return the lifetime checks of a run; None where there is no emulated driver or the checks are off."""
    return run.get(LIFETIMES)


def last_look(run: Run) -> bool:
    """Write violations since the end of the session to stderr; return whether they fail the run."""
    below, checks = descendants.of(run), of(run)
    if below is None or run.reports_elsewhere or run.settings.lifetime.value == "off":
        return False
    found = (*(checks.driver.violations if checks is not None else ()), *below.violations(last=True))
    if checks is not None:
        checks.driver.consume(found)
    below.consume(found)
    return below.say(found)


class Lifetimes:
    """A plugin object that reports the violations of a run, each with the test during which it happened.

    Parameters
    ----------
    run : Run
        One on an emulated driver.

    Attributes
    ----------
    driver : DriverControl
    mode : str
        ``"report"``, ``"fail"`` or ``"punish"``.
    """

    def __init__(self, run: Run) -> None:
        assert run.emulated is not None  # (`lifecycle` has looked)
        self._run, self.driver = run, run.emulated
        self.mode = run.settings.lifetime.value
        self._starts: list[tuple[int, str]] = []
        self._alive = 0
        self._of_teardown: tuple[Violation, ...] = ()
        self._below = descendants.start(run, self.driver)
        self.driver.start_watching()
        run.config.add_cleanup(self._stop)

    def _stop(self) -> None:
        """Let the driver itself report what happens from now on."""
        self.driver.stop_watching()
        self.driver.end_notes(quiet=self._run.reports_elsewhere, fails=self.mode in ("fail", "punish"))

    def maker(self, violation: Violation) -> str | None:
        """Return the test that created the link state of a violation, or that started its process."""
        if violation.process:
            return violation.test or None
        at = bisect_left(self._starts, (violation.state, ""))
        return self._starts[at - 1][1] if at else None

    @property
    def violations(self) -> tuple[Violation, ...]:
        """The violations that were not reported yet, in this process and in those below it."""
        return self.driver.violations + self._below.violations()

    def consume(self, violations: tuple[Violation, ...]) -> None:
        """Remove violations, because they were expected or reported."""
        self.driver.consume(violations)
        self._below.consume(violations)

    def collect(self, nodeid: str | None, *, starts_all: bool = False) -> tuple[Violation, ...]:
        """Report the violations since the last call, for a test or for none, and return those of the test.

        Processes that name no test belong to the test if it `starts_all`, as in a process of its own.
        """
        new = self.violations
        if not new:
            return ()
        self.consume(new)
        self._run.part(LEDGER)
        hook, config = self._run.config.hook, self._run.config
        of_test = [one for one in new if (starts_all and not one.test) or descendants.started_by(one, nodeid)]
        for one in new:
            test = nodeid if one in of_test else None
            hook.pytest_cudalink_violation(config=config, violation=one, nodeid=test, maker=self.maker(one))
        return tuple(of_test)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note that link states from now on belong to this test, and violations so far to none."""
        self.collect(None)
        self._starts.append((self.driver.state_count, nodeid))
        self._alive = self.driver.live_states

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        """Destroy what the test leaves behind, while its report is still to come."""
        try:
            return (yield)
        finally:
            # collecting all garbage takes longer than most tests: only for one that left states
            if self.driver.live_states > self._alive:
                # the values of fixtures would die with the next test only
                getattr(item, "funcargs", {}).clear()
                gc.collect()  # a linker in a cycle is destroyed by the test that made it
            self._of_teardown = self.collect(item.nodeid)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Show violations with their test, and fail it, whatever its outcome: a skip or xfail hides nothing."""
        new, self._of_teardown = self._of_teardown + self.collect(item.nodeid), ()
        report = yield
        self._add(item, report, new, f"during this test's {call.when}")
        return report

    def add_late(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """Show violations after the last report of the process of a test, and fail the test."""
        new = self.collect(item.nodeid, starts_all=True)
        if new and hasattr(report, "cudalink"):
            report.cudalink["violations"] += len(new)
        self._add(item, report, new, "after this test's last report")

    def _add(self, item: pytest.Item, report: pytest.TestReport, new: tuple[Violation, ...], when: str) -> None:
        if not new:
            return
        from ..plurals import counted
        from . import ledger
        from .facts import fail_with

        text = "\n\n".join(ledger.describe(one, self.maker(one), item.nodeid) for one in new)
        if self.mode == "report":
            report.sections.append((_SECTION, text))
        else:
            msg = f"cudalink: {counted(len(new), 'lifetime violation')} {when}:\n{text}"
            fail_with(report, item, _SECTION, text, msg)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Report what no test shows, before the ledger is closed; fail the run if a violation was lost on the way.

        The driver counts by itself, so that an error in the Python code that it calls hides nothing.
        """
        if self.driver.live_states:
            gc.collect()
        self.collect(None)
        if self._run.reports_elsewhere:
            self._below.hand_over()  # before the results are: what comes later goes to the process that takes them
            self._stop()
        if lost := self.driver.lost_violations:
            from ..plurals import counted
            from . import ledger

            text = (
                f"{counted(lost, 'lifetime violation')} could not be shown: the driver counted more than the plugin "
                "was handed; the output on stderr says why. Run with --cudalink-events=FILE and look there"
            )
            ledger.of(self._run).outside.problems.append(text)
