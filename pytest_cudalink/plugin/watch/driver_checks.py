"""The checks of an emulated driver: lifetimes, deadlocks, accesses that nothing orders, lost events."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from ...base.finding import Finding, Violation
from ...base.words import counted
from ..conditions import run_driver
from ..parts import DESCENDANTS, LEDGER
from .check import Check
from .violation_check import DriverCheck

if TYPE_CHECKING:
    import pytest

    from ..run import Run


class Deadlocks(DriverCheck):
    """Fails each test in which all threads wait in the driver, which gives them up."""

    name, title = "deadlock", "cudalink deadlock"

    def __init__(self, run: Run) -> None:
        super().__init__(run, "fail")
        if run.is_worker:
            self.driver.find_messenger()


class Order(DriverCheck):
    """Reports each pair of accesses to memory that no stream, event or wait orders."""

    name, title = "order", "cudalink order"

    def __init__(self, run: Run) -> None:
        super().__init__(run, run.settings.order.value)
        self.driver.check_order(on=True)
        run.config.add_cleanup(partial(self.driver.check_order, on=False))

    def begin(self, nodeid: str) -> None:
        """Name a pair again that an earlier test had."""
        self.driver.check_order(on=True)
        super().begin(nodeid)


def lose_events(run: Run, why: str) -> None:
    """Add the problem that events of a process are missing in the event file; the run shows it once."""
    file = f"cudalink_events is {run.settings.events}"
    if run_driver.inherited(run.config):
        file = f"CUDALINK_EMULATOR_EVENTS is {os.environ.get('CUDALINK_EMULATOR_EVENTS')}"
    run.part(LEDGER).outside.unwritten.append(
        f"the events of the emulated driver cannot be written: {file}: {why}; calls are missing in that file"
    )


class EventFile(Check):
    """The check, at the end, whether the driver of this process wrote every event."""

    def finish(self) -> tuple[()]:
        if self._run.emulated is not None and (why := self._run.emulated.event_file_error):
            lose_events(self._run, why)
        return ()


#: Bytes of a test's name from which on a note may have it cut.
_CUT: Final = 600


class Lifetimes(DriverCheck):
    """Reports the violations of a run on an emulated driver, in this process and in those below it."""

    name, title, handle = "lifetimes", "cudalink lifetimes", "link state"

    def __init__(self, run: Run) -> None:
        super().__init__(run, run.settings.lifetime.value)
        self._alive = 0
        #: Whether processes that name no test belong to the test, as its own process does.
        self._starts_all = False
        self._below = run.part(DESCENDANTS)

    @property
    def violations(self) -> tuple[Violation, ...]:
        return super().violations + self._below.violations()

    def consume(self, violations: tuple[Violation, ...]) -> None:
        super().consume(violations)
        self._below.consume(violations)

    @property
    def handle_count(self) -> int:
        return self.driver.state_count

    def belongs_to(self, nodeid: str | None, violation: Violation) -> bool:
        test = violation.test
        if not violation.process or (self._starts_all and not test):
            return True
        return nodeid is not None and (test == nodeid or (len(test.encode()) > _CUT and nodeid.startswith(test)))

    def begin(self, nodeid: str) -> None:
        self._alive = self.driver.live_states
        super().begin(nodeid)

    def leaves(self) -> bool:
        return self.driver.live_states > self._alive

    def add_late(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """Show violations after the last report of the process of a test, and fail the test."""
        self._starts_all = True  # this process runs no test itself
        self.collect(item.nodeid)
        self._starts_all = False
        if self._new and hasattr(report, "cudalink"):
            counts = report.cudalink["violations"]
            counts[self.name] = counts.get(self.name, 0) + len(self._new)
        self._reporter.show(item, report, self._sections(item.nodeid, "after this test's last report"))

    def finish(self) -> Iterator[Finding]:
        """Report what no test shows; fail the run if a violation was lost on the way.

        The driver counts by itself, so that an error in the Python code that it calls hides nothing.
        """
        if self.driver.live_states:
            gc.collect()
        self.collect(None)
        if self._run.reports_elsewhere:
            self._below.hand_over()  # before the results are: what comes later goes to the process that takes them
        if lost := self.driver.lost_violations:
            text = (
                f"{counted(lost, 'lifetime violation')} could not be shown: the driver counted more than the plugin "
                "was handed; the output on stderr says why. Run with -o cudalink_events=FILE and look there"
            )
            yield Finding("error", text, kind=self.title)
