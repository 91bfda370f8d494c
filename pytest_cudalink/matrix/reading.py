"""Reads ``cells.toml`` and reports everything that is wrong with it at once, with lines and keys.

A file has ``[defaults]``, ``[cells.NAME]`` for single cells, ``[axes.NAME]`` for all combinations of some values, with
excludes whose reason is checked, and ``[toolkits.RELEASE]`` if a project needs other packages than usual.
"""

import datetime as dt
import difflib
import errno
import itertools
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Final

from packaging.utils import canonicalize_name

from .. import toolchains
from ..base import safe_text
from ..base.regular_files import read_text
from ..base.words import and_more
from ..versions import CudaVersion
from . import lines
from .cells import REASONS, REASONS_WITH, Cell, is_pytest, reasons_of
from .hiding import USUAL_PLACES, is_hidden_by
from .keys import (
    KEYS,
    LATEST,
    MAJOR,
    NAME_PATTERN,
    REQUIREMENTS,
    VERSION,
    CellKey,
    CellValues,
    Value,
    distribution,
    package_fault,
    package_requirement,
    release_fault,
    version_of,
)

#: Most bytes of a file of cells; the longest that is known has 20 KB.
_MOST_BYTES: Final = 1 << 18
#: Most cells of a table of axes: more than any CI runs, and few enough to be listed.
_MOST_CELLS: Final = 10_000
#: Most parts of a key, and fewer levels of tables and lists than Python reads; a cell with an exclude has 5.
_MOST_DEPTH: Final = 32
#: Matches a key with more parts than there may be levels.
_LONG_KEY: Final = re.compile(rf"(?<![A-Za-z0-9_-])(?:[A-Za-z0-9_-]++[ \t]*+\.[ \t]*+){{{_MOST_DEPTH}}}")
#: Most wrong values that are named of one key.
_MOST_NAMED: Final = 20
#: Longest name of a cell: runners make folders of it.
_MOST_NAME: Final = 100
#: The table of axes in which each key that is not a cell's is a package.
_OF_PACKAGES: Final[lines.Path] = ("axes", "packages")
#: Keys of an exclude that are not axes.
_OF_EXCLUDE: Final = ("because", "cell", "issue", "until", "note")
#: An axis in the name of the cells of a table of axes.
_PLACEHOLDER: Final = r"\{([a-z0-9-]+)\}"


class CellsError(ValueError):
    """The file of cells cannot be used.

    `faults`: everything that is wrong, each as ``FILE:LINE: KEY: what was expected, what was found``.
    """

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(self.faults))


def load_cells(path: Path | str) -> list[Cell]:
    """Return the cells of a file, in its order: single cells first, then the combinations of axes.

    Raises CellsError with everything that is wrong, each with its line and key.
    Raises OSError if the file cannot be read.
    """
    path = Path(path)
    try:
        text = _content(path)
    except UnicodeDecodeError as error:
        raise CellsError([f"{path}:1: not UTF-8: {error}"]) from error
    try:
        reader = _Reader(path, text)
        reader.read()
    except RecursionError as error:  # none of it is a cell's
        raise CellsError([f"{path}:1: tables or lists are nested more than {_MOST_DEPTH} deep"]) from error
    if reader.faults:
        raise CellsError(text for _, text in sorted(reader.faults, key=itemgetter(0)))
    return list(reader.cells.values())


def _content(path: Path) -> str:
    """Return the text of a file of cells; never waits for a pipe, and reads no more than a file of cells may have."""
    try:
        return read_text(path, _MOST_BYTES)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EFBIG):
            raise
        raise CellsError([f"{path}:1: is {error.strerror}"]) from error


@dataclass
class _Exclude:
    """A valid exclude."""

    place: lines.Path
    where: dict[str, list[str]]
    because: str
    cell: str | None
    used: bool = False

    def matches(self, values: CellValues) -> bool:
        return all(values.value(key) in wanted for key, wanted in self.where.items())


@dataclass
class _TableValues:
    """The valid values of a table: by key, versions by package, and the lists of axes, first those of keys."""

    values: dict[str, Value] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    lists: dict[str, list[str]] = field(default_factory=dict)


class _Reader:
    """Reads one file: its cells so far, and its faults, each with its line."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        # tomllib's memory is quadratic in the parts of a key; those of strings do not count
        bare = lines.without_texts(text)
        if long := _LONG_KEY.search(bare):
            first = bare.count("\n", 0, long.start()) + 1
            raise CellsError([f"{path}:{first}: tables or lists are nested more than {_MOST_DEPTH} deep"])
        try:
            self.content: dict[str, object] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            line = re.search(r"line (\d+)", str(error))
            number = line[1] if line else text.count("\n") + 1
            raise CellsError([f"{path}:{number}: not TOML: {error}"]) from error
        self.lines = lines.lines(text)
        self.faults: dict[tuple[int, str], None] = {}  # each once, in the order of their discovery
        self.cells: dict[str, Cell] = {}
        self.taken: dict[str, str] = {}
        self.toolkits: dict[str, tuple[str, ...]] = {}

    def read(self) -> None:
        """Read the whole file."""
        self.unknown((), self.content, ("defaults", "cells", "axes", "toolkits"))
        defaults = self.table(("defaults",), self.content.get("defaults", {}))
        self.unknown(("defaults",), defaults, KEYS)
        base = _over(CellValues(), self.values(("defaults",), defaults))
        for release, toolkit in self.table(("toolkits",), self.content.get("toolkits", {})).items():
            self.toolkit(("toolkits", release), release, toolkit)
        for name, table in self.table(("cells",), self.content.get("cells", {})).items():
            place: lines.Path = ("cells", name)
            given = self.table(place, table)
            self.unknown(place, given, KEYS)
            self.add(place, place, name, _over(base, self.values(place, given)))
        for name, table in self.table(("axes",), self.content.get("axes", {})).items():
            self.axes(("axes", name), self.table(("axes", name), table), base)

    # --- faults

    def fault(self, place: lines.Path, text: str) -> None:
        """Add a fault of a key."""
        line = lines.line_of(self.lines, place) or 1
        where = ": ".join([f"{self.path}:{line}", *filter(None, [".".join(map(_quoted, place))]), text])
        self.faults[line, safe_text.line(where, _MOST_BYTES)] = None

    def unknown(self, place: lines.Path, names: Iterable[str], known: Iterable[str]) -> None:
        """Add a fault for every unknown key, with the nearest known one."""
        known = list(known)
        for key in names:
            if key not in known:
                near = difflib.get_close_matches(key, known, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
                package = f" A package of that name is 'packages.{key}'." if place == _OF_PACKAGES else ""
                self.fault((*place, key), f"unknown key; {hint}{package}")

    # --- values

    def table(self, place: lines.Path, value: object) -> dict[str, object]:
        """Return the value if it is a table; otherwise add a fault and return an empty table."""
        if isinstance(value, dict):
            return value
        self.fault(place, f"expected a table, found {_kind(value)}")
        return {}

    def good(self, place: lines.Path, key: CellKey, value: object) -> bool:
        """Return whether a value is valid for a key; otherwise add a fault."""
        wrong = key.wrong(value)
        for needed, part in wrong[:_MOST_NAMED]:
            shown = _shortened(repr(part)) if isinstance(part, str) else _kind(part)
            self.fault(place, f"expected {needed}, found {shown}")
        if more := and_more(len(wrong) - _MOST_NAMED):
            self.fault(place, f"{more.strip()} of its values are wrong")
        return not wrong

    def values(self, place: lines.Path, table: dict[str, object], *, lists: bool = False) -> _TableValues:
        """Return the valid values of a table of cell keys; with `lists`, an axis may have several."""
        given = _TableValues()
        versions: list[tuple[lines.Path, object]] = []
        for name, value in table.items():
            here, key = (*place, name), KEYS.get(name)
            if key is None:
                continue
            if key.versions and isinstance(value, dict):
                versions += [((*here, package), version) for package, version in value.items()]
            elif lists and key.axis and isinstance(value, list):
                if good := self.several(here, key, value):
                    given.lists[name] = good
            elif self.good(here, key, value):
                given.values[name] = tuple(value) if isinstance(value, list) else value  # type: ignore[assignment]
        for here, version in versions:
            self.version(here, version, given, lists=lists)
        return given

    def version(self, place: lines.Path, value: object, values: _TableValues, *, lists: bool) -> None:
        """Add the version of a package to what is given, by normalized name; with `lists`, also several versions."""
        name = str(place[-1])
        if needed := package_fault(name):
            self.fault(place, f"expected {needed}, found {name!r}")
            return
        if (known := str(canonicalize_name(name))) in {**values.versions, **values.lists}:
            self.fault(place, f"the package {known!r} is named twice")
            return
        if lists and isinstance(value, list):
            if good := self.several(place, VERSION, value):
                values.lists[known] = good
        elif self.good(place, VERSION, value):
            values.versions[known] = str(value)

    def several(self, place: lines.Path, key: CellKey, values: list[object]) -> list[str]:
        """Return the valid values of an axis, each once."""
        if not values:
            self.fault(place, "an axis needs at least one value")
        return list(dict.fromkeys(str(value) for value in values if self.good(place, key, value)))

    def toolkit(self, place: lines.Path, release: str, value: object) -> None:
        """Read a table of packages."""
        if release != LATEST and (needed := release_fault(release)):
            self.fault(place, f"expected 'latest' or {needed}, found {release!r}")
        table = self.table(place, value)
        self.unknown(place, table, ("packages",))
        packages = table.get("packages")
        if self.good((*place, "packages"), REQUIREMENTS, packages) and isinstance(packages, list):
            self.toolkits[release] = tuple(packages)

    # --- cells

    def add(self, place: lines.Path, naming: lines.Path, name: str, values: CellValues) -> None:
        """Add a cell after checking its name and its combination of values."""
        if not re.fullmatch(NAME_PATTERN, name):
            expected = "letters, digits, '.', '_' and '-', with a letter or digit first"
            self.fault(naming, f"{name!r} is not a name; expected {expected}")
            return
        if len(name) > _MOST_NAME:
            self.fault(naming, f"the name of a cell has {len(name)} characters; expected at most {_MOST_NAME}")
            return
        if name in self.cells:
            self.fault(naming, f"makes a second cell {name!r}; the first is on line {self.cells[name].line}")
            return
        for folder in _folders(name, values.python):
            first = self.taken.setdefault(folder, name)
            if first != name:
                self.fault(naming, f"{name!r} and {first!r} have the same folder {folder!r} in nox; rename one of them")
                return
        for key, text in _conflicts(values):
            here, default = (*place, key), ("defaults", key)
            # what no bare cell can inherit is one fault for all of them
            inherited = values.kind == "bare" and here not in self.lines and default in self.lines and key != "kind"
            self.fault(default if inherited else here, text)
        values = self.filled(place, values)
        packages: tuple[str, ...] = ()
        try:
            key = "ctk"
            toolkit = self.packages(values.ctk, values.source)
            packages = tuple(requirement for requirement in toolkit if distribution(requirement) not in values.versions)
            key = "nvjitlink"
            if (version := version_of(values.nvjitlink)) is not None:
                toolchains.packages(version)
        except toolchains.ToolchainError as error:
            self.fault((*place, key), str(error))
        line = lines.line_of(self.lines, place)
        chosen = sorted(values.versions.items()) if values.kind != "bare" else []
        versions = [package_requirement(package, version) for package, version in chosen]
        self.cells[name] = Cell(name, values, (*packages, *values.packages, *versions), line)

    def filled(self, place: lines.Path, values: CellValues) -> CellValues:
        """Return the values of a cell with the major release of its toolkit in extras, groups and requirements."""
        toolkit = version_of(values.ctk)
        given = {"extras": values.extras, "groups": values.groups, "packages": values.packages}
        if toolkit is not None:
            return values.changed(
                {key: tuple(text.replace(MAJOR, str(toolkit.major)) for text in texts) for key, texts in given.items()}
            )
        for key, texts in given.items():
            if wrong := next((text for text in texts if MAJOR in text), None):
                self.fault((*place, key), f"{wrong!r} needs the release of a toolkit, found ctk = {values.ctk!r}")
        return values

    def packages(self, ctk: str, source: str) -> tuple[str, ...]:
        """Return the requirements that make exactly one toolkit, with the cuda-bindings for it."""
        if ctk == "none":
            return ()
        if ctk in self.toolkits:
            return self.toolkits[ctk]
        if ctk == LATEST:
            # nvJitLink by name: cuda-toolkit only has a lower bound for it
            return ("cuda-toolkit[cudart,nvjitlink,nvrtc]", "nvidia-nvjitlink", "cuda-bindings")
        release = CudaVersion.parse(ctk)
        # other tools read the release from the metapackage; its wheels by name: for nvJitLink it has only a lower bound
        wheels = [f"cuda-toolkit[cudart,nvjitlink,nvrtc]=={toolchains.toolkit_version(release)}"]
        wheels += [f"{name}=={version}" for name, version in toolchains.packages(release).items()]
        # cuda-bindings 12.9 supports every minor version of CUDA 12
        bindings = f"cuda-bindings=={max(release, CudaVersion(12, 9))}.*"
        return (bindings,) if source == "local" else (*wheels, bindings)

    # --- axes

    def axes(self, place: lines.Path, table: dict[str, object], base: CellValues) -> None:
        """Add the cells of a table of axes, unless they cannot be named."""
        packages = _packages_of(place, table, (*KEYS, "name", "exclude"))
        self.unknown(place, [key for key in table if key not in packages], (*KEYS, "name", "exclude"))
        given = self.values(place, table, lists=True)
        for name, value in packages.items():
            self.version((*place, name), value, given, lists=True)
        lists = given.lists
        template = table.get("name", "-".join(f"{key}-{{{key}}}" for key in lists))
        excludes = self.excludes((*place, "exclude"), table.get("exclude", []), lists)
        for word in dict.fromkeys(re.findall(_PLACEHOLDER, str(template))):
            if word not in {**KEYS, **given.versions, **lists}:
                self.fault((*place, "name"), f"{{{word}}} is not an axis of this table; its axes: {', '.join(lists)}")
                return
        unnamed = [key for key, values in lists.items() if len(values) > 1 and f"{{{key}}}" not in str(template)]
        if not isinstance(template, str):
            self.fault((*place, "name"), f"expected a string, found {_kind(template)}")
        elif not lists:
            known = ", ".join(key for key, spec in KEYS.items() if spec.axis)
            self.fault(place, f"needs a list of values for at least one of {known}, or of a package")
        elif unnamed:
            text = f"needs {{{unnamed[0]}}}, else several cells have one name; found {template!r}"
            self.fault((*place, "name"), text)
        else:
            self.expand(place, lists, _over(base, given), template, excludes)

    def expand(
        self,
        place: lines.Path,
        lists: dict[str, list[str]],
        shared: CellValues,
        template: str,
        excludes: list[_Exclude],
    ) -> None:
        """Add the cells of all combinations except the excluded ones, and check the reasons of the excludes.

        `shared`: the values that all cells have.
        `template`: of the names of the cells.
        """
        if (count := math.prod(map(len, lists.values()))) > _MOST_CELLS:
            self.fault(place, f"makes {count} cells; expected at most {_MOST_CELLS}")
            return
        left_out = []
        for combination in itertools.product(*lists.values()):
            chosen = dict(zip(lists, combination, strict=True))
            of_keys = {key: value for key, value in chosen.items() if key in KEYS}
            versions = {name: version for name, version in chosen.items() if name not in KEYS}
            values = shared.changed(of_keys, versions)
            name = _named(template, values)
            matching = [exclude for exclude in excludes if exclude.matches(values)]
            if matching:
                left_out += [(exclude, Cell(name, values, ())) for exclude in matching]
            else:
                self.add(place, (*place, "name"), name, values)
        for exclude, cell in left_out:
            exclude.used = True
            if exclude.because in REASONS:
                if exclude.because not in reasons_of(cell):
                    shown = ", ".join(f"{key} = {cell.values.value(key)!r}" for key in lists)
                    self.fault((*exclude.place, "because"), f"not true where {shown}: {REASONS[exclude.because]}")
            elif exclude.cell is not None:
                self.check_same(exclude, cell)
        for exclude in excludes:
            if not exclude.used:
                self.fault(exclude.place, "excludes nothing; delete it, or correct its values")

    def excludes(self, place: lines.Path, tables: object, lists: dict[str, list[str]]) -> list[_Exclude]:
        """Return the valid excludes of a table of axes."""
        if not isinstance(tables, list):
            self.fault(place, f"expected an array of tables, [[axes.NAME.exclude]], found {_kind(tables)}")
            return []
        places = [((*place, number), table) for number, table in enumerate(tables)]
        excludes = [self.exclude(here, self.table(here, table), lists) for here, table in places]
        return [exclude for exclude in excludes if exclude is not None]

    def exclude(self, place: lines.Path, table: dict[str, object], lists: dict[str, list[str]]) -> _Exclude | None:
        """Return an exclude; None if it is invalid."""
        where = self.where(place, table, lists)
        because = table.get("because")
        if isinstance(because, str) and because in REASONS_WITH:
            companion, meaning = REASONS_WITH[because]
            if not isinstance(table.get(companion), str) or not table[companion]:
                self.fault(place, f"because = {because!r} ({meaning}) needs the key {companion!r}")
            if because == "known-issue":
                self.check_until(place, table.get("until"))
        elif not isinstance(because, str) or because not in REASONS:
            given = "found nothing" if because is None else f"found {because!r}"
            known = ", ".join([*REASONS, *REASONS_WITH])
            self.fault((*place, "because"), f"expected a reason that can be checked: {known}; {given}")
            return None
        if not where:
            self.fault(place, f"needs a value of at least one axis: {', '.join(lists)}")
            return None
        cell = table.get("cell")
        return _Exclude(place, where, because, cell if isinstance(cell, str) else None)

    def where(self, place: lines.Path, table: dict[str, object], lists: dict[str, list[str]]) -> dict[str, list[str]]:
        """Return the values of the axes that an exclude is about."""
        short = _packages_of(_OF_PACKAGES if place[:2] == _OF_PACKAGES else place, table, (*KEYS, *_OF_EXCLUDE))
        axes = [key for key in lists if key in KEYS]
        words = (*axes, *(["packages"] if len(axes) < len(lists) else []), *_OF_EXCLUDE)
        self.unknown(place, [key for key in table if key not in short], words)
        values = {(*place, key): table[key] for key in axes if key in table}
        if "packages" in words and "packages" in table:
            packages = self.table((*place, "packages"), table["packages"])
            values |= {(*place, "packages", name): value for name, value in packages.items()}
        values |= {(*place, name): value for name, value in short.items()}
        where: dict[str, list[str]] = {}
        for here, value in values.items():
            key = str(here[-1]) if here[-1] in axes else str(canonicalize_name(str(here[-1])))
            if key not in lists:
                known = ", ".join(name for name in lists if name not in KEYS)
                self.fault(here, f"is not an axis of this table; its packages: {known or 'none'}")
                continue
            wanted = value if isinstance(value, list) else [value]
            where[key] = [each for each in lists[key] if each in wanted]
            expected = ", ".join(map(repr, lists[key]))
            for each in wanted:
                if each not in lists[key]:
                    self.fault(here, f"{each!r} is not a value of the axis; expected {expected}")
        return where

    def check_until(self, place: lines.Path, until: object) -> None:
        """Add a fault unless a known issue has a date that is not past, so that it is checked again then."""
        if not isinstance(until, dt.date):
            self.fault(place, "because = 'known-issue' needs the key 'until', a date such as 2027-01-31 without quotes")
        elif (until.date() if isinstance(until, dt.datetime) else until) < dt.datetime.now(tz=dt.UTC).date():
            text = f"{until} has passed: include the cell again, or check the issue and set a later date"
            self.fault((*place, "until"), text)

    def check_same(self, exclude: _Exclude, cell: Cell) -> None:
        """Add a fault unless the other cell of ``same-as`` has the same values."""
        place = (*exclude.place, "cell")
        other = self.cells.get(str(exclude.cell))
        if other is None:
            self.fault(place, f"there is no cell {exclude.cell!r} above; known: {', '.join(self.cells)}")
            return
        keys = [key for key, spec in KEYS.items() if spec.axis or key in ("gpu", "kind", "hidden")]
        for key in (*keys, *dict.fromkeys([*cell.versions, *other.versions])):
            mine, its = cell.values.value(key), other.values.value(key)
            if mine != its:
                self.fault(place, f"{other.name!r} is not the same as {cell.name!r}: {key} is {its!r}, not {mine!r}")


def _over(base: CellValues, table: _TableValues) -> CellValues:
    """Return values of a table over those of a wider one; lists and tables that add up are joined."""
    values: dict[str, Value] = {}
    if base.kind != "bare" and table.values.get("kind") == "bare":
        values = {name: key.default for name, key in KEYS.items() if key.only in ("test", "pytest")}
        values["install"] = "wheel"
        values["hidden"] = tuple(dict.fromkeys([*USUAL_PLACES, *base.hidden]))
    for name, value in table.values.items():
        before = values.get(name, base.value(name))
        if KEYS[name].adds and isinstance(value, Mapping) and isinstance(before, Mapping):
            values[name] = {**before, **value}
        elif KEYS[name].adds and isinstance(value, tuple) and isinstance(before, tuple):
            values[name] = tuple(dict.fromkeys([*before, *value]))
        else:
            values[name] = value
    return base.changed(values, table.versions)


def _named(template: str, values: CellValues) -> str:
    """Return the name of a cell with its values: ``"12.9.*"`` is ``12.9`` in it, and ``">=1,<2"`` is ``1-2``."""

    def word(match: re.Match[str]) -> str:
        version = values.versions.get(match[1])
        return str(values.value(match[1])) if version is None else re.sub(r"[^A-Za-z0-9._]+", "-", version).strip("-.")

    return re.sub(_PLACEHOLDER, word, template)


def _packages_of(place: lines.Path, table: Mapping[str, object], known: Iterable[str]) -> dict[str, object]:
    """Return the packages that ``[axes.packages]`` names without a table; a key that looks misspelt is not one."""
    if place != _OF_PACKAGES:
        return {}
    names = list(known)
    return {key: value for key, value in table.items() if not _is_misspelt(key, names)}


def _is_misspelt(key: str, names: Iterable[str]) -> bool:
    """Return whether a key looks like a name with a slip of the keyboard, unlike ``cython`` and ``pythonnet``."""
    # the first letter is seldom wrong, and a slip seldom adds two
    alike = [name for name in names if name[:1] == key[:1] and abs(len(name) - len(key)) <= 1]
    return bool(difflib.get_close_matches(key, alike, 1, cutoff=0.8))


def _conflicts(values: CellValues) -> Iterator[tuple[str, str]]:
    """Yield the keys whose values contradict others, with the reason."""
    local = values.source == "local"
    if local and values.ctk in ("none", LATEST) and not values.local:
        yield "source", f"'local' needs the release of the toolkit, or its folder, found ctk = {values.ctk!r}"
    if values.local and not local:
        yield "local", "is only for source = 'local'"
    if values.gpu and values.driver not in ("auto", "real"):
        yield "gpu", f"a real GPU needs driver = 'real', found {values.driver!r}"
    forced = {"driver": values.driver, "nvjitlink": values.nvjitlink}
    if forced.get(values.backend) == "absent":
        yield "backend", f"{values.backend!r} cannot be forced where {values.backend} = 'absent'"
    if local and (hiding := next((pattern for pattern in values.hidden if is_hidden_by(values.local, pattern)), "")):
        yield "hidden", f"{hiding!r} hides the toolkit of the cell, local = {values.local!r}"
    yield from _conflicts_of_kind(values)


def _conflicts_of_kind(values: CellValues) -> Iterator[tuple[str, str]]:
    """Yield the keys that a cell of its kind does not have, with the reason."""
    bare, runs_pytest = values.kind == "bare", is_pytest(values.command)
    if bare and not (values.imports or values.command):
        yield "kind", "'bare' needs imports, a list of modules, or a command"
    if bare and values.imports and runs_pytest:
        yield "imports", "is not for a command of pytest, whose tests import what they need"
    for name, key in KEYS.items():
        if values.value(name) == ("wheel" if name == "install" else key.default):
            continue
        if key.only == "bare" and not bare:
            yield name, "is only for kind = 'bare'; other cells have tests"
        elif key.only == "test" and bare:
            yield name, "is not for kind = 'bare', which has the project's wheel and its requirements, and nothing else"
        elif key.only == "pytest" and bare and not runs_pytest:
            yield name, "is a setting of the plugin; a bare cell has the plugin only where its command is pytest"


def _quoted(key: str | int) -> str:
    if isinstance(key, int):
        return str(key + 1)
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else f'"{key}"'


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:80]}… ({len(text)} characters)"


def _folders(name: str, python: str) -> set[str]:
    """Return the folders that nox may make for a cell; on some file systems names that differ in case are the same."""
    names = {name, f"{name}-{python}"} if python else {name}
    return {re.sub(r"[.-]+", "-", each.lower()).strip("-") for each in names}


def _kind(value: object) -> str:
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list", dict: "a table"}
    kind = names.get(type(value), "a value")
    return "nothing" if value is None else f"{kind} ({value!r})"[:80]
