"""The record file: one JSON object per line, each written at once, so that a crash loses at most one line.

`matrices/records.schema.json` describes every event. Nothing here imports pytest or CUDA.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Self, TypeVar

__all__ = [
    "OUTCOMES",
    "SCHEMA",
    "Crash",
    "End",
    "Link",
    "RecordError",
    "Recording",
    "Run",
    "Start",
    "Test",
    "Verdict",
    "Violation",
    "Writer",
    "parse",
    "read",
    "schema",
]

#: Version of the format, in every ``run`` event. A reader refuses a newer one.
SCHEMA: Final = 1

#: What a test can come to; ``crashed`` means that its process died.
OUTCOMES: Final = ("passed", "failed", "error", "skipped", "xfailed", "xpassed", "rerun", "crashed")


class RecordError(ValueError):
    """A file that is no record file, or one of a newer format."""


class Writer:
    """Appends events to a file.

    Each event is one ``write`` to a descriptor opened with ``O_APPEND``, so that several processes, such as the workers
    of pytest-xdist, share one file without mixing lines.

    Parameters
    ----------
    path : path-like
        Made when it is not there, with its folders.
    anew : bool, default False
        Empty the file first, if it is one: a link stays a link, and a pipe or a terminal is left as it is.

    Raises
    ------
    OSError
        If the file cannot be opened or written.
    """

    def __init__(self, path: str | os.PathLike[str], *, anew: bool = False) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        self._descriptor: int | None = os.open(self.path, flags | (os.O_TRUNC if anew else 0), 0o666)

    def write(self, event: str, **fields: Any) -> None:
        """Append one event with the time of now; values that JSON does not have are written as text.

        Does nothing once closed.
        """
        if self._descriptor is None:
            return
        line = json.dumps({"event": event, "time": time.time(), **fields}, ensure_ascii=True, default=str) + "\n"
        os.write(self._descriptor, line.encode("ascii"))

    def close(self) -> None:
        """Close the file; may be called again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class Run:
    """The environment of a run.

    Attributes
    ----------
    run : str
        A name for this run that no other has (uuid4, hexadecimal).
    cell : str or None
        The cell of the matrix that it ran in, from ``CUDALINK_CELL``.
    settings : dict
        ``{name: {"value": …, "source": …}}``.
    versions : dict
        ``{name: {"requested": …, "found": …, "source": where it was read, "kind": …}}``; ``kind`` is ``"real"``,
        ``"emulated"``, ``"faked"`` or ``"absent"``.
    arch : dict
        ``{"requested": …, "found": …}``.
    facts : dict
        What hooks added.
    """

    time: float = 0.0
    schema: int = SCHEMA
    run: str = ""
    cell: str | None = None
    worker: str | None = None
    python: str = ""
    platform: str = ""
    pytest: str = ""
    argv: list[str] = field(default_factory=list)
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    versions: dict[str, dict[str, Any]] = field(default_factory=dict)
    arch: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Start:
    """A test began; without a `Test` of the same worker and attempt its process died or the run was interrupted.

    Attributes
    ----------
    attempt : int
        Counted from 1 in each worker: what a crash cut is repeated in another one.
    """

    time: float = 0.0
    nodeid: str = ""
    worker: str | None = None
    attempt: int = 1


@dataclass(frozen=True)
class Link:
    """One link.

    Attributes
    ----------
    nodeid : str or None
        The test; None outside tests.
    inputs : list of dict
        ``{"kind": …, "name": …, "producer": …}``.
    versions : dict
        ``{"driver": …, "nvjitlink": …}`` as the linker saw them.
    duration : float
        Seconds.
    result : str
        ``"ok"``, or the error's type and code name.
    """

    time: float = 0.0
    nodeid: str | None = None
    worker: str | None = None
    target: str = ""
    backend: str = ""
    inputs: list[dict[str, Any]] = field(default_factory=list)
    versions: dict[str, Any] = field(default_factory=dict)
    duration: float = 0.0
    result: str = "ok"
    message: str = ""


@dataclass(frozen=True)
class Violation:
    """A broken lifetime rule, as the emulated driver saw it; its other fields are in `details`."""

    time: float = 0.0
    nodeid: str | None = None
    text: str = ""
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """What the guard rails said of an item.

    Attributes
    ----------
    status : str
        ``"compatible"``, ``"incompatible"`` or ``"insufficient_metadata"``.
    """

    time: float = 0.0
    nodeid: str | None = None
    status: str = ""
    rule: str = ""
    message: str = ""
    fix: str = ""
    otherwise: str = ""
    items: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Test:
    """What one attempt of a test came to.

    Attributes
    ----------
    attempt : int
        That of its `Start`.
    outcome : str
        One of `OUTCOMES`.
    duration : float
        Seconds of set-up, call and tear-down together.
    reason : str
        Of a skip or an expected failure, or the first line of a failure.
    longrepr : str
        At most 4,000 characters, on failure.
    backends : dict
        Number of links by backend.
    documented : dict or None
        ``{"requirement": …, "raises": …}`` where a documented failure was asserted.
    missing : str or None
        The unmet requirement that a skip of ours is about, such as ``"driver >= 13.2"``.
    subtests : list of dict
        ``{"description": …, "outcome": …}``.
    """

    __test__ = False  # pytest: not a test class

    time: float = 0.0
    nodeid: str = ""
    worker: str | None = None
    attempt: int = 1
    outcome: str = ""
    duration: float = 0.0
    reason: str = ""
    longrepr: str = ""
    backends: dict[str, int] = field(default_factory=dict)
    links: int = 0
    violations: int = 0
    documented: dict[str, str] | None = None
    missing: str | None = None
    subtests: list[dict[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Crash:
    """A process died.

    Attributes
    ----------
    signal : str or None
        Such as ``"SIGSEGV"``; None when it exited or when it is not known.
    exitcode : int or None
    last_events : list of str
        The last calls before the end.
    """

    time: float = 0.0
    nodeid: str | None = None
    worker: str | None = None
    signal: str | None = None
    exitcode: int | None = None
    last_events: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class End:
    """The run came to its end."""

    time: float = 0.0
    exitstatus: int = 0
    duration: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)


@dataclass
class Recording:
    """Everything that one file says.

    Attributes
    ----------
    run : Run or None
        The last run in the file, when several were appended; None when the file was cut before its first line.
    end : End or None
        None when the run did not come to its end.
    truncated : bool
        Whether the last line was cut.
    """

    run: Run | None = None
    starts: list[Start] = field(default_factory=list)
    tests: list[Test] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    crashes: list[Crash] = field(default_factory=list)
    end: End | None = None
    truncated: bool = False

    @property
    def unfinished(self) -> list[Start]:
        """Attempts that began and came to nothing: what a crash or an interruption cut."""
        done = {(test.nodeid, test.worker, test.attempt) for test in self.tests}
        return [start for start in self.starts if (start.nodeid, start.worker, start.attempt) not in done]


_Event = TypeVar("_Event", Run, Start, Link, Violation, Verdict, Test, Crash, End)


def _known(kind: type[_Event], content: Mapping[str, Any]) -> _Event:
    """An event with the keys that it knows."""
    return kind(**{entry.name: content[entry.name] for entry in fields(kind) if entry.name in content})


def parse(lines: Iterable[bytes]) -> Recording:
    """Read the lines of a record file.

    A reader ignores events and keys that it does not know, so that a later version can add some. Where several runs
    were appended to one file, the last counts.

    Raises
    ------
    RecordError
        If a line other than the last is no event, or the format is newer than `SCHEMA`; names the line.
    """
    found = Recording()
    broken: int | None = None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if broken is not None:
            msg = f"line {broken} is no event"
            raise RecordError(msg)
        content = _event(line)
        if content is None:
            broken = number
            continue
        if content["event"] == "run":
            found = Recording(run=_run(content, number))
        else:
            _add(found, content)
    found.truncated = broken is not None
    return found


def _event(line: bytes) -> dict[str, Any] | None:
    """One line's event; None when it is none."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if isinstance(content, dict) and isinstance(content.get("event"), str):
        return content
    return None


def _run(content: Mapping[str, Any], number: int) -> Run:
    run = _known(Run, content)
    if type(run.schema) is not int or not 1 <= run.schema <= SCHEMA:
        msg = (
            f"line {number} is of format {run.schema!r}, this version reads up to {SCHEMA}; install a newer "
            "pytest-cudalink"
        )
        raise RecordError(msg)
    return run


def _add(found: Recording, content: Mapping[str, Any]) -> None:
    match content["event"]:
        case "start":
            found.starts.append(_known(Start, content))
        case "test":
            found.tests.append(_known(Test, content))
        case "link":
            found.links.append(_known(Link, content))
        case "violation":
            known = {"event", "time", "nodeid", "text"}
            details = {key: value for key, value in content.items() if key not in known}
            found.violations.append(_known(Violation, {**content, "details": details}))
        case "verdict":
            found.verdicts.append(_known(Verdict, content))
        case "crash":
            found.crashes.append(_known(Crash, content))
        case "end":
            found.end = _known(End, content)
        case _:
            pass  # of a later version


def read(path: str | os.PathLike[str]) -> Recording:
    """Read a record file, also one that a crash cut.

    Raises
    ------
    RecordError
        If it is no record file, or of a newer format; names the file and the line.
    OSError
        If it cannot be read.
    """
    try:
        with Path(path).open("rb") as file:
            found = parse(file)
    except RecordError as error:
        msg = f"{os.fspath(path)}: {error}"
        raise RecordError(msg) from error
    if found.run is None and not found.truncated and (found.starts or found.tests or found.links):
        msg = f"{os.fspath(path)}: there is no event 'run' before the others"
        raise RecordError(msg)
    return found


def schema() -> dict[str, Any]:
    """The JSON schema of one line (draft 2020-12), as published in ``matrices/records.schema.json``."""
    from ..tables import matrices_dir

    content: dict[str, Any] = json.loads((matrices_dir() / "records.schema.json").read_text(encoding="utf-8"))
    return content
