"""How a process ended: the name of the signal, and what the process wrote before its end."""

import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from .regular_files import DATA, open_regular, read_bounded


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


_LAST_EVENTS: Final = 20
#: Bytes at the end of a record file in which the crash is that a worker has just written.
_TAIL: Final = 1 << 20


class ProcessEnd(NamedTuple):
    """How a process ended."""

    signal: str | None = None
    exitcode: int | None = None  # None after a signal, and for a process that goes on
    stopped: str = ""  # why the parent ended it; empty if it ended by itself

    def __str__(self) -> str:
        if self.stopped:
            return f"was stopped: {self.stopped}"
        return f"was killed by {self.signal}" if self.signal else f"ended with exit code {self.exitcode}"


def end_of(code: int) -> ProcessEnd:
    """Return how a process ended, of its return code as in `subprocess`: a signal is negative."""
    if code >= 0:
        return ProcessEnd(exitcode=code)
    return ProcessEnd(signal=signal_name(code) or f"signal {-code}")


def crash_events(events: str | None, pid: int | None) -> list[str]:
    """Return the last lines that a process wrote to the event file of the emulated driver; none without a file.

    `events`: path of the file; may be empty.
    `pid`: the process; None for all of the file.
    """
    try:
        lines = read_bounded(events, DATA).decode(errors="replace").splitlines() if events else []
    except OSError:
        return []
    if pid is not None:
        lines = [line for line in lines if f'"pid":{pid},' in line]
    return lines[-_LAST_EVENTS:]


def has_crash(record: Path, nodeid: str | None, worker: str | None) -> bool:
    """Whether a process has written to the end of a record file that a signal ended it, in a test or outside tests."""
    with suppress(OSError, ValueError), open_regular(record) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
        crashes = [json.loads(line) for line in file if line.startswith(b'{"event": "crash"')]
        return any((crash["nodeid"], crash["worker"]) == (nodeid, worker) for crash in crashes)
    return False
