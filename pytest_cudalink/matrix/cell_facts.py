"""What a run knows of its cell besides the plugin's settings: for its record, its header and the report."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from packaging.version import InvalidVersion, Version

from ..base.regular_files import read_text
from .cells import RunKeys
from .hiding import HIDDEN_VARIABLE, Hidden

if TYPE_CHECKING:
    from ..report.records import VersionRecord

#: Ends the name of the file, next to the record, with the releases that the project gets without the cell's toolkit.
NEWER: Final = ".newer.txt"

_NOT_HIDDEN: Final = "not hidden: pytest was not started as the runners of the matrix start it"


@dataclass(frozen=True)
class CellFacts:
    """The facts of a cell; all are empty where it has no such keys."""

    # what distinguishes the cell from others, with the packages as they were found
    axes: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, VersionRecord] = field(default_factory=dict)  # the packages whose version the cell chooses
    hidden: str = ""  # what the cell hides, and how
    # the packages that are older than without the cell's toolkit, with the release that they would have; they are among
    # `versions`, too
    older: Mapping[str, str] = field(default_factory=dict)

    @property
    def lines(self) -> list[str]:
        """The lines of the header."""
        words = [f"{name} {value}" for name, value in self.axes.items() if name not in {*self.versions, "hidden"}]
        for name, version in self.versions.items():
            if name in self.older:
                continue
            asked = version.get("resolved") or version["requested"]
            there = version["found"] or "none"
            words.append(f"{name} {there}" if asked == there else f"{name} {there} (requested {version['requested']})")
        older = [
            f"{name} {self.versions[name]['found']} is older than {newer}, the release without this cell's toolkit: a "
            "requirement does not fit the toolkit; `cudalink matrix check` names extras of another CUDA release"
            for name, newer in self.older.items()
        ]
        return [*([f"cell: {', '.join(words)}"] if words else []), *([self.hidden] if self.hidden else []), *older]


def cell_facts(
    find: Callable[[str], str | None], environment: Mapping[str, str] = os.environ, hidden: Hidden | None = None
) -> CellFacts:
    """Return the facts of the cell that the environment describes.

    `find`: returns the version of an installed package by its normalized name; None for one that is not installed.
    `hidden`: what the process itself has hidden; default what `HIDDEN_VARIABLE` says.
    """
    try:
        keys = RunKeys.read(environment)
        hidden = hidden or (Hidden.of(environment[HIDDEN_VARIABLE]) if environment.get(HIDDEN_VARIABLE) else None)
    except (TypeError, ValueError):  # written by hand
        return CellFacts()
    axes = dict(keys.axes)
    chosen = _pins(environment, ".requirements.txt")
    versions: dict[str, VersionRecord] = {}
    for name, requested in keys.packages.items():
        installed = find(name)
        axes[name] = installed or "none"
        versions[name] = _version(name, requested, installed)
        if requested == "lowest" and name in chosen:
            versions[name]["resolved"] = chosen[name]
    older = {}
    for name, newer in _pins(environment, NEWER).items():
        installed = find(name)
        if installed is not None and name not in versions and _is_older(installed, newer):
            older[name] = newer
            versions[name] = _version(name, f"{newer}, as without the toolkit", installed)
    if not keys.hidden:
        return CellFacts(axes, versions, older=older)
    axes["hidden"] = hidden.axis if hidden else "not hidden"
    return CellFacts(axes, versions, str(hidden) if hidden else _NOT_HIDDEN, older)


def _version(name: str, requested: str, installed: str | None) -> VersionRecord:
    """Return what a record says of a package."""
    kind: Literal["real", "absent"] = "real" if installed else "absent"
    return {"requested": requested, "found": installed, "source": f"metadata of {name}", "kind": kind}


def _is_older(version: str, newer: str) -> bool:
    try:
        return Version(version) < Version(newer)
    except InvalidVersion:  # of a distribution that was not built for an index
        return False


def _pins(environment: Mapping[str, str], end: str) -> dict[str, str]:
    """Return the versions in a file that was written when the cell was installed, by package."""
    try:
        file = Path(environment["CUDALINK_REPORT"]).with_name(f"{environment['CUDALINK_CELL']}{end}")
        text = read_text(file)
    except (LookupError, OSError, ValueError):
        return {}
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))
