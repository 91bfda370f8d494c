"""CUDA releases and what is known of each: driver release, PTX ISA, NVVM IR, and which one stands in for another."""

from __future__ import annotations

from bisect import bisect_left

from ..versions import CudaVersion, Needs
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
        msg = f"CUDA {release} is older than {min(PTX_ISA)}, the first release in the PTX ISA table"
        raise ValueError(msg)
    return PTX_ISA[max(known)]
