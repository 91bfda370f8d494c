"""Fetch the toolchains that a run needs before it begins, and say so: one process fetches, the others wait."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from ..base.progress import progress
from ..versions import CudaVersion
from . import DOWNLOADS, Toolchain, ToolchainError, _installer, _lock_file, add, cache_root, find, folder
from .folders import is_locked

#: Variables that name the package index, by the program that reads them, the first that counts first.
_INDEX: Final = {"uv": ("UV_DEFAULT_INDEX", "UV_INDEX_URL"), "pip": ("PIP_INDEX_URL",)}
_MB: Final = 1_000_000


class Fetched(NamedTuple):
    """One toolchain that was fetched."""

    version: CudaVersion
    path: Path  # its folder
    size: int  # bytes of its files
    seconds: float  # how long that took, waiting for another process included
    source: str  # where it came from, such as "https://pypi.org/simple"

    def __str__(self) -> str:
        return (
            f"toolchain {self.version} was fetched from {self.source} ({self.size / _MB:.0f} MB on the disk, "
            f"{self.seconds:.0f} s) into {self.path}"
        )


def provide(versions: Sequence[CudaVersion], say: Callable[[str], object]) -> list[Fetched]:
    """Fetch the releases that the cache lacks, and show the progress.

    `say`: called with a sentence before each wait.
    Returns those that this process fetched or waited for.
    Raises ToolchainError if one cannot be fetched; the message names the command that fetches it.
    """
    return [fetched for version in versions if (fetched := _provide(version, say)) is not None]


def _provide(version: CudaVersion, say: Callable[[str], object]) -> Fetched | None:
    place = folder(version)
    try:
        find(version, "libs")
    except ToolchainError:
        pass
    else:
        return None
    began = time.perf_counter()
    try:
        source = _source()
        if is_locked(*_lock_file(place)):
            say(f"waiting for the process that fetches the toolchain {version} into {place}")
        else:
            say(f"fetching the toolchain {version} ({DOWNLOADS['libs']}) from {source} into {place}")
        with progress(f"fetching toolchain {version}") as step:
            made = add(version, tell=step.say)
    except ToolchainError as error:
        if isinstance(error.__cause__, OSError):  # of the cache, which no network mends; the error names the variable
            raise
        msg = (
            f"{error}\nWith a network, `cudalink toolchain add {version}` puts it into {cache_root()}; $CUDALINK_CACHE "
            "names another cache"
        )
        raise ToolchainError(msg) from error
    return Fetched(version, made.path, _size(made), time.perf_counter() - began, source)


def _source() -> str:
    """Return the package index that the installer reads, without the password that its address may have."""
    installer = Path(_installer(None)[0]).name
    for name in _INDEX["uv" if installer == "uv" else "pip"]:
        if found := re.search(r"\w+://\S+", os.environ.get(name, "")):
            address = urlsplit(found[0])
            return address._replace(netloc=address.netloc.rpartition("@")[2]).geturl()
    return f"the package index of {'uv' if installer == 'uv' else 'pip'}"


def _size(made: Toolchain) -> int:
    return sum(path.stat().st_size for path in made.path.rglob("*") if path.is_file() and not path.is_symlink())
