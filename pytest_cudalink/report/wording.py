"""How pytest's summary and the report of all cells say what happened: the same words, the same grouping. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

__all__ = ["by_cause", "counted", "linked_on", "status"]

_BACKENDS: Final = {
    "nvjitlink": "on nvJitLink",
    "driver": "on the driver",
    "none": "refused before a choice",
    "unknown": "refused before a choice",
}


def counted(number: int, noun: str) -> str:
    """``"1 link"``, ``"2 links"``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def linked_on(key: str) -> str:
    """Where links were made: ``"on nvJitLink"``, ``"on the driver failed"``, ``"refused before a choice"``.

    Parameters
    ----------
    key : str
        What links are counted by: a backend, or a backend and ``" failed"``.
    """
    backend, space, failed = key.partition(" ")
    return f"{_BACKENDS.get(backend, f'on {backend}')}{space}{failed}"


def status(verdict: Mapping[str, Any]) -> str:
    """The status of a verdict of the guard rails in words: ``"insufficient metadata"``."""
    return str(verdict.get("status", "")).replace("_", " ")


def by_cause(verdicts: Iterable[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """The verdicts that are not "compatible", those of one cause together, in the order of their first.

    A driver that is not known is one cause, whatever was held against it; else a message is one.
    """
    causes: dict[str, list[Mapping[str, Any]]] = {}
    for verdict in verdicts:
        kind = verdict.get("status")
        if kind != "compatible":
            unknown_driver = (
                verdict.get("rule") == "driver" and kind == "insufficient_metadata" and verdict.get("items")
            )
            cause = verdict["items"][-1] if unknown_driver else verdict.get("message", "")
            causes.setdefault(str(cause), []).append(verdict)
    return list(causes.values())
