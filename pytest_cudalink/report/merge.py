"""Merges the records of all cells into one report.

A hundred cells with five thousand tests each are half a million results, so this reads the lines itself instead of
making an object of each, and several files in parallel.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .cell_run import LETTERS, UNKNOWN, CellRun, Detail, library_key, whole_cause
from .checks import MOST_SECONDS, described, sound_event, time_fault
from .events import OUTCOMES
from .matrix_report import MatrixReport
from .origin import read as origin_of
from .records import RecordError, format_fault
from .repeats import joined
from .safe_text import shortened
from .wording import backend_keys, call_in_words, ended_by

if TYPE_CHECKING:
    from .events import CrashRecord, EndRecord, FoundRecord, LibraryRecord, LinkRecord, RunRecord, TestRecord

__all__ = ["merge"]

_PARALLEL_FROM: Final = 8
#: Characters of a failure and of a reason.
_LONG: Final = 4000
_REASON: Final = 1000
#: Bytes of a line, and those of its beginning in which a damaged line is searched for the name of its cell.
_LONGEST: Final = 64 << 20
_HEAD: Final = 4096
#: Matches an event "start" as the plugin writes it.
_STARTED: Final = re.compile(rb'\{"event": "start", "time": \d{1,12}[.,]').match
#: Matches the beginning of an event, with its time.
_TIME: Final = re.compile(rb'\{"event": "[a-z]+", "time": (\d{1,12}(?:\.\d+)?)').match
_CELL: Final = re.compile(rb'"cell": ("(?:[^"\\]|\\.)*")')
#: Faults that are kept of a file.
_PROBLEMS: Final = 100
#: Letters of the outcomes that a record can have.
_LETTERS: Final[Mapping[str | None, str]] = {outcome: LETTERS[outcome] for outcome in OUTCOMES if outcome in LETTERS}
#: The keys of an event "unsteered" by which a cell counts them, and the types of their values.
_PLACE: Final = ("via", "call", "where", "backend", "forced")
_PLACES: Final = frozenset({str, type(None)})


def merge(
    paths: Iterable[Path | str],
    expected: Sequence[str] = (),
    workers: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    reasons: Mapping[str, str] | None = None,
) -> MatrixReport:
    """Return the report of record files, of all ``*.jsonl`` below folders, and of saved reports (``*.json``).

    Several files of one cell, such as shards, are joined; where a test ran twice, the later result counts, and
    `CellRun.differing` names the test if the results differ. A file that cannot be read, or is damaged, makes its cell
    incomplete: `CellRun.damage` says why. `MatrixReport.damaged` has the files whose cells are not known.

    Parameters
    ----------
    paths : iterable of path-like
    expected : sequence of str
        Cells that must have records.
    workers : int, optional
        Number of processes that read; by default one for each processor if there are many files.
    progress : callable, optional
        Called after each record file with the number of those that were read, and of all.
    reasons : mapping, optional
        Why cells that must have records may lack them, by name.

    Raises
    ------
    RecordError
        If a path does not exist, or there are neither records nor reasons.
    """
    paths, reasons = list(paths), dict(reasons or {})
    damaged: dict[str, str] = {}
    files = list(dict.fromkeys(file for path in paths for file in _files(Path(path), damaged)))
    if not (files or damaged or reasons):
        msg = f"there are no records (*.jsonl) in {', '.join(map(str, paths))}; run the cells first"
        raise RecordError(msg)
    saved = _load_saved([file for file in files if file.suffix == ".json"], damaged)
    records = [file for file in files if file.suffix != ".json"]
    runs = [cell for report in saved for cell in report.cells]
    runs += [run for _, run in sorted(_read_all(records, workers, progress), key=lambda pair: pair[0])]
    by_name: dict[str, list[CellRun]] = {}
    for run in runs:
        by_name.setdefault(run.name, []).append(run)
    order = {name: number for number, name in enumerate(expected or [cell.name for one in saved for cell in one.cells])}
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
        except RecordError as error:
            damaged[str(file)] = str(error)
        except OSError as error:
            damaged[str(file)] = _unreadable(file, error)
        else:
            damaged.update(report.damaged)
            saved.append(report)
    return saved


def _files(path: Path, damaged: dict[str, str]) -> list[Path]:
    """Return the files that a path names: itself, or the record files below a folder."""
    try:
        if not stat.S_ISDIR(path.stat().st_mode):
            return [path]
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        msg = f"the path of records is {path}: {why}; expected a folder, a record file or a saved report"
        raise RecordError(f"{msg}; correct the path, or run the cells first") from error

    def note(error: OSError) -> None:
        damaged[str(error.filename)] = f"the folder cannot be read: {error.strerror}"

    found = []
    for folder, folders, files in os.walk(path, onerror=note):
        found += [Path(folder, name) for name in (*folders, *files) if name.endswith(".jsonl")]
    return sorted(found)


def _read_all(
    files: Sequence[Path], workers: int | None, progress: Callable[[int, int], object] | None
) -> list[tuple[float, CellRun]]:
    workers = min(workers or (os.cpu_count() or 1 if len(files) >= _PARALLEL_FROM else 1), len(files))
    if workers <= 1:
        return _gathered(map(_read, files), len(files), progress)
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        chunk = max(1, len(files) // (4 * workers))
        return _gathered(pool.map(_read, files, chunksize=chunk), len(files), progress)


def _gathered(
    files: Iterable[list[tuple[float, CellRun]]], number: int, progress: Callable[[int, int], object] | None
) -> list[tuple[float, CellRun]]:
    """Return the runs of all files; report each file that is read."""
    result: list[tuple[float, CellRun]] = []
    for done, runs in enumerate(files, 1):
        result += runs
        if progress is not None:
            progress(done, number)
    return result


def _unreadable(path: Path, error: OSError) -> str:
    return f"{path} cannot be read: {error.strerror or error}"


@dataclass
class _Reading:
    """The events of one run of a file, as they are read.

    Attributes
    ----------
    described : bool
        Whether there was an event "run".
    last : bytes
        The last line.
    started : list of bytes
        The lines of the events "start".
    unsteered : Counter of tuple
        Number of links that no target steers, by the values of `_PLACE`.
    libraries : dict of tuple to LibraryRecord
        The first event of each loaded library, by `library_key`.
    """

    cell: CellRun
    began: float = 0.0
    described: bool = False
    last: bytes = b""
    started: list[bytes] = field(default_factory=list)
    unsteered: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    libraries: dict[tuple[str, ...], LibraryRecord] = field(default_factory=dict)


class _File:
    """A record file as it is read, line by line.

    Attributes
    ----------
    readings : list of _Reading
        One for each event "run"; before the first there is one for what comes before it.
    number : int
        The current line.
    previous : bytes
        The line before, if it was not cut.
    pending : str
        What is wrong with the line before: the last line of a file may be cut.
    cut : bool
        Whether that line has no end.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.readings = [_Reading(CellRun(path.stem, [str(path)]))]
        self.number, self.previous, self.pending, self.cut = 0, b"", "", False

    def take(self, line: bytes) -> None:
        """Read a line that is not plainly the start of a test."""
        reading = self.readings[-1]
        self.settle()
        try:
            event = json.loads(line)
            kind = event["event"]
        except (ValueError, KeyError, TypeError, RecursionError):
            if line.strip():
                self.pending = f"{self.path}: line {self.number} is not an event"
                self.cut = not line.endswith(b"\n")
                _name(reading, line)
            return
        if kind == "run":
            reading.last = self.previous
            _start(self.readings, event, self.number)
        elif reading.cell.unread:
            pass
        elif kind == "start":
            _note_all(reading.cell, self.number, time_fault("start", event))
            reading.started.append(line)
        elif kind == "unsteered":
            _add_unsteered(reading, event, self.number)
        elif kind == "library":
            found = _sound(reading.cell, "library", event, self.number)
            reading.libraries.setdefault(library_key(found), found)
        else:
            _add(reading.cell, kind, event, self.number)

    def settle(self) -> None:
        """Note what is wrong with the line before, as another follows it."""
        if self.pending:
            _note(self.readings[-1].cell, self.pending)
            self.pending = ""

    def finish(self) -> None:
        """Note what is wrong with the file as a whole, and find the tests that have no result."""
        last = self.readings[-1]
        last.last = self.previous
        if self.pending and last.cell.finished:
            _note(last.cell, self.pending)
        last.cell.truncated = bool(self.pending)
        if not (last.described or last.cell.damage or (self.number == 1 and self.cut)):
            words = "has no event 'run'; expected a file that --cudalink-report wrote" if self.number else "is empty"
            _note(last.cell, f"{self.path} {words}")
        for reading in self.readings:
            cell = reading.cell
            if not cell.finished:
                cell.duration = _seconds(reading)
                _add_crashed(cell, reading.started)
            cell.without_result = [test for test in cell.without_result if test not in cell.outcomes]
            cell.libraries += reading.libraries.values()
            for place, links in reading.unsteered.items():
                found: Any = {**dict(zip(_PLACE, place, strict=True)), "number": links}
                cell.unsteered.append(found)


def _read(path: Path) -> list[tuple[float, CellRun]]:
    """Return the runs of a file, each with the time at which it began; what is wrong with the file is in the runs."""
    reader = _File(path)
    try:
        with path.open("rb") as file:
            for reader.number, line in enumerate(iter(partial(file.readline, _LONGEST), b""), 1):
                # a third of all lines; needed only after a crash
                if _STARTED(line) and line.count(b'"event"') == 1:
                    reader.settle()
                    reader.readings[-1].started.append(line)
                    reader.previous = line
                    continue
                if len(line) == _LONGEST:
                    words = f"line {reader.number} is longer than {_LONGEST:,} bytes; the rest is not read"
                    _note(reader.readings[-1].cell, f"{path}: {words}")
                    break
                reader.take(line)
                if line.endswith(b"\n"):
                    reader.previous = line
    except OSError as error:
        _note(reader.readings[-1].cell, _unreadable(path, error))
    reader.finish()
    return [(reading.began, reading.cell) for reading in reader.readings]


def _seconds(reading: _Reading) -> float:
    """Return how long a run without an end took at least: until its last event."""
    found = _TIME(reading.last)
    return max(0.0, float(found[1]) - reading.began) if found and reading.began else 0.0


def _start(readings: list[_Reading], event: dict[str, Any], number: int) -> None:
    """Begin another run; what came before the first one of a file is not a run, but its faults are kept."""
    before = readings[-1]
    content, wrong = sound_event("run", event)
    reading = _Reading(CellRun(content.get("cell") or Path(before.cell.files[0]).stem, before.cell.files[:]))
    reading.described = True
    if not before.described:
        readings.pop()
        reading.cell.damage = before.cell.damage
        if before.cell.outcomes or before.started:
            _note(reading.cell, f"{before.cell.files[0]}: events before line {number}, the event 'run', are not read")
    readings.append(reading)
    if fault := format_fault(event.get("schema")):
        reading.cell.unread = reading.cell.finished = True
        _note(reading.cell, f"{_place(reading.cell, number)} {fault}")
        return
    _note_all(reading.cell, number, wrong)
    if (began := content.get("time")) is not None:
        reading.began = began
    elif event.get("time") is None:
        _note(reading.cell, f"{_place(reading.cell, number)}: run.time is None; expected seconds since the epoch")
    _begin(reading.cell, content, began)  # type: ignore[arg-type] # (checked)


def _name(reading: _Reading, line: bytes) -> None:
    """Take the name of the cell from what is left of an event "run"."""
    found = None if reading.described else _CELL.search(line[:_HEAD])
    if found is not None:
        with suppress(ValueError):
            reading.cell.name = json.loads(found[1]) or reading.cell.name


def _place(cell: CellRun, number: int) -> str:
    return f"{cell.files[-1]}: line {number}"


def _note(cell: CellRun, problem: str) -> None:
    """Add a fault of a file; of very many, the first are kept."""
    if len(cell.damage) < _PROBLEMS:
        cell.damage.append(problem)


def _note_all(cell: CellRun, number: int, wrong: Iterable[str]) -> None:
    for text in wrong:
        _note(cell, f"{_place(cell, number)}: {text}")


# Every writer writes all keys of an event. Those that other tools may leave out are read with a default.


def _begin(cell: CellRun, event: RunRecord, began: float | None) -> None:
    cell.python, cell.platform = str(event.get("python", "")), str(event.get("platform", ""))
    settings = event.get("settings") or {}
    _find_versions(cell, event)
    for name in ("backend", "policy"):
        if name in settings:
            cell.axes[name] = str(settings[name].get("value"))
    if cell.python:
        cell.axes["python"] = _minor(cell.python)
    _find_arch(cell, event)
    cell.axes.update(event.get("axes") or {})
    cell.hidden = event.get("hidden") or ""
    cell.origins = [origin_of(event.get("origin") or {}, began)]


def _find_versions(cell: CellRun, event: RunRecord | FoundRecord) -> None:
    cell.versions = event.get("versions") or {}
    for name in ("ctk", "driver", "nvjitlink"):
        version = cell.versions.get(name)
        if version is not None:
            cell.axes[name] = _minor(version.get("found")) or "none"


def _find_arch(cell: CellRun, event: RunRecord | FoundRecord) -> None:
    arch = event.get("arch")
    if arch and arch.get("found"):
        cell.axes["arch"] = str(arch["found"])


def _minor(version: str | None) -> str:
    """Return major and minor of a version; empty without one."""
    return ".".join(str(version).split(".")[:2]) if version else ""


def _add(cell: CellRun, kind: object, event: Any, number: int) -> None:
    """Add an event to a cell; what is wrong with it is a fault of the cell."""
    match kind:
        case "test":
            _add_test(cell, event, number)
        case "found":
            found = _sound(cell, "found", event, number)
            _find_versions(cell, found)
            _find_arch(cell, found)
        case "collected":
            tests = _sound(cell, "collected", event, number).get("tests") or {}
            cell.without_result = [
                f"{file}::{name}" if name else file for file, names in tests.items() for name in names
            ]
        case "link":
            _add_link(cell, event, number)
        case "violation":
            cell.violations.append(_sound(cell, "violation", event, number))
        case "verdict":
            cell.verdicts.append(_sound(cell, "verdict", event, number))
        case "crash":
            cell.crashes.append(_sound(cell, "crash", event, number))
        case "sticky":
            cell.sticky.append(_sound(cell, "sticky", event, number))
        case "end":
            _end(cell, _sound(cell, "end", event, number))
        case _:
            unknown = f"{_place(cell, number)} is an event {described(kind)}, which is unknown"
            _note(cell, f"{unknown}; install a newer pytest-cudalink")


def _sound(cell: CellRun, kind: str, event: Any, number: int) -> Any:
    """Return the values of an event that have the right type."""
    content, wrong = sound_event(kind, event)
    _note_all(cell, number, wrong)
    return content


def _has_time(event: Any) -> bool:
    """Whether an event has a time as the plugin writes it, which needs no other check."""
    time = event.get("time")
    return type(time) is float and 0 <= time < MOST_SECONDS


def _add_test(cell: CellRun, event: Any, number: int) -> None:
    get = event.get
    test, outcome, seconds = get("nodeid"), get("outcome"), get("duration", 0.0)
    reason, text, documented = get("reason", ""), get("longrepr", ""), get("documented")
    # the checks of the table take longer than all the rest, and half a million events do not need them
    plain = type(test) is str and type(outcome) is str and type(seconds) is float and type(reason) is str
    plain = plain and type(get("subtests", [])) is list and type(get("backends", {})) is dict and _has_time(event)
    plain = plain and type(text) is str and documented is None and get("cause") is None
    if not (plain and 0 <= seconds < MOST_SECONDS):
        _add_odd_test(cell, _sound(cell, "test", event, number), number)
    elif outcome == "rerun":
        cell.reruns += 1
    else:
        _add_result(cell, test, _letter(cell, outcome, number), seconds, Detail(reason, text))


def _add_odd_test(cell: CellRun, event: TestRecord, number: int) -> None:
    """Add a test's event that lacks a key, has a documented failure or a cause, or had a value of another type."""
    test, outcome, documented = event.get("nodeid"), event.get("outcome"), event.get("documented")
    if outcome == "rerun":
        cell.reruns += 1
        return
    if test is None:
        _note(cell, f"{_place(cell, number)}: test.nodeid is missing")
        test = f"(the test of line {number})"
    letter = LETTERS["documented"] if outcome == "passed" and documented else _letter(cell, outcome, number)
    reason = f"{documented.get('requirement')} not met: {documented.get('raises')}" if documented else ""
    cause = whole_cause(event.get("cause"))
    detail = Detail(reason or event.get("reason") or "", event.get("longrepr") or "", cause)
    _add_result(cell, test, letter, event.get("duration") or 0.0, detail)


def _letter(cell: CellRun, outcome: str | None, number: int) -> str:
    """Return the letter of an outcome of a record; an unknown one is a fault of the cell."""
    letter = _LETTERS.get(outcome)
    if letter is None:
        given = described(outcome) if outcome is not None else "missing"
        _note(cell, f"{_place(cell, number)}: test.outcome is {given}; expected one of {', '.join(OUTCOMES)}")
        return UNKNOWN
    return letter


def _add_result(cell: CellRun, test: str, letter: str, seconds: float, detail: Detail) -> None:
    cell.outcomes[test] = letter
    cell.durations[test] = seconds
    if letter == "P":
        cell.details.pop(test, None)
        return
    cell.details[test] = Detail(shortened(detail.reason, _REASON), shortened(detail.text, _LONG), detail.cause)


def _add_link(cell: CellRun, event: LinkRecord, number: int) -> None:
    if not (type(event.get("backend")) is str and type(event.get("result")) is str and _has_time(event)):
        event = _sound(cell, "link", event, number)
    for key in backend_keys(event.get("backend") or "unknown", failed=event.get("result", "ok") != "ok"):
        cell.links[key] = cell.links.get(key, 0) + 1


def _add_unsteered(reading: _Reading, event: Any, number: int) -> None:
    place = tuple(map(event.get, _PLACE))
    if not _PLACES.issuperset(map(type, place)) or None in place[:-1] or not _has_time(event):
        event = _sound(reading.cell, "unsteered", event, number)
        place = *(event.get(name) or "" for name in _PLACE[:-1]), event.get("forced")
    reading.unsteered[place] += 1


def _end(cell: CellRun, event: EndRecord) -> None:
    cell.finished = True
    cell.exitstatus, cell.duration = event.get("exitstatus"), event.get("duration") or 0.0
    cell.problems += event.get("failing") or []
    cell.unlinked_modules = event.get("unlinked_modules") or 0


def _add_crashed(cell: CellRun, started: Iterable[bytes]) -> None:
    """Add the tests that began and have no result, because the run did not finish: their process died."""
    known = {crash.get("nodeid"): crash for crash in cell.crashes}
    for line in started:
        try:
            test = json.loads(line)["nodeid"]
        except (ValueError, KeyError, TypeError, RecursionError):
            cell.truncated = True
            continue
        if type(test) is not str:
            _note(cell, f"{cell.files[-1]}: start.nodeid is {described(test)}; expected a text")
            continue
        if test not in cell.outcomes:
            cell.outcomes[test] = LETTERS["crashed"]
            crash = known.get(test)
            by = f", by {crash['signal']}" if crash is not None and crash.get("signal") else ""
            cell.details[test] = Detail(f"the process ended while this test ran{by}", _story(crash or {}))
            if crash is None:
                cell.crashes.append(_unknown(test))
    if not (cell.crashes or cell.truncated or cell.damage):  # pytest writes an end even where it fails
        cell.crashes.append(_unknown(None))


def _unknown(test: str | None) -> CrashRecord:
    return {"nodeid": test, "worker": None, "signal": None, "exitcode": None, "last_events": []}


def _story(crash: Mapping[str, Any]) -> str:
    """Return what is known about the end of a process, in lines."""
    lines = [f"ended by {ended_by(crash)}"]
    if calls := crash.get("last_events"):
        lines += ["last calls of the driver:", *(f"  {call_in_words(str(one))}" for one in calls)]
    if frames := crash.get("frames"):
        lines += ["frames:", *(f"  {line}" for line in frames)]
    lines.append("Run with --cudalink-processes=isolated or restarted, so that a crash ends one test only.")
    return "\n".join(lines)[:_LONG]
