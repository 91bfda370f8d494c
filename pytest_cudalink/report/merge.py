"""Merges the records of all cells into one report.

A hundred cells with five thousand tests each are half a million results, so this reads the lines itself instead of
making an object of each, and several files in parallel.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .cell_run import LETTERS, CellRun, Detail
from .events import SCHEMA
from .matrix_report import MatrixReport
from .records import RecordError
from .wording import backend_keys, ended_by

if TYPE_CHECKING:
    from .events import CrashRecord, EndRecord, LinkRecord, RunRecord, TestRecord

__all__ = ["merge"]

_PARALLEL_FROM: Final = 8
_LONG: Final = 4000


def merge(paths: Iterable[Path | str], expected: Sequence[str] = (), workers: int | None = None) -> MatrixReport:
    """Return the report of record files, of all ``*.jsonl`` below folders, and of saved reports (``*.json``).

    Several files of one cell, such as shards, are joined; where a test ran twice, the later result counts.

    Parameters
    ----------
    paths : iterable of path-like
    expected : sequence of str
        Cells that must have records.
    workers : int, optional
        Number of processes that read; by default one for each processor if there are many files.

    Raises
    ------
    RecordError
        If a file is not a record file, or there is none.
    OSError
        If a file cannot be read.
    """
    files = list(_files(paths))
    if not files:
        msg = f"there are no records (*.jsonl) in {', '.join(map(str, paths))}; run the cells first"
        raise RecordError(msg)
    saved = [MatrixReport.load(file) for file in files if file.suffix == ".json"]
    files = [file for file in files if file.suffix != ".json"]
    runs = [cell for report in saved for cell in report.cells]
    runs += [run for _, run in sorted(_read_all(files, workers), key=lambda pair: pair[0])]
    cells: dict[str, CellRun] = {}
    for run in runs:
        cells[run.name] = cells[run.name].joined(run) if run.name in cells else run
    first = expected or [cell.name for report in saved for cell in report.cells]
    order = {name: number for number, name in enumerate(first)}
    ordered = sorted(cells.values(), key=lambda cell: (order.get(cell.name, len(order)), cell.name))
    lacking = dict.fromkeys([*expected, *(name for report in saved for name in report.missing)])
    return MatrixReport(ordered, [name for name in lacking if name not in cells])


def _files(paths: Iterable[Path | str]) -> Iterator[Path]:
    for path in map(Path, paths):
        if path.is_dir():
            yield from sorted(path.rglob("*.jsonl"))
        else:
            yield path


def _read_all(files: Sequence[Path], workers: int | None) -> list[tuple[float, CellRun]]:
    workers = min(workers or (os.cpu_count() or 1 if len(files) >= _PARALLEL_FROM else 1), len(files))
    if workers <= 1:
        return [_read(file) for file in files]
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        return list(pool.map(_read, files, chunksize=max(1, len(files) // (4 * workers))))


def _read(path: Path) -> tuple[float, CellRun]:
    """Return the time at which the run of a file began, and its results."""
    cell = CellRun(path.stem, [str(path)])
    started: list[bytes] = []
    began, broken, runs, cut = 0.0, 0, 0, False
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.startswith(b'{"event": "start"'):  # a third of all lines; needed only after a crash
                started.append(line)
                continue
            if broken:
                msg = f"{path}: line {broken} is not an event"
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
                    msg = (
                        f"{path}: line {number} has format {event.get('schema')!r}; this version reads formats up to "
                        f"{SCHEMA}; install a newer pytest-cudalink"
                    )
                    raise RecordError(msg)
                cell, started, began, runs = CellRun(path.stem, [str(path)]), [], float(event["time"]), runs + 1
                _begin(cell, event)
            except (AttributeError, KeyError, TypeError) as error:
                msg = f"{path}: line {number} is not a valid event {kind!r} ({type(error).__name__}: {error})"
                raise RecordError(msg) from error
    if not runs and not cut:
        msg = f"{path}: no event 'run'; expected a file that --cudalink-report wrote"
        raise RecordError(msg)
    cell.truncated = bool(broken)
    if not cell.finished:
        _add_crashed(cell, started)
    cell.without_result = [test for test in cell.without_result if test not in cell.outcomes]
    return began, cell


# Every writer writes all keys of an event. Those that other tools may leave out are read with a default.


def _begin(cell: CellRun, event: RunRecord) -> None:
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
    arch = event.get("arch")
    if arch and arch.get("found"):
        cell.axes["arch"] = str(arch["found"])


def _minor(version: str | None) -> str:
    """Return major and minor of a version; empty without one."""
    return ".".join(str(version).split(".")[:2]) if version else ""


def _add(cell: CellRun, kind: str, event: Any) -> None:
    match kind:
        case "test":
            _add_test(cell, event)
        case "collected":
            tests = event["tests"].items()
            cell.without_result = [f"{file}::{name}" if name else file for file, names in tests for name in names]
        case "link":
            _add_link(cell, event)
        case "violation":
            cell.violations.append(event)
        case "verdict":
            cell.verdicts.append(event)
        case "crash":
            cell.crashes.append(event)
        case "end":
            _end(cell, event)
        case _:
            pass  # an event of a later version


def _add_test(cell: CellRun, event: TestRecord) -> None:
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


def _add_link(cell: CellRun, event: LinkRecord) -> None:
    for key in backend_keys(event.get("backend", "unknown"), failed=event.get("result", "ok") != "ok"):
        cell.links[key] = cell.links.get(key, 0) + 1


def _end(cell: CellRun, event: EndRecord) -> None:
    cell.finished = True
    cell.exitstatus, cell.duration = event.get("exitstatus"), float(event.get("duration", 0.0))
    cell.problems += event.get("failing", [])


def _add_crashed(cell: CellRun, started: Iterable[bytes]) -> None:
    """Add the tests that began and have no result, because the run did not finish: their process died."""
    known = {crash.get("nodeid"): crash for crash in cell.crashes}
    for line in started:
        try:
            test = json.loads(line)["nodeid"]
        except (ValueError, KeyError):
            cell.truncated = True
            continue
        if test not in cell.outcomes:
            cell.outcomes[test] = LETTERS["crashed"]
            crash = known.get(test)
            by = f", by {crash['signal']}" if crash is not None and crash.get("signal") else ""
            cell.details[test] = Detail(f"the process ended while this test ran{by}", _story(crash or {}))
            if crash is None:
                cell.crashes.append(_unknown(test))
    if not cell.crashes and not cell.truncated:  # pytest writes an end even where it fails
        cell.crashes.append(_unknown(None))


def _unknown(test: str | None) -> CrashRecord:
    return {"nodeid": test, "worker": None, "signal": None, "exitcode": None, "last_events": []}


def _story(crash: Mapping[str, Any]) -> str:
    """Return what is known about the end of a process, in lines."""
    lines = [f"ended by {ended_by(crash)}"]
    for title, name in (("last calls of the driver:", "last_events"), ("frames:", "frames")):
        if found := crash.get(name):
            lines += [title, *(f"  {line}" for line in found)]
    lines.append("Run with --cudalink-isolate or --cudalink-rerun-after-crash, so that a crash ends one test only.")
    return "\n".join(lines)[:_LONG]
