"""The report of ``cudalink doctor``: driver, toolkit, rules, links and what would fail at run time.

`examine` loads no library of a toolkit into the process that asks; `DoctorReport` is plain data.
"""

import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from ..audit.environment import Claim, EnvironmentAudit, audit_environment
from ..base.finding import NO_DRIVER, SEVERITIES, VERDICTS, Finding, Severity, exit_code_of
from ..base.install_command import NO_COMMAND, Command
from ..base.tables import grouped
from ..base.words import and_more
from ..compat import atlas, exports, known_bad
from ..compat.architectures import architecture_of, known_architectures
from ..compat.names import DEFAULT_POLICY
from ..compat.releases import DRIVER_RELEASES, LATEST_KNOWN, driver_named, ptx_isa_of
from ..environment.installed import find_place
from ..environment.wheels import TILEIRAS
from ..guardrails import attribution
from ..guardrails._pathfinder import ResolutionError
from ..guardrails.driver import DriverFacts
from ..guardrails.guard import driver_hint, forward_compatibility_assumed
from ..guardrails.items import Fact, Item, ItemKind, Verdict, component_table, label_of, meets_driver
from ..guardrails.pipelines import Pipeline
from ..guardrails.repair import repair, trials
from ..guardrails.rules import check_driver, judge_all, parse_constraint
from ..linker import dispatch
from ..probes import FIRST_USABLE_NVJITLINK
from ..versions import CudaVersion, distribution_version
from .system import IN_PROCESS, LIBRARIES, Copy, Elsewhere, System

#: Its name before all findings had one form.
DoctorFinding = Finding
#: The items that the page lists, by kind.
LOOKED_FOR: Final[dict[ItemKind, tuple[str, ...]]] = {
    "dynamic-libs": LIBRARIES,
    "headers": ("cudart", "cccl", "nvrtc", "nvjitlink", "nvcc", "nvvm"),
    "static-libs": ("cudadevrt",),
    "bitcode-libs": ("device",),
    "binaries": ("nvcc", "ptxas", "nvlink", "nvdisasm", "cuobjdump"),
}
#: The rules about parts of different releases, and what their findings have in common.
_MIXED: Final = ("same-ctk", "linked", "pipeline")
_CAUSES: Final = {
    "ctk-constraint": "the toolkit's release is not one that --ctk-version accepts",
    "ctk-version-known": "the release of some parts of the toolkit is not known",
}
_PIPELINES: Final = tuple(Pipeline("nvrtc", "nvJitLink", kind) for kind in ("ptx", "ltoir"))

#: The libraries that programs load together, wherever each is.
_CORE: Final = ("nvrtc", "nvJitLink")
_LINKER: Final = Item("dynamic-libs", "nvJitLink", "", "site-packages", "ctk", None, "")
#: The wheels that cuda-tile takes together: tileiras first.
_TILE_WHEELS: Final = ("nvidia-cuda-tileiras", "nvidia-cuda-nvcc", "nvidia-nvvm")
_NO_LINK: Final = "nothing here links PTX or LTO-IR"

_OLD_DRIVER: Final = "the driver"
_NO_ANSWER: Final = (
    "take a toolkit's folder stubs, whose libcuda answers 34, out of LD_LIBRARY_PATH; or repair the driver"
)

_COUNTED: Final = SEVERITIES[:2]


@dataclass(frozen=True)
class PredictedLink:
    """The backend that a link would take."""

    policy: str
    kind: str  # "ptx" (no LTO) or "ltoir"
    backend: str  # "driver", "nvjitlink" or "error"
    why: str


@dataclass(frozen=True)
class FindingCause:
    """The findings of one cause."""

    what: str  # the cause; of a finding that stands alone, what it is
    findings: tuple[Finding, ...]  # in their order; at least one

    @property
    def severity(self) -> Severity:
        """The worst one of the findings."""
        return min((finding.severity for finding in self.findings), key=SEVERITIES.index)

    @property
    def counts(self) -> bool:
        """Whether the cause sets the exit code."""
        return self.severity in _COUNTED

    @property
    def fixes(self) -> tuple[Command, ...]:
        """The commands that repair the findings, each once."""
        return tuple(dict.fromkeys(finding.fix for finding in self.findings if finding.fix))

    @property
    def otherwise(self) -> tuple[str, ...]:
        """The other remedies, each once."""
        return tuple(dict.fromkeys(finding.otherwise for finding in self.findings if finding.otherwise))


@dataclass
class DoctorReport:
    """The doctor's report."""

    # `version`, `witness`, `release`, `release_witness`, `kind` ("real", "emulated", "given", None), `path`, `arch`
    driver: dict[str, str | None] = field(default_factory=dict)
    items: list[Item] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # labels of the items that were not found
    copies: list[Copy] = field(default_factory=list)
    rules: list[Verdict] = field(default_factory=list)
    links: list[PredictedLink] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 coherent, 1 incoherent, 2 not enough known."""
        return exit_code_of(finding.severity for finding in self.findings)

    @property
    def verdict(self) -> str:
        """``"coherent"``, ``"incoherent"`` or ``"not enough known"``."""
        return VERDICTS[self.exit_code]

    @property
    def causes(self) -> list[FindingCause]:
        """The findings by cause: the worst first, else in the order of the findings."""
        groups = grouped((finding.why or finding.what, finding) for finding in self.findings)
        causes = [FindingCause(text, tuple(findings)) for text, findings in groups.items()]
        return sorted(causes, key=lambda cause: SEVERITIES.index(cause.severity))

    @property
    def newest(self) -> CudaVersion:
        """The newest release of its items; without any, the latest that is known."""
        return max((item.version for item in self.items if item.version), default=LATEST_KNOWN)

    def version_of(self, name: str) -> CudaVersion | None:
        """Return the release of a dynamic library; None if it was not found, or its release is unknown."""
        return next((i.version for i in self.items if i.kind == "dynamic-libs" and i.name == name), None)

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain data for JSON; versions are text."""

        def plain(fields: list[tuple[str, Any]]) -> dict[str, Any]:
            return {name: str(value) if isinstance(value, (CudaVersion, Command)) else value for name, value in fields}

        return {"verdict": self.verdict, "exit_code": self.exit_code, **asdict(self, dict_factory=plain)}


def examine(
    ctk_version: str | SpecifierSet | None = None, *, facts: DriverFacts | None = None, system: System | None = None
) -> DoctorReport:
    """Report on this environment.

    `ctk_version`: the CUDA releases that are wanted.
    `facts`: the driver; default: the one of this machine.
    `system`: answers every other question about the machine; default: this machine.
    Raises ValueError if `ctk_version` is not a PEP 440 specifier.
    Raises RuntimeError if an environment variable of the guard rails has an unknown value.
    """
    constraint = parse_constraint(ctk_version)
    facts, system = facts or DriverFacts(), system or System()
    facts.assume_forward, facts.hint = forward_compatibility_assumed("strict"), driver_hint()
    report = DoctorReport(driver=_driver(facts, system))
    for kind, names in LOOKED_FOR.items():
        for name in names:
            if not _look_for(report, system, kind, name):
                report.missing.append(label_of(kind, name))
    for name in () if report.items else system.other_libraries():
        _look_for(report, system, "dynamic-libs", name)
    report.copies = list(system.copies_in_process())
    try:
        report.copies += system.copies_for_loader()
    except ResolutionError as error:
        report.findings.append(Finding("note", str(error)))
    audit = system.environment()

    def judge(items: Sequence[Item]) -> DoctorReport:
        judged = DoctorReport(driver=report.driver, items=list(items))
        judged.rules = judge_all(items, constraint=constraint, driver=facts, pipelines=_PIPELINES)
        judged.links = list(_links(judged, facts))
        if not report.items and not audit.cuda_libraries:
            fix = Command(("cuda-toolkit[cudart,nvjitlink,nvrtc]",))
            judged.findings.append(Finding("unknown", "no part of a CUDA toolkit was found", fix))
        judged.findings += _bindings_findings(judged, system)
        judged.findings += _rule_findings(judged, facts)
        judged.findings += _predictions(judged, facts, system.versions().keys())
        judged.findings += _link_findings(judged, system)
        return judged

    judged = judge(_in_use(report.items, system, audit))
    report.rules, report.links = judged.rules, judged.links
    conflicts = {conflict: conflict for conflict in audit.errors}
    _merge_repairs(judged, conflicts, judge, facts, audit)
    absent = (*_missing_companions(report, system), *_missing_when_used(report, system))
    report.findings[:0] = [*_damaged_files(judged, system), *absent]
    report.findings += judged.findings
    report.findings += _runtime_findings(system, facts, audit)
    report.findings += _outside_findings(report, judged, judge)
    report.findings += _copy_findings(report)
    report.findings += conflicts.values()
    _add_newer_libraries(report, system, facts)
    report.findings += [Finding("unknown", f"{unread.path}: {unread.text}") for unread in audit.unreadable]
    report.findings += _known_bad_findings(report, judged.items, system)
    report.findings += _tile_findings(report, system)
    installer = system.installer(report.items)
    others = [claim for claim in audit.claims if claim.by_name != "cuda-toolkit"]
    held = {claim.name for claim in others if not claim.by_name.startswith("nvidia-")}
    stuck = {each.why for each in report.findings if each.otherwise and held.intersection(each.fix.uninstall)}

    def possible(finding: Finding) -> Finding:
        # what a package is built with cannot go, and then a part of another release for the driver does not help
        if finding.otherwise and finding.why and (finding.why in stuck or (stuck and finding.place == _OLD_DRIVER)):
            return replace(finding, fix=NO_COMMAND)
        return _possible(replace(finding, fix=finding.fix.by(installer)), report.items)

    report.findings = [possible(finding) for finding in report.findings]
    return report


def examine_environment(target: str | Path | None = None, *, driver: str = "", gpu: str = "") -> EnvironmentAudit:
    """The audit of an environment, with what the doctor finds in it: both have one verdict.

    `target`, `driver`, `gpu`, and what it raises: as in `audit_environment`.
    """
    audit = audit_environment(target, driver=driver, gpu=gpu)
    place = find_place(target)
    if place.windows:  # no look-up of this machine finds its parts
        return audit
    arch, version = architecture_of(gpu) if gpu else None, driver_named(driver) if driver else None
    here = target is None or place.prefix.resolve() == Path(sys.prefix).resolve()
    system = System(audit, arch) if here else Elsewhere(place, audit, arch)
    facts = DriverFacts(version, DRIVER_RELEASES[version] if version else None)
    findings = examine(facts=facts, system=system).findings
    repaired = {finding.what: finding for finding in findings if finding.kind}
    unread = {f"{file.path}: {file.text}" for file in audit.unreadable}
    by_kind = grouped((finding.kind, finding) for finding in findings)
    own = [finding for finding in by_kind.get("", ()) if finding.severity in _COUNTED and finding.what not in unread]
    return replace(
        audit,
        findings=(
            *(repaired.get(finding.what, finding) for finding in audit.findings),
            *(replace(finding, kind="doctor", place="") for finding in own),
            *by_kind.get("doctor", ()),
            *(replace(each, severity="note") for each in by_kind.get("machine", ()) if each.severity == "warning"),
        ),
    )


def _in_use(items: Sequence[Item], system: System, audit: EnvironmentAudit) -> list[Item]:
    """Return the items that programs of this environment use together.

    Parts of a toolkit outside count if something that is installed looks up such, or opens them by name: where the
    environment has its own toolkit, NVRTC and nvJitLink alone, as one program loads both and takes its headers and
    other libraries from beside itself.
    """
    installed, table = system.versions().keys(), component_table()
    known = {*table["looks-up"]["distributions"], *table["links-at-run-time"]["distributions"]}
    # this project requires cuda-pathfinder, which says nothing then
    known -= {"cuda-pathfinder"} if "pytest-cudalink" in installed else set()
    requiring = {claim.by_name for claim in audit.claims if claim.name == "cuda-pathfinder"} - {"pytest-cudalink"}
    looks_up = bool(requiring or known & installed)
    inside = [item for item in items if not system.is_outside(item)]

    def is_opened(item: Item) -> bool:
        library, major = f"lib{item.name} ", str(item.version.major) if item.version else ""
        used = (name for name in audit.used_libraries if name.startswith(library))
        return item.kind == "dynamic-libs" and any(major in ("", name.removeprefix(library)) for name in used)

    core = [item for item in items if item.kind == "dynamic-libs" and item.name in _CORE]
    reached = [item for item in (core if inside else items) if looks_up or is_opened(item)]
    return [item for item in items if item in inside or item in reached]


def _outside_findings(
    report: DoctorReport, judged: DoctorReport, judge: Callable[[Sequence[Item]], DoctorReport]
) -> Iterator[Finding]:
    """Yield a note about the parts that nothing would load, if they do not fit the parts that something loads."""
    aside = [item for item in report.items if item not in judged.items]
    if aside and len(_faults(judge(report.items))) > len(_faults(judged)):
        releases = ", ".join(sorted({str(item.version or "unknown") for item in aside}))
        parts = f"not used: parts of CUDA {releases} outside of this environment"
        first = f"{aside[0].label} at {aside[0].path}{and_more(len(aside) - 1)}"
        text = f"{parts} ({first}) do not fit the toolkit in it, or the driver"
        used = "their programs use the parts beside them"
        yield Finding("note", f"{text}; {used}", why=f"{parts}, which do not fit", kind="doctor")


def _faults(report: DoctorReport) -> list[Finding]:
    return [finding for finding in report.findings if finding.severity in _COUNTED]


def _merge_repairs(
    judged: DoctorReport,
    conflicts: dict[Finding, Finding],
    judge: Callable[[Sequence[Item]], DoctorReport],
    facts: DriverFacts,
    audit: EnvironmentAudit,
) -> None:
    """Give all findings that one command repairs that command: after it, the same rules hold."""
    if not judged.items:
        return
    merged = {conflict: need for conflict in conflicts if (need := _needed(conflict))}
    before = _faults(judged)
    asked = {name for name, _ in merged.values()}
    bounds: dict[str, dict[str, None]] = {name: {} for name in asked}
    declared = [claim for claim in audit.claims if claim.how == "declared"]
    for claim in declared:
        if claim.versions:
            bounds.setdefault(claim.name, {})[claim.versions] = None
    refused = {claim.name for claim in declared if claim.satisfied is False}
    for name, versions in merged.values():
        bounds[name][versions] = None
    texts = {name: ",".join(filter(None, several)) for name, several in bounds.items()}
    no_link = any(finding.why == _NO_LINK for finding in before)
    absent = [_LINKER] if no_link else []
    fewest, command = len(before) + len(merged), NO_COMMAND
    for trial in trials(judged.items, facts.cuda().value, texts, needed=asked, refused=refused, absent=absent):
        left = len(_faults(judge(trial.items)))
        if left < fewest:
            fewest, command = left, trial.command
        if not left:
            break
    if command:
        command = _with_dependents(command, declared)
        repaired = before if fewest < len(before) else []
        judged.findings = [
            replace(each, fix=command) if each in repaired and (each.fix or each.why == _NO_LINK) else each
            for each in judged.findings
        ]
        conflicts.update({conflict: replace(conflicts[conflict], fix=command) for conflict in merged})


def _possible(finding: Finding, items: Sequence[Item]) -> Finding:
    """Say what to delete where a command would leave a newer library that no distribution lists: it is found first."""
    wanted = (Requirement(line) for line in finding.fix.install if line.startswith("cuda-toolkit["))
    bounds = (bound for requirement in wanted for bound in requirement.specifier)
    majors = [int(bound.version.split(".")[0]) for bound in bounds if bound.operator in ("==", ">=")]
    newer = [item for item in items if majors and item.version and item.version.major > majors[0]]
    stuck = [item.path for item in newer if not item.wheel and item.found_via == "site-packages"]
    if not stuck:
        return finding
    advice = f"delete {stuck[0]}{and_more(len(stuck) - 1)}: no distribution lists what a command would have to remove"
    return replace(finding, fix=NO_COMMAND, otherwise=advice)


def _with_dependents(command: Command, declared: Sequence[Claim]) -> Command:
    """Replace with the wheels of a major what else NVIDIA has of it: it requires what is uninstalled."""
    gone = {*command.uninstall}
    of_nvidia = [claim for claim in declared if claim.by_name.startswith("nvidia-")]
    while more := {claim.by_name for claim in of_nvidia if claim.name in gone} - gone:
        gone |= more
    return _moving(command, gone)


def _moving(command: Command, gone: Collection[str]) -> Command:
    """Let a command replace these wheels, of which it replaces some already."""
    known = component_table()["toolkit"]["extras"]
    names = {re.sub("^nvidia-(?:cuda-)?", "", wheel) for wheel in {*gone} - {*command.uninstall}}
    first, *others = command.install
    extras = sorted({*Requirement(first).extras, *names.intersection(known)})
    if extras and first.startswith("cuda-toolkit["):
        first = f"cuda-toolkit[{','.join(extras)}]{first.partition(']')[2]}"
    return command._replace(install=(first, *others), uninstall=tuple(sorted(gone)))


def _needed(conflict: Finding) -> tuple[str, str] | None:
    """The name and the versions that pip has to install to end a conflict; None if it needs more than that."""
    by_pip = conflict.evidence and all(claim.how == "declared" for claim in conflict.evidence)
    if conflict.kind in ("version", "missing") and by_pip:
        return conflict.evidence[0].name, conflict.evidence[0].versions
    by_conda = conflict.fix.installer and conflict.fix.installer.name == "conda"  # whose specs are others
    if conflict.kind == "known-bad" and len(conflict.fix.install) == 1 and not by_conda:
        wanted = Requirement(conflict.fix.install[0])
        return wanted.name, str(wanted.specifier)
    return None


def _driver(facts: DriverFacts, system: System) -> dict[str, str | None]:
    cuda = facts.cuda()
    release = facts.release() if cuda.value else Fact(None, "no driver")
    file = system.driver(cuda)
    return {
        "version": str(cuda.value) if cuda.value else None,
        "witness": cuda.witness,
        "release": release.value,
        "release_witness": release.witness,
        **file._asdict(),
    }


def _look_for(report: DoctorReport, system: System, kind: ItemKind, name: str) -> bool:
    """Add one item to the report, or the reason why that is not known; returns whether it may be there."""
    try:
        item = system.item(kind, name)
    except ResolutionError as error:
        finding = Finding("unknown", str(error))
        if finding not in report.findings:  # one process searches for several libraries
            report.findings.append(finding)
        return True
    if item is not None:
        report.items.append(item)
    return item is not None


def _damaged_files(report: DoctorReport, system: System) -> Iterator[Finding]:
    """Yield a finding for each library that is damaged or lacks a file that it opens, whatever its release."""
    opened = component_table()["opened"]
    for item in report.items:
        if item.kind != "dynamic-libs":
            continue
        text = f"{item.path} {system.damage(item)}: a process that loads it gets an error, or ends with SIGBUS"
        faults = [(text, "is damaged")] if system.damage(item) else []
        for row in opened:
            place = row["file"].format(release=item.version)
            if row["library"] != item.name or not item.version:
                continue
            name = place.rpartition("/")[2]
            if system.lacks(item, place):
                faults.append((f"{item.path} opens {name}, which is missing: {row['because']}", f"lacks {name}"))
            elif not system.finds(item, name):
                text = f"{item.path} opens {name} by name, and the loader does not find it there: {row['because']}"
                advice = f"put {Path(item.path).parent} into LD_LIBRARY_PATH"
                yield Finding("error", text, otherwise=advice, why=f"the {item.label} does not find {name}")
        yield from (_incomplete(item, text, cause) for text, cause in faults)


def _incomplete(item: Item, text: str, cause: str) -> Finding:
    """Return the finding about a library that only its own package, or its toolkit, makes whole."""
    wheel = attribution.owner(item.path)
    fix = Command((f"{wheel.name}=={wheel.version}",), action="reinstall") if wheel else NO_COMMAND
    advice = "" if wheel else "reinstall the toolkit that this file belongs to"
    return Finding("error", text, fix, advice, f"the {item.label} {cause}")


def _missing_companions(report: DoctorReport, system: System) -> Iterator[Finding]:
    """Yield the parts that are missing although programs look them up with a library of this environment."""
    inside = [item for item in report.items if not system.is_outside(item)]
    for row in component_table()["looked-up-with"]:
        item = next((each for each in inside if (each.kind, each.name) == ("dynamic-libs", row["library"])), None)
        label = label_of(row["kind"], row["name"])
        if item is not None and label in report.missing:
            text = f"the {label} is missing beside {item.path}: {row['because']}"
            yield _incomplete(item, text, f"is without the {label}")


def _missing_when_used(report: DoctorReport, system: System) -> Iterator[Finding]:
    """Yield the distributions that lack a library which they load as they are imported or used."""
    versions = {name: distribution_version(text) for name, text in system.versions().items()}
    for row in component_table()["loads-when-used"]:
        name, library, steers = row["distribution"], row["library"], row.get("of-the-major-of", "")
        version, needed, has = versions.get(name), versions.get(steers), report.version_of(library)
        if version is None or version not in SpecifierSet(row["versions"]):
            continue
        wanted = Item("dynamic-libs", library, "", "site-packages", "ctk", None, "")
        there, fix = "none", repair((wanted,), report.newest)
        if wanted.label not in report.missing:
            # without a driver such a module is of no use anyway; and the loader's library serves it, too
            if not (needed and has and report.driver["version"]) or needed.major == has.major:
                continue
            if any(copy.role.endswith(f" lib{library}.so.{needed.major}") for copy in report.copies):
                continue
            there = f"first that of CUDA {has}; expected CUDA {needed.major}, as {steers} has"
            fix = Command((f"{steers}=={has.major}.*",))
        text = f"{name} {version} loads the {wanted.label} {row['when']}, and there is {there}"
        yield Finding("error", text, fix, why=f"{name} lacks what it loads {row['when']}")


def _runtime_findings(system: System, facts: DriverFacts, audit: EnvironmentAudit) -> Iterator[Finding]:
    """Yield the distributions that contain a CUDA runtime for which the driver is too old."""
    driver, versions = facts.cuda().value, system.versions()
    for name in component_table()["static-runtime"]["distributions"]:
        version = distribution_version(versions.get(name, ""))  # the audit of the environment names one that is invalid
        if driver is None or version is None:
            continue
        release = CudaVersion(*(*version.release, 0)[:2])
        runtime = Item("static-libs", "cudart", name, "site-packages", "ctk", release, f"the version of {name}")
        # those that accept no release of that major are installed in another one
        of_major = [f"{driver.major}.{minor}.99" for minor in range(10)]
        held = sorted({
            claim.by_name for claim in audit.claims
            if (claim.name, claim.how) == (name, "declared") and not [*SpecifierSet(claim.versions).filter(of_major)]
        })  # fmt: skip
        verdict = check_driver(runtime, facts)
        if verdict.severity == "error":
            answers = f"the driver of CUDA {driver} answers with cudaErrorInsufficientDriver (35)"
            text = f"{name} {versions[name]} contains the CUDA runtime {release}, whose calls {answers}"
            fix = Command((f"{name}=={driver.major}.*", *held))
            why = f"the driver of CUDA {driver} is too old for the runtime inside {name}"
            yield Finding("error", text, fix, verdict.otherwise, why, place=_OLD_DRIVER)


def _add_newer_libraries(report: DoctorReport, system: System, facts: DriverFacts) -> None:
    """Report the libraries that contain a CUDA runtime for which the driver is too old, with one command for all.

    Those that a look-up found are judged with the toolkit. A library that is also there in the driver's major serves
    the programs of that one.
    """
    driver, versions = facts.cuda().value, system.versions()
    newer: dict[str, CudaVersion] = {}
    older: list[str] = []
    for library in component_table()["static-runtime"]["libraries"] if driver is not None and report.items else ():
        brings = exports.distributions(f"lib{library}")
        there = min((major for major, name in brings.items() if name in versions), default=0)
        if there > driver.major:
            name = brings[there]
            newer[name] = exports.release_of_wheel(name, versions[name]) or CudaVersion(there, 0)
            older += [brings[driver.major]] if driver.major in brings else []
    if not newer:
        return
    name, *others = newer
    item = Item("dynamic-libs", name, name, "site-packages", "ctk", newer[name], f"the version of {name}")
    verdict = check_driver(item, facts)
    if verdict.severity != "error":
        return
    command = Command(tuple(older), uninstall=tuple(newer))
    of_toolkit = (finding.fix for finding in report.findings if finding.place == _OLD_DRIVER and finding.fix.uninstall)
    if toolkit := next(of_toolkit, NO_COMMAND):
        command = _moving(toolkit, {*toolkit.uninstall, *newer})
        report.findings = [replace(each, fix=command) if each.fix == toolkit else each for each in report.findings]
    libraries = f"{name} {versions[name]}{and_more(len(others))}"
    text = f"{libraries}: its CUDA runtime {newer[name]} does not run on the driver of CUDA {driver}"
    why = f"the driver of CUDA {driver} is too old for the runtime inside libraries of CUDA {newer[name].major}"
    report.findings.append(Finding("error", text, command, verdict.otherwise, why, place=_OLD_DRIVER))


def _links(report: DoctorReport, facts: DriverFacts) -> Iterator[PredictedLink]:
    """Yield the backend of each policy, as the bundled linker would decide."""
    there, driver = report.version_of("nvJitLink"), facts.cuda().value
    nvjitlink = there if there and there >= FIRST_USABLE_NVJITLINK else None
    for policy in dispatch.policies():
        for kind in ("ptx", "ltoir"):
            lto = kind == "ltoir"
            decision = dispatch.explain(driver, nvjitlink, lto, lto, policy)
            why = decision.message or decision.sentence
            if decision.backend == "driver" and driver is None:
                why = f"{why}; but there is no driver, so the link fails"
            yield PredictedLink(policy, kind, decision.backend or "error", why)


def _link_findings(report: DoctorReport, system: System) -> Iterator[Finding]:
    """Yield what cannot be linked: a fault if nothing here links although a distribution does, else a note."""
    linking = sorted(system.versions().keys() & component_table()["links-at-run-time"]["distributions"])
    if not report.items and not linking:
        return
    linkers = ("nvjitlink", "driver") if report.driver["version"] else ("nvjitlink",)
    possible = {(link.policy, link.kind): link.backend in linkers for link in report.links}
    version = report.version_of("nvJitLink")
    there = f"nvJitLink {version} is older than {FIRST_USABLE_NVJITLINK}" if version else "there is no nvJitLink"
    fix = NO_COMMAND if version else repair((_LINKER,), report.newest)
    if not any(possible.values()):
        text = f"nothing here links PTX or LTO-IR: there is no driver, and {there}"
        if linking:
            text += f"; {linking[0]} links at run time"
        yield Finding("error" if linking else "note", text, fix, "install the NVIDIA driver", _NO_LINK)
    elif report.items and not possible[DEFAULT_POLICY, "ltoir"]:
        others = [policy for policy, kind in possible if kind == "ltoir" and possible[policy, kind]]
        why = f"the policies {' and '.join(others)} do" if others else there
        yield Finding("note", f"the policy {DEFAULT_POLICY} does not link LTO-IR here: {why}", fix)


def _bindings_findings(report: DoctorReport, system: System) -> Iterator[Finding]:
    """Yield what is of no use without the other, or with this nvJitLink: cuda-bindings, or the bundled linker."""
    nvjitlink, bindings = report.version_of("nvJitLink"), system.has_bindings()
    if nvjitlink and nvjitlink < FIRST_USABLE_NVJITLINK and bindings:
        # what asks for the linker in the environment gets none; cuda-core 1.2 takes the driver instead of one outside
        outside = all(not item.wheel for item in report.items if item.name == "nvJitLink")
        severity: Severity = "warning" if outside and report.driver["version"] else "error"
        uses = f"cuda-bindings calls no nvJitLink {nvjitlink}, only {FIRST_USABLE_NVJITLINK} or newer"
        text = f"{uses}: FunctionNotFoundError: function nvJitLinkVersion is not found"
        yield Finding(severity, text, repair((_LINKER,), CudaVersion(12, 9)))
    elif nvjitlink and nvjitlink >= FIRST_USABLE_NVJITLINK and not bindings:
        text = f"nvJitLink {nvjitlink} is installed, but the bundled linker needs cuda-bindings to use it"
        yield Finding("warning", text, Command((f"cuda-bindings=={nvjitlink.major}.*",)))


def _rule_findings(report: DoctorReport, facts: DriverFacts) -> Iterator[Finding]:
    """Yield the rules that do not hold. A missing driver is reported once, and is not a fault of the toolkit."""
    for verdict in report.rules:
        if verdict.kind != "driver" and verdict.severity != "note":
            cause = _mixed(report) if verdict.kind in _MIXED else _CAUSES.get(verdict.kind, "")
            yield Finding(verdict.severity, verdict.what, verdict.fix, verdict.otherwise, cause)
    yield from _driver_findings(report, facts)


def _mixed(report: DoctorReport) -> str:
    releases = sorted({item.version for item in report.items if item.version})
    return f"the toolkit's parts come from several releases: CUDA {', '.join(map(str, releases))}"


def _driver_findings(report: DoctorReport, facts: DriverFacts) -> Iterator[Finding]:
    """Yield the driver rule's findings by CUDA release: one finding for all items that one command repairs."""
    cuda = facts.cuda()
    driver: CudaVersion | None = cuda.value
    if driver is None:
        text = f"the driver rule was not checked: {cuda.witness}"
        if cuda.absent or cuda.stated:
            yield Finding("note", text, why=NO_DRIVER)
        else:
            yield Finding("unknown", text, otherwise=_NO_ANSWER, why="the driver here does not say its version")
        return
    groups = grouped(
        ((item.version, not repair((item,), driver, at_most=True)), item) for item in report.items if item.version
    )
    for _, items in sorted(groups.items()):
        first, *others = [item for item in items if meets_driver(item)] or items
        verdict = check_driver(first, facts, others=len(others))
        if verdict.severity != "note":
            fix, cause = repair(items, driver, at_most=True), _driver_cause(driver, verdict.severity)
            place = "" if verdict.severity == "unknown" else _OLD_DRIVER
            yield Finding(verdict.severity, verdict.what, fix, verdict.otherwise, cause, place=place)


def _driver_cause(driver: CudaVersion, severity: Severity) -> str:
    if severity == "unknown":
        return f"not known whether the driver of CUDA {driver} runs the toolkit"
    return f"the driver of CUDA {driver} is too old for the toolkit"


def _newer_ptx(maker: CudaVersion, reader: CudaVersion) -> list[str]:
    """Return the ISA of one release's PTX and the newest of another, if that is older: 12.5 and 12.6 share one."""
    isas = [ptx_isa_of(release) for release in (maker, reader) if min(maker.major, reader.major) >= 12]
    return [".".join(map(str, isa)) for isa in isas if isas[0] > isas[1]]


def _predictions(report: DoctorReport, facts: DriverFacts, installed: Collection[str]) -> Iterator[Finding]:
    """Yield failures at run time that no rule predicts."""
    yield from _refused_ptx(report, facts, "nvrtc")
    if "numba-cuda" in installed:
        yield from _refused_ptx(report, facts, "nvvm")
    arch = report.driver["arch"]
    item = {item.name: item for item in report.items if item.kind == "dynamic-libs"}
    for name in _CORE:
        version = report.version_of(name)
        if arch and version and arch not in known_architectures(version):
            known = known_architectures(version)
            older = [v for v in (CudaVersion(12, 9), CudaVersion(13, 0)) if arch in known_architectures(v)]
            text = f"{name} {version} does not know {arch}, the device here; it knows {known[0]} to {known[-1]}"
            fix = repair((item[name],), older[0]) if older else NO_COMMAND
            yield Finding("error", text, fix, why=f"the toolkit does not know {arch}, the device here")


def _refused_ptx(report: DoctorReport, facts: DriverFacts, maker: str) -> Iterator[Finding]:
    """Yield the PTX of a compiler that the driver refuses, or nvJitLink."""
    made, nvjitlink, label = report.version_of(maker), report.version_of("nvJitLink"), maker.upper()
    driver: CudaVersion | None = facts.cuda().value
    taken = {link.kind: link.backend for link in report.links if link.policy == DEFAULT_POLICY}
    item = {item.name: item for item in report.items if item.kind == "dynamic-libs"}
    if made and driver and (isas := _newer_ptx(made, driver)):
        severity: Severity = "error" if taken.get("ptx") == "driver" else "warning"
        too_old = _driver_cause(driver, severity)
        same = (each for each in report.findings if (each.severity, each.why) == (severity, too_old))
        whole = next(same, None)
        refused = f"is refused by the driver of CUDA {driver} (ISA up to {isas[1]})"
        text = f"PTX of {label} {made} (ISA {isas[0]}) {refused}: CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222)"
        fix = (whole and whole.fix) or repair((item[maker],), driver, at_most=True)
        why = whole.why if whole else f"the driver of CUDA {driver} refuses the PTX of {label} {made} (222)"
        yield Finding(severity, text, fix, why=why, place=_OLD_DRIVER)
    # the pipeline rule reports LTO-IR that is too new
    if made and nvjitlink and taken.get("ptx") == "nvjitlink" and (isas := _newer_ptx(made, nvjitlink)):
        text = f"PTX of {label} {made} (ISA {isas[0]}) is refused by nvJitLink {nvjitlink} (ISA up to {isas[1]})"
        why = next((finding.why for finding in report.findings if finding.why == _mixed(report)), "")
        yield Finding("error", text, repair((item[maker], item["nvJitLink"]), made), why=why)


def _copy_findings(report: DoctorReport) -> Iterator[Finding]:
    """Yield copies that other libraries may load instead of those that cuda.pathfinder finds."""
    chosen = {item.name: item for item in report.items if item.kind == "dynamic-libs"}
    for copy in report.copies:
        item = chosen.get(copy.name)
        if item is None or copy.version == item.version or os.path.realpath(item.path) == os.path.realpath(copy.path):
            continue
        # the loader finds libraries of another major for the programs of that major alone
        if copy.role != IN_PROCESS and copy.version and item.version and copy.version.major != item.version.major:
            continue
        theirs = f"{copy.path} (CUDA {copy.version or 'unknown'}: {copy.witness})"
        ours = f"{item.path} (CUDA {item.version or 'unknown'})"
        text = f"another {copy.name} is {copy.role}: {theirs}, while cuda.pathfinder finds {ours}"
        come = "are loaded from" if copy.role == IN_PROCESS else "come first for the loader, from"
        why = f"other copies {come} {Path(copy.path).parent}"
        yield Finding("warning", text, otherwise=_how_to_prefer(item, copy), why=why)


def _known_bad_findings(report: DoctorReport, items: Iterable[Item], system: System) -> Iterator[Finding]:
    """Yield versions that are known to fail on some machines; a note if nothing here decides it.

    `items`: those in use, of which the libraries of a toolkit outside count as wheels of their release do.

    Those that fail on every machine are findings of the audit, and so are those of a machine that it is asked about.
    """
    arch, driver = report.driver["arch"], report.driver["release"]
    said = {finding.what for finding in report.findings}
    outside = {
        exports.distributions(f"lib{item.name}").get(item.version.major, ""): str(item.version)
        for item in items
        if item.kind == "dynamic-libs" and item.version and not item.wheel
    }
    for entry in known_bad.known_bad(outside | system.versions(), arch=arch, driver=driver):
        if not entry.open_conditions() or f"known to fail: {entry.text}" in said:
            continue
        is_open, text = entry.sentence(arch, driver)
        severity: Severity = "note" if is_open else "error" if entry.seen == "measured" else "warning"
        yield Finding(severity, text, Command(entry.install), "" if entry.install else entry.advice)


def _tile_findings(report: DoctorReport, system: System) -> Iterator[Finding]:
    """Yield what cuda-tile lacks: tileiras, the wheels that tileiras calls, or a tileiras that knows the GPU."""
    installed = system.versions()
    if "cuda-tile" not in installed:
        return
    fix = Command(("cuda-tile[tileiras]",))
    wheels = {name: installed.get(name) for name in _TILE_WHEELS}
    versions = [distribution_version(text or "") for text in wheels.values()]
    releases = {CudaVersion(version.major, version.minor) for version in versions if version}
    if None in versions or len(releases) > 1:
        if system.program("tileiras") is not None:
            return
        text = "cuda-tile is installed, but tileiras, which compiles its kernels, is neither installed nor on the PATH"
        if wheels[_TILE_WHEELS[0]] is not None:
            shown = ", ".join(f"{name} {version or 'is missing'}" for name, version in wheels.items())
            text = f"cuda-tile takes tileiras only with nvcc and NVVM of the same release ({shown})"
        yield Finding("warning", text, fix, kind="machine")
    elif arch := report.driver["arch"]:
        (release,) = releases
        known = atlas.load().tileiras_for(arch)
        if not known:
            text = f"no known tileiras compiles for {arch}, the device here"
            yield Finding("warning", text, otherwise="run no kernel of cuda-tile there", kind="machine")
        elif (since := known[0]) > release:
            text = f"tileiras {release} does not compile for {arch}, the device here; {since} is the first that does"
            yield Finding("warning", text, Command((f"{TILEIRAS}>={since}",)), kind="machine")


def _how_to_prefer(item: Item, copy: Copy) -> str:
    """Return how to make every library load the copy that cuda.pathfinder finds."""
    if copy.role == IN_PROCESS:
        return f"look up {item.name} before anything loads the other copy; LD_PRELOAD is one way to load it first"
    ours, theirs = Path(item.path).parent, Path(copy.path).parent
    return f"put {ours} first in LD_LIBRARY_PATH, or remove {theirs} from it and from /etc/ld.so.conf.d"
