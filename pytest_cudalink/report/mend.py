"""Reads what does not fit a class of msgspec: the events of a damaged record, and the cells of a saved report.

A value of another type is left out and named, so that the rest counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NotRequired,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec
from msgspec import Meta

_T = TypeVar("_T")
_NOUNS: Final[Mapping[Any, str]] = {
    str: "a text",
    int: "a whole number",
    float: "a number of seconds",
    bool: "true or false",
    list: "a list",
    tuple: "a list",
}
#: Stands for a value of which nothing fits.
_WRONG: Final = object()


def mended(kind: type[_T], content: object, place: str) -> tuple[_T, list[str]]:
    """Return an object of a class with the values of a file that fit it, and what is wrong with the others.

    A key that is missing, or is null where that has no meaning, has the default of the class. Without a default it is
    empty, and named unless it belongs to a smaller part, such as a version.

    `kind`: a msgspec.Struct, a dataclass or a TypedDict.
    `content`: what was read from JSON.
    `place`: what the faults call the content.
    """
    faults: list[str] = []
    found = _mended(kind, content, place, faults)
    return (_object(kind, {}, place, []) if found is _WRONG else found), faults


def described(value: object) -> str:
    """Return a value of a file as an error shows it: a short repr, or what kind of container it is."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}… ({len(text):,} characters)"


def _mended(hint: Any, value: Any, place: str, faults: list[str]) -> Any:
    """Return what fits a type as an object of it; `_WRONG` if nothing fits."""
    # ValueError: a lone surrogate is no word of a Literal
    with suppress(msgspec.MsgspecError, ValueError, RecursionError):
        return msgspec.convert(value, hint)
    kind, notes = _parts(hint)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (list, tuple) and isinstance(value, list):
        items = [_mended(arguments[0], item, f"{place}[{number}]", faults) for number, item in enumerate(value)]
        return origin(item for item in items if item is not _WRONG)
    if origin is dict and isinstance(value, dict):
        values = {key: _mended(arguments[1], item, f"{place}.{key}", faults) for key, item in value.items()}
        return {key: item for key, item in values.items() if item is not _WRONG}
    if isinstance(value, dict) and not (origin or kind in _NOUNS):
        return _object(kind, value, place, faults)
    faults.append(f"{place} is {described(value)}; expected {_expected(kind, notes, value)}")
    return _WRONG


def _object(kind: Any, value: Mapping[str, Any], place: str, faults: list[str]) -> Any:
    """Return an object of a class with the values that fit; `_WRONG` for a TypedDict of which nothing fits."""
    hints, required = _fields(kind)
    given = {name: hint for name, hint in hints.items() if value.get(name) is not None}
    found = {name: _mended(hint, value[name], f"{place}.{name}", faults) for name, hint in given.items()}
    found = {name: item for name, item in found.items() if item is not _WRONG}
    if is_typeddict(kind):
        return {**{name: _empty(hints[name]) for name in required}, **found} if found else _WRONG
    missing = [name for name in required if name not in given]
    faults += [f"{place}.{name} is missing; expected {_expected(*_parts(hints[name]))}" for name in missing]
    return kind(**{**{name: _empty(hints[name]) for name in required}, **found})


@cache
def _fields(kind: Any) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Return the types of the fields of a class by name, and the names of those without a default."""
    hints = get_type_hints(kind, include_extras=True)
    hints = {name: get_args(hint)[0] if get_origin(hint) is NotRequired else hint for name, hint in hints.items()}
    info: Any = msgspec.inspect.type_info(kind)
    required = {one.name: one.required for one in info.fields}
    known = {name: hint for name, hint in hints.items() if name in required}
    return known, tuple(name for name in known if required[name])


def _parts(hint: Any) -> tuple[Any, list[Meta]]:
    """Return a type without null, and its notes."""
    notes: list[Meta] = []
    while True:
        if get_origin(hint) is Annotated:
            notes += hint.__metadata__
            hint = hint.__origin__
        elif type(None) in get_args(hint):
            hint = next(part for part in get_args(hint) if part is not type(None))
        else:
            return hint, notes


def _empty(hint: Any) -> Any:
    """Return the value of a key that is missing and has no default."""
    hint = hint.__origin__ if get_origin(hint) is Annotated else hint
    if type(None) in get_args(hint):
        return None
    return "" if get_origin(hint) is Literal else hint()


def _expected(kind: Any, notes: Iterable[Meta], value: object = None) -> str:
    """Return what was expected in the place of a value, in words."""
    for note in notes:
        if note.extra is not None:
            return str(note.extra["expected"])
        if type(value) in (int, kind) and note.ge is not None and value < note.ge:  # type: ignore[operator]
            return f"{note.ge:g} or more"
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    return _NOUNS.get(get_origin(kind) or kind, "an object")
