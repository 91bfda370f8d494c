"""What the project of a matrix requires: its dependencies, extras and dependency groups, as pyproject.toml has them."""

from __future__ import annotations

import ast
import configparser
import re
import shlex
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from ..base.regular_files import TEXT, read_bounded
from ..base.tables import grouped
from ..base.words import listed
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
    table: Literal["dependencies", "extra", "group", "packages"]  # where it stands
    name: str = ""  # of the extra or group

    @property
    def where(self) -> str:
        """The table and the name under which it stands: ``"group test"``."""
        return f"{self.table} {self.name}".rstrip()


@dataclass(frozen=True)
class Project:
    """A project, as far as its ``pyproject.toml`` says it."""

    name: str = ""
    requires_python: str = ""
    dynamic: list[object] = field(default_factory=list)  # what the build fills in
    dependencies: list[Requirement] = field(default_factory=list)
    extras: Mapping[str, object] = field(default_factory=dict)  # the content of each extra
    groups: Mapping[str, object] = field(default_factory=dict)  # that of each dependency group
    # those of poetry, which other installers do not read; a requirement that PEP 440 cannot say is left out
    poetry_groups: Mapping[str, list[Requirement]] = field(default_factory=dict)
    tables: Collection[str] = ()  # the names of the file's tables
    tools: Collection[str] = ()  # the names of those in `tool`

    @classmethod
    def read(cls, root: Path) -> Project:
        """Return the project in a folder; an empty one without ``pyproject.toml``.

        Raises CellsError if the file cannot be read.
        """
        content = _content(root)
        table, tool = _table(content.get("project")), _table(content.get("tool"))
        poetry = _table(tool.get("poetry"))
        groups = {name: _table(group).get("dependencies") for name, group in _table(poetry.get("group")).items()}
        groups |= {"dev": poetry["dev-dependencies"]} if "dev-dependencies" in poetry else {}
        dynamic = _list(table.get("dynamic"))
        project = cls(
            str(table.get("name", "")),
            str(table.get("requires-python", "")),
            dynamic,
            _read(table.get("dependencies")),
            _table(table.get("optional-dependencies")),
            _table(content.get("dependency-groups")),
            {name: [*_of_poetry(group)] for name, group in groups.items()},
            content.keys() or (),
            tool.keys() or (),
        )
        if table or not poetry:
            filled = {"dependencies": "dependencies", "optional-dependencies": "extras"}
            fields = [filled[key] for key in filled if key in dynamic] if table else ["name", *filled.values()]
            own = _of_setuptools(root) if fields else {}
            return replace(project, **{key: own[key] for key in fields})
        # poetry before its release 2 has all of it in its own tables
        required = _table(poetry.get("dependencies"))
        python = required.pop("python", "*")
        return replace(
            project,
            name=str(poetry.get("name", "")),
            requires_python=_bounds(str(python)) or "",
            dependencies=[*_of_poetry(required, optional=False)],
            extras=_table(poetry.get("extras")),
        )

    @property
    def every(self) -> Iterator[Requirement]:
        """The requirements of the project, of all its extras and of all its groups."""
        yield from self.dependencies
        for group in self.poetry_groups.values():
            yield from group
        for table in (self.extras, self.groups):
            for lines in table.values():
                yield from _read(lines)


def major_of_extra(name: str) -> int | None:
    """Return the major release of CUDA that an extra brings by its name, such as ``cu12``; None if it names none."""
    match = _OF_MAJOR.fullmatch(canonicalize_name(name))
    return int(match[1]) if match else None


def _content(root: Path) -> dict[str, object]:
    """Return the content of a project's ``pyproject.toml``; empty without the file.

    Raises CellsError if the file cannot be read.
    """
    file = root / "pyproject.toml"
    try:
        return tomllib.loads(read_bounded(file, TEXT).decode())
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as error:
        raise CellsError([f"{file}: not UTF-8: {error}"]) from error
    except tomllib.TOMLDecodeError as error:
        raise CellsError([f"{file}: not TOML: {error}"]) from error


def _of_setuptools(root: Path) -> dict[str, Any]:
    """Return the name, dependencies and extras of ``setup.cfg`` and ``setup.py``; the latter is read, and never run."""
    parser = _ini(root / "setup.cfg")
    section = "options.extras_require"
    keys = parser.options(section) if parser.has_section(section) else []
    extras: dict[str, object] = {key: parser.get(section, key).split("\n") for key in keys}
    parts: dict[str, Any] = {
        "name": parser.get("metadata", "name", fallback=""),
        "dependencies": _read(parser.get("options", "install_requires", fallback="").split("\n")),
        "extras": extras,
    }
    body = syntax_of(root / "setup.py").body
    values: dict[str, object] = {}
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=target)], value=value):
                values[target] = _literal(value, values)
    for call in (each for statement in body for each in ast.walk(statement) if isinstance(each, ast.Call)):
        if ast.unparse(call.func) in ("setup", "setuptools.setup"):
            given = {keyword.arg: _literal(keyword.value, values) for keyword in call.keywords}
            name = given.get("name")
            parts["name"] = parts["name"] or (name if isinstance(name, str) else "")
            parts["dependencies"] = parts["dependencies"] or _read(given.get("install_requires"))
            parts["extras"] = {**_table(given.get("extras_require")), **extras}
    return parts


def syntax_of(file: Path) -> ast.Module:
    """Return the syntax of a source file; an empty one where there is no file, or it cannot be parsed."""
    with suppress(OSError, SyntaxError, ValueError):
        return ast.parse(read_bounded(file, TEXT))
    return ast.Module([], [])


def _literal(node: ast.expr, values: Mapping[str, object]) -> object:
    """Return the value of literals, names, sums of lists and ``dict(a=…)``; None for another, also in a dictionary."""
    if isinstance(node, ast.Name):
        return values.get(node.id)
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {key.value: _literal(value, values) for key, value in pairs if isinstance(key, ast.Constant)}
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "dict" and not node.args:
        return {keyword.arg: _literal(keyword.value, values) for keyword in node.keywords if keyword.arg}
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _literal(node.left, values), _literal(node.right, values)
        return [*left, *right] if isinstance(left, list) and isinstance(right, list) else None
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _ini(file: Path) -> configparser.ConfigParser:
    """Return the sections of a file; none without it, or where it cannot be read: who uses it says what is wrong."""
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    with suppress(OSError, UnicodeDecodeError, configparser.Error):
        parser.read_string(read_bounded(file, TEXT).decode())
    return parser


def _of_poetry(table: object, *, optional: bool = True) -> Iterator[Requirement]:
    """Yield the requirements of a table of poetry; a path, an address and what has several versions are left out.

    `optional`: whether those are included that an extra alone brings.
    """
    for name, value in _table(table).items():
        given = {"version": value} if isinstance(value, str) else _table(value)
        bounds = _bounds(str(given.get("version")))  # (None is not a version)
        if bounds is None or (given.get("optional") and not optional):
            continue
        extras = ",".join(map(str, _list(given.get("extras"))))
        with suppress(InvalidRequirement):
            yield Requirement(f"{name}[{extras}]{bounds}")


def _bounds(text: str) -> str | None:
    """Return the bounds of a version of poetry in PEP 440's words (python-poetry.org, "Dependency specification").

    None for what these cannot say, such as a choice of two ranges.
    """
    bounds = []
    for part in filter(None, (word.strip() for word in text.split(","))):
        caret = re.fullmatch(r"([\^~]) ?(\d+(?:\.\d+)*)", part)
        if part == "*":
            continue
        if caret:
            numbers = [int(number) for number in caret[2].split(".")]
            # ^ keeps the first number that is not 0, ~ the second one
            first = next((at for at, number in enumerate(numbers) if number), len(numbers) - 1)
            at = first if caret[1] == "^" else min(1, len(numbers) - 1)
            above = [*numbers[:at], numbers[at] + 1]
            bounds.append(f">={caret[2]},<{'.'.join(map(str, above))}")
        else:
            bounds.append(f"=={part}" if part[0].isdigit() else part)
    try:
        SpecifierSet(",".join(bounds))
    except InvalidSpecifier:
        return None
    return ",".join(bounds)


#: Where pytest's settings of a project are, and the section of each file, in pytest's order of preference.
_PYTEST_FILES: Final = (
    *(("pytest.ini", "pytest"), (".pytest.ini", "pytest"), ("pyproject.toml", "")),
    *(("tox.ini", "pytest"), ("setup.cfg", "tool:pytest")),
)


def pytest_settings(root: Path) -> dict[str, list[str]]:
    """Return pytest's settings in a folder, each as words; empty without any.

    Raises CellsError if ``pyproject.toml`` cannot be read.
    """
    for name, section in _PYTEST_FILES:
        if not (root / name).is_file():
            continue
        if section:
            parser = _ini(root / name)
            content: Mapping[str, object] = dict(parser[section]) if parser.has_section(section) else {}
        else:
            settings = _table(_table(_content(root).get("tool")).get("pytest"))
            content = _table(settings.get("ini_options")) or settings
        if content or name.endswith("pytest.ini"):
            return {key: _words(value) for key, value in content.items()}
    return {}


def _words(value: object) -> list[str]:
    """Return a setting as words, as a shell splits them."""
    try:
        return shlex.split(value) if isinstance(value, str) else [str(word) for word in _list(value)]
    except ValueError:
        return []


def _named(tables: Mapping[str, object], name: str) -> list[object] | None:
    """Return the content of an extra or a group, whose names are compared as installers do; None without it."""
    wanted = canonicalize_name(name)
    return next((_list(value) for key, value in tables.items() if canonicalize_name(key) == wanted), None)


def requirements(cell: Cell, project: Project) -> list[CellRequirement]:
    """Return the requirements of a cell besides its toolkit."""
    own = canonicalize_name(project.name)
    every: list[CellRequirement] = []
    extras = list(cell.values.extras) if cell.values.install != "none" else []
    if cell.values.install != "none":
        every += [CellRequirement(requirement, "dependencies") for requirement in project.dependencies]
    for extra in extras:  # grows where an extra requires others of the project
        for requirement in _read(_named(project.extras, extra)):
            if canonicalize_name(requirement.name) != own:
                every.append(CellRequirement(requirement, "extra", extra))
            else:
                extras += sorted(requirement.extras.difference(extras))
    groups = list(cell.values.groups)
    for group in groups:
        entries = _named(project.groups, group)
        every += [CellRequirement(requirement, "group", group) for requirement in _read(entries)]
        included = [entry.get("include-group") for entry in entries or () if isinstance(entry, dict)]
        groups += [name for name in included if isinstance(name, str) and name not in groups]
    packages = _read(list(cell.values.packages))
    return [*every, *(CellRequirement(requirement, "packages") for requirement in packages)]


def warnings(cells: Iterable[Cell], root: Path) -> list[str]:
    """Return what is likely wrong between cells and their project, each with the cells, the reason and what to do.

    A requirement with an extra for one major release of CUDA does not fit the toolkits of another: an installer takes
    a release of the package, perhaps years old, that has no such extra, and says nothing.
    """
    project = Project.read(root)
    cells_of = grouped(
        (text, cell.name)
        for cell in cells
        for text in (*_missing(cell, project), *_contradicting(cell, project))  # (a bare cell has no extras and groups)
    )
    return [text.replace("CELLS", listed(names, _NAMED)) for text, names in cells_of.items()]


def _missing(cell: Cell, project: Project) -> Iterator[str]:
    """Yield the extras and groups of a cell that the project does not have."""
    if cell.values.install != "none" and "project" in project.tables and "optional-dependencies" not in project.dynamic:
        for extra in cell.values.extras:
            if _named(project.extras, extra) is None:
                do = "add it to [project.optional-dependencies] of pyproject.toml, or leave it out of `extras`"
                yield f"CELLS: the project has no extra {extra!r}, so that nothing is installed for it; {do}"
    for group in cell.values.groups:
        if _named(project.groups, group) is None:
            do = "add it to [dependency-groups] of pyproject.toml, or leave it out of `groups`"
            yield f"CELLS: the project has no dependency group {group!r}, so that nothing can be installed; {do}"


def _contradicting(cell: Cell, project: Project) -> Iterator[str]:
    """Yield the requirements of a cell whose extra is for another major release than its toolkit."""
    toolkit = version_of(cell.ctk)
    if toolkit is None:
        return
    major = toolkit.major
    for key, names in (("extras", cell.values.extras), ("groups", cell.values.groups)):
        for name in names:
            other = major_of_extra(name)
            if other not in (None, major):
                remedy = f"write {_with_major(name)!r}, which each cell fills in"
                yield f"CELLS: {key} = [{name!r}] is for CUDA {other}, and the toolkit is CUDA {major}; {remedy}"
    for wanted in requirements(cell, project):
        requirement = wanted.requirement
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        for extra in sorted(requirement.extras):
            other = major_of_extra(extra)
            if other in (None, major):
                continue
            if wanted.table == "packages":
                remedy = f"write {f'{requirement.name}[{_with_major(extra)}]'!r}, which each cell fills in"
            else:
                key = "groups" if wanted.table == "group" else "extras"
                pair = " and ".join(f"'cu{release}'" for release in sorted({major, other}))
                remedy = f"move it into {key} {pair} of the project, and give the cells {key} = ['cu{MAJOR}']"
            place = "packages" if wanted.table == "packages" else f"{wanted.where} of pyproject.toml"
            what = f"{requirement.name}[{extra}] ({place}) is for CUDA {other}, and the toolkit is CUDA {major}"
            old = f"an old release of {requirement.name} may be installed, without that extra"
            yield f"CELLS: {what}, so that {old}; {remedy}"


def _with_major(name: str) -> str:
    return re.sub(r"\d\d", MAJOR, name)


def _read(lines: object) -> list[Requirement]:
    """Return the requirements of a list; what is a path, an address or a table is left out."""
    named = []
    for line in _list(lines):
        with suppress(InvalidRequirement, TypeError):
            named.append(Requirement(line))  # type: ignore[arg-type] # (a table is a TypeError)
    return named


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _table(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}
