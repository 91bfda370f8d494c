"""The check of order: accesses to memory that no stream, event or wait orders, on an emulated driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .violation_check import ViolationCheck

if TYPE_CHECKING:
    from ...violations import Violation
    from ..run import Run

__all__ = ["Order"]


class Order(ViolationCheck):
    """Reports each pair of accesses of a test that nothing orders.

    Parameters
    ----------
    run : Run

    Attributes
    ----------
    driver : DriverControl
    """

    name, title, handle = "order", "cudalink order", "memory"

    def __init__(self, run: Run) -> None:
        assert run.emulated is not None  # (`lifecycle` has looked)
        super().__init__(run, run.settings.order.value)
        self.driver = run.emulated
        self.driver.start_watching()
        self.driver.check_order(on=True)
        run.config.add_cleanup(self._stop)

    def _stop(self) -> None:
        self.driver.check_order(on=False)
        self.driver.stop_watching()

    @property
    def violations(self) -> tuple[Violation, ...]:
        return tuple(one for one in self.driver.violations if one.check == self.name)

    def consume(self, violations: tuple[Violation, ...]) -> None:
        self.driver.consume(violations)

    @property
    def handle_count(self) -> int:
        return 0

    def maker(self, violation: Violation) -> None:
        """Both accesses have their call sites."""

    def begin(self, nodeid: str) -> None:
        """Name a pair again that an earlier test had."""
        self.driver.check_order(on=True)
        super().begin(nodeid)
