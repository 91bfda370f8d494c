"""Make ``data/exports/``: what each CUDA library exports in every release that has wheels, read from the wheels.

    python -m pytest_cudalink.compat.make_exports

The metapackage ``cuda-toolkit`` says which wheels belong to a release; a library that is numbered like CUDA itself
also has its release in its version. Of each wheel for Linux on x86-64 only so much is fetched and inflated as the
dynamic symbols of its libraries need. A release or wheel that cannot be read is written down, with the reason, as
missing.

The driver's library comes in no wheel: what it exports is in ``emulator/data/functions.toml``, with its sources.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
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

from ..versions import CudaVersion
from .dynamic_symbols import Exports, of_beginning, of_file
from .package_index import IndexedFile, PackageIndexError, RangeFile, default_index, files_of
from .releases import PTX_ISA

__all__ = ["DATA", "LIBRARIES", "main", "make"]

DATA: Final = Path(__file__).parent / "data" / "exports"
_METAPACKAGE: Final = "cuda-toolkit"


@dataclass(frozen=True)
class Library:
    """Where a library is on the index.

    Attributes
    ----------
    distributions : dict
        Package by CUDA major.
    numbered : bool
        Whether its version begins with that of CUDA.
    """

    distributions: dict[int, str]
    numbered: bool = False


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

_Wheels = dict[str, list[IndexedFile]]


def _release(text: str) -> CudaVersion:
    return CudaVersion.parse(text)


def _requirements(index: str) -> dict[CudaVersion, dict[str, list[SpecifierSet]]]:
    """What every version of the metapackage requires: by release, package, oldest version first."""
    found: dict[CudaVersion, dict[str, list[SpecifierSet]]] = {}
    for file in files_of(index, _METAPACKAGE):
        release = CudaVersion(file.version.major, file.version.minor)
        if file.version.is_prerelease or release < min(PTX_ISA):
            continue
        with RangeFile(file) as raw, zipfile.ZipFile(io.BufferedReader(raw)) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            lines = archive.read(name).decode().splitlines()
        packages = found.setdefault(release, {})
        for line in lines:
            if line.startswith("Requires-Dist:"):
                one = Requirement(line.partition(":")[2])
                if one.specifier not in packages.setdefault(one.name, []):
                    packages[one.name].append(one.specifier)
    return found


def _pinned(specifier: SpecifierSet, files: list[IndexedFile], release: CudaVersion) -> list[IndexedFile]:
    """The wheels that a requirement means: of a range the first one, if that is of the release itself."""
    fitting = [file for file in files if specifier.contains(file.version)]
    if any(one.operator == ">=" for one in specifier):
        return [one for one in fitting if (one.version.major, one.version.minor) == release][:1]
    return fitting


def _wheels(
    library: Library, major: int, files: list[IndexedFile], required: dict[CudaVersion, dict[str, list[SpecifierSet]]]
) -> tuple[dict[CudaVersion, list[IndexedFile]], dict[str, str]]:
    """The wheels of each release of a major, oldest first, and the releases without any, with the reason."""
    name = library.distributions[major]
    found: dict[CudaVersion, list[IndexedFile]] = {}
    missing = {}
    for release in sorted({*PTX_ISA, *required}):
        if release.major != major:
            continue
        chosen = {
            one for specifier in required.get(release, {}).get(name, ()) for one in _pinned(specifier, files, release)
        }
        if library.numbered:
            chosen |= {one for one in files if (one.version.major, one.version.minor) == release}
        if chosen:
            found[release] = sorted(chosen, key=lambda file: file.version)
        elif release not in required:
            missing[str(release)] = f"the index has no {_METAPACKAGE} {release}"
        elif name not in required[release]:
            missing[str(release)] = f"{_METAPACKAGE} {release} requires no {name}"
        else:
            wanted = ", ".join(map(str, required[release][name]))
            missing[str(release)] = f"the index has no wheel {name} {wanted}"
    return found, missing


def _per_version(files: list[IndexedFile], machine: str) -> list[IndexedFile]:
    """One wheel of each released version for a machine; one that was withdrawn only if there is no other."""
    found: dict[Version, IndexedFile] = {}
    for file in files:
        if file.fits(machine) and not file.version.is_prerelease and (file.version not in found or not file.yanked):
            found[file.version] = file
    return list(found.values())


def _member(archive: zipfile.ZipFile, stem: str) -> str:
    """The path of a library in a wheel.

    Raises
    ------
    ValueError
        If the wheel does not have it.
    """
    pattern = re.compile(re.escape(stem) + r"\.so\.\d+")
    found = [name for name in archive.namelist() if pattern.fullmatch(PurePosixPath(name).name)]
    found = found or [name for name in archive.namelist() if PurePosixPath(name).name == f"{stem}.so"]
    if len(found) != 1:
        msg = f"the wheel has {len(found)} files {stem}.so"
        raise ValueError(msg)
    return found[0]


def _exports(archive: zipfile.ZipFile, member: str) -> Exports:
    """What one library in a wheel exports, inflating as little of it as possible.

    Raises
    ------
    ValueError
        If it is not a library.
    """
    data = b""
    with archive.open(member) as file:
        for size in (1 << 16, 1 << 18, 1 << 20, 1 << 22):
            data += file.read(size - len(data))
            found = of_beginning(data)
            name = PurePosixPath(member).name
            if found is not None and b"\0" + name.encode() + b"\0" in data:
                return found._replace(soname=name)
        return of_file(io.BytesIO(data + file.read()))


@dataclass(frozen=True)
class Read:
    """What was read from one wheel: exports and path by stem, or why it could not be."""

    found: dict[str, tuple[str, Exports]]
    trouble: dict[str, str]


def _read(file: IndexedFile, stems: tuple[str, ...]) -> Read:
    """Read the libraries of a wheel."""
    found, trouble = {}, {}
    try:
        with RangeFile(file) as raw, zipfile.ZipFile(io.BufferedReader(raw)) as archive:
            for stem in stems:
                try:
                    member = _member(archive, stem)
                    found[stem] = (member, _exports(archive, member))
                except ValueError as error:
                    trouble[stem] = str(error)
            sys.stderr.write(f"{file.name}: {raw.fetched:,} bytes fetched\n")
    except (PackageIndexError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        return Read({}, dict.fromkeys(stems, f"{file.name}: {error}"))
    return Read(found, trouble)


class _Reader:
    """Reads every wheel once, several at a time."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._stems: dict[str, tuple[str, ...]] = defaultdict(tuple)
        for stem, library in LIBRARIES.items():
            for name in library.distributions.values():
                self._stems[name] += (stem,)
        self._reads: dict[str, Any] = {}

    def start(self, name: str, files: list[IndexedFile]) -> None:
        """Read wheels of one package in the background."""
        for file in files:
            if file.name not in self._reads:
                self._reads[file.name] = self._pool.submit(_read, file, self._stems[name])

    def result(self, file: IndexedFile) -> Read:
        """What was read from a wheel."""
        read: Read = self._reads[file.name].result()
        return read


def _changes(wheels: list[IndexedFile], stem: str, reader: _Reader) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """What each wheel exports more and less than the one before it, and the wheels that could not be read."""
    before: frozenset[str] = frozenset()
    nodes: tuple[str, ...] = ()
    where = soname = None
    changes: list[dict[str, Any]] = []
    unread = {}
    for file in wheels:
        read = reader.result(file)
        if stem not in read.found:
            unread[str(file.version)] = read.trouble[stem]
            continue
        member, exports = read.found[stem]
        change: dict[str, Any] = {"wheel": str(file.version)}
        for key, old, new in (
            ("file", where, member),
            ("soname", soname, exports.soname),
            ("nodes", nodes, exports.nodes),
        ):
            if old != new:
                change[key] = new
        where, soname, nodes = member, exports.soname, exports.nodes
        if exports.symbols - before:
            change["added"] = sorted(exports.symbols - before)
        if before - exports.symbols:
            change["removed"] = sorted(before - exports.symbols)
        before = exports.symbols
        if len(change) > 1:
            changes.append(change)
    return changes, unread


def make(index: str, *, jobs: int = 4) -> dict[str, dict[str, Any]]:
    """Return the content of every file of ``data/exports/``, by stem, read from a package index."""
    required = _requirements(index)
    names = sorted({name for library in LIBRARIES.values() for name in library.distributions.values()})
    files: _Wheels = {}
    for name in names:
        try:
            files[name] = files_of(index, name)
        except PackageIndexError as error:
            sys.stderr.write(f"{name}: {error}\n")
            files[name] = []
    result: dict[str, dict[str, Any]] = {}
    with ThreadPoolExecutor(jobs) as pool:
        reader = _Reader(pool)
        plans = {}
        for stem, library in LIBRARIES.items():
            for major, name in library.distributions.items():
                plans[stem, major] = _wheels(library, major, _per_version(files[name], "x86_64"), required)
                reader.start(name, [file for group in plans[stem, major][0].values() for file in group])
        for stem, library in LIBRARIES.items():
            majors = {}
            for major, name in library.distributions.items():
                wheels, missing = plans[stem, major]
                ordered = list(dict.fromkeys(file for group in wheels.values() for file in group))
                changes, unread = _changes(ordered, stem, reader)
                assigned = {file.version for file in ordered}
                majors[str(major)] = {
                    "distribution": name,
                    "numbered": library.numbered,
                    "wheels": {
                        str(release): [str(file.version) for file in group] for release, group in wheels.items()
                    },
                    "unassigned": [
                        str(file.version)
                        for file in _per_version(files[name], "x86_64")
                        if file.version not in assigned
                    ],
                    "missing": missing,
                    "unread": unread,
                    "changes": changes,
                }
            result[stem] = {"library": stem, "majors": majors}
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
    made = make(options.index, jobs=options.jobs)
    options.out.mkdir(parents=True, exist_ok=True)
    code = 0
    for stem, content in made.items():
        (options.out / f"{stem}.json").write_text(_text(content), encoding="utf-8")
        for major, one in content["majors"].items():
            for wheel, why in one["unread"].items():
                sys.stderr.write(f"{stem} of CUDA {major}, wheel {wheel}: {why}\n")
                code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
