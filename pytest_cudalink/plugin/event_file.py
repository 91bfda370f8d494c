"""The event file of an emulated driver: a run that loses events fails, and says why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ..report.wording import EVENTS_UNWRITTEN
from . import driver
from .parts import LEDGER

if TYPE_CHECKING:
    from .run import Run

__all__ = ["EventFile", "lose"]


def lose(run: Run, why: str) -> None:
    """Add the problem that events of a process are missing in the event file; the run shows it once."""
    setting = driver.asked(None if driver.inherited(run.config) else run.settings)["events"]
    text = f"{EVENTS_UNWRITTEN}: --cudalink-events is {setting}: {why}; calls are missing in that file"
    problems = run.part(LEDGER).outside.problems
    if text not in problems:
        problems.append(text)


class EventFile:
    """A plugin object that asks the driver of this process, at the end, whether it wrote every event.

    Parameters
    ----------
    run : Run
        One on an emulated driver.
    """

    def __init__(self, run: Run) -> None:
        assert run.emulated is not None  # (`lifecycle` has looked)
        self._run, self._control = run, run.emulated

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Fail the run for events that are lost, before the ledger is closed."""
        if why := self._control.event_file_error:
            lose(self._run, why)
