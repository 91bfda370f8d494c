"""The checks of an emulated driver's threads and of its memory: deadlocks, and accesses that nothing orders."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

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
