"""Which Pythons and platforms a wheel is for, by its file name, and whether version requirements agree.

The specifiers of Python and of conda both have bounds, pins and wildcards, so that the versions that a set of them
accepts are intervals. `common_version` tries a version in each interval that the written bounds can form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

# (`cudalink can-link` compares versions alone, and would take twice its time with the rest of packaging)
if TYPE_CHECKING:
    from packaging.requirements import Requirement
    from packaging.tags import Tag

#: Whether a specifier accepts a version.
Accepts = Callable[[str, str], bool]

_WRITTEN: Final = re.compile(r"\d[0-9A-Za-z.!+_-]*")
_RELEASE: Final = re.compile(r"\d{1,9}(?:\.\d{1,9}){0,7}", re.ASCII)
#: Characters of all specifiers together that are looked at; the longest that was seen in a wheel has 60.
_MOST_TEXT: Final = 4_000


_specifiers = lru_cache(maxsize=4096)(SpecifierSet)


def parse_requirement(line: str) -> Requirement:
    """Return a requirement whose bounds can be compared; packaging reads their numbers only when it compares them.

    Raises ValueError if it is invalid, nested too deep, or has a number with thousands of digits.
    """
    from packaging.requirements import Requirement

    try:
        requirement = Requirement(line)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    for bound in requirement.specifier:
        bound.contains("1")
    return requirement


def accepts(specifier: str, version: str) -> bool:
    """Whether a Python specifier accepts a version, pre-releases included.

    Raises packaging.specifiers.InvalidSpecifier if the specifier is invalid.
    """
    try:
        return _specifiers(specifier).contains(Version(version), prereleases=True)
    except InvalidVersion:
        return specifier.strip() == ""


def versions_around(specifiers: Sequence[str]) -> Iterator[str]:
    """Yield the versions that specifiers name, one right above each, and one for each of its numbers raised by one."""
    text = " ".join(specifiers)[:_MOST_TEXT]
    yield from dict.fromkeys(_WRITTEN.findall(text))
    releases = {tuple(int(number) for number in written.split(".")) for written in _RELEASE.findall(text)} | {(0,)}
    longest = max(map(len, releases))
    candidates = set()
    for release in releases:
        above = (*release, *(0,) * (longest - len(release)), 1)  # and below every other of that length
        candidates |= {release, above}
        candidates |= {(*release[:at], number + 1) for at, number in enumerate(release)}
    for release in sorted(candidates):
        yield ".".join(map(str, release))


def common_version(specifiers: Sequence[str], accept: Accepts = accepts) -> str | None:
    """Return a version that every specifier accepts; None if no version satisfies all of them."""
    tried = versions_around(specifiers)
    return next((version for version in tried if all(accept(specifier, version) for specifier in specifiers)), None)


def highest_version(specifier: str, others: Sequence[str], accept: Accepts = accepts) -> int:
    """Return the rank of the highest version that a specifier accepts, among those around it and others; -1 if none.

    Of two specifiers without a common version, the one with the lower rank is the one that bounds from above.
    """
    ranked = [version for version in versions_around([specifier, *others]) if _RELEASE.fullmatch(version)]
    ranked = sorted(set(ranked), key=lambda version: tuple(map(int, version.split("."))))
    return max((at for at, version in enumerate(ranked) if accept(specifier, version)), default=-1)


#: The minor versions of Python that a wheel without an exact one may be installed on.
_MINORS: Final = range(9, 16)
_INTERPRETER: Final = re.compile(r"(cp|pp|py)3(\d*)")
_SYSTEMS: Final = {"win": ("win32", "Windows", "nt"), "macosx": ("darwin", "Darwin", "posix")}
_LINUX: Final = ("linux", "Linux", "posix")


@dataclass(frozen=True, order=True)
class InstallTarget:
    """One Python on one platform."""

    minor: int  # 12 of Python 3.12
    pypy: bool
    system: tuple[str, str, str]  # the values of `sys_platform`, `platform_system` and `os_name`
    machine: str  # the value of `platform_machine`

    def __str__(self) -> str:
        return f"{'PyPy' if self.pypy else 'Python'} 3.{self.minor} on {self.system[1]} {self.machine}"

    @property
    def environment(self) -> dict[str, str]:
        """The value of every variable of markers; of the release of the kernel, which no wheel names, an empty one."""
        full = f"3.{self.minor}.99"  # the newest patch release, whatever its number
        return {
            "implementation_name": "pypy" if self.pypy else "cpython",
            "implementation_version": full,
            "os_name": self.system[2],
            "platform_machine": self.machine,
            "platform_python_implementation": "PyPy" if self.pypy else "CPython",
            "platform_release": "",
            "platform_system": self.system[1],
            "platform_version": "",
            "python_full_version": full,
            "python_version": f"3.{self.minor}",
            "sys_platform": self.system[0],
        }


def targets_of(
    path: str, requires_python: str = "", *, windows: bool = False, machine: str = ""
) -> list[InstallTarget]:
    """The targets of a wheel, the oldest Python first.

    `path`: of which only the file name counts. A folder has none: its files say the platform, and it is for every
    Python.
    `requires_python`: Requires-Python of its METADATA.
    `windows`: whether it has DLLs, for a wheel of any platform.
    `machine`: of its libraries, for a wheel of any platform; the default is x86_64.
    """
    inside = (_SYSTEMS["win"], "AMD64") if windows else (_LINUX, machine or "x86_64")
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    try:
        tags: Iterable[Tag] = parse_wheel_filename(re.split(r"[\\/]", path)[-1])[3]
    except InvalidWheelFilename:
        tags = ()
    targets = {
        InstallTarget(minor, tag.interpreter.startswith("pp"), *(_platform(tag.platform) or inside))
        for tag in tags
        for minor in _minors(tag)
    }
    targets = targets or {InstallTarget(minor, False, *inside) for minor in _MINORS}  # noqa: FBT003 (the second field)
    try:
        specifier = SpecifierSet(requires_python)
        accepted = {target for target in targets if specifier.contains(f"3.{target.minor}.99")}
    except ValueError:  # InvalidSpecifier is one, and a number can be too long for an int
        accepted = targets
    return sorted(accepted or targets)


def _minors(tag: Tag) -> Iterator[int]:
    match = _INTERPRETER.fullmatch(tag.interpreter)
    if match is None:
        return
    minor = int(match[2][:3] or 0)
    if tag.abi.startswith("abi3") or match[1] == "py":
        yield from range(max(minor, _MINORS.start), max(minor + 1, _MINORS.stop))
    else:
        yield minor


def _platform(tag: str) -> tuple[tuple[str, str, str], str] | None:
    """System and machine of a platform tag; None for any."""
    if tag == "any":
        return None
    match = re.fullmatch(r"([a-z]+)(?:1|2010|2014|_\d+_\d+)?(?:_(\w+))?", tag)
    kind, machine = (match[1], match[2] or "") if match else ("win", "x86")  # win32
    if kind == "win":
        return _SYSTEMS[kind], machine if machine == "x86" else machine.upper()
    return _SYSTEMS.get(kind, _LINUX), "arm64" if machine == "universal2" else machine
