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
from itertools import chain, pairwise
from typing import Final, Literal

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from ...base.finding import Finding, Severity
from ...base.tables import grouped, read_table
from ...base.words import plural
from ...compat import exports
from ...compat.libraries import packages, packages_of
from ...versions import CudaVersion
from ..install_targets import InstallTarget, common_version, parse_requirement, targets_of
from ..needs import Need

_TOOLKIT: Final = "cuda-toolkit"
#: A version that every later release stays below.
_LATER: Final = Version("9999")
#: More than any real wheel has; each extra is compared with each requirement.
_MOST_REQUIREMENTS: Final = 2000
_MOST_EXTRAS: Final = 200
_SHOWN: Final = 3
_HAS_MAJOR: Final = re.compile(r"-cu\d+$")


@dataclass(frozen=True)
class Declared:
    """The requirements of a wheel on one target."""

    name: str  # of the wheel's distribution, normalized
    always: tuple[Requirement, ...]  # those that hold without any extra
    extras: Mapping[str, tuple[Requirement, ...]]  # those that an extra adds
    invalid: tuple[str, ...] = ()  # lines that cannot be read
    followed: bool = True  # whether it is known what each required package requires itself


@dataclass(frozen=True)
class RequirementFault:
    """What is wrong with the requirements for one library, in the terms of `packaging`."""

    kind: Literal["undeclared", "floor", "ceiling", "pin"]
    versions: tuple[str, ...] = ()  # allowed versions that are too old or too new, oldest first


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
    of_extras = [requirement for requirement in requirements if "extra" in str(requirement.marker)]

    def holding(extra: str) -> tuple[Requirement, ...]:
        """The requirements of an extra, and of those that it requires of the wheel itself."""
        gathered: list[Requirement] = []
        asked = [extra]
        for wanted in asked:
            given = {**environment, "extra": wanted}
            held = [requirement for requirement in (of_extras if wanted else requirements) if holds(requirement, given)]
            gathered += [requirement for requirement in held if requirement not in gathered]
            own = (requirement.extras for requirement in held if canonicalize_name(requirement.name) == name)
            asked += [more for extras_of_own in own for more in sorted(extras_of_own) if more not in asked]
        return tuple(gathered)

    always = holding("")
    extras = {
        str(extra): tuple(requirement for requirement in holding(str(extra)) if requirement not in always)
        for extra in (message.get_all("Provides-Extra") or [])[:_MOST_EXTRAS]
    }
    required = read_table("requires.toml")
    nvidia = (exports.distributions(stem).values() for stem in exports.libraries())
    known = {name, _TOOLKIT, *required, *chain(*required.values()), *chain(*nvidia), *chain(*packages().values())}
    followed = all(canonicalize_name(requirement.name) in known for requirement in requirements)
    return Declared(name, always, extras, tuple(invalid), followed)


def holds(requirement: Requirement, environment: dict[str, str]) -> bool:
    """Whether the marker of a requirement is true; one that cannot be evaluated does not count."""
    try:
        return requirement.marker is None or requirement.marker.evaluate(environment)
    except (UndefinedComparison, UndefinedEnvironmentName, ValueError, RecursionError):
        return False


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
    for version, lines in _lines_by_version(requirement):
        specifiers = [str(line.specifier) for line in lines if line.name == distribution]
        reached = distribution in _reached(line.name for line in lines)
        brought[version] = SpecifierSet(",".join(specifiers)) if reached else None
    return brought


def _lines_by_version(requirement: Requirement) -> Iterator[tuple[str, list[Requirement]]]:
    """Yield each version of cuda-toolkit that a requirement accepts, with what it requires for the extras."""
    accepted = filter(requirement.specifier.contains, _toolkit_extras())
    return ((version, _lines(requirement, version)) for version in accepted)


def _lines(requirement: Requirement, version: str) -> list[Requirement]:
    """What a version of cuda-toolkit requires for the extras of a requirement."""
    extras = _toolkit_extras()[version]
    chosen = extras if "all" in requirement.extras else requirement.extras & extras.keys()
    return [line for extra in chosen for line in extras[extra]]


def _brings_later(requirement: Requirement, distribution: str) -> bool:
    """Whether a requirement accepts only a cuda-toolkit newer than its table, which brings the package as the last."""
    version = common_version([str(requirement.specifier)]) or "0"
    known = [release for release in _toolkit_extras() if release.partition(".")[0] == version.partition(".")[0]]
    if not known or Version(version) < Version(known[-1]) or _brought(requirement, distribution):
        return False
    return distribution in _reached(line.name for line in _lines(requirement, known[-1]))


def find_lack(
    requirements: Iterable[Requirement],
    distribution: str,
    versions: Mapping[str, CudaVersion],
    *,
    floor: CudaVersion | None = None,
    below: CudaVersion | None = None,
    wheel: str | None = None,
) -> RequirementFault | None:
    """What is wrong with the requirements for a distribution; None if every version that they allow does.

    `versions`: the known versions of the distribution, with the CUDA release that each belongs to.
    `floor`, `below`: first release that does, and first release that no longer does.
    `wheel`: first version that does, where not every one of its release does.
    """
    named = [(canonicalize_name(requirement.name), requirement) for requirement in requirements]
    direct = [requirement.specifier for name, requirement in named if name == distribution]
    toolkits = [_brought(requirement, distribution) for name, requirement in named if name == _TOOLKIT]
    toolkits = [brought for brought in toolkits if any(specifier is not None for specifier in brought.values())]
    if any(name == _TOOLKIT and _brings_later(requirement, distribution) for name, requirement in named):
        return None
    indirect = not direct and not toolkits
    if indirect:
        if distribution not in _reached(name for name, _ in named):
            return RequirementFault("undeclared")
        direct = [SpecifierSet()]

    def allowed(version: str) -> bool:
        return all(specifier.contains(version) for specifier in direct) and all(
            any(specifier is not None and specifier.contains(version) for specifier in brought.values())
            for brought in toolkits
        )

    allowing = [version for version in versions if allowed(version)]
    low = tuple(version for version in allowing if _is_old(version, versions[version], floor, wheel))
    high = tuple(version for version in allowing if below is not None and versions[version] >= below)
    if len(low) == len(allowing):
        later = [*map(str, direct), f">{max(versions, key=Version)}"]  # than all that are known
        is_later = not allowing and not toolkits and common_version(later) is not None
        return None if is_later else RequirementFault("pin", low)
    if low:
        return RequirementFault("floor", low)
    if high:
        return RequirementFault("ceiling", high)
    # a package with the major in its name stays what it is
    may_change = not (indirect or toolkits or _HAS_MAJOR.search(distribution))
    if may_change and all(specifier.contains(_LATER) for specifier in direct):
        return RequirementFault("ceiling")
    return None if direct else _without(toolkits)


def _is_old(version: str, release: CudaVersion, floor: CudaVersion | None, wheel: str | None) -> bool:
    """Whether a version of a package is before the first release, or the first version, that does."""
    return (floor is not None and release < floor) or (wheel is not None and Version(version) < Version(wheel))


def _reached(names: Iterable[str]) -> list[str]:
    """The packages that requirements on some lead to, as deep as it is known; these first."""
    reached = list(dict.fromkeys(names))
    for name in reached:
        reached += [required for required in read_table("requires.toml").get(name, ()) if required not in reached]
    return reached


def _without(toolkits: list[dict[str, SpecifierSet | None]]) -> RequirementFault | None:
    """What is wrong where some allowed versions of cuda-toolkit do not bring the package."""
    without = [version for brought in toolkits for version, specifier in brought.items() if specifier is None]
    bringing = [version for brought in toolkits for version, specifier in brought.items() if specifier is not None]
    if not without:
        return None
    later = Version(without[-1]) > Version(bringing[-1])
    return RequirementFault("ceiling" if later else "floor", tuple(f"{_TOOLKIT} {version}" for version in without))


def requirements_for(needs: Iterable[Need]) -> dict[str, tuple[str, ...]]:
    """The requirements that bring each needed library of NVIDIA's wheels, by library and major."""
    return {f"{group.stem} (CUDA {group.major})": group.suggestion for group in _groups(needs)}


def _groups(needs: Iterable[Need]) -> list[_Group]:
    """The needs of each library of NVIDIA's wheels and each major."""
    by_library = grouped(((need.stem, need.major), need) for need in needs)
    return [
        _Group(stem, major, distribution, tuple(needed))
        for (stem, major), needed in by_library.items()
        if (distribution := exports.distributions(stem).get(major)) is not None
    ]


@cache
def _extra_of(distribution: str) -> str:
    """The extra of cuda-toolkit whose purpose is a package: the one that requires the fewest others with it."""
    sizes: dict[str, int] = {}
    for extras in _toolkit_extras().values():
        for extra, lines in extras.items():
            if any(line.name == distribution for line in lines):
                sizes[extra] = len(lines)
    return min(sizes, key=lambda extra: (sizes[extra], extra))


def package_brought(declared: Declared, stem: str, major: int) -> str | None:
    """NVIDIA's package of a library, where the requirements that always hold bring it; else None."""
    distribution = exports.distributions(stem).get(major)
    if distribution is None or distribution == declared.name:
        return None
    need = Need("", stem, major, None, "linked", "")
    lack = _Group(stem, major, distribution, (need,)).lack(declared.always)
    return None if lack == RequirementFault("undeclared") else distribution


def judge_needs(needs: Sequence[Need], declared: Declared, *, dependent: Collection[str] = ()) -> list[Finding]:
    """Compare what files need with the requirements; a finding for each library and fault.

    `dependent`: files that need a library of another wheel, which may require CUDA's libraries itself.
    """
    groups = _groups(needs)
    # files for several majors, of which a machine needs one
    several = len({need.major for need in needs if need.how != "opened" and need.stem != "libcuda"}) > 1
    findings = []
    for group in groups:
        if group.distribution != declared.name and not group.has_alternative(groups, declared):
            excused = several or all(need.path in dependent for need in group.needs)
            findings += group.findings(declared, excused=excused)
    return [*findings, *_without_table(needs, declared, dependent)]


def _without_table(needs: Iterable[Need], declared: Declared, dependent: Collection[str]) -> Iterator[Finding]:
    """Findings about linked libraries for which there is no table of functions, such as NCCL: whether they are brought.

    It is an error where no file of the wheel does without the library, as a file alone may be an optional plugin.
    """
    linked = [need for need in needs if need.how == "linked"]
    required = [*chain(declared.always, *declared.extras.values())]
    toolkits = [requirement for requirement in required if canonicalize_name(requirement.name) == _TOOLKIT]
    brought = (line.name for toolkit in toolkits for _, lines in _lines_by_version(toolkit) for line in lines)
    reached = {*_reached([*(canonicalize_name(requirement.name) for requirement in required), *brought]), declared.name}
    packages_by_stem = {need.stem: packages_of(need.stem) for need in linked}
    for names in dict.fromkeys(packages_by_stem.values()):
        if not names or reached & {*names}:
            continue
        users = [need for need in linked if packages_by_stem[need.stem] == names]
        files = {need.path for need in users}
        alone = {need.path for need in linked if need.stem != "libcuda"} - files
        majors = {need.major for need in users}
        if not majors - {11}:  # whose packages are not known
            continue
        fitting = tuple(name for name in names if len(majors) > 1 or name.endswith("-cu12") == (12 in majors))
        is_error = not alone and declared.followed and not files & {*dependent}
        directly = "" if declared.followed else " directly"
        write = f"write {' or '.join(map(repr, fitting))}"
        text = f"{users[0].evidence}, and no requirement brings {fitting[0]}{directly}: {write}"
        severity: Severity = "error" if is_error else "note"
        yield Finding(severity, text, place=users[0].path, kind="undeclared", suggestion=fitting)


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
    def below(self) -> CudaVersion | None:
        """The first release that no longer has every function."""
        return min((need.below for need in self.needs if need.below is not None), default=None)

    @property
    def versions(self) -> dict[str, CudaVersion]:
        """The versions of NVIDIA's package, each with its release: of two, the first one, as it has what that needs."""
        releases: dict[str, CudaVersion] = {}
        for release in exports.releases(self.stem, self.major):
            for version in exports.wheel_versions(self.stem, release):
                releases.setdefault(version, release)
        return releases

    @property
    def suggestion(self) -> tuple[str, str]:
        """The requirements that bring the library: on NVIDIA's package, and on cuda-toolkit."""
        versions, below = self.versions, self.below
        need = self.decisive
        old = [wheel for wheel, release in versions.items() if _is_old(wheel, release, need.floor, need.wheel)]
        gone = [wheel for wheel, release in versions.items() if below is not None and release >= below]
        end = min(gone, key=Version, default=max(map(Version, versions)).major + 1)
        # a package without the major in its name may have the releases of an earlier one
        bound = f">={self._start()}," if old or not _HAS_MAJOR.search(self.distribution) else ""
        toolkit = f"{_TOOLKIT}[{_extra_of(self.distribution)}]>={self._toolkit(old)},<{below or self.major + 1}"
        return f"{self.distribution}{bound}<{end}", toolkit

    def _start(self) -> str:
        """The first version of NVIDIA's package that does; only its release where that says the same."""
        floor = self.decisive.floor or exports.releases(self.stem, self.major)[0]
        wheels = exports.wheel_versions(self.stem, floor) or (str(floor),)
        first = self.decisive.wheel or wheels[0]
        return str(floor) if first == wheels[0] and first.startswith(f"{floor}.") else first

    def _toolkit(self, old: Collection[str]) -> str:
        """The first version of cuda-toolkit from which on all bring the library, and none brings an old version."""
        start = str(self.decisive.floor or f"{self.major}.0")
        known = [version for version in _toolkit_extras() if version.startswith(f"{self.major}.")]
        for version, following in pairwise(known):
            lines = _toolkit_extras()[version].get(_extra_of(self.distribution), [])
            bounds = [line.specifier for line in lines if line.name == self.distribution]
            brings_old = any(bound.contains(wheel) for bound in bounds for wheel in old)
            if Version(version) >= Version(start) and (brings_old or not bounds):
                start = following.removesuffix(".0")
        return start

    def lack(self, requirements: Iterable[Requirement]) -> RequirementFault | None:
        """What is wrong with requirements."""
        decisive = self.decisive
        return find_lack(
            requirements, self.distribution, self.versions, floor=decisive.floor, below=self.below, wheel=decisive.wheel
        )

    @property
    def is_opened(self) -> bool:
        """Whether no file needs the library but by opening it."""
        return all(need.how == "opened" for need in self.needs)

    def has_alternative(self, groups: Iterable[_Group], declared: Declared) -> bool:
        """Whether the library is only opened, and the same one of another major is linked or declared."""
        others = [group for group in groups if group.stem == self.stem and group.major != self.major]
        return self.is_opened and any(
            not group.is_opened or group.lack(declared.always) != RequirementFault("undeclared") for group in others
        )

    def findings(self, declared: Declared, *, excused: bool) -> list[Finding]:
        """Compare the needs with the requirements that hold always, or else with those of each extra."""
        lack = self.lack(declared.always)
        severity: Severity = "error" if self.required else "note"
        if lack is None:
            return []
        if lack.kind != "undeclared":
            return [self._finding(lack, "", severity, declared)]
        by_extra = {extra: self.lack((*declared.always, *added)) for extra, added in declared.extras.items()}
        declaring = {extra: fault for extra, fault in by_extra.items() if fault is None or fault.kind != "undeclared"}
        if not declaring:
            return [self._finding(lack, "", "note" if excused else severity, declared)]
        faults = grouped((fault, extra) for extra, fault in declaring.items() if fault is not None)
        return [
            self._finding(fault, f" of {plural(len(extras), 'extra')} {', '.join(extras)}", severity, declared)
            for fault, extras in faults.items()
        ]

    def _finding(self, fault: RequirementFault, where: str, severity: Severity, declared: Declared) -> Finding:
        shown = ", ".join(fault.versions[:_SHOWN]) + (" and more" if len(fault.versions) > _SHOWN else "")
        what = {
            "undeclared": f"no requirement{where} brings {self.distribution}{'' if declared.followed else ' directly'}",
            "floor": f"the requirements{where} allow {self.distribution} {shown}",
            "ceiling": f"the requirements{where} allow later majors of {self.distribution}",
            "pin": f"no version of {self.distribution} that the requirements{where} allow is new enough",
        }[fault.kind]
        if shown.startswith(_TOOLKIT):
            what = f"the requirements{where} allow {shown}, which does not bring {self.distribution}"
        elif fault.kind == "ceiling" and fault.versions:
            what = f"the requirements{where} allow {self.distribution} {shown}, which no longer has it"
        elif fault.kind == "pin" and fault.versions:
            what = f"the requirements{where} allow only {self.distribution} {shown}"
        need, suggestion = self.decisive, self.suggestion
        text = f"{need.evidence}, and {what}: write {' or '.join(map(repr, suggestion))}"
        return Finding(severity, text, place=need.path, kind=fault.kind, suggestion=suggestion)
