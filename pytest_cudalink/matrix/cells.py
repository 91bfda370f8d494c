"""The cells of a matrix, each one environment and one run of a suite; and the reasons for leaving combinations out."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

from .. import toolchains
from ..compat import names
from ..compat.architectures import known_architectures
from ..compat.settings_table import OPTIONS
from .keys import KEYS, NAME_PATTERN, PACKAGE_PATTERN, CellKey, CellValues, version_of

#: Tags that follow from the values of a cell; valid in a selection even if no cell has them.
IMPLIED_TAGS = ("skew", "cross-major", "forced", "gpu", "bare")
#: The variable that tells a run the keys of its cell that are not settings of the plugin, as JSON.
KEYS_VARIABLE: Final = "CUDALINK_CELL_KEYS"
#: Keys that are axes of the report besides the plugin's settings.
_FURTHER: Final = ("kind", "resolution", "provenance")


@dataclass(frozen=True)
class RunKeys:
    """The keys of a cell that its run learns from `KEYS_VARIABLE`; `packages` are those whose version it chooses."""

    axes: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    hidden: Sequence[str] = ()
    imports: Sequence[str] = ()
    command: str = ""

    def as_json(self) -> str:
        """Return the text of `KEYS_VARIABLE`; empty where no key has a value."""
        chosen = {key: value for key, value in asdict(self).items() if value}
        return json.dumps(chosen) if chosen else ""

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> RunKeys:
        """Return the keys that the environment has; ValueError or TypeError for others than `as_json` writes."""
        return cls(**json.loads(environment.get(KEYS_VARIABLE) or "{}"))


@dataclass(frozen=True)
class Cell:
    """One environment and one run of a suite."""

    name: str  # such as "ctk-13.0"
    values: CellValues
    packages: tuple[str, ...]  # requirements: those that make exactly this toolkit, then the cell's others
    line: int | None = field(default=None, compare=False)  # line of the file that defines the cell

    @property
    def ctk(self) -> str:
        return self.values.ctk

    @property
    def python(self) -> str | None:
        """Python of the cell, such as ``"3.12"``; None for the one that runs the runner."""
        return self.values.python or None

    @property
    def gpu(self) -> bool:
        return self.values.gpu

    @property
    def driver(self) -> str:
        return self.values.driver

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags of the file, and those that follow from the values, see `IMPLIED_TAGS`."""
        return tuple(dict.fromkeys([*self.values.tags, *_implied_tags(self)]))

    @property
    def description(self) -> str:
        """The cell in one line, for lists."""
        values = self.values
        if values.description:
            return values.description
        words = ["bare"] if self.is_bare else [f"CUDA {self.ctk}" if self.ctk != "none" else "no toolkit"]
        if values.source == "local":
            words.append("from a local folder")
        if self.driver != "auto":
            emulated = self.driver not in KEYS["driver"].words
            words.append(f"emulated driver {self.driver}" if emulated else f"driver {self.driver}")
        further = ((values.nvjitlink, "nvJitLink {}"), (values.backend, "{} forced"), (values.python, "Python {}"))
        words += [text.format(value) for value, text in further if value not in ("auto", "")]
        words += [f"{name} {version}" for name, version in self.versions.items()]
        words += [f"{key} {value}" for key in ("resolution", "provenance") if (value := values.value(key))]
        if values.hidden and not self.is_bare:
            words.append(f"without {', '.join(values.hidden)}")
        if self.gpu:
            words.append("on a real GPU")
        return ", ".join(words)

    @property
    def axes(self) -> dict[str, str]:
        """The values that distinguish cells, for tables and explanations; packages by name."""
        result = {name: str(value) for name, key in KEYS.items() if key.axis and (value := self.values.value(name))}
        result |= {"kind": "bare"} if self.is_bare else {}
        # what hides them is known only on the machine that runs the cell
        result |= {"hidden": "yes"} if self.values.hidden else {}
        return {**result, **self.versions}

    @property
    def is_bare(self) -> bool:
        return self.values.kind == "bare"

    @property
    def runs_pytest(self) -> bool:
        """Whether the plugin is in the environment; a bare cell may run anything else."""
        return not self.is_bare or is_pytest(self.values.command)

    @property
    def program(self) -> str:
        """The run in words."""
        return "pytest" if self.runs_pytest else "the steps of the cell"

    @property
    def versions(self) -> Mapping[str, str]:
        """The packages whose version the cell chooses, each with what was asked for."""
        return self.values.versions

    @property
    def tests(self) -> tuple[str, ...]:
        """What the run runs: the arguments of pytest, or the node IDs of the steps of a bare cell."""
        if self.runs_pytest:
            return (*self.values.tests, *shlex.split(self.values.command)[1:])
        command = [f"command::{self.values.command}"] if self.values.command else []
        return (*(f"import::{name}" for name in self.values.imports), *command)

    @property
    def toolchains(self) -> tuple[tuple[str, toolchains.Layout], ...]:
        """Toolchains that ``cudalink toolchain add`` must have installed before the cell runs."""
        from ..emulator import emulation_for

        needed: list[tuple[str, toolchains.Layout]] = []
        if self.driver not in KEYS["driver"].words:
            emulation = emulation_for(self.driver, device=self.values.arch)
            needed += [(str(version), "libs") for version in emulation.toolchains]
        if self.values.nvjitlink not in KEYS["nvjitlink"].words:
            needed.append((self.values.nvjitlink, "libs"))
        if self.values.source == "local" and not self.values.local and self.ctk != "none":
            needed.append((self.ctk, "ctk"))
        return tuple(dict.fromkeys(needed))

    def environment(self, records: Path | str) -> dict[str, str]:
        """Return the environment variables of the run: the plugin's settings, the record file, and the cell's ``env``.

        An option on pytest's command line still takes precedence.
        """
        result = {"CUDALINK_CELL": self.name, "CUDALINK_REPORT": str(Path(records) / f"{self.name}.jsonl")}
        for option in OPTIONS:
            if option.cell and (value := self.values.value(option.cell.name)) not in ("auto", ""):
                result[option.env] = str(value)
        if "cross-major" in self.tags:  # they would reject every test of a cell whose purpose this is
            result["CUDALINK_GUARD_RAILS"] = "off"
        if self.values.source == "local":
            folder = self.values.local or str(toolchains.folder(self.ctk, "ctk"))
            result |= {"CUDA_HOME": folder, "CUDA_PATH": folder}
        if keys := self.run_keys.as_json():
            result[KEYS_VARIABLE] = keys
        every = {key: self.values.value(key) for key in (*KEYS, *self.versions)}
        filling = {key.replace("-", "_"): value for key, value in every.items() if isinstance(value, str)}
        return result | {name: _fill(text, filling) for name, text in self.values.env.items()}

    @property
    def run_keys(self) -> RunKeys:
        """What a run does not learn from the plugin's settings."""
        axes = {key: value for key, value in self.axes.items() if key in _FURTHER}
        keys = RunKeys(axes, self.versions, self.values.hidden)
        return keys if self.runs_pytest else replace(keys, imports=self.values.imports, command=self.values.command)


def is_pytest(command: str) -> bool:
    """Return whether a command of a bare cell runs pytest."""
    return command.split()[:1] == ["pytest"]


def _fill(template: str, values: Mapping[str, str]) -> str:
    """Return the text with values in place of ``{key}``; other braces stay."""
    return re.sub(r"\{([a-z0-9_]+)\}", lambda match: values.get(match[1], match[0]), template)


def _implied_tags(cell: Cell) -> Iterator[str]:
    toolkit = version_of(cell.ctk)
    others = [version for value in (cell.driver, cell.values.nvjitlink) if (version := version_of(value))]
    if toolkit is not None and any(other != toolkit for other in others):
        yield "skew"
        if any(other.major != toolkit.major for other in others):
            yield "cross-major"
    if cell.values.backend in names.BACKENDS:
        yield "forced"
    if cell.gpu:
        yield "gpu"
    if cell.is_bare:
        yield "bare"


def select(cells: Iterable[Cell], tags: str | Iterable[str] = ()) -> list[Cell]:
    """Return the cells that have at least one of the tags, and none that follows a ``!``; without tags, all cells.

    `tags`: ``"skew,!gpu"`` or ``["skew", "!gpu"]``.
    """
    words = tags.split(",") if isinstance(tags, str) else list(tags)
    wanted = {word.strip() for word in words if word.strip()}
    unwanted = {word[1:] for word in wanted if word.startswith("!")}
    positive = {word for word in wanted if not word.startswith("!")}
    return [cell for cell in cells if not unwanted & set(cell.tags) and (not positive or positive & set(cell.tags))]


# --- the reasons for leaving a combination out; each is checked, so that none outlives its truth


def reasons_of(cell: Cell) -> set[str]:
    """Return the `REASONS` that are true of a cell."""
    toolkit, driver, nvjitlink = map(version_of, (cell.ctk, cell.driver, cell.values.nvjitlink))
    named = [version for version in (toolkit, driver, nvjitlink) if version]
    bindings = re.match(r"[=~]*(\d+)\.", cell.versions.get("cuda-bindings", ""))
    holds = {
        "no-skew": len(named) > 1 and set(named) == {toolkit},
        "no-wheels": bool({toolkit, nvjitlink} - {None, *toolchains.releases()}),
        "driver-too-old": toolkit is not None and driver is not None and driver.major < toolkit.major,
        "nvjitlink-unusable": nvjitlink is not None and nvjitlink < (12, 3),
        "other-soname": toolkit is not None and nvjitlink is not None and toolkit.major != nvjitlink.major,
        "bindings-major": toolkit is not None and bindings is not None and int(bindings[1]) != toolkit.major,
        "arch-unsupported": any(cell.values.arch not in ("", *known_architectures(release)) for release in named),
        # no toolkit wheel depends on Python; cuda-bindings does, and supports 3.9 and newer
        "python-unsupported": cell.python is not None and int(cell.python.rstrip("t").removeprefix("3.")) < 11,
    }
    return {name for name, is_true in holds.items() if is_true}


#: Reasons for leaving out a combination, with the condition in words; `reasons_of` checks it.
REASONS: Final = {
    "no-skew": "the driver and nvJitLink are of the toolkit's own release",
    "no-wheels": "NVIDIA published no wheels of that release",
    "driver-too-old": "the driver's major version is older than the toolkit's",
    "nvjitlink-unusable": "that nvJitLink is older than 12.3",
    "other-soname": "that nvJitLink is of another major version, and what needs this toolkit opens its own",
    "bindings-major": "cuda-bindings is of another major version than the toolkit",
    "arch-unsupported": "one of the releases does not know the architecture",
    "python-unsupported": "the plugin needs Python 3.11 or newer",
}
#: Reasons that need a companion key: its name, and the condition in words.
REASONS_WITH: Final = {
    "same-as": ("cell", "another cell has the same values"),
    "known-issue": ("issue", "an open issue, until a date"),
}


_Schema = Mapping[str, object]
_TEXT: Final[_Schema] = {"type": "string"}


def schema() -> _Schema:
    """The JSON schema of a file of cells (draft 2020-12), made from `KEYS`."""
    values = {name: {"$ref": f"#/$defs/{name}"} for name in KEYS}
    lists = {name: _several(value) for name, value in values.items() if KEYS[name].axis}
    versions, some = _packages(_several(_TEXT)), _several(_TEXT)
    axes = {
        **values,
        **lists,
        "packages": {"anyOf": [values["packages"], versions]},
        "name": {**_TEXT, "description": "names of the cells, with keys in braces: 'ctk-{ctk}-driver-{driver}'"},
    }
    meanings = REASONS | {name: meaning for name, (_, meaning) in REASONS_WITH.items()}
    because = [{"const": name, "description": meaning} for name, meaning in meanings.items()]
    exclude = {
        **lists,
        "packages": versions,
        "because": {"description": "why, in a word that is checked", "oneOf": because},
        "cell": {**_TEXT, "description": "for same-as: the cell that has the same values"},
        "issue": {**_TEXT, "description": "for known-issue: its address"},
        "until": {"description": "for known-issue: the date from which the exclude is an error"},
        "note": {**_TEXT, "description": "for people"},
    }

    def axes_with(other: object) -> _Schema:
        """Return the schema of a table of axes; `other` is that of keys that are no cell's."""
        items = {**_table(exclude, other), "required": ["because"]}
        return _table({**axes, "exclude": {"type": "array", "items": items}}, other)

    toolkit = {**_table({"packages": {"type": "array", "items": _TEXT}}), "required": ["packages"]}
    about = "packages that make exactly one toolkit, where a project needs others than usual"
    tables = {
        "defaults": _table(values),
        "cells": {"type": "object", "propertyNames": _like(NAME_PATTERN), "additionalProperties": _table(values)},
        # in [axes.packages] each key that is not a cell's is a package
        "axes": _table({"packages": axes_with(some)}, axes_with(other=False)),
        "toolkits": {"type": "object", "description": about, "additionalProperties": toolkit},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The cells of a matrix (pytest-cudalink)",
        "$defs": {name: {"description": key.help, **_schema_of(key)} for name, key in KEYS.items()},
        **_table(tables),
    }


def _table(properties: _Schema, other: object = False) -> _Schema:  # noqa: FBT002 (a schema)
    return {"type": "object", "properties": properties, "additionalProperties": other}


def _like(pattern: str) -> _Schema:
    return {"pattern": f"^{pattern}$"}


def _several(value: _Schema) -> _Schema:
    """Return the schema of a value, or of a list of such values."""
    return {"anyOf": [value, {"type": "array", "items": value, "minItems": 1}]}


def _packages(version: _Schema) -> _Schema:
    """Return the schema of a table of packages with the versions of each."""
    return {"type": "object", "propertyNames": _like(PACKAGE_PATTERN), "additionalProperties": version}


def _schema_of(key: CellKey) -> _Schema:
    text = {**_TEXT, "pattern": key.pattern} if key.pattern else _TEXT
    match key.default:
        case bool():
            return {"type": "boolean"}
        case tuple():
            texts = {"type": "array", "items": text}
            return {"anyOf": [texts, _packages(_TEXT)]} if key.versions else texts
        case str() if key.words:
            words = {"enum": list(key.words)}
            return {"anyOf": [words, text]} if key.fault else words
        case str():
            return text
    return {"type": "object", "additionalProperties": _TEXT}
