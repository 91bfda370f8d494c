"""The event file of an emulated driver: a run that loses events fails, and says why."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ...report.wording import EVENTS_UNWRITTEN
from ..conditions import run_driver
from ..parts import LEDGER
from .check import Check

if TYPE_CHECKING:
    from ..run import Run


def lose(run: Run, why: str) -> None:
    """Add the problem that events of a process are missing in the event file; the run shows it once."""
    file = f"cudalink_events is {run.settings.events}"
    if run_driver.inherited(run.config):
        file = f"CUDALINK_EMULATOR_EVENTS is {os.environ.get('CUDALINK_EMULATOR_EVENTS')}"
    run.part(LEDGER).outside.problems.append(f"{EVENTS_UNWRITTEN}: {file}: {why}; calls are missing in that file")


class EventFile(Check):
    """The check, at the end, whether the driver of this process wrote every event."""

    def finish(self) -> tuple[()]:
        if self._run.emulated is not None and (why := self._run.emulated.event_file_error):
            lose(self._run, why)
        return ()
