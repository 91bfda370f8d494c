"""Which symbols each CUDA library exports in which release, its SONAME, its wheels, and the release of a wheel.

``data/exports/`` holds the facts, read from NVIDIA's wheels by ``tools/make_exports.py``, a file for each library.
What the driver's ``libcuda`` exports is in ``data/emulator/functions.toml``: from the headers of each release and the
symbols of four drivers, as ``tools/make_functions.py`` says. A file is opened when it is first asked for.

A release counts as its newest wheels: an update of CUDA 12.6 may export more than 12.6.0 did, and `first_wheel` says
from which wheel on. C++ names (``_Z…``) are left out. A wheel's own version need not say its release:
``nvidia-cuda-cccl 13.3.5.0.6`` is what cuda-toolkit 13.5 requires, by ``data/toolkit_extras.toml``, which
``tools/make_toolkit_extras.py`` reads from the package index, and compares with it each week.
"""

from __future__ import annotations

import mmap
import re
from bisect import bisect_right
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..base.regular_files import open_regular
from ..base.tables import read_table
from ..versions import CudaVersion, distribution_version
from .releases import PTX_ISA

if TYPE_CHECKING:
    from packaging.version import Version

DATA: Final = Path(__file__).parents[1] / "data" / "exports"
_DRIVER: Final = "libcuda"
_DRIVER_SONAME: Final = "libcuda.so.1"


class _Span(NamedTuple):
    """From when to when a symbol is exported: releases, and the first wheel."""

    since: CudaVersion
    until: CudaVersion | None
    wheel: str | None


class _Major(NamedTuple):
    """A library in one CUDA major."""

    distribution: str | None
    soname: str
    numbered: bool
    wheels: Mapping[CudaVersion, tuple[str, ...]]
    spans: Mapping[str, _Span]


@cache
def libraries() -> tuple[str, ...]:
    """Return the stems of the libraries that are known, such as ``libnvJitLink``; the last one is ``libcuda``."""
    return (*sorted(file.stem for file in DATA.glob("*.json")), _DRIVER)


def sonames(stem: str) -> dict[int, str]:
    """Return the SONAME of a library by CUDA major: ``libcufft`` is ``libcufft.so.11`` in CUDA 12.

    `stem`: one of `libraries`.
    Raises ValueError if the library is unknown; so do all functions here but `distributions`.
    """
    return {major: library.soname for major, library in _majors(stem).items()}


def distributions(stem: str) -> dict[int, str]:
    """Return the package on PyPI that brings a library, by CUDA major; empty for the driver's and for unknown ones."""
    known = _majors(stem) if stem in libraries() else {}
    return {major: library.distribution for major, library in known.items() if library.distribution}


def releases(stem: str, major: int) -> tuple[CudaVersion, ...]:
    """Return the releases of a CUDA major in which a library is known, oldest first."""
    library = _majors(stem).get(major)
    return tuple(library.wheels) if library else ()


def symbols(stem: str, release: CudaVersion) -> frozenset[str]:
    """Return every symbol that a library exports in a release; empty if the release is unknown."""
    library = _majors(stem).get(release.major)
    if library is None or release not in library.wheels:
        return frozenset()
    begun = ((name, span.until) for name, span in library.spans.items() if span.since <= release)
    return frozenset(name for name, end in begun if end is None or release < end)


def since(stem: str, major: int, symbol: str) -> CudaVersion | None:
    """Return the first release of a CUDA major in which a library exports a symbol; None if none does.

    `stem`: one of `libraries`.
    `major`: 12 or 13.
    `symbol`: its name; a version behind ``@`` is ignored.
    """
    span = _span(stem, major, symbol)
    return span.since if span else None


def until(stem: str, major: int, symbol: str) -> CudaVersion | None:
    """Return the first release of a CUDA major in which a library no longer exports a symbol; None if there is none."""
    span = _span(stem, major, symbol)
    return span.until if span else None


def first_wheel(stem: str, major: int, symbol: str) -> str | None:
    """Return the version of the oldest wheel whose library exports a symbol: the floor to write in a requirement.

    None for an unknown symbol, and for the driver's library, which has no wheels.
    """
    span = _span(stem, major, symbol)
    return span.wheel if span else None


def wheel_versions(stem: str, release: CudaVersion) -> tuple[str, ...]:
    """Return the versions of the wheels of one release that bring a library, oldest first."""
    library = _majors(stem).get(release.major)
    return library.wheels.get(release, ()) if library else ()


def release_of_wheel(distribution: str, version: str) -> CudaVersion | None:
    """Return the CUDA release that a wheel belongs to; None if that is unknown.

    `distribution`, `version`: package, such as ``nvidia-cublas-cu12``, and its version, which begins with the release
    if the package is numbered like CUDA. Of others, a version that no cuda-toolkit requires belongs to the release of
    the newest older one, unless it is newer than all that are known.
    """
    name, wanted = distribution.lower().replace("_", "-"), distribution_version(version)
    package, pin = _packages().get(name), pin_of(name, version)
    if wanted is not None and package is not None and package.numbered:
        return CudaVersion(wanted.major, wanted.minor)
    if pin is not None or package is None:
        return pin and pin.release
    return next((release for release, versions in package.wheels.items() if version in versions), None)


def is_numbered(stem: str) -> bool:
    """Whether the packages of a library, wheels and conda's, have versions that begin with the CUDA release."""
    return stem == "libcupti" or (stem in libraries() and any(library.numbered for library in _majors(stem).values()))


def _span(stem: str, major: int, symbol: str) -> _Span | None:
    library = _majors(stem).get(major)
    return library.spans.get(symbol.partition("@")[0]) if library else None


@cache
def _packages() -> dict[str, _Major]:
    """The first library of each package."""
    packages: dict[str, _Major] = {}
    for stem in libraries():
        for library in _majors(stem).values():
            if library.distribution:
                packages.setdefault(library.distribution, library)
    return packages


@cache
def _majors(stem: str) -> Mapping[int, _Major]:
    """What is known of a library, by CUDA major."""
    if stem not in libraries():
        raise ValueError(f"the library is {stem!r}; expected one of {', '.join(libraries())}")
    if stem == _DRIVER:
        return MappingProxyType(_driver())
    import json

    data = json.loads((DATA / f"{stem}.json").read_bytes())
    return MappingProxyType({int(major): _major(table) for major, table in data["majors"].items()})


def _major(data: dict[str, Any]) -> _Major:
    """Read one major of a file; its changes are those from wheel to wheel."""
    wheels = {CudaVersion.parse(release): tuple(versions) for release, versions in data["wheels"].items()}
    changes = {change["wheel"]: change for change in data["changes"]}
    first: dict[str, str] = {}
    begin: dict[str, CudaVersion] = {}
    end: dict[str, CudaVersion] = {}
    present: set[str] = set()
    for release, versions in wheels.items():
        before = frozenset(present)
        for version in versions:
            change = changes.get(version, {})
            for name in change.get("added", ()):
                first.setdefault(name, version)
            present |= set(change.get("added", ()))
            present -= set(change.get("removed", ()))
        for name in present - before:
            begin.setdefault(name, release)
            end.pop(name, None)
        for name in before - present:
            end[name] = release
    spans = {name: _Span(release, end.get(name), first[name]) for name, release in begin.items()}
    return _Major(data["distribution"], data["changes"][0]["soname"], data["numbered"], wheels, MappingProxyType(spans))


def _driver() -> dict[int, _Major]:
    """What the driver's library exports, from the emulated driver's table; a symbol stays once it is there."""
    table = read_table("emulator/functions.toml")
    first = {name: CudaVersion.parse(row["since"]) for name, row in table["debugger"].items()}
    for release, names in table["symbols"].items():
        if release != "never":
            first |= dict.fromkeys(names, CudaVersion.parse(release))
    majors = {}
    for major in dict.fromkeys(release.major for release in PTX_ISA):
        known = [release for release in PTX_ISA if release.major == major]
        spans = {
            name: _Span(max(release, known[0]), None, None) for name, release in first.items() if release <= known[-1]
        }
        wheels: dict[CudaVersion, tuple[str, ...]] = dict.fromkeys(known, ())
        majors[major] = _Major(None, _DRIVER_SONAME, numbered=False, wheels=wheels, spans=MappingProxyType(spans))
    return majors


_LINE: Final = re.compile(r"([a-z0-9-]+)(?:==|<\d+,>=)([\d.]+?)(?:\.\*)?")


#: By library, near which bytes of the file its release is, and how it is written.
_MARKS: Final = {
    "libnvJitLink": (b"__nvJitLinkCreate_", re.compile(rb"__nvJitLinkCreate_(\d+)_(\d+)\0")),
    "libnvrtc": (b"libnvrtc-builtins.so.", re.compile(rb"libnvrtc-builtins\.so\.(\d+)\.(\d+)")),
}
#: Libraries whose files are numbered like CUDA: not libnvvm.so.4.0.0, nor libcupti.so.2025.3.1.
_FILE: Final = re.compile(
    r"(?:^|/)lib(?:cudart|nvJitLink|nvrtc(?:-builtins)?|nvfatbin)(?:-[0-9a-f]{6,})?\.so\.(\d{1,4}\.\d{1,4})(?:\.\d+)*$",
    re.ASCII,
)
#: Most bytes that are searched in a library (the largest nvJitLink and NVRTC have 110 MB), and read where a mark is.
_MOST_LIBRARY: Final = 1 << 30
_WINDOW: Final = 1 << 16


@cache
def release_in(stem: str, path: str) -> CudaVersion | None:
    """Return the release that the file of a library says of itself; None for all but nvJitLink and NVRTC.

    That of nvJitLink is its newest symbol: it keeps the aliases of all older minors of its major. NVRTC has the name of
    the builtins that it opens.
    """
    if stem not in _MARKS:
        return None
    mark, pattern = _MARKS[stem]
    try:
        with open_regular(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            start = content.find(mark, 0, _MOST_LIBRARY)
            numbers = pattern.findall(content[start : start + _WINDOW])
    except (OSError, ValueError):  # (ValueError: an empty file)
        return None
    return max((CudaVersion(int(major), int(minor)) for major, minor in numbers), default=None)


def release_of_file(path: str) -> CudaVersion | None:
    """Return the release in the name of a library's file, such as ``libcudart.so.12.9.79``; None without one."""
    match = _FILE.search(path)
    return CudaVersion.parse(match[1]) if match else None


class Pin(NamedTuple):
    """The release that a wheel belongs to."""

    release: CudaVersion
    toolkit: str  # the newest version of cuda-toolkit that requires the wheel


@cache
def _pins() -> dict[str, dict[str, Pin]]:
    """The pin of each version of each wheel; a lower bound is the version that its release came with."""
    pins: dict[str, dict[str, Pin]] = {}
    for toolkit, extras in read_table("toolkit_extras.toml")["versions"].items():
        pin = Pin(CudaVersion.parse(toolkit), toolkit)
        for line in {line for lines in extras.values() for line in lines}:
            if match := _LINE.fullmatch(line):
                pins.setdefault(match[1], {})[match[2]] = pin
    return pins


@cache
def _ordered(wheel: str) -> tuple[tuple[Version, Pin], ...]:
    from packaging.version import Version

    return tuple(sorted((Version(version), pin) for version, pin in _pins().get(wheel, {}).items()))


def pin_of(wheel: str, version: str) -> Pin | None:
    """Return the release of a wheel; None if the wheel is newer or older than all that known releases require.

    A version between those of two releases is a patch of the older one, as nvidia-cuda-nvcc-cu12 12.5.82 is.
    """
    wanted, known = distribution_version(version), _ordered(wheel)
    if wanted is None or not known or wanted.is_prerelease or wanted < known[0][0]:
        return None
    at = bisect_right(known, wanted, key=lambda pair: pair[0])
    below, pin = known[at - 1]
    newest = at == len(known) and wanted.release[: len(below.release)] != below.release
    return None if newest else pin


def pinned_versions(wheel: str, release: CudaVersion) -> tuple[str, ...]:
    """Return the versions of a wheel that belong to a release."""
    return tuple(version for version, pin in _pins().get(wheel, {}).items() if pin.release == release)


@cache
def is_open(wheel: str, release: CudaVersion) -> bool:
    """Whether the newest cuda-toolkit of a release, or of the last one known, bounds a wheel only from below."""
    table = read_table("toolkit_extras.toml")["versions"]
    from packaging.version import Version

    newest = max((version for version in table if CudaVersion.parse(version) <= release), key=Version, default="")
    lines = (line for lines in table.get(newest, {}).values() for line in lines)
    return any(line.startswith(f"{wheel}<") for line in lines)


@cache
def brought_by(extras: frozenset[str], release: CudaVersion) -> frozenset[str]:
    """Return the wheels that extras of cuda-toolkit bring in a release."""
    table = read_table("toolkit_extras.toml")["versions"]
    return frozenset(
        match[1]
        for toolkit, known in table.items()
        if CudaVersion.parse(toolkit) == release
        for extra in (known if "all" in extras else extras & known.keys())
        for line in known[extra]
        if (match := _LINE.fullmatch(line))
    )
