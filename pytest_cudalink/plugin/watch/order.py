"""The check of order: accesses to memory that no stream, event or wait orders, on an emulated driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .violation_check import DriverCheck

if TYPE_CHECKING:
    from ..run import Run

__all__ = ["Order"]


class Order(DriverCheck):
    """Reports each pair of accesses of a test that nothing orders."""

    name, title, handle = "order", "cudalink order", "memory"

    def __init__(self, run: Run) -> None:
        super().__init__(run, run.settings.order.value)
        self.driver.start_watching()
        self.driver.check_order(on=True)
        run.config.add_cleanup(self._stop)

    def _stop(self) -> None:
        self.driver.check_order(on=False)
        self.driver.stop_watching()

    def begin(self, nodeid: str) -> None:
        """Name a pair again that an earlier test had."""
        self.driver.check_order(on=True)
        super().begin(nodeid)
