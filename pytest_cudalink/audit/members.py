"""The files of a wheel, a folder or one library, each with an opener; and how much the audit of a wheel may cost."""

import math
import os
import shutil
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import IO, Final

from ..base.regular_files import open_regular
from ..environment.installed import AuditError
from .loadable import is_elf

#: What an audit may cost: the largest wheels of PyPI have 20,000 members, become 5 times larger, and take two minutes.
MOST_ENTRIES: Final = 100_000
LEAST_BYTES: Final = 1 << 30
MOST_RATIO: Final = 20
MOST_SECONDS: Final = 600.0
#: A member above this size must not be more than so many times larger than it is packed; that of cuBLAS is 2 times.
_MOST_UNPACKED: Final = 64 << 20
_MOST_RATIO: Final = 100

#: The clock is looked at once for so many members that are not read.
_LOOKS: Final = 32
#: A member up to this size is unpacked in memory.
_IN_MEMORY: Final = 16 << 20
#: Endings of names of files of device code.
DEVICE_CODE: Final = (".fatbin", ".ltoir", ".lto", ".cubin")
#: Endings of names of members that are read although they are not ELF files.
_READ: Final = (".dll", ".pyd", ".py", ".dist-info/metadata", *DEVICE_CODE)

#: Name and opener of each file; opening may fail for a single file.
Members = Iterator[tuple[str, Callable[[], AbstractContextManager[IO[bytes]]]]]


class Budget:
    """The entries, bytes and seconds that the audit of one wheel has; a folder or a library has no bounds.

    The seconds are those of the processor, so that neither a busy machine nor a slow network counts.

    `name`: of the wheel, for messages.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._most = self._left = math.inf
        self._until = math.inf

    def open(self, size: int, entries: int) -> None:
        """Begin with a wheel of a size and a number of entries in its directory.

        Raises AuditError if it has too many entries.
        """
        self._most = self._left = max(LEAST_BYTES, MOST_RATIO * size)
        self._until = time.process_time() + MOST_SECONDS
        if entries > MOST_ENTRIES:
            self._refuse(f"has {entries} entries; expected at most {MOST_ENTRIES}")

    def spend(self, size: int = 0) -> None:
        """Count bytes that are unpacked, and look at the clock.

        Raises AuditError if there are too many, or the time is over.
        """
        self._left -= size
        if self._left < 0:
            self._refuse(f"would become larger than {self._most} bytes")
        if time.process_time() > self._until:
            self._refuse(f"takes more than {MOST_SECONDS:.0f} seconds of processor time")

    def _refuse(self, text: str) -> None:
        raise AuditError(f"{self._name}: {text}: unpack it, and audit the folder")


def members_of(path: Path, budget: Budget, *, every: bool = False) -> Members:
    """The files in a wheel or below a folder, or the one file; a wheel spends the budget.

    Of a wheel, the files that may be of a library or of device code are read, or `every` one.

    Raises AuditError if there is no such file, it is neither a wheel nor an ELF file nor `every` one, or it is a folder
    with wheels, or one of which not everything can be listed.
    """
    if path.is_dir():
        wheel = next((file.name for file in sorted(path.glob("*.whl")) if file.is_file()), None)
        if wheel is not None:  # what is in it would be passed over
            msg = f"{path}: a folder with wheels, such as {wheel}; expected one of files; give {path / '*.whl'}"
            raise AuditError(msg)
        return _folder(path)
    if path.is_file():  # neither a pipe nor a device
        is_wheel = path.suffix == ".whl" or zipfile.is_zipfile(path)
        return _wheel(path, budget, every=every) if is_wheel else _single(path, every=every)
    more = ", an archive or device code" if every else ""
    what = "neither a file nor a folder" if path.is_symlink() or path.exists() else "there is no such file"
    raise AuditError(f"{path}: {what}; give a wheel, a folder or a shared library{more}")


def _folder(folder: Path) -> Members:
    def refuse(error: OSError) -> None:
        msg = f"{error.filename}: cannot be listed: {error.strerror}; make it readable, or audit another folder"
        raise AuditError(msg) from error

    files = [Path(at, name) for at, _, names in os.walk(folder, onerror=refuse) for name in names]
    for path in sorted(files):
        if path.is_file() and not path.is_symlink():
            yield path.relative_to(folder).as_posix(), partial(open_regular, path)


def _single(path: Path, *, every: bool) -> Members:
    with path.open("rb") as stream:
        if not (every or is_elf(stream)):
            raise AuditError(f"{path}: neither a wheel nor an ELF file")
    yield path.name, partial(open_regular, path)


def _wheel(path: Path, budget: Budget, *, every: bool) -> Members:
    with path.open("rb") as archived:
        yield from members_of_archive(str(path), archived, budget, every=every)


def members_of_archive(name: str, archived: IO[bytes], budget: Budget, *, every: bool = False) -> Members:
    """The files in a wheel that is open.

    Raises AuditError if it is not a wheel, or its audit costs too much.
    """
    try:
        archive = zipfile.ZipFile(archived)
    except Exception as error:  # a damaged directory ends in more than BadZipFile
        raise AuditError(f"{name}: not a wheel: {error}") from error
    with archive:
        budget.open(archived.seek(0, os.SEEK_END), len(archive.infolist()))
        for number, member in enumerate(archive.infolist()):
            yield member.filename, partial(_unpacked, archive, member, budget, every)
            if number % _LOOKS == 0:  # looking at the clock takes as long as passing a file over
                budget.spend()


@contextmanager
def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo, budget: Budget, every: bool) -> Iterator[IO[bytes]]:
    """A seekable copy of a member of a wheel, on disk if it is large; only the first bytes of one that is not read.

    Read are ELF files, DLLs, Python sources, METADATA, and files of device code.

    Raises BadZipFile if it is damaged, or claims to become so large that it can only be made to fill a disk.
    Raises AuditError if the wheel becomes too large.
    """
    if member.file_size > max(_MOST_UNPACKED, _MOST_RATIO * member.compress_size):
        msg = f"{member.compress_size} bytes would become {member.file_size}; expected at most {_MOST_RATIO} times more"
        raise zipfile.BadZipFile(msg)
    with archive.open(member) as packed:
        head = packed.read(4)
        if not (every or is_elf(BytesIO(head)) or member.filename.lower().endswith(_READ)):
            yield BytesIO(head)
            return
        budget.spend(member.file_size)
        if member.file_size <= _IN_MEMORY:
            yield BytesIO(archive.read(member))  # from its start: a longer read is not copied
            return
        with tempfile.TemporaryFile() as stream:
            stream.write(head)
            shutil.copyfileobj(packed, stream, 1 << 20)
            stream.seek(0)
            yield stream
