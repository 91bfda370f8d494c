"""The files of a wheel, a folder or one file, each as a buffer: in memory, or mapped if it is large."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ..budget import AuditError, Budget
from ..buffers import Buffer, buffer
from ..wheel import refuse_folder_of_wheels

__all__ = ["buffers"]

_IN_MEMORY: Final = 16 << 20
#: A member of a wheel above the first size must not be more than so many times larger than it is packed.
_MOST_UNPACKED: Final = 64 << 20
_MOST_RATIO: Final = 100


def buffers(path: Path) -> Iterator[tuple[str, Buffer | None, str]]:
    """Yield the name of each file and its bytes, valid until the next; or None and the reason why it cannot be read.

    Raises
    ------
    AuditError
        If there is no such file or folder, a wheel is damaged, or a folder has wheels.
    """
    if path.is_dir():
        refuse_folder_of_wheels(path)
        for file in sorted(path.rglob("*")):
            if file.is_file() and not file.is_symlink():
                yield from _file(file.relative_to(path).as_posix(), file)
    elif not path.is_file():
        msg = f"{path}: there is no such file; give a wheel, a folder, a library, an archive or device code"
        raise AuditError(msg)
    elif path.suffix == ".whl" or zipfile.is_zipfile(path):
        yield from _wheel(path)
    else:
        yield from _file(path.name, path)


def _file(name: str, path: Path) -> Iterator[tuple[str, Buffer | None, str]]:
    try:
        with path.open("rb") as stream, buffer(stream) as content:
            yield name, content, ""
    except OSError as error:
        yield name, None, f"cannot be read: {error.strerror}"


def _wheel(path: Path) -> Iterator[tuple[str, Buffer | None, str]]:
    try:
        archive = zipfile.ZipFile(path)
    except Exception as error:  # a damaged directory ends in more than BadZipFile
        msg = f"{path}: not a wheel: {error}"
        raise AuditError(msg) from error
    with archive:
        budget = Budget(str(path))
        budget.open(path.stat().st_size, len(archive.infolist()))
        for member in archive.infolist():
            if member.is_dir():
                continue
            if member.file_size > max(_MOST_UNPACKED, _MOST_RATIO * member.compress_size):
                sizes = f"{member.compress_size} bytes would become {member.file_size}"
                yield member.filename, None, f"{sizes}; expected at most {_MOST_RATIO} times more"
                continue
            budget.spend(member.file_size)
            with tempfile.SpooledTemporaryFile(_IN_MEMORY) as copy:
                try:
                    with archive.open(member) as packed:
                        shutil.copyfileobj(packed, copy, 1 << 20)
                except Exception as error:  # noqa: BLE001 (zipfile raises whatever a damaged member leads it to)
                    yield member.filename, None, f"cannot be unpacked: {type(error).__name__}: {error}"
                    continue
                with buffer(copy) as content:
                    yield member.filename, content, ""
