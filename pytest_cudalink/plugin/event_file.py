"""The event file of an emulated driver: a run that loses events fails, and says why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..report.wording import EVENTS_UNWRITTEN
from . import driver
from .check import Check
from .parts import LEDGER

if TYPE_CHECKING:
    from .run import Run

__all__ = ["EventFile", "lose"]


def lose(run: Run, why: str) -> None:
    """Add the problem that events of a process are missing in the event file; the run shows it once."""
    setting = driver.asked(None if driver.inherited(run.config) else run.settings)["events"]
    text = f"{EVENTS_UNWRITTEN}: --cudalink-events is {setting}: {why}; calls are missing in that file"
    run.part(LEDGER).outside.problems.append(text)


class EventFile(Check):
    """The check, at the end, whether the driver of this process wrote every event."""

    def finish(self) -> tuple[()]:
        if self._run.emulated is not None and (why := self._run.emulated.event_file_error):
            lose(self._run, why)
        return ()
