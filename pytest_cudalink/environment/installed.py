"""The distributions of an environment, read from the files of its prefix; none of its Python runs.

`find_place` says where an environment keeps its packages; `read_distributions` reads their metadata, and the libraries
that their RECORD lists. The files of an editable install lie where its ``.pth`` files and finders point.
"""

import csv
import json
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from email.parser import BytesHeaderParser
from pathlib import Path
from typing import Final

from packaging.utils import canonicalize_name

from ..base import elf
from ..base.regular_files import read_bounded
from ..compat import exports

_NAME: Final = re.compile(r"[A-Z0-9](?:[A-Z0-9._-]{0,200}[A-Z0-9])?", re.IGNORECASE | re.ASCII)
#: The lines of a RECORD with libraries, headers, programs, bitcode and Python modules.
_USED: Final = re.compile(r"\.so(?:\.\d+){0,4},|(?:^|/)(?:include|bin|nvvm)/.|\.py,")
_LIBRARY: Final = re.compile(r"\.so(?:\.\d+){0,4}$|\.(?:dll|pyd)$", re.IGNORECASE)
_PYTHON: Final = re.compile(r"python(\d\.\d{1,3})t?")
#: A line outside of all blocks that asks for the version of a distribution.
_ASKS: Final = re.compile(r"^\w+ *= *[\w.]*\bversion\( *['\"]([\w.-]+)['\"] *\)", re.MULTILINE | re.ASCII)
#: Most bytes that are read of a METADATA or RECORD (the longest known have 3 MB), and of a small text.
_MOST_METADATA: Final = 64 << 20
_MOST_TEXT: Final = 1 << 20
#: Most entries of a source tree that are looked at for the libraries of an editable install.
_MOST_ENTRIES: Final = 50_000
#: Folders of a source tree that are not part of the package.
_SKIPPED: Final = ("__pycache__", "node_modules", "site-packages", "dist-packages")


class AuditError(ValueError):
    """Nothing at the path can be audited; says what was found."""


@dataclass(frozen=True)
class Unreadable:
    """Something that could not be read, and what to do."""

    path: str
    text: str


@dataclass(frozen=True)
class Place:
    """Where an environment keeps its packages."""

    prefix: Path
    sites: tuple[Path, ...]  # folders with `.dist-info`, in the order of the search
    python: str  # such as "3.12"; that of this process if the prefix does not say
    windows: bool = False  # it has the layout of Windows

    @property
    def conda_meta(self) -> Path | None:
        """The folder of conda's records; None outside of conda."""
        folder = self.prefix / "conda-meta"
        return folder if folder.is_dir() else None


@dataclass(frozen=True)
class Installed:
    """One installed distribution or conda package."""

    name: str  # normalized
    version: str
    manager: str  # what installed it: "pip", "uv", "conda", or another name from its INSTALLER file; may be empty
    path: str  # its `.dist-info` folder, or its record in `conda-meta`
    requires: tuple[str, ...] = ()  # its `Requires-Dist` lines, or conda's `depends`
    files: tuple[str, ...] = ()  # absolute paths of its shared libraries
    editable: bool = False

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    @property
    def site(self) -> str:
        """The folder that it is installed in."""
        return os.path.dirname(self.path)  # noqa: PTH120 (text)


# -- places


def find_place(target: str | Path | None = None) -> Place:
    """Return where an environment keeps its packages.

    `target`: a prefix, its Python, or a folder with ``.dist-info`` folders; default: the environment of this process.
    Raises AuditError if there is no environment.
    """
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    if target is None:
        sites = tuple(Path(entry) for entry in dict.fromkeys(sys.path) if entry and os.path.isdir(entry))  # noqa: PTH112
        return Place(Path(sys.prefix), sites, running, sys.platform == "win32")
    path = Path(os.path.abspath(target))  # noqa: PTH100 (the link of a venv's Python must not be followed)
    if path.is_file():
        path = path.parent.parent if path.parent.name.lower() in ("bin", "scripts") else path.parent
    if not path.is_dir():
        raise AuditError(f"{path}: there is no such environment; give a prefix, its Python or a site-packages folder")
    places = [(site, match[1] if (match := _PYTHON.fullmatch(site.parent.name)) else "") for site in _sites_below(path)]
    if not places and (path.name in ("site-packages", "dist-packages") or any(path.glob("*.dist-info"))):
        match = _PYTHON.fullmatch(path.parent.name)
        prefix = path.parent.parent.parent if match else path
        return Place(prefix, (path,), match[1] if match else running)
    if not places and not (path / "conda-meta").is_dir():
        inside = "expected lib/pythonX.Y/site-packages, Lib/site-packages or conda-meta in it"
        remedy = "give a prefix, its Python or a site-packages folder"
        raise AuditError(f"{path} is not an environment; {inside}: {remedy}")
    python = next((version for _, version in places if version), running)
    sites = (*(site for site, _ in places), *_system_sites(path, python))
    return Place(path, sites, python, windows=any(site.parent.name == "Lib" for site, _ in places))


def _sites_below(prefix: Path) -> list[Path]:
    patterns = (
        "lib/python*/site-packages",
        "lib64/python*/site-packages",
        "Lib/site-packages",
        "local/lib/python*/dist-packages",
        "lib/python*/dist-packages",
    )
    sites: dict[str, Path] = {}
    for pattern in patterns:
        for site in sorted(prefix.glob(pattern)):
            if site.is_dir():
                sites.setdefault(os.path.realpath(site), site)
    return list(sites.values())


def _system_sites(prefix: Path, python: str) -> tuple[Path, ...]:
    """The folders of the Python that a virtual environment was made from, where it may use them."""
    pairs = (line.partition("=") for line in _text(prefix / "pyvenv.cfg").splitlines())
    config = {key.strip().lower(): value.strip() for key, _, value in pairs}
    home = config.get("home", "")
    if config.get("include-system-site-packages", "").lower() != "true" or not home:
        return ()
    return tuple(s for s in _sites_below(Path(home).parent) if s.parent.name in (f"python{python}", "python3", "Lib"))


# -- distributions


def read_distributions(place: Place, *, files: bool = True) -> tuple[list[Installed], list[Unreadable]]:
    """Return the distributions of an environment, the first of each name, and what could not be read.

    Of two in one folder, that whose RECORD describes the files: an installer left the metadata of another release.

    `files`: read which libraries they installed, too.
    """
    distributions: dict[str, Installed] = {}
    unreadable: list[Unreadable] = []
    for site in _with_linked(place.sites):
        try:
            names = _metadata_in(site)
        except OSError as error:
            unreadable.append(Unreadable(str(site), f"cannot be listed: {error.strerror}"))
            continue
        for name in names:
            try:
                dist = read_distribution(site / name, unreadable)
                earlier = distributions.get(dist.name)
                if earlier is None or (Path(earlier.path).parent == site and unlike(dist) < unlike(earlier)):
                    libraries = _files_of(site, site / name, dist) if files else ()
                    distributions[dist.name] = replace(dist, files=libraries)
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else str(error)
                missing = isinstance(error, FileNotFoundError)
                text = "METADATA is missing; expected a file" if missing else reason
                unreadable.append(Unreadable(str(site / name), f"{text}: install the distribution again"))
    return list(distributions.values()), unreadable


def wheels_in(site: str) -> list[Installed]:
    """Return the distributions of a folder by the names of their metadata folders, of which no file is read.

    None if the folder cannot be listed.
    """
    wheels = []
    with suppress(OSError):
        for folder in _metadata_in(site):
            name, _, version = folder.removesuffix(".dist-info").partition("-")
            if folder.endswith(".dist-info"):
                wheels.append(Installed(canonicalize_name(name), version, "", os.path.join(site, folder)))  # noqa: PTH118 (text)
    return wheels


def _metadata_in(site: str | Path) -> list[str]:
    """The names of what has metadata, sorted; pip left behind, and ignores, what begins with a tilde."""
    names = os.listdir(site)  # noqa: PTH208 (names)
    return sorted(name for name in names if name.endswith((".dist-info", ".egg-info")) and not name.startswith("~"))


def unlike(distribution: Installed) -> int:
    """The number of files that have not the size that the RECORD of a distribution says."""
    sizes = _sizes(distribution.path)
    return sum(not os.path.isfile(path) or os.path.getsize(path) != size for path, size in sizes.items())  # noqa: PTH113, PTH202


def _sizes(folder: str | Path) -> dict[str, int]:
    """The sizes of the files that programs use, by path, as a RECORD says; nothing behind what cannot be read."""
    sizes, site = {}, os.path.dirname(folder)  # noqa: PTH120 (text)
    with suppress(OSError, ValueError):
        for row in rows_of(read_record(folder), lambda line: bool(_USED.search(line))):
            if len(row) == 3 and row[2].isdecimal() and ".." not in row[0]:
                sizes[f"{site}/{row[0]}"] = int(row[2])
    return sizes


def _with_linked(sites: Sequence[Path]) -> list[Path]:
    """The folders, and those that their ``.pth`` files add to the search, which may contain an ``.egg-info``."""
    folders = list(sites)
    for site in sites:
        for pth in sorted(site.glob("*.pth")):
            # (Path.is_dir raises an error where a name is too long, or a folder above it is closed to this user)
            folders += [folder for folder in _named_by_pth(pth) if os.path.isdir(folder)]  # noqa: PTH112
    return list(dict.fromkeys(folders))


def _named_by_pth(pth: Path) -> Iterator[Path]:
    for line in _text(pth).splitlines():
        text = line.strip()
        if text and not text.startswith(("#", "import ", "import\t")):
            yield pth.parent / text


def read_distribution(folder: Path, not_utf_8: list[Unreadable] | None = None) -> Installed:
    """Read the metadata of one distribution.

    `not_utf_8`: gets a metadata file that is not UTF-8: its ASCII is read here, but importlib.metadata reads nothing.
    Raises OSError if the metadata cannot be read.
    Raises ValueError if the metadata has no valid name, or no version.
    """
    egg = folder.suffix == ".egg-info"
    file = folder if egg and folder.is_file() else folder / ("PKG-INFO" if egg else "METADATA")
    content = read_bounded(file, _MOST_METADATA)
    headers = BytesHeaderParser().parsebytes(content)
    name, version = (str(headers.get(key) or "").strip() for key in ("Name", "Version"))
    if not _NAME.fullmatch(name):
        raise ValueError(f"Name in METADATA is {name[:80]!r}; expected letters, digits, '.', '_' and '-'")
    if not version:
        raise ValueError("Version in METADATA is missing; expected one such as 1.2.3")
    requires = [str(line) for line in headers.get_all("Requires-Dist") or ()]
    if egg and (folder / "requires.txt").is_file():
        from importlib.metadata import PathDistribution

        requires = PathDistribution(folder).requires or []
    try:
        content.decode()
    except UnicodeDecodeError as error:
        text = f"not UTF-8 (byte 0x{content[error.start]:02x} at {error.start}): install the distribution again"
        if not_utf_8 is not None:
            not_utf_8.append(Unreadable(str(file), text))
    return Installed(
        canonicalize_name(name), version[:200], _text(folder / "INSTALLER").strip()[:40].lower(), str(folder),
        tuple(requires), (), _is_editable(folder),
    )  # fmt: skip


def _text(path: Path) -> str:
    try:
        return read_bounded(path, _MOST_TEXT).decode("utf-8", "replace")
    except OSError:
        return ""


def _is_editable(folder: Path) -> bool:
    with suppress(ValueError, RecursionError):
        match json.loads(_text(folder / "direct_url.json")):
            case {"dir_info": {"editable": editable}}:
                return bool(editable)
    return False


# -- libraries


def is_library(name: str) -> bool:
    """Whether a file name is that of a shared library or an extension module."""
    return _LIBRARY.search(name) is not None


def _files_of(site: Path, metadata: Path, distribution: Installed) -> tuple[str, ...]:
    """The libraries of a distribution: those of its RECORD, and for an editable install those of its source tree."""
    libraries: list[str] = []
    sources: list[Path] = []
    if metadata.suffix == ".egg-info":
        # an installed one lists its files; one in a source tree is that of an editable install
        listed = metadata / "installed-files.txt"
        if metadata.is_dir() and not listed.is_file():
            sources.append(site)
        base, entries = metadata, _text(listed).splitlines()
    else:
        base, entries = site, list(_recorded(read_record(metadata)))
    for entry in entries:
        if is_library(entry):
            libraries.append(os.path.normpath(base / entry))
        elif entry.endswith(".pth") and "/" not in entry:
            sources += _named_by_pth(site / entry)
        elif distribution.editable and entry.endswith(".py") and "/" not in entry and "editable" in entry:
            sources += _named_by_finder(site / entry)
    for source in sources:
        if is_library(source.name) and os.path.isfile(source):  # noqa: PTH113
            libraries.append(str(source))
        elif source.name not in _SKIPPED and os.path.isdir(source):  # noqa: PTH112
            libraries += libraries_below(source)
    return tuple(path for path in dict.fromkeys(libraries) if os.path.isfile(path))  # noqa: PTH113 (text, many)


def _recorded(record: bytes) -> Iterator[str]:
    """The paths of a RECORD that can be a library's, or can belong to an editable install."""
    words = (".so", ".pth", "editable", ".dll", ".pyd")
    yield from (row[0] for row in rows_of(record, lambda line: any(word in line for word in words)))


def recorded_hashes(distribution: Installed) -> Iterator[tuple[str, str]]:
    """Yield path and hash of each file that the RECORD of a distribution lists with one, but for its metadata.

    Raises OSError or ValueError if there is a RECORD that cannot be read.
    """
    metadata = Path(distribution.path)
    if metadata.suffix != ".dist-info":
        return
    site, own = str(metadata.parent), f"{metadata.name}/"
    for row in rows_of(read_record(metadata)):
        if len(row) == 3 and row[1] and not row[0].startswith(own):
            path = f"{site}/{row[0]}"
            yield os.path.normpath(path) if ".." in path else path, row[1]


def is_gone(distribution: Installed) -> bool:
    """Whether a distribution has files that programs use, by its RECORD, and none of them is there."""
    paths = _sizes(distribution.path)
    return bool(paths) and not any(map(os.path.exists, paths))


def lost_files(distributions: Sequence[Installed]) -> Iterator[tuple[Installed, list[str]]]:
    """Yield the distributions of whose files some are missing or cut off, each with these files.

    Files count that programs load, run, compile or import. Archives do not, as images of containers leave them out;
    nor does a file that is whole by the RECORD of another distribution, or of another release that left its RECORD. A
    RECORD that cannot be read is skipped: who reads the libraries of its distribution reports it. One is of another
    release than the files if nvJitLink or NVRTC says so.
    """
    sizes: dict[str, set[int]] = {}
    listed: dict[Installed, list[dict[str, int]]] = {}
    for distribution in distributions:
        metadata = Path(distribution.path)
        if metadata.suffix != ".dist-info":
            continue
        for record in metadata.parent.glob(f"{metadata.name.partition('-')[0]}-*.dist-info/RECORD"):
            paths = _sizes(record.parent)
            for path, size in paths.items():
                sizes.setdefault(path, set()).add(size)
            listed.setdefault(distribution, []).append(paths)
    for distribution, records in listed.items():
        lost = min(([path for path in paths if _is_lost(path, sizes[path])] for paths in records), key=len)
        if lost and not _is_of_another_release(distribution, set().union(*records)):
            yield distribution, sorted(lost)


def _is_of_another_release(distribution: Installed, paths: Collection[str]) -> bool:
    """Whether a library that says its release has another one than the metadata."""
    release = exports.release_of_wheel(distribution.name, distribution.version)
    named = ((stem, path) for path in paths for stem in ("libnvJitLink", "libnvrtc") if f"/{stem}.so" in path)
    return release is not None and not {exports.release_in(*pair) for pair in named} <= {release, None}


def asking_in_vain(place: Place, installed: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the packages that ask for the version of a distribution as they are imported, and it has no metadata.

    `installed`: the names of the distributions.
    """
    for site in place.sites:
        for file in sorted((*site.glob("*/__init__.py"), *site.glob("cuda/*/__init__.py"))):
            text = _text(file)
            for name in _ASKS.findall(text) if "importlib.metadata" in text else ():
                if canonicalize_name(name) not in installed:
                    yield str(file), name


def _is_lost(path: str, sizes: set[int]) -> bool:
    try:
        size = os.stat(path).st_size  # noqa: PTH116 (a Path needs three times as long)
    except (OSError, ValueError):  # (ValueError: a zero byte, as a disk leaves them)
        return True
    # a library is smaller without its symbols, too: then the loader decides
    return size < min(sizes) and (not is_library(path) or bool(elf.damage(path)))


def read_record(folder: str | Path) -> bytes:
    """Return the RECORD in a `.dist-info` folder; empty if there is none.

    Raises OSError if it cannot be read.
    """
    with suppress(FileNotFoundError):
        return read_bounded(Path(folder, "RECORD"), _MOST_METADATA)
    return b""


def rows_of(record: bytes, wanted: Callable[[str], bool] | None = None) -> Iterator[list[str]]:
    """Yield the rows of a RECORD, of its lines that are wanted.

    Raises ValueError if it is invalid.
    """
    lines = record.decode("utf-8", "replace").splitlines()
    try:
        yield from csv.reader(lines if wanted is None else filter(wanted, lines))
    except csv.Error as error:
        raise ValueError(f"RECORD is invalid ({error}); expected lines of PATH,HASH,SIZE") from error


def _named_by_finder(finder: Path) -> Iterator[Path]:
    """The files and folders that the finder of an editable install names; it is parsed and does not run."""
    import ast  # (which the guard rails would load for nothing)

    try:
        tree = ast.parse(_text(finder))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and os.path.isabs(node.value):  # noqa: PTH117
            path = Path(node.value)
            if len(path.parts) < 3:
                continue
            # a package is named by its folder or by its __init__.py
            yield path.parent if path.name == "__init__.py" else path


def libraries_below(folder: Path) -> Iterator[str]:
    """Yield the paths of the shared libraries below a folder, without those of environments and caches."""
    left = _MOST_ENTRIES
    for path, folders, names in os.walk(folder):
        left -= len(names) + len(folders)
        if left < 0:
            return
        folders[:] = [
            name for name in sorted(folders)
            if not name.startswith(".") and name not in _SKIPPED
            and not (Path(path, name, "pyvenv.cfg").is_file() or Path(path, name, "conda-meta").is_dir())
        ]  # fmt: skip
        yield from (str(Path(path, name)) for name in sorted(names) if is_library(name))
