"""The words and keys that pytest's summary and the report of all cells share. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from ..base import safe_text
from ..base.finding import NO_DRIVER, Finding
from ..base.tables import grouped
from ..base.words import counted

if TYPE_CHECKING:
    from .records import CauseRecord, CrashRecord

_BACKENDS: Final = {"nvjitlink": "on nvJitLink", "driver": "on the driver", "none": "refused before a choice"}
_FAILED: Final = " failed"
#: The words for a verdict of the guard rails, by severity.
_STATUS: Final = {"note": "compatible", "unknown": "insufficient metadata"}


def ended_by(crash: CrashRecord) -> str:
    """Return what ended a process: ``"SIGSEGV"``, ``"exit code 3"``, or why that is unknown and what shows it."""
    if crash.signal:
        return crash.signal
    if crash.exitcode is not None:
        return f"exit code {crash.exitcode}"
    return "unknown: the process wrote nothing (SIGKILL, os._exit); --cudalink-processes=isolated shows it"


def call_in_words(event: str) -> str:
    """Return a call of the driver, as its events have it, in words: ``"cuLinkAddData_v2 answered 209: NOTE"``.

    Anything else is returned as it is: a record may have been written by another version.
    """
    try:
        content = json.loads(event)
        words = f"{content['call']} answered {content['result']}"
    except (ValueError, KeyError, TypeError, RecursionError):
        return event
    return f"{words}: {content['note']}" if content.get("note") else words


def refused_last(events: Sequence[str]) -> tuple[str, str] | None:
    """Return function and note of the last of a process's events, if the driver refused it as not emulated."""
    try:
        content = json.loads(events[-1])
        return (str(content["call"]), str(content.get("note", ""))) if content.get("unsupported") else None
    except (IndexError, ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return None


def link_key(target: str, backend: str) -> str:
    """Return the key by which a run counts links, ``"TARGET/BACKEND"``; see `split_link_key`."""
    return f"{target}/{backend}"


def split_link_key(key: str) -> tuple[str, str]:
    """Return target and backend of a `link_key`."""
    target, _, backend = key.rpartition("/")
    return target, backend


@cache
def backend_keys(backend: str, *, failed: bool = False) -> tuple[str, ...]:
    """Return the keys by which a report counts a link: its backend, and ``"BACKEND failed"`` too if it failed.

    `backend`: as in a record. ``"unknown"``, a link that was refused before a backend was chosen, has the one key
    ``"none"``.
    """
    if backend == "unknown":
        return ("none",)
    return (backend, f"{backend}{_FAILED}") if failed and backend != "none" else (backend,)


def linked_on(key: str) -> str:
    """Return where links were made: ``"on nvJitLink"``, ``"on the driver failed"``, ``"refused before a choice"``.

    `key`: a backend, as in a record, or one of `backend_keys`.
    """
    backend = key.removesuffix(_FAILED)
    (name,) = backend_keys(backend)
    return f"{_BACKENDS.get(name, f'on {name}')}{key[len(backend) :]}"


def unsteered_on(backend: str) -> str:
    """Return where a link was made that no target steers; of some the backend cannot be seen."""
    return "on a backend that cannot be seen" if backend == "unknown" else linked_on(backend)


def not_emulated(functions: Iterable[str]) -> str:
    """Return which functions were refused: ``"cuLaunchKernel is not emulated"``, ``"cuA, cuB are not emulated"``."""
    names = list(dict.fromkeys(functions))
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} not emulated"


def verdict_record(verdict: Finding) -> dict[str, Any]:
    """Return a verdict of the guard rails as records and processes pass it on."""
    names = ("severity", "kind", "what", "why", "fix", "otherwise")
    return {**{name: str(getattr(verdict, name)) for name in names}, "evidence": [*map(str, verdict.evidence)]}


def cause_record(cause: Finding) -> CauseRecord:
    """Return the finding why a test failed as records and processes pass it on."""
    return {"kind": cause.kind, "what": cause.what, "why": cause.why, "suggestion": [*cause.suggestion]}  # type: ignore[typeddict-item]


def cause_of(record: CauseRecord) -> Finding:
    """Return the finding that a record has, see `cause_record`."""
    fixes = tuple(record.get("suggestion") or record.get("fix", ()))
    return Finding("error", record["what"], why=record["why"], kind=record["kind"], suggestion=fixes)


def explanation(cause: Finding, others: int = 0) -> str:
    """Return why a test failed, as lines that are safe to show and begin with ``error``, ``why`` and ``fix``.

    `others`: how many other errors the first line leaves out.
    """
    more = f" (and {counted(others, 'other')})" if others else ""
    lines = [f"error  {safe_text.line(cause.what)}{more}", f"why    {safe_text.line(cause.why)}"]
    lines += [f"{'' if number else 'fix':<6} {safe_text.line(text)}" for number, text in enumerate(cause.suggestion)]
    return "\n".join(lines)


def share(ran: int, tests: int, need: int) -> list[str]:
    """Return how many tests ran, and how many of the rest need a GPU; empty if all tests ran."""
    if ran == tests:
        return []
    words = [f"{ran} of {counted(tests, 'test')} ran"]
    return [*words, counted(need, "needs a GPU", "need a GPU")] if need else words


def status(verdict: Mapping[str, Any]) -> str:
    """Return the severity of a verdict of the guard rails in their words: ``"insufficient metadata"``."""
    return _STATUS.get(verdict["severity"], "incompatible")


def without_driver(verdict: Mapping[str, Any]) -> bool:
    """Return whether a verdict says only that there is no driver to compare an item with."""
    return bool(verdict["why"] == NO_DRIVER)


def by_cause(verdicts: Iterable[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Return the verdicts of rules that do not hold, grouped by cause, in the order of the first of each.

    An unknown driver is one cause, whatever it was compared with. Otherwise each sentence is a cause.
    """
    failing = (verdict for verdict in verdicts if verdict["severity"] != "note")
    return list(grouped((verdict["why"] or verdict["what"], verdict) for verdict in failing).values())
