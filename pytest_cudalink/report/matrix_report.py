"""The report of a matrix: a grid of tests and cells, the lists that people ask for, and the cells without a record."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from ..base.finding import Finding
from ..base.regular_files import DATA, read_bounded
from ..base.tables import grouped
from .cell_run import BAD, GOOD, LETTERS, NOT_RUN, SKIPPED, CellRun
from .explain import AXES, SETTINGS, axis_names, explain
from .origin import Origin, differing, merged, shown_origin
from .records import SCHEMA, RecordError

#: What a cell asks for where the machine or the package index decides which value it gets.
_OPEN: Final = ("", "auto", "latest", "real", "yes")


@dataclass(frozen=True)
class Plan:
    """The cells of a file of cells."""

    # what each cell asks for: `{"ctk-13.0": {"ctk": "13.0", "driver": "auto", …}, …}`
    axes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # the paths of tests that each cell gives to pytest; a cell without any runs every test
    tests: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def lacking(self, cells: Iterable[CellRun]) -> dict[str, dict[str, str]]:
        """Return the axes of each cell that has no complete record, without those whose value is not known.

        A cell that has a record of a format that is not read is left out: it did run.
        """
        cells = list(cells)
        whole = {cell.name: cell.axes for cell in cells if not cell.fault and cell.name in self.axes}
        unread = {cell.name for cell in cells if cell.unread}
        return {name: self._foreseen(name, whole) for name in self.axes if name not in whole and name not in unread}

    def _foreseen(self, name: str, whole: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
        wanted = self.axes[name]
        result: dict[str, str] = {}
        # further axes matter where some record has them; a cell that does not ask for one lacks it for certain
        further = {axis for axes in whole.values() for axis in axes}
        for axis in axis_names(whole.values()):
            word = wanted.get(axis, "")
            if not word and axis not in SETTINGS:
                result |= {axis: "none"} if axis in further else {}
                continue
            known = {axes.get(axis) for other, axes in whole.items() if self.axes[other].get(axis, "") == word}
            value: str | None = None
            # the package index decides which version of a package a cell gets
            open_ = axis not in AXES and (word == "lowest" or not set(word).isdisjoint("*<>=!~,"))
            if word not in _OPEN and not open_:
                value = "none" if word == "absent" else word
            elif axis == "nvjitlink" or (axis == "driver" and wanted.get("backend") == "driver"):
                value = result.get("ctk")  # the toolkit's, and an emulated driver of its release
            elif len(known) == 1:
                value = known.pop()
            if value is not None:
                result[axis] = value
        return result

    def runs(self, name: str, test: str) -> bool:
        """Return whether pytest selects a test by the paths of a cell; without any, it selects every test."""
        paths = [path.removesuffix("/") for path in self.tests.get(name, ())]
        return not paths or any(f"{test}/".startswith((f"{path}/", f"{path}::")) for path in paths)


_FORMAT: Final = "cudalink-report"
#: Keys of a cell in a saved report without which its results are not known.
_REQUIRED: Final = ("finished", "outcomes", "details")
_KNOWN: Final = frozenset(LETTERS.values())
#: How many tests are named as slow.
_SLOWEST: Final = 10


@dataclass(frozen=True)
class Partial:
    """A test that fails in some cells only."""

    test: str
    cells: tuple[str, ...]  # the cells in which it fails
    explanation: str  # the axes that explain the failures, see `explain.explain`


@dataclass(frozen=True)
class Group:
    """The results of one cause, or of one error whose cause is not known: of several tests, in several cells."""

    cause: Finding  # as the first of these results has it
    others: int  # how many other calls and artifacts the other results name
    tests: tuple[str, ...]
    cells: tuple[str, ...]
    # the axes that explain where these tests fail; empty if they do not have one explanation in common
    explanation: str


@dataclass
class MatrixReport:
    """The results of all cells."""

    cells: list[CellRun]
    missing: list[str] = field(default_factory=list)  # cells without any records
    # files and folders that cannot be read, and whose cells are not known, each with the reason
    damaged: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)  # why missing cells did not run, where that is known
    allowed: set[str] = field(default_factory=set)  # cells that may be missing
    plan: Plan = field(default_factory=Plan)  # the cells that could run; empty without a file of cells

    @cached_property
    def tests(self) -> list[str]:
        """Every test that ran in any cell, file by file."""
        seen = dict.fromkeys(test for cell in self.cells for test in cell.outcomes)
        files = grouped((_file(test), test) for test in seen)
        return [test for name in sorted(files) for test in files[name]]

    @cached_property
    def grid(self) -> list[str]:
        """A row of letters for each test, with a letter for each cell.

        A file that could not be collected in one cell is a test of its name; where its tests ran, that test passed.
        """
        outcomes = [cell.outcomes for cell in self.cells]
        rows = ["".join([letters.get(test, NOT_RUN) for letters in outcomes]) for test in self.tests]
        whole = [(number, test) for number, test in enumerate(self.tests) if "::" not in test]
        if whole:
            files = [{_file(test) for test in letters if "::" in test} for letters in outcomes]
            for number, name in whole:
                letters = zip(rows[number], files, strict=True)
                rows[number] = "".join("P" if letter == NOT_RUN and name in ran else letter for letter, ran in letters)
        return rows

    @cached_property
    def judged(self) -> list[str]:
        """The grid, with the letter of a test that needs a GPU also where that made the test fail."""
        refused = [{test for test, cause in causes.items() if cause.kind == "not_emulated"} for causes in self.causes]
        return [
            "".join("U" if test in of_cell else letter for of_cell, letter in zip(refused, row, strict=True))
            for test, row in zip(self.tests, self.grid, strict=True)
        ]

    @cached_property
    def causes(self) -> list[dict[str, Finding]]:
        """Of each cell, why tests fail or need a GPU, as far as that is known; see `CellRun.causes`."""
        return [cell.causes for cell in self.cells]

    @cached_property
    def groups(self) -> list[Group]:
        """The failures whose cause is known, and the tests that need a GPU; by cause, the most results first."""
        by_cause = grouped(
            ((cause.kind, cause.why or cause.what), (cause, test, cell.name))
            for test in self.tests
            for cell, causes in zip(self.cells, self.causes, strict=True)
            if (cause := causes.get(test)) is not None
        )
        explained = {partial.test: partial.explanation for partial in self.partial}
        result = []
        for results in sorted(by_cause.values(), key=len, reverse=True):
            tests = tuple(dict.fromkeys(test for _, test, _ in results))
            cells = tuple(dict.fromkeys(name for _, _, name in results))
            words = {explained.get(test, "") for test in tests}
            others = len({cause.what for cause, _, _ in results}) - 1
            result.append(Group(results[0][0], others, tests, cells, words.pop() if len(words) == 1 else ""))
        return result

    @cached_property
    def unexplained(self) -> set[str]:
        """The tests with a failure whose cause is not known."""
        return {
            test
            for cell, causes in zip(self.cells, self.causes, strict=True)
            for test, letter in cell.outcomes.items()
            if letter in BAD and test not in causes
        }

    @cached_property
    def failing_without_gpu(self) -> list[str]:
        """The tests that fail only because an emulated driver refused a call."""
        rows = zip(self.tests, self.grid, self.judged, strict=True)
        return [test for test, row, judged in rows if set(row) & BAD and not set(judged) & BAD]

    @property
    def share(self) -> tuple[int, int]:
        """How many tests ran in some cell, and how many need a GPU and ran in none."""
        rows = [set(row) - {NOT_RUN} for row in self.judged]
        ran = sum(bool(row - SKIPPED) for row in rows)
        return ran, sum("U" in row and row <= SKIPPED for row in rows)

    @cached_property
    def partial(self) -> list[Partial]:
        """The tests that fail in some cells only, each with its explanation; a cell without a GPU says nothing."""
        axes = [cell.axes for cell in self.cells]
        lacking = self.plan.lacking(self.cells)
        words: dict[tuple[str, ...], str] = {}
        result = []
        for test, row in zip(self.tests, self.judged, strict=True):
            letters = set(row)
            if letters & BAD and letters & GOOD:
                bad = [letter in BAD if letter in BAD or letter in GOOD else None for letter in row]
                ran = {cell.name for cell, letter in zip(self.cells, row, strict=True) if letter != NOT_RUN}
                others = {name: a for name, a in lacking.items() if name not in ran and self.plan.runs(name, test)}
                key = (row, *others)
                if key not in words:
                    words[key] = explain(axes, bad, others)
                failing = tuple(cell.name for cell, letter in zip(self.cells, row, strict=True) if letter in BAD)
                result.append(Partial(test, failing, words[key]))
        return result

    @cached_property
    def failing_everywhere(self) -> list[str]:
        """The tests that fail in every cell that ran them."""
        return [t for t, row in zip(self.tests, self.judged, strict=True) if set(row) & BAD and not set(row) & GOOD]

    @cached_property
    def skipped_everywhere(self) -> list[tuple[str, tuple[str, ...]]]:
        """The tests that never ran in any cell, each with the reasons."""
        result = []
        for test, row in zip(self.tests, self.grid, strict=True):
            if set(row) <= {*SKIPPED, NOT_RUN}:
                reasons = dict.fromkeys(cell.details[test].reason for cell in self.cells if test in cell.details)
                result.append((test, tuple(reasons)))
        return result

    @cached_property
    def not_run(self) -> dict[str, list[str]]:
        """By cell, the tests that only other cells ran: of the files that it ran, or of all if it is incomplete.

        Of a cell with a record that is not read, that is not known.
        """
        result = {}
        for number, cell in enumerate(self.cells):
            if cell.unread:
                continue
            files, partly = {_file(test) for test in cell.outcomes}, bool(cell.fault)
            lacking = [
                test
                for test, row in zip(self.tests, self.grid, strict=True)
                if row[number] == NOT_RUN and (partly or _file(test) in files)
            ]
            if lacking:
                result[cell.name] = lacking
        return result

    @property
    def origin(self) -> Origin:
        """What the runs of all cells have in common."""
        return merged(self._origins)

    @property
    def origins_differ(self) -> tuple[str, ...]:
        """The fields of `origin` in which the runs of the cells differ."""
        return differing(self._origins)

    @property
    def _origins(self) -> list[Origin]:
        return [origin for cell in self.cells for origin in cell.origins]

    @property
    def counts(self) -> Counter[str]:
        """Number of results of all cells by letter."""
        return sum((cell.counts for cell in self.cells), Counter())

    @property
    def links(self) -> Counter[str]:
        """Number of links of all cells by `wording.backend_keys`."""
        return sum((Counter(cell.links) for cell in self.cells), Counter())

    @property
    def faults_of_files(self) -> dict[str, str]:
        """The first fault of the files of each cell, and of each file whose cell is not known."""
        return {**self.damaged, **{cell.name: cell.damage[0] for cell in self.cells if cell.damage}}

    def why_missing(self, name: str) -> str:
        """Return why a cell has no records, as far as that is known, and whether that is allowed."""
        reason = f"no records: {self.reasons[name]}" if name in self.reasons else "no records"
        return f"{reason} (allowed)" if name in self.allowed else reason

    @cached_property
    def version_names(self) -> list[str]:
        """The names of the versions, without the packages that no cell has and none asked for."""
        versions = [named for cell in self.cells for named in cell.versions.items()]
        known = {name for name, version in versions if version.get("found") or version.get("requested")}
        return sorted(known.union(name for name, _ in versions if name in ("ctk", "driver", "nvjitlink")))

    @property
    def slowest(self) -> list[tuple[float, str, str]]:
        """Seconds, test and cell of the slowest tests."""
        every = ((seconds, test, cell.name) for cell in self.cells for test, seconds in cell.durations.items())
        return sorted(every, reverse=True)[:_SLOWEST]

    def keep(self, names: Collection[str]) -> list[str]:
        """Drop the cells that are not in `names`, such as those of an older file of cells; return the dropped names."""
        strange = [cell for cell in self.cells if cell.name not in names]
        # a damaged one is perhaps one of `names`, under a wrong name
        self.damaged.update({cell.name: cell.damage[0] for cell in strange if cell.damage})
        self.cells = [cell for cell in self.cells if cell.name in names]
        return [cell.name for cell in strange]

    def request(self, wanted: Mapping[str, Mapping[str, str]]) -> None:
        """Add the versions that the cells ask for, where the records do not have them.

        `wanted`: cell to ``{"ctk": "13.0", …}``.
        """
        for cell in self.cells:
            for name in ("ctk", "driver", "nvjitlink"):
                version, value = cell.versions.get(name), wanted.get(cell.name, {}).get(name)
                if version is not None and value is not None and version.get("requested") is None:
                    version["requested"] = value

    # --- files

    def as_json(self) -> str:
        """Return the text of a saved report, which `load` reads."""
        content = {"format": _FORMAT, "schema": SCHEMA, "cells": self.cells, "missing": self.missing}
        # not by msgspec, which refuses lone surrogates
        return json.dumps(msgspec.to_builtins({**content, "damaged": self.damaged, "reasons": self.reasons}))

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Return a saved report.

        Raises RecordError if the file is not a saved report, or its format is newer.
        """
        try:
            content = json.loads(read_bounded(path, DATA))
            {_FORMAT: range(1, SCHEMA + 1)}[content["format"]].index(content["schema"])
            saved = msgspec.convert(content, _Saved)
        except (msgspec.MsgspecError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            msg = f"{path}: not a saved report of this version of pytest-cudalink ({type(error).__name__}: {error})"
            raise RecordError(msg) from error
        cells = [_saved_cell(cell, f"{path}: cells[{number}]") for number, cell in enumerate(saved.cells)]
        return cls(cells, saved.missing, saved.damaged, saved.reasons)


class _Saved(msgspec.Struct):
    """What a saved report has besides its format."""

    cells: list[Any]
    missing: list[str]
    damaged: dict[str, str] = {}
    reasons: dict[str, str] = {}


def _saved_cell(content: object, place: str) -> CellRun:
    """Return a cell of a saved report; one with a value that does not fit has `CellRun.damage` in place of results."""
    try:
        cell = msgspec.convert(content, CellRun)
        wrong = [*_wrong_in(cell, content, place)]
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        name = content.get("name") if isinstance(content, dict) else None
        cell, wrong = CellRun(name if isinstance(name, str) else ""), [f"{place} is not a valid cell: {error}"]
    if wrong:
        return CellRun(cell.name or place, finished=True, unread=True, damage=wrong)
    cell.name = cell.name or place
    cell.details = {test: detail for test, detail in cell.details.items() if test in cell.outcomes}
    cell.origins = [shown_origin(origin) for origin in cell.origins]
    return cell


def _wrong_in(cell: CellRun, content: Any, place: str) -> Iterator[str]:
    """Yield what is wrong with a cell whose values have the right types."""
    yield from (f"{place}.{name} is missing" for name in _REQUIRED if name not in content)
    known = CellRun.__dataclass_fields__
    yield from (f"{place}.{name} is unknown; install a newer pytest-cudalink" for name in content if name not in known)
    for test, letter in cell.outcomes.items():
        if letter not in _KNOWN:
            yield f"{place}.outcomes.{test} is {letter!r:.60}; expected one of {''.join(sorted(_KNOWN))}"


def _file(test: str) -> str:
    """Return the file of a test's node ID."""
    return test.partition("::")[0]
