"""The CUDA release of a wheel, by what the releases of cuda-toolkit require: its own version need not say it.

``nvidia-cuda-cccl 13.3.5.0.6`` is what cuda-toolkit 13.5 requires. The table is ``data/toolkit_extras.toml``, which
``tools/make_toolkit_extras.py`` reads from the package index, and compares with it each week.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cache
from typing import Final, NamedTuple

from packaging.version import InvalidVersion, Version

from ..base.tables import read_table
from ..versions import CudaVersion

_LINE: Final = re.compile(r"([a-z0-9-]+)(?:==|<\d+,>=)([\d.]+?)(?:\.\*)?")


class Pin(NamedTuple):
    """The release that a wheel belongs to."""

    release: CudaVersion
    toolkit: str  # the newest version of cuda-toolkit that requires the wheel


@cache
def _pins() -> dict[str, dict[str, Pin]]:
    """The pin of each version of each wheel; a lower bound is the version that its release came with."""
    found: dict[str, dict[str, Pin]] = {}
    for toolkit, extras in read_table("toolkit_extras.toml")["versions"].items():
        pin = Pin(CudaVersion.parse(toolkit), toolkit)
        for line in {line for lines in extras.values() for line in lines}:
            if match := _LINE.fullmatch(line):
                found.setdefault(match[1], {})[match[2]] = pin
    return found


@cache
def _ordered(wheel: str) -> tuple[tuple[Version, Pin], ...]:
    return tuple(sorted((Version(version), pin) for version, pin in _pins().get(wheel, {}).items()))


def pin_of(wheel: str, version: str) -> Pin | None:
    """Return the release of a wheel; None if the wheel is newer or older than all that known releases require.

    A version between those of two releases is a patch of the older one, as nvidia-cuda-nvcc-cu12 12.5.82 is.
    """
    try:
        wanted = Version(version)
    except InvalidVersion:
        return None
    known = _ordered(wheel)
    if not known or wanted.is_prerelease or wanted < known[0][0]:
        return None
    at = bisect_right(known, wanted, key=lambda one: one[0])
    below, pin = known[at - 1]
    newest = at == len(known) and wanted.release[: len(below.release)] != below.release
    return None if newest else pin


def pinned_versions(wheel: str, release: CudaVersion) -> tuple[str, ...]:
    """Return the versions of a wheel that belong to a release."""
    return tuple(version for version, pin in _pins().get(wheel, {}).items() if pin.release == release)


@cache
def is_open(wheel: str, release: CudaVersion) -> bool:
    """Whether the newest cuda-toolkit of a release, or of the last one known, bounds a wheel only from below."""
    table = read_table("toolkit_extras.toml")["versions"]
    newest = max((one for one in table if CudaVersion.parse(one) <= release), key=Version, default="")
    lines = (line for lines in table.get(newest, {}).values() for line in lines)
    return any(line.startswith(f"{wheel}<") for line in lines)


@cache
def brought_by(extras: frozenset[str], release: CudaVersion) -> frozenset[str]:
    """Return the wheels that extras of cuda-toolkit bring in a release."""
    table = read_table("toolkit_extras.toml")["versions"]
    return frozenset(
        match[1]
        for toolkit, known in table.items()
        if CudaVersion.parse(toolkit) == release
        for extra in (known if "all" in extras else extras & known.keys())
        for line in known[extra]
        if (match := _LINE.fullmatch(line))
    )
