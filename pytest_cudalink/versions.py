"""CUDA versions: how they are written, ordered and compared, and what to do about one that is too old."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple, Self

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

__all__ = ["FIRST_BRANCH", "CudaVersion", "Needs", "ranges", "skew_remedy"]

#: Numbers from here on are branches of drivers, such as 575, and no versions of CUDA.
FIRST_BRANCH: Final = 100
#: A release as a number alone, or in a longer text.
NUMBERS: Final = re.compile(r"\d+(\.\d+)*", re.ASCII)


class CudaVersion(NamedTuple):
    """A CUDA release, ordered and comparable with plain ``(major, minor)`` tuples."""

    major: int  # `CudaVersion(13, 0)` is CUDA 13.0
    minor: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``"13.0"``, ``"13.0.88"`` or ``"13"`` (minor 0); a third number is dropped.

        Raises ValueError if the text does not start with one or two dot-separated numbers.
        """
        match = re.fullmatch(r"(\d{1,4})(?:\.(\d{1,4})(?:\.\d+)*)?", text.strip(), re.ASCII)
        if match is None:
            raise ValueError(f"{text!r} is not a CUDA version; write MAJOR.MINOR, such as '13.0'")
        return cls(int(match[1]), int(match[2] or 0))

    @classmethod
    def from_driver(cls, number: int) -> Self:
        """Read the integer of ``cuDriverGetVersion``: 1000 * major + 10 * minor (CUDA Driver API, Version Management).

        Raises ValueError if the number is negative.
        """
        if number < 0:
            raise ValueError(f"a CUDA driver version is not negative, got {number}")
        return cls(number // 1000, number % 1000 // 10)

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


def ranges(releases: Iterable[CudaVersion]) -> str:
    """Return known releases in words, a range for each major: one range would seem to have 12.10, too."""
    majors = [list(ones) for _, ones in groupby(sorted(releases), attrgetter("major"))]
    return ", ".join(f"{major[0]} to {major[-1]}" if len(major) > 1 else str(major[0]) for major in majors)


class Needs(NamedTuple):
    """The CUDA release that an artifact needs from its consumer."""

    version: CudaVersion  # the release
    # False: `version` itself is enough. True: it needs a release that our tables do not know, later than `version`.
    newer_than: bool = False

    def met_by(self, consumer: CudaVersion) -> bool:
        """Whether a linker of release `consumer` understands the artifact."""
        return consumer > self.version if self.newer_than else consumer >= self.version

    def __str__(self) -> str:
        return f"newer than CUDA {self.version}" if self.newer_than else f"CUDA {self.version}"


def specifier_of(text: str) -> SpecifierSet:
    """Return a specifier; a number alone, ``"13.2"``, stands for all that begins with it, ``"==13.2.*"``.

    Raises InvalidSpecifier, a ValueError, for a text that is not a specifier.
    """
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(f"=={text}.*" if NUMBERS.fullmatch(text) else text)


def distribution_version(text: str) -> Version | None:
    """Return the version of a distribution; None for a text that is not one of PEP 440."""
    from packaging.version import InvalidVersion, Version

    try:
        return Version(text)
    except InvalidVersion:
        return None


def skew_remedy(needs: Needs, linker: CudaVersion, *, driver: bool = False) -> str:
    """Return what to do about an artifact that needs a newer linker, in the words of both linker and guard rails.

    `needs`: the release that the artifact needs.
    `linker`: release of the linker that was found.
    `driver`: True if the linker is the driver's, False if it is nvJitLink.
    """
    if driver:
        remedy = f"install a driver for CUDA {needs.version}{' or newer' if not needs.newer_than else ' at least'}"
    else:
        package = "nvidia-nvjitlink-cu12" if needs.version.major == 12 else "nvidia-nvjitlink"
        bound = ">" if needs.newer_than else ">="
        remedy = f"install '{package}{bound}{needs.version}'"
    return f"linker understands up to {linker}: {remedy}, or compile with CUDA {linker} or older"
