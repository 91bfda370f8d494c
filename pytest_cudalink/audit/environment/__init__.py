"""Audit an environment: what its distributions need of CUDA, compared with what is installed.

Declared evidence is ``Requires-Dist``, and ``depends`` and ``constrains`` of conda packages. Measured evidence is what
`needs` reads from the installed libraries; it also counts where a distribution declares nothing. No Python of the
environment runs, and no library of it is loaded.
"""

from __future__ import annotations

import re
import shlex
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from packaging.utils import canonicalize_name

from ...base.finding import VERDICTS, Finding, Severity, exit_code_of, plain
from ...base.install_command import NO_COMMAND, Command, Installer, install_command, installer_here
from ...base.regular_files import has_hash
from ...base.tables import grouped
from ...base.words import and_more, counted
from ...compat import exports, known_bad
from ...compat.architectures import architecture_of
from ...compat.releases import driver_named
from ...environment import conda
from ...environment.conda import CondaPackage
from ...environment.installed import (
    AuditError,
    Installed,
    Place,
    Unreadable,
    asking_in_vain,
    find_place,
    is_gone,
    is_library,
    lost_files,
    read_distributions,
    recorded_hashes,
)
from ...environment.library_search import Provider, Providers
from ...environment.loader_search import library_path
from .. import install_targets
from ..needs import Need
from .claims import OF_EXTRA, VARIANT, Claim, concerns_cuda, conda_claims, declared_claims, is_cuda_distribution
from .machine import TargetMachine, driver_here, misfits
from .missing_libraries import EXTENSION, measured_claims, needs_of_files, of_another_major

__all__ = ["AuditError", "Claim", "EnvironmentAudit", "Finding", "Installed", "audit_environment"]

#: Its name before all findings had one form.
EnvironmentFinding = Finding
#: Different specifiers of one distribution that are compared with each other; 12 were seen at most.
_MOST_SPECIFIERS: Final = 40

#: A library that programs link, by its name: an extension module may be called ``_core.so``.
_LINKED: Final = re.compile(r"(?:^|/)lib[^/]*\.so[.\d]*$")


@dataclass(frozen=True)
class EnvironmentAudit:
    """The audit of an environment."""

    prefix: str  # the environment
    python: str  # the version of its Python
    distributions: int  # distributions and conda packages that were read
    claims: tuple[Claim, ...]  # every requirement on CUDA's distributions
    # of the kinds "pair" (two requirements that no version satisfies), "version" (the installed version is not one that
    # is required), "missing" (a required distribution is not installed), "floor" (a file needs a newer library),
    # "unprovided" (a file is linked with a library that is not there), "copies" (two releases of one library),
    # "same-file" (two distributions installed one file, with other contents), "lost" (files of a distribution are
    # missing or cut off), "known-bad" (versions that are known to fail together), "machine" (something does not run on
    # the machine that is asked about); the evidence are the claims that require something
    findings: tuple[Finding, ...]
    unreadable: tuple[Unreadable, ...]
    files: int  # libraries that were measured; 0 if only declared requirements were read
    seconds: float = field(compare=False)
    machine: str = ""  # the driver and GPU that were asked about; empty for none
    cuda_libraries: int = 0  # of CUDA, among the files
    # what files link, or open by name, with the major: "libnvrtc 12"; without those of this project
    used_libraries: tuple[str, ...] = ()

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that are not notes."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def exit_code(self) -> int:
        """0 coherent, 1 incoherent, 2 if something could not be read and nothing else is wrong."""
        unread: list[Severity] = ["unknown"] * bool(self.unreadable)
        return exit_code_of([*(finding.severity for finding in self.findings), *unread])

    @property
    def verdict(self) -> str:
        """``"coherent"``, ``"incoherent"`` or ``"not enough known"``, as the doctor says it."""
        return VERDICTS[self.exit_code]

    @property
    def summary(self) -> str:
        """One line: how many errors, in what."""
        count = len(self.errors)
        errors = counted(count, "error") if count else "no errors"
        unread = f", {len(self.unreadable)} not readable" if self.unreadable else ""
        libraries = f"{counted(self.files, 'library', 'libraries')} measured"
        measured = libraries if self.files else "declared requirements only"
        where = f" on {self.machine}" if self.machine else ""
        return f"{errors}{where}{unread}: {counted(self.distributions, 'distribution')}, {measured}, in {self.prefix}"

    def check(self) -> None:
        """Raise unless there are no errors and everything was readable.

        Raises AssertionError with a line for each reason.
        """
        reasons = [f"{finding.what}: {finding.remedies[0]}" for finding in self.errors]
        reasons += [f"{unread.path}: {unread.text}" for unread in self.unreadable]
        if reasons:
            raise AssertionError("\n".join([self.prefix, *(f"  {reason}" for reason in reasons)]))

    def to_json(self) -> dict[str, Any]:
        """The audit as plain data with the same names; commands are text."""
        return {
            "verdict": self.verdict,
            "summary": self.summary,
            "exit_code": self.exit_code,
            **asdict(self, dict_factory=plain),
        }


def audit_environment(
    prefix: str | Path | None = None, *, measure: bool = True, driver: str = "", gpu: str = ""
) -> EnvironmentAudit:
    """Audit an environment by what its distributions need of each other.

    The command ``cudalink audit --environment`` also asks the doctor: `pytest_cudalink.doctor.examine_environment`.

    `prefix`: its prefix, its Python or its site-packages folder; default: the environment of this process.
    `measure`: read the installed libraries, too; False: only what is declared.
    `driver`: also ask whether it runs on a driver: ``"12.8"``, ``"570"`` or ``"570.86.15"``.
    `gpu`: and on a GPU: ``"A100"``, ``"8.0"`` or ``"sm_80"``.
    Raises AuditError if there is no environment at `prefix`.
    Raises ValueError if the driver or the GPU is unknown, or a GPU is given without a driver.
    """
    if gpu and not driver:
        raise ValueError(f"gpu = {gpu!r} is given without a driver; name one, such as 12.8 or 570")
    machine = TargetMachine(driver_named(driver), architecture_of(gpu) if gpu else "") if driver else None
    began = time.monotonic()
    place = find_place(prefix)
    distributions, unreadable = read_distributions(place, files=measure)
    packages, damaged = conda.read_packages(place.prefix, files=measure)
    unreadable += damaged
    claims = list(declared_claims(place, distributions, unreadable))
    by_conda, virtual = _by_conda(place, packages, unreadable)
    claims += by_conda
    everything = _without_doubles(distributions, packages)
    repair = _Repair(place, [*everything, *virtual])
    measured: list[Claim] = []
    findings: list[Finding] = []
    files, needs = 0, {}
    providers = Providers(everything)
    for package in everything:  # which have no files unless those are measured
        files += len(package.files)
        needs[str(package)] = needs_of_files(place, package, unreadable)
        claimed, unprovided = measured_claims(package, needs[str(package)], providers, claims, repair.install)
        measured += claimed
        findings += [*unprovided, *of_another_major(package, needs[str(package)], providers, repair.install, machine)]
    shared = _shared_files(everything, unreadable) if measure else {}
    findings += _overwritten(shared, claims, repair, machine)
    findings += _copies(providers, shared, repair)
    claims += measured
    findings[:0] = [*_judged(claims, repair), *_of_extras(distributions, claims)]
    findings += _lost(everything, claims, repair)
    damaged_names = (canonicalize_name(Path(folder.path).name.partition("-")[0]) for folder in unreadable)
    findings += _without_metadata(place, [*(each.name for each in distributions), *damaged_names], repair)
    findings += _known_to_fail(everything, providers, repair, machine)
    if machine is not None:
        findings += misfits(machine, everything, needs)
    return EnvironmentAudit(
        str(place.prefix), place.python, len(everything), tuple(claims), tuple(findings), tuple(unreadable), files,
        round(time.monotonic() - began, 3), str(machine or ""), len(providers.all),
        _used(everything, needs),
    )  # fmt: skip


def _used(everything: Iterable[Installed], needs: Mapping[str, Iterable[Need]]) -> tuple[str, ...]:
    others = (str(package) for package in everything if package.name != "pytest-cudalink")
    return tuple(sorted({f"{need.stem} {need.major}" for label in others for need in needs[label]}))


def _without_doubles(distributions: Sequence[Installed], packages: Sequence[CondaPackage]) -> list[Installed]:
    """All that is installed; a distribution that conda installed is known by its conda package, which has its files."""
    listed = {path for package in packages for path in package.installed.files}
    own = [package for package in distributions if package.manager != "conda" or not listed.issuperset(package.files)]
    return [*own, *(package.installed for package in packages)]


def _by_conda(
    place: Place, packages: Sequence[CondaPackage], unreadable: list[Unreadable]
) -> tuple[list[Claim], list[Installed]]:
    """The claims of conda packages, and the driver that they are judged by, if there is one."""
    if not any(True for package in packages for _ in conda.cuda_specs(package)):
        return [], []
    rules = conda.rules()
    if rules is None:
        remedy = install_command("pytest-cudalink[audit]")
        text = f"conda's requirements were not judged, py-rattler is missing: {remedy}"
        unreadable.append(Unreadable(str(place.conda_meta), text))
        return [], []
    version = driver_here()
    driver = conda.virtual_driver(version) if version else None
    claims = conda_claims(packages, rules, unreadable, driver)
    return list(claims), [driver.installed] if driver else []


# -- judgements


def _judged(claims: Iterable[Claim], repair: _Repair) -> Iterator[Finding]:
    by_name = grouped(((claim.name, repair.is_conda(claim)), claim) for claim in claims)
    for (name, of_conda), group in sorted(by_name.items()):
        rules = conda.rules() if of_conda else None
        accept = rules.accepts if rules else install_targets.accepts
        paired: set[int] = set()
        for low, high in _contradicting(group, accept):
            paired |= {id(claim) for claim in (*low, *high)}
            yield _pair(name, low, high, repair)
        rest = [claim for claim in group if id(claim) not in paired]
        if wrong := [claim for claim in rest if claim.satisfied is False]:
            yield _wrong(name, wrong, rest, repair)
        missing = [claim for claim in rest if claim.satisfied is None]
        if missing and not paired:  # else a pair says that it is missing
            yield _missing(name, missing, repair)


def _of_extras(distributions: Sequence[Installed], claims: Sequence[Claim]) -> Iterator[Finding]:
    """Versions that an extra alone refuses, which no requirement asks for: it names what the package was tried with."""
    there = {distribution.name: distribution for distribution in distributions}
    claimed = {(claim.by, claim.name) for claim in claims}
    for distribution in distributions:
        asked: dict[str, dict[str, str]] = {}  # versions by extra, of each distribution
        for line in distribution.requires:
            match = OF_EXTRA.match(line)
            name = canonicalize_name(match["name"]) if match else ""
            if match and name in there and concerns_cuda(name) and (str(distribution), name) not in claimed:
                with suppress(ValueError):
                    versions = str(install_targets.parse_requirement(line).specifier)
                    asked.setdefault(name, {})[match["extra"]] = versions
        for name, extras in asked.items():
            installed = there[name]
            if not any(install_targets.accepts(versions, installed.version) for versions in extras.values()):
                extra, versions = next(iter(extras.items()))
                asks = f"the extra {extra} of {distribution} asks for {versions}"
                text = f"{installed.name} is {installed.version}; {asks}"
                advice = f"install '{distribution.name}[{extra}]' where {distribution.name} uses it"
                yield Finding("note", text, otherwise=advice, place=str(installed), kind="version")


def _contradicting(
    group: Sequence[Claim], accept: Callable[[str, str], bool]
) -> Iterator[tuple[list[Claim], list[Claim]]]:
    """Yield the claims of each specifier that bounds from above, and those that have no version in common with it."""
    specifiers = sorted({claim.versions for claim in group} - {"", "*"})[:_MOST_SPECIFIERS]
    pairs: dict[str, set[str]] = {}
    for first, other in combinations(specifiers, 2):
        if install_targets.common_version([first, other], accept) is None:
            reach = {spec: install_targets.highest_version(spec, [first, other], accept) for spec in (first, other)}
            low, high = sorted((first, other), key=lambda spec: reach[spec])
            pairs.setdefault(low, set()).add(high)
    for bound, contradicting in pairs.items():
        yield [c for c in group if c.versions == bound], [c for c in group if c.versions in contradicting]


def _pair(name: str, low: list[Claim], high: list[Claim], repair: _Repair) -> Finding:
    there = repair.there(name, [*low, *high])
    owners = repair.roots([low[0], high[0]])
    names = [owner.name for owner in owners]
    is_there = there.version if there else "missing"
    text = f"{name} is {is_there}; expected {low[0]} and {high[0]}, which no version satisfies"
    apart = f"put {' and '.join(names)} into separate environments" if len(names) > 1 else ""
    evidence, place = (*low, *high), repair.shown(there)
    return Finding("error", text, repair.upgrade(owners), apart, evidence=evidence, place=place, kind="pair")


def _wrong(name: str, wrong: list[Claim], group: list[Claim], repair: _Repair) -> Finding:
    there = repair.there(name, wrong)
    measured = [claim for claim in wrong if claim.file]
    first = measured[0] if measured else wrong[0]
    more = and_more(len(wrong) - 1)
    because = f": {first.evidence}" if measured else ""
    # cuda-toolkit has no files: what it pins was released together, and other releases may do as well
    severity: Severity = "note" if all(claim.by_name == "cuda-toolkit" for claim in wrong) else "error"
    text = f"{name} is {there.version if there else 'missing'}; expected {first}{more}{because}"
    kind = "floor" if len(measured) == len(wrong) else "version"
    repairs = repair.require(name, group, there)
    return Finding(severity, text, *repairs, evidence=tuple(wrong), place=repair.shown(there), kind=kind)


def _missing(name: str, missing: list[Claim], repair: _Repair) -> Finding:
    text = f"{name} is missing; expected {missing[0]}{and_more(len(missing) - 1)}"
    return Finding("error", text, *repair.require(name, missing, None), evidence=tuple(missing), kind="missing")


def _shared_files(
    everything: Iterable[Installed], unreadable: list[Unreadable]
) -> dict[str, dict[str, tuple[Installed, str]]]:
    """The files that the RECORDs of several distributions list: by path and name, the package and its hash."""
    owners_by_path: dict[str, dict[str, tuple[Installed, str]]] = {}
    for package in everything:
        try:
            for path, digest in recorded_hashes(package):
                owners_by_path.setdefault(path, {})[package.name] = (package, digest)
        except (OSError, ValueError) as error:
            unreadable.append(Unreadable(f"{package.path}/RECORD", f"{error}: install the distribution again"))
    return {path: owners for path, owners in owners_by_path.items() if len(owners) > 1}


def _overwritten(
    shared: Mapping[str, Mapping[str, tuple[Installed, str]]],
    claims: Iterable[Claim],
    repair: _Repair,
    machine: TargetMachine | None,
) -> Iterator[Finding]:
    """Files of several distributions with other contents, by these distributions.

    A conflict where a library is among them, or where the distributions are variants of one project; else a note, as
    packages that have nothing to do with each other install such a thing as ``tests/__init__.py``. A note, too, where
    all files are those of a variant that something requires, and nothing requires another variant; or of one release,
    of which only libraries differ that programs link: what those need is measured, and the driver here runs them.
    """
    required = {claim.name for claim in claims if claim.by_name != "cuda-toolkit"}
    paths_of = grouped(
        (tuple(owner for owner, _ in owners.values()), path)
        for path, owners in shared.items()
        if len({digest for _, digest in owners.values()}) > 1
    )
    for several, paths in paths_of.items():
        libraries = [path for path in paths if is_library(path)]
        variants = len({VARIANT.sub("", owner.name) for owner in several}) == 1
        first = (libraries or paths)[0]
        complete = (each.name for each in several if all(has_hash(path, shared[path][each.name][1]) for path in paths))
        there = next(complete, "") if variants else ""
        alone = {owner.name for owner in several} & required == {there}
        serves = f": the files are those of {there}, and {'nothing requires' if alone else 'serve'} the others"
        unneeded = serves if there else ", if no program imports this file"
        counts = bool(libraries or variants) and not (there and (alone or _serves_all(there, several, paths, machine)))
        files, owners = f"{first}{and_more(len(paths) - 1)}", " and ".join(sorted(map(str, several)))
        installed = f"{files} {'are' if paths[1:] else 'is'} installed by {owners} with other contents"
        text = f"{installed}; expected one of them: the last install won"
        if counts:
            yield Finding("error", text, repair.reinstall(several), place=first, kind="same-file")
        else:
            yield Finding("note", text, otherwise=f"nothing{unneeded}", place=first, kind="same-file")


def _serves_all(there: str, several: Sequence[Installed], paths: Sequence[str], machine: TargetMachine | None) -> bool:
    """Whether the libraries of one variant do for the programs of the others: NVIDIA's own open each other by name."""
    major = re.search(r"\d{2}", there)
    driver = machine.driver if machine else driver_here()
    return (
        len({owner.version for owner in several}) == 1
        and all(_LINKED.search(path) and not EXTENSION.search(path) for path in paths)
        and not is_cuda_distribution(there)
        and major is not None
        and (not driver or int(major[0]) <= int(str(driver).partition(".")[0]))
    )


def _lost(everything: Sequence[Installed], claims: Iterable[Claim], repair: _Repair) -> Iterator[Finding]:
    """What CUDA's distributions, and those for one of its majors, lack of what an installer believes to be there.

    Of what else they require, that which is gone as a whole: images of containers leave out tests of other packages.
    A note where no library is left of one that conda has replaced: only its metadata stayed behind.
    """
    by_conda = {Path(path).name for package in everything if package.manager == "conda" for path in package.files}
    required = {claim.name for claim in claims}
    of_cuda = [each for each in everything if concerns_cuda(each.name) or (each.name in required and is_gone(each))]
    for package, paths in lost_files(of_cuda):
        replaced = not package.files and not by_conda.isdisjoint(Path(path).name for path in paths)
        lost = f"{paths[0]}{and_more(len(paths) - 1)}"
        text = f"{package} lacks {lost}: missing or cut off; expected what its RECORD lists"
        severity: Severity = "note" if replaced else "error"
        yield Finding(severity, text, repair.again(package), place=str(package), kind="lost")


def _without_metadata(place: Place, metadata: Collection[str], repair: _Repair) -> Iterator[Finding]:
    """Packages whose distribution is gone for importlib.metadata, and which cannot be imported without it.

    `metadata`: the names of the distributions that have some.
    """
    for path, name in asking_in_vain(place, metadata):
        text = f"{path} asks for the version of {name} as it is imported, and there is no metadata of {name}"
        yield Finding("error", text, repair.install("", [name]), place=path, kind="lost")


def _copies(providers: Providers, shared: Collection[str], repair: _Repair) -> Iterator[Finding]:
    """Libraries that several bring: one file of two, if no hash is known, two releases of one name, two majors."""
    for path, owners in sorted(providers.owners().items()):
        if path in shared:
            continue
        text = f"{path} is installed by {' and '.join(sorted({str(owner) for owner in owners}))}; expected one of them"
        yield Finding("error", text, repair.reinstall(owners), place=path, kind="same-file")
    if parts := providers.foreign_parts():
        lies = f"{parts[0]}{and_more(len(parts) - 1)} lies in another folder than the part of cuDNN that opens it"
        expected = "expected parts of one release: cuDNN compares them (CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH)"
        advice = "remove the other cuDNN from the system, or install a release of this one that brings the part"
        if library_path():
            advice = f"take the folders of another cuDNN out of LD_LIBRARY_PATH ({':'.join(library_path())})"
        yield Finding("error", f"{lies}; {expected}", otherwise=advice, place=parts[0], kind="copies")
    released = [copy for copy in providers.all if copy.release]
    by_library = grouped(((copy.library, copy.release.major if copy.release else 0), copy) for copy in released)
    for (library, _), copies in sorted(by_library.items()):
        if len({copy.release for copy in copies}) > 1:
            yield _several(library, copies, "error")
    for stem, copies in sorted(grouped((copy.stem, copy) for copy in released).items()):
        if len({copy.release.major for copy in copies if copy.release}) > 1:
            yield _several(stem, copies, "note")


def _several(library: str, copies: Sequence[Provider], severity: Severity) -> Finding:
    listed = " and ".join(f"CUDA {copy.release} by {copy}" for copy in copies)
    expected = "one release: which one a process gets depends on what loads first"
    fix = f"keep one of {', '.join(sorted({copy.owner.name for copy in copies if copy.owner}))}"
    if severity == "note":
        expected, fix = "one major, unless the programs that use them differ", "nothing, if this is on purpose"
    text, place = f"{library} is installed as {listed}; expected {expected}", ", ".join(copy.path for copy in copies)
    return Finding(severity, text, otherwise=fix, place=place, kind="copies")


def _known_to_fail(
    everything: Sequence[Installed], providers: Providers, repair: _Repair, machine: TargetMachine | None
) -> Iterator[Finding]:
    """Installed versions that meet a known-bad entry; a note where it also depends on a machine that is not known."""
    versions = {package.name: package.version for package in everything}
    # programs find those of the system, too; NVRTC those that cuda-bindings makes look for it
    for stem in ("libnvJitLink", "libnvrtc") if "cuda-bindings" in versions else ("libnvJitLink",):
        for major, name in exports.distributions(stem).items():
            system = providers.of(stem, major, "")
            if system is not None and system.owner is None and system.release:
                versions.setdefault(name, str(system.release))
    arch, driver = (machine.arch or None, machine.release) if machine else (None, None)
    for entry in known_bad.known_bad(versions, arch=arch, driver=driver):
        is_open, text = entry.sentence(arch, driver)
        concerned = {*entry.versions}.union(*(known_bad.components().get(name, ()) for name in entry.versions))
        there = [each for each in everything if each.name in concerned]
        fix = Command(entry.install).by(repair.installer(there[0].manager if there else ""))
        unsure = is_open or (entry.open_conditions() and entry.seen == "reported")
        advice, place = "" if fix else entry.advice, ", ".join(sorted(map(str, there)))
        yield Finding("note" if unsure else "error", text, fix, advice, place=place, kind="known-bad")


# -- repairs


class _Repair:
    """Commands of the package managers that own the distributions of an environment."""

    def __init__(self, place: Place, everything: Sequence[Installed]) -> None:
        self._place = place
        self._python = {package.name: package for package in everything if package.manager != "conda"}
        self._conda = {package.name: package for package in everything if package.manager == "conda"}
        self._by_label = {str(package): package for package in everything}

    def is_conda(self, claim: Claim) -> bool:
        """Whether a claim is about a conda package."""
        of_conda = claim.name in self._conda and claim.name not in self._python
        return claim.how in ("depends", "constrains") or (bool(claim.file) and of_conda)

    def there(self, name: str, claims: Sequence[Claim]) -> Installed | None:
        """The installed distribution that claims are about."""
        return (self._conda if self.is_conda(claims[0]) else self._python).get(name)

    def shown(self, there: Installed | None) -> str:
        """What is installed, with one of its libraries."""
        return f"{there} ({there.files[0] if there.files else there.path})" if there else ""

    def roots(self, claims: Sequence[Claim]) -> list[Installed]:
        """The distributions that a user chose, above those of CUDA that made the claims."""
        labels = [(*claim.because, claim.by)[0] for claim in claims]
        return [self._by_label[label] for label in dict.fromkeys(labels)]

    def upgrade(self, owners: Sequence[Installed]) -> Command:
        """The command that lets the package manager choose other releases of distributions."""
        return self.install(owners[0].manager, [owner.name for owner in owners])._replace(action="upgrade")

    def require(self, name: str, claims: Sequence[Claim], there: Installed | None) -> tuple[Command, str]:
        """The command that installs a version which all claims accept, or what helps instead."""
        if name == "__cuda":
            wanted = " and ".join(dict.fromkeys(claim.versions for claim in claims))
            return NO_COMMAND, f"install a driver of CUDA {wanted}"
        bounds = ",".join(dict.fromkeys(claim.versions for claim in claims if claim.versions not in ("", "*")))
        owner = there or self._by_label[claims[0].by]
        words = f"{name} {bounds}".strip() if self.is_conda(claims[0]) else f"{name}{bounds}"
        return self.install(owner.manager, [words]), ""

    def reinstall(self, owners: Sequence[Installed]) -> Command:
        """The command for two distributions that wrote the same file: one goes, the other is installed again."""
        kept, removed = owners[-1], owners[0]
        again = self.install(kept.manager, [f"{kept.name}=={kept.version}"])
        return again._replace(uninstall=(removed.name,), remover=self.installer(removed.manager))

    def again(self, package: Installed) -> Command:
        """The command that installs the same release once more."""
        return self.install(package.manager, [f"{package.name}=={package.version}"])._replace(action="reinstall")

    def install(self, manager: str, words: Sequence[str]) -> Command:
        """The command that installs requirements."""
        return Command(tuple(words), installer=self.installer(manager))

    def installer(self, manager: str) -> Installer:
        """What a package manager is called with to change the environment."""
        prefix = shlex.quote(str(self._place.prefix))
        if manager == "conda":
            return Installer("conda", f" --prefix {prefix}")
        if manager != "uv" and str(self._place.prefix) == sys.prefix:
            return installer_here()  # an environment may have no pip, whatever installed a distribution
        return Installer("uv" if manager == "uv" else "pip", f" --python {prefix}")
