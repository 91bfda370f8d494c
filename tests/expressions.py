"""Evaluate the expressions of GitHub workflows, by the rules of GitHub's reference "Evaluate expressions".

Unlike GitHub, this refuses a name that its context lacks, except in a `Payload`, and evaluates both sides of ``&&`` and
``||``, so that no name escapes.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_IN_TEXT = re.compile(r"\$\{\{((?:(?!\}\}).)*)\}\}", re.DOTALL)
_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>-?\d+(?:\.\d+)?)|(?P<name>[A-Za-z_][\w-]*)"
    r"|(?P<sign>==|!=|<=|>=|&&|\|\||[!<>().,\[\]]))"
)
_WORDS = {"null": None, "true": True, "false": False}


class Payload(dict[str, Any]):
    """A context in which a missing name is null, because it depends on the event or on the repository."""


def expressions(text: str) -> Iterator[str]:
    """Yield the expressions in a text."""
    return (found.strip() for found in _IN_TEXT.findall(text))


def fill(text: str, names: Mapping[str, Any]) -> Any:
    """Return a text with the values of its expressions; the value itself where the text is one expression."""
    if whole := _IN_TEXT.fullmatch(text.strip()):
        return _value(whole[1], names)
    return _IN_TEXT.sub(lambda found: _text(_value(found[1], names)), text)


def truth(condition: str, names: Mapping[str, Any]) -> bool:
    """Return whether the condition of a step or job holds, which may stand without braces."""
    text = " ".join(expressions(condition)) or condition
    if not re.search(r"\b(success|failure|always|cancelled)\(", text):
        text = f"success() && ({text})"
    return _true(_value(text, names))


def _value(text: str, names: Mapping[str, Any]) -> Any:
    tokens, end = [], 0
    text = text.strip()
    while end < len(text):
        found = _TOKEN.match(text, end)
        assert found, f"{text[end:]!r} in {text!r} is no part of an expression"
        tokens.append((str(found.lastgroup), found[str(found.lastgroup)]))
        end = found.end()
    reader = _Reader(tokens, names)
    value = reader.either()
    assert not reader.rest, f"{reader.rest} is left of {text!r}"
    return value


class _Reader:
    """Reads tokens from the front, and evaluates them."""

    def __init__(self, tokens: list[tuple[str, str]], names: Mapping[str, Any]) -> None:
        self.rest, self.names = tokens, names

    def take(self, *signs: str) -> str:
        """Return the next token if it is one of the signs, else an empty text."""
        return self.rest.pop(0)[1] if self.rest and self.rest[0][1] in signs and self.rest[0][0] == "sign" else ""

    def either(self) -> Any:
        value = self.both()
        while self.take("||"):
            other = self.both()
            value = value if _true(value) else other
        return value

    def both(self) -> Any:
        value = self.equal()
        while self.take("&&"):
            other = self.equal()
            value = other if _true(value) else value
        return value

    def equal(self) -> Any:
        value = self.ordered()
        while sign := self.take("==", "!="):
            value = _equal(value, self.ordered()) == (sign == "==")
        return value

    def ordered(self) -> Any:
        value = self.single()
        while sign := self.take("<", "<=", ">", ">="):
            one, other = value, self.single()
            if not (isinstance(one, str) and isinstance(other, str)):
                one, other = _number(one), _number(other)
            else:
                one, other = one.upper(), other.upper()
            value = {"<": one < other, "<=": one <= other, ">": one > other, ">=": one >= other}[sign]
        return value

    def single(self) -> Any:
        if self.take("!"):
            return not _true(self.single())
        if self.take("("):
            value = self.either()
            assert self.take(")")
        else:
            kind, word = self.rest.pop(0)
            if kind == "name" and self.take("("):
                value = self.call(word)
            elif kind == "name":
                value = _WORDS[word] if word in _WORDS else _part(self.names, word)
            else:
                assert kind != "sign", word
                value = float(word) if kind == "number" else word[1:-1].replace("''", "'")
        while sign := self.take(".", "["):
            value = _part(value, self.rest.pop(0)[1] if sign == "." else self.either())
            assert sign == "." or self.take("]")
        return value

    def call(self, function: str) -> Any:
        given = []
        while not self.take(")"):
            given.append(self.either())
            self.take(",")
        return {**_FUNCTIONS, **self.names["functions"]}[function](*given)


def _part(value: Any, name: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, list):
        return value[int(name)]
    if isinstance(value, Payload):
        return value.get(name)
    assert name in value, f"{name!r} is not among {', '.join(value)}"
    return value[name]


def _true(value: Any) -> bool:
    return isinstance(value, list | dict) or not (not value or (isinstance(value, float) and math.isnan(value)))


def _number(value: Any) -> float:
    if isinstance(value, str):
        try:
            return float(value.strip() or 0)
        except ValueError:
            return math.nan
    return float(value or 0) if value is None or isinstance(value, bool | float) else math.nan


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, str) and isinstance(other, str):
        return one.upper() == other.upper()
    if type(one) is type(other) and isinstance(one, list | dict):
        return one is other
    return (one is None and other is None) or _number(one) == _number(other)


def _text(value: Any) -> str:
    if isinstance(value, list | dict):
        return "Array" if isinstance(value, list) else "Object"
    if value is None or isinstance(value, bool):
        return "" if value is None else str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _contains(where: Any, what: Any) -> bool:
    if isinstance(where, list):
        return any(_equal(one, what) for one in where)
    return _of_texts(str.__contains__)(where, what)


def _of_texts(compare: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    """Return a comparison of two values as texts, in which no case counts; nothing is like a list or a table."""

    def compared(where: Any, what: Any) -> bool:
        texts = not isinstance(where, list | dict) and not isinstance(what, list | dict)
        return texts and compare(_text(where).upper(), _text(what).upper())

    return compared


def _hash_files(*patterns: str) -> str:
    files = sorted(path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file())
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest() if files else ""


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "contains": _contains,
    "startsWith": _of_texts(str.startswith),
    "endsWith": _of_texts(str.endswith),
    "format": lambda form, *values: form.format(*map(_text, values)),
    "join": lambda values, between=",": _text(between).join(map(_text, values)),
    "toJSON": lambda value: json.dumps(value, indent=2),
    "fromJSON": lambda text: json.loads(text, parse_int=float),
    "hashFiles": _hash_files,
}
