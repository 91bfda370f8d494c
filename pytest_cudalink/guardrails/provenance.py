"""Where the CUDA libraries of a process come from and for whom they were loaded; which of them do not belong together.

Pure apart from reading the metadata of installed distributions and the files' names and versions; nothing is loaded.
"""

from __future__ import annotations

import os
import re
import site
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Literal, NamedTuple

from ..compat import libraries
from ..loader.loads import LoadedObject, Opening
from ..versions import CudaVersion

Place = Literal["wheels", "conda", "system", "driver", "emulated", "toolchains"]
#: Places that can be expected, in words.
_EXPECTED: Final = {"wheels": "a wheel of this environment", "conda": "the conda prefix", "system": "the system"}
#: Places that no expectation is about: every process has one driver, and it is never in a wheel.
_OUTSIDE: Final[tuple[Place, ...]] = ("driver", "emulated")
_DRIVER: Final = re.compile(r"lib(?:cuda|nvidia-[\w-]+|nvcuvid)\.so(?:\.\d+)*")
_NUMBER: Final = re.compile(r"\.so\.(\d+)")
_WHOLE_NUMBER: Final = re.compile(r"\.so\.(\d+\.\d+(?:\.\d+)*)$")
#: What to do about two copies of a library.
ONE_COPY: Final = "Let every part of the process use one copy, from one toolkit"
_VARIABLES: Final = ("LD_LIBRARY_PATH", "CUDA_PATH", "CUDA_HOME")
_CHAIN: Final = 8
_PACKAGE: Final = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Library:
    """A CUDA library that a process has loaded."""

    name: str  # such as "libcudart"
    soname: str
    path: str  # as it was opened, or as the loader found it
    real_path: str  # the file itself, with every symbolic link followed
    # "wheels": installed with a distribution of this environment. "conda": in its conda prefix. "driver" and
    # "emulated": part of the driver. "toolchains": in the cache of toolchains. "system": elsewhere.
    place: Place
    owner: str  # the distribution that owns it, with its version; empty without one
    version: str  # the CUDA release, or the driver's own version; empty where it is not known
    witness: str  # where the version was read, or why it is not known
    for_whom: str  # what it was loaded for; empty where that is not known
    is_probed: bool = False  # whether this plugin alone opened it, to read its version

    @property
    def release(self) -> CudaVersion | None:
        """The CUDA release; None for a driver, and where it is not known."""
        known = self.version and self.place not in _OUTSIDE
        return CudaVersion.parse(self.version) if known else None

    @property
    def label(self) -> str:
        """The library in one line: name, release, place, file."""
        owner = f", {self.owner}" if self.owner else ""
        file = "" if self.path == self.real_path else f", which is {self.real_path}"
        return f"{self.soname} {self.version or '(version not known)'} ({self.place}{owner}): {self.path}{file}"


class ProcessEnvironment(NamedTuple):
    """The environment of a process."""

    sites: frozenset[Path]  # the folders in which its distributions are installed
    prefixes: tuple[Path, ...]  # the folders of its Python, which may be a conda environment
    variables: Mapping[str, str]  # its environment variables

    @classmethod
    def here(cls) -> ProcessEnvironment:
        """Return the environment of this process."""
        folders = [*site.getsitepackages(), site.getusersitepackages(), *sys.path]
        return cls.of(folders, (sys.prefix, sys.base_prefix), os.environ)

    @classmethod
    def of(cls, folders: Iterable[str], prefixes: Iterable[str], variables: Mapping[str, str]) -> ProcessEnvironment:
        """Return an environment by the folders that its Python searches, of which some have distributions."""
        sites = frozenset(Path(folder).resolve() for folder in folders if folder.endswith("-packages"))
        return cls(sites, tuple(Path(prefix).resolve() for prefix in dict.fromkeys(prefixes)), variables)


# -- what a loaded object is


def describe(
    loaded: LoadedObject,
    objects: Sequence[LoadedObject],
    openings: Iterable[Opening],
    process: ProcessEnvironment | None = None,
) -> Library | None:
    """Return the CUDA library that a loaded object is; None if it is not one.

    `objects`: what was loaded with it, in the order in which the loader did.
    `openings`: what Python code has opened meanwhile.
    `process`: the environment of the process; default that of this one.
    """
    path = os.path.abspath(loaded.path)  # noqa: PTH100 (a Path would follow no `..`)
    names = (Path(path).name, loaded.soname)
    known = next((name for name in names if libraries.majors_of(name) is not None), None)
    if known is None:
        return None
    real = os.path.realpath(path)
    name = libraries.stem_of(known)
    place, owner = _place(path, real, process or ProcessEnvironment.here())
    version, witness = _version(name, path, real, place)
    for_whom, opening = _for_whom(loaded, objects, openings)
    is_probed = opening is not None and not used_by(loaded, objects, openings)
    return Library(name, loaded.soname or known, path, real, place, owner, version, witness, for_whom, is_probed)


def used_by(loaded: LoadedObject, objects: Sequence[LoadedObject], openings: Iterable[Opening]) -> str:
    """Return what has loaded or opened an object, other than this plugin; empty without such."""
    ours = ("pytest-cudalink", "")
    return _for_whom(loaded, objects, (opening for opening in openings if (opening.through, opening.where) != ours))[0]


def _place(path: str, real: str, process: ProcessEnvironment) -> tuple[Place, str]:
    """Return the place of a file and the distribution that owns it."""
    file = Path(real)
    if file.is_relative_to(_PACKAGE):
        return "emulated", ""
    if _DRIVER.fullmatch(file.name) and file.parent.name != "stubs":  # (a toolkit's stubs are no driver)
        return "driver", ""
    if file.is_relative_to(_toolchains()):
        return "toolchains", ""
    from . import attribution  # (which imports packaging, for files of the toolkit alone)

    for name in dict.fromkeys((path, real)):
        wheel = attribution.owner(name)
        if wheel is not None:
            here = Path(wheel.site).resolve() in process.sites
            return ("wheels" if here else "system"), f"{wheel.name} {wheel.version}"
    if any(file.is_relative_to(folder) for folder in process.sites):
        return "wheels", ""
    if any((prefix / "conda-meta").is_dir() and file.is_relative_to(prefix) for prefix in process.prefixes):
        return "conda", ""
    return "system", ""


@cache
def _toolchains() -> Path:
    from ..toolchains import cache_root

    return cache_root().resolve()


def _version(name: str, path: str, real: str, place: Place) -> tuple[str, str]:
    """Return the version of a library's file, and where it was read; empty with the reason where it is not known."""
    full = _WHOLE_NUMBER.search(Path(real).name)
    if place in _OUTSIDE:
        return (full[1], "its file name") if full else ("", "its file name has no version")
    from ..compat.exports import release_of_file
    from . import attribution

    fact = attribution.attribute(path)
    if fact.value is None and path != real:
        fact = attribution.attribute(real)
    if fact.value is not None:
        return str(fact.value), fact.witness
    if release := release_of_file(real):
        return str(release), "its file name"
    if name == "libcudart" and (release := _answer_of_runtime(path)) is not None:
        return str(release), "cudaRuntimeGetVersion of the loaded library"
    return "", fact.witness


def _answer_of_runtime(path: str) -> CudaVersion | None:
    """Return what a loaded CUDA runtime says of itself, which initializes nothing: a wheel may have bundled it."""
    import ctypes

    number = ctypes.c_int()
    try:
        library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD)
        answered = library.cudaRuntimeGetVersion(ctypes.byref(number)) == 0
    except (OSError, AttributeError):
        return None
    return CudaVersion.from_driver(number.value) if answered and number.value else None


# -- for whom


def _for_whom(
    loaded: LoadedObject, objects: Sequence[LoadedObject], openings: Iterable[Opening]
) -> tuple[str, Opening | None]:
    """Return what an object was loaded for: what is linked with it, and the code that opened it or that."""
    chain: list[LoadedObject] = []
    current = loaded
    while len(chain) < _CHAIN and (parent := _parent(current, objects, [loaded, *chain])) is not None:
        chain.append(parent)
        current = parent
    words = ", for ".join(shown(image.path) for image in chain)
    opening = next((opening for opening in openings if _opens(opening, current)), None)
    if opening is None:
        return words, None
    through = f" through {opening.through}" if opening.through else ""
    opened = f"opened{through} at {opening.where}" if opening.where else f"opened{through}"
    return f"{words}, {opened}" if words else opened, opening


def _parent(loaded: LoadedObject, objects: Sequence[LoadedObject], but: Sequence[LoadedObject]) -> LoadedObject | None:
    """Return the object that was loaded with another and is linked with it, the first if there are several."""
    names = {loaded.soname, Path(loaded.path).name} - {""}
    return next((image for image in objects if image not in but and names & {*image.needed}), None)


def shown(path: str) -> str:
    """Return the path of an object with the distribution that owns it."""
    from . import attribution

    wheel = attribution.owner(os.path.abspath(path))  # noqa: PTH100
    return f"{path} ({wheel.name} {wheel.version})" if wheel is not None else path


def _opens(opening: Opening, loaded: LoadedObject) -> bool:
    if os.sep in opening.name:
        return os.path.realpath(opening.name) == os.path.realpath(loaded.path)
    return opening.name in (loaded.soname, Path(loaded.path).name)


# -- what is expected


def is_from(library: Library, expected: str) -> bool:
    """Whether a library is from where it is expected.

    `expected`: ``"any"``, ``"wheels"``, ``"system"``, ``"conda"``, or absolute folders, separated as in ``PATH``.
    """
    if expected == "any" or library.place in _OUTSIDE:
        return True
    if expected in _EXPECTED:
        return library.place == expected
    folders = [os.path.realpath(folder) for folder in expected.split(os.pathsep)]
    return any(Path(library.real_path).is_relative_to(folder) for folder in folders)


def foreign(library: Library, expected: str, requested: str, process: ProcessEnvironment | None = None) -> str:
    """Return what is wrong with a library that is not from where it is expected, and what to do, in lines.

    `requested`: the setting with its source, for the message.
    `process`: the environment of the process; default that of this one.
    """
    where = _EXPECTED.get(expected) or f"a file below {expected.replace(os.pathsep, ' or ')}"
    lines = [
        f"{library.soname} is {_FROM[library.place]}: {library.path}; expected {where}",
        f"  --cudalink-provenance is {requested}",
        *([f"  the file is {library.real_path}"] if library.path != library.real_path else []),
        f"  CUDA {library.version or 'release not known'}: {library.witness}",
        *([f"  it belongs to {library.owner}"] if library.owner else []),
        f"  loaded for: {library.for_whom or 'not known'}",
        f"  {_advice(library, expected, os.environ if process is None else process.variables)}",
    ]
    return "\n".join(lines)


_FROM: Final[dict[Place, str]] = {
    "wheels": "from a wheel",
    "conda": "from conda",
    "system": "from the system",
    "driver": "from the driver",
    "emulated": "from the emulated driver",
    "toolchains": "from the cache of toolchains",
}


def _advice(library: Library, expected: str, variables: Mapping[str, str]) -> str:
    """Return what to do about a library from elsewhere."""
    named = [
        f"{name} names {folder}"
        for name in _VARIABLES
        for folder in variables.get(name, "").split(os.pathsep)
        if Path(folder).is_absolute() and Path(library.real_path).is_relative_to(os.path.realpath(folder))
    ]
    brings = {
        "wheels": f"install the wheel that brings {library.name}, and require it in the project's metadata",
        "conda": f"install the conda package that brings {library.name}",
        "system": f"uninstall {library.owner or 'the copy'} or let the loader find the system's {library.name} first",
    }
    todo = brings.get(expected, f"let the loader find {library.name} below that folder first")
    return f"{'; '.join(named)}: unset it, or {todo}" if named else f"{todo[0].upper()}{todo[1:]}"


# -- what does not belong together


def clash(library: Library, other: Library) -> Literal["", "minors", "majors"]:
    """Return how two loaded libraries conflict: by their ``"majors"`` or ``"minors"``; empty if they do not."""
    if library.name != other.name or library.real_path == other.real_path or {library.place, other.place} & {*_OUTSIDE}:
        return ""
    numbers = [match[1] if (match := _NUMBER.search(each.soname)) else "" for each in (library, other)]
    first, second = library.release, other.release
    if first is not None and second is not None:
        if first.major != second.major:
            return "majors"
        return "" if first == second else "minors"
    return "majors" if all(numbers) and numbers[0] != numbers[1] else ""


def together(kind: str, *copies: tuple[Library, str]) -> str:
    """Return in lines that two libraries are in one process.

    `kind`: as `clash` returns it.
    `copies`: the libraries, and in words when each was loaded.
    """
    lines = [
        f"  {library.label}\n    loaded {when}, for: {library.for_whom or 'not known'}" for library, when in copies
    ]
    return "\n".join([f"two {kind} of {copies[0][0].name} in one process:", *lines])


def faults(
    loaded: tuple[Library, str],
    before: Iterable[tuple[Library, str]],
    expected: str,
    requested: str,
    process: ProcessEnvironment | None = None,
) -> Iterator[str]:
    """Yield what is wrong with a library in its process; where it may be from anywhere, that is a second major alone.

    `loaded`: the library, and in words when it was loaded.
    `before`: the same of those that the process had.
    `expected`: as of `is_from`.
    `requested`, `process`: as of `foreign`.
    """
    library = loaded[0]
    if not is_from(library, expected):
        yield foreign(library, expected, requested, process)
    kinds = ((clash(library, other[0]), other) for other in before)
    for kind, other in kinds:
        if kind == "majors" or (kind and expected != "any"):
            yield together(kind, other, loaded) + ("" if expected == "any" else f"\n  {ONE_COPY}")
            return


def mixed_majors(producer: str | None, linker: str | None) -> bool:
    """Whether the producer of an input and the linker are of different majors; False where one is not known."""
    if producer is None or linker is None:
        return False
    return CudaVersion.parse(producer).major != CudaVersion.parse(linker).major
