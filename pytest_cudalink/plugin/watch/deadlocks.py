"""The check of deadlocks: threads that all wait in an emulated driver, which gives them up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .violation_check import DriverCheck

if TYPE_CHECKING:
    from ..run import Run

__all__ = ["Deadlocks"]


class Deadlocks(DriverCheck):
    """Fails each test in which nobody could go on."""

    name, title, handle = "deadlock", "cudalink deadlock", "thread"

    def __init__(self, run: Run) -> None:
        super().__init__(run, "fail")
        if run.settings.lifetime.value == "off":  # else the check of lifetimes watches, until it hands over
            self.driver.start_watching()
            run.config.add_cleanup(self.driver.stop_watching)
        if run.is_worker:
            self.driver.find_messenger()
