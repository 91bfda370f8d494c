"""The lifetime checks of a run: shows each violation with the test during which it happened."""

from __future__ import annotations

import gc
from bisect import bisect_left
from collections.abc import Generator
from typing import TYPE_CHECKING, Final, cast

import pytest

if TYPE_CHECKING:
    from ..emulator.control import DriverControl, Violation
    from .run import Run

__all__ = ["Lifetimes", "of"]

_SECTION: Final = "cudalink lifetimes"


def of(run: Run) -> Lifetimes | None:
    """Return the lifetime checks of a run; None where there is no emulated driver or the checks are off."""
    return cast("Lifetimes | None", run.get("lifetimes"))


class Lifetimes:
    """A plugin object that reports the violations of a run, each with the test during which it happened.

    Parameters
    ----------
    run : Run
    driver : DriverControl
        The emulated driver of this process.

    Attributes
    ----------
    driver : DriverControl
    mode : str
        ``"report"``, ``"fail"`` or ``"punish"``.
    """

    def __init__(self, run: Run, driver: DriverControl) -> None:
        self._run, self.driver = run, driver
        self.mode = run.settings.lifetime.value
        self._starts: list[tuple[int, str]] = []
        self._alive = 0
        self._of_teardown: tuple[Violation, ...] = ()
        driver.start_watching()
        run.config.add_cleanup(driver.stop_watching)

    def maker(self, violation: Violation) -> str | None:
        """Return the test that created the link state of a violation."""
        at = bisect_left(self._starts, (violation.state, ""))
        return self._starts[at - 1][1] if at else None

    def collect(self, nodeid: str | None) -> tuple[Violation, ...]:
        """Report the violations since the last call, for a test or for none, and return them."""
        new = self.driver.violations
        if new:
            self.driver.consume(new)
            self._run.part("ledger")
        hook, config = self._run.config.hook, self._run.config
        for one in new:
            hook.pytest_cudalink_violation(config=config, violation=one, nodeid=nodeid, maker=self.maker(one))
        return new

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
        if not new:
            return report
        from ..plurals import counted
        from . import ledger
        from .facts import fail_with

        text = "\n\n".join(ledger.describe(one, self.maker(one), item.nodeid) for one in new)
        if self.mode == "report":
            report.sections.append((_SECTION, text))
            return report
        msg = f"cudalink: {counted(len(new), 'lifetime violation')} during this test's {call.when}:\n{text}"
        fail_with(report, item, _SECTION, text, msg)
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Report what no test shows, before the ledger is closed; fail the run if a violation was lost on the way.

        The driver counts by itself, so that an error in the Python code that it calls hides nothing.
        """
        if self.driver.live_states:
            gc.collect()
        self.collect(None)
        if lost := self.driver.lost_violations:
            from ..plurals import counted
            from . import ledger

            text = (
                f"{counted(lost, 'lifetime violation')} could not be shown: the driver counted more than the plugin "
                "was handed; the output on stderr says why. Run with --cudalink-events=FILE and look there"
            )
            ledger.of(self._run).outside.problems.append(text)
