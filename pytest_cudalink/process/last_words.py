"""What a process that a fatal signal ends leaves in the record file: the only module that handles such signals."""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from ..emulator.control import DriverControl

__all__ = ["current_test", "emulated_driver", "watch"]

_LIBRARY: Final = Path(__file__).parent / "lib" / "libcudalink-last-words.so"


class _Watch(NamedTuple):
    """Arguments of ``cudalinkLastWords``: three descriptors and the worker, as JSON."""

    record: int
    frames: int
    terminal: int
    worker: bytes


_watches: list[_Watch] = []


@cache
def _library() -> Any:
    """Return our native library; None where it was not built, as on Windows."""
    with suppress(OSError):
        return ctypes.CDLL(str(_LIBRARY))
    return None


def watch(record: Path, worker: str | None, terminal: int | None) -> Callable[[], None]:
    """Append a ``crash`` event to a record file when a fatal signal ends this process.

    Parameters
    ----------
    record : Path
    worker : str or None
        The xdist worker that this process is.
    terminal : int or None
        The descriptor that faulthandler writes to. From now on it writes to a file first, which is then copied there.
        None leaves faulthandler as it is: the event has no frames.

    Returns
    -------
    callable
        Watches for the earlier run of this process again. The first run of a process is watched until the process ends:
        it can still die in an exit handler.
    """
    library = _library()
    if library is None:
        return _nothing
    frames = shown = -1
    if terminal is not None and faulthandler.is_enabled():
        shown = os.dup(terminal)
        with tempfile.TemporaryFile(buffering=0) as file:
            frames = os.dup(file.fileno())
        faulthandler.disable()  # its handlers must lie above ours
    found = _Watch(
        os.open(record, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC), frames, shown, json.dumps(worker).encode()
    )
    library.cudalinkLastWords(*found)
    if frames >= 0:
        faulthandler.enable(file=frames)
    _watches.append(found)
    return _unwatch


def _nothing() -> None:
    """Do nothing: nothing was watched."""


def _unwatch() -> None:
    if len(_watches) > 1:
        ended = _watches.pop()
        _library().cudalinkLastWords(*_watches[-1])
        for descriptor in ended[:3]:
            if descriptor >= 0:
                os.close(descriptor)


def current_test(nodeid: str | None) -> None:
    """Note the test that runs; None between tests."""
    if _watches:
        _library().cudalinkLastWordsTest(json.dumps(nodeid).encode())


def emulated_driver(present: DriverControl) -> None:
    """Note the emulated driver, whose last calls go into the event."""
    if _watches:
        _library().cudalinkLastWordsDriver(*present.event_functions)
