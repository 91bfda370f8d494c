"""Whether the requirements of a wheel bring what its files need, and the requirement to write where they do not. Pure.

The rule of severity: a finding is an error where the wheel fails without the library: a file links it, a Python source
loads it where no handler expects its absence, or the wheel has LTO-IR and opens nvJitLink. A library that is only
opened otherwise may be optional, so its findings are notes. A missing
requirement is a note, too, where an extra of the wheel declares it, where the wheel has files for several CUDA
majors, and where the file also needs a library of another wheel, such as libtorch.so, whose requirements may do.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from email import message_from_bytes
from functools import cache
from itertools import chain
from typing import Final, Literal

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from ..compat import exports
from ..tables import read_table
from ..versions import CudaVersion
from .contradictions import parse_requirement
from .findings import AuditFinding
from .needs import Need
from .targets import InstallTarget, targets_of

__all__ = ["Declared", "Lack", "find_lack", "judge_needs", "read_requirements", "requirement_for", "requirements_for"]

_TOOLKIT: Final = "cuda-toolkit"
#: A version that every later release stays below.
_LATER: Final = Version("9999")
#: More than any real wheel has; each extra is compared with each requirement.
_MOST_REQUIREMENTS: Final = 2000
_MOST_EXTRAS: Final = 200
_SHOWN: Final = 3


@dataclass(frozen=True)
class Declared:
    """The requirements of a wheel on one target.

    Attributes
    ----------
    name : str
        Of the wheel's distribution, normalized.
    always : tuple of Requirement
        Those that hold without any extra.
    extras : mapping of str to tuple of Requirement
        Those that an extra adds.
    invalid : tuple of str
        Lines that cannot be read.
    followed : bool
        Whether it is known what each required package requires itself.
    """

    name: str
    always: tuple[Requirement, ...]
    extras: Mapping[str, tuple[Requirement, ...]]
    invalid: tuple[str, ...] = ()
    followed: bool = True


@dataclass(frozen=True)
class Lack:
    """What is wrong with the requirements for one library, in the terms of `packaging`.

    Attributes
    ----------
    kind : {"undeclared", "floor", "ceiling", "pin"}
    versions : tuple of str
        Versions that the requirements allow and that do not do, oldest first.
    """

    kind: Literal["undeclared", "floor", "ceiling", "pin"]
    versions: tuple[str, ...] = ()


def read_requirements(metadata: bytes, target: InstallTarget | None = None) -> Declared:
    """Read the requirements in a METADATA file as they hold on a target; invalid lines are apart.

    The default target is the newest Python on Linux of x86_64.
    """
    message = message_from_bytes(metadata)
    name = canonicalize_name(str(message.get("Name", "")))
    environment = (target or targets_of("")[-1]).environment
    requirements, invalid = [], []
    for line in (message.get_all("Requires-Dist") or [])[:_MOST_REQUIREMENTS]:
        try:
            requirements.append(parse_requirement(str(line)))
        except ValueError:
            invalid.append(str(line))
    extra_ones = [one for one in requirements if "extra" in str(one.marker or "")]

    def holding(extra: str) -> tuple[Requirement, ...]:
        """The requirements of an extra, and of those that it requires of the wheel itself."""
        found: list[Requirement] = []
        asked = [extra]
        for wanted in asked:
            given = {**environment, "extra": wanted}
            held = [one for one in (extra_ones if wanted else requirements) if _holds(one, given)]
            found += [one for one in held if one not in found]
            asked += [
                more
                for one in held
                if canonicalize_name(one.name) == name
                for more in sorted(one.extras)
                if more not in asked
            ]
        return tuple(found)

    always = holding("")
    extras = {
        str(extra): tuple(one for one in holding(str(extra)) if one not in always)
        for extra in (message.get_all("Provides-Extra") or [])[:_MOST_EXTRAS]
    }
    known = {name, _TOOLKIT, *_required(), *chain(*_required().values()), *chain(*_nvidia())}
    followed = all(canonicalize_name(one.name) in known for one in requirements)
    return Declared(name, always, extras, tuple(invalid), followed)


def _holds(requirement: Requirement, environment: dict[str, str]) -> bool:
    """Whether the marker of a requirement is true; one that cannot be evaluated does not count."""
    try:
        return requirement.marker is None or requirement.marker.evaluate(environment)
    except (UndefinedComparison, UndefinedEnvironmentName, ValueError, RecursionError):
        return False


@cache
def _required() -> dict[str, list[str]]:
    """The packages that NVIDIA's packages require, from ``requires.toml``."""
    return dict(read_table("requires.toml"))


def _nvidia() -> Iterator[Collection[str]]:
    """NVIDIA's packages of libraries that need no other package."""
    return (exports.distributions(stem).values() for stem in exports.libraries())


@cache
def _toolkit_extras() -> dict[str, dict[str, list[Requirement]]]:
    """What each extra of each version of cuda-toolkit requires, from ``toolkit_extras.toml``."""
    table = read_table("toolkit_extras.toml")["versions"]
    return {
        version: {extra: [Requirement(line) for line in lines] for extra, lines in extras.items()}
        for version, extras in table.items()
    }


def _brought(requirement: Requirement, distribution: str) -> dict[str, SpecifierSet | None]:
    """The specifiers that a requirement of cuda-toolkit leads to, by its version; None for one without the package."""
    brought: dict[str, SpecifierSet | None] = {}
    for version, extras in _toolkit_extras().items():
        if requirement.specifier.contains(version, prereleases=True):
            chosen = extras if "all" in requirement.extras else requirement.extras & extras.keys()
            lines = [one for extra in chosen for one in extras[extra]]
            found = [str(one.specifier) for one in lines if one.name == distribution]
            reached = found or distribution in _reached(one.name for one in lines)
            brought[version] = SpecifierSet(",".join(found)) if reached else None
    return brought


def find_lack(
    requirements: Iterable[Requirement],
    distribution: str,
    versions: Mapping[str, CudaVersion],
    *,
    floor: CudaVersion | None = None,
    below: CudaVersion | None = None,
    wheel: str | None = None,
) -> Lack | None:
    """What is wrong with the requirements for a distribution; None if every version that they allow does.

    Parameters
    ----------
    requirements : iterable of Requirement
    distribution : str
    versions : mapping of str to CudaVersion
        The known versions of the distribution, with the CUDA release that each belongs to.
    floor, below : CudaVersion, optional
        First release that does, and first release that no longer does.
    wheel : str, optional
        First version that does, where not every one of its release does.
    """
    requirements = tuple(requirements)
    relevant = [one for one in requirements if canonicalize_name(one.name) in (distribution, _TOOLKIT)]
    direct = [one.specifier for one in relevant if canonicalize_name(one.name) == distribution]
    toolkits = [_brought(one, distribution) for one in relevant if canonicalize_name(one.name) == _TOOLKIT]
    toolkits = [brought for brought in toolkits if any(one is not None for one in brought.values())]
    itself = bool(direct or toolkits)
    if not itself:
        if distribution not in _reached(canonicalize_name(one.name) for one in requirements):
            return Lack("undeclared")
        direct = [SpecifierSet()]

    def allowed(version: str) -> bool:
        return all(one.contains(version, prereleases=True) for one in direct) and all(
            any(one is not None and one.contains(version, prereleases=True) for one in brought.values())
            for brought in toolkits
        )

    allowing = [version for version in versions if allowed(version)]
    low = tuple(
        version
        for version in allowing
        if (floor is not None and versions[version] < floor)
        or (wheel is not None and Version(version) < Version(wheel))
    )
    high = tuple(version for version in allowing if below is not None and versions[version] >= below)
    if versions and len(low) == len(allowing):
        return Lack("pin", low) if allowing or _binding(direct, toolkits) else None
    if low:
        return Lack("floor", low)
    if high:
        return Lack("ceiling", high)
    # a package with the major in its name stays what it is
    open_ended = not re.search(r"-cu\d+$", distribution) and itself and direct and not toolkits
    if open_ended and all(one.contains(_LATER) for one in direct):
        return Lack("ceiling")
    if not direct:
        return _without(toolkits)
    return None


def _reached(names: Iterable[str]) -> list[str]:
    """The packages that requirements on some lead to, as deep as it is known; these first."""
    reached = list(dict.fromkeys(names))
    for name in reached:
        reached += [one for one in _required().get(name, ()) if one not in reached]
    return reached


def _without(toolkits: list[dict[str, SpecifierSet | None]]) -> Lack | None:
    """What is wrong where some allowed versions of cuda-toolkit do not bring the package."""
    without = [version for brought in toolkits for version, one in brought.items() if one is None]
    bringing = [version for brought in toolkits for version, one in brought.items() if one is not None]
    if not without:
        return None
    later = Version(without[-1]) > Version(bringing[-1])
    return Lack("ceiling" if later else "floor", tuple(f"{_TOOLKIT} {version}" for version in without))


def _binding(direct: list[SpecifierSet], toolkits: list[dict[str, SpecifierSet | None]]) -> bool:
    """Whether requirements that allow no known version are wrong, and not only newer than what is known."""
    return bool(toolkits) or not all(one.contains(_LATER) for one in direct)


def requirement_for(
    stem: str, major: int, floor: CudaVersion | None = None, wheel: str | None = None
) -> tuple[str, ...]:
    """The requirements that bring a library: on NVIDIA's package, and on cuda-toolkit; () if none is known.

    Parameters
    ----------
    stem : str
    major : int
    floor : CudaVersion, optional
        First release that does.
    wheel : str, optional
        First version of NVIDIA's package that does; the default is the first one of the release.
    """
    distribution = _distribution(stem, major)
    if distribution is None:
        return ()
    versions = [
        version for release in exports.releases(stem, major) for version in exports.wheel_versions(stem, release)
    ]
    after = max(map(Version, versions)).release[0] + 1
    answers = [f"{distribution}{_from(stem, floor, wheel)}<{after}"]
    extra = _extra_of(distribution)
    if extra:
        answers.append(f"cuda-toolkit[{extra}]>={floor or f'{major}.0'},<{major + 1}")
    return tuple(answers)


def _distribution(stem: str, major: int) -> str | None:
    """NVIDIA's package of a library; None for the driver's, and for libraries that the table of exports lacks."""
    return exports.distributions(stem).get(major) if stem in exports.libraries() else None


def requirements_for(needs: Iterable[Need]) -> dict[str, tuple[str, ...]]:
    """The requirements that bring each needed library of NVIDIA's wheels, by library and major."""
    grouped: dict[tuple[str, int], list[Need]] = {}
    for need in needs:
        grouped.setdefault((need.stem, need.major), []).append(need)
    answers = {
        f"{stem} (CUDA {major})": _Group(stem, major, "", tuple(needed)).suggestion
        for (stem, major), needed in grouped.items()
    }
    return {library: answer for library, answer in answers.items() if answer}


def _from(stem: str, floor: CudaVersion | None, wheel: str | None) -> str:
    """The lower bound of a requirement; the release itself where the wheels are numbered like CUDA."""
    if floor is None:
        return ""
    versions = exports.wheel_versions(stem, floor)
    first = wheel or next(iter(versions), str(floor))
    every = not versions or first == versions[0]
    return f">={floor}," if every and first.startswith(f"{floor}") else f">={first},"


@cache
def _extra_of(distribution: str) -> str | None:
    """The extra of cuda-toolkit whose purpose is a package: the one that requires the fewest others with it."""
    found: dict[str, int] = {}
    for extras in _toolkit_extras().values():
        for extra, lines in extras.items():
            if any(one.name == distribution for one in lines):
                found[extra] = len(lines)
    return min(found, key=lambda extra: (found[extra], extra), default=None)


def judge_needs(needs: Sequence[Need], declared: Declared, *, dependent: Collection[str] = ()) -> list[AuditFinding]:
    """Compare what files need with the requirements; a finding for each library and fault.

    Parameters
    ----------
    needs : sequence of Need
    declared : Declared
    dependent : collection of str
        Files that need a library of another wheel, which may require CUDA's libraries itself.
    """
    grouped: dict[tuple[str, int], list[Need]] = {}
    for need in needs:
        grouped.setdefault((need.stem, need.major), []).append(need)
    # files for several majors, of which a machine needs one
    several = len({need.major for need in needs if need.how != "opened" and need.stem != "libcuda"}) > 1
    findings = []
    for (stem, major), needed in grouped.items():
        distribution = _distribution(stem, major)
        if distribution is None or distribution == declared.name or _alternative(needed, grouped, declared):
            continue
        excused = several or all(need.path in dependent for need in needed)
        findings += _Group(stem, major, distribution, tuple(needed)).findings(declared, excused=excused)
    return findings


def _alternative(needed: list[Need], grouped: Mapping[tuple[str, int], list[Need]], declared: Declared) -> bool:
    """Whether a library is only opened, and the same one of another major is linked or declared."""
    if any(need.how != "opened" for need in needed):
        return False
    stem, major = needed[0].stem, needed[0].major
    for (other, another), needs in grouped.items():
        if other == stem and another != major:
            distribution = _distribution(stem, another)
            linked = any(need.how != "opened" for need in needs)
            if linked or (distribution and find_lack(declared.always, distribution, {}) is None):
                return True
    return False


@dataclass(frozen=True)
class _Group:
    """The needs of one library of one major."""

    stem: str
    major: int
    distribution: str
    needs: tuple[Need, ...]

    @property
    def required(self) -> bool:
        """Whether the wheel fails without the library."""
        hows = {need.how for need in self.needs}
        demanded = any(need.demanded for need in self.needs)
        return bool(hows & {"linked", "symbols"}) or demanded or hows >= {"ltoir", "opened"}

    @property
    def decisive(self) -> Need:
        """The need with the highest floor, and of those the most certain."""
        return max(self.needs, key=lambda need: (need.floor or (0, 0), need.how == "symbols", need.demanded))

    @property
    def suggestion(self) -> tuple[str, ...]:
        floor = self.decisive.floor
        least = exports.releases(self.stem, self.major)[:1] if self.stem in exports.libraries() else ()
        numbered = re.search(r"-cu\d+$", self.distribution or _distribution(self.stem, self.major) or "")
        if floor is None or (*least, floor)[0] == floor:
            # a package without the major in its name may have the releases of an earlier one
            floor = None if numbered else next(iter(least), None)
        return requirement_for(self.stem, self.major, floor, self.decisive.wheel)

    def lack(self, requirements: Iterable[Requirement]) -> Lack | None:
        """What is wrong with requirements."""
        versions: dict[str, CudaVersion] = {}
        for release in exports.releases(self.stem, self.major):
            for version in exports.wheel_versions(self.stem, release):
                versions.setdefault(version, release)  # a wheel of two releases has what the first one needs
        below = min((need.below for need in self.needs if need.below is not None), default=None)
        return find_lack(
            requirements, self.distribution, versions, floor=self.decisive.floor, below=below, wheel=self.decisive.wheel
        )

    def findings(self, declared: Declared, *, excused: bool) -> list[AuditFinding]:
        """Compare the needs with the requirements that hold always, or else with those of each extra."""
        lack = self.lack(declared.always)
        severity: Literal["error", "note"] = "error" if self.required else "note"
        if lack is None:
            return []
        if lack.kind != "undeclared":
            return [self._finding(lack, "", severity)]
        by_extra = {extra: self.lack((*declared.always, *added)) for extra, added in declared.extras.items()}
        declaring = {extra: one for extra, one in by_extra.items() if one is None or one.kind != "undeclared"}
        if not declaring:
            return [self._finding(lack, "", "note" if excused else severity, followed=declared.followed)]
        faults: dict[Lack, list[str]] = {}
        for extra, one in declaring.items():
            if one is not None:
                faults.setdefault(one, []).append(extra)
        return [self._finding(one, f" of extra {', '.join(extras)}", severity) for one, extras in faults.items()]

    def _finding(
        self, lack: Lack, where: str, severity: Literal["error", "note"], *, followed: bool = True
    ) -> AuditFinding:
        shown = ", ".join(lack.versions[:_SHOWN]) + (" and more" if len(lack.versions) > _SHOWN else "")
        what = {
            "undeclared": f"no requirement{where} brings {self.distribution}{'' if followed else ' directly'}",
            "floor": f"the requirements{where} allow {self.distribution} {shown}",
            "ceiling": f"the requirements{where} allow later majors of {self.distribution}",
            "pin": f"no version of {self.distribution} that the requirements{where} allow is new enough",
        }[lack.kind]
        if shown.startswith(_TOOLKIT):
            what = f"the requirements{where} allow {shown}, which does not bring {self.distribution}"
        elif lack.kind == "ceiling" and lack.versions:
            what = f"the requirements{where} allow {self.distribution} {shown}, which no longer has it"
        elif lack.kind == "pin" and lack.versions:
            what = f"the requirements{where} allow only {self.distribution} {shown}"
        write = f": write {' or '.join(repr(one) for one in self.suggestion)}" if self.suggestion else ""
        decisive = self.decisive
        return AuditFinding(
            decisive.path, lack.kind, f"{decisive.evidence}, and {what}{write}", severity, self.suggestion
        )
