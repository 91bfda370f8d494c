"""What the project of a matrix requires: its dependencies, extras and dependency groups, as pyproject.toml has them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ..plurals import listed
from .cells import Cell
from .keys import MAJOR, version_of

__all__ = ["Wanted", "major_of_extra", "named", "project_table", "requirements", "warnings"]

#: Names of extras that bring one major release of CUDA.
_OF_MAJOR: Final = re.compile(r"(?:cu|cuda|ctk)-?(\d\d)x?")
#: How many cells a warning names.
_NAMED: Final = 3


class Wanted(NamedTuple):
    """A requirement of a cell.

    Attributes
    ----------
    requirement : Requirement
    where : str
        The table and the name under which it stands, such as ``"group test"``.
    """

    requirement: Requirement
    where: str


def project_table(root: Path) -> dict[str, Any]:
    """Return the content of the project's ``pyproject.toml``; empty without one."""
    try:
        return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}


def major_of_extra(name: str) -> int | None:
    """Return the major release of CUDA that an extra brings by its name, such as ``cu12``; None if it names none."""
    found = _OF_MAJOR.fullmatch(canonicalize_name(name))
    return int(found[1]) if found else None


def named(tables: Any, name: str) -> Any:
    """Return the entry of an extra or a dependency group, whose names are compared as installers do; None without."""
    wanted = canonicalize_name(name)
    return next((value for key, value in _table(tables).items() if canonicalize_name(key) == wanted), None)


def requirements(cell: Cell, content: Mapping[str, Any]) -> list[Wanted]:
    """Return what a cell requires besides the toolkit, as far as the project's file says it.

    Parameters
    ----------
    cell : Cell
    content : mapping
        That of ``pyproject.toml``.
    """
    project = _table(content.get("project"))
    own = canonicalize_name(str(project.get("name", "")))
    found: list[Wanted] = []
    extras = list(cell.values.extras) if cell.values.install != "none" else []
    if cell.values.install != "none":
        found += _read(project.get("dependencies"), "dependencies")
    for extra in extras:  # grows where an extra requires others of the project
        for one in _read(named(project.get("optional-dependencies"), extra), f"extra {extra}"):
            if canonicalize_name(one.requirement.name) != own:
                found.append(one)
            else:
                extras += sorted(one.requirement.extras.difference(extras))
    groups = list(cell.values.groups)
    for group in groups:
        entries = named(content.get("dependency-groups"), group)
        found += _read(entries, f"group {group}")
        included = [one.get("include-group") for one in _list(entries) if isinstance(one, dict)]
        groups += [name for name in included if isinstance(name, str) and name not in groups]
    return found + _read(list(cell.values.packages), "packages")


def warnings(cells: Iterable[Cell], root: Path) -> list[str]:
    """Return what is likely wrong between cells and their project, each with the cells, the reason and what to do.

    A requirement with an extra for one major release of CUDA does not fit the toolkits of another: an installer takes
    a release of the package, perhaps years old, that has no such extra, and says nothing.
    """
    content = project_table(root)
    found: dict[str, list[str]] = {}
    for cell in cells:
        toolkit = version_of(cell.ctk)
        if not cell.is_bare:
            for text in _missing(cell, content):
                found.setdefault(text, []).append(cell.name)
        if toolkit is not None:
            for text in _contradicting(cell, toolkit.major, content):
                found.setdefault(text, []).append(cell.name)
    return [text.replace("CELLS", listed(names, _NAMED)) for text, names in found.items()]


def _missing(cell: Cell, content: Mapping[str, Any]) -> Iterator[str]:
    """Yield the extras and groups of a cell that the project does not have."""
    project = _table(content.get("project"))
    if cell.values.install != "none" and project and "optional-dependencies" not in project.get("dynamic", ()):
        for extra in cell.values.extras:
            if named(project.get("optional-dependencies"), extra) is None:
                yield (
                    f"CELLS: the project has no extra {extra!r}, so that nothing is installed for it; add it to "
                    "[project.optional-dependencies] of pyproject.toml, or leave it out of `extras`"
                )
    for group in cell.values.groups:
        if named(content.get("dependency-groups"), group) is None:
            yield (
                f"CELLS: the project has no dependency group {group!r}, so that nothing can be installed; add it to "
                "[dependency-groups] of pyproject.toml, or leave it out of `groups`"
            )


def _contradicting(cell: Cell, major: int, content: Mapping[str, Any]) -> Iterator[str]:
    """Yield the requirements of a cell whose extra is for another major release than its toolkit."""
    for key, names in (("extras", cell.values.extras), ("groups", cell.values.groups)):
        for name in names:
            other = major_of_extra(name)
            if other not in (None, major):
                yield (
                    f"CELLS: {key} = [{name!r}] is for CUDA {other}, and the toolkit is CUDA {major}; write "
                    f"{_with_major(name)!r}, which each cell fills in"
                )
    for requirement, where in requirements(cell, content):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        for extra in sorted(requirement.extras):
            other = major_of_extra(extra)
            if other in (None, major):
                continue
            if where == "packages":
                remedy = f"write {f'{requirement.name}[{_with_major(extra)}]'!r}, which each cell fills in"
            else:
                key = "groups" if where.startswith("group ") else "extras"
                pair = " and ".join(f"'cu{one}'" for one in sorted({major, other}))
                remedy = f"move it into {key} {pair} of the project, and give the cells {key} = ['cu{MAJOR}']"
            place = "packages" if where == "packages" else f"{where} of pyproject.toml"
            yield (
                f"CELLS: {requirement.name}[{extra}] ({place}) is for CUDA {other}, and the toolkit is CUDA {major}, "
                f"so that an old release of {requirement.name} may be installed, without that extra; {remedy}"
            )


def _with_major(name: str) -> str:
    return re.sub(r"\d\d", MAJOR, name, count=1)


def _read(lines: Any, where: str) -> list[Wanted]:
    """Return the requirements of a list; what is a path, an address or a table is left out."""
    found = []
    for line in _list(lines):
        try:
            found.append(Wanted(Requirement(line), where))
        except (InvalidRequirement, TypeError):
            continue
    return found


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
