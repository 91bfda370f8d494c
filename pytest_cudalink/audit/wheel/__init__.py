"""The audit of a wheel, a folder or a library: dependencies, majors, symbols, and whether the requirements suffice."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from email import message_from_bytes
from functools import partial
from pathlib import Path
from typing import Any

from ...base.finding import Finding, plain
from ...base.tables import grouped
from ...base.words import and_more, counted, listed, plural
from ...compat.exports import release_of_file
from ...compat.libraries import MAJORS, is_foreign, is_unversioned_symbol, majors_of, sought_part, stem_of
from ...compat.releases import drivers_in
from ...environment.installed import AuditError
from ..device_code import ROWS, DeviceCode, code_of
from ..install_targets import InstallTarget, targets_of
from ..loadable import LoadableLibrary, cuda_functions, folder_of, loaded_by, searched
from ..needs import Need, needs_of_scan
from ..opened import is_part
from ..scan import Scan, hinted_major, scan_path, wheel_major
from .declared import Declared, judge_needs, package_brought, read_requirements, requirements_for

#: Its name before all findings had one form.
AuditFinding = Finding


@dataclass(frozen=True)
class Dependency:
    """A CUDA library that the loader needs before a file can be loaded."""

    library: str  # such as "libcudart.so.12"
    majors: tuple[str, ...]  # CUDA majors that have it, of `MAJORS`
    symbols: tuple[str, ...]  # undefined symbols that it must define, with their version: "cudaMalloc@libcudart.so.12"
    bundled: bool  # the wheel contains the library, and the RPATH of the file, or of a file that loads it, leads there
    # a copy in the wheel that no RPATH leads to. Only a program that opens it first uses it, which is not seen.
    unreached: str | None


@dataclass(frozen=True)
class FileAudit:
    """One ELF file."""

    path: str  # inside the wheel or folder
    soname: str | None
    dependencies: tuple[Dependency, ...]
    rpaths: tuple[str, ...]  # of DT_RPATH and DT_RUNPATH, split at colons
    majors: tuple[str, ...]  # CUDA majors that satisfy the file's own dependencies


@dataclass(frozen=True)
class Audit:
    """The audit of a wheel, a folder or one library."""

    path: str
    files: tuple[FileAudit, ...]  # every ELF file that the dynamic loader could load
    # of the kinds "unreadable", "metadata" (no METADATA, several, or an invalid requirement in it), "name" (a substring
    # search takes it for a CUDA library), "rpath" (an absolute folder of the machine that built it), "majors" (no CUDA
    # major satisfies every file), "symbols" (functions of CUDA that no library which the file needs defines, or that no
    # known release exports), "undeclared", "floor", "ceiling" and "pin" (see `pytest_cudalink.audit.wheel.declared`),
    # "inlined" (versioned nvJitLink names that a header inlined), "unprovided" (NVRTC or cuDNN without the parts that
    # it opens), "twice" (another package brings the same library)
    findings: tuple[Finding, ...]
    # CUDA majors, and "none" for no CUDA at all, with which every file can be loaded. A file in a folder or with a name
    # that says its major, such as `cu13/`, counts for that major alone.
    majors: tuple[str, ...]
    needs: tuple[Need, ...] = ()  # what each file needs of which library, and by which evidence
    # requirements to write for each library that is needed from outside, any of which would do, by names
    # such as libnvJitLink (CUDA 12)
    suggestions: dict[str, tuple[str, ...]] = field(default_factory=dict)
    bundled: tuple[str, ...] = ()  # CUDA libraries that the wheel contains
    # that of its libraries and files of device code. JSON has the answer of each driver on each GPU.
    device_code: DeviceCode | None = None

    @property
    def libraries(self) -> dict[str, tuple[str, ...]]:
        """Files that need a library, by library, without the libraries that the wheel contains."""
        pulling = ((need.library, file.path) for file in self.files for need in file.dependencies if not need.bundled)
        return {library: tuple(paths) for library, paths in sorted(grouped(pulling).items())}

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Findings that are not notes."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    def lacking(self, required: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """The required majors that it cannot be loaded with, each with the libraries that are missing there."""
        lacking = {}
        for major in required:
            if major not in MAJORS:
                raise AuditError(f"major {major!r}: expected one of {', '.join(MAJORS)}")
            if major not in self.majors:
                names = {d.library for f in self.files for d in f.dependencies if major not in _usable(d)}
                lacking[major] = tuple(sorted(names))
        return lacking

    def check(self, *required: str, bundles: bool | None = None) -> None:
        """Raise unless it can be loaded with every given major and there are no findings except notes.

        `required`: majors, such as ``"12"``, and ``"none"``.
        `bundles`: False: raise if the wheel contains CUDA libraries. True: raise if it contains none. None: either is
        right.
        Raises AssertionError with a line for each reason.
        """
        reasons = [f"{finding.place}: {finding.what}" for finding in self.errors]
        if bundles is False and self.bundled:
            reasons.append(f"contains CUDA libraries: {', '.join(self.bundled)}")
        if bundles and not self.bundled:
            reasons.append("contains no CUDA library")
        for major, libraries in self.lacking(required).items():
            name = "without CUDA" if major == "none" else f"with CUDA {major}"
            reasons.append(f"cannot be loaded {name}: needs {', '.join(libraries)}")
        if reasons:
            raise AssertionError("\n".join([str(self.path), *(f"  {reason}" for reason in reasons)]))

    def to_json(self) -> dict[str, Any]:
        """The audit as plain data with the same names."""
        code = self.device_code
        content = asdict(replace(self, device_code=None), dict_factory=plain)
        groups = code.to_json(ROWS, drivers_in(">=525"))["groups"] if code else []
        return {**content, "libraries": self.libraries, "device_code": groups}


def audit(path: str | Path) -> Audit:
    """Audit a wheel, a folder with everything below it, or one library.

    Raises AuditError if the path does not exist, is not a wheel, folder or library, or is a folder in which nothing can
    be audited.
    """
    return audit_scan(scan_path(path))


def audit_scan(scan: Scan) -> Audit:
    """Audit what was read. Raises AuditError if there is nothing that can be audited."""
    pure = not (scan.elves or scan.opened or scan.ltoir or scan.findings)
    if pure and not (scan.path.endswith(".whl") and _own_metadata(scan)):
        msg = f"{scan.path}: has no library, nothing that opens CUDA and no METADATA; give a wheel, or a folder of one"
        raise AuditError(msg)
    return _judge(scan)


def _usable(dependency: Dependency) -> tuple[str, ...]:
    return MAJORS if dependency.bundled else dependency.majors


def _judge(scan: Scan) -> Audit:
    places, loaders = scan.resolved
    findings = list(scan.findings)
    files = []
    present = scan.present
    declared = _declared(scan)
    followed = bool(declared) and all(requirements.followed for requirements in declared.values())
    foreign = partial(is_foreign, followed=followed)
    for name, elf in scan.elves.items():
        scan.budget.spend()
        dependencies = tuple(_dependencies(elf, places[name], present))
        majors = tuple(major for major in MAJORS if all(major in _usable(dependency) for dependency in dependencies))
        files.append(FileAudit(name, elf.soname, dependencies, elf.rpaths, majors))
        findings += _findings(name, elf)
        findings += _unprovided(name, scan.elves, places, loaded_by(name, loaders), foreign)
        findings += _misnamed(name, majors, wheel_major(scan.path))
    majors = _common_majors(files)
    if not majors:
        loads = [f"{file.path} loads with {', '.join(file.majors) or 'nothing'}" for file in files if file.dependencies]
        text = f"no CUDA major satisfies every file: {'; '.join(loads)}"
        findings.append(Finding("error", text, place=scan.path, kind="majors"))
    needs = needs_of_scan(scan)
    findings += _unexported(needs)
    findings += _inlined(needs)
    if declared:
        findings += _invalid(scan, next(iter(declared.values())))
        outside = {name: [*filter(foreign, elf.needed)] for name, elf in scan.elves.items()}
        dependent = {name for name, libraries in outside.items() if not present.keys() >= {*libraries}}
        findings += _undeclared(needs, declared, dependent)
    elif needs and scan.path.endswith(".whl"):
        text = f"has {len(_own_metadata(scan)) or 'no'} METADATA; expected one; its requirements were not compared"
        findings.append(Finding("error", f"{text}: build the wheel again", place=scan.path, kind="metadata"))
    called = {name: (name.rpartition("/")[2], elf.soname or "") for name, elf in scan.elves.items()}
    bundled = tuple(name for name, parts in called.items() if any(majors_of(part) is not None for part in parts))
    findings += _without_parts(scan)
    findings += _twice(files, bundled, next(iter(declared.values()), None))
    code = code_of(scan.path, scan.images)
    return Audit(scan.path, tuple(files), tuple(findings), majors, needs, requirements_for(needs), bundled, code)


def _without_parts(scan: Scan) -> Iterator[Finding]:
    """The copies of NVRTC and of cuDNN that do not find the parts which they open by name.

    An error for NVRTC without its builtins, with which nothing compiles; a note for what may run without cuDNN, and
    where the wheel has a part elsewhere, as a program may load it first. Folders of other wheels are not known.
    NVRTC opens nothing where it is loaded together with builtins: it finds their functions by weak symbols, under any
    name of the file (measured: cumm-cu120 0.6.3, whose core_cc is linked with both; its NVRTC alone answers 7). The
    symbols are named after the release, such as ``__nvrtc_builtins__12_9_getBuiltinHeader``; NVRTC of 12.0, 12.4, 12.9,
    13.0 and 13.2 answers 7 beside builtins of each other one.
    """
    for path, opened in scan.opened.items():
        parts = [library.name for library in opened if is_part(stem_of(library.name), path)]
        if not parts or path not in scan.elves or _is_loaded_with_builtins(scan, path, parts[0]):
            continue
        folders = searched(path, scan.elves, loaded_by(path, scan.resolved[1]))
        copies = [name for name in scan.elves if name.rpartition("/")[2].startswith(tuple(parts))]
        if {*map(folder_of, scan.elves)}.issuperset(folders) and not any(folder_of(copy) in folders for copy in copies):
            where = f"and {copies[0]} lies where it does not look" if copies else "which the wheel does not have"
            opens = f"opens {min(parts)}{and_more(len(parts) - 1)} by name, {where}"
            do = "put all parts into its folder, and give it the RPATH $ORIGIN; or require NVIDIA's package instead"
            is_note = copies or stem_of(path.rpartition("/")[2]) == "libcudnn"
            yield Finding("note" if is_note else "error", f"{opens}: {do}", place=path, kind="unprovided")


def _is_loaded_with_builtins(scan: Scan, path: str, part: str) -> bool:
    """Whether every file that a program may open first, to load this NVRTC, loads builtins of its release, too."""
    if not is_part("libnvrtc-builtins", path):
        return False
    release, loaders = release_of_file(part), scan.resolved[1]
    first = {file for file in (path, *loaded_by(path, loaders)) if not loaders[file]}
    copies = [name for name in scan.elves if stem_of(name.rpartition("/")[2]) == "libnvrtc-builtins"]
    fitting = [name for name in copies if release in (None, release_of_file(name) or release)]
    return set() < first <= {file for copy in fitting for file in loaded_by(copy, loaders)}


def _twice(files: list[FileAudit], bundled: Iterable[str], declared: Declared | None) -> Iterator[Finding]:
    """A note for each library that the wheel contains, and that another package brings, too."""
    for name in bundled:
        file_name = name.rpartition("/")[2]
        stem = stem_of(file_name)
        shared = set(majors_of(file_name) or ())
        users = [
            (file.path, dependency.library)
            for file in files
            for dependency in file.dependencies
            if not dependency.bundled and stem_of(dependency.library) == stem and shared & set(dependency.majors)
        ]
        packages = [
            package
            for major in sorted(shared)
            if declared and (package := package_brought(declared, stem, int(major))) is not None
        ]
        if users:
            path, library = users[0]
            why = f"{path} needs {library}{_among(len(users) - 1)} of another package"
        elif packages:
            why = f"its requirements bring {packages[0]}, which has the library, too"
        else:
            continue
        text = f"is a copy of {stem}, and {why}: a process may load both; leave the copy out of the wheel"
        yield Finding("note", text, place=name, kind="twice")


def _among(more: int) -> str:
    return f", as {counted(more, 'other file')} {plural(more, 'does', 'do')}," if more else ""


def _common_majors(files: list[FileAudit]) -> tuple[str, ...]:
    """The majors with which every file can be loaded, or every file except those whose path says another major."""
    hints = {file.path: hinted_major(file.path) for file in files}
    hinted = set(hints.values())

    def fits(file: FileAudit, major: str) -> bool:
        return major in file.majors or (major in hinted and hints[file.path] not in (None, major))

    return tuple(major for major in MAJORS if all(fits(file, major) for file in files))


def _declared(scan: Scan) -> dict[InstallTarget, Declared]:
    """The requirements of the one distribution inside, on each target of the wheel; none for none or several."""
    own = _own_metadata(scan)
    if len(own) != 1:
        return {}
    metadata = scan.metadata[own[0]]
    python = str(message_from_bytes(metadata).get("Requires-Python", ""))
    windows = any(name.lower().endswith((".dll", ".pyd")) for name in scan.elves)
    machines = {elf.machine for elf in scan.elves.values()} - {""}
    machine = machines.pop() if len(machines) == 1 else ""
    targets = targets_of(scan.path, python, windows=windows, machine=machine)
    return {target: read_requirements(metadata, target) for target in targets}


def _undeclared(
    needs: Sequence[Need], declared: Mapping[InstallTarget, Declared], dependent: Collection[str]
) -> Iterator[Finding]:
    """Findings about requirements; one that holds on some targets alone names the first of them."""
    findings = grouped(
        (finding, target)
        for target, requirements in declared.items()
        for finding in judge_needs(needs, requirements, dependent=dependent)
    )
    for finding, targets in findings.items():
        where = "" if len(targets) == len(declared) else f"{targets[0]}: "
        yield replace(finding, what=f"{where}{finding.what}")


def _own_metadata(scan: Scan) -> list[str]:
    """The METADATA files that lie highest; those further down are of packages that a distribution vendors."""
    highest = 1 if scan.path.endswith(".whl") else min((name.count("/") for name in scan.metadata), default=0)
    return [name for name in scan.metadata if name.count("/") == highest]


def _invalid(scan: Scan, declared: Declared) -> Iterator[Finding]:
    for line in declared.invalid:
        if line.lower().startswith(("nvidia", "cuda")):
            shown = line if len(line) <= 80 else f"{line[:80]}..."
            text = f"Requires-Dist is {shown!r}; expected NAME[EXTRAS] SPECIFIER; MARKER: it was not compared"
            yield Finding("error", text, place=_own_metadata(scan)[0], kind="metadata")


def _misnamed(name: str, majors: tuple[str, ...], wheel: str | None) -> Iterator[Finding]:
    for hint, whose in ((hinted_major(name), "its name"), (wheel, "the name of the wheel")):
        if hint is not None and hint not in majors:
            loads = f"loads with CUDA {', '.join(majors)} only" if majors else "loads with no CUDA major"
            yield Finding("error", f"{whose} says CUDA {hint}, and it {loads}", place=name, kind="majors")
            return


def _unexported(needs: Iterable[Need]) -> Iterator[Finding]:
    """Findings about symbols that no known release of their library exports."""
    for need in needs:
        if need.unknown:
            text = f"wants {listed(need.unknown, 3)} of {need.stem}, which no known release exports"
            windows = need.path.lower().endswith((".dll", ".pyd"))  # the known names are those of Linux
            yield Finding("note" if windows else "error", text, place=need.path, kind="symbols")


def _inlined(needs: Iterable[Need]) -> Iterator[Finding]:
    for need in needs:
        if need.inlined:
            names = ", ".join(need.inlined[:3])
            text = f"wants {names}, which <nvJitLink.h> inlines: define NVJITLINK_NO_INLINE when compiling"
            yield Finding("note", text, place=need.path, kind="inlined")


def _dependencies(elf: LoadableLibrary, places: Mapping[str, str], present: Mapping[str, str]) -> Iterator[Dependency]:
    for library in elf.needed:
        majors = majors_of(library)
        if majors is None:
            continue
        symbols = tuple(
            f"{symbol}@{version}" if version else symbol
            for symbol, file, version in elf.undefined
            if file == library or (not file and is_unversioned_symbol(library, symbol))
        )
        bundled = library in places
        yield Dependency(library, majors, symbols, bundled, None if bundled else present.get(library))


def _unprovided(
    name: str,
    elves: Mapping[str, LoadableLibrary],
    places: Mapping[str, Mapping[str, str]],
    above: list[str],
    foreign: Callable[[str], bool],
) -> Iterator[Finding]:
    """Findings about functions of CUDA that the loader cannot find.

    Any library that the file or its loaders need may define them. There is no finding where one of these is a library
    outside the wheel, such as libtorch.so, which may load CUDA's.
    """
    wanted = elves[name].wanted
    if not wanted:
        return
    scope = [name, *above]
    for file in scope:
        scope += set(places[file].values()).difference(scope)
    outside = {library for file in scope for library in elves[file].needed if library not in places[file]}
    if any(map(foreign, outside)):
        return
    stems = {stem_of(library) for library in outside}
    defined = {symbol for file in scope for symbol in elves[file].defined}
    missing = sorted(symbol for symbol in wanted if symbol not in defined and cuda_functions()[symbol] not in stems)
    if missing:
        text = f"calls {listed(missing, 3)}, and needs no library that has it: link it with CUDA's or a stub"
        yield Finding("error", text, place=name, kind="symbols")


def _findings(name: str, elf: LoadableLibrary) -> Iterator[Finding]:
    for given in {name.rpartition("/")[2], elf.soname or ""}:
        sought = sought_part(given)
        if sought and majors_of(given) is None:
            why = "so that a search for a part of CUDA's name finds it"
            text = f"{given} is not CUDA's library, but its name contains {sought!r}, {why}: rename it"
            yield Finding("error", text, place=name, kind="name")
    folders = [folder for folder in elf.rpaths if folder.startswith("/")]
    if folders:
        text = f"RPATH names {listed(folders, 3)}, of the machine that built it: use $ORIGIN"
        yield Finding("note", text, place=name, kind="rpath")
