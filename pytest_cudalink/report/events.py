"""The events of a record file: the keys of each event, with their types, units and limits.

This is the only description of the format. `schema.schema` makes the JSON schema from it, `Writer.write` and `merge`
are typed by it, and the dataclasses of `records` have the same keys.

A string in ``Annotated`` describes the key; a mapping has further keywords of JSON schema. Every line also has
``event``, a name in `EVENTS`, and ``time``, in seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, NotRequired, TypedDict

__all__ = [
    "EVENTS",
    "OUTCOMES",
    "SCHEMA",
    "ArchRecord",
    "CauseRecord",
    "CollectedRecord",
    "CrashRecord",
    "DocumentedRecord",
    "EndRecord",
    "FoundRecord",
    "InputRecord",
    "LibraryRecord",
    "LinkRecord",
    "LinkVersionsRecord",
    "OriginRecord",
    "RefusedRecord",
    "RunRecord",
    "SettingRecord",
    "StartRecord",
    "StickyRecord",
    "SubtestRecord",
    "TestRecord",
    "UnsteeredRecord",
    "VerdictRecord",
    "VersionRecord",
    "ViolationRecord",
]

#: Version of the format, in every ``run`` event. Readers refuse a newer one.
SCHEMA: Final = 1

#: Possible outcomes of a test; ``crashed`` means that its process died, ``unsupported`` that it was skipped because an
#: emulated driver refused a call.
OUTCOMES: Final = ("passed", "failed", "error", "skipped", "xfailed", "xpassed", "rerun", "crashed", "unsupported")

_Count = Annotated[int, {"minimum": 0}]
_Seconds = Annotated[float, {"minimum": 0}]
_Nodeid = Annotated[str, "the test"]
_NodeidOrNone = Annotated[str | None, "the test; null outside tests"]
_Worker = Annotated[str | None, "the worker of pytest-xdist; null without one"]


class SettingRecord(TypedDict):
    """A setting of the run."""

    value: str
    source: Annotated[str, "where the value was set"]


class VersionRecord(TypedDict):
    """A version that the run asked for, and the one it found."""

    requested: str | None
    found: str | None
    source: Annotated[str, "where the version was read"]
    kind: Annotated[str, {"enum": ["real", "emulated", "faked", "absent"]}]
    resolved: NotRequired[Annotated[str, "what a word such as 'lowest' stood for when the cell was installed"]]


class ArchRecord(TypedDict):
    """The architecture that the run asked for, and that of its device."""

    requested: str | None
    found: str | None


class OriginRecord(TypedDict):
    """The origin of a run; null for what is not known. The time of the event is when the run began."""

    project: Annotated[str | None, "the project's name"]
    commit: Annotated[str | None, "the commit in full"]
    branch: str | None
    ci_url: Annotated[str | None, "the page of the CI run, without credentials"]
    dirty: Annotated[bool | None, "whether the checkout had changes that the commit has not"]


class RunRecord(TypedDict):
    """The environment of a run."""

    schema: Annotated[int, "version of the format", {"const": SCHEMA}]
    run: Annotated[str, "a unique name of the run (uuid4, hexadecimal)", {"pattern": "^[0-9a-f]{32}$"}]
    cell: Annotated[str | None, "the cell of the matrix, from CUDALINK_CELL"]
    worker: _Worker
    python: Annotated[str, "version of Python"]
    platform: Annotated[str, "system and machine, such as 'linux-x86_64'"]
    pytest: Annotated[str, "version of pytest"]
    argv: Annotated[list[str], "pytest's command line"]
    settings: Annotated[dict[str, SettingRecord], "by name"]
    versions: Annotated[dict[str, VersionRecord], "by name, such as 'driver'"]
    arch: ArchRecord
    facts: Annotated[dict[str, Any], "what hooks added"]
    axes: NotRequired[
        Annotated[dict[str, str], "what else distinguishes the cell: its kind, resolution, packages as they were found"]
    ]
    hidden: NotRequired[Annotated[str, "what the cell hides, how, and what can still be opened"]]
    origin: NotRequired[Annotated[OriginRecord, "the project, its commit, and the CI run"]]


class CollectedRecord(TypedDict):
    """The tests that the run was going to run; one without a test event was not run, or lost in a crash."""

    tests: Annotated[dict[str, list[str]], "by file: the rest of each node ID"]


class FoundRecord(TypedDict):
    """What a process has since a driver was emulated for markers, after ``run`` was written."""

    worker: _Worker
    versions: Annotated[dict[str, VersionRecord], "by name, such as 'driver'"]
    arch: ArchRecord


class StartRecord(TypedDict):
    """The start of an attempt; without a test event of the same worker and attempt, the attempt was cut short."""

    nodeid: _Nodeid
    worker: _Worker
    attempt: Annotated[int, "counted from 1 in each worker", {"minimum": 1}]


class InputRecord(TypedDict):
    """An input of a link."""

    kind: Annotated[str, "such as 'ptx'"]
    name: str
    producer: Annotated[str | None, "CUDA version that made it"]


class LinkVersionsRecord(TypedDict):
    """The CUDA versions that a linker saw."""

    driver: str | None
    nvjitlink: str | None


class LinkRecord(TypedDict):
    """One link, in or outside a test."""

    nodeid: _NodeidOrNone
    worker: NotRequired[_Worker]
    target: Annotated[str, "the library that linked"]
    backend: Annotated[
        str,
        "'unknown' when the link was refused before a backend was chosen",
        {"enum": ["driver", "nvjitlink", "unknown"]},
    ]
    inputs: list[InputRecord]
    versions: LinkVersionsRecord
    duration: Annotated[_Seconds, "seconds from making the linker to the image"]
    result: Annotated[str, "'ok', or the error's type and code name"]
    message: Annotated[str, "the error's text"]


class UnsteeredRecord(TypedDict):
    """One link that no target steers, in or outside a test."""

    nodeid: _NodeidOrNone
    worker: _Worker
    via: Annotated[str, "the module or library that linked, such as 'cuda.bindings.nvjitlink'"]
    call: Annotated[str, "the function that completed the link, such as 'nvJitLinkComplete'"]
    where: Annotated[str, "file and line of the code that called it; empty where that is unknown"]
    backend: Annotated[str, "'unknown' where it cannot be seen", {"enum": ["driver", "nvjitlink", "unknown"]}]
    result: Annotated[str, "'ok', or the error's type and code name"]
    forced: Annotated[
        str | None, "the backend that was forced; null without one", {"enum": ["driver", "nvjitlink", None]}
    ]


class LibraryRecord(TypedDict):
    """A CUDA library that a process of the run has loaded, in or outside a test."""

    nodeid: _NodeidOrNone
    worker: _Worker
    during: Annotated[str, "the phase of the test; outside tests, what the run did"]
    name: Annotated[str, "such as 'libcudart'"]
    soname: str
    path: Annotated[str, "as it was opened, or as the loader found it"]
    real_path: Annotated[str, "the file itself, with every symbolic link followed"]
    place: Annotated[
        str,
        "'toolchains' is the plugin's cache; 'system' is everything else",
        {"enum": ["wheels", "conda", "system", "driver", "emulated", "toolchains"]},
    ]
    owner: Annotated[str, "the distribution that owns the file, with its version; empty without one"]
    version: Annotated[str, "the CUDA release, or the version of a driver; empty where it is not known"]
    witness: Annotated[str, "where the version was read, or why it is not known"]
    for_whom: Annotated[str, "what is linked with it, and what opened that; empty where it is not known"]


class ViolationRecord(TypedDict):
    """A broken rule of lifetimes or of nvJitLink's contract, with further keys."""

    nodeid: _NodeidOrNone
    text: Annotated[str, "the violation in words"]


class VerdictRecord(TypedDict):
    """A verdict of the guard rails."""

    nodeid: _NodeidOrNone
    status: Annotated[str, {"enum": ["compatible", "incompatible", "insufficient_metadata"]}]
    rule: Annotated[str, "the rule that decided"]
    message: str
    fix: Annotated[str, "what to do"]
    otherwise: NotRequired[Annotated[str, "what else would help"]]
    items: Annotated[list[str], "the items that were compared"]


class DocumentedRecord(TypedDict):
    """A documented failure that was asserted."""

    requirement: Annotated[str, "the requirement that is not met"]
    raises: Annotated[str, "the error that was expected"]


class RefusedRecord(TypedDict):
    """A call that the emulated driver refused, because it does not emulate the function."""

    function: str
    note: Annotated[str, "what the driver says about it"]


class CauseRecord(TypedDict):
    """The cause of a failure; `wording.explanation` shows it."""

    kind: Annotated[
        str,
        "'skew' of versions or architectures; 'not_emulated': only a real driver does it; 'no_driver': there is none",
        {"enum": ["skew", "not_emulated", "no_driver"]},
    ]
    what: Annotated[str, "one line: the error, the call and the artifact that it refused"]
    why: Annotated[str, "one line: the rule, with the versions"]
    fix: Annotated[list[str], "the changes that help, one line each, the smallest first"]


class SubtestRecord(TypedDict):
    """A subtest."""

    description: str
    outcome: str


class TestRecord(TypedDict):
    """The result of one attempt of a test."""

    nodeid: _Nodeid
    worker: _Worker
    attempt: Annotated[int, "that of the start event", {"minimum": 1}]
    outcome: Annotated[str, {"enum": list(OUTCOMES)}]
    duration: Annotated[_Seconds, "seconds of set-up, call and tear-down together"]
    reason: Annotated[str, "of a skip or an expected failure, the first line of a failure, or a remark on a bare step"]
    longrepr: Annotated[str, "the failure in full, up to 4,000 characters", {"maxLength": 4000}]
    backends: Annotated[dict[str, Annotated[int, {"minimum": 1}]], "number of links by backend"]
    links: Annotated[_Count, "number of links"]
    violations: Annotated[_Count, "number of violations of lifetimes and of nvJitLink's contract"]
    documented: Annotated[DocumentedRecord | None, "the documented failure that was asserted"]
    missing: Annotated[str | None, "the requirement that a skip is about, such as 'driver >= 13.2'"]
    subtests: list[SubtestRecord]
    refused: NotRequired[Annotated[list[RefusedRecord], "refused calls, of a test that failed because of them"]]
    unsteered: NotRequired[Annotated[_Count, "number of links that no target steers"]]
    cause: NotRequired[Annotated[CauseRecord | None, "why the test failed; null where no such cause is known"]]


class CrashRecord(TypedDict):
    """The death of a process."""

    nodeid: _NodeidOrNone
    worker: _Worker
    signal: NotRequired[
        Annotated[str | None, "such as 'SIGSEGV'; null when the process exited, or when it is not known"]
    ]
    exitcode: NotRequired[int | None]
    last_events: Annotated[list[str], "the driver's last calls"]
    frames: NotRequired[Annotated[list[str], "what faulthandler wrote, with the Python frames, innermost first"]]


class StickyRecord(TypedDict):
    """A test that left the contexts of its process with an error that no call ends, or with work that does not end."""

    nodeid: _Nodeid
    worker: _Worker
    code: Annotated[int, "the CUresult; -1 for work that does not end"]
    error: Annotated[str, "its name and code, or 'work that does not end'"]
    after: Annotated[_Count, "number of tests that ran in a fresh process because of it"]


class EndRecord(TypedDict):
    """The end of a run; absent after a crash."""

    exitstatus: Annotated[int, "pytest's exit status"]
    duration: Annotated[_Seconds, "seconds of the whole run"]
    counts: Annotated[dict[str, _Count], "number of attempts by outcome"]
    failing: NotRequired[Annotated[list[str], "why the run fails although no test shows it"]]
    unlinked_modules: NotRequired[
        Annotated[_Count, "at least so many modules that an emulated driver loaded were made by no link that was seen"]
    ]


#: Each event by name, in the order in which a run first writes them.
EVENTS: Final[Mapping[str, type]] = {
    "run": RunRecord,
    "found": FoundRecord,
    "collected": CollectedRecord,
    "start": StartRecord,
    "link": LinkRecord,
    "unsteered": UnsteeredRecord,
    "library": LibraryRecord,
    "violation": ViolationRecord,
    "verdict": VerdictRecord,
    "test": TestRecord,
    "crash": CrashRecord,
    "sticky": StickyRecord,
    "end": EndRecord,
}
