"""The faults of a whole run: which of them no call has triggered."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ...report.asked_for import AskedFor
from ..run import Run


def lose(run: Run) -> None:
    """Note that a process of the run ended and did not report which faults it met: none counts as never triggered."""
    if (faults := run.get(Faults)) is not None:
        faults.complete = False


def planned() -> tuple[str, ...]:
    """Return the faults of this process's emulated driver, in the order in which it read them, without a lost device.

    Empty where the environment set faults that cannot be read: the native library has warned already.
    """
    from ...emulator import faults, preload

    emulation = preload.emulation()
    if emulation is None:
        return ()
    try:
        parsed = faults.parse(emulation.faults, emulation.version)
    except ValueError:
        return ()
    return tuple(faults.text_of((fault,)) for fault in parsed if fault.function not in faults.OF_STATE)


class Faults:
    """A plugin object that notes which faults of the run were triggered.

    `run`: one without an emulated driver, too: in a controller of xdist, its workers may have one.
    `triggered`: indices of the faults that a call in some process of this run has met.
    `complete`: whether every process of the run has said which it met.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._faults: tuple[str, ...] = ()
        self.triggered: set[int] = set()
        self.complete = True
        # of `cudalink driver run`, or of a test that starts this run: others may meet them, too
        source = run.settings.faults.source
        self._shared = source == "default" or (source.startswith("environment") and "PYTEST_CURRENT_TEST" in os.environ)

    def end(self, _session: pytest.Session) -> None:
        """Ask the driver of this process which faults it met: one for markers comes late."""
        driver = self._run.emulated
        if driver is not None:
            self._faults = self._faults or planned()
            self.triggered |= {at for at in range(len(self._faults)) if driver.was_triggered(at + 1)}

    def as_json(self) -> dict[str, Any]:
        """Return the faults, and which were triggered, for the process that adds up."""
        return {"faults": self._faults, "triggered": sorted(self.triggered), "complete": self.complete}

    def add(self, counts: Mapping[str, Any]) -> None:
        """Add what `as_json` returned in another process."""
        self._faults = self._faults or tuple(counts["faults"])
        self.triggered.update(counts["triggered"])
        self.complete = self.complete and counts["complete"]

    def asked_for(self) -> list[AskedFor]:
        """Return how many of the faults were triggered."""
        if self._run.emulated is None and not self._faults:
            setting = self._run.settings.faults
            return self._entry(1, [f"no emulated driver got {setting}"])
        never = [fault for at, fault in enumerate(self._faults) if at not in self.triggered]
        if self.complete or not never:
            return self._entry(len(self._faults), never)
        lost = {"a process ended before it reported its faults": len(never)}
        return [AskedFor("faults", len(self._faults), len(self._faults) - len(never), allowed=lost)]

    def _entry(self, due: int, never: Sequence[str]) -> list[AskedFor]:
        left = dict.fromkeys(never, 1)
        entry = AskedFor("faults", due, due - len(left), left)
        return [entry._replace(left={}, allowed=left) if self._shared else entry]
