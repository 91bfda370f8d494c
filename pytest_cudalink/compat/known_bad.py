"""Combinations of released versions that are known to fail, with the threads that report them.

``data/known_bad.toml`` holds the entries; it is opened when it is first asked for. Nothing here looks at the machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from ..base.tables import read_table
from ..versions import CudaVersion, distribution_version

if TYPE_CHECKING:
    from packaging.version import Version

__all__ = ["KnownBad", "components", "entries", "known_bad"]

Evidence = Literal["measured", "reported"]

_TABLE: Final = "known_bad.toml"
_URL: Final = "https://github.com/"


@dataclass(frozen=True, kw_only=True)
class KnownBad:
    """A combination of versions that is known to fail."""

    id: str  # such as "cuda-core-1-0-0-bindings-13-0"; stays the same
    title: str  # the combination
    happens: str  # what a user sees: code and text of the error
    versions: Mapping[str, str]  # the range (PEP 440) of each distribution or component; all must be there
    # components that must also be of a newer CUDA release than another one, by name
    newer: Mapping[str, str] = field(default_factory=dict)
    # ranges: where one of these is there, the entry is not met
    unless: Mapping[str, str] = field(default_factory=dict)
    arch: tuple[str, ...] = ()  # GPU architectures; empty: any
    driver: str = ""  # range of driver releases; empty: any
    kinds: tuple[str, ...] = ()  # kinds of linked artifacts: "ptx", "ltoir", "cubin", "archive"; empty: any
    threads: tuple[str, ...]  # such as "NVIDIA/cuda-python#2063"
    since: str = ""  # first version that has it; empty if not known
    mended: str = ""  # first version without it; empty if not known
    advice: str  # what to do
    install: tuple[str, ...] = ()  # the requirements that do it; empty: the advice alone
    seen: Evidence  # "measured" or "reported" (only the threads say so)
    test: str = ""  # the test or nox session that runs it; empty: none does
    date: date  # when the entry was written or last tried

    @property
    def links(self) -> tuple[str, ...]:
        """The addresses of the threads."""
        return tuple(f"{_URL}{thread.replace('#', '/issues/')}" for thread in self.threads)

    @property
    def text(self) -> str:
        """The entry in one line: combination, what happens, threads."""
        threads = f" ({', '.join(self.threads)})" if self.threads else ""
        return f"{self.title}: {self.happens}{threads}"

    def sentence(self, arch: str | None, driver: str | None) -> tuple[bool, str]:
        """Return the entry as a finding says it, after whether it has conditions that the arguments do not decide."""
        is_open = self.open_conditions(arch=arch, driver=driver)
        return bool(is_open), f"known to fail: {self.text}{'; only ' if is_open else ''}{', '.join(is_open)}"

    def open_conditions(
        self, *, arch: str | None = None, driver: str | None = None, kinds: Iterable[str] = ()
    ) -> tuple[str, ...]:
        """Return the conditions of the entry that are not decided, because the arguments do not say.

        `arch`, `driver`, `kinds`: as in `known_bad`.
        """
        conditions = (
            (self.arch and arch is None, f"for {', '.join(self.arch)}"),
            (self.driver and _release(driver) is None, f"on drivers {self.driver}"),
            (self.kinds and not tuple(kinds), f"if it links {', '.join(self.kinds)}"),
        )
        return tuple(text for is_open, text in conditions if is_open)


@cache
def entries() -> tuple[KnownBad, ...]:
    """Return every entry, in the order of the file."""
    rows = [{**row, "id": name} for name, row in read_table(_TABLE)["entries"].items()]
    return msgspec.convert(rows, tuple[KnownBad, ...])


@cache
def components() -> Mapping[str, tuple[str, ...]]:
    """Return the parts of the toolkit that entries name, each with the distributions that bring it."""
    return MappingProxyType({name: tuple(wheels) for name, wheels in read_table(_TABLE)["components"].items()})


def known_bad(
    versions: Mapping[str, str], *, arch: str | None = None, driver: str | None = None, kinds: Iterable[str] = ()
) -> tuple[KnownBad, ...]:
    """Return the entries that a set of versions meets.

    A condition that the arguments do not decide counts as met; `KnownBad.open_conditions` names it.

    `versions`: versions by distribution, such as ``{"nvidia-nvjitlink": "13.1.115"}``, or by component, such as
    ``{"nvjitlink": "13.1"}``. A version that is not one of PEP 440 is ignored.
    `arch`: GPU architecture, such as ``"sm_120"``; a suffix is ignored.
    `driver`: release of the driver, such as ``"580.65.06"``.
    `kinds`: kinds of linked artifacts.
    """
    there = _versions(versions)
    release, wanted = _release(driver), frozenset(kinds)
    number = re.sub(r"(?<=\d)[af]$", "", arch) if arch else None
    return tuple(
        entry
        for entry in entries()
        if _meets(entry, there)
        and (not entry.arch or number is None or number in entry.arch)
        and (release is None or _in(entry.driver, release))
        and (not entry.kinds or not wanted or wanted & set(entry.kinds))
    )


def _meets(entry: KnownBad, there: Mapping[str, frozenset[Version]]) -> bool:
    def is_there(ranges: Mapping[str, str]) -> Iterator[bool]:
        return (any(_in(spec, version) for version in there.get(name, ())) for name, spec in ranges.items())

    def is_newer(name: str, other: str) -> bool:
        return any(a.major == b.major and a > b for a in there.get(name, ()) for b in there.get(other, ()))

    newer = all(is_newer(name, other) for name, other in entry.newer.items())
    return all(is_there(entry.versions)) and newer and not any(is_there(entry.unless))


def _versions(versions: Mapping[str, str]) -> dict[str, frozenset[Version]]:
    """The versions of distributions and components; those of components are CUDA releases."""
    from packaging.version import Version

    from .exports import release_of_wheel

    versions_of: dict[str, set[Version]] = {}
    known = {wheel for wheels in components().values() for wheel in wheels}
    brought = {wheel: [name for name, wheels in components().items() if wheel in wheels] for wheel in known}
    for given, text in versions.items():
        name = re.sub(r"[-_.]+", "-", given).lower()
        release: CudaVersion | None = None
        if name in components():
            with suppress(ValueError):
                release = CudaVersion.parse(text)
        elif (version := distribution_version(text)) is not None:
            versions_of.setdefault(name, set()).add(version)
            release = release_of_wheel(name, text) if name in brought else None
        for component in brought.get(name, [name]) if release else ():
            versions_of.setdefault(component, set()).add(Version(str(release)))
    return {name: frozenset(kinds) for name, kinds in versions_of.items()}


def _release(driver: str | None) -> Version | None:
    return distribution_version(driver or "")


def _in(spec: str, version: Version) -> bool:
    return bool(_specifier(spec).contains(version, prereleases=True))


@cache
def _specifier(spec: str) -> Any:
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(spec)
