"""The record file: one JSON object per line, each written at once, so that a crash loses at most one line.

`events` describes every event. Nothing here imports pytest or CUDA.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeVar, Unpack, overload

from ..regular_files import identity
from . import events
from .events import OUTCOMES, SCHEMA

__all__ = [
    "OUTCOMES",
    "SCHEMA",
    "Collected",
    "Crash",
    "End",
    "Found",
    "Library",
    "Link",
    "RecordError",
    "Recording",
    "Run",
    "Start",
    "Sticky",
    "Test",
    "Unsteered",
    "Verdict",
    "Violation",
    "Writer",
    "format_fault",
    "parse",
    "read",
    "schema",
]


class RecordError(ValueError):
    """The file is not a record file, or its format is newer than this version reads."""


class Writer:
    """Appends events to a record file.

    Each event is one ``write`` to a descriptor opened with ``O_APPEND``, so that several processes, such as the workers
    of pytest-xdist, share one file without mixing lines.

    Parameters
    ----------
    path : path-like
        The file; created if it does not exist, with its folders.
    anew : bool, default False
        Empty a regular file first. A link stays a link, and a pipe or a terminal is left as it is.
    on_error : callable, optional
        Called with the error of an event that cannot be written, instead of raising it. The file is closed then, so
        that nothing follows half a line.

    Raises
    ------
    OSError
        If the file cannot be opened, or cannot be written and there is no `on_error`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        anew: bool = False,
        on_error: Callable[[OSError], None] | None = None,
    ) -> None:
        self.path = Path(path)
        self._on_error = on_error
        self.path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        flags |= os.O_TRUNC if anew else 0
        self._opened: list[int] = []
        # one call in C: an exception that comes as a call returns loses what it returned
        self._opened.extend(map(os.open, (self.path,), (flags,), (0o666,)))
        self._identity = identity(self._opened[0])
        self._descriptor: int | None = self._opened[0]

    @overload
    def write(self, event: Literal["run"], **content: Unpack[events.RunRecord]) -> None: ...
    @overload
    def write(self, event: Literal["found"], **content: Unpack[events.FoundRecord]) -> None: ...
    @overload
    def write(self, event: Literal["collected"], **content: Unpack[events.CollectedRecord]) -> None: ...
    @overload
    def write(self, event: Literal["start"], **content: Unpack[events.StartRecord]) -> None: ...
    @overload
    def write(self, event: Literal["link"], **content: Unpack[events.LinkRecord]) -> None: ...
    @overload
    def write(self, event: Literal["unsteered"], **content: Unpack[events.UnsteeredRecord]) -> None: ...
    @overload
    def write(self, event: Literal["library"], **content: Unpack[events.LibraryRecord]) -> None: ...
    @overload
    def write(self, event: Literal["violation"], *, nodeid: str | None, text: str, **details: object) -> None: ...
    @overload
    def write(self, event: Literal["verdict"], **content: Unpack[events.VerdictRecord]) -> None: ...
    @overload
    def write(self, event: Literal["test"], **content: Unpack[events.TestRecord]) -> None: ...
    @overload
    def write(self, event: Literal["crash"], **content: Unpack[events.CrashRecord]) -> None: ...
    @overload
    def write(self, event: Literal["sticky"], **content: Unpack[events.StickyRecord]) -> None: ...
    @overload
    def write(self, event: Literal["end"], **content: Unpack[events.EndRecord]) -> None: ...
    def write(self, event: str, **content: Any) -> None:
        """Append one event with the current time; values that JSON does not know are written as text.

        Does nothing after `close`.

        Parameters
        ----------
        event : str
            A name in `events.EVENTS`.
        **content
            The keys of the event.
        """
        if self._descriptor is None:
            return
        line = json.dumps({"event": event, "time": time.time(), **content}, ensure_ascii=True, default=str) + "\n"
        try:
            self._append(line.encode("ascii"))
        except OSError as error:
            if self._on_error is None:
                raise
            self.close()
            self._on_error(error)

    def _append(self, data: bytes) -> None:
        if not self._is_open():
            raise OSError(errno.EBADF, "the program has closed the file's descriptor", str(self.path))
        _write_all(self._opened[0], data)

    def close(self) -> None:
        """Close the file; may be called again."""
        if self._descriptor is None:
            return
        failure = None
        try:
            if self._is_open():
                os.close(self._descriptor)
        except OSError as error:  # some file systems find out only now that the disk is full
            failure = error
        self._descriptor = None  # not before: a signal in between would leave it open
        if failure is not None:
            if self._on_error is None:
                raise failure
            self._on_error(failure)

    def _is_open(self) -> bool:
        """Whether the descriptor is still that of the file, and no other file of the program has its number."""
        found = identity(self._opened[0])
        return found is not None and found == self.__dict__.get("_identity", found)

    def __del__(self) -> None:
        opened = self.__dict__.get("_opened")
        if opened and self.__dict__.setdefault("_descriptor", opened[0]) is not None:
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _write_all(descriptor: int, data: bytes) -> None:
    """Write all of the data; a disk that is nearly full takes a part at a time."""
    rest = memoryview(data)
    while rest:
        written = os.write(descriptor, rest)
        if written == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rest = rest[written:]


# Each class has the keys of its event in `events` as attributes. A key that a file lacks has the default here.


@dataclass(frozen=True)
class Run:
    """The environment of a run."""

    time: float = 0.0
    schema: int = SCHEMA
    run: str = ""
    cell: str | None = None
    worker: str | None = None
    python: str = ""
    platform: str = ""
    pytest: str = ""
    argv: list[str] = field(default_factory=list)
    settings: dict[str, events.SettingRecord] = field(default_factory=dict)
    versions: dict[str, events.VersionRecord] = field(default_factory=dict)
    arch: events.ArchRecord = field(default_factory=lambda: events.ArchRecord(requested=None, found=None))
    facts: dict[str, Any] = field(default_factory=dict)
    axes: dict[str, str] = field(default_factory=dict)
    hidden: str = ""
    origin: events.OriginRecord = field(
        default_factory=lambda: events.OriginRecord(project=None, commit=None, branch=None, ci_url=None, dirty=None)
    )


@dataclass(frozen=True)
class Found:
    """What a process has since a driver was emulated for markers, after `Run` was written."""

    time: float = 0.0
    worker: str | None = None
    versions: dict[str, events.VersionRecord] = field(default_factory=dict)
    arch: events.ArchRecord = field(default_factory=lambda: events.ArchRecord(requested=None, found=None))


@dataclass(frozen=True)
class Collected:
    """The tests that the run was going to run, by file."""

    time: float = 0.0
    tests: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Start:
    """The start of an attempt; without a `Test` of the same worker and attempt, the attempt was cut short."""

    time: float = 0.0
    nodeid: str = ""
    worker: str | None = None
    attempt: int = 1


@dataclass(frozen=True)
class Link:
    """One link, in or outside a test."""

    time: float = 0.0
    nodeid: str | None = None
    worker: str | None = None
    target: str = ""
    backend: str = ""
    inputs: list[events.InputRecord] = field(default_factory=list)
    versions: events.LinkVersionsRecord = field(
        default_factory=lambda: events.LinkVersionsRecord(driver=None, nvjitlink=None)
    )
    duration: float = 0.0
    result: str = "ok"
    message: str = ""


@dataclass(frozen=True)
class Unsteered:
    """One link that no target steers, in or outside a test."""

    time: float = 0.0
    nodeid: str | None = None
    worker: str | None = None
    via: str = ""
    call: str = ""
    where: str = ""
    backend: str = "unknown"
    result: str = "ok"
    forced: str | None = None


@dataclass(frozen=True)
class Library:
    """A CUDA library that a process of the run has loaded."""

    time: float = 0.0
    nodeid: str | None = None
    worker: str | None = None
    during: str = ""
    name: str = ""
    soname: str = ""
    path: str = ""
    real_path: str = ""
    place: str = ""
    owner: str = ""
    version: str = ""
    witness: str = ""
    for_whom: str = ""


@dataclass(frozen=True)
class Violation:
    """A broken lifetime rule; `details` has the keys that the emulated driver added."""

    time: float = 0.0
    nodeid: str | None = None
    text: str = ""
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """A verdict of the guard rails."""

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
    """The result of one attempt of a test."""

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
    documented: events.DocumentedRecord | None = None
    missing: str | None = None
    subtests: list[events.SubtestRecord] = field(default_factory=list)
    refused: list[events.RefusedRecord] = field(default_factory=list)
    unsteered: int = 0
    cause: events.CauseRecord | None = None


@dataclass(frozen=True)
class Crash:
    """The death of a process."""

    time: float = 0.0
    nodeid: str | None = None
    worker: str | None = None
    signal: str | None = None
    exitcode: int | None = None
    last_events: list[str] = field(default_factory=list)
    frames: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Sticky:
    """A test that left the contexts of its process unusable."""

    time: float = 0.0
    nodeid: str = ""
    worker: str | None = None
    code: int = 0
    error: str = ""
    after: int = 0


@dataclass(frozen=True)
class End:
    """The end of a run; absent after a crash."""

    time: float = 0.0
    exitstatus: int = 0
    duration: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    failing: list[str] = field(default_factory=list)
    unlinked_modules: int = 0


@dataclass
class Recording:
    """The content of one record file.

    Attributes
    ----------
    run : Run or None
        The last run in the file, when several were appended; None when the file was cut in its first line.
    found : Found or None
        None when no driver was emulated for markers; with several workers, that of the last one.
    collected : Collected or None
        None when the run did not finish collecting.
    starts : list of Start
    tests : list of Test
    links : list of Link
    unsteered : list of Unsteered
    libraries : list of Library
    violations : list of Violation
    verdicts : list of Verdict
    crashes : list of Crash
    sticky : list of Sticky
    end : End or None
        None when the run did not finish.
    truncated : bool
        Whether the last line was cut.
    """

    run: Run | None = None
    found: Found | None = None
    collected: Collected | None = None
    starts: list[Start] = field(default_factory=list)
    tests: list[Test] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    unsteered: list[Unsteered] = field(default_factory=list)
    libraries: list[Library] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    crashes: list[Crash] = field(default_factory=list)
    sticky: list[Sticky] = field(default_factory=list)
    end: End | None = None
    truncated: bool = False

    @property
    def unfinished(self) -> list[Start]:
        """Attempts that began and have no result, because of a crash or an interruption."""
        done = {(test.nodeid, test.worker, test.attempt) for test in self.tests}
        return [start for start in self.starts if (start.nodeid, start.worker, start.attempt) not in done]


_Event = TypeVar(
    "_Event",
    Run,
    Found,
    Collected,
    Start,
    Link,
    Unsteered,
    Library,
    Violation,
    Verdict,
    Test,
    Crash,
    Sticky,
    End,
)


def _known(kind: type[_Event], content: Mapping[str, Any]) -> _Event:
    """Return an event with the keys that its class has."""
    return kind(**{entry.name: content[entry.name] for entry in fields(kind) if entry.name in content})


def parse(lines: Iterable[bytes]) -> Recording:
    """Return the content of the lines of a record file.

    A reader ignores events and keys that it does not know, so that a later version can add some. Where several runs
    were appended to one file, the last counts.

    Raises
    ------
    RecordError
        If a line other than the last is not an event, or the format is newer than `SCHEMA`; names the line.
    """
    found = Recording()
    broken: int | None = None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if broken is not None:
            msg = f"line {broken} is not an event"
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
    """Return the event of a line; None if the line is not an event."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if isinstance(content, dict) and isinstance(content.get("event"), str):
        return content
    return None


def _run(content: Mapping[str, Any], number: int) -> Run:
    run = _known(Run, content)
    if fault := format_fault(run.schema):
        msg = f"line {number} {fault}"
        raise RecordError(msg)
    return run


def format_fault(version: object) -> str:
    """Return why records of a format are not read, and what to do; empty if they are."""
    if type(version) is int and 1 <= version <= SCHEMA:
        return ""
    from .checks import described  # a run that only writes records does without the checks

    known = f"this version reads formats up to {SCHEMA}"
    return f"has format {described(version)}; {known}; install a newer pytest-cudalink"


#: The events of which a run has one at most, and those of which it has several with the list of each.
_SINGLE: Final[Mapping[str, Any]] = {"found": Found, "collected": Collected, "end": End}
_SEVERAL: Final[Mapping[str, tuple[Any, str]]] = {
    "start": (Start, "starts"),
    "test": (Test, "tests"),
    "link": (Link, "links"),
    "unsteered": (Unsteered, "unsteered"),
    "library": (Library, "libraries"),
    "verdict": (Verdict, "verdicts"),
    "crash": (Crash, "crashes"),
    "sticky": (Sticky, "sticky"),
}


def _add(found: Recording, content: Mapping[str, Any]) -> None:
    """Add an event to the content of a file; one of a later version is ignored."""
    kind = content["event"]
    if kind in _SINGLE:
        setattr(found, kind, _known(_SINGLE[kind], content))
    elif kind in _SEVERAL:
        known, name = _SEVERAL[kind]
        getattr(found, name).append(_known(known, content))
    elif kind == "violation":
        own = {"event", "time", *events.ViolationRecord.__annotations__}
        details = {key: value for key, value in content.items() if key not in own}
        found.violations.append(_known(Violation, {**content, "details": details}))


def read(path: str | os.PathLike[str]) -> Recording:
    """Return the content of a record file; a file that a crash cut is read as far as it goes.

    Raises
    ------
    RecordError
        If the file is not a record file, or its format is newer; names the file and the line.
    OSError
        If the file cannot be read.
    """
    try:
        with Path(path).open("rb") as file:
            found = parse(file)
    except RecordError as error:
        msg = f"{os.fspath(path)}: {error}"
        raise RecordError(msg) from error
    if found.run is None and not found.truncated and (found.starts or found.tests or found.links):
        msg = f"{os.fspath(path)}: no event 'run' before the others; expected a file that --cudalink-report wrote"
        raise RecordError(msg)
    return found


def schema() -> dict[str, Any]:
    """Return the JSON schema of one line (draft 2020-12), as published in ``matrices/records.schema.json``."""
    from .schema import schema as made

    return made()
