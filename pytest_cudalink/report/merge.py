"""Merges the records of all cells into one report.

A hundred cells with five thousand tests each are half a million results, so several files are read in parallel, and
only what the report shows is kept.
"""

import json
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from ..base.process_end import ending
from ..base.regular_files import open_regular
from ..base.safe_text import shortened
from ..base.tables import grouped
from . import records
from .cell_run import BAD, LETTERS, CellRun, Detail, Lines, UnsteeredLinks, doubts, library_key
from .matrix_report import MatrixReport
from .origin import origin_of_run
from .wording import backend_keys, call_in_words, ended_by, refused_last

__all__ = ["merge"]


def joined(runs: Sequence[CellRun]) -> CellRun:
    """Return the records of one cell as one run; tests that several of them have are counted, or named if they differ.

    Shards have no test in common. An attempt that a plugin repeats within a run is not a second record.

    `runs`: in the order in which they began; the last result of a test counts.
    """
    result = runs[0]
    for run in runs[1:]:
        result = result.joined(run)
    results_of = grouped(
        (test, [letter, ", ".join(run.files) or f"record {number}"])
        for number, run in enumerate(runs, 1)
        for test, letter in run.outcomes.items()
    )
    several = {test: results for test, results in results_of.items() if len(results) > 1}
    differing = {test: results for test, results in several.items() if len({letter for letter, _ in results}) > 1}
    result.differing = {**result.differing, **differing}
    result.repeated += len(several) - len(differing)
    return result


_PARALLEL_FROM: Final = 8
#: Characters of a failure and of a reason.
_LONG: Final = 4000
_REASON: Final = 1000
#: Bytes of a line, and those of its beginning in which a damaged line is searched for the name of its cell.
_LONGEST: Final = 64 << 20
_HEAD: Final = 4096
_CELL: Final = re.compile(rb'"cell": ("(?:[^"\\]|\\.)*")')
#: Faults that are kept of a file.
_PROBLEMS: Final = 100


def merge(
    paths: Iterable[Path | str],
    expected: Sequence[str] = (),
    progress: Callable[[int, int], object] = lambda _done, _all: None,
    reasons: Mapping[str, str] | None = None,
) -> MatrixReport:
    """Return the report of record files, of all ``*.jsonl`` below folders, and of saved reports (``*.json``).

    Several files of one cell, such as shards, are joined; where a test ran twice, the later result counts, and
    `CellRun.differing` names the test if the results differ. A file that cannot be read, or is damaged, makes its cell
    incomplete: `CellRun.damage` says why. `MatrixReport.damaged` has the files whose cells are not known.

    `expected`: cells that must have records.
    `progress`: called after each record file with the number of those that were read, and of all.
    `reasons`: why cells that must have records may lack them, by name.
    Raises RecordError if a path does not exist, or there are neither records nor reasons.
    """
    paths, reasons = list(paths), dict(reasons or {})
    damaged: dict[str, str] = {}
    files = list(dict.fromkeys(file for path in paths for file in _files(Path(path), damaged)))
    if not (files or damaged or reasons):
        where = ", ".join(map(str, paths))
        raise records.RecordError(f"there are no records (*.jsonl) in {where}; run the cells first")
    saved = _load_saved([file for file in files if file.suffix == ".json"], damaged)
    unsaved = [file for file in files if file.suffix != ".json"]
    runs = [cell for report in saved for cell in report.cells]
    runs += [run for _, run in sorted(_read_all(unsaved, progress), key=lambda pair: pair[0])]
    by_name = grouped((run.name, run) for run in runs)
    known = expected or [cell.name for report in saved for cell in report.cells]
    order = {name: number for number, name in enumerate(known)}
    names = sorted(by_name, key=lambda name: (order.get(name, len(order)), name))
    lacking = dict.fromkeys([*expected, *reasons, *(name for report in saved for name in report.missing)])
    reasons = {name: why for report in saved for name, why in report.reasons.items()} | reasons
    cells = [joined(by_name[name]) for name in names]
    return MatrixReport(cells, [name for name in lacking if name not in by_name], damaged, reasons)


def _load_saved(files: Iterable[Path], damaged: dict[str, str]) -> list[MatrixReport]:
    """Return the saved reports that can be read; add to `damaged` why others cannot, and the files that they name."""
    saved = []
    for file in files:
        try:
            report = MatrixReport.load(file)
        except records.RecordError as error:
            damaged[str(file)] = str(error)
        except OSError as error:
            damaged[str(file)] = f"{file} {_unreadable(error)}"
        else:
            damaged.update(report.damaged)
            saved.append(report)
    return saved


def _unreadable(error: OSError) -> str:
    return f"cannot be read: {error.strerror or error}"


def _files(path: Path, damaged: dict[str, str]) -> list[Path]:
    """Return the files that a path names: itself, or the record files below a folder."""
    try:
        if not stat.S_ISDIR(path.stat().st_mode):
            return [path]
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        msg = f"the path of records is {path}: {why}; expected a folder, a record file or a saved report"
        raise records.RecordError(f"{msg}; correct the path, or run the cells first") from error

    def note(error: OSError) -> None:
        damaged[str(error.filename)] = f"the folder cannot be read: {error.strerror}"

    records_below = []
    for folder, folders, files in os.walk(path, onerror=note):
        records_below += [Path(folder, name) for name in (*folders, *files) if name.endswith(".jsonl")]
    return sorted(records_below)


def _read_all(files: Sequence[Path], progress: Callable[[int, int], object]) -> list[tuple[float, CellRun]]:
    """Return the runs of all files, which several processes read if there are many."""
    workers = min(os.cpu_count() or 1, len(files))
    result: list[tuple[float, CellRun]] = []
    with ExitStack() as stack:
        reading: Iterable[list[tuple[float, CellRun]]] = map(_read, files)
        if workers > 1 and len(files) >= _PARALLEL_FROM:
            pool = stack.enter_context(ProcessPoolExecutor(workers, get_context("spawn")))
            reading = pool.map(_read, files, chunksize=max(1, len(files) // (4 * workers)))
        for done, runs in enumerate(reading, 1):
            result += runs
            progress(done, len(files))
    return result


@dataclass
class _Reading:
    """The events of one run of a file, as they are read."""

    cell: CellRun
    began: float = 0.0  # time of the event "run"
    last: float = 0.0  # time of the last event
    described: bool = False  # whether there was an event "run"
    lines: Lines = field(default_factory=Lines)
    links: Counter[str] = field(default_factory=Counter)  # number of links by `wording.backend_keys`
    # number of links that no target steers, by the fields of `UnsteeredLinks`
    unsteered: Counter[tuple[str, str, str, str, str | None]] = field(default_factory=Counter)
    # the first event of each loaded library, by `library_key`
    libraries: dict[tuple[str, ...], records.LibraryRecord] = field(default_factory=dict)

    def take(self, event: records.Event, number: int) -> None:
        """Add an event other than "run"."""
        cell = self.cell
        self.last = event.time or self.last
        match event:
            case records.StartRecord():
                self.lines.started[event.nodeid] += 1
            case records.TestRecord():
                self.lines.ended[event.nodeid] += 1
                self.lines.outcomes[event.outcome] += 1
                _add_test(cell, event, number)
            case records.LinkRecord():
                self.links.update(backend_keys(event.backend, failed=event.result != "ok"))
            case records.UnsteeredRecord():
                self.unsteered[event.via, event.call, event.where, event.backend, event.forced] += 1
            case records.LibraryRecord():
                self.libraries.setdefault(library_key(event), event)
            case records.FoundRecord():
                _find(cell, event)
            case records.CollectedRecord():
                self.lines.collected.append(event)
                cell.without_result = event.nodeids
            case records.EndRecord():
                self.lines.ends.append(event)
                cell.finished, cell.exitstatus, cell.duration = True, event.exitstatus, event.duration
                cell.problems += event.failing
                cell.unlinked_modules = event.unlinked_modules
            case records.ExitRecord():
                said = " | ".join(shortened(text, _REASON) for text in event.output)
                cell.problems.append(f"the process {ending(event.exitcode)}{said and f': {said}'}")
            case _:
                getattr(cell, records.SEVERAL[type(event)]).append(event)

    def finish(self) -> None:
        """Find the tests that have no result, and what the end of the run says that they do not."""
        cell = self.cell
        if not cell.damage:  # lines that cannot be read are not counted
            fine = {test for test, letter in cell.outcomes.items() if letter not in BAD}
            fine -= {test for test in fine if "::" not in test and cell.outcomes[test] == LETTERS["skipped"]}
            cell.problems += doubts(self.lines, fine, explained=cell.is_explained or bool(cell.problems))
        if not cell.finished:
            if self.began:  # until the last event, at least
                cell.duration = max(0.0, self.last - self.began)
            _add_crashed(cell, self.lines.started)
        cell.without_result = [test for test in cell.without_result if test not in cell.outcomes]
        cell.libraries += self.libraries.values()
        cell.links = dict(self.links)
        cell.unsteered += [UnsteeredLinks(*place, number) for place, number in self.unsteered.items()]


class _File:
    """A record file as it is read, line by line.

    `readings`: one for each event "run"; before the first there is one for what comes before it.
    `number`: the current line.
    `cut`: what is wrong with a last line that has no end.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.readings = [_Reading(CellRun(path.stem, [str(path)]))]
        self.number, self.cut = 0, ""

    def take(self, line: bytes) -> None:
        """Read a line."""
        if not line.strip():
            return
        try:
            event, fault = records.decode(line)
        except records.RecordError as error:
            if self.readings[-1].cell.unread:
                return
            _name(self.readings[-1], line)
            problem = f": line {self.number} {error}"
            if line.endswith(b"\n"):
                self.note(problem)
            else:
                self.cut = problem
            return
        if isinstance(event, records.RunRecord):
            self._begin(event)
        elif self.readings[-1].cell.unread:
            return
        elif event is not None:
            self.readings[-1].take(event, self.number)
        if fault:
            self.note(f": line {self.number}: {fault}")
        elif isinstance(event, records.RunRecord) and not event.time:
            self.note(f": line {self.number}: run.time is missing; expected seconds since the epoch")

    def _begin(self, event: records.RunRecord) -> None:
        """Begin another run; what came before the first one of a file is not a run, but its faults are kept."""
        before = self.readings[-1]
        cell = CellRun(event.cell or self.path.stem, [str(self.path)])
        reading = _Reading(cell, event.time, event.time, described=True)
        if not before.described:
            self.readings.pop()
            reading.cell.damage = before.cell.damage
        self.readings.append(reading)
        if not before.described and (before.cell.outcomes or before.lines.started):
            self.note(f": events before line {self.number}, the event 'run', are not read")
        if any(earlier.cell.name == reading.cell.name for earlier in self.readings[:-1]):
            expected = "expected one run in a file; give each run a file, and delete this one"
            self.note(f": line {self.number} begins another run of the same cell; {expected}")
        if event.schema == records.SCHEMA:
            _describe(reading.cell, event)
        else:
            reading.cell.unread = reading.cell.finished = True

    def note(self, problem: str) -> None:
        """Add a fault, which follows the name of the file, to the last cell; of very many, the first are kept."""
        damage = self.readings[-1].cell.damage
        if len(damage) < _PROBLEMS:
            damage.append(f"{self.path}{problem}")

    def finish(self) -> None:
        """Note what is wrong with the file as a whole, and find the tests that have no result."""
        last = self.readings[-1]
        if self.cut and last.cell.finished:
            self.note(self.cut)
        last.cell.truncated = bool(self.cut)
        if not (last.described or last.cell.damage or (self.number == 1 and self.cut)):
            words = " has no event 'run'; expected a file that --cudalink-report wrote" if self.number else " is empty"
            self.note(words)
        for reading in self.readings:
            reading.finish()


def _read(path: Path) -> list[tuple[float, CellRun]]:
    """Return the runs of a file, each with the time at which it began; what is wrong with the file is in the runs."""
    reader = _File(path)
    try:
        with open_regular(path) as file:
            for reader.number, line in enumerate(iter(partial(file.readline, _LONGEST), b""), 1):
                if len(line) == _LONGEST:
                    reader.note(f": line {reader.number} is longer than {_LONGEST:,} bytes; the rest is not read")
                    break
                reader.take(line)
    except OSError as error:
        reader.note(f" {_unreadable(error)}")
    reader.finish()
    return [(reading.began, reading.cell) for reading in reader.readings]


def _name(reading: _Reading, line: bytes) -> None:
    """Take the name of the cell from what is left of an event "run"."""
    match = None if reading.described else _CELL.search(line[:_HEAD])
    if match is not None:
        with suppress(ValueError):
            reading.cell.name = json.loads(match[1]) or reading.cell.name


def _describe(cell: CellRun, event: records.RunRecord) -> None:
    """Take from an event "run" what the cell is."""
    cell.python, cell.platform = event.python, event.platform
    _find(cell, event)
    for name in ("backend", "policy"):
        if name in event.settings:
            cell.axes[name] = event.settings[name]["value"]
    if event.python:
        cell.axes["python"] = _minor(event.python)
    cell.axes.update(event.axes)
    cell.hidden = event.hidden
    cell.origins = [origin_of_run(event)]


def _find(cell: CellRun, event: records.RunRecord | records.FoundRecord) -> None:
    """Take versions and architecture from an event."""
    cell.versions = event.versions
    for name in ("ctk", "driver", "nvjitlink"):
        if name in event.versions:
            cell.axes[name] = _minor(event.versions[name]["found"]) or "none"
    if event.arch["found"]:
        cell.axes["arch"] = event.arch["found"]


def _minor(version: str | None) -> str:
    """Return major and minor of a version; empty without one."""
    return ".".join(version.split(".")[:2]) if version else ""


def _add_test(cell: CellRun, event: records.TestRecord, number: int) -> None:
    if event.outcome == "rerun":
        cell.reruns += 1
        return
    test, documented = event.nodeid or f"(the test of line {number})", event.documented
    letter = LETTERS["documented"] if event.outcome == "passed" and documented else LETTERS[event.outcome]
    cell.outcomes[test], cell.durations[test] = letter, event.duration
    if letter == "P":
        cell.details.pop(test, None)
        return
    reason = f"{documented['requirement']} not met: {documented['raises']}" if documented else event.reason
    cell.details[test] = Detail(shortened(reason, _REASON), shortened(event.longrepr, _LONG), event.cause)


def _add_crashed(cell: CellRun, started: Iterable[str]) -> None:
    """Add the tests that began and have no result, because the run did not finish: their process died."""
    known = {crash.nodeid: crash for crash in cell.crashes}
    for test in started:
        if test and test not in cell.outcomes:
            crash = known.get(test)
            if crash is None:
                crash = records.CrashRecord(nodeid=test)
                cell.crashes.append(crash)
            cell.outcomes[test] = LETTERS["crashed"]
            by = f", by {crash.signal}" if crash.signal else ""
            refused = refused_last(crash.last_events)
            after = f", after the emulated driver refused {refused[0]}: {refused[1]}" if refused else ""
            cell.details[test] = Detail(f"the process ended while this test ran{by}{after}", _story(crash))
    if not (cell.crashes or cell.truncated or cell.damage):  # pytest writes an end even where it fails
        cell.crashes.append(records.CrashRecord())


def _story(crash: records.CrashRecord) -> str:
    """Return what is known about the end of a process, in lines."""
    lines = [f"ended by {ended_by(crash)}"]
    if crash.last_events:
        lines += ["last calls of the driver:", *(f"  {call_in_words(event)}" for event in crash.last_events)]
    if crash.frames:
        lines += ["frames:", *(f"  {line}" for line in crash.frames)]
    lines.append("Run with --cudalink-processes=isolated or restarted, so that a crash ends one test only.")
    return "\n".join(lines)[:_LONG]
