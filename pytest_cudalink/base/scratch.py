"""The temporary folder of this process, which holds all that it keeps in temporary files and goes when it ends.

What a process that was killed has left there, the next one of the same user removes. The name of a folder says which
process it belongs to, and that process and its forked children hold a lock on it: a process of another container cannot
be seen, and a test may close the descriptor of the lock.
"""

import atexit
import os
import re
import shutil
import stat
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

#: Process and start of the process, in ticks since the system started.
_NAME: Final = r"cudalink-(\d{1,10})-(\d{1,20})-\w+"
#: The lowest descriptor of a lock: programs count on those below (own_file.h has the same).
_DESCRIPTORS: Final = 200
_ATTEMPTS: Final = 10

_root: Path | None = None


def root() -> Path:
    """Return the folder of this process; the first call makes it. A forked copy has the folder of its parent.

    Raises OSError if no temporary folder can be written to.
    """
    global _root  # noqa: PLW0603 (the owner of this piece of process state)
    if _root is None or not _root.is_dir():
        _root = _make()
    return _root


def fresh(name: str) -> Path:
    """Return a new, empty folder in that of this process, whose name begins with the given one."""
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=root()))


def _make() -> Path:
    parent = tempfile.gettempdir()
    _sweep(parent)
    prefix = f"cudalink-{os.getpid()}-{_start_of(os.getpid())}-"
    for _ in range(_ATTEMPTS):
        made = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        _hold(made)
        if made.is_dir():  # another container has not taken it for one that was left
            atexit.register(partial(_end, made, os.getpid()))
            return made
    return Path(tempfile.mkdtemp(prefix=prefix, dir=parent))


def _end(made: Path, owner: int) -> None:
    if owner == os.getpid():
        shutil.rmtree(made, ignore_errors=True)
        _sweep(str(made.parent))  # processes of this run may have been killed


def _hold(folder: Path) -> None:
    """Hold a lock on a folder for as long as this process and its forked children live."""
    if fcntl is None:
        return
    with suppress(OSError):  # a file system without locks, or few descriptors
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _DESCRIPTORS), fcntl.LOCK_SH | fcntl.LOCK_NB)
        finally:
            os.close(descriptor)


def _sweep(parent: str) -> None:
    """Remove the folders of this user's processes that are no longer there."""
    if fcntl is None:
        return
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            named = entry.name.startswith("cudalink-") and re.fullmatch(_NAME, entry.name, re.ASCII)
            if named and _start_of(int(named[1])) != int(named[2]):
                _remove(entry.path)


def _remove(folder: str) -> None:
    """Remove a folder of this user that no process holds, and no link to one."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            known = os.fstat(descriptor)
            if (known.st_uid, stat.S_IMODE(known.st_mode)) == (os.geteuid(), 0o700):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(descriptor)


def _start_of(pid: int) -> int:
    """Return when a process started, in ticks; 0 if there is none, or the system does not say."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(text.rpartition(")")[2].split()[19])
    except (OSError, LookupError, ValueError):
        return 0
