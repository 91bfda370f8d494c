"""Wheels of a package index, opened without downloading all of them: the directory, and the members that are read."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterable
from typing import IO, Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.tags import sys_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from ..compat.package_index import IndexedFile, PackageIndexError, RangeFile, default_index, files_of
from .budget import AuditError

_SHOWN: Final = 5
_BUFFER: Final = 1 << 20


def open_on_index(
    wanted: str, index: str | None = None, tell: Callable[[str], object] | None = None
) -> tuple[str, IO[bytes]]:
    """Return the file name of a wheel, and the wheel as a file of which only the parts that are read are transferred.

    The parameters are those of `audit_on_index`.

    Raises AuditError if the index has no such wheel, or cannot be read.
    """
    try:
        project = _project(wanted)
        file = chosen_wheel(wanted, files_of(index or default_index(), project))
        # zipfile expects whole reads, which a raw file does not promise
        return file.name, io.BufferedReader(RangeFile(file, tell), _BUFFER)
    except PackageIndexError as error:
        msg = f"{wanted}: {error}"
        raise AuditError(msg) from error


def metadata_on_index(wanted: str, index: str | None = None) -> bytes:
    """Return the METADATA of a wheel of the index; a few kilobytes are transferred.

    Raises AuditError if the index has no such wheel, or it cannot be read.
    """
    name, file = open_on_index(wanted, index)
    try:
        with file, zipfile.ZipFile(file) as archive:
            (member,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
            return archive.read(member)
    except (PackageIndexError, zipfile.BadZipFile, ValueError) as error:
        msg = f"{name}: its METADATA cannot be read: {error}"
        raise AuditError(msg) from error


def chosen_wheel(wanted: str, files: Iterable[IndexedFile]) -> IndexedFile:
    """Return the file that is wanted: by name, or the newest that fits a requirement and this machine.

    A withdrawn (yanked) file is taken by its name or its exact version alone, as pip does.

    Raises AuditError if there is none; names some that there are.
    """
    files = list(files)
    if wanted.endswith(".whl"):
        fitting = [file for file in files if file.name == wanted]
    else:
        specifier = Requirement(wanted).specifier
        exact = any(one.operator in ("==", "===") and not one.version.endswith(".*") for one in specifier)
        known = [
            file
            for file in files
            if specifier.contains(file.version, prereleases=bool(specifier.prereleases)) and (exact or not file.yanked)
        ]
        ranks = {tag: rank for rank, tag in enumerate(sys_tags())}
        tags = {file.name: parse_wheel_filename(file.name)[3] for file in known}
        fitting = [file for file in known if tags[file.name] & ranks.keys()]
        fitting.sort(key=lambda file: (file.version, -min(ranks[tag] for tag in tags[file.name] if tag in ranks)))
        files = known or files
    if fitting:
        return fitting[-1]
    some = ", ".join(file.name for file in files[-_SHOWN:])
    msg = f"{wanted}: the index has no such wheel for this machine; some that it has: {some or 'none'}"
    raise AuditError(msg)


def _project(wanted: str) -> str:
    try:
        if wanted.endswith(".whl"):
            return parse_wheel_filename(wanted)[0]
        return canonicalize_name(Requirement(wanted).name)
    except (InvalidRequirement, InvalidWheelFilename) as error:
        reason = str(error).partition("\n")[0]  # packaging goes on with the text, and a mark below it
        msg = f"{wanted}: {reason}; expected a requirement such as 'libcudf-cu12==26.2.1', or the name of a wheel"
        raise AuditError(msg) from error
