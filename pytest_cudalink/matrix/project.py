"""What the project of a matrix requires: its dependencies, extras and dependency groups, as pyproject.toml has them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ..plurals import listed
from ..regular_files import TEXT, read_bounded
from .cells import Cell
from .keys import MAJOR, version_of
from .reading import CellsError

#: Names of extras that bring one major release of CUDA.
_OF_MAJOR: Final = re.compile(r"(?:cu|cuda|ctk)-?(\d\d)x?")
#: How many cells a warning names.
_NAMED: Final = 3


class CellRequirement(NamedTuple):
    """A requirement of a cell."""

    requirement: Requirement
    where: str  # the table and the name under which it stands, such as "group test"


@dataclass(frozen=True)
class Project:
    """A project, as far as its ``pyproject.toml`` says it."""

    name: str = ""
    requires_python: str = ""
    dynamic: list[object] = field(default_factory=list)  # what the build fills in
    dependencies: list[Requirement] = field(default_factory=list)
    extras: Mapping[str, object] = field(default_factory=dict)  # the content of each extra
    groups: Mapping[str, object] = field(default_factory=dict)  # that of each dependency group
    tables: Collection[str] = ()  # the names of the file's tables
    tools: Collection[str] = ()  # the names of those in `tool`

    @classmethod
    def read(cls, root: Path) -> Project:
        """Return the project in a folder; an empty one without ``pyproject.toml``.

        Raises CellsError if the file cannot be read.
        """
        file = root / "pyproject.toml"
        try:
            content = tomllib.loads(read_bounded(file, TEXT).decode())
        except FileNotFoundError:
            return cls()
        except UnicodeDecodeError as error:
            raise CellsError([f"{file}: not UTF-8: {error}"]) from error
        except tomllib.TOMLDecodeError as error:
            raise CellsError([f"{file}: not TOML: {error}"]) from error
        table = _table(content.get("project"))
        return cls(
            str(table.get("name", "")),
            str(table.get("requires-python", "")),
            _list(table.get("dynamic")),
            _read(table.get("dependencies")),
            _table(table.get("optional-dependencies")),
            _table(content.get("dependency-groups")),
            content.keys(),
            _table(content.get("tool")).keys(),
        )

    @property
    def every(self) -> Iterator[Requirement]:
        """The requirements of the project, of all its extras and of all its groups."""
        yield from self.dependencies
        for table in (self.extras, self.groups):
            for lines in table.values():
                yield from _read(lines)


def major_of_extra(name: str) -> int | None:
    """Return the major release of CUDA that an extra brings by its name, such as ``cu12``; None if it names none."""
    found = _OF_MAJOR.fullmatch(canonicalize_name(name))
    return int(found[1]) if found else None


def _named(tables: Mapping[str, object], name: str) -> list[object] | None:
    """Return the content of an extra or a group, whose names are compared as installers do; None without it."""
    wanted = canonicalize_name(name)
    return next((_list(value) for key, value in tables.items() if canonicalize_name(key) == wanted), None)


def requirements(cell: Cell, project: Project) -> list[CellRequirement]:
    """Return the requirements of a cell besides its toolkit."""
    own = canonicalize_name(project.name)
    found: list[CellRequirement] = []
    extras = list(cell.values.extras) if cell.values.install != "none" else []
    if cell.values.install != "none":
        found += [CellRequirement(one, "dependencies") for one in project.dependencies]
    for extra in extras:  # grows where an extra requires others of the project
        for one in _read(_named(project.extras, extra)):
            if canonicalize_name(one.name) != own:
                found.append(CellRequirement(one, f"extra {extra}"))
            else:
                extras += sorted(one.extras.difference(extras))
    groups = list(cell.values.groups)
    for group in groups:
        entries = _named(project.groups, group)
        found += [CellRequirement(one, f"group {group}") for one in _read(entries)]
        included = [one.get("include-group") for one in entries or () if isinstance(one, dict)]
        groups += [name for name in included if isinstance(name, str) and name not in groups]
    return found + [CellRequirement(one, "packages") for one in _read(list(cell.values.packages))]


def warnings(cells: Iterable[Cell], root: Path) -> list[str]:
    """Return what is likely wrong between cells and their project, each with the cells, the reason and what to do.

    A requirement with an extra for one major release of CUDA does not fit the toolkits of another: an installer takes
    a release of the package, perhaps years old, that has no such extra, and says nothing.
    """
    project = Project.read(root)
    found: dict[str, list[str]] = {}
    for cell in cells:
        toolkit = version_of(cell.ctk)
        for text in _missing(cell, project):  # (a bare cell has no extras and no groups)
            found.setdefault(text, []).append(cell.name)
        if toolkit is not None:
            for text in _contradicting(cell, toolkit.major, project):
                found.setdefault(text, []).append(cell.name)
    return [text.replace("CELLS", listed(names, _NAMED)) for text, names in found.items()]


def _missing(cell: Cell, project: Project) -> Iterator[str]:
    """Yield the extras and groups of a cell that the project does not have."""
    if cell.values.install != "none" and "project" in project.tables and "optional-dependencies" not in project.dynamic:
        for extra in cell.values.extras:
            if _named(project.extras, extra) is None:
                yield (
                    f"CELLS: the project has no extra {extra!r}, so that nothing is installed for it; add it to "
                    "[project.optional-dependencies] of pyproject.toml, or leave it out of `extras`"
                )
    for group in cell.values.groups:
        if _named(project.groups, group) is None:
            yield (
                f"CELLS: the project has no dependency group {group!r}, so that nothing can be installed; add it to "
                "[dependency-groups] of pyproject.toml, or leave it out of `groups`"
            )


def _contradicting(cell: Cell, major: int, project: Project) -> Iterator[str]:
    """Yield the requirements of a cell whose extra is for another major release than its toolkit."""
    for key, names in (("extras", cell.values.extras), ("groups", cell.values.groups)):
        for name in names:
            other = major_of_extra(name)
            if other not in (None, major):
                yield (
                    f"CELLS: {key} = [{name!r}] is for CUDA {other}, and the toolkit is CUDA {major}; write "
                    f"{_with_major(name)!r}, which each cell fills in"
                )
    for requirement, where in requirements(cell, project):
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
    return re.sub(r"\d\d", MAJOR, name)


def _read(lines: object) -> list[Requirement]:
    """Return the requirements of a list; what is a path, an address or a table is left out."""
    found = []
    for line in _list(lines):
        with suppress(InvalidRequirement, TypeError):
            found.append(Requirement(line))  # type: ignore[arg-type] # (a table is a TypeError)
    return found


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _table(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}
