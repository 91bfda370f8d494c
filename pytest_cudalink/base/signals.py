"""How a process ended: the names of signals."""

from __future__ import annotations

import signal


def signal_name(exit_code: int) -> str | None:
    """Return the name of the signal that ended a process, such as ``"SIGSEGV"``; None if no signal with a name did.

    `exit_code`: if a signal ended the process: negative, as Python has it, or above 128, as a shell has it.
    """
    number = -exit_code if exit_code < 0 else exit_code - 128
    return signal.Signals(number).name if number in set(signal.Signals) else None


def ending(exit_code: int) -> str:
    """Return how a process ended, with a verb: ``"was killed by SIGSEGV"``, ``"ended with exit code 3"``."""
    name = signal_name(exit_code)
    return f"was killed by {name}" if name else f"ended with exit code {exit_code}"
