"""CUDA releases and what is known of each: driver release, PTX ISA, NVVM IR, stand-in; and which one a driver is of."""

import re
from bisect import bisect_left
from collections.abc import Iterator

from ..versions import FIRST_BRANCH, CudaVersion, Needs, ranges
from . import names

#: Driver release that each CUDA version first came with.
DRIVER_RELEASES: dict[CudaVersion, str] = {CudaVersion(*release): driver for release, driver, *_ in names.RELEASES}

#: PTX ISA version that each CUDA release writes and, at most, reads.
PTX_ISA: dict[CudaVersion, tuple[int, int]] = {CudaVersion(*release): isa for release, _, isa, *_ in names.RELEASES}

#: NVVM IR version in the header of each release's LTO-IR; a release without wheels is missing.
NVVM_IR: dict[CudaVersion, tuple[int, int]] = {
    CudaVersion(*release): version for release, _, _, version, _ in names.RELEASES if version is not None
}

#: Releases without wheels, each with the release whose nvJitLink an emulated driver links with instead.
STAND_INS: dict[CudaVersion, CudaVersion] = {
    CudaVersion(*release): CudaVersion(*other) for release, *_, other in names.RELEASES if other is not None
}

LATEST_KNOWN = max(PTX_ISA)

#: Oldest driver branch that runs a toolkit of each major version by minor-version compatibility.
DRIVER_BRANCH_FLOOR: dict[int, int] = names.DRIVER_BRANCH_FLOOR


def _needs(table: dict[CudaVersion, tuple[int, int]], number: tuple[int, int]) -> Needs:
    """The release that a table names for `number`: exact, else "newer than" the last one below it."""
    releases = list(table)  # in order, which a test holds
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

    Raises ValueError if the release is older than every one in the table.
    """
    known = [version for version in PTX_ISA if version <= release]
    if not known:
        raise ValueError(f"CUDA {release} is older than {min(PTX_ISA)}, the first release in the PTX ISA table")
    return PTX_ISA[max(known)]


# -- drivers, by what users call them


def driver_branch(release: CudaVersion) -> int:
    """Return the driver branch that a CUDA release came with: 535 for 12.2."""
    return int(DRIVER_RELEASES[release].partition(".")[0])


def driver_named(text: str) -> CudaVersion:
    """Return the CUDA version of a driver: 12.2 for ``"535"``, ``"535.104.05"``, ``"R535"`` or ``"12.2"``.

    Raises ValueError if it is no driver's release, or that of a driver older than CUDA 12.0.
    """
    digits = re.fullmatch(r"[Rr]?(\d{1,4}(?:\.\d{1,4}){0,2})", text.strip(), re.ASCII)
    releases = list(DRIVER_RELEASES)
    oldest = releases[0]
    if digits is not None:
        numbers = tuple(int(digit) for digit in digits[1].split("."))
        if numbers[0] < FIRST_BRANCH:
            version = CudaVersion.parse(digits[1])
            if len(numbers) > 2:
                msg = f"driver {text!r}: drivers of one CUDA release answer alike; write {version}, or its release"
                raise ValueError(msg)
            if version in DRIVER_RELEASES:
                return version
        elif numbers[0] >= driver_branch(oldest):
            return max(release for release in releases if driver_branch(release) <= numbers[0])
    raise ValueError(
        f"driver {text!r}: expected a release from {driver_branch(oldest)} on, such as 535 or 535.104.05, "
        f"or a CUDA version from {ranges(releases)}"
    )


def drivers_in(text: str) -> tuple[CudaVersion, ...]:
    """Return the CUDA versions of drivers in a range such as ``">=525"``, ``">=12.2,<580"`` or ``"535"``.

    Raises ValueError if a part of the range is not a driver, or no known driver is in it.
    """
    from packaging.specifiers import Specifier

    chosen = list(DRIVER_RELEASES)
    for part in text.split(","):
        match = re.fullmatch(r"\s*(>=|<=|==|>|<|)\s*([^\s<>=]\S*)\s*", part)
        if match is None:
            msg = f"drivers {text!r}: {part!r} is not a bound; write a range such as '>=525' or '>=535,<580'"
            raise ValueError(msg)
        bound = Specifier(f"{match[1] or '=='}{driver_named(match[2])}")
        chosen = [release for release in chosen if bound.contains(str(release))]
    if not chosen:
        raise ValueError(f"drivers {text!r}: no known driver is in this range")
    return tuple(chosen)


def not_a_branch(text: str) -> CudaVersion:
    """Read a version of CUDA.

    Raises ValueError if it is a branch of drivers, with what to write, or not a version.
    """
    wanted = CudaVersion.parse(text)
    if wanted.major >= FIRST_BRANCH:
        first = f"{wanted.major}."
        of_branch = [str(driver) for driver, release in DRIVER_RELEASES.items() if release.startswith(first)]
        meant = f", which came with CUDA {' and '.join(of_branch)}" if of_branch else ""
        msg = f"{text!r} is a branch of drivers{meant}; write a version of CUDA, such as {(of_branch or ['13.0'])[-1]}"
        raise ValueError(msg)
    return wanted


def may_exist() -> Iterator[CudaVersion]:
    """Yield the known releases, newest first, and all that may be published later or came before them."""
    known = sorted(DRIVER_RELEASES, reverse=True)
    yield from known
    numbers = (CudaVersion(major, minor) for major in range(FIRST_BRANCH) for minor in range(10))
    yield from (number for number in numbers if not known[-1] <= number <= known[0])


def driver_numbered(text: str) -> CudaVersion:
    """Read the version of a driver: two numbers.

    Raises ValueError as `not_a_branch` does, and if there are three.
    """
    wanted = not_a_branch(text)
    if text.count(".") > 1:
        raise ValueError(f"{text!r} has three numbers, and drivers of one CUDA release answer alike; write {wanted}")
    return wanted


def version_named(name: str | CudaVersion) -> CudaVersion:
    """Return the version of an emulated driver that is meant.

    Raises ValueError if none is, with the reason and what to write.
    """
    text, known = str(name).strip(), tuple(DRIVER_RELEASES)
    wanted = driver_numbered(text)
    if wanted not in known:
        newer = ", or upgrade pytest-cudalink" if wanted > known[-1] else ""
        raise ValueError(f"CUDA {wanted} cannot be emulated; supported: {ranges(known)}; choose one of these{newer}")
    return wanted
