"""How a process that runs tests has ended."""

from __future__ import annotations

from typing import NamedTuple

from ...signals import signal_name

__all__ = ["ProcessEnd", "end_of"]


class ProcessEnd(NamedTuple):
    """How a process ended.

    Attributes
    ----------
    signal : str or None
    exitcode : int or None
        None after a signal, and for a process that goes on.
    stopped : str
        Why the parent ended it; empty if it ended by itself.
    """

    signal: str | None = None
    exitcode: int | None = None
    stopped: str = ""

    def __str__(self) -> str:
        if self.stopped:
            return f"was stopped: {self.stopped}"
        return f"was killed by {self.signal}" if self.signal else f"ended with exit code {self.exitcode}"


def end_of(code: int) -> ProcessEnd:
    """Return how a process ended, of its return code as in `subprocess`: a signal is negative."""
    if code >= 0:
        return ProcessEnd(exitcode=code)
    return ProcessEnd(signal=signal_name(code) or f"signal {-code}")
