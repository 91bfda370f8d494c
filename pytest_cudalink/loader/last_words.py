"""What a process that a fatal signal ends leaves in the record file: the only module that handles such signals."""

import ctypes
import faulthandler
import json
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from ..base.regular_files import identity

#: As `OWN_FILES_FROM` of base/native/own_file.h.
_FIRST_DESCRIPTOR: Final = 200
_LIBRARY: Final = Path(__file__).parent / "lib" / "libcudalink-last-words.so"


class _Watch(NamedTuple):
    """The descriptors of record, frames and terminal, -1 for none, each with its file; and the worker, as JSON."""

    files: tuple[tuple[int, tuple[int, int] | None], ...]
    worker: bytes

    def begin(self) -> None:
        """Watch; without a descriptor that the program has closed, and may have opened again for another file."""
        ours = [descriptor if identity(descriptor) == known else -1 for descriptor, known in self.files]
        _library().cudalinkLastWords(*ours, self.worker)

    def close(self) -> None:
        """Close what is still ours."""
        for descriptor, known in self.files:
            if known is not None and identity(descriptor) == known:
                os.close(descriptor)


_watches: list[_Watch] = []


@cache
def _library() -> Any:
    """Return our native library; None where it was not built, as on Windows."""
    with suppress(OSError):
        return ctypes.CDLL(str(_LIBRARY))
    return None


def watch(record: Path, worker: str | None, terminal: int | None) -> Callable[[], None]:
    """Append a ``crash`` event to a record file when a fatal signal ends this process.

    `worker`: the xdist worker that this process is.
    `terminal`: the descriptor that faulthandler writes to. From now on it writes to a file first, which is then copied
    there. None leaves faulthandler as it is: the event has no frames.
    Returns what watches for the earlier run of this process again. The first run of a process is watched until it
    ends: it can still die in an exit handler.
    """
    if _library() is None:
        return lambda: None
    frames = shown = -1
    if terminal is not None and faulthandler.is_enabled():
        shown = _high(terminal)
        with tempfile.TemporaryFile(buffering=0) as file:
            frames = _high(file.fileno())
        faulthandler.disable()  # its handlers must lie above ours
    opened = os.open(record, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    files = tuple((descriptor, identity(descriptor)) for descriptor in (_high(opened), frames, shown))
    os.close(opened)
    begun = _Watch(files, json.dumps(worker).encode())
    begun.begin()
    if frames >= 0:
        faulthandler.enable(file=frames)
        _library().cudalinkLastWordsAddress()
    _watches.append(begun)
    return _unwatch


def _high(descriptor: int) -> int:
    """Return another descriptor of a file, above the numbers that a program counts on when it closes and opens files.

    faulthandler itself writes to its descriptor, whatever file has that number.
    """
    import fcntl  # not on Windows, where there is no library either

    with suppress(OSError):  # a low limit
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST_DESCRIPTOR)
    return os.dup(descriptor)


def _unwatch() -> None:
    if len(_watches) > 1:
        ended = _watches.pop()
        _watches[-1].begin()
        ended.close()


def current_test(nodeid: str | None) -> None:
    """Note the test that runs; None between tests."""
    if _watches:
        _library().cudalinkLastWordsTest(json.dumps(nodeid).encode())


def emulated_driver(functions: tuple[Any, Any, Any]) -> None:
    """Note the functions by which the emulated driver gives its last calls, and knows addresses of device memory."""
    if _watches:
        _library().cudalinkLastWordsDriver(*functions)
