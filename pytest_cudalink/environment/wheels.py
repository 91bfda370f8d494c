"""Wheels of this process by the names of their packages, and toolkits that variables name; nothing is loaded."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..base.regular_files import TEXT, is_regular, read_bounded

if TYPE_CHECKING:
    from importlib import metadata

#: Packages that bring nvJitLink: of CUDA 13, and of CUDA 12. Both can be installed at once.
NVJITLINK: Final = ("nvidia-nvjitlink", "nvidia-nvjitlink-cu12")
#: The files of an installed package that importlib.metadata opens for its name, version, requirements and files.
_METADATA: Final = ("METADATA", "PKG-INFO", "requires.txt")
_LISTS: Final = ("RECORD", "installed-files.txt", "SOURCES.txt")
_MOST_LISTED: Final = 64 << 20
#: Most bytes that are read of a toolkit's version.json; a real one has 4,000.
_MOST_MANIFEST: Final = 1 << 20
#: The requirement that brings tileiras with ptxas and libNVVM, without a version.
TILEIRAS: Final = "cuda-toolkit[nvcc,nvvm,tileiras]"


def installed_wheels(*names: str) -> Iterator[metadata.Distribution]:
    """Yield the packages of `names` that are installed, in that order."""
    from importlib import metadata

    for name in names:
        with suppress(metadata.PackageNotFoundError):
            distribution = metadata.distribution(name)
            if _can_be_read(distribution):
                yield distribution


def installed_wheel(*names: str) -> metadata.Distribution | None:
    """Return the first package of `names` that is installed; None if none of them is."""
    return next(installed_wheels(*names), None)


def files_of(wheel: metadata.Distribution | None, name: str) -> Iterator[Path]:
    """Yield the paths of the files of a package whose names match a regular expression; none without a package."""
    for file in (wheel.files if wheel is not None else None) or ():
        if re.fullmatch(name, file.name):
            yield Path(str(file.locate()))


def named_toolkits() -> Iterator[tuple[str, Path]]:
    """Yield the toolkits that the environment names, each behind its variable; the first counts, as in pathfinder."""
    for name in ("CUDA_PATH", "CUDA_HOME"):
        if folder := os.environ.get(name):
            yield name, Path(folder)


def toolkit_version(folder: Path, component: str = "cuda") -> str:
    """Return the version of a toolkit, or of a part of it, by its ``version.json``; empty where that says none."""
    with suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
        version = json.loads(read_bounded(folder / "version.json", _MOST_MANIFEST))[component]["version"]
        if isinstance(version, str) and re.fullmatch(r"\d{1,4}\.\d{1,4}(\.\d+)*", version, re.ASCII):
            return version
    return ""


def own_version() -> str:
    """Return the version of this package; empty in a source tree that is not installed."""
    from importlib import metadata

    with suppress(metadata.PackageNotFoundError):
        return metadata.version("pytest-cudalink")
    return ""


def _can_be_read(distribution: metadata.Distribution) -> bool:
    """Return whether the files that importlib.metadata opens are regular ones, not too large: it would wait for a pipe.

    Those of a damaged or a hostile environment may be anything.
    """
    folder = getattr(distribution, "_path", None)
    if not isinstance(folder, Path):  # in an archive
        return True
    bounds = {**dict.fromkeys(_METADATA, TEXT), **dict.fromkeys(_LISTS, _MOST_LISTED)}
    files = {folder / name: most for name, most in bounds.items()} if folder.is_dir() else {folder: TEXT}
    return all(is_regular(file, most) for file, most in files.items() if os.path.lexists(file))
