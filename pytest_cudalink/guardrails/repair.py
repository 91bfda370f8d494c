"""The command that repairs a set of items, or advice where no command does. Pure.

`trials` makes the items that an environment would have after a command; the doctor judges them, and takes the first
command that leaves no fault. So the command moves every part that has to move, and its own result is coherent.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from ..audit.install_targets import accepts, common_version
from ..base.install_command import NO_COMMAND, Command
from ..compat.exports import brought_by, is_open, pinned_versions
from ..compat.releases import LATEST_KNOWN, PTX_ISA, STAND_INS
from ..environment.wheels import NVJITLINK
from ..versions import CudaVersion
from .items import ALREADY_LOADED, Item, component_table

#: Stands for the release of an item without one: older than all.
UNKNOWN: Final = CudaVersion(0, 0)
#: nvJitLink and its headers, in small letters: newer ones read what older releases write.
_LINKER: Final = "nvjitlink"


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
        return item.name  # nvdisasm and cuobjdump have their own wheels since CUDA 13.2
    table = component_table()
    toolkit, names, companions = table["toolkit"], table["extras"], table["companions"]
    known = (*toolkit["extras"], *toolkit["extras-since-13"])
    family = next((name for name, libraries in companions.items() if item.name in libraries), "all")
    candidates = (names.get(f"{item.kind} {item.name}"), names.get(item.name), item.name.lower(), family)
    extra: str = next((candidate for candidate in candidates if candidate in known), "all")
    return "nvcc" if extra in toolkit["extras-since-13"] and version.major < 13 else extra


def _installable(items: Sequence[Item], version: CudaVersion, *, at_most: bool) -> bool:
    """Whether wheels bring items in a release: it must be published, and up to CUDA 12 no wheel has programs."""
    of_major = (cuda for cuda in published_releases() if cuda.major == version.major)
    published = version > LATEST_KNOWN or any(cuda <= version if at_most else cuda == version for cuda in of_major)
    moved = any(item.kind == "binaries" and item.version != version for item in items)
    return published and not (moved and version.major < 13)


def by_hand(items: Sequence[Item], version: CudaVersion) -> str:
    """The advice where `repair` has no command."""
    if programs := [item for item in items if item.kind == "binaries"]:
        wheels = " and ".join(sorted({item.wheel for item in programs} - {""}))  # which are found before PATH
        return f"{wheels and f'uninstall {wheels}, and '}put the bin folder of a CUDA {version} toolkit first on PATH"
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
    if any(item.name == "nvJitLink" for item in items) and is_open(linker, version):
        words.append(f"{linker}{bound}")
    return Command(tuple(words), newer_wheels(items, version.major))


def remedies(items: Sequence[Item], version: CudaVersion) -> tuple[Command, str]:
    """The command that gives items one release; without a command, what to do by hand."""
    fix = repair(items, version)
    return fix, "" if fix else by_hand(items, version)


def newer_wheels(items: Sequence[Item], major: int) -> tuple[str, ...]:
    """The wheels of a newer major, to uninstall: as their names differ, they would stay, and be found first."""
    return tuple(sorted({item.wheel for item in items if item.wheel and item.version and item.version.major > major}))


# -- one command for all that does not fit


@dataclass(frozen=True)
class Trial:
    """A command, and the items that there are after it."""

    command: Command
    items: tuple[Item, ...]


def trials(
    items: Sequence[Item],
    driver: CudaVersion | None,
    bounds: Mapping[str, str],
    *,
    needed: Collection[str] = (),
    refused: Collection[str] = (),
    absent: Sequence[Item] = (),
) -> Iterator[Trial]:
    """Yield commands: first one that moves no item, then those that bring all to one release, the most wanted first.

    It yields nothing where what is needed cannot be satisfied.

    `bounds`: what other distributions require of the wheels, by name: a release that contradicts it is left out.
    `needed`: wheels of `bounds` to install in any case.
    `refused`: wheels of `bounds` of which the installed version is not one that they accept.
    `absent`: items to install in addition; their release does not count.
    """
    if any(common_version([bounds[name]]) is None for name in needed):
        return
    if needed and not absent and not {item.wheel for item in items}.intersection(needed):
        yield Trial(Command(tuple(f"{name}{bounds[name]}" for name in sorted(needed))), tuple(items))
    for release, at_most in _candidates(items, driver):
        for keep in (True, False):
            parts = _split(items, _becoming(release, at_most=at_most), refused, keep=keep)
            if trial := _trial(parts, release, bounds, needed, absent, at_most=at_most):
                yield trial


def _candidates(items: Sequence[Item], driver: CudaVersion | None) -> Iterator[tuple[CudaVersion, bool]]:
    """Yield releases: first those that are there, then what the driver runs at most, then the newest of all others."""
    ranked = sorted(items, key=lambda item: worth(item, driver), reverse=True)
    here = [item.version for item in ranked if item.version]
    yield from ((release, False) for release in dict.fromkeys(here))
    if driver is not None:
        yield driver, True
    yield from ((release, False) for release in reversed(published_releases()) if release not in here)


def _becoming(release: CudaVersion, *, at_most: bool) -> CudaVersion:
    """The release that a command installs."""
    published = [cuda for cuda in published_releases() if cuda.major == release.major and cuda <= release]
    return max(published, default=release) if at_most else release


class _Parts(NamedTuple):
    """Items by what a command does to them."""

    kept: list[Item]
    moved: list[Item]
    gone: list[Item]


def _split(items: Iterable[Item], becomes: CudaVersion, refused: Collection[str], *, keep: bool) -> _Parts:
    """Sort items; with `keep`, a newer nvJitLink of the same major stays, which links what older releases write.

    What a requirement refuses does not stay.
    """
    parts = _Parts([], [], [])
    for item in items:
        version = item.version or UNKNOWN
        newer = keep and item.name.lower() == _LINKER and version.major == becomes.major and version > becomes
        stays = item.wheel not in refused and (item.version == becomes or newer)
        if item.packaged_with != "ctk" or item.found_via == ALREADY_LOADED or stays:
            parts.kept.append(item)
        elif item.kind != "binaries" or becomes.major >= 13:
            parts.moved.append(item)
        elif item.wheel and version.major > becomes.major:  # up to CUDA 12 no wheel has programs
            parts.gone.append(item)
        else:
            parts.kept.append(item)
    return parts


def _trial(
    parts: _Parts,
    release: CudaVersion,
    bounds: Mapping[str, str],
    needed: Collection[str],
    absent: Sequence[Item],
    *,
    at_most: bool,
) -> Trial | None:
    becomes = _becoming(release, at_most=at_most)
    moved = [*parts.moved, *absent]
    brought = _brought(moved, becomes)
    named = sorted(name for name in bounds if name in brought or name in needed)
    pinned = {name: versions for name in named if (versions := pinned_versions(name, becomes))}
    fits = {name: any(accepts(bounds[name], version) for version in versions) for name, versions in pinned.items()}
    unfit = {name for name, fit in fits.items() if not fit}
    # a distribution may require a newer nvJitLink than that of the release, which then comes without its extra unless
    # cuda-toolkit bounds it from below only
    alone = {name for name in unfit if not is_open(name, becomes)}
    by_extra = [item for item in moved if not _brought([item], becomes) & alone]
    command = repair(by_extra, release, at_most=at_most) if by_extra else NO_COMMAND
    if (by_extra and not command) or unfit - {*NVJITLINK}:
        return None
    from packaging.requirements import Requirement  # (which `cudalink can-link` would import for nothing)

    words = [word for word in command.install if fits.get(Requirement(word).name, True)]
    words += [f"{name}{bounds[name]}" for name in named]
    if not words:
        return None
    after = {name: _newest_within(name, bounds[name], becomes) for name in unfit}
    there = [
        replace(
            item,
            version=next((after[name] for name in _brought([item], becomes) & unfit), becomes),
            found_via="site-packages",
            witness="after the command",
        )
        for item in moved
    ]
    gone = newer_wheels([*moved, *parts.gone], becomes.major)
    return Trial(Command(tuple(dict.fromkeys(words)), gone), (*parts.kept, *there))


def _newest_within(wheel: str, bound: str, otherwise: CudaVersion) -> CudaVersion:
    """The newest release of which a wheel satisfies a bound; `otherwise` where none that is known does."""
    fits = (cuda for cuda in PTX_ISA if any(accepts(bound, version) for version in pinned_versions(wheel, cuda)))
    return max(fits, default=otherwise)


def _brought(items: Iterable[Item], release: CudaVersion) -> frozenset[str]:
    """The wheels that the extras of items bring."""
    return brought_by(frozenset(extra_of(item, release) for item in items), release)
