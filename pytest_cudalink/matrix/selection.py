"""Which cells a change needs, by what the tests of each cell touched when they last ran.

A cell is left out only if its record proves that nothing it depends on has changed. Whatever is not known lets it run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final, Literal

from ..plurals import counted
from .cells import VERSIONS, Cell

__all__ = ["Change", "Past", "Reason", "Rules", "Touches", "Verdict", "is_harmless", "matches", "select"]

#: Files that decide how every environment is made or how every run is set up, by name.
_BUILD_NAMES: Final = re.compile(
    r"(?:pyproject\.toml|setup\.(?:py|cfg)|\.?pytest\.(?:ini|toml)|tox\.(?:ini|toml)|noxfile\.py|hatch_build\.py|build\.py|"
    r"MANIFEST\.in|CMakeLists\.txt|meson\.build|meson[._]options(?:\.txt)?|Makefile|Cargo\.toml|hatch\.toml|"
    r"uv\.toml|pixi\.toml|environment\.ya?ml|sitecustomize\.py|usercustomize\.py|.*\.pth|.*\.lock|.*lock\.json|"
    r"pylock.*\.toml|(?:.*-)?(?:requirements|constraints).*\.(?:txt|in)|\.git.*|\.python-version)"
)
#: Sources that are compiled: what a test loads of them has another name.
_COMPILED: Final = re.compile(
    r".*\.(?:c|cc|cpp|cxx|h|hh|hpp|hxx|inl|inc|cu|cuh|pyx|pxd|pxi|rs|go|f|f90|s|S|asm|ld|map|def|cmake|in|jinja|j2|proto)"
)
#: Options of pytest that change neither which tests run nor what they do.
_HARMLESS: Final = re.compile(
    r"-[qv]+|-r\w+|--tb=\w+|--color=\w+|--durations(?:-min)?=[\d.]+|--no-header|--no-summary|-n\w+|"
    r"--dist=\w+|--numprocesses=\w+|--junit-?xml=.*|--cudalink-report=.*|-p|no:cacheprovider"
)
_HARMLESS_WITH_VALUE: Final = frozenset(("-n", "--numprocesses", "--dist", "--junitxml", "--cudalink-report"))
#: The most reasons of one cell that are kept.
_MOST: Final = 1000


@dataclass(frozen=True)
class Rules:
    """What a project says in ``[select]`` of its file of cells; patterns are relative to the root of the checkout.

    Attributes
    ----------
    ignore : tuple of str
        Files that no test depends on, unless a record shows that one does.
    build : tuple of str
        Files that every environment is made from, besides those that are known by name.
    programs : tuple of str
        Programs that tests start and that read no file of the project.
    """

    ignore: tuple[str, ...] = ()
    build: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Change:
    """A file that differs.

    Attributes
    ----------
    path : str
        Relative to the root of the checkout, with ``/``.
    kind : str
        ``"changed"`` in its content only; ``"new"``, ``"deleted"``, or ``"retyped"``, such as a link for a file.
    """

    path: str
    kind: Literal["changed", "new", "deleted", "retyped"] = "changed"


@dataclass(frozen=True)
class Touches:
    """The record of a cell's last run, as far as a selection needs it.

    Attributes
    ----------
    commit : str or None
    dirty : bool or None
        Whether the checkout had changes that the commit has not; None if that is not known.
    in_ci : bool
        Whether a CI system ran it, whose checkout is that of the commit.
    began : float
        Seconds since the epoch.
    duration : float
        Seconds of the run.
    exitstatus : int or None
        pytest's; None for a run that did not finish.
    arguments : tuple of str
        pytest's command line.
    options : tuple of str
        Values of ``PYTEST_ADDOPTS``.
    files : mapping of str to str
        Files of the project, each with the test that touched it first; empty for what came before tests.
    is_complete : bool
        Whether every process of the run wrote what it touched, and nothing was lost.
    unknown : tuple of str
        Installed files that are not those of the checkout.
    programs : tuple of str
        Names of the programs that the tests started.
    """

    commit: str | None = None
    dirty: bool | None = None
    in_ci: bool = False
    began: float = 0.0
    duration: float = 0.0
    exitstatus: int | None = None
    arguments: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    is_complete: bool = False
    unknown: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Past:
    """The commit of some records, compared with the working tree.

    Attributes
    ----------
    problem : str
        Why it cannot be compared; empty if it can.
    changes : tuple of Change
        What has changed from there to the working tree.
    cells : mapping of str to Cell, or None
        The cells that its file of cells has; None if they cannot be read.
    rules : Rules or None
    """

    problem: str = ""
    changes: tuple[Change, ...] = ()
    cells: Mapping[str, Cell] | None = None
    rules: Rules | None = None


@dataclass(frozen=True)
class Reason:
    """Why a cell runs, or why a changed file does not matter to it.

    Attributes
    ----------
    text : str
    file : str
        The changed file; empty for a reason that is not about one.
    test : str
        The test that touched it first; empty if none did.
    """

    text: str
    file: str = ""
    test: str = ""

    def __str__(self) -> str:
        return f"{self.file} {self.text}" if self.file else self.text


@dataclass(frozen=True)
class Verdict:
    """Whether a cell runs, and why.

    Attributes
    ----------
    cell : str
    runs : bool
    reasons : tuple of Reason
        Why it runs, or why each changed file does not matter.
    """

    cell: str
    runs: bool
    reasons: tuple[Reason, ...]


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    words = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(words.get(part) or re.escape(part) for part in parts), re.DOTALL)


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Return whether a path matches one of several patterns: ``*`` stays in a folder, ``**`` crosses folders."""
    return any(_expression(pattern).fullmatch(path) for pattern in patterns)


def is_harmless(options: Sequence[str]) -> bool:
    """Return whether options of pytest leave every test as it is, and leave none out."""
    rest = iter(options)
    return all(
        (one in _HARMLESS_WITH_VALUE and next(rest, None) is not None) or _HARMLESS.fullmatch(one) for one in rest
    )


def select(
    cells: Sequence[Cell],
    records: Mapping[str, Touches],
    pasts: Mapping[str, Past],
    since: Iterable[Change],
    *,
    rules: Rules,
    file: str,
) -> list[Verdict]:
    """Return for each cell whether it runs, in the order of the cells.

    Parameters
    ----------
    cells : sequence of Cell
    records : mapping of str to Touches
        The last run of each cell that has one, by name.
    pasts : mapping of str to Past
        Every commit of the records.
    since : iterable of Change
        What has changed since the revision that the user named; what has changed since the records counts anyway.
    rules : Rules
    file : str
        The file of cells, relative to the root of the checkout; its changes are compared cell by cell.
    """
    given = [change for change in since if change.path != file]
    sound = {name: record for name, record in records.items() if record.is_complete}
    known: dict[str, list[str]] = {}
    for name, record in sound.items():
        for path in record.files:
            known.setdefault(path, []).append(name)
    return [_judge(cell, records.get(cell.name), pasts, given, rules=rules, file=file, known=known) for cell in cells]


def _judge(
    cell: Cell,
    record: Touches | None,
    pasts: Mapping[str, Past],
    since: Sequence[Change],
    *,
    rules: Rules,
    file: str,
    known: Mapping[str, Sequence[str]],
) -> Verdict:
    if fault := _record_fault(cell, record, pasts):
        return Verdict(cell.name, runs=True, reasons=(Reason(fault),))
    assert record is not None
    past = pasts[str(record.commit)]
    if fault := _definition_fault(cell, past, rules):
        return Verdict(cell.name, runs=True, reasons=(Reason(fault),))
    changes = {change.path: change for change in (*since, *past.changes) if change.path != file}
    needs: list[Reason] = []
    others: list[Reason] = []
    for change in changes.values():
        runs, reason = _judge_file(change, record, rules, known)
        (needs if runs else others).append(reason)
    counting = [reason.file for reason in others if not matches(reason.file, rules.ignore)]
    if programs := [name for name in record.programs if name not in rules.programs]:
        needs += [
            Reason(f"changed, and the tests start {programs[0]!r}, whose files are not recorded", path)
            for path in counting[:1]
        ]
    return Verdict(cell.name, bool(needs), tuple(needs[:_MOST] if needs else others[:_MOST]))


def _record_fault(cell: Cell, record: Touches | None, pasts: Mapping[str, Past]) -> str:
    """Return why the record of a cell proves nothing; empty if it can."""
    if record is None:
        return "it has no record"
    commit = record.commit or ""
    unknown = f"{counted(len(record.unknown), 'installed file')} of its run is not that of the checkout"
    checks = (
        (record.exitstatus is None, "its last run did not finish"),
        (record.exitstatus != 0, f"its last run failed (exit status {record.exitstatus})"),
        (not record.is_complete, "its record does not say which files its tests touched"),
        (not commit, "its record names no commit"),
        (
            record.dirty or (record.dirty is None and not record.in_ci),
            f"its record is of a checkout with changes that commit {commit[:10]} has not",
        ),
        (bool(record.unknown), f"{unknown}: {''.join(record.unknown[:1])}"),
        (commit not in pasts, f"commit {commit[:10]} is not known"),
    )
    fault = next((text for applies, text in checks if applies), "")
    return fault or _arguments_fault(cell, record) or pasts[commit].problem


def _arguments_fault(cell: Cell, record: Touches) -> str:
    own = cell.tests if cell.runs_pytest else ()
    given, environment = record.arguments, str(cell.values["env"].get("PYTEST_ADDOPTS", "")).split()
    if given[: len(own)] != own or not is_harmless(given[len(own) :]):
        return f"its last run had other arguments: {' '.join(given)}"
    if list(record.options) != environment and not is_harmless(record.options):
        return f"its last run had PYTEST_ADDOPTS={' '.join(record.options)}"
    return ""


def _definition_fault(cell: Cell, past: Past, rules: Rules) -> str:
    """Return what has changed in the file of cells since the record; empty for nothing that matters to the cell."""
    if past.cells is None:
        return "the file of cells of its record cannot be read"
    if past.rules != rules:
        return "[select] of the file of cells has changed since its record"
    old = past.cells.get(cell.name)
    if old is None:
        return "the cell is new"
    keys = [key for key in cell.values if cell.values[key] != old.values.get(key)]
    if keys or old.packages != cell.packages:
        key = next((one for one in keys if one != VERSIONS), "packages")
        return f"its {key} is {cell.values.get(key)!r}, and was {old.values.get(key)!r}"
    return ""


def _judge_file(
    change: Change, record: Touches, rules: Rules, known: Mapping[str, Sequence[str]]
) -> tuple[bool, Reason]:
    path, name = change.path, change.path.rpartition("/")[2]
    test = record.files.get(path)
    if test is not None:
        return True, Reason(
            f"changed; {test} touched it first" if test else "changed; it was read or imported", path, test
        )
    checks: tuple[tuple[bool, Callable[[], str]], ...] = (
        (change.kind != "changed", lambda: f"is {change.kind}, so that no record can know who needs it"),
        (_BUILD_NAMES.fullmatch(name) is not None, lambda: "changed, which every environment or run depends on"),
        (matches(path, rules.build), lambda: "changed; [select] build names it"),
        (_COMPILED.fullmatch(name) is not None, lambda: "changed, which is compiled into something else"),
        (path not in known, lambda: "changed, and no record knows it"),
    )
    if matches(path, rules.ignore):
        return False, Reason("changed; [select] ignore names it, and no test touched it", path)
    for applies, text in checks:
        if applies:
            return True, Reason(text(), path)
    others = known[path]
    return False, Reason(f"changed; only {_some(others)} touched it", path)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
