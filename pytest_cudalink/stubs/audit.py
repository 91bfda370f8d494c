"""The audit: which CUDA libraries a wheel needs to be loaded, and which CUDA majors it can therefore load with.

Reads ELF files with pyelftools and opens none of them as a library. What counts is what the dynamic loader asks for
before a program runs: needed libraries and symbol versions. Libraries that a program opens itself, as the stubs do,
are no dependency.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Final

__all__ = ["MAJORS", "Audit", "AuditError", "Dependency", "FileAudit", "Finding", "audit"]

#: The CUDA majors that are told apart, and a machine without any CUDA library.
MAJORS: Final = ("11", "12", "13", "none")

_ANY = ("11", "12", "13")
#: CUDA majors by library and the version in its SONAME, from the wheels of CUDA 11.8, 12.9 and 13.0. A library with
#: None has the same SONAME in each of them (or belongs to the driver, or to a product with versions of its own).
_LIBRARIES: Final[dict[str, dict[str, tuple[str, ...]] | None]] = {
    "libcuda": None,
    "libnvidia-ml": None,
    "libcudart": {"11.0": ("11",), "12": ("12",), "13": ("13",)},
    "libnvrtc": {"11.0": ("11",), "11.1": ("11",), "11.2": ("11",), "12": ("12",), "13": ("13",)},
    "libnvJitLink": {"12": ("12",), "13": ("13",)},
    "libnvfatbin": {"12": ("12",), "13": ("13",)},
    "libnvvm": None,
    "libcublas": {"11": ("11",), "12": ("12",), "13": ("13",)},
    "libcublasLt": {"11": ("11",), "12": ("12",), "13": ("13",)},
    "libnvblas": {"11": ("11",), "12": ("12",), "13": ("13",)},
    "libcufft": {"10": ("11",), "11": ("12",), "12": ("13",)},
    "libcufftw": {"10": ("11",), "11": ("12",), "12": ("13",)},
    "libcurand": None,
    "libcusolver": {"11": ("11", "12"), "12": ("13",)},
    "libcusolverMg": {"11": ("11", "12"), "12": ("13",)},
    "libcusparse": {"11": ("11",), "12": ("12", "13")},
    "libnvjpeg": {"11": ("11",), "12": ("12",), "13": ("13",)},
    "libcupti": {"11.8": ("11",), "12": ("12",), "13": ("13",)},
    "libnvToolsExt": {"1": ("11", "12")},
    "libcufile": None,
    "libcudnn": None,
    "libnccl": None,
    "libnvshmem_host": None,
    "libcutensor": None,
    "libcusparseLt": None,
    "libcudss": None,
}
_NPP = re.compile(r"libnpp\w*")
_NAME = re.compile(r"^(?P<stem>lib[\w]+?(?:-ml)?)(?:-[0-9a-f]{6,})?\.so(?:\.(?P<version>[\d.]+))?$")
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
        The wheel brings the library along.
    """

    library: str
    majors: tuple[str, ...]
    symbols: tuple[str, ...]
    bundled: bool


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
    folder of the machine that built it), ``"majors"`` (no CUDA major satisfies every file).
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
    for name, stream in members:
        try:
            found = _read_elf(stream)
        except Exception as error:  # noqa: BLE001 (pyelftools raises whatever a damaged file leads it to)
            text = f"cannot be read as ELF: {type(error).__name__}: {error}"
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
    present = {name.rpartition("/")[2] for name, _ in read} | {elf.soname for _, elf in read if elf.soname}
    files = []
    for name, elf in read:
        dependencies = tuple(_dependencies(elf, present))
        majors = tuple(major for major in MAJORS if all(major in _usable(one) for one in dependencies))
        files.append(FileAudit(name, elf.soname, dependencies, elf.rpaths, majors))
        findings += _findings(name, elf)
    majors = tuple(major for major in MAJORS if all(major in file.majors for file in files))
    if not majors:
        needs = "; ".join(
            f"{file.path} loads with {', '.join(file.majors) or 'none'}" for file in files if file.dependencies
        )
        findings.append(Finding(str(path), "majors", f"no CUDA major satisfies every file: {needs}"))
    return Audit(str(path), tuple(files), tuple(findings), majors)


def _dependencies(elf: _Elf, present: set[str]) -> Iterator[Dependency]:
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
        yield Dependency(library, majors, symbols, library in present)


def _stem(library: str) -> str:
    match = _NAME.match(library)
    return match["stem"] if match else library


def _majors(library: str) -> tuple[str, ...] | None:
    """The CUDA majors that have a library; None if it is not one of CUDA's."""
    match = _NAME.match(library)
    if match is None:
        return None
    stem, version = match["stem"], match["version"] or ""
    if _NPP.fullmatch(stem):
        table: dict[str, tuple[str, ...]] | None = {major: (major,) for major in _ANY}
    elif stem in _LIBRARIES:
        table = _LIBRARIES[stem]
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
    rpaths: tuple[str, ...]
    #: name, file and version of what is wanted of that file; the latter two are empty without symbol versions
    undefined: tuple[tuple[str, str, str], ...]


def _read_elf(stream: IO[bytes]) -> _Elf | None:
    """What the dynamic loader sees; None for files that it would not load (object files, static programs)."""
    from elftools.elf.dynamic import DynamicSegment
    from elftools.elf.elffile import ELFFile

    elf = ELFFile(stream)
    dynamic = next((segment for segment in elf.iter_segments() if isinstance(segment, DynamicSegment)), None)
    if dynamic is None:
        return None
    soname, needed, rpaths = None, [], []
    tag: Any  # its attributes depend on what it is
    for tag in dynamic.iter_tags():
        match tag.entry.d_tag:
            case "DT_SONAME":
                soname = tag.soname
            case "DT_NEEDED":
                needed.append(tag.needed)
            case "DT_RPATH":
                rpaths += tag.rpath.split(":")
            case "DT_RUNPATH":
                rpaths += tag.runpath.split(":")
    undefined = tuple(_undefined(elf))
    return _Elf(soname, tuple(needed), tuple(folder for folder in rpaths if folder), undefined)


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


def _is_elf(head: bytes) -> bool:
    return head == b"\x7fELF"


def _folder(folder: Path) -> Iterator[tuple[str, IO[bytes]]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as stream:
                if _is_elf(stream.read(4)):
                    stream.seek(0)
                    yield path.relative_to(folder).as_posix(), stream


def _single(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with path.open("rb") as stream:
        if not _is_elf(stream.read(4)):
            msg = f"{path}: neither a wheel nor an ELF file"
            raise AuditError(msg)
        stream.seek(0)
        yield path.name, stream


def _wheel(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    try:
        archive = zipfile.ZipFile(path)
    except (OSError, zipfile.BadZipFile) as error:
        msg = f"{path}: not a wheel: {error}"
        raise AuditError(msg) from error
    with archive:
        for member in archive.infolist():
            with archive.open(member) as packed:
                if not _is_elf(packed.read(4)):
                    continue
            with _unpacked(archive, member) as stream:
                yield member.filename, stream


@contextmanager
def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[IO[bytes]]:
    """A member that can be read from any place, on disk when it is large."""
    with archive.open(member) as packed, tempfile.SpooledTemporaryFile(max_size=64 << 20) as stream:
        shutil.copyfileobj(packed, stream)
        stream.seek(0)
        yield stream
