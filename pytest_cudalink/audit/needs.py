"""What files need of CUDA's libraries: which library of which major, at least of which release, and by which evidence.

Four kinds of evidence are kept apart. ``"linked"``: the loader must find the library. ``"symbols"``: the functions that
a file wants from a library that it links, each of which has a first release. ``"ltoir"``: LTO-IR in a file, which an
nvJitLink older than its compiler refuses. ``"opened"``: the name of a library that a program may open at run time.

A need without a major in its evidence is stated for each major that the file can belong to; any one of them satisfies
it. A need of ``libcuda`` is one of the driver: its floor is the CUDA version of a driver release.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from packaging.version import Version

from ..base.regular_files import open_regular
from ..base.words import listed
from ..compat import exports
from ..compat.libraries import is_unversioned_symbol, majors_of, stem_of
from ..compat.releases import NVVM_IR
from ..versions import CudaVersion, Needs
from .loadable import LoadableLibrary, buffer, read_dynamic
from .opened import OpenedLibrary, stem_of_name
from .scan import Scan, file_majors, scan_path

#: Names of functions that a header inlines with the version of the headers in them.
_NAMED_VERSION: Final = re.compile(r"__nvJitLink\w+?_(\d{2})_(\d{1,2})")
#: Names of C++ and of MSVC's C++, which the table leaves out.
_CPP: Final = ("_Z", "?")
_SHOWN: Final = 3
#: Strings that end in a NUL in the data of each static CUDA runtime, 12.0 to 13.5 (measured 2026-11-28 by linking one
#: function with each, and on the wheels of CuPy, Warp and cuda-cccl).
_RUNTIME_INSIDE: Final = (b"cuGetExportTable\0", b"cudaErrorInvalidValue\0")


@dataclass(frozen=True)
class Need:
    """One library of CUDA that one file needs."""

    path: str  # the file, inside the wheel or folder
    stem: str  # such as "libnvJitLink"; "libcuda" is the driver
    major: int  # CUDA major of the library. For the driver, that of the floor, or the oldest known.
    floor: CudaVersion | None  # oldest release that will do; None if the evidence names none
    how: Literal["symbols", "ltoir", "linked", "opened"]
    evidence: str  # what says so, for people
    below: CudaVersion | None = None  # first release that no longer has a function which the file wants
    unknown: tuple[str, ...] = ()  # functions that the file wants from the library, and that no known release exports
    # functions whose name has a release later than the first of its major, as a header inlines them
    inlined: tuple[str, ...] = ()
    # of a library that is opened: whether a Python source loads it where no handler expects its absence
    demanded: bool = False
    # version of the oldest wheel whose library has the functions, where one release has several
    wheel: str | None = None
    library: str = field(default="", compare=False)  # its name, as a file links or opens it


def has_runtime(path: str) -> bool:
    """Return whether a library calls the CUDA runtime: it links libcudart, or contains the static one.

    Raises OSError or ValueError if the file cannot be read.
    """
    elf = read_dynamic(path)
    if elf is None:
        return False
    if any(stem_of(library) == "libcudart" for library in elf.needed):
        return True
    with open_regular(path) as stream, buffer(stream) as content:
        return all(content.find(text) >= 0 for text in _RUNTIME_INSIDE)


def needs_of(path: str | Path) -> tuple[Need, ...]:
    """What the files of a wheel, a folder or a library need, without what the wheel or folder contains itself.

    Raises AuditError if the path does not exist, or is not a wheel, folder or library.
    """
    return needs_of_scan(scan_path(path))


def needs_of_scan(scan: Scan) -> tuple[Need, ...]:
    """What the files that were read need, in the order of the files."""
    needs: list[Need] = []
    inside = {stem_of(name) for name in scan.present}
    for name in dict.fromkeys([*scan.elves, *scan.opened, *scan.ltoir]):
        scan.budget.spend()
        majors = file_majors(scan, name)
        if name in scan.elves:
            needs += _linked(scan, name, scan.elves[name], majors)
        needs += _ltoir(scan, name)
        needs += _jitify(scan, name)
        linked = scan.elves[name].needed if name in scan.elves else ()
        opened = [library for library in scan.opened.get(name, ()) if library.name not in linked]
        needs += _opened(name, opened, majors, inside)
    return tuple(dict.fromkeys(needs))


def _linked(scan: Scan, name: str, elf: LoadableLibrary, majors: tuple[int, ...]) -> Iterator[Need]:
    for library in elf.needed:
        known = majors_of(library)
        if known is None or library in scan.present:
            continue
        stem = stem_of(library)
        symbols = _symbols(elf, library, stem)
        named = [int(major) for major in known]
        if stem == "libcuda":
            yield from _driver(name, library, symbols)
            continue
        for major in [number for number in named if number in majors] or named:
            yield Need(name, stem, major, None, "linked", f"needs {library}", library=library)
            if symbols and stem in exports.libraries() and major in exports.sonames(stem):
                yield _by_symbols(name, stem, major, symbols)


def _symbols(elf: LoadableLibrary, library: str, stem: str) -> list[str]:
    """The symbols, none of them weak, that a library must define for a file."""

    def is_of_library(symbol: str, file: str) -> bool:
        return file == library or (not file and (is_unversioned_symbol(library, symbol) or _exported(stem, symbol)))

    strong = ((symbol, file) for symbol, file, _ in elf.undefined if symbol not in elf.weak)
    return sorted({symbol for symbol, file in strong if is_of_library(symbol, file)})


def _exported(stem: str, symbol: str) -> bool:
    """Whether any known release of a library exports a symbol."""
    return stem in exports.libraries() and any(
        exports.since(stem, major, symbol) is not None for major in exports.sonames(stem)
    )


def _by_symbols(name: str, stem: str, major: int, symbols: list[str]) -> Need:
    first = {symbol: exports.since(stem, major, symbol) or _in_name(symbol, major) for symbol in symbols}
    known = {symbol: release for symbol, release in first.items() if release is not None}
    floor = max(known.values(), default=None)
    gone = [release for symbol in known if (release := exports.until(stem, major, symbol)) is not None]
    unknown = tuple(symbol for symbol in symbols if symbol not in known and not symbol.startswith(_CPP))
    newest = [symbol for symbol, release in known.items() if release == floor]
    evidence = f"wants {listed(newest, _SHOWN)} of CUDA {floor}" if floor else f"wants {listed(list(unknown), _SHOWN)}"
    inlined = tuple(symbol for symbol in symbols if (_in_name(symbol, major) or (0, 0)) > (major, 0))
    wheels = [wheel for symbol in newest if (wheel := exports.first_wheel(stem, major, symbol)) is not None]
    below, wheel = min(gone, default=None), max(wheels, key=Version, default=None)
    return Need(name, stem, major, floor, "symbols", evidence, below, unknown, inlined, wheel=wheel)


def _driver(name: str, library: str, symbols: list[str]) -> Iterator[Need]:
    """The needs of the driver: a symbol is there from its first release on, of whatever major."""
    majors = sorted(exports.sonames("libcuda"))
    first: dict[str, CudaVersion] = {}
    for symbol in symbols:
        releases = [release for major in majors if (release := exports.since("libcuda", major, symbol)) is not None]
        if releases:
            first[symbol] = min(releases)
    unknown = tuple(symbol for symbol in symbols if symbol not in first)
    newest = max(first.values(), default=None)
    # a function of the first release that is known may be older
    floor = newest if newest and newest > exports.releases("libcuda", majors[0])[0] else None
    major = floor.major if floor else majors[0]
    yield Need(name, "libcuda", major, None, "linked", f"needs {library}", library=library)
    if symbols:
        shown = listed([symbol for symbol, release in first.items() if release == newest], _SHOWN)
        known = f"wants {shown} of CUDA {newest}{'' if floor else ' or older'}"
        evidence = known if newest else f"wants {listed(list(unknown), _SHOWN)}"
        yield Need(name, "libcuda", major, floor, "symbols", evidence, None, unknown)


def _opened(name: str, opened: list[OpenedLibrary], majors: tuple[int, ...], inside: set[str]) -> Iterator[Need]:
    for library, demanded in opened:
        stem = stem_of_name(library)
        if stem is None or stem in inside:
            continue
        named = [int(major) for major in majors_of(re.split(r"[/\\]", library)[-1]) or ()]
        fitting = [major for major in named if major in majors] or named or list(majors)
        if stem == "libcuda":
            fitting = [min(exports.sonames(stem))]
        verb = "loads" if demanded else "names"
        for major in fitting:
            yield Need(name, stem, major, None, "opened", f"{verb} {library}", demanded=demanded, library=library)


def _ltoir(scan: Scan, name: str) -> Iterator[Need]:
    needs = scan.ltoir.get(name)
    if needs is not None and "libnvJitLink" not in {stem_of(library) for library in scan.present}:
        oldest = needs == Needs(min(NVVM_IR))  # there is no nvJitLink before it
        evidence = f"has LTO-IR of {needs}{' or older' if oldest else ''}"
        yield Need(name, "libnvJitLink", needs.version.major, needs.version, "ltoir", evidence)


def _jitify(scan: Scan, name: str) -> Iterator[Need]:
    release = scan.jitify.get(name)
    if release is not None:
        opens = "opens libnvJitLink through jitify, which refuses one older than its build"
        yield Need(name, "libnvJitLink", release.major, release, "opened", f"{opens}; built with CUDA {release}")


def _in_name(symbol: str, major: int) -> CudaVersion | None:
    """The release in a versioned name, for one that is newer than the table."""
    match = _NAMED_VERSION.fullmatch(symbol)
    return CudaVersion(int(match[1]), int(match[2])) if match and int(match[1]) == major else None
