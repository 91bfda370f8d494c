"""What the distributions of an environment require of CUDA's distributions, each requirement as a `Claim`."""

import platform
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ...base.regular_files import read_bounded
from ...environment import conda
from ...environment.conda import CondaPackage, Rules
from ...environment.installed import Installed, Place, Unreadable
from ...versions import distribution_version
from .. import install_targets
from ..install_targets import InstallTarget, targets_of
from ..wheel.declared import holds

#: Most bytes of the WHEEL file of a distribution.
_MOST_WHEEL: Final = 1 << 16
_CUDA: Final = re.compile(r"\s*(?:nvidia|cuda)[-_.]", re.IGNORECASE)
_NAMED: Final = re.compile(r"\s*[\w.-]*", re.ASCII)
#: A requirement that only an extra has.
OF_EXTRA: Final = re.compile(r"(?P<name>[\w.-]+).*;.*\bextra\s*==\s*['\"](?P<extra>[\w.-]+)")
#: What the name of a build for one CUDA major has in addition to that of its project.
VARIANT: Final = re.compile(r"-cu(?:da)?\d+x?(?=-|$)")


@dataclass(frozen=True)
class Claim:
    """A requirement of one distribution on a distribution of CUDA's."""

    by: str  # name and version of the distribution that requires it
    name: str  # the distribution that is required
    versions: str  # the versions that it accepts, as its package manager writes them; empty for every version
    # "declared" (Requires-Dist), "depends" or "constrains" (conda), or how it was measured: "symbols", "ltoir",
    # "linked", "opened"
    how: str
    evidence: str  # the line that declares it, or what was found in the file
    satisfied: bool | None  # by what is installed; None if it is not installed
    file: str = ""  # the file that was measured; empty for what is declared
    # the distributions that require the extra, or the distribution, that brings the claim
    because: tuple[str, ...] = ()

    @property
    def by_name(self) -> str:
        """The name of the distribution that requires it."""
        return self.by.rpartition(" ")[0]

    def __str__(self) -> str:
        source = f", for {', '.join(self.because[:3])}" if self.because else ""
        return f"{self.versions or 'any version'} ({self.by}{source})"


def is_cuda_distribution(name: str) -> bool:
    """Whether a Python distribution is one of CUDA's, by its name."""
    return _CUDA.match(name) is not None


def concerns_cuda(name: str) -> bool:
    """Whether a Python distribution is one of CUDA's, or a build for one CUDA major, by its name."""
    return is_cuda_distribution(name) or VARIANT.search(name) is not None


def declared_claims(place: Place, distributions: Sequence[Installed], unreadable: list[Unreadable]) -> Iterator[Claim]:
    """Yield the requirements that Python distributions declare on CUDA's; adds what is invalid to `unreadable`.

    A requirement of an extra counts if another distribution requires that extra: which extras a user asked for by hand
    is recorded nowhere. Those that conda installed are left to conda, which changes their requirements. Whatever else
    one of CUDA's distributions requires counts, too: its libraries or its modules load it.
    """
    installed = {distribution.name: distribution for distribution in distributions}
    parsed: dict[str, list[Requirement]] = {}
    for package in distributions:
        if package.manager == "conda":
            continue
        parsed[package.name] = list(_parsed(package, unreadable))
        if is_cuda_distribution(package.name) and distribution_version(package.version) is None:
            text = f"version is {package.version[:80]!r}; expected one such as 12.9.86: install the distribution again"
            unreadable.append(Unreadable(package.path, text))
    target = _target(place, distributions)
    extras, because = _wanted_extras(target, parsed)
    for name, requirements in parsed.items():
        for requirement in requirements:
            about = canonicalize_name(requirement.name)
            there = installed.get(about)
            if (concerns_cuda(about) or concerns_cuda(name)) and _applies(target, requirement, extras[name]):
                versions = str(requirement.specifier)
                satisfied = install_targets.accepts(versions, there.version) if there else None
                yield Claim(
                    str(installed[name]), about, versions, "declared", f"Requires-Dist: {requirement}"[:300],
                    satisfied, because=tuple(str(installed[each]) for each in sorted(because.get(name, ()))),
                )  # fmt: skip


def _parsed(distribution: Installed, unreadable: list[Unreadable]) -> Iterator[Requirement]:
    """The requirements on CUDA's distributions, and those with extras, which may bring some."""
    for line in distribution.requires:
        name = canonicalize_name(_NAMED.match(line)[0])  # type: ignore[index]
        cuda = concerns_cuda(distribution.name) or concerns_cuda(name)
        if cuda or "[" in line.partition(";")[0]:
            try:
                yield install_targets.parse_requirement(line)
            except ValueError:
                if cuda:
                    text = f"Requires-Dist is {line[:200]!r}; expected NAME[EXTRAS] SPECIFIER; MARKER: install it again"
                    unreadable.append(Unreadable(distribution.path, text))


def _target(place: Place, distributions: Iterable[Installed]) -> InstallTarget:
    """Return the Python and the platform of an environment, which need not be those of this process.

    The tags of an installed wheel for one platform say that; without such a wheel it is this machine.
    """
    minor = int(place.python.partition(".")[2])
    for distribution in distributions:
        with suppress(OSError):
            text = read_bounded(Path(distribution.path, "WHEEL"), _MOST_WHEEL).decode("utf-8", "replace")
            for tag in re.findall(r"^Tag: *([\w.]+-[\w.]+-(?!any$)\w+)$", text, re.MULTILINE):
                for target in targets_of(f"{distribution.name}-1-{tag}.whl"):
                    if target.minor == minor:
                        return target
    (target, *_) = targets_of("", windows=place.windows, machine=platform.machine())
    return replace(target, minor=minor)


def _applies(target: InstallTarget, requirement: Requirement, extras: Iterable[str]) -> bool:
    return any(holds(requirement, target.environment | {"extra": extra}) for extra in extras)


def _wanted_extras(
    target: InstallTarget, parsed: Mapping[str, Sequence[Requirement]]
) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """The extras of each distribution that others require, and which others do."""
    extras: dict[str, set[str]] = {name: {""} for name in parsed}
    because: dict[str, set[str]] = {}
    changed = True
    while changed:
        changed = False
        for name, requirements in parsed.items():
            for requirement in requirements:
                about = canonicalize_name(requirement.name)
                wanted = {str(canonicalize_name(extra)) for extra in requirement.extras}
                if about not in extras or not wanted or not _applies(target, requirement, extras[name]):
                    continue
                because.setdefault(about, set()).add(name)
                if not wanted <= extras[about]:
                    extras[about] |= wanted
                    changed = True
    return extras, because


def conda_claims(
    packages: Sequence[CondaPackage], rules: Rules, unreadable: list[Unreadable], driver: CondaPackage | None
) -> Iterator[Claim]:
    """Yield what conda packages ask of CUDA's packages; adds what is invalid to `unreadable`.

    Without a driver nothing is asked of ``__cuda``.
    """
    installed = {package.installed.name: package for package in (*packages, *([driver] if driver else []))}
    for package in packages:
        for name, spec, must in conda.cuda_specs(package):
            there = installed.get(name)
            if there is None and (name == "__cuda" or not must):
                continue
            try:
                versions = rules.version_part(spec)
                satisfied = rules.matches(spec, there) if there else None
            except ValueError as error:
                unreadable.append(Unreadable(package.installed.path, f"{error}: install the package again with conda"))
                continue
            how = "depends" if must else "constrains"
            yield Claim(str(package.installed), name, versions, how, f"{how}: {spec}"[:300], satisfied)
