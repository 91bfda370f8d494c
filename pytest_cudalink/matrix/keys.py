"""The keys of a cell: each field of `CellValues` has its meaning, its valid values and its default.

The reader of the file, its JSON schema and the documentation take them from here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Final, Literal, TypeGuard, TypeVar

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from .. import toolchains
from ..compat import names
from ..compat.releases import version_named
from ..compat.settings_table import OPTIONS
from ..versions import CudaVersion

LATEST: Final = "latest"
#: The oldest version of a package that the project's requirements allow.
LOWEST: Final = "lowest"
#: In an extra, a group or a requirement: the major release of the cell's toolkit.
MAJOR: Final = "{major}"
#: Names of cells and tags.
NAME_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._-]*"
#: Names of packages whose version a cell chooses.
PACKAGE_PATTERN: Final = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"
#: Most bytes of one argument, and of one environment variable with its name (MAX_ARG_STRLEN of Linux, with its NUL).
_MOST_ARGUMENT: Final = (128 << 10) - 1
_RELEASE_PATTERN: Final = r"^[0-9]+\.[0-9]+$"

#: A value of a key.
Value = str | bool | tuple[str, ...] | Mapping[str, str]
_T = TypeVar("_T", bound=Value)


def release_fault(value: str) -> str:
    """Return what is expected instead of a string that is not a CUDA release; empty if it is one."""
    try:
        CudaVersion.parse(value)
    except ValueError:
        return "a CUDA release such as '13.0'"
    return ""


def _like(pattern: str, needed: str) -> dict[str, Any]:
    """Return the check and the pattern of a key whose values are printable strings that match it."""
    fault = lambda value: "" if re.fullmatch(pattern, value) and value.isprintable() else needed  # noqa: E731
    return {"fault": fault, "pattern": f"^{pattern}$"}


def _driver_fault(value: str) -> str:
    try:
        version_named(value)
    except ValueError as error:
        return f"a CUDA version that can be emulated: {error}"
    return ""


def _arch_fault(value: str) -> str:
    known = names.EMULATED_ARCHITECTURES
    return "" if value in known else f"an architecture that can be emulated: {', '.join(known)}"


def _argument_fault(value: str) -> str:
    if "\0" in value:
        return "a text without NUL, which no program can be given"
    return "" if len(value.encode()) <= _MOST_ARGUMENT else f"at most {_MOST_ARGUMENT} bytes"


def _variable_fault(name: str, value: str) -> tuple[str, str]:
    """Return what is expected instead of the wrong part of an environment variable, and that part.

    What is expected is empty if a program can be given the variable.
    """
    if not re.fullmatch(r"[!-<>-~]+", name):
        return "names of environment variables: visible ASCII characters except '='", name
    return _argument_fault(f"{name}={value}"), f"{name}={value}"


def _project_name_fault(value: str) -> str:
    """Return what is expected instead of a string that cannot name an extra or a dependency group; empty if it can."""
    good = re.fullmatch(PACKAGE_PATTERN, value.replace(MAJOR, "13"))
    return "" if good else f"a name of letters, digits, '.', '_' and '-', or of these and {MAJOR}"


def _requirement_fault(value: str) -> str:
    needed = "a requirement such as 'numpy<2.5', or the path or address of a package, without options"
    try:
        Requirement(value.replace(MAJOR, "13"))
    except InvalidRequirement:
        # such as ./dist/p.whl, /opt/p[extra] and git+https://example.org/p@main
        place = re.fullmatch(r"[\w./~][^\s;|&<>`$'\"\\]*", value) and ("/" in value or value.endswith(".whl"))
        return "" if place and value.isprintable() else needed
    return "" if value.isprintable() else needed


def _module_fault(value: str) -> str:
    return "" if all(part.isidentifier() for part in value.split(".")) else "the name of a module, such as 'mylib.core'"


def _hidden_fault(value: str) -> str:
    parts = value.split("/")
    good = value.startswith("/") and value.isprintable() and ".." not in parts and len(list(filter(None, parts))) > 1
    return "" if good else "an absolute path or pattern below a folder of the root, such as '/usr/local/cuda*'"


def _command_fault(value: str) -> str:
    import shlex

    try:
        words = shlex.split(value)
    except ValueError as error:
        return f"a command with balanced quotes ({error})"
    return _argument_fault(value) if words or not value else "a command"


def package_fault(name: str) -> str:
    """Return what is expected instead of a string that cannot name a package with a version; empty if it can."""
    if not re.fullmatch(PACKAGE_PATTERN, name):
        return "the name of a package, such as 'cuda-bindings'"
    # names of cells have both in braces, and the report shows both as axes
    return "a package whose name is not that of a key" if name.lower() in KEYS else ""


def _version_fault(value: str) -> str:
    """Return what is expected instead of a string that does not choose a version of a package; empty if it does."""
    if value in (LOWEST, LATEST):
        return ""
    try:
        SpecifierSet(_specifier(value))
    except InvalidSpecifier:
        value = ""
    good = value and value.isprintable() and value == value.strip()
    return "" if good else "'lowest', 'latest', a version such as '1.0.0' or '12.9.*', or a specifier such as '>=1,<2'"


def _specifier(version: str) -> str:
    return version if version[:1] in "<>=!~" else f"=={version}"


def package_requirement(name: str, version: str) -> str:
    """Return the requirement of a package at a version, as `VERSION` allows it; ``"lowest"`` adds no bound."""
    return name if version in (LOWEST, LATEST) else f"{name}{_specifier(version)}"


@dataclass(frozen=True)
class CellKey:
    """One key of a cell; the type of its default is the type of its values."""

    default: Value
    help: str
    words: tuple[str, ...] = ()  # values with a special meaning
    # returns what is expected instead of another string, empty if it is valid. Without it only `words` are valid, or
    # every text where there are none.
    fault: Callable[[str], str] | None = None
    pattern: str | None = None  # for the JSON schema: matches every valid string besides `words`
    axis: bool = False  # whether `[axes.NAME]` may have a list of values
    adds: bool = False  # whether a cell's value is added to that of the defaults
    versions: bool = False  # whether a table of packages with their versions is valid, too
    # the cells that have the key: all, those of the kind "test" or "bare", or those that run pytest
    only: Literal["", "test", "bare", "pytest"] = ""

    def wrong(self, value: object) -> list[tuple[str, object]]:
        """Return each wrong part of a value, after what is expected instead; empty if the value is valid."""
        if isinstance(self.default, bool):
            return [] if isinstance(value, bool) else [("true or false", value)]
        if isinstance(self.default, str):
            if not isinstance(value, str):
                return [(f"a string, as in {str(value)!r}" if isinstance(value, float) else "a string", value)]
            faults = [(self._needed(value), value)]
        elif isinstance(self.default, tuple):
            if not _all_strings(value):
                more = ", or a table of packages" if self.versions else ""
                return [(f"a list of strings{more}", value)]
            faults = [(self._needed(text), text) for text in value]
        else:
            if not (isinstance(value, dict) and _all_strings([*value.values()])):
                return [("a table of strings", value)]
            faults = [_variable_fault(name, text) for name, text in value.items()]
        return [(needed, wrong) for needed, wrong in faults if needed]

    def _needed(self, value: str) -> str:
        """Return what is expected instead of one string; empty if it is valid."""
        if value in self.words:
            return ""
        if self.words and self.fault is None:
            return f"one of {', '.join(map(repr, self.words))}"
        problem = (self.fault or _argument_fault)(value)
        return " or ".join([*map(repr, self.words), problem]) if problem else ""


def _key(default: _T, help: str, **more: Any) -> _T:  # noqa: A002 (as in `CellKey`)
    """Return a field of a dataclass with a key of these values."""
    key = CellKey(default, help, **more)
    return field(default_factory=lambda: default, metadata={"key": key})


def _setting(key: str, default: str = "", **more: Any) -> str:
    """Return the field of a setting of the plugin; without a default, only a cell that has the key sets it."""
    option, twin = next((each, each.cell) for each in OPTIONS if each.cell and each.cell.name == key)
    return _key(default, twin.help, words=option.choices or option.words, **more)


def _all_strings(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


@dataclass(frozen=True)
class CellValues:
    """The values of a cell: each field with a `CellKey` is a key of the file, with ``-`` in place of ``_``."""

    kind: str = _key(
        "test",
        "'test' runs pytest; 'bare' has the project's wheel with its own requirements and nothing else, hides the "
        "toolkits of the system, and runs imports and a command",
        words=("test", "bare"),
    )
    python: str = _key(
        "",
        "Python of the environment; left out, the one that runs nox or tox",
        **_like(r"3\.[0-9]{1,2}t?", "a Python such as '3.12'"),
        axis=True,
    )
    ctk: str = _key(
        "none",
        "CUDA release of the toolkit: '13.0', 'latest' for the newest on the package index, or 'none'",
        words=("none", LATEST),
        fault=release_fault,
        pattern=_RELEASE_PATTERN,
        axis=True,
        only="test",
    )
    source: str = _key(
        "wheels",
        "where the toolkit comes from: wheels in the environment, or a local folder as an installed toolkit has it",
        words=("wheels", "local"),
        axis=True,
        only="test",
    )
    local: str = _key("", "the folder for source = 'local'; left out, a mini toolkit is made in the cache", only="test")
    driver: str = _setting("driver", "auto", fault=_driver_fault, pattern=_RELEASE_PATTERN, axis=True)
    nvjitlink: str = _setting(
        "nvjitlink", "auto", fault=release_fault, pattern=_RELEASE_PATTERN, axis=True, only="pytest"
    )
    backend: str = _setting("backend", "auto", axis=True, only="pytest")
    policy: str = _setting("policy", axis=True, only="pytest")
    guard_rails: str = _setting("guard-rails", "off", only="pytest")
    arch: str = _setting("arch", fault=_arch_fault, pattern=r"^sm_[0-9]{2,3}$", axis=True)
    gpu: bool = _key(default=False, help="whether the cell needs a real GPU; such cells never run in parallel")
    install: str = _key(
        "editable", "how the project itself gets into the environment", words=("editable", "wheel", "none"), only="test"
    )
    resolution: str = _key(
        "",
        "which versions uv chooses where several are allowed: 'lowest-direct' takes the oldest of what the project and "
        "the cell require themselves, 'lowest' also those of their requirements",
        words=("highest", "lowest", "lowest-direct"),
        axis=True,
    )
    provenance: str = _setting("provenance", **_like("/.*", "the absolute path of a folder"), axis=True)
    hidden: tuple[str, ...] = _key(
        (),
        "folders and files that the cell does not see, such as '/usr/local/cuda*'; in a bare cell by default the usual "
        "places of toolkits",
        fault=_hidden_fault,
        pattern=r"^/[^/]+/",
    )
    extras: tuple[str, ...] = _key(
        (),
        "extras of the project; in an extra, a group or a requirement '{major}' is the major release of 'ctk': "
        "'cu{major}' is 'cu13' with ctk = '13.0'",
        fault=_project_name_fault,
        only="test",
    )
    groups: tuple[str, ...] = _key((), "dependency groups of pyproject.toml", fault=_project_name_fault, only="test")
    packages: tuple[str, ...] = _key(
        (),
        "a list of further requirements, also paths and addresses of packages, but no options of pip; or a table of "
        "packages with their versions: '1.0.0', '12.9.*', '>=1,<2', 'latest', or 'lowest' for the oldest that the "
        "project's requirements allow. Each package of the table can be an axis",
        fault=_requirement_fault,
        adds=True,
        versions=True,
        only="test",
    )
    imports: tuple[str, ...] = _key(
        (), "modules that a bare cell imports", fault=_module_fault, pattern=r"^[^\W\d]\w*(\.[^\W\d]\w*)*$", only="bare"
    )
    command: str = _key("", "what a bare cell runs, in words as a shell splits them", fault=_command_fault, only="bare")
    tests: tuple[str, ...] = _key((), "arguments of pytest, such as folders", only="test")
    env: Mapping[str, str] = _key(
        dict[str, str](), "environment variables; '{ctk}' and other keys in braces are filled in", adds=True
    )
    tags: tuple[str, ...] = _key(
        (),
        "words to select cells by",
        **_like(NAME_PATTERN, "a word of letters, digits, '.', '_' and '-'"),
        adds=True,
    )
    runs_on: tuple[str, ...] = _key(
        (), "labels of the CI machine", **_like(r".*\S.*", "a label of printable characters")
    )
    description: str = _key("", "one line for lists", **_like(".*", "one line without control characters"))
    # the packages whose version the cell chooses: `packages` of the file, where that is a table
    versions: Mapping[str, str] = field(default_factory=dict)

    def value(self, name: str) -> Value | None:
        """Return the value of a key, or the version of a package; None for one that is not chosen."""
        value: Value | None = getattr(self, _attribute(name)) if name in KEYS else self.versions.get(name)
        return value

    def changed(self, values: Mapping[str, Value], versions: Mapping[str, str] = MappingProxyType({})) -> CellValues:
        """Return a copy with other values, by key, and with further versions of packages."""
        fields_of = {_attribute(name): value for name, value in values.items()}
        return replace(self, versions={**self.versions, **versions}, **fields_of)  # type: ignore[arg-type] # (of its key)


def _attribute(key: str) -> str:
    return key.replace("-", "_")


#: Every key of a cell, by its name in the file.
KEYS: Final[Mapping[str, CellKey]] = {
    each.name.replace("_", "-"): each.metadata["key"] for each in fields(CellValues) if "key" in each.metadata
}

#: The packages of a toolkit: requirements only.
REQUIREMENTS: Final = CellKey((), "packages that make exactly one toolkit", fault=_requirement_fault)
#: The version of a package.
VERSION: Final = CellKey("", "version of a package", fault=_version_fault)


def distribution(requirement: str) -> str:
    """Return the normalized name of the package that a requirement is about; empty for a path or an address."""
    try:
        return str(canonicalize_name(Requirement(requirement).name))
    except InvalidRequirement:
        return ""


def version_of(value: str) -> CudaVersion | None:
    """Return the CUDA release that a value names; None for a word such as ``"auto"``."""
    if value == LATEST:
        return max(toolchains.releases())
    return None if release_fault(value) else CudaVersion.parse(value)
