"""CUDA versions and the tables that order them: PTX ISA, LTO-IR, architectures, driver branches.

The numbers were read off NVRTC and nvJitLink wheels of each release unless a comment names a document.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from functools import cache
from typing import NamedTuple, Self

__all__ = [
    "ARCHITECTURES",
    "DRIVER_BRANCH_FLOOR",
    "LATEST_KNOWN",
    "NVVM_IR",
    "PTX_ISA",
    "Architecture",
    "CudaVersion",
    "Needs",
    "known_architectures",
    "needs_for_nvvm_ir",
    "needs_for_ptx_isa",
    "parse_architecture",
    "ptx_isa_of",
    "skew_remedy",
]


class CudaVersion(NamedTuple):
    """A CUDA release, ordered and comparable with plain ``(major, minor)`` tuples.

    Attributes
    ----------
    major, minor : int
        The release number: ``CudaVersion(13, 0)`` is CUDA 13.0.
    """

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``"13.0"``, ``"13.0.88"`` or ``"13"`` (minor 0); a third number is dropped.

        Raises
        ------
        ValueError
            If the text does not start with one or two dot-separated numbers.
        """
        match = re.fullmatch(r"(\d{1,4})(?:\.(\d{1,4})(?:\.\d+)*)?", text.strip(), re.ASCII)
        if match is None:
            msg = f"{text!r} is not a CUDA version; write MAJOR.MINOR, such as '13.0'"
            raise ValueError(msg)
        return cls(int(match[1]), int(match[2] or 0))

    @classmethod
    def from_driver(cls, number: int) -> Self:
        """Read the integer of ``cuDriverGetVersion``: 1000 * major + 10 * minor (CUDA Driver API, Version Management).

        Raises
        ------
        ValueError
            If the number is negative.
        """
        if number < 0:
            msg = f"a CUDA driver version is not negative, got {number}"
            raise ValueError(msg)
        return cls(number // 1000, number % 1000 // 10)

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


class Needs(NamedTuple):
    """The CUDA release that something needs from its consumer.

    Attributes
    ----------
    version : CudaVersion
        The release.
    newer_than : bool
        False: `version` itself is enough. True: a release that our tables do not know, later than `version`.
    """

    version: CudaVersion
    newer_than: bool = False

    def met_by(self, consumer: CudaVersion) -> bool:
        """Whether a linker of release `consumer` understands it."""
        return consumer > self.version if self.newer_than else consumer >= self.version

    def __str__(self) -> str:
        return f"newer than CUDA {self.version}" if self.newer_than else f"CUDA {self.version}"


#: PTX ISA version that each CUDA release writes and, at most, reads. Read off NVRTC's output; 12.7 is from the release
#: notes of the PTX ISA.
PTX_ISA: dict[CudaVersion, tuple[int, int]] = {
    CudaVersion(12, 0): (8, 0),
    CudaVersion(12, 1): (8, 1),
    CudaVersion(12, 2): (8, 2),
    CudaVersion(12, 3): (8, 3),
    CudaVersion(12, 4): (8, 4),
    CudaVersion(12, 5): (8, 5),
    CudaVersion(12, 6): (8, 5),
    CudaVersion(12, 7): (8, 6),
    CudaVersion(12, 8): (8, 7),
    CudaVersion(12, 9): (8, 8),
    CudaVersion(13, 0): (9, 0),
    CudaVersion(13, 1): (9, 1),
    CudaVersion(13, 2): (9, 2),
    CudaVersion(13, 3): (9, 3),
    CudaVersion(13, 4): (9, 4),
    CudaVersion(13, 5): (9, 5),
}

#: NVVM IR version in the header of each release's LTO-IR (bytes 6 and 7). Undocumented; read off NVRTC's output.
#: The minor only grows, so it names the producing release. 12.7 was never published as a wheel.
NVVM_IR: dict[CudaVersion, tuple[int, int]] = {
    CudaVersion(12, 0): (2, 51),
    CudaVersion(12, 1): (2, 53),
    CudaVersion(12, 2): (2, 58),
    CudaVersion(12, 3): (2, 63),
    CudaVersion(12, 4): (2, 71),
    CudaVersion(12, 5): (2, 83),
    CudaVersion(12, 6): (2, 84),
    CudaVersion(12, 8): (2, 89),
    CudaVersion(12, 9): (2, 93),
    CudaVersion(13, 0): (2, 98),
    CudaVersion(13, 1): (2, 107),
    CudaVersion(13, 2): (2, 114),
    CudaVersion(13, 3): (2, 115),
    CudaVersion(13, 4): (2, 120),
    CudaVersion(13, 5): (2, 131),
}

LATEST_KNOWN = max(PTX_ISA)

#: Oldest driver branch that runs a toolkit of each major by minor-version compatibility
#: (CUDA Compatibility guide, "Minor Version Compatibility").
DRIVER_BRANCH_FLOOR: dict[int, int] = {11: 450, 12: 525, 13: 580}


class Architecture(NamedTuple):
    """A GPU architecture and the CUDA releases that compile and link for it.

    Attributes
    ----------
    number : int
        Compute capability times ten: 90 for sm_90.
    since : CudaVersion
        First release that knows it; 12.0 also stands for anything older.
    dropped : CudaVersion or None
        First release that no longer does.
    suffixes : str
        Letters that may follow the number: ``a`` architecture-specific, ``f`` family-specific.
    """

    number: int
    since: CudaVersion
    dropped: CudaVersion | None = None
    suffixes: str = ""


_V12_0, _V12_8, _V12_9, _V13_0 = (
    CudaVersion(12, 0),
    CudaVersion(12, 8),
    CudaVersion(12, 9),
    CudaVersion(13, 0),
)

_FAMILY_SUFFIX_SINCE = _V12_9  # PTX ISA 8.8, "Family-specific targets"

#: `nvrtcGetSupportedArchs` of the 12.0 to 13.5 wheels; sm_101 was renamed sm_110 in 13.0 (CUDA 13.0 release notes).
ARCHITECTURES: tuple[Architecture, ...] = (
    *(Architecture(n, _V12_0, _V13_0) for n in (50, 52, 53, 60, 61, 62, 70, 72)),
    *(Architecture(n, _V12_0) for n in (75, 80, 86, 87)),
    Architecture(88, _V13_0),
    Architecture(89, _V12_0),
    Architecture(90, _V12_0, None, "a"),
    Architecture(100, _V12_8, None, "af"),
    Architecture(101, _V12_8, _V13_0, "af"),
    Architecture(103, _V12_9, None, "af"),
    Architecture(110, _V13_0, None, "af"),
    Architecture(120, _V12_8, None, "af"),
    Architecture(121, _V12_9, None, "af"),
)


def _needs(table: dict[CudaVersion, tuple[int, int]], number: tuple[int, int]) -> Needs:
    """The release that a table names for `number`: exact, else "newer than" the last one below it."""
    releases = sorted(table)
    numbers = [table[release] for release in releases]
    at = bisect_left(numbers, number)
    if at < len(numbers) and numbers[at] == number:
        return Needs(releases[at])
    if at == 0:  # older than every release we know: the oldest one reads it
        return Needs(releases[0])
    return Needs(releases[at - 1], newer_than=True)


def needs_for_ptx_isa(isa: tuple[int, int]) -> Needs:
    """The oldest CUDA release that reads PTX of this ISA version."""
    return _needs(PTX_ISA, isa)


def needs_for_nvvm_ir(version: tuple[int, int]) -> Needs:
    """The CUDA release that wrote LTO-IR with this NVVM IR version, which is also the oldest that reads it."""
    return _needs(NVVM_IR, version)


def ptx_isa_of(release: CudaVersion) -> tuple[int, int]:
    """The newest PTX ISA that a CUDA release reads; for an unknown release, that of the last known one below it.

    Raises
    ------
    ValueError
        If the release is older than every one in the table.
    """
    known = [version for version in PTX_ISA if version <= release]
    if not known:
        msg = f"CUDA {release} is older than {min(PTX_ISA)}, the first release in the PTX ISA table"
        raise ValueError(msg)
    return PTX_ISA[max(known)]


@cache
def known_architectures(release: CudaVersion | None = None) -> tuple[str, ...]:
    """Names such as ``"sm_90a"`` that a CUDA release links for; every one ever known when `release` is None."""
    names = []
    if release is not None:
        release = max(release, _V12_0)
    for arch in ARCHITECTURES:
        if release is not None and (release < arch.since or (arch.dropped and release >= arch.dropped)):
            continue
        family = release is None or release >= _FAMILY_SUFFIX_SINCE
        suffixes = ["", *(s for s in arch.suffixes if s != "f" or family)]
        names += [f"sm_{arch.number}{suffix}" for suffix in suffixes]
    return tuple(names)


@cache
def parse_architecture(text: str) -> tuple[str, int, str]:
    """Split ``"sm_90a"`` into ``("sm", 90, "a")``; the prefix may be ``sm``, ``compute`` or ``lto``.

    Raises
    ------
    ValueError
        If the text has another form, or names an architecture that no known CUDA release has; lists the known ones.
    """
    match = re.fullmatch(r"(sm|compute|lto)_(\d{2,3})([af]?)", text, re.ASCII)
    if match is None or f"sm_{match[2]}{match[3]}" not in known_architectures():
        known = ", ".join(known_architectures())
        msg = f"unknown architecture {text!r}; known: {known} (or compute_ with the same numbers)"
        raise ValueError(msg)
    return match[1], int(match[2]), match[3]


def skew_remedy(needs: Needs, linker: CudaVersion, *, driver: bool = False) -> str:
    """What to do about an artifact that needs a newer linker; in one voice for the linker and the guard rails.

    Parameters
    ----------
    needs : Needs
        What the artifact needs.
    linker : CudaVersion
        What there is.
    driver : bool
        The linker is the driver's, not nvJitLink.
    """
    if driver:
        remedy = f"install a driver for CUDA {needs.version}{' or newer' if not needs.newer_than else ' at least'}"
    else:
        package = "nvidia-nvjitlink-cu12" if needs.version.major == 12 else "nvidia-nvjitlink"
        bound = ">" if needs.newer_than else ">="
        remedy = f"install '{package}{bound}{needs.version}'"
    return f"linker understands up to {linker}: {remedy}, or compile with CUDA {linker} or older"
