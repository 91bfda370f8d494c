"""The names of signals."""

from __future__ import annotations

import signal

__all__ = ["signal_name"]


def signal_name(exit_code: int) -> str | None:
    """Return the name of the signal that ended a process, such as ``"SIGSEGV"``; None if no signal with a name did.

    Parameters
    ----------
    exit_code : int
        Negative, as Python has it, if a signal ended the process.
    """
    return signal.Signals(-exit_code).name if -exit_code in set(signal.Signals) else None
