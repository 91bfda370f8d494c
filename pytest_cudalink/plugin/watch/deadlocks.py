"""The check of deadlocks: threads that all wait in an emulated driver, which gives them up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .violation_check import ViolationCheck

if TYPE_CHECKING:
    from ...violations import Violation
    from ..run import Run

__all__ = ["Deadlocks"]


class Deadlocks(ViolationCheck):
    """Fails each test in which nobody could go on.

    Parameters
    ----------
    run : Run

    Attributes
    ----------
    driver : DriverControl
    """

    name, title, handle = "deadlock", "cudalink deadlock", "thread"

    def __init__(self, run: Run) -> None:
        assert run.emulated is not None  # (`lifecycle` has looked)
        super().__init__(run, "fail")
        self.driver = run.emulated
        if run.settings.lifetime.value == "off":  # else the check of lifetimes watches, until it hands over
            self.driver.start_watching()
            run.config.add_cleanup(self.driver.stop_watching)

    @property
    def violations(self) -> tuple[Violation, ...]:
        return tuple(one for one in self.driver.violations if one.check == self.name)

    def consume(self, violations: tuple[Violation, ...]) -> None:
        self.driver.consume(violations)

    @property
    def handle_count(self) -> int:
        return 0

    def maker(self, violation: Violation) -> None:
        """The message says where each thread is."""
