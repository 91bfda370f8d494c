"""The JSON schema of a line of a record file, made from the table of events.

``python -m pytest_cudalink.report.schema > matrices/records.schema.json`` writes the published file.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Mapping
from typing import Annotated, Any, Final, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from .events import EVENTS, SCHEMA

__all__ = ["schema"]

_TYPES: Final = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of one line."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:pytest-cudalink:records:{SCHEMA}",
        "title": "One line of a record file of pytest-cudalink",
        "description": "A file has one JSON object per line. The first is a run. Readers ignore keys that they do not "
        "know, name events that they do not know, and read a file as far as it goes.",
        "type": "object",
        "required": ["event", "time"],
        "properties": {
            "event": {"type": "string"},
            "time": {"description": "seconds since the epoch", "type": "number"},
        },
        "allOf": [
            {"if": {"properties": {"event": {"const": name}}}, "then": {"$ref": f"#/$defs/{name}"}} for name in EVENTS
        ],
        "$defs": {name: _of(record) for name, record in EVENTS.items()},
    }


def _of(hint: Any) -> dict[str, Any]:
    """Return the schema of a type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        result = _of(arguments[0])
        for note in arguments[1:]:
            result.update(note if isinstance(note, Mapping) else {"description": note})
        return result
    if origin in (Union, types.UnionType):
        result = _of(next(one for one in arguments if one is not type(None)))
        return {**result, "type": [result["type"], "null"]}
    if origin is list:
        return {"type": "array", "items": _of(arguments[0])}
    if origin is dict:
        return (
            {"type": "object"} if arguments[1] is Any else {"type": "object", "additionalProperties": _of(arguments[1])}
        )
    return _of_record(hint) if is_typeddict(hint) else {"type": _TYPES[hint]}


def _of_record(record: type) -> dict[str, Any]:
    # not __required_keys__: Python does not see NotRequired in annotations that are strings
    hints = get_type_hints(record, include_extras=True)
    optional = {name: get_args(hint)[0] for name, hint in hints.items() if get_origin(hint) is NotRequired}
    return {
        "description": (record.__doc__ or "").strip(),
        "type": "object",
        "required": [name for name in hints if name not in optional],
        "properties": {name: _of(optional.get(name, hint)) for name, hint in hints.items()},
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(schema(), indent=2) + "\n")
