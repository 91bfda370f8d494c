"""Evaluate the expressions of GitHub workflows: the words of GitHub's that ours use become those of Python.

Unlike GitHub, this refuses a name that its context lacks, except in a `Payload`, also behind ``&&`` and ``||``, so that
no name escapes, and texts that differ in case are different.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_IN_TEXT = re.compile(r"\$\{\{((?:(?!\}\}).)*)\}\}", re.DOTALL)
_TOKEN = re.compile(
    r"\s+|(?P<text>'(?:[^']|'')*')|(?P<sign>&&|\|\||[!=]=|[!(),])|(?P<name>[A-Za-z_][\w-]*(?:\.[\w-]+)*)(\()?|."
)
_SIGNS = {"&&": " and ", "||": " or ", "!": " not "}


class Payload(dict[str, Any]):
    """A context in which a missing name is null, which equals an empty text: it depends on the event or repository."""


def expressions(text: str) -> Iterator[str]:
    """Yield the expressions in a text."""
    return (expression.strip() for expression in _IN_TEXT.findall(text))


def fill(text: str, names: Mapping[str, Any]) -> Any:
    """Return a text with the values of its expressions; the value itself where the text is one expression."""
    if whole := _IN_TEXT.fullmatch(text.strip()):
        return _value(whole[1], names)
    return _IN_TEXT.sub(lambda match: _text(_value(match[1], names)), text)


def truth(condition: str, names: Mapping[str, Any]) -> bool:
    """Return whether the condition of a step or job holds, which may stand without braces."""
    text = " ".join(expressions(condition)) or condition
    if not re.search(r"\b(success|failure|always|cancelled)\(", text):
        text = f"success() && ({text})"
    return bool(_value(text, names))


def _value(text: str, names: Mapping[str, Any]) -> Any:
    code, values = "", {}
    for match in _TOKEN.finditer(text):
        if match["text"]:
            code += repr(match["text"][1:-1].replace("''", "'"))
        elif match["name"] and not match[4]:
            code += f"value_{len(values)}"
            values[f"value_{len(values)}"] = reduce(_part, match["name"].split("."), names)
        else:
            assert match["name"] or match["sign"] or match[0].isspace(), f"{match[0]!r} in {text!r} is not understood"
            code += _SIGNS.get(match[0], match[0])
    return eval(code.strip(), {**_FUNCTIONS, **names["functions"]}, values)


def _part(value: Any, name: str) -> Any:
    if value == "" or isinstance(value, Payload):
        member = value.get(name) if isinstance(value, Payload) else None
        return "" if member is None else member
    assert name in value, f"{name!r} is not among {', '.join(value)}"
    return value[name]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _hash_files(*patterns: str) -> str:
    files = sorted(path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file())
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest() if files else ""


_FUNCTIONS = {
    "contains": lambda where, what: what in where,
    "startsWith": lambda text, start: text.startswith(start),
    "fromJSON": lambda text: json.loads(text, parse_int=float),
    "hashFiles": _hash_files,
}
