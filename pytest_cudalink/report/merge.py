"""Merging the records of all cells into one grid of tests and cells.

A hundred cells with five thousand tests each are half a million events, so this reads the lines itself instead of
making an object of each, and several files at once.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, Self

from .explain import explain
from .records import SCHEMA, RecordError

__all__ = ["BAD", "GOOD", "LETTERS", "NOT_RUN", "CellRun", "Detail", "Partial", "Report", "merge"]

#: One letter for each outcome, so that nothing is told by colour alone. A documented failure passed by failing.
LETTERS: Final = {
    "passed": "P",
    "failed": "F",
    "error": "E",
    "skipped": "S",
    "xfailed": "x",
    "xpassed": "X",
    "crashed": "C",
    "documented": "D",
}
NOT_RUN: Final = "."
BAD: Final = frozenset("FEC")
GOOD: Final = frozenset("PxXD")

_FORMAT: Final = "cudalink-report"
#: pytest's exit status of a run in which every test had its turn, and of the others (pytest.ExitCode).
_WHOLE: Final = (None, 0, 1)
_ENDS: Final = {
    2: "it was interrupted, or a file could not be collected",
    3: "an internal error",
    4: "it was called with wrong arguments",
    5: "no tests were collected",
}
_PARALLEL_FROM: Final = 8
_LONG: Final = 4000


@dataclass(frozen=True)
class Detail:
    """What is told of a test in a cell, where it did not simply pass.

    Attributes
    ----------
    reason : str
        Of a skip or an expected failure, the requirement of a documented one, or a failure's first line.
    text : str
        The failure in full.
    """

    reason: str = ""
    text: str = ""


@dataclass
class CellRun:
    """What the records of one cell say.

    Attributes
    ----------
    files : list of str
        The record files.
    axes : dict of str to str
        What tells this cell from others: ctk, driver, nvjitlink, backend, python, arch.
    versions : dict
        As in the records: ``{name: {"requested": …, "found": …, "source": …, "kind": …}}``.
    finished : bool
        Whether the run came to its end.
    truncated : bool
        Whether a file was cut in its last line.
    outcomes : dict of str to str
        Test to letter.
    durations : dict of str to float
        Seconds.
    links : dict of str to int
        Links by backend, ``"none"`` for those refused before a choice; those that failed also under
        ``"BACKEND failed"``.
    violations, verdicts : list of dict
        As in the records.
    crashes : list of dict
        As in the records, and the tests that began and came to nothing.
    """

    name: str
    files: list[str] = field(default_factory=list)
    axes: dict[str, str] = field(default_factory=dict)
    versions: dict[str, dict[str, Any]] = field(default_factory=dict)
    python: str = ""
    platform: str = ""
    finished: bool = False
    truncated: bool = False
    exitstatus: int | None = None
    duration: float = 0.0
    outcomes: dict[str, str] = field(default_factory=dict)
    durations: dict[str, float] = field(default_factory=dict)
    details: dict[str, Detail] = field(default_factory=dict)
    links: dict[str, int] = field(default_factory=dict)
    violations: list[dict[str, Any]] = field(default_factory=list)
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    crashes: list[dict[str, Any]] = field(default_factory=list)
    reruns: int = 0

    @property
    def counts(self) -> Counter[str]:
        """Tests by letter."""
        return Counter(self.outcomes.values())

    @property
    def fault(self) -> str:
        """Why this is no whole run, in words; empty where pytest came to its end."""
        if not self.finished:
            cut = ", and the file is cut" if self.truncated else ""
            return f"the run did not come to its end after {len(self.outcomes)} tests{cut}"
        if self.exitstatus in _WHOLE:
            return ""
        return f"pytest ended with exit status {self.exitstatus}: {_ENDS.get(self.exitstatus, 'unknown')}"

    @property
    def mismatches(self) -> list[tuple[str, str, str]]:
        """Name, requested and found, of each version that is not what was asked for."""
        result = []
        for name, version in sorted(self.versions.items()):
            requested, found = version.get("requested"), version.get("found")
            if requested is None or requested in ("auto", "latest"):
                continue
            if requested == "real":
                if found is None or version.get("kind") not in ("real", None):
                    result.append((name, "real", " ".join(str(one) for one in (found, version.get("kind")) if one)))
            elif requested in ("absent", "none"):
                if found is not None and version.get("kind") != "absent":
                    result.append((name, str(requested), str(found)))
            elif found is None or not f"{found}.".startswith(f"{requested}."):
                result.append((name, str(requested), str(found or "none")))
        return result


@dataclass(frozen=True)
class Partial:
    """A test that fails in some cells only.

    Attributes
    ----------
    cells : tuple of str
        Where it fails.
    explanation : str
        The axis that explains it, in words.
    """

    test: str
    cells: tuple[str, ...]
    explanation: str


@dataclass
class Report:
    """All cells.

    Attributes
    ----------
    cells : list of CellRun
    missing : list of str
        Cells of which there are no records at all.
    """

    cells: list[CellRun]
    missing: list[str] = field(default_factory=list)

    @cached_property
    def tests(self) -> list[str]:
        """Every test that any cell ran, file by file."""
        seen: dict[str, None] = {}
        for cell in self.cells:
            seen.update(dict.fromkeys(cell.outcomes))
        files: dict[str, list[str]] = {}
        for test in seen:
            files.setdefault(test.partition("::")[0], []).append(test)
        return [test for name in sorted(files) for test in files[name]]

    @cached_property
    def grid(self) -> list[str]:
        """A row of letters for each test, a letter for each cell.

        A file that could not be collected in one cell is a test of its name; where its tests ran, that one passed.
        """
        outcomes = [cell.outcomes for cell in self.cells]
        rows = ["".join([one.get(test, NOT_RUN) for one in outcomes]) for test in self.tests]
        whole = [(number, test) for number, test in enumerate(self.tests) if "::" not in test]
        if whole:
            files = [{test.partition("::")[0] for test in one if "::" in test} for one in outcomes]
            for number, name in whole:
                letters = zip(rows[number], files, strict=True)
                rows[number] = "".join("P" if one == NOT_RUN and name in ran else one for one, ran in letters)
        return rows

    @cached_property
    def partial(self) -> list[Partial]:
        """Tests that fail in some cells only, with what explains it."""
        axes = [cell.axes for cell in self.cells]
        words: dict[str, str] = {}
        result = []
        for test, row in zip(self.tests, self.grid, strict=True):
            letters = set(row)
            if letters & BAD and letters & GOOD:
                bad = [letter in BAD if letter in BAD or letter in GOOD else None for letter in row]
                if row not in words:
                    words[row] = explain(axes, bad)
                failing = tuple(cell.name for cell, letter in zip(self.cells, row, strict=True) if letter in BAD)
                result.append(Partial(test, failing, words[row]))
        return result

    @cached_property
    def failing_everywhere(self) -> list[str]:
        """Tests that fail in every cell that ran them."""
        return [t for t, row in zip(self.tests, self.grid, strict=True) if set(row) & BAD and not set(row) & GOOD]

    @cached_property
    def skipped_everywhere(self) -> list[tuple[str, tuple[str, ...]]]:
        """Tests that no cell ever ran, each with the reasons."""
        result = []
        for test, row in zip(self.tests, self.grid, strict=True):
            if set(row) <= {"S", NOT_RUN}:
                reasons = dict.fromkeys(cell.details[test].reason for cell in self.cells if test in cell.details)
                result.append((test, tuple(reasons)))
        return result

    @cached_property
    def not_run(self) -> dict[str, list[str]]:
        """For each cell that lacks tests which others have: those tests, of files that it ran."""
        result = {}
        for number, cell in enumerate(self.cells):
            files, partly = {test.partition("::")[0] for test in cell.outcomes}, bool(cell.fault)
            lacking = [
                test
                for test, row in zip(self.tests, self.grid, strict=True)
                if row[number] == NOT_RUN and (partly or test.partition("::")[0] in files)
            ]
            if lacking:
                result[cell.name] = lacking
        return result

    @property
    def counts(self) -> Counter[str]:
        """Outcomes of all cells by letter."""
        return sum((cell.counts for cell in self.cells), Counter())

    @property
    def links(self) -> Counter[str]:
        """Links of all cells by backend."""
        return sum((Counter(cell.links) for cell in self.cells), Counter())

    def slowest(self, number: int = 10) -> list[tuple[float, str, str]]:
        """Seconds, test and cell of the slowest tests."""
        every = ((seconds, test, cell.name) for cell in self.cells for test, seconds in cell.durations.items())
        return sorted(every, reverse=True)[:number]

    def keep(self, names: Collection[str]) -> list[str]:
        """Leave out the cells that are not among some names, such as those of an older file of cells; returns them."""
        strange = [cell.name for cell in self.cells if cell.name not in names]
        self.cells = [cell for cell in self.cells if cell.name in names]
        return strange

    def request(self, wanted: Mapping[str, Mapping[str, str]]) -> None:
        """Note which versions the cells ask for, where the records do not say so.

        Parameters
        ----------
        wanted : mapping
            Cell to ``{"ctk": "13.0", …}``.
        """
        for cell in self.cells:
            for name in ("ctk", "driver", "nvjitlink"):
                version, value = cell.versions.get(name), wanted.get(cell.name, {}).get(name)
                if version is not None and value is not None and version.get("requested") is None:
                    version["requested"] = value

    # --- files

    def save(self, path: Path | str) -> None:
        """Write everything to one JSON file, which `load` reads."""
        content = {"format": _FORMAT, "schema": SCHEMA, "cells": [asdict(cell) for cell in self.cells]}
        Path(path).write_text(json.dumps({**content, "missing": self.missing}), encoding="utf-8")

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read what `save` wrote.

        Raises
        ------
        RecordError
            If the file is something else.
        """
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            {_FORMAT: range(1, SCHEMA + 1)}[content["format"]].index(content["schema"])
            cells = [
                CellRun(**{**cell, "details": {test: Detail(**one) for test, one in cell["details"].items()}})
                for cell in content["cells"]
            ]
            missing = list(content["missing"])
        except (ValueError, KeyError, TypeError) as error:
            msg = f"{path}: no saved report of this version of pytest-cudalink ({type(error).__name__}: {error})"
            raise RecordError(msg) from error
        return cls(cells, missing)


def merge(paths: Iterable[Path | str], expected: Sequence[str] = (), workers: int | None = None) -> Report:
    """Merge record files, all ``*.jsonl`` below folders, and saved reports (``*.json``).

    A cell with several files, such as shards, is one; where a test ran twice, the later counts.

    Parameters
    ----------
    paths : iterable of path-like
    expected : sequence of str
        Cells of which there should be records.
    workers : int, optional
        Processes that read; default one for each processor, when there are many files.

    Raises
    ------
    RecordError
        If a file is no record file, or there is none.
    OSError
        If a file cannot be read.
    """
    files = list(_files(paths))
    if not files:
        msg = f"there are no records (*.jsonl) in {', '.join(map(str, paths))}; run the cells first"
        raise RecordError(msg)
    saved = [Report.load(file) for file in files if file.suffix == ".json"]
    files = [file for file in files if file.suffix != ".json"]
    workers = workers or (os.cpu_count() or 1 if len(files) >= _PARALLEL_FROM else 1)
    if workers > 1:
        with ProcessPoolExecutor(min(workers, len(files)), get_context("spawn")) as pool:
            read = list(pool.map(_read, files, chunksize=max(1, len(files) // (4 * workers))))
    else:
        read = [_read(file) for file in files]
    runs = [cell for report in saved for cell in report.cells]
    runs += [run for _, run in sorted(read, key=lambda pair: pair[0])]
    cells: dict[str, CellRun] = {}
    for run in runs:
        cells[run.name] = _joined(cells[run.name], run) if run.name in cells else run
    first = expected or [cell.name for report in saved for cell in report.cells]
    order = {name: number for number, name in enumerate(first)}
    ordered = sorted(cells.values(), key=lambda cell: (order.get(cell.name, len(order)), cell.name))
    lacking = dict.fromkeys([*expected, *(name for report in saved for name in report.missing)])
    return Report(ordered, [name for name in lacking if name not in cells])


def _files(paths: Iterable[Path | str]) -> Iterator[Path]:
    for path in map(Path, paths):
        if path.is_dir():
            yield from sorted(path.rglob("*.jsonl"))
        else:
            yield path


def _joined(first: CellRun, second: CellRun) -> CellRun:
    """Two files of one cell; `second` is the later."""
    links = Counter(first.links) + Counter(second.links)
    return CellRun(
        first.name,
        first.files + second.files,
        {**first.axes, **second.axes},
        {**first.versions, **second.versions},
        second.python,
        second.platform,
        first.finished and second.finished,
        first.truncated or second.truncated,
        max((one.exitstatus for one in (first, second) if one.exitstatus is not None), default=None),
        first.duration + second.duration,
        {**first.outcomes, **second.outcomes},
        {**first.durations, **second.durations},
        {**{test: one for test, one in first.details.items() if test not in second.outcomes}, **second.details},
        dict(links),
        first.violations + second.violations,
        first.verdicts + second.verdicts,
        first.crashes + second.crashes,
        first.reruns + second.reruns,
    )


def _read(path: Path) -> tuple[float, CellRun]:
    """One file: when its run began, and what it says."""
    cell = CellRun(path.stem, [str(path)])
    started: list[bytes] = []
    began, broken, runs, cut = 0.0, 0, 0, False
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.startswith(b'{"event": "start"'):  # half of all lines; needed only after a crash
                started.append(line)
                continue
            if broken:
                msg = f"{path}: line {broken} is no event"
                raise RecordError(msg)
            try:
                event = json.loads(line)
                kind = event["event"]
            except (ValueError, KeyError, TypeError):
                broken, cut = number if line.strip() else 0, not line.endswith(b"\n")
                continue
            try:
                if kind != "run":
                    _add(cell, kind, event)
                    continue
                if not 1 <= event.get("schema", 0) <= SCHEMA:
                    msg = f"{path}: line {number} is of format {event.get('schema')!r}; install a newer pytest-cudalink"
                    raise RecordError(msg)
                cell, started, began, runs = CellRun(path.stem, [str(path)]), [], float(event["time"]), runs + 1
                _begin(cell, event)
            except (AttributeError, KeyError, TypeError) as error:
                msg = f"{path}: line {number} is no event {kind!r} of this format ({type(error).__name__}: {error})"
                raise RecordError(msg) from error
    if not runs and not cut:
        msg = f"{path}: there is no event 'run'; this is no record file"
        raise RecordError(msg)
    cell.truncated = bool(broken)
    if not cell.finished:
        _cut(cell, started)
    return began, cell


def _begin(cell: CellRun, event: Mapping[str, Any]) -> None:
    cell.name = event.get("cell") or cell.name
    cell.versions = event.get("versions") or {}
    cell.python, cell.platform = str(event.get("python", "")), str(event.get("platform", ""))
    settings = event.get("settings") or {}
    for name in ("ctk", "driver", "nvjitlink"):
        version = cell.versions.get(name)
        if version is not None:
            cell.axes[name] = _minor(version.get("found")) or "none"
    for name in ("backend", "policy"):
        if name in settings:
            cell.axes[name] = str(settings[name].get("value"))
    if cell.python:
        cell.axes["python"] = _minor(cell.python)
    if (event.get("arch") or {}).get("found"):
        cell.axes["arch"] = str(event["arch"]["found"])


def _minor(version: Any) -> str:
    return ".".join(str(version).split(".")[:2]) if version else ""


def _add(cell: CellRun, kind: str, event: dict[str, Any]) -> None:
    match kind:
        case "test":
            _add_test(cell, event)
        case "link":
            # the recorder's word for a link that was refused before a linker was chosen
            backend = "none" if event.get("backend", "unknown") == "unknown" else event["backend"]
            cell.links[backend] = cell.links.get(backend, 0) + 1
            if event.get("result", "ok") != "ok" and backend != "none":
                cell.links[f"{backend} failed"] = cell.links.get(f"{backend} failed", 0) + 1
        case "violation":
            cell.violations.append(event)
        case "verdict":
            cell.verdicts.append(event)
        case "crash":
            cell.crashes.append(event)
        case "end":
            cell.finished = True
            cell.exitstatus, cell.duration = event.get("exitstatus"), float(event.get("duration", 0.0))
        case _:
            pass  # of a later version


def _add_test(cell: CellRun, event: dict[str, Any]) -> None:
    test, outcome = event["nodeid"], event["outcome"]
    if outcome == "rerun":
        cell.reruns += 1
        return
    documented = event.get("documented")
    if outcome == "passed" and documented:
        outcome = "documented"
    letter = cell.outcomes[test] = LETTERS.get(outcome, "?")
    cell.durations[test] = event.get("duration", 0.0)
    if letter != "P":
        reason = f"{documented.get('requirement')} not met: {documented.get('raises')}" if documented else ""
        cell.details[test] = Detail(reason or event.get("reason") or "", (event.get("longrepr") or "")[:_LONG])
    else:
        cell.details.pop(test, None)


def _cut(cell: CellRun, started: list[bytes]) -> None:
    """A run without an end: what had begun and came to nothing crashed."""
    known = {crash.get("nodeid") for crash in cell.crashes}
    for line in started:
        try:
            test = json.loads(line)["nodeid"]
        except (ValueError, KeyError):
            cell.truncated = True
            continue
        if test not in cell.outcomes:
            cell.outcomes[test] = LETTERS["crashed"]
            cell.details[test] = Detail("the process ended while this test ran")
            if test not in known:
                cell.crashes.append({"event": "crash", "nodeid": test, "signal": None, "exitcode": None})
