"""The CUDA release that a file belongs to, with the witness that says so.

Witnesses, the best first: nvJitLink's own version; for a file that is as a wheel lists it, the release of
``cuda-toolkit`` that requires the wheel, by a table of all releases; NVRTC's own version; for a wheel that the table
does not know, the requirements of the installed ``cuda-toolkit``; ``cuda.h`` of the toolkit that the file lies in. The
digits of a wheel's version are no witness: nvidia-cuda-cccl 13.3.5 belongs to CUDA 13.5. The wheels of CUDA 13 share
one folder, so a ``cuda.h`` there counts only for files of its own wheel and for wheels that no ``cuda-toolkit``
requires.

Nothing is loaded. Each file is read once; `cache_clear` forgets the answers.
"""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from ..base.regular_files import has_hash, read_bounded
from ..compat.exports import pin_of, release_in
from ..environment.installed import Installed, read_distribution, read_record, rows_of, unlike, wheels_in
from ..environment.loader_search import names_in
from ..loader.loads import mapped_files
from ..versions import CudaVersion, distribution_version
from .items import Fact

_DEFINE: Final = re.compile(rb"^[ \t]*#[ \t]*define[ \t]+CUDA_VERSION[ \t]+(\d{4,6})\b", re.MULTILINE)
#: Comments, also one that is cut off; and texts, in which nothing is a comment.
_COMMENT: Final = re.compile(rb"""/\*.*?(?:\*/|\Z)|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)
_CONTINUED: Final = re.compile(rb"\\\r?\n")
#: Most bytes that are read of a header (cuda.h of CUDA 13 has 1 MB and its version near the top).
_MOST_HEADER: Final = 8 << 20
_HEAD: Final = 1 << 17


# -- cuda.h


@cache
def _cuda_version_of(header: str) -> CudaVersion | None:
    """``CUDA_VERSION`` of a ``cuda.h``, outside of comments; None if the file has none."""
    try:
        content = read_bounded(header, _MOST_HEADER)
    except OSError:
        return None
    # usually near the top: taking the comments out of the whole file takes 10 ms
    # (two spaces: CPython shares objects of one byte, which a program may have overwritten)
    for part in (content[:_HEAD], content):
        if match := _DEFINE.search(_COMMENT.sub(b"  ", _CONTINUED.sub(b"", part))):
            return CudaVersion.from_driver(int(match[1]))
    return None


def _headers_under(root: str) -> list[str]:
    """Where a toolkit whose root is `root` has its ``cuda.h``."""
    targets = os.path.join(root, "targets")
    folders = [root, *(os.path.join(targets, name) for name in names_in(targets))]
    return [os.path.join(folder, "include", "cuda.h") for folder in folders]


def _by_header(path: str, limit: str | None) -> tuple[Fact, str]:
    """The release by the nearest ``cuda.h`` above a file, not above `limit`, and the path of that; empty if unknown."""
    folder = os.path.dirname(path)
    while True:
        releases = {header: version for header in _headers_under(folder) if (version := _cuda_version_of(header))}
        versions = set(releases.values())
        if len(versions) == 1:
            header, version = next(iter(releases.items()))
            return Fact(version, f"CUDA_VERSION {version.major * 1000 + version.minor * 10} in {header}"), header
        if versions:
            disagree = ", ".join(f"{header} ({version})" for header, version in releases.items())
            return Fact(None, f"the headers of {folder} disagree: {disagree}"), ""
        parent = os.path.dirname(folder)
        if folder in (limit, parent):
            return Fact(None, f"no cuda.h above {path}"), ""
        folder = parent


# -- wheels


@cache
def distributions(site: str) -> tuple[Installed, ...]:
    """Distributions installed in one folder, NVIDIA's first: they own most files of CUDA."""
    return tuple(sorted(wheels_in(site), key=lambda wheel: not wheel.name.startswith(("nvidia", "cuda"))))


def _site_of(path: str) -> str | None:
    """The nearest folder above `path` with installed distributions."""
    folder = os.path.dirname(path)
    while (parent := os.path.dirname(folder)) != folder:
        if distributions(folder):
            return folder
        folder = parent
    return None


@cache
def _record(wheel: Installed) -> bytes:
    with suppress(OSError):
        return read_record(wheel.path)
    return b""


def _row(wheel: Installed, path: str) -> list[str] | None:
    """The row of a path in the RECORD of a wheel; None if it is not listed.

    Only a RECORD that contains the bytes of the path is parsed. For the 300 distributions of benchmarks/guardrails.py,
    parsing every RECORD took 216 ms, searching them 4 ms.
    """
    record = _record(wheel)
    if path.replace('"', '""').encode() in record:
        with suppress(ValueError):
            return next((row for row in rows_of(record) if row[:1] == [path]), None)
    return None


def _is_file_of(path: str, row: Sequence[str]) -> bool:
    """Whether a file is the one that a row of a RECORD describes: its size decides, and its hash if it is small."""
    try:
        size = os.stat(path).st_size
    except OSError:
        return False
    return row[2:] == [str(size)] and (size > _MOST_HEADER or has_hash(path, row[1]))


@cache
def owner(path: str) -> Installed | None:
    """The wheel whose RECORD lists exactly this path; symbolic links are not followed.

    Of several, such as a release and the metadata that an older one left, the one that describes the file.
    """
    path = os.path.normpath(path)
    site = _site_of(path)
    if site is None:
        return None
    relative = os.path.relpath(path, site).replace(os.sep, "/")
    rows = {wheel: row for wheel in distributions(site) if (row := _row(wheel, relative))}
    if len(rows) < 2:
        return next(iter(rows), None)
    described = [wheel for wheel, row in rows.items() if _is_file_of(path, row)]
    return min(described or rows, key=unlike)


def _is_of(wheel: Installed, path: str) -> bool:
    """Whether the RECORD of its owner, unless that says no size, describes a file: else it is of another release."""
    row = _row(wheel, os.path.relpath(path, wheel.site).replace(os.sep, "/")) or []
    return not "".join(row[2:]) or _is_file_of(path, row)


@cache
def requirements(wheel: Installed) -> tuple[Requirement, ...]:
    """The requirements in the METADATA of a wheel, without invalid ones; empty where it cannot be read."""
    needs = []
    with suppress(OSError, ValueError):
        for text in read_distribution(Path(wheel.path)).requires:
            with suppress(InvalidRequirement):
                needs.append(Requirement(text))
    return tuple(needs)


def _toolkits(path: str) -> Iterator[Installed]:
    """The ``cuda-toolkit`` distributions that may cover `path`: of its own environment, and those on ``sys.path``."""
    for site in dict.fromkeys(filter(None, (_site_of(path), *map(os.path.normpath, sys.path)))):
        yield from (wheel for wheel in distributions(site) if wheel.name == "cuda-toolkit")


def _release(text: str) -> CudaVersion | None:
    version = distribution_version(text)
    return None if version is None else CudaVersion(version.major, version.minor)


def _by_toolkit(wheel: Installed, path: str) -> Fact | None:
    """The release of the one cuda-toolkit whose requirements admit a wheel; None where no toolkit requires it."""
    matching: dict[CudaVersion, Installed] = {}
    wanted: list[str] = []
    for toolkit in _toolkits(path):
        needs = (need for need in requirements(toolkit) if canonicalize_name(need.name) == wheel.name)
        asked = {str(need.specifier): need for need in needs}
        release = _release(toolkit.version)
        if not asked or release is None:
            continue
        wanted.append(f"cuda-toolkit {toolkit.version} wants {wheel.name}{' or '.join(sorted(asked))}")
        with suppress(InvalidVersion):  # of a damaged wheel; packaging before 26 raises
            if any(need.specifier.contains(wheel.version, prereleases=True) for need in asked.values()):
                matching[release] = toolkit
    what = f"{wheel.name} {wheel.version}"
    if len(matching) == 1:
        ((release, toolkit),) = matching.items()
        return Fact(release, f"{what} is what cuda-toolkit {toolkit.version} requires")
    if matching:
        names = ", ".join(f"cuda-toolkit {toolkit.version} in {toolkit.site}" for toolkit in matching.values())
        return Fact(None, f"{what} fits more than one toolkit: {names}")
    if wanted:
        return Fact(None, f"{what} fits no installed toolkit: {'; '.join(wanted)}")
    return None


# -- the library itself


_NVRTC: Final = re.compile(r"libnvrtc(?:-[0-9a-f]{8})?\.(?:alt\.)?so\.(\d+)")


def _nvjitlink_version(path: str) -> Fact | None:
    """The version of nvJitLink by its newest symbol: it keeps the aliases of all older minors of its major."""
    if not os.path.basename(path).startswith("libnvJitLink"):
        return None
    version = release_in("libnvJitLink", path)
    return version and Fact(version, f"its newest symbol, __nvJitLinkCreate_{version.major}_{version.minor}")


def _nvrtc_version(path: str) -> Fact | None:
    """The version of NVRTC by its builtins: it works only with those of its own release, and names their file.

    The folder is searched first: finding the name inside the library means reading 100 MB.
    """
    match = _NVRTC.match(os.path.basename(path))
    if match is None:
        return None
    builtins = f"libnvrtc-builtins.so.{match[1]}."
    siblings = {name for name in names_in(os.path.dirname(path)) if name.startswith(builtins)}
    if len(releases := {tuple(name.split(".")[2:4]) for name in siblings}) == 1:
        version = CudaVersion(*map(int, releases.pop()))
        return Fact(version, f"the builtins next to it, {min(siblings)}")
    inside = release_in("libnvrtc", path)
    return inside and Fact(inside, f"the builtins that it asks for, libnvrtc-builtins.so.{inside}")


# -- every witness


def attribute(path: str) -> Fact:
    """The CUDA release that a file belongs to.

    `path`: absolute, as the search returned it; for headers the path of one header file.
    Returns a `CudaVersion` and its witness, or None and the reason.
    """
    path = os.path.normpath(path)
    own = _nvjitlink_version(path)
    if own is not None:
        return own
    wheel = owner(path)
    is_of_wheel = wheel is not None and _is_of(wheel, path)
    if wheel is not None and is_of_wheel and (pin := pin_of(wheel.name, wheel.version)) is not None:
        return Fact(pin.release, f"{wheel.name} {wheel.version} is of cuda-toolkit {pin.toolkit}")
    own = _nvrtc_version(path)
    if own is not None:
        return own
    if wheel is None:
        fact, header = _by_header(path, _site_of(path))
        if (other := owner(header)) is not None:
            return Fact(None, f"no distribution lists {path}, and the nearest cuda.h is that of {other.name}")
        return fact
    if not is_of_wheel:
        return Fact(None, f"{path} is not the file that the RECORD of {wheel.name} {wheel.version} lists")
    if by_toolkit := _by_toolkit(wheel, path):
        return by_toolkit
    by_header, _ = _by_header(path, wheel.site)
    unknown = f"no installed cuda-toolkit requires {wheel.name} {wheel.version}, and {by_header.witness}"
    return by_header if by_header.value is not None else Fact(None, unknown)


def cache_clear() -> None:
    """Forget every answer."""
    for function in (_cuda_version_of, distributions, _record, owner, requirements, release_in):
        function.cache_clear()


# -- libraries in the process


def loaded_libraries(names: dict[str, str], maps: str = "/proc/self/maps") -> list[tuple[str, str]]:
    """Libraries of CUDA that are loaded in this process: what cuda.pathfinder calls each, and its path.

    `names`: name in cuda.pathfinder by stem of the file name: ``{"libnvrtc": "nvrtc"}``.
    `maps`: file in the format of ``/proc/self/maps``.
    Returns them in the order of their addresses; empty where the system has no such file.
    """
    libraries = []
    for path in mapped_files(maps):
        # frameworks rename their copies: libcudart-d0da41ae.so.11.0
        # the emulated driver's nvJitLink has no number in its name, and belongs to no toolkit
        stem = re.match(r"(lib[A-Za-z_]+?)(?:-[0-9a-f]{8})?\.so\.\d", os.path.basename(path))
        if stem and stem[1] in names:
            libraries.append((names[stem[1]], path))
    return libraries
