"""The JSON schema of a file of cells, made from the keys that read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .cells import REASONS, REASONS_WITH
from .keys import KEYS, NAME_PATTERN, PACKAGE_PATTERN, CellKey, Value

_Schema = Mapping[str, object]
_TEXT: Final[_Schema] = {"type": "string"}


def schema() -> _Schema:
    """The JSON schema of a file of cells (draft 2020-12), made from `KEYS`."""
    values = {name: {"$ref": f"#/$defs/{name}"} for name in KEYS}
    lists = {name: _several(value) for name, value in values.items() if KEYS[name].axis}
    versions, some = _packages(_several(_TEXT)), _several(_TEXT)
    axes = {
        **values,
        **lists,
        "packages": {"anyOf": [values["packages"], versions]},
        "name": {**_TEXT, "description": "names of the cells, with keys in braces: 'ctk-{ctk}-driver-{driver}'"},
    }
    meanings = {name: meaning for name, (meaning, _) in REASONS.items()}
    meanings |= {name: meaning for name, (_, meaning) in REASONS_WITH.items()}
    because = [{"const": name, "description": meaning} for name, meaning in meanings.items()]
    exclude = {
        **lists,
        "packages": versions,
        "because": {"description": "why, in a word that is checked", "oneOf": because},
        "cell": {**_TEXT, "description": "for same-as: the cell that has the same values"},
        "issue": {**_TEXT, "description": "for known-issue: its address"},
        "until": {"description": "for known-issue: the date from which the exclude is an error"},
        "note": {**_TEXT, "description": "for people"},
    }

    def axes_with(other: object) -> _Schema:
        """Return the schema of a table of axes; `other` is that of keys that are no cell's."""
        items = {**_table(exclude, other), "required": ["because"]}
        return _table({**axes, "exclude": {"type": "array", "items": items}}, other)

    toolkit = {**_table({"packages": {"type": "array", "items": _TEXT}}), "required": ["packages"]}
    about = "packages that make exactly one toolkit, where a project needs others than usual"
    tables = {
        "defaults": _table(values),
        "cells": {"type": "object", "propertyNames": _like(NAME_PATTERN), "additionalProperties": _table(values)},
        # in [axes.packages] each key that is not a cell's is a package
        "axes": _table({"packages": axes_with(some)}, axes_with(other=False)),
        "toolkits": {"type": "object", "description": about, "additionalProperties": toolkit},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The cells of a matrix (pytest-cudalink)",
        "$defs": {name: {"description": key.help, **_schema_of(key)} for name, key in KEYS.items()},
        **_table(tables),
    }


def _table(properties: _Schema, other: object = False) -> _Schema:  # noqa: FBT002 (a schema)
    return {"type": "object", "properties": properties, "additionalProperties": other}


def _like(pattern: str) -> _Schema:
    return {"pattern": f"^{pattern}$"}


def _several(value: _Schema) -> _Schema:
    """Return the schema of a value, or of a list of such values."""
    return {"anyOf": [value, {"type": "array", "items": value, "minItems": 1}]}


def _packages(version: _Schema) -> _Schema:
    """Return the schema of a table of packages with the versions of each."""
    return {"type": "object", "propertyNames": _like(PACKAGE_PATTERN), "additionalProperties": version}


def _schema_of(key: CellKey[Value]) -> _Schema:
    text = {**_TEXT, "pattern": key.pattern} if key.pattern else _TEXT
    match key.default:
        case bool():
            return {"type": "boolean"}
        case tuple():
            texts = {"type": "array", "items": text}
            return {"anyOf": [texts, _packages(_TEXT)]} if key.versions else texts
        case str() if key.words:
            words = {"enum": list(key.words)}
            return {"anyOf": [words, text]} if key.fault else words
        case str():
            return text
    return {"type": "object", "additionalProperties": _TEXT}
