"""Files that may be damaged, put there by another program, or behind a descriptor that was ours."""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO

__all__ = ["identity", "open_regular", "read_bounded"]


def identity(descriptor: int) -> tuple[int, int] | None:
    """Return device and inode of an open file, by which we know ours; None if the descriptor is closed.

    A program may close every descriptor, as daemons do, and open a file of its own at a number that was ours.
    """
    try:
        found = os.fstat(descriptor)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Return a regular file, open for reading; a pipe or a device is an error, and is not waited for."""
    file = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")  # noqa: PTH123, SIM115 (a descriptor)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    return file


def read_bounded(path: str | os.PathLike[str], most: int) -> bytes:
    """Return the content of a regular file; a longer one than `most` bytes is an error."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise OSError(errno.EFBIG, f"more than {most} bytes", os.fspath(path))
        # not `most`, which Python allocates whole: the emulated driver has malloc fill memory, at 40 ms for 64 MiB
        return file.read(size)
