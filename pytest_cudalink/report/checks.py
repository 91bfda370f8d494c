"""Checks what was read from JSON against types: the events of a record file, and the cells of a saved report.

Nothing is raised for what a file contains. A value of another type is left out and named, so that the rest counts.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import cache
from typing import Annotated, Any, Final, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from .events import EVENTS

__all__ = ["MOST_SECONDS", "described", "sound", "sound_event", "time_fault"]

#: Seconds; no time or duration is as long.
MOST_SECONDS: Final = 1e12
#: Levels of a value whose type the table leaves open, and what every whole number is below.
_DEPTH: Final = 8
_COUNT: Final = 2**63

#: Returned for a value that is left out.
_WRONG: Final = object()
#: Returns a sound value or `_WRONG`; adds what is wrong to the list. The second argument names the place.
_Check = Callable[[Any, str, list[str]], Any]


def sound_event(kind: str, event: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the values of an event that have the type of the table, and what is wrong with the others.

    Parameters
    ----------
    kind : str
        A name in `events.EVENTS`.
    """
    content = {key: value for key, value in event.items() if key not in ("event", "time")}
    result, wrong = sound(EVENTS[kind], content, kind)
    if found := time_fault(kind, event):
        return {"event": kind, **result}, [*found, *wrong]
    return {"event": kind, **({"time": event["time"]} if event.get("time") is not None else {}), **result}, wrong


def time_fault(kind: str, event: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the time of an event, as a list of one text; empty if it is sound or missing."""
    time = event.get("time")
    if time is None or (type(time) in (int, float) and 0 <= time < MOST_SECONDS):
        return []
    return [f"{kind}.time is {described(time)}; expected seconds since the epoch"]


def sound(hint: Any, content: Any, place: str) -> tuple[dict[str, Any], list[str]]:
    """Return the values of an object that fit a TypedDict or a dataclass, and what is wrong with the others."""
    wrong: list[str] = []
    found = _check_of_class(hint)(content, place, wrong)
    return ({} if found is _WRONG else found), wrong


def described(value: object) -> str:
    """Return a value of a file as an error shows it: a short repr, or what kind of container it is."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}… ({len(text):,} characters)"


@cache
def _check_of_class(hint: type) -> _Check:
    return _check_of(hint)


def _check_of(hint: Any) -> _Check:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is NotRequired:
        return _check_of(arguments[0])
    if origin is Annotated:
        least = next(
            (note["minimum"] for note in hint.__metadata__ if isinstance(note, dict) and "minimum" in note), None
        )
        return _at_least(_check_of(arguments[0]), least)
    if origin in (Union, types.UnionType):
        return _check_of(next(one for one in arguments if one is not type(None)))
    if origin in (list, tuple):
        return _list_of(_check_of(arguments[0]))
    if origin is dict:
        return _object_of(_check_of(arguments[1]))
    if is_typeddict(hint) or is_dataclass(hint):
        hints = get_type_hints(hint, include_extras=True)
        return _record_of({name: _check_of(one) for name, one in hints.items()})
    return _SIMPLE[hint]


def _expected(value: object, place: str, noun: str, wrong: list[str]) -> object:
    wrong.append(f"{place} is {described(value)}; expected {noun}")
    return _WRONG


def _text(value: Any, place: str, wrong: list[str]) -> Any:
    return value if type(value) is str else _expected(value, place, "a text", wrong)


def _whole(value: Any, place: str, wrong: list[str]) -> Any:
    return value if type(value) is int and abs(value) < _COUNT else _expected(value, place, "a whole number", wrong)


def _number(value: Any, place: str, wrong: list[str]) -> Any:
    sane = type(value) in (int, float) and -MOST_SECONDS < value < MOST_SECONDS  # NaN is not
    return float(value) if sane else _expected(value, place, "a number of seconds", wrong)


def _truth(value: Any, place: str, wrong: list[str]) -> Any:
    return value if type(value) is bool else _expected(value, place, "true or false", wrong)


def _anything(value: Any, place: str, wrong: list[str]) -> Any:
    if _is_flat(value, _DEPTH):
        return value
    words = f"is nested too deeply or has a number without a value; expected at most {_DEPTH} levels of JSON"
    wrong.append(f"{place} {words}")
    return _WRONG


def _is_flat(value: Any, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return not isinstance(value, float) or math.isfinite(value)
    return levels > 0 and all(
        _is_flat(one, levels - 1) for one in (value.values() if isinstance(value, dict) else value)
    )


def _at_least(check: _Check, least: int | None) -> _Check:
    if least is None:
        return check

    def checked(value: Any, place: str, wrong: list[str]) -> Any:
        found = check(value, place, wrong)
        if found is not _WRONG and found < least:
            return _expected(value, place, f"{least} or more", wrong)
        return found

    return checked


def _list_of(check: _Check) -> _Check:
    def checked(value: Any, place: str, wrong: list[str]) -> Any:
        if not isinstance(value, list):
            return _expected(value, place, "a list", wrong)
        found = [check(one, f"{place}[{number}]", wrong) for number, one in enumerate(value)]
        return [one for one in found if one is not _WRONG]

    return checked


def _object_of(check: _Check) -> _Check:
    def checked(value: Any, place: str, wrong: list[str]) -> Any:
        if not isinstance(value, dict):
            return _expected(value, place, "an object", wrong)
        found = {key: check(one, f"{place}.{key}", wrong) for key, one in value.items()}
        return {key: one for key, one in found.items() if one is not _WRONG}

    return checked


def _record_of(checks: Mapping[str, _Check]) -> _Check:
    """Return the check of an object with known keys; null stands for no value, unknown keys stay."""

    def checked(value: Any, place: str, wrong: list[str]) -> Any:
        if not isinstance(value, dict):
            return _expected(value, place, "an object", wrong)
        found = {}
        for key, one in value.items():
            found[key] = one if one is None else checks.get(key, _anything)(one, f"{place}.{key}", wrong)
        return {key: one for key, one in found.items() if one is not _WRONG}

    return checked


_SIMPLE: Final[Mapping[Any, _Check]] = {str: _text, int: _whole, float: _number, bool: _truth, Any: _anything}
