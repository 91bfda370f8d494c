"""Notes: what the emulated drivers of child processes report to the process that fails for it.

`emulator/native/notes.c` writes them. That process makes a file, whose path its children inherit in an environment
variable. The first page of the file counts the lines that follow, so that asking for new ones costs no call of the
system. The file of the outermost process also has what the processes of the run share, which
`emulator/native/processes.c` keeps.
"""

import atexit
import errno
import json
import mmap
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from ..base import scratch

VARIABLE: Final = "CUDALINK_EMULATOR_NOTES"
_HEADER_SIZE: Final = 4096
#: Where the lines begin, behind what the processes of a run share.
_LINES: Final = 64 << 10
#: Bytes 16 to 31, by which the driver knows such a file; the path of the outermost one follows.
_KIND: Final = b"cudalink notes".ljust(16, b"\0")
_OUTERMOST: Final = slice(32, _HEADER_SIZE)

Note = dict[str, Any]


class Notes:
    """The file of this process, and how far it was read.

    `above`: the file of the process above this one; empty if there is none.
    `apart`: whether this process has the devices for itself and the processes that it starts, although there is one.
    `pid`: the process that made it.
    `at_exit`: the first is called when the process ends, with the notes since the last look.
    """

    def __init__(self, above: str, *, apart: bool = False) -> None:
        self._header, self.path, self._offset = _made()
        self.above, self.pid = above, os.getpid()
        outermost = ("" if apart else _outermost(above)) or (self.path if self._offset == _LINES else "")
        self._header[_OUTERMOST] = os.fsencode(outermost).ljust(_OUTERMOST.stop - _OUTERMOST.start, b"\0")
        self.at_exit: list[Callable[[list[Note]], object]] = []
        self._seen, self._looks = bytes(8), 0

    def count(self) -> bytes:
        """Return the number of lines so far, as the file has it."""
        return self._header[:8]

    def take_counted(self) -> list[Note]:
        """Return the notes since the last look, if the count of lines has changed since then."""
        return self.take() if self.count() != self._seen else []

    def take(self) -> list[Note]:
        """Return the notes since the last look, of which a process that died may have left some uncounted."""
        self._seen = self.count()
        self._looks += 1
        self._header[8:16] = self._looks.to_bytes(8, sys.byteorder)  # functions are noted once between two looks
        notes: list[Note] = []
        with suppress(FileNotFoundError), open(self.path, "rb") as file:  # noqa: PTH123 (tests replace pathlib's)
            file.seek(self._offset)
            for line in file:
                if line.endswith(b"\n"):
                    self._offset += len(line)
                    with suppress(ValueError):
                        notes.append(json.loads(line))
        return notes

    def end(self) -> list[Note]:
        """Remove the file, and return the last notes; a process that is still there has its stderr."""
        notes = self.take()
        with suppress(OSError):
            os.unlink(self.path)  # noqa: PTH108 (tests replace pathlib's)
        return notes


def _made() -> tuple[mmap.mmap, str, int]:
    """Make a file; return its header, its path, and where lines begin."""
    path = ""
    with suppress(OSError):  # no folder that can be written to, or a full one
        descriptor, path = tempfile.mkstemp(prefix="notes-", dir=scratch.root())
        return _header_of(descriptor, _LINES), path, _LINES
    if path:
        os.unlink(path)  # noqa: PTH108 (tests replace pathlib's)
    kept = os.memfd_create("cudalink-notes")
    path = f"/proc/{os.getpid()}/fd/{kept}"
    with suppress(OSError):  # a limit of the size of files: its processes share nothing then
        return _header_of(os.dup(kept), _LINES), path, _LINES
    os.ftruncate(kept, 0)
    return _header_of(os.dup(kept), _HEADER_SIZE), path, _HEADER_SIZE


def _header_of(descriptor: int, size: int) -> mmap.mmap:
    """Write what is before the lines of a new file, and map its header; closes the descriptor."""
    with os.fdopen(descriptor, "r+b", buffering=0) as file:
        content = (bytes(16) + _KIND).ljust(size, b"\0")  # a writer of a mapped page must find room
        if os.pwrite(file.fileno(), content, 0) < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return mmap.mmap(file.fileno(), _HEADER_SIZE)


def _outermost(above: str) -> str:
    """Return the path of the outermost file, which the one above this process's names; empty if that is not there."""
    with suppress(OSError), open(above, "rb") as file:  # noqa: PTH123 (tests replace pathlib's)
        return os.fsdecode(file.read(_HEADER_SIZE)[_OUTERMOST].rstrip(b"\0"))
    return ""


_own: Notes | None = None


def own(above: str | None = None, *, apart: bool = False) -> Notes:
    """Return the file of this process; the first call makes it, below that of the environment or a given one.

    `apart`: as of `Notes`.
    """
    global _own  # noqa: PLW0603 (the owner of this piece of process state)
    if _own is None or _own.pid != os.getpid():
        _own = Notes(os.environ.get(VARIABLE, "") if above is None else above, apart=apart)
        atexit.register(partial(_end, _own))
    return _own


def _end(notes: Notes) -> None:
    if notes.pid == os.getpid():
        last = notes.end()
        for take in notes.at_exit[:1]:  # that of the outermost run
            take(last)


def pass_on(path: str, notes: Iterable[Note]) -> None:
    """Append notes to the file of another process; OSError or ValueError if it is not there."""
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
    try:
        for note in notes:
            os.write(descriptor, f"{json.dumps(note)}\n".encode())
        with mmap.mmap(descriptor, _HEADER_SIZE) as header:
            header[:8] = (int.from_bytes(header[:8], sys.byteorder) + 1).to_bytes(8, sys.byteorder)
    finally:
        os.close(descriptor)
