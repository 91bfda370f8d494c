"""The checks of an emulated driver besides that of lifetimes: deadlocks, accesses that nothing orders, lost events."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from ..conditions import run_driver
from ..parts import LEDGER
from .check import Check
from .violation_check import DriverCheck

if TYPE_CHECKING:
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
