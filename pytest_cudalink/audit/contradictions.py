"""Whether version requirements can be satisfied together, for the specifiers of Python and of conda. Pure.

Both have bounds, pins and wildcards, so that the versions that a set of them accepts are intervals. `common_version`
tries a version in each interval that the written bounds can form, and needs no knowledge of either syntax.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Final

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

#: Whether a specifier accepts a version.
Accepts = Callable[[str, str], bool]

_WRITTEN: Final = re.compile(r"\d[0-9A-Za-z.!+_-]*")
_RELEASE: Final = re.compile(r"\d{1,9}(?:\.\d{1,9}){0,7}", re.ASCII)
#: Characters of all specifiers together that are looked at; the longest that was seen in a wheel has 60.
_MOST_TEXT: Final = 4_000


@lru_cache(maxsize=4096)
def _specifiers(text: str) -> SpecifierSet:
    return SpecifierSet(text)


def parse_requirement(line: str) -> Requirement:
    """Return a requirement whose bounds can be compared; packaging reads their numbers only when it compares them.

    Raises ValueError if it is invalid, nested too deep, or has a number with thousands of digits.
    """
    try:
        requirement = Requirement(line)
    except RecursionError as error:
        msg = "nested too deep"
        raise ValueError(msg) from error
    for one in requirement.specifier:
        one.contains("1")
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
    releases = {tuple(int(number) for number in one.split(".")) for one in _RELEASE.findall(text)} | {(0,)}
    longest = max(map(len, releases))
    found = set()
    for release in releases:
        found.add(release)
        found.add((*release, *(0,) * (longest - len(release)), 1))  # above it, and below every other of that length
        found |= {(*release[:at], number + 1) for at, number in enumerate(release)}
    for release in sorted(found):
        yield ".".join(map(str, release))


def common_version(specifiers: Sequence[str], accept: Accepts = accepts) -> str | None:
    """Return a version that every specifier accepts; None if no version satisfies all of them."""
    tried = versions_around(specifiers)
    return next((version for version in tried if all(accept(one, version) for one in specifiers)), None)


def highest_version(specifier: str, others: Sequence[str], accept: Accepts = accepts) -> int:
    """Return the rank of the highest version that a specifier accepts, among those around it and others; -1 if none.

    Of two specifiers without a common version, the one with the lower rank is the one that bounds from above.
    """
    ranked = [version for version in versions_around([specifier, *others]) if _RELEASE.fullmatch(version)]
    ranked = sorted(set(ranked), key=lambda version: tuple(map(int, version.split("."))))
    return max((at for at, version in enumerate(ranked) if accept(specifier, version)), default=-1)
