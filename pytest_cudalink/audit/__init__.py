"""The audit: which CUDA libraries a wheel needs to be loaded, and which CUDA majors it can therefore load with.

Reads ELF files with pyelftools and opens none of them as a library. What counts is what the dynamic loader asks for
before a program runs: needed libraries and symbol versions. Libraries that a program opens itself, as the stubs do,
are no dependency.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import IO, Any, Final

from ..stubs.catalog import load_catalog

__all__ = ["MAJORS", "Audit", "AuditError", "Dependency", "FileAudit", "Finding", "audit"]

#: The CUDA majors that are told apart, and a machine without any CUDA library.
MAJORS: Final = ("11", "12", "13", "none")

_ANY = ("11", "12", "13")
#: The number in the SONAME begins with the CUDA major, as in libcudart.so.11.0, libcupti.so.11.7 and libcudart.so.12.
_SAME: Final[dict[str, tuple[str, ...]]] = {major: (major,) for major in _ANY}
#: CUDA majors by library and the version in its SONAME, from the wheels of CUDA 11.8, 12.9 and 13.0. A library with
#: None has the same SONAME in each of them (or belongs to the driver, or to a product with versions of its own).
_LIBRARIES: Final[dict[str, dict[str, tuple[str, ...]] | None]] = {
    "libcuda": None,
    "libcudart": _SAME,
    "libnvrtc": _SAME,
    "libnvrtc-builtins": _SAME,
    "libnvJitLink": _SAME,
    "libnvfatbin": _SAME,
    "libnvvm": None,
    "libcublas": _SAME,
    "libcublasLt": _SAME,
    "libnvblas": _SAME,
    "libcufft": {"10": ("11",), "11": ("12",), "12": ("13",)},
    "libcufftw": {"10": ("11",), "11": ("12",), "12": ("13",)},
    "libcurand": None,
    "libcusolver": {"11": ("11", "12"), "12": ("13",)},
    "libcusolverMg": {"11": ("11", "12"), "12": ("13",)},
    "libcusparse": {"11": ("11",), "12": ("12", "13")},
    "libnvjpeg": _SAME,
    "libcupti": _SAME,
    "libcuinj64": _SAME,
    "libaccinj64": _SAME,
    "libcheckpoint": None,
    "libpcsamplingutil": None,
    "libnvToolsExt": {"1": ("11", "12")},
    "libnvtx3interop": None,
    "libnvcuvid": None,
    "libcudla": None,
    "libnccl": None,
}
#: The same for libraries that come in several parts, or with variants, by how their names begin.
_FAMILIES: Final[dict[str, dict[str, tuple[str, ...]] | None]] = {
    "libnpp": _SAME,
    "libnvidia-": None,
    "libnvperf_": None,
    "libnvcomp": None,
    "libnvshmem": None,
    "libcudnn": None,
    "libcudss": None,
    "libcufile": None,
    "libcutensor": None,
    "libcublasMp": None,
    "libcufftMp": None,
    "libcusolverMp": None,
    "libcusparseLt": None,
}
_NAME = re.compile(
    r"^(?P<stem>lib(?:nvidia-[a-z]+|\w+?(?:-builtins)?))(?:\.alt)?(?:-[0-9a-f]{6,})?\.so(?:\.(?P<version>[\d.]+))?$"
)
#: Libraries that have no CUDA function: the system's, the compilers' and Python's.
_SYSTEM = re.compile(
    r"(?:lib(?:c|m|dl|rt|pthread|util|resolv|gcc_s|stdc\+\+|c\+\+|c\+\+abi|atomic|gomp|omp|z|python3[\d.]*)|ld-\S+)"
    r"(?:-[0-9a-f]{6,})?\.so[\d.]*"
)
#: What other programs look for by part of a name, in /proc/self/maps and in folders.
_SOUGHT = ("libcudart", "libnvrtc", "libnvJitLink", "libcuda.so")
#: Symbols of libraries that have no symbol versions.
_UNVERSIONED = {"libcuda": re.compile(r"cu[A-Z]\w+"), "libnvidia-ml": re.compile(r"nvml[A-Z]\w+")}


class AuditError(ValueError):
    """There is nothing to audit at the path; says what was found."""


@dataclass(frozen=True)
class Dependency:
    """A CUDA library that the loader needs before a file can be loaded.

    Attributes
    ----------
    library : str
        Such as ``"libcudart.so.12"``.
    majors : tuple of str
        CUDA majors that have it, of `MAJORS`.
    symbols : tuple of str
        Undefined symbols that are wanted of it, with their version: ``"cudaMalloc@libcudart.so.12"``.
    bundled : bool
        The wheel brings the library along, and the file's RPATH, or that of what loads it, leads there.
    unreached : str or None
        A copy in the wheel that no RPATH leads to. It counts only for a program that opens it first, which is not seen.
    """

    library: str
    majors: tuple[str, ...]
    symbols: tuple[str, ...]
    bundled: bool
    unreached: str | None


@dataclass(frozen=True)
class FileAudit:
    """One ELF file.

    Attributes
    ----------
    path : str
        Inside the wheel or folder.
    soname : str or None
    dependencies : tuple of Dependency
    rpaths : tuple of str
        Of DT_RPATH and DT_RUNPATH, split at colons.
    majors : tuple of str
        What this file can be loaded with, as far as its own dependencies say.
    """

    path: str
    soname: str | None
    dependencies: tuple[Dependency, ...]
    rpaths: tuple[str, ...]
    majors: tuple[str, ...]


@dataclass(frozen=True)
class Finding:
    """Something that should be repaired: the file, the kind and a sentence.

    Kinds: ``"unreadable"``, ``"name"`` (a substring search takes it for a CUDA library), ``"rpath"`` (an absolute
    folder of the machine that built it), ``"majors"`` (no CUDA major satisfies every file), ``"symbols"`` (functions of
    CUDA that nothing which the file needs can have).
    """

    path: str
    kind: str
    text: str


@dataclass(frozen=True)
class Audit:
    """What was found in a wheel, a folder or one library.

    Attributes
    ----------
    path : str
    files : tuple of FileAudit
        Every ELF file that the dynamic loader could load.
    findings : tuple of Finding
    majors : tuple of str
        CUDA majors, and ``"none"`` for no CUDA at all, with which every file can be loaded.
    """

    path: str
    files: tuple[FileAudit, ...]
    findings: tuple[Finding, ...]
    majors: tuple[str, ...]

    @property
    def libraries(self) -> dict[str, tuple[str, ...]]:
        """Files that pull a library in, by library, without what the wheel brings along."""
        pulled: dict[str, list[str]] = {}
        for file in self.files:
            for dependency in file.dependencies:
                if not dependency.bundled:
                    pulled.setdefault(dependency.library, []).append(file.path)
        return {library: tuple(paths) for library, paths in sorted(pulled.items())}

    def lacking(self, required: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """The required majors that it cannot be loaded with, each with the libraries that stand in the way."""
        lacking = {}
        for major in required:
            if major not in MAJORS:
                msg = f"major {major!r}: expected one of {', '.join(MAJORS)}"
                raise AuditError(msg)
            if major not in self.majors:
                lacking[major] = tuple(
                    sorted({d.library for f in self.files for d in f.dependencies if major not in _usable(d)})
                )
        return lacking

    def check(self, *required: str) -> None:
        """Raise unless it can be loaded with every major given and nothing was found to repair.

        Raises
        ------
        AssertionError
            With a line for each reason.
        """
        reasons = [f"{finding.path}: {finding.text}" for finding in self.findings]
        for major, libraries in self.lacking(required).items():
            name = "without CUDA" if major == "none" else f"with CUDA {major}"
            reasons.append(f"cannot be loaded {name}: needs {', '.join(libraries)}")
        if reasons:
            raise AssertionError("\n".join([str(self.path), *(f"  {reason}" for reason in reasons)]))

    def to_json(self) -> dict[str, Any]:
        """Plain data, with the same names."""
        return {**asdict(self), "libraries": self.libraries}


def audit(path: str | Path) -> Audit:
    """Audit a wheel, a folder with everything below it, or one library.

    Raises
    ------
    AuditError
        If the path is not there, is no wheel, folder or ELF file, or has no ELF file in it.
    """
    path = Path(path)
    if path.is_dir():
        members = _folder(path)
    elif path.suffix == ".whl" or zipfile.is_zipfile(path):
        members = _wheel(path)
    elif path.is_file():
        members = _single(path)
    else:
        msg = f"{path}: there is no such file; give a wheel, a folder or a shared library"
        raise AuditError(msg)
    read: list[tuple[str, _Elf]] = []
    findings: list[Finding] = []
    for name, opened in members:
        try:
            with opened() as stream:
                found = _read_elf(stream)
        except Exception as error:  # noqa: BLE001 (pyelftools and zipfile raise whatever a damaged file leads them to)
            text = f"cannot be read: {type(error).__name__}: {error}"
            findings.append(Finding(name, "unreadable", text))
            continue
        if found is not None:
            read.append((name, found))
    if not read and not findings:
        msg = f"{path}: no shared library in it: a pure Python package, or not a wheel"
        raise AuditError(msg)
    return _judge(path, read, findings)


def _usable(dependency: Dependency) -> tuple[str, ...]:
    return MAJORS if dependency.bundled else dependency.majors


def _judge(path: Path, read: list[tuple[str, _Elf]], findings: list[Finding]) -> Audit:
    elves = dict(read)
    found, loaders = _resolve(elves)
    present = {elf.soname: name for name, elf in read if elf.soname}
    present |= {name.rpartition("/")[2]: name for name in elves}
    files = []
    for name, elf in read:
        dependencies = tuple(_dependencies(elf, found[name], present))
        majors = tuple(major for major in MAJORS if all(major in _usable(one) for one in dependencies))
        files.append(FileAudit(name, elf.soname, dependencies, elf.rpaths, majors))
        findings += _findings(name, elf)
        findings += _unprovided(name, elves, found, _above(name, loaders))
    majors = tuple(major for major in MAJORS if all(major in file.majors for file in files))
    if not majors:
        needs = "; ".join(
            f"{file.path} loads with {', '.join(file.majors) or 'nothing'}" for file in files if file.dependencies
        )
        findings.append(Finding(str(path), "majors", f"no CUDA major satisfies every file: {needs}"))
    return Audit(str(path), tuple(files), tuple(findings), majors)


def _resolve(elves: Mapping[str, _Elf]) -> tuple[dict[str, dict[str, str]], dict[str, set[str]]]:
    """By file, the files of the wheel that the dynamic loader takes for the libraries that it needs, and the reverse.

    A file's RUNPATH counts for itself; where it has none, its own RPATH and that of everything that loads it. What has
    been loaded for those is there for it too. What a program opens before is not seen.
    """
    places: dict[tuple[str, str | None], str] = {}
    for path, elf in elves.items():  # a folder's links are not read: they are called as the SONAME
        places[_folder_of(path), elf.soname] = path
    for path in elves:
        places[_folder_of(path), path.rpartition("/")[2]] = path
    found: dict[str, dict[str, str]] = {path: {} for path in elves}
    loaders: dict[str, set[str]] = {path: set() for path in elves}
    changed = True
    while changed:
        changed = False
        for path, elf in elves.items():
            above = _above(path, loaders)
            folders = _folders(path, elf.runpath or elf.rpath)
            if not elf.runpath:
                folders += [f for one in above if not elves[one].runpath for f in _folders(one, elves[one].rpath)]
            for library in set(elf.needed) - set(found[path]):
                hits = [places[folder, library] for folder in folders if (folder, library) in places]
                hits += [found[one][library] for one in above if library in found[one]]
                if hits:
                    found[path][library] = hits[0]
                    loaders[hits[0]].add(path)
                    changed = True
    return found, loaders


def _folder_of(path: str) -> str:
    """The folder that a file of a wheel is put into, below site-packages."""
    return posixpath.dirname(re.sub(r"^[^/]+\.data/(?:purelib|platlib)/", "", path)) or "."


def _folders(path: str, rpaths: tuple[str, ...]) -> list[str]:
    """What RPATHs mean that are relative to the file."""
    matches = [re.fullmatch(r"\$(?:ORIGIN|\{ORIGIN\})(?:/(.*))?", rpath) for rpath in rpaths]
    return [posixpath.normpath(posixpath.join(_folder_of(path), match[1] or "")) for match in matches if match]


def _above(path: str, loaders: Mapping[str, set[str]]) -> list[str]:
    """Every file that brings this one in, also by way of others; the nearest first."""
    above = [path]
    for one in above:
        above += sorted(loaders[one].difference(above))
    return above[1:]


def _dependencies(elf: _Elf, found: Mapping[str, str], present: Mapping[str, str]) -> Iterator[Dependency]:
    for library in elf.needed:
        majors = _majors(library)
        if majors is None:
            continue
        stem = _stem(library)
        pattern = _UNVERSIONED.get(stem)
        symbols = tuple(
            f"{symbol}@{version}" if version else symbol
            for symbol, file, version in elf.undefined
            if file == library or (not file and pattern and pattern.fullmatch(symbol))
        )
        bundled = library in found
        yield Dependency(library, majors, symbols, bundled, None if bundled else present.get(library))


@cache
def _functions() -> dict[str, str]:
    """The functions of CUDA that every program calls some of, with the library that has each."""
    libraries = load_catalog().libraries.values()
    return {function.symbol: library.stem for library in libraries for function in library.functions}


def _unprovided(
    name: str, elves: Mapping[str, _Elf], found: Mapping[str, Mapping[str, str]], above: list[str]
) -> Iterator[Finding]:
    """Functions of CUDA that the loader cannot find, as far as the wheel itself tells.

    They may be in anything that the file needs, or that is needed by what loads it. Nothing is said where one of those
    is a library that is not in the wheel, such as libtorch.so, which may bring CUDA's along.
    """
    wanted = elves[name].wanted
    if not wanted:
        return
    scope = [name, *above]
    for one in scope:
        scope += sorted(set(found[one].values()).difference(scope))
    outside = {library for one in scope for library in elves[one].needed if library not in found[one]}
    if any(_majors(library) is None and not _SYSTEM.fullmatch(library) for library in outside):
        return
    stems = {_stem(library) for library in outside}
    defined = {symbol for one in scope for symbol in elves[one].defined}
    missing = sorted(symbol for symbol in wanted if symbol not in defined and _functions()[symbol] not in stems)
    if missing:
        some = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        yield Finding(name, "symbols", f"calls {some}, and needs no library that has it: link it with CUDA's or a stub")


def _stem(library: str) -> str:
    match = _NAME.match(library)
    return match["stem"] if match else library


def _majors(library: str) -> tuple[str, ...] | None:
    """The CUDA majors that have a library; None if it is not one of CUDA's."""
    match = _NAME.match(library)
    if match is None:
        return None
    stem, version = match["stem"], match["version"] or ""
    family = next((family for family in _FAMILIES if stem.startswith(family)), None)
    if stem in _LIBRARIES:
        table = _LIBRARIES[stem]
    elif family:
        table = _FAMILIES[family]
    else:
        return None
    if table is None or not version:
        return _ANY
    # a whole version, as in libcudart-d0da41ae.so.12.9.79, belongs to the SONAME that it begins with
    return next((majors for known, majors in table.items() if f"{version}.".startswith(f"{known}.")), ())


def _findings(name: str, elf: _Elf) -> Iterator[Finding]:
    for given in {name.rpartition("/")[2], elf.soname or ""}:
        sought = next((part for part in _SOUGHT if part in given), None)
        if sought and _majors(given) is None:
            text = f"{given} is not CUDA's library, but searches for {sought!r} as part of a name find it: rename it"
            yield Finding(name, "name", text)
    for folder in elf.rpaths:
        if folder.startswith("/"):
            text = f"RPATH {folder} is a folder of the machine that built it: use $ORIGIN"
            yield Finding(name, "rpath", text)


# ---- reading ----


@dataclass(frozen=True)
class _Elf:
    soname: str | None
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    #: name, file and version of what is wanted of that file; the latter two are empty without symbol versions
    undefined: tuple[tuple[str, str, str], ...]
    #: functions of CUDA that it calls, without those that may be missing (weak ones), and that it has
    wanted: frozenset[str]
    defined: frozenset[str]

    @property
    def rpaths(self) -> tuple[str, ...]:
        return self.rpath + self.runpath


def _read_elf(stream: IO[bytes]) -> _Elf | None:
    """What the dynamic loader sees; None for files that it would not load (other files, object files, programs)."""
    from elftools.elf.dynamic import DynamicSegment
    from elftools.elf.elffile import ELFFile

    if not _is_elf(stream):
        return None
    elf = ELFFile(stream)
    dynamic = next((segment for segment in elf.iter_segments() if isinstance(segment, DynamicSegment)), None)
    if dynamic is None:
        return None
    soname: str | None = None
    needed: list[str] = []
    rpath: list[str] = []
    runpath: list[str] = []
    tag: Any  # its attributes depend on what it is
    for tag in dynamic.iter_tags():
        match tag.entry.d_tag:
            case "DT_SONAME":
                soname = tag.soname
            case "DT_NEEDED":
                needed.append(tag.needed)
            case "DT_RPATH":
                rpath += filter(None, tag.rpath.split(":"))
            case "DT_RUNPATH":
                runpath += filter(None, tag.runpath.split(":"))
    wanted, defined = _calls(elf)
    return _Elf(soname, tuple(needed), tuple(rpath), tuple(runpath), tuple(_undefined(elf)), wanted, defined)


def _calls(elf: Any) -> tuple[frozenset[str], frozenset[str]]:
    """Functions of CUDA among the dynamic symbols: those that must come from elsewhere, and those that are here."""
    wanted, defined = set(), set()
    section = elf.get_section_by_name(".dynsym")
    for symbol in section.iter_symbols() if section else ():
        if symbol.name in _functions():
            if symbol["st_shndx"] != "SHN_UNDEF":
                defined.add(symbol.name)
            elif symbol["st_info"]["bind"] != "STB_WEAK":
                wanted.add(symbol.name)
    return frozenset(wanted), frozenset(defined)


def _undefined(elf: Any) -> Iterator[tuple[str, str, str]]:
    """Undefined dynamic symbols with the file and version that they are wanted of."""
    symbols = elf.get_section_by_name(".dynsym")
    if symbols is None:
        return
    numbers = elf.get_section_by_name(".gnu.version")
    versions: dict[int, tuple[str, str]] = {}
    if needs := elf.get_section_by_name(".gnu.version_r"):
        for file, auxiliaries in needs.iter_versions():
            for auxiliary in auxiliaries:
                versions[auxiliary["vna_other"]] = (file.name, auxiliary.name)
    for index, symbol in enumerate(symbols.iter_symbols()):
        if symbol["st_shndx"] != "SHN_UNDEF" or not symbol.name:
            continue
        number = numbers.get_symbol(index)["ndx"] if numbers else 0
        file_name, version = versions.get(number & 0x7FFF, ("", "")) if isinstance(number, int) else ("", "")
        yield symbol.name, file_name, version


def _is_elf(stream: IO[bytes]) -> bool:
    """Whether it begins as ELF; leaves the stream at its begin."""
    head = stream.read(4)
    stream.seek(0)
    return head == b"\x7fELF"


#: Name and opener of each file; opening may fail for one of them alone.
_Members = Iterator[tuple[str, Callable[[], AbstractContextManager[IO[bytes]]]]]


def _opened(path: Path) -> IO[bytes]:
    return path.open("rb")


def _folder(folder: Path) -> _Members:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield path.relative_to(folder).as_posix(), partial(_opened, path)


def _single(path: Path) -> _Members:
    with path.open("rb") as stream:
        if not _is_elf(stream):
            msg = f"{path}: neither a wheel nor an ELF file"
            raise AuditError(msg)
    yield path.name, partial(_opened, path)


def _wheel(path: Path) -> _Members:
    try:
        archive = zipfile.ZipFile(path)
    except Exception as error:  # a damaged directory ends in more than BadZipFile
        msg = f"{path}: not a wheel: {error}"
        raise AuditError(msg) from error
    with archive:
        for member in archive.infolist():
            yield member.filename, partial(_unpacked, archive, member)


@contextmanager
def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[IO[bytes]]:
    """A member that can be read from any place, on disk when it is large; only the head of what is not ELF."""
    with archive.open(member) as packed, tempfile.SpooledTemporaryFile(max_size=64 << 20) as stream:
        stream.write(packed.read(4))
        stream.seek(0)
        if _is_elf(stream):
            stream.seek(0, os.SEEK_END)
            shutil.copyfileobj(packed, stream)
            stream.seek(0)
        yield stream
