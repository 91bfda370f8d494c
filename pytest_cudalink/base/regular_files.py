"""The door through which files of others are read: they may be pipes, devices, or larger than memory.

What a user, an environment, a wheel or a record names is read by these functions alone. `write_whole` writes a file as
a whole or not at all.
"""

import errno
import os
import stat
import uuid
from contextlib import suppress
from io import BufferedReader
from pathlib import Path

#: Most bytes that are read of a file that people write, and of one that programs write or that has device code.
TEXT = 8 << 20
DATA = 1 << 30


def identity(descriptor: int) -> tuple[int, int] | None:
    """Return device and inode of an open file, by which we know ours; None if the descriptor is closed.

    A program may close every descriptor, as daemons do, and open another file at a number that was ours.
    """
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """Return a regular file, open for reading; a pipe or a device is an error, and is not waited for."""
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "a folder, a pipe or a device; expected a regular file", os.fspath(path))
    return file


def is_regular(path: str | os.PathLike[str], most: int = TEXT) -> bool:
    """Return whether a path is that of a regular file of at most so many bytes, which another package may then read."""
    try:
        status = os.stat(path)  # noqa: PTH116 (a Path needs three times as long)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size <= most


def read_bounded(path: str | os.PathLike[str], most: int) -> bytes:
    """Return the content of a regular file; a longer one than `most` bytes is an error."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise OSError(errno.EFBIG, f"{size:,} bytes; expected at most {most:,}", os.fspath(path))
        # not `most`, which Python allocates whole: the emulated driver has malloc fill memory, at 40 ms for 64 MiB
        return file.read(size)


def has_hash(path: str | os.PathLike[str], digest: str) -> bool:
    """Return whether a regular file has a hash as a RECORD writes it, such as ``"sha256=..."``; else it is another."""
    import base64  # most starts of pytest compare no file
    import hashlib

    name, _, expected = digest.partition("=")
    try:
        with open_regular(path) as file:
            actual = hashlib.file_digest(file, name).digest()
    except (OSError, ValueError, TypeError):
        return False
    return base64.urlsafe_b64encode(actual).decode().rstrip("=") == expected


def read_text(path: str | os.PathLike[str], most: int = TEXT) -> str:
    """Return the text of a regular file in UTF-8, with line ends as Python has them; as `read_bounded`."""
    return read_bounded(path, most).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")


def write_whole(path: Path, text: str) -> None:
    """Write a text as UTF-8; a regular file has it all or stays as it was.

    The text goes to a temporary file in the same folder, which then takes the name. A pipe or a device is written to
    directly.

    Raises OSError if it cannot be written. No half file is left.
    """
    content = text.encode("utf-8", errors="backslashreplace")
    path = Path(os.path.realpath(path))  # Path.resolve raises a RuntimeError for a link to itself
    mode = None
    with suppress(FileNotFoundError):
        before = path.stat().st_mode
        mode = stat.S_IMODE(before)
        if not stat.S_ISREG(before):
            path.write_bytes(content)
            return
    scratch = path.with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        with scratch.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # some file systems find out only now that the disk is full
        if mode is not None:
            scratch.chmod(mode)
        scratch.replace(path)
    except BaseException:
        with suppress(OSError):
            scratch.unlink()
        raise
