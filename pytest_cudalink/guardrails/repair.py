"""The command that repairs a set of items, or advice where no command does. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..base.install_command import NO_COMMAND, Command
from ..compat.exports import brought_by, is_open
from ..compat.releases import LATEST_KNOWN, PTX_ISA, STAND_INS
from ..compat.wheels import NVJITLINK
from ..versions import CudaVersion
from .items import ALREADY_LOADED, Item, component_table

#: Stands for the release of an item without one: older than all.
UNKNOWN: Final = CudaVersion(0, 0)


def worth(item: Item, driver: CudaVersion | None) -> tuple[bool, bool, bool, CudaVersion]:
    """Whose release to keep, as a key to sort by: what the driver runs, what is loaded, a wheel, the newer one."""
    version = item.version or UNKNOWN
    runs = driver is None or version <= driver
    return runs, item.found_via == ALREADY_LOADED, item.found_via == "site-packages", version


def published_releases() -> list[CudaVersion]:
    """Return the releases that have wheels, oldest first."""
    known = {CudaVersion.parse(component_table()["toolkit"]["oldest"]), *PTX_ISA}
    return sorted(known - set(STAND_INS))


def extra_of(item: Item, version: CudaVersion) -> str:
    """The extra of cuda-toolkit that installs an item, in a release."""
    if item.kind == "binaries" and brought_by(frozenset({item.name}), version):
        return item.name  # nvdisasm and cuobjdump have wheels of their own since CUDA 13.2
    table = component_table()
    toolkit, names, companions = table["toolkit"], table["extras"], table["companions"]
    known = (*toolkit["extras"], *toolkit["extras-since-13"])
    family = next((name for name, libraries in companions.items() if item.name in libraries), "all")
    candidates = (names.get(f"{item.kind} {item.name}"), names.get(item.name), item.name.lower(), family)
    extra: str = next((candidate for candidate in candidates if candidate in known), "all")
    return "nvcc" if extra in toolkit["extras-since-13"] and version.major < 13 else extra


def _installable(items: Sequence[Item], version: CudaVersion, *, at_most: bool) -> bool:
    """Whether wheels bring items in a release: it must be published, and up to CUDA 12 no wheel has programs."""
    published = version > LATEST_KNOWN or any(
        one <= version if at_most else one == version for one in published_releases() if one.major == version.major
    )
    moved = any(item.kind == "binaries" and item.version != version for item in items)
    return published and not (moved and version.major < 13)


def by_hand(items: Sequence[Item], version: CudaVersion) -> str:
    """The advice where `repair` has no command."""
    if any(item.kind == "binaries" for item in items):
        return f"put the bin folder of a CUDA {version} toolkit first on PATH"
    oldest = component_table()["toolkit"]["oldest"]
    return f"use an installed CUDA {version} for all of these, or a release from {oldest} on, which has wheels"


def repair(items: Sequence[Item], version: CudaVersion, *, at_most: bool = False) -> Command:
    """The command that installs items of one CUDA release as wheels, which every search finds first.

    False if no command does: the release has no wheels, or no wheel has one of the items; see `by_hand`.

    `version`: the release.
    `at_most`: the newest release of that major up to `version`, instead of `version` itself.
    """
    if not _installable(items, version, at_most=at_most):
        return NO_COMMAND
    extras = ",".join(sorted({extra_of(item, version) for item in items}))
    exactly, up_to = f"=={version}.*", f">={version.major}.0,<{version.major}.{version.minor + 1}"
    bound = up_to if at_most else exactly
    words = [f"cuda-toolkit[{extras}]{bound}"]
    linker = next(name for name in NVJITLINK if name.endswith("-cu12") == (version.major == 12))
    if is_open(linker, version) and any(item.name == "nvJitLink" for item in items):
        words.append(f"{linker}{bound}")
    return Command(tuple(words), newer_wheels(items, version.major))


def newer_wheels(items: Sequence[Item], major: int) -> tuple[str, ...]:
    """The wheels of a newer major, to uninstall: as their names differ, they would stay, and be found first."""
    return tuple(sorted({item.wheel for item in items if item.wheel and item.version and item.version.major > major}))
