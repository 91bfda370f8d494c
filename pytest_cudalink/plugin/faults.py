"""The faults of a whole run: which of them no call has triggered."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import pytest

    from ..emulator.control import DriverControl
    from .run import Run

__all__ = ["RunFaults", "of", "planned"]


def of(run: Run) -> RunFaults | None:
    """Return the faults of a run; None where nothing is to fail."""
    return cast("RunFaults | None", run.get("faults"))


def planned() -> tuple[str, ...]:
    """Return the faults of this process's emulated driver, in the order in which it read them, without a lost device.

    Empty where the environment set faults that cannot be read: the native library has warned already.
    """
    from ..emulator import faults
    from ..process import preload

    emulation = preload.emulation()
    if emulation is None:
        return ()
    try:
        found = faults.parse(emulation.faults, emulation.version)
    except ValueError:
        return ()
    return tuple(faults.text_of((one,)) for one in found if one.function != "lost")


class RunFaults:
    """A plugin object that notes which faults of the run were triggered.

    Parameters
    ----------
    driver : DriverControl
        The emulated driver of this process.

    Attributes
    ----------
    triggered : set of int
        Indices of the faults that a call in some process of this run has met.
    """

    def __init__(self, driver: DriverControl) -> None:
        self._driver, self._faults = driver, planned()
        self.triggered: set[int] = set()

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Ask the driver of this process."""
        del session
        self.triggered |= {at for at in range(len(self._faults)) if self._driver.was_triggered(at + 1)}

    def lines(self) -> list[str]:
        """Return a line of the summary for each fault that was never triggered."""
        return [
            f"fault {fault} (--cudalink-faults) was never triggered in pytest's own processes"
            for at, fault in enumerate(self._faults)
            if at not in self.triggered
        ]
