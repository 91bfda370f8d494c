"""Make ``data/exports/``: what each CUDA library exports in every release that has wheels, read from the wheels.

    python -m tools.make_exports

The metapackage ``cuda-toolkit`` says which wheels belong to a release; a library that is numbered like CUDA itself
also has its release in its version. A wheel that no toolkit requires belongs to the release of the wheel before it.
Of each wheel for Linux on x86-64 only so much is fetched and inflated as the dynamic symbols of its libraries need:
64 KiB, or the whole library where a tool has moved its strings to the end. What the folder has already is not read
again: an empty folder as ``--out`` gets every wheel read. A release or wheel that cannot be read is
written down, with the reason. C++ names (``_Z…``) are left out: they are not meant to be called by others, and the
symbols of templates come and go with the compiler. The newest wheel of each major is compared with that for aarch64.

The driver's library comes in no wheel: what it exports is in ``data/emulator/functions.toml``, with its sources.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from pytest_cudalink.compat.exports import DATA
from pytest_cudalink.compat.releases import PTX_ISA
from pytest_cudalink.versions import CudaVersion

from .dynamic_symbols import Exports, of_beginning, of_file
from .package_index import IndexedFile, PackageIndexError, RangeFile, default_index, files_of, metadata_of

_METAPACKAGE: Final = "cuda-toolkit"


@dataclass(frozen=True)
class Library:
    """Where a library is on the index."""

    distributions: dict[int, str]  # package by CUDA major
    numbered: bool = False  # whether its version begins with that of CUDA


def _library(name: str, newer: str | None = None, *, numbered: bool = False) -> Library:
    return Library({12: f"nvidia-{name}-cu12", 13: f"nvidia-{newer or name}"}, numbered)


#: Every library, by the stem of its file name. Those of one wheel stand together.
LIBRARIES: Final = {
    "libcudart": _library("cuda-runtime", numbered=True),
    "libnvrtc": _library("cuda-nvrtc", numbered=True),
    "libnvJitLink": _library("nvjitlink", numbered=True),
    "libnvvm": _library("cuda-nvcc", "nvvm", numbered=True),
    "libnvfatbin": _library("nvfatbin", numbered=True),
    "libcublas": _library("cublas"),
    "libcublasLt": _library("cublas"),
    "libnvblas": _library("cublas"),
    "libcusolver": _library("cusolver"),
    "libcusolverMg": _library("cusolver"),
    "libcusparse": _library("cusparse"),
    "libcufft": _library("cufft"),
    "libcufftw": _library("cufft"),
    "libcurand": _library("curand"),
    "libcufile": _library("cufile"),
    "libcufile_rdma": _library("cufile"),
}

#: What the metapackage of a release requires of each package.
_Required = dict[CudaVersion, dict[str, list[SpecifierSet]]]


def _requirements(index: str) -> _Required:
    """What every version of the metapackage requires: by release, package, oldest version first."""
    required: _Required = {}
    for file in files_of(index, _METAPACKAGE):
        release = CudaVersion(file.version.major, file.version.minor)
        if file.version.is_prerelease or release < min(PTX_ISA):
            continue
        lines = metadata_of(file).decode().splitlines()
        packages = required.setdefault(release, {})
        for line in lines:
            if line.startswith("Requires-Dist:"):
                requirement = Requirement(line.partition(":")[2])
                if requirement.specifier not in packages.setdefault(requirement.name, []):
                    packages[requirement.name].append(requirement.specifier)
    return required


def _pinned(specifier: SpecifierSet, files: list[IndexedFile], release: CudaVersion) -> list[IndexedFile]:
    """The wheels that a requirement means: of a range the first one, if that is of the release itself."""
    fitting = [file for file in files if specifier.contains(file.version)]
    if any(bound.operator == ">=" for bound in specifier):
        return [file for file in fitting if (file.version.major, file.version.minor) == release][:1]
    return fitting


@dataclass(frozen=True)
class Plan:
    """The wheels of a library in one major."""

    wheels: dict[CudaVersion, list[IndexedFile]]  # by release, oldest first
    # versions that no toolkit requires, and that belong to the release of the wheel before them
    inferred: tuple[str, ...]
    unassigned: tuple[str, ...]  # versions whose release is unknown
    missing: dict[str, str]  # why a release has no wheel


def _plan(library: Library, major: int, files: list[IndexedFile], required: _Required) -> Plan:
    """Find the wheels of each release of a major among the files of the package."""
    name = library.distributions[major]
    releases = [release for release in sorted({*PTX_ISA, *required}) if release.major == major]
    by_release: dict[CudaVersion, list[IndexedFile]] = {}
    missing = {}
    for release in releases:
        specifiers = required.get(release, {}).get(name, [])
        chosen = [file for specifier in specifiers for file in _pinned(specifier, files, release)]
        if library.numbered:
            chosen += [file for file in files if (file.version.major, file.version.minor) == release]
        if chosen:
            by_release[release] = list(dict.fromkeys(chosen))
        elif release not in required:
            missing[str(release)] = f"the index has no {_METAPACKAGE} {release}"
        elif not specifiers:
            missing[str(release)] = f"{_METAPACKAGE} {release} requires no {name}"
        else:
            missing[str(release)] = f"the index has no wheel {name}{' or '.join(map(str, specifiers))}"
    assigned = {file: release for release, group in by_release.items() for file in group}
    inferred, unassigned = [], []
    for file in files:
        if file in assigned:
            continue
        older = [release for other, release in assigned.items() if other.version < file.version]
        last = all(other.version < file.version for other in assigned)
        # after the last wheel of the newest major comes that of a release which is not known yet
        if older and not (last and major == max(library.distributions)):
            by_release[max(older)].append(file)
            inferred.append(str(file.version))
        else:
            unassigned.append(str(file.version))
    ordered = {release: sorted(group, key=lambda file: file.version) for release, group in by_release.items()}
    return Plan(ordered, tuple(inferred), tuple(unassigned), missing)


def _per_version(files: list[IndexedFile], machine: str) -> list[IndexedFile]:
    """One wheel of each released version for a machine; one that was withdrawn only if there is no other."""
    by_version: dict[Version, IndexedFile] = {}
    for file in files:
        if (
            file.fits(machine)
            and not file.version.is_prerelease
            and (file.version not in by_version or not file.yanked)
        ):
            by_version[file.version] = file
    return list(by_version.values())


def _member(archive: zipfile.ZipFile, stem: str) -> str:
    """The path of a library in a wheel. Raises ValueError if the wheel does not have it."""
    pattern = re.compile(re.escape(stem) + r"\.so\.\d+")
    members = [name for name in archive.namelist() if pattern.fullmatch(PurePosixPath(name).name)]
    members = members or [name for name in archive.namelist() if PurePosixPath(name).name == f"{stem}.so"]
    if len(members) != 1:
        raise ValueError(f"the wheel has {len(members)} files {stem}.so")
    return members[0]


def _exports(archive: zipfile.ZipFile, member: str) -> Exports:
    """What one library in a wheel exports, inflating as little of it as possible.

    Raises ValueError if it is not a library.
    """
    data = b""
    with archive.open(member) as file:
        for size in (1 << 16, 1 << 18, 1 << 20, 1 << 22):
            data += file.read(size - len(data))
            exports = of_beginning(data, PurePosixPath(member).name)
            if exports is not None:
                return exports
        with tempfile.TemporaryFile() as whole:
            whole.write(data)
            shutil.copyfileobj(file, whole, 1 << 20)
            return of_file(whole)


@dataclass(frozen=True)
class Read:
    """What was read from one wheel: exports and path by stem, or why it could not be."""

    exports: dict[str, tuple[str, Exports]]
    trouble: dict[str, str]


def _read(file: IndexedFile, stems: tuple[str, ...]) -> Read:
    """Read the libraries of a wheel."""
    read, trouble = {}, {}
    try:
        with RangeFile(file) as raw, zipfile.ZipFile(io.BufferedReader(raw)) as archive:
            for stem in stems:
                try:
                    member = _member(archive, stem)
                    read[stem] = (member, _exports(archive, member))
                except ValueError as error:
                    trouble[stem] = str(error)
            sys.stderr.write(f"{file.name}: {raw.fetched:,} bytes fetched\n")
    except (PackageIndexError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        return Read({}, dict.fromkeys(stems, f"{file.name}: {error}"))
    return Read(read, trouble)


def _known(content: dict[str, Any]) -> dict[str, tuple[str, Exports]]:
    """Path and exports of a library, without C++ names, by version of the wheels that one major of a file has."""
    by_version: dict[str, tuple[str, Exports]] = {}
    changes = {change["wheel"]: change for change in content["changes"]}
    names: frozenset[str] = frozenset()
    properties: dict[str, Any] = {}
    for version in dict.fromkeys(version for group in content["wheels"].values() for version in group):
        if version not in content["unread"]:
            properties |= changes.get(version, {})
            change = changes.get(version, {})
            names = names.union(change.get("added", ())).difference(change.get("removed", ()))
            exports = Exports(names, tuple(properties.get("nodes", ())), properties["soname"])
            by_version[version] = properties["file"], exports
    return by_version


class _Reader:
    """Reads every wheel once, several at a time, and takes those that the files know from there."""

    def __init__(self, pool: ThreadPoolExecutor, known: dict[str, dict[str, Any]]) -> None:
        self._pool = pool
        self._known: dict[tuple[str, str], dict[str, tuple[str, Exports]]] = defaultdict(dict)
        for stem, content in known.items():
            for major in content["majors"].values():
                for version, read in _known(major).items():
                    self._known[major["distribution"], version][stem] = read
        self._stems: dict[str, tuple[str, ...]] = defaultdict(tuple)
        for stem, library in LIBRARIES.items():
            for name in library.distributions.values():
                self._stems[name] += (stem,)
        self._reads: dict[str, Any] = {}

    def start(self, name: str, files: list[IndexedFile]) -> None:
        """Read wheels of one package in the background."""
        for file in files:
            known = self._known.get((name, str(file.version)), {}) if file.fits("x86_64") else {}
            if file.name not in self._reads:
                missing = tuple(stem for stem in self._stems[name] if stem not in known)
                self._reads[file.name] = known, self._pool.submit(_read, file, missing) if missing else None

    def result(self, file: IndexedFile) -> Read:
        """What was read from a wheel."""
        known, reading = self._reads[file.name]
        read = reading.result() if reading else Read({}, {})
        return Read(known | read.exports, read.trouble)


def _c_names(exports: Exports) -> frozenset[str]:
    """The symbols without those of C++."""
    return frozenset(name for name in exports.symbols if not name.startswith("_Z"))


def _difference(before: frozenset[str], after: frozenset[str]) -> dict[str, list[str]]:
    """What was added and what was removed, without empty lists."""
    both = {"added": sorted(after - before), "removed": sorted(before - after)}
    return {key: names for key, names in both.items() if names}


def _changes(wheels: list[IndexedFile], stem: str, reader: _Reader) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """What each wheel exports more and less than the one before it, and why wheels could not be read."""
    before: frozenset[str] = frozenset()
    properties: dict[str, Any] = {"nodes": []}
    changes: list[dict[str, Any]] = []
    unread = {}
    for file in wheels:
        read = reader.result(file)
        if stem not in read.exports:
            unread[str(file.version)] = read.trouble[stem]
            continue
        member, exports = read.exports[stem]
        now = {"file": member, "soname": exports.soname, "nodes": list(exports.nodes)}
        change = {key: value for key, value in now.items() if properties.get(key) != value}
        change |= _difference(before, _c_names(exports))
        if change:
            changes.append({"wheel": str(file.version), **change})
        before, properties = _c_names(exports), now
    return changes, unread


def _aarch64(newest: IndexedFile, other: IndexedFile, stem: str, reader: _Reader) -> dict[str, Any]:
    """What the same wheel for aarch64 exports more and less."""
    ours, theirs = reader.result(newest), reader.result(other)
    if stem not in ours.exports or stem not in theirs.exports:
        return {"wheel": str(other.version), "unread": theirs.trouble.get(stem, "no wheel for x86_64 to compare with")}
    difference = _difference(_c_names(ours.exports[stem][1]), _c_names(theirs.exports[stem][1]))
    return {"wheel": str(other.version), **difference}


def make(index: str, *, jobs: int = 4, known: dict[str, dict[str, Any]] | None = None) -> dict[str, dict[str, Any]]:
    """Return the content of every file of ``data/exports/``, by stem, read from a package index.

    Wheels in `known`, which is such a content, are not read again.
    """
    known = known or {}
    required = _requirements(index)
    files: dict[str, list[IndexedFile]] = {}
    for name in sorted({name for library in LIBRARIES.values() for name in library.distributions.values()}):
        try:
            files[name] = files_of(index, name)
        except PackageIndexError as error:
            sys.stderr.write(f"{name}: {error}\n")
            files[name] = []
    result: dict[str, dict[str, Any]] = {stem: {"library": stem, "majors": {}} for stem in LIBRARIES}
    with ThreadPoolExecutor(jobs) as pool:
        reader = _Reader(pool, known)
        plans = {}
        for stem, library in LIBRARIES.items():
            for major, name in library.distributions.items():
                plan = _plan(library, major, _per_version(files[name], "x86_64"), required)
                wheels = list(dict.fromkeys(file for group in plan.wheels.values() for file in group))
                same = {file.version: file for file in _per_version(files[name], "aarch64")}
                pair = [(file, same[file.version]) for file in wheels if file.version in same][-1:]
                before = known.get(stem, {"majors": {}})["majors"].get(str(major), {"aarch64": []})["aarch64"]
                if [change["wheel"] for change in before] != [str(other.version) for _, other in pair]:
                    before = []
                plans[stem, major] = plan, wheels, pair, before
                reader.start(name, [*wheels, *(other for _, other in pair if not before)])
        for (stem, major), (plan, wheels, pair, before) in plans.items():
            changes, unread = _changes(wheels, stem, reader)
            result[stem]["majors"][str(major)] = {
                "distribution": LIBRARIES[stem].distributions[major],
                "numbered": LIBRARIES[stem].numbered,
                "wheels": {
                    str(release): [str(file.version) for file in group] for release, group in plan.wheels.items()
                },
                "inferred": list(plan.inferred),
                "unassigned": list(plan.unassigned),
                "missing": plan.missing,
                "unread": unread,
                "aarch64": before or [_aarch64(newest, other, stem, reader) for newest, other in pair],
                "changes": changes,
            }
    return result


def _text(content: dict[str, Any]) -> str:
    """A file of the data: one symbol a line, so that a change is seen."""
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Write the files; exit code 1 if a wheel could not be read."""
    parser = argparse.ArgumentParser(description="Read from wheels what each CUDA library exports.")
    parser.add_argument("--index", default=default_index(), help="simple API of a package index (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=DATA, help="folder to write (default: the package's)")
    parser.add_argument("--jobs", type=int, default=4, help="wheels that are read at a time")
    options = parser.parse_args(arguments)
    files = [options.out / f"{stem}.json" for stem in LIBRARIES]
    known = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files if file.exists()}
    made = make(options.index, jobs=options.jobs, known=known)
    options.out.mkdir(parents=True, exist_ok=True)
    code = 0
    for stem, content in made.items():
        (options.out / f"{stem}.json").write_text(_text(content), encoding="utf-8")
        for major, exported in content["majors"].items():
            for wheel, why in exported["unread"].items():
                sys.stderr.write(f"{stem} of CUDA {major}, wheel {wheel}: {why}\n")
                code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
