"""The record file: one JSON object per line, each written at once, so that a crash loses at most one line.

The classes here are the only description of the format: `Writer.write` takes them, `decode` returns them, and the JSON
schema and the tables of the documentation come from them. Each line also has ``event``, a name in `EVENTS`.
Nothing here imports pytest or CUDA.

``python -m pytest_cudalink.report.records > matrices/records.schema.json`` writes the published schema.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, NotRequired, Self, TypedDict, Union, get_args

import msgspec
from msgspec import Meta, Struct

from ..base.regular_files import identity, open_regular

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

#: Version of the format, in every event "run". Readers refuse a newer one.
SCHEMA: Final = 1

_BACKENDS: Final = ("driver", "nvjitlink")
_Outcome = Literal["passed", "failed", "error", "skipped", "xfailed", "xpassed", "rerun", "crashed", "unsupported"]
#: Possible outcomes of a test; ``crashed`` means that its process died, ``unsupported`` that it was skipped because an
#: emulated driver refused a call.
OUTCOMES: Final[tuple[str, ...]] = get_args(_Outcome)

_EPOCH: Final = "seconds since the epoch"
_Time = Annotated[float, Meta(ge=0, lt=1e12, description=_EPOCH)]
Seconds = Annotated[float, Meta(ge=0, lt=1e12)]
Count = Annotated[int, Meta(ge=0, lt=2**53)]
ExitCode = Annotated[int, Meta(ge=-(2**31), lt=2**32)]
_Positive = Annotated[int, Meta(ge=1, lt=2**53)]
_Nodeid = Annotated[str, Meta(description="the test")]
_NodeidOrNone = Annotated[str | None, Meta(description="the test; null outside tests")]
_Worker = Annotated[str | None, Meta(description="the worker of pytest-xdist; null without one")]
_Result = Annotated[str, Meta(description="'ok', or the error's type and code name")]


def _is(description: str, *values: str | None) -> Meta:
    """Return the meaning of a value, and values that the schema lists; readers take any other, too."""
    return Meta(description=description or None, extra_json_schema={"enum": list(values)} if values else None)


class SettingRecord(TypedDict):
    """A setting of the run."""

    value: str
    source: Annotated[str, _is("where the value was set")]


class VersionRecord(TypedDict):
    """A version that the run asked for, and the one it found."""

    requested: str | None
    found: str | None
    source: Annotated[str, _is("where the version was read")]
    kind: Annotated[str, _is("", "real", "emulated", "faked", "absent")]
    resolved: NotRequired[Annotated[str, _is("what a word such as 'lowest' stood for when the cell was installed")]]


class ArchRecord(TypedDict):
    """The architecture that the run asked for, and that of its device."""

    requested: str | None
    found: str | None


class OriginRecord(TypedDict):
    """The origin of a run; null for what is not known. The time of the event is when the run began."""

    project: Annotated[str | None, _is("the project's name")]
    commit: Annotated[str | None, _is("the commit in full")]
    branch: str | None
    ci_url: Annotated[str | None, _is("the page of the CI run, without credentials")]
    dirty: Annotated[bool | None, _is("whether the checkout had changes that the commit has not")]


class InputRecord(TypedDict):
    """An input of a link."""

    kind: Annotated[str, _is("such as 'ptx'")]
    name: str
    producer: Annotated[str | None, _is("CUDA version that made it")]


class LinkVersionsRecord(TypedDict):
    """The CUDA versions that a linker saw."""

    driver: str | None
    nvjitlink: str | None


class DocumentedRecord(TypedDict):
    """A documented failure that was asserted."""

    requirement: Annotated[str, _is("the requirement that is not met")]
    raises: Annotated[str, _is("the error that was expected")]


class RefusedRecord(TypedDict):
    """A call that the emulated driver refused, because it does not emulate the function."""

    function: str
    note: Annotated[str, _is("what the driver says about it")]


class CauseRecord(TypedDict):
    """The finding why a test failed; `wording.explanation` shows it."""

    kind: Annotated[
        Literal["skew", "not_emulated", "no_driver", "linker", "open_capture"],
        _is(
            "'skew' of versions or architectures; 'not_emulated': only a real driver does it; 'no_driver': "
            "there is none; 'linker': the emulated driver's link process ended or cannot be started; 'open_capture': "
            "an earlier test left a stream that captures, or a call invalidated the capture"
        ),
    ]
    what: Annotated[str, _is("one line: the error, the call and the artifact that it refused")]
    why: Annotated[str, _is("one line: the rule, with the versions")]
    suggestion: NotRequired[Annotated[list[str], _is("the changes that help, one line each, the smallest first")]]
    fix: NotRequired[Annotated[list[str], _is("`suggestion`, as earlier versions wrote it")]]


class OperationRecord(TypedDict):
    """An operation that a test queued under a schedule; its times are numbers of the driver's calls."""

    number: int
    function: Annotated[str, _is("the function that queued it")]
    stream: str
    place: Annotated[str, _is("file and line of the code that called it")]
    late: Annotated[bool, _is("whether the schedule displaced it")]
    queued: int
    ready: Annotated[int, _is("when it could run")]
    done: Annotated[int | None, _is("null if it was not done when the test ended")]


class SubtestRecord(TypedDict):
    """A subtest."""

    description: str
    outcome: str


class Event(Struct, tag_field="event", tag=lambda name: name.removesuffix("Record").lower(), kw_only=True, frozen=True):
    """One line, of one of the classes below. A key that a line lacks has the default there."""

    time: _Time = 0.0


class RunRecord(Event, kw_only=True, frozen=True):
    """The environment of a run."""

    schema: Annotated[Literal[1], _is("version of the format")] = SCHEMA
    run: Annotated[str, _is("a unique name of the run (uuid4, hexadecimal)")] = ""
    cell: Annotated[str | None, _is("the cell of the matrix, from CUDALINK_CELL")] = None
    worker: _Worker = None
    python: Annotated[str, _is("version of Python")] = ""
    platform: Annotated[str, _is("system and machine, such as 'linux-x86_64'")] = ""
    pytest: Annotated[str, _is("version of pytest")] = ""
    argv: Annotated[list[str], _is("pytest's command line")] = []
    settings: Annotated[dict[str, SettingRecord], _is("by name")] = {}
    versions: Annotated[dict[str, VersionRecord], _is("by name, such as 'driver'")] = {}
    arch: ArchRecord = msgspec.field(default_factory=lambda: ArchRecord(requested=None, found=None))
    facts: Annotated[dict[str, Any], _is("what hooks added")] = {}
    axes: Annotated[
        dict[str, str], _is("what else distinguishes the cell: its kind, resolution, packages as they were found")
    ] = {}
    hidden: Annotated[str, _is("what the cell hides, how, and what can still be opened")] = ""
    origin: Annotated[OriginRecord | None, _is("the project, its commit, and the CI run")] = None


class FoundRecord(Event, kw_only=True, frozen=True):
    """What a process has since a driver was emulated for markers, after ``run`` was written."""

    worker: _Worker = None
    versions: Annotated[dict[str, VersionRecord], _is("by name, such as 'driver'")] = {}
    arch: ArchRecord = msgspec.field(default_factory=lambda: ArchRecord(requested=None, found=None))


class CollectedRecord(Event, kw_only=True, frozen=True):
    """The tests that the run was going to run; one without a test event was not run, or lost in a crash."""

    tests: Annotated[dict[str, list[str]], _is("by file: the rest of each node ID")] = {}

    @property
    def nodeids(self) -> list[str]:
        """The node IDs of the tests."""
        return [f"{file}::{name}" if name else file for file, names in self.tests.items() for name in names]


class StartRecord(Event, kw_only=True, frozen=True):
    """The start of an attempt; without a test event of the same worker and attempt, the attempt was cut short."""

    nodeid: _Nodeid
    worker: _Worker = None
    attempt: Annotated[_Positive, _is("counted from 1 in each worker")] = 1


class LinkRecord(Event, kw_only=True, frozen=True):
    """One link, in or outside a test."""

    nodeid: _NodeidOrNone = None
    worker: _Worker = None
    target: Annotated[str, _is("the library that linked")] = ""
    backend: Annotated[str, _is("'unknown' when the link was refused before one was chosen", *_BACKENDS, "unknown")] = (
        "unknown"
    )
    inputs: list[InputRecord] = []
    versions: LinkVersionsRecord = msgspec.field(
        default_factory=lambda: LinkVersionsRecord(driver=None, nvjitlink=None)
    )
    duration: Annotated[Seconds, _is("seconds from making the linker to the image")] = 0.0
    result: _Result = "ok"
    message: Annotated[str, _is("the error's text")] = ""


class UnsteeredRecord(Event, kw_only=True, frozen=True):
    """One link that no target steers, in or outside a test."""

    nodeid: _NodeidOrNone = None
    worker: _Worker = None
    via: Annotated[str, _is("the module or library that linked, such as 'cuda.bindings.nvjitlink'")] = ""
    call: Annotated[str, _is("the function that completed the link, such as 'nvJitLinkComplete'")] = ""
    where: Annotated[str, _is("file and line of the code that called it; empty where unknown")] = ""
    backend: Annotated[str, _is("'unknown' where it cannot be seen", *_BACKENDS, "unknown")] = "unknown"
    result: _Result = "ok"
    forced: Annotated[str | None, _is("the backend that was forced; null without one", *_BACKENDS, None)] = None


class LibraryRecord(Event, kw_only=True, frozen=True):
    """A CUDA library that a process of the run has loaded, in or outside a test."""

    nodeid: _NodeidOrNone = None
    worker: _Worker = None
    during: Annotated[str, _is("the phase of the test; outside tests, what the run did")] = ""
    name: Annotated[str, _is("such as 'libcudart'")] = ""
    soname: str = ""
    path: Annotated[str, _is("as it was opened, or as the loader found it")] = ""
    real_path: Annotated[str, _is("the file itself, with every symbolic link followed")] = ""
    place: Annotated[
        str,
        _is(
            "'toolchains' is the plugin's cache; 'system' is everything else",
            *("wheels", "conda", "system", "driver", "emulated", "toolchains"),
        ),
    ] = "system"
    owner: Annotated[str, _is("the distribution that owns the file, with its version; empty without one")] = ""
    version: Annotated[str, _is("the CUDA release, or the version of a driver; empty where it is not known")] = ""
    witness: Annotated[str, _is("where the version was read, or why it is not known")] = ""
    for_whom: Annotated[str, _is("what is linked with it, and what opened that; empty where it is not known")] = ""


class ViolationRecord(Event, kw_only=True, frozen=True):
    """A broken rule of lifetimes, of order or of nvJitLink's contract."""

    nodeid: _NodeidOrNone = None
    text: Annotated[str, _is("the violation in words")] = ""
    check: Annotated[str, _is("the check that noticed it")] = ""
    number: Annotated[Count, _is("number among those of its check and process, from 1")] = 0
    handle: Annotated[Count, _is("number of the linker's handle in the order of creation, from 1")] = 0
    rule: Annotated[str, _is("the rule, or the option of cuLinkCreate whose memory must live")] = ""
    what: Annotated[str, _is("how the rule was broken")] = ""
    call: Annotated[str, _is("the function at whose entry it was noticed")] = ""
    native_stack: Annotated[list[str], _is("the native code that called it, innermost first")] = []
    python_stack: Annotated[list[str], _is("the Python code that called it, outermost first")] = []
    history: Annotated[list[str], _is("what was done to the handle before, in lines")] = []
    advice: Annotated[str, _is("the rule in a sentence; empty where the text has it")] = ""
    fix: Annotated[str, _is("what to change in the program; empty where the text says it")] = ""
    process: Annotated[str, _is("the process in words; empty for that of the record")] = ""
    test: Annotated[str, _is("the test that started that process; empty for none")] = ""
    allowed: Annotated[bool, _is("whether it fails nothing, as with --cudalink-checks=lifetimes=report")] = False


class VerdictRecord(Event, kw_only=True, frozen=True):
    """A verdict of the guard rails."""

    nodeid: _NodeidOrNone = None
    severity: Annotated[str, _is("'note' if the rule holds", "error", "unknown", "warning", "note")] = "unknown"
    kind: Annotated[str, _is("the rule that decided")] = ""
    what: str = ""
    why: Annotated[str, _is("what several verdicts have in common, such as that there is no driver")] = ""
    fix: Annotated[str, _is("what to do")] = ""
    otherwise: Annotated[str, _is("what else would help")] = ""
    evidence: Annotated[list[str], _is("the items that were compared")] = []


class TestRecord(Event, kw_only=True, frozen=True):
    """The result of one attempt of a test."""

    __test__: ClassVar[bool] = False  # pytest: not a test class

    nodeid: _Nodeid
    worker: _Worker = None
    attempt: Annotated[_Positive, _is("that of the start event")] = 1
    outcome: _Outcome
    duration: Annotated[Seconds, _is("seconds of set-up, call and tear-down together")] = 0.0
    reason: Annotated[
        str, _is("of a skip or an expected failure, the first line of a failure, or a remark on a bare step")
    ] = ""
    longrepr: Annotated[
        str, Meta(description="the failure in full, up to 4,000 characters", extra_json_schema={"maxLength": 4000})
    ] = ""
    backends: Annotated[dict[str, _Positive], _is("number of links by backend")] = {}
    links: Annotated[Count, _is("number of links")] = 0
    violations: Annotated[Count, _is("number of violations of lifetimes, of order and of nvJitLink's contract")] = 0
    documented: Annotated[DocumentedRecord | None, _is("the documented failure that was asserted")] = None
    missing: Annotated[str | None, _is("the requirement that a skip is about, such as 'driver >= 13.2'")] = None
    subtests: list[SubtestRecord] = []
    refused: Annotated[list[RefusedRecord], _is("refused calls, of a test that failed because of them")] = []
    unsteered: Annotated[Count, _is("number of links that no target steers")] = 0
    cause: Annotated[CauseRecord | None, _is("why the test failed; null where no such cause is known")] = None


class CrashRecord(Event, kw_only=True, frozen=True):
    """The death of a process."""

    nodeid: _NodeidOrNone = None
    worker: _Worker = None
    signal: Annotated[str | None, _is("such as 'SIGSEGV'; null when the process exited, or when it is not known")] = (
        None
    )
    exitcode: ExitCode | None = None
    last_events: Annotated[list[str], _is("the driver's last calls")] = []
    frames: Annotated[list[str], _is("what faulthandler wrote, with the Python frames, innermost first")] = []


class StickyRecord(Event, kw_only=True, frozen=True):
    """A test that left the contexts of its process with an unrecoverable error, or with work that never finishes."""

    nodeid: _Nodeid
    worker: _Worker = None
    code: Annotated[ExitCode, _is("the CUresult; -1 for work that never finishes")] = 0
    error: Annotated[str, _is("its name and code, or 'work that does not end'")] = ""
    after: Annotated[Count, _is("number of tests that ran in a fresh process because of it")] = 0


class FindingRecord(Event, kw_only=True, frozen=True):
    """What is wrong with a test that passes: when a call fails (a fault sweep), or under a schedule."""

    nodeid: _NodeidOrNone = None
    category: Annotated[str, _is("", "fault", "schedule")] = ""
    kind: Annotated[str, _is("such as 'leak' or 'crash'")] = ""
    what: Annotated[str, _is("the finding, as pytest's summary has it")] = ""
    evidence: Annotated[list[str], _is("lines that show it, such as what was late")] = []
    repeat: Annotated[str, _is("the command that finds it again")] = ""
    operations: Annotated[
        list[OperationRecord], _is("what was queued around what a schedule displaced, in this order")
    ] = []


class AskedRecord(Event, kw_only=True, frozen=True):
    """One thing that the run was asked for, and how often it happened of how often it was due."""

    what: Annotated[
        str,
        _is(
            "'calls' are the runs of a fault sweep, 'delays' those under schedules",
            *("driver", "links", "faults", "isolation", "fault sweep", "calls", "resume", "baseline", "schedules"),
            *("delays", "workers", "checks"),
        ),
    ] = ""
    due: Count = 0
    happened: Count = 0
    left: Annotated[dict[str, Count], _is("what did not happen, by the reason; the run fails for it")] = {}
    allowed: Annotated[dict[str, Count], _is("what did not happen and need not, by what allows that")] = {}


class EndRecord(Event, kw_only=True, frozen=True):
    """The end of a run; absent after a crash."""

    exitstatus: Annotated[ExitCode | None, _is("pytest's exit status; null where it is not known")] = None
    duration: Annotated[Seconds, _is("seconds of the whole run")] = 0.0
    counts: Annotated[dict[str, Count] | None, _is("number of attempts by outcome; null where it is not known")] = None
    failing: Annotated[list[str], _is("why the run fails although no test shows it")] = []
    unlinked_modules: Annotated[
        Count, _is("at least so many modules that an emulated driver loaded were made by no link that was seen")
    ] = 0


class ExitRecord(Event, kw_only=True, frozen=True):
    """How the process of a run ended with an error that no other event explains, as the runner of its cell saw it."""

    exitcode: Annotated[ExitCode, _is("the exit code of the process; negative after a signal")]
    output: Annotated[list[str], _is("the last lines that it wrote")] = []


#: Each event by name, in the order in which a run first writes them.
EVENTS: Final[Mapping[str, type[Event]]] = {str(kind.__struct_config__.tag): kind for kind in Event.__subclasses__()}


_ANY_EVENT: Final[Any] = Union[tuple(EVENTS.values())]  # noqa: UP007 (of a list)


class RecordError(ValueError):
    """The file is not a record file, a value in it has another type, or its format is newer than this version reads."""


class Writer:
    """Appends events to a record file.

    Each event is one ``write`` to a descriptor opened with ``O_APPEND``, so that several processes, such as the workers
    of pytest-xdist, share one file without mixing lines.

    `path`: the file; created if it does not exist, with its folders.
    `truncate`: empty a regular file first. A link stays a link, and a pipe or a terminal is left as it is.
    `keeps`: asked before the file is emptied, with its path; if it returns True, the file keeps what it has.
    `on_error`: called with the error of an event that cannot be written, instead of raising it. The file is closed
    then, so that nothing follows half a line.
    Raises OSError if the file cannot be opened, or cannot be written and there is no `on_error`; BlockingIOError if a
    record is to begin in it, and another process, or another writer of this one, has begun one that it still writes.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        truncate: bool = False,
        keeps: Callable[[Path], bool] = lambda _path: False,
        on_error: Callable[[OSError], None] | None = None,
    ) -> None:
        self.path = Path(path)
        self._on_error = on_error
        self.path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._opened: list[int] = []
        # one call in C: an exception that comes as a call returns loses what it returned
        self._opened.extend(map(os.open, (self.path,), (flags,), (0o666,)))
        self._identity = identity(self._opened[0])
        self._descriptor: int | None = self._opened[0]
        self._locked = False
        if truncate and stat.S_ISREG(os.fstat(self._opened[0]).st_mode):
            try:
                self._lock()
                if not keeps(self.path):
                    os.ftruncate(self._opened[0], 0)
            except BaseException:
                self.close()
                raise

    def _lock(self) -> None:
        """Keep other runs from beginning a record in the file, until it is closed or this process ends."""
        if fcntl is None:
            return
        try:
            fcntl.flock(self._opened[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:  # a file system without locks
            return
        self._locked = True
        _locking.add(self)

    def _forget_lock(self) -> None:
        """Open the file once more, in a forked child, which would keep the lock when the run has ended."""
        self._locked = False
        if self._descriptor is not None and self._is_open():
            with suppress(OSError):
                again = os.open(f"/proc/self/fd/{self._opened[0]}", os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
                os.dup2(again, self._opened[0], inheritable=False)
                os.close(again)

    def drop_before(self, size: int) -> None:
        """Drop the first bytes of the file, which an earlier run wrote; nothing else may write to it meanwhile."""
        if self._descriptor is None or not self._is_open():
            return
        with open_regular(self.path) as file:
            file.seek(size)
            rest = file.read()
        os.ftruncate(self._opened[0], 0)
        self._append(rest)

    def write(self, event: Event) -> None:
        """Append one event with the current time; values that JSON does not know are written as text.

        Does nothing after `close`.
        """
        if self._descriptor is None:
            return
        content = {"event": event.__struct_config__.tag, **msgspec.structs.asdict(event), "time": time.time()}
        line = json.dumps(content, default=str) + "\n"
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
                if self.__dict__.get("_locked"):  # a child that was forked before may have the file open, too
                    fcntl.flock(self._descriptor, fcntl.LOCK_UN)
                    _locking.discard(self)
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
        there = identity(self._opened[0])
        return there is not None and there == self.__dict__.get("_identity", there)

    def __del__(self) -> None:
        opened = self.__dict__.get("_opened")
        if opened and self.__dict__.setdefault("_descriptor", opened[0]) is not None:
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


#: The writers that keep a file locked.
_locking: Final[weakref.WeakSet[Writer]] = weakref.WeakSet()


def _forget_locks() -> None:
    for writer in [*_locking]:
        writer._forget_lock()  # noqa: SLF001 (the class of this module)
    _locking.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)


def _write_all(descriptor: int, data: bytes) -> None:
    """Write all of the data; a disk that is nearly full takes a part at a time."""
    rest = memoryview(data)
    while rest:
        written = os.write(descriptor, rest)
        if written == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rest = rest[written:]


@dataclass
class Recording:
    """The content of one record file."""

    # the last run in the file, when several were appended; None when the file was cut in its first line
    run: RunRecord | None = None
    # None when no driver was emulated for markers; with several workers, that of the last one
    found: FoundRecord | None = None
    collected: CollectedRecord | None = None  # None when the run did not finish collecting
    starts: list[StartRecord] = field(default_factory=list)
    tests: list[TestRecord] = field(default_factory=list)
    links: list[LinkRecord] = field(default_factory=list)
    unsteered: list[UnsteeredRecord] = field(default_factory=list)
    libraries: list[LibraryRecord] = field(default_factory=list)
    violations: list[ViolationRecord] = field(default_factory=list)
    verdicts: list[VerdictRecord] = field(default_factory=list)
    crashes: list[CrashRecord] = field(default_factory=list)
    sticky: list[StickyRecord] = field(default_factory=list)
    findings: list[FindingRecord] = field(default_factory=list)
    asked: list[AskedRecord] = field(default_factory=list)
    end: EndRecord | None = None  # None when the run did not finish
    exit: ExitRecord | None = None  # None unless a runner saw an end that the other events do not explain
    truncated: bool = False  # whether the last line was cut

    @property
    def unfinished(self) -> list[StartRecord]:
        """Attempts that began and have no result, because of a crash or an interruption."""
        done = {(test.nodeid, test.worker, test.attempt) for test in self.tests}
        return [start for start in self.starts if (start.nodeid, start.worker, start.attempt) not in done]


#: The attributes of `Recording`, and of `cell_run.CellRun`, that have the events of which a run has several.
SEVERAL: Final[Mapping[type[Event], str]] = {
    globals()[str(events.type)[5:-1]]: events.name for events in fields(Recording) if events.default_factory is list
}
#: How the lines begin that say which tests a record has, and how its runs ended.
_RUNS_AND_TESTS: Final = tuple(
    f'{{"event": "{name}"'.encode() for name in ("run", "collected", "start", "test", "crash", "end", "exit")
)


#: What msgspec raises for a value that does not fit; ValueError: a lone surrogate is not a word of a Literal.
_MISFITS: Final = (msgspec.MsgspecError, ValueError, RecursionError)


@cache
def _decoder() -> msgspec.json.Decoder[Event]:
    """Return the reader of lines; a run, which only writes, does not wait for it."""
    return msgspec.json.Decoder(_ANY_EVENT)


def decode(line: bytes) -> tuple[Event | None, str]:
    """Return the event of a line, and why it is not read further; None and a sentence for an event of another version.

    A run of a format that this version does not read has `RunRecord.schema` 0, and a sentence.

    Raises RecordError if the line is not an event, or a value in it is missing or does not fit.
    """
    try:
        return _decoder().decode(line), ""
    except _MISFITS:  # also NaN and lone surrogates, which Python reads and writes
        pass
    try:
        content = json.loads(line)
        name = content["event"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RecordError("is not an event") from error
    if not isinstance(name, str) or name not in EVENTS:
        return None, f"event is {name!r:.60}, which is unknown; install a newer pytest-cudalink"
    version = content.get("schema", SCHEMA)
    if name == "run" and not (type(version) is int and version == SCHEMA):
        known = f"this version reads formats up to {SCHEMA}"
        cell = content.get("cell")
        run = RunRecord(schema=0, cell=cell if isinstance(cell, str) else None)  # type: ignore[arg-type]
        return run, f"run.schema is {version!r:.60}; {known}; install a newer pytest-cudalink"
    try:
        return msgspec.convert(content, _ANY_EVENT), ""
    except _MISFITS as error:
        raise RecordError(f"is not a valid event {name!r}: {error}") from error


def parse(lines: Iterable[bytes]) -> Recording:
    """Return the content of the lines of a record file.

    A reader ignores events and keys that it does not know, so that a later version can add some. Where several runs
    were appended to one file, the last counts.

    Raises RecordError if a line is not an event or has a value that does not fit, or the format is newer than `SCHEMA`;
    names the line. A last line without its end may be cut.
    """
    result = Recording()
    broken = ""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if broken:
            raise RecordError(broken)
        try:
            event, fault = decode(line)
        except RecordError as error:
            broken = f"line {number} {error}"
            if line.endswith(b"\n"):  # it is whole
                raise RecordError(broken) from error
            continue
        if event is None:
            continue
        if fault:
            raise RecordError(f"line {number}: {fault}")
        if isinstance(event, RunRecord):
            result = Recording(run=event)
        elif name := SEVERAL.get(type(event)):
            getattr(result, name).append(event)
        else:
            setattr(result, str(event.__struct_config__.tag), event)
    result.truncated = bool(broken)
    return result


def read(path: str | os.PathLike[str]) -> Recording:
    """Return the content of a record file; a file that a crash cut is read as far as it goes.

    Raises RecordError if the file is not a record file, or its format is newer; names the file and the line.
    Raises OSError if the file cannot be read.
    """
    try:
        with open_regular(path) as file:
            recording = parse(file)
    except RecordError as error:
        raise RecordError(f"{os.fspath(path)}: {error}") from error
    if recording.run is None and not recording.truncated and (recording.starts or recording.tests or recording.links):
        msg = f"{os.fspath(path)}: no event 'run' before the others; expected a file that --cudalink-report wrote"
        raise RecordError(msg)
    return recording


def tests_to_keep(path: str | os.PathLike[str], *, green: bool) -> set[str] | None:
    """Return the tests of a record that the next run must not replace unless it runs them; None if it may.

    A run that ended with exit code 0 may be replaced, and so may a file that is not a record.

    `green`: whether the tests of such a run are to be kept, too.
    """
    kept: set[str] = set()
    runs = good = 0
    with open_regular(path) as file:
        for line in file:
            if not line.startswith(_RUNS_AND_TESTS):
                continue
            try:  # not `decode`: to make its reader takes longer than to read a few hundred lines
                match json.loads(line):
                    case {"event": "end", "exitstatus": 0}:
                        good += 1
                    case {"event": "end", "exitstatus": int() | None}:
                        pass
                    case {"event": "crash" | "exit"}:
                        good -= 1
                    case {"event": "collected", "tests": tests}:
                        kept.update(CollectedRecord(tests=tests).nodeids)
                    case {"event": "start" | "test", "nodeid": str(nodeid)}:
                        kept.add(nodeid)
                    case _:  # a run, or a damaged line: what that said may have been red
                        runs += 1
            except (ValueError, TypeError, AttributeError, RecursionError):
                runs += 1
    return None if not runs or (good >= runs and not green) else kept


def schema() -> dict[str, Any]:
    """Return the JSON schema of one line (draft 2020-12), as published in ``matrices/records.schema.json``."""
    _, definitions = msgspec.json.schema_components(list(EVENTS.values()))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:pytest-cudalink:records:{SCHEMA}",
        "title": "One line of a record file of pytest-cudalink",
        "description": "A file has one JSON object per line. The first is a run. A key that a line lacks has its "
        "default. Readers ignore keys that they do not know, name events that they do not know, and read a file as "
        "far as it goes.",
        "type": "object",
        "required": ["event", "time"],
        "properties": {"event": {"type": "string"}},
        "allOf": [
            {"if": {"properties": {"event": {"const": name}}}, "then": {"$ref": f"#/$defs/{kind.__name__}"}}
            for name, kind in EVENTS.items()
        ],
        "$defs": definitions,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(schema(), indent=2) + "\n")
