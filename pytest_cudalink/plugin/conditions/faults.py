"""The faults of a whole run: which of them no call has triggered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ..parts import FAULTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..run import Run


def lose(run: Run) -> None:
    """Note that a process of the run ended without saying which faults it met: none counts as never triggered."""
    if (faults := run.get(FAULTS)) is not None:
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
        found = faults.parse(emulation.faults, emulation.version)
    except ValueError:
        return ()
    return tuple(faults.text_of((one,)) for one in found if one.function not in faults.OF_STATE)


class RunFaults:
    """A plugin object that notes which faults of the run were triggered.

    `run`: in a controller of xdist, whose workers got a driver for markers, one without a driver.
    `triggered`: indices of the faults that a call in some process of this run has met.
    `complete`: whether every process of the run has said which it met.
    """

    def __init__(self, run: Run) -> None:
        self._driver = run.emulated
        self._faults = planned() if self._driver is not None else ()
        self.triggered: set[int] = set()
        self.complete = True

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Ask the driver of this process."""
        self.look()

    def look(self) -> None:
        """Ask the driver of this process which faults it met so far."""
        if self._driver is not None:
            self.triggered |= {at for at in range(len(self._faults)) if self._driver.was_triggered(at + 1)}

    def as_json(self) -> dict[str, Any]:
        """Return the faults, and which were triggered, for the process that adds up."""
        return {"faults": self._faults, "triggered": sorted(self.triggered), "complete": self.complete}

    def add(self, given: Mapping[str, Any]) -> None:
        """Add what `as_json` returned in another process."""
        self._faults = self._faults or tuple(given["faults"])
        self.triggered.update(given["triggered"])
        self.complete = self.complete and given["complete"]

    def lines(self) -> list[str]:
        """Return a line of the summary for each fault that was never triggered."""
        if not self.complete:
            return []
        return [
            f"fault {fault} (--cudalink-faults) was never triggered in pytest's own processes"
            for at, fault in enumerate(self._faults)
            if at not in self.triggered
        ]
