"""Folders and locks of the cache: opened without following links, and only if no other user can change them.

Libraries of the cache are loaded into the process. Therefore every folder between the root of the cache and a library
must belong to this user or to root, and only its owner may write to it. ``docs/explanation/security.md`` gives the
reasons.
"""

import errno
import os
import shlex
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import repeat
from pathlib import Path

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class ToolchainError(RuntimeError):
    """A toolchain is missing or cannot be made; the message says what to do."""


class UntrustedError(ToolchainError):
    """The cache has something that another user could have put there; the message has the command that mends it."""


def _owners() -> set[int]:
    """Return the users whose files are trusted: this one and root; for root also the owner of the home folder.

    CI runs containers as root with a home folder that belongs to the user of the machine.
    """
    owners = {os.geteuid(), 0}
    if os.geteuid() == 0:
        with suppress(KeyError, OSError):
            owners.add(os.stat(os.environ["HOME"]).st_uid)  # noqa: PTH116 (a Path needs three times as long)
    return owners


def check_entry(path: Path, status: os.stat_result) -> None:
    """Raise an error if another user owns a file or folder, or can write to it.

    Raises UntrustedError with the command that mends it.
    """
    name = shlex.quote(str(path))
    if status.st_uid not in _owners():
        raise UntrustedError(
            f"{path} belongs to user {status.st_uid}; expected user {os.geteuid()} or root, because libraries of the "
            f"cache are loaded. Run: rm -r {name}; if you trust what is in it: chown -R {os.geteuid()} {name}"
        )
    if status.st_mode & _OTHERS_WRITE:
        raise UntrustedError(
            f"{path} can be changed by other users (mode {stat.S_IMODE(status.st_mode):04o}); expected a cache that "
            f"only its owner can write to. Run: chmod -R go-w {name}"
        )


def check_parents(root: Path) -> None:
    """Raise an error if another user could replace a folder: one above it is open to all, and not sticky like /tmp.

    Raises UntrustedError with the command that mends it.
    """
    real = root.parent.resolve()
    for parent in dict.fromkeys((*root.parents, real, *real.parents)):
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            name = shlex.quote(str(parent))
            raise UntrustedError(
                f"{parent} can be written to by every user (mode {stat.S_IMODE(mode):04o}), so that each could "
                f"replace {root}. Run: chmod o-w {name}, or name another cache in $CUDALINK_CACHE"
            )


def check_folder(path: Path) -> bool:
    """Return whether there is a folder that can be read; raise an error if it is a link or not trusted.

    Raises UntrustedError with the command that mends it.
    """
    try:
        with _opened(path):
            return True
    except OSError:
        return False


def make_folder(path: Path) -> None:
    """Make a folder, with those above it, for this user alone; check it if it exists.

    Raises UntrustedError if it is not trusted.
    Raises OSError if it cannot be made.
    """
    for folder in (*reversed(path.parents), path):
        try:
            folder.mkdir(mode=0o700)
        except OSError:
            if not folder.is_dir():
                raise
    check_folder(path)


@contextmanager
def locked(folder: Path, name: str) -> Iterator[None]:
    """Hold the lock file `name` of a folder, which only one process or thread can; waits without a limit.

    It is an OS lock (``flock``): the kernel releases it when the process dies. The file is never written.

    Raises UntrustedError if the folder or the lock file is a link, or another user's.
    """
    import fcntl

    with _opened(folder) as within, _opened_lock(folder / name, within) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_locked(folder: Path, name: str) -> bool:
    """Whether another process or thread holds the lock file `name` of a folder; False where that is unknown."""
    import fcntl

    with suppress(OSError), _descriptor(folder / name, os.O_RDWR | os.O_NOFOLLOW) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def own_only(folder: Path) -> None:
    """Take the right to write from everyone but the owner, for a folder and all in it.

    Installers give files the mode that the umask leaves; under 0002, the default of many systems, the group can write.
    """
    for place, folders, files in os.walk(folder):
        for path in (place, *(os.path.join(place, name) for name in (*folders, *files))):  # noqa: PTH118 (10,000 files)
            mode = os.lstat(path).st_mode
            if mode & _OTHERS_WRITE and not stat.S_ISLNK(mode):
                os.chmod(path, stat.S_IMODE(mode) & ~_OTHERS_WRITE)  # noqa: PTH101


def read_start(path: Path, most: int) -> bytes:
    """Return the first `most` bytes of a file; never waits for a pipe or a device.

    Raises OSError if it cannot be read, or is a link.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    with _descriptor(path, flags) as file, open(file, "rb", closefd=False) as stream:
        return stream.read(most)


@contextmanager
def _descriptor(path: str | Path, flags: int, within: int | None = None) -> Iterator[int]:
    """Open a file or folder for the ``with`` block, and close it whatever interrupts that."""
    held: list[int] = []  # filled and emptied inside of one call each, where no exception of a signal arrives
    try:
        held.extend(map(partial(os.open, flags=flags | os.O_CLOEXEC, mode=0o600, dir_fd=within), (path,)))
        yield held[0]
        _close(held)
    except BaseException:
        _close(held)
        raise


def _close(held: list[int]) -> None:
    deque(map(os.close, map(held.pop, repeat(-1, len(held)))), maxlen=0)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Open a folder that is trusted for the ``with`` block."""
    with ExitStack() as stack:
        try:
            file = stack.enter_context(_descriptor(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW))
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EMLINK) or (error.errno == errno.ENOTDIR and path.is_symlink()):
                raise _wrong_kind(path, "folder") from error
            raise
        check_entry(path, os.fstat(file))
        yield file


@contextmanager
def _opened_lock(path: Path, within: int) -> Iterator[int]:
    """Open a lock file in an open folder for the ``with`` block, made if it is missing; its content stays."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    with ExitStack() as stack:
        try:
            file = stack.enter_context(_descriptor(path.name, flags, within))
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.EMLINK, errno.EISDIR, errno.ENXIO):
                raise
            raise _wrong_kind(path, "lock file") from error
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise _wrong_kind(path, "lock file")
        check_entry(path, status)
        yield file


def _wrong_kind(path: Path, expected: str) -> UntrustedError:
    kind = "a symbolic link" if path.is_symlink() else "something else"
    name = shlex.quote(str(path))
    return UntrustedError(f"{path} is {kind}; expected a {expected} of the cache. Run: rm {name}")
