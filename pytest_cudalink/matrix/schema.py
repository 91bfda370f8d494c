"""The JSON schema of a file of cells, made from the table of keys that reads it."""

from __future__ import annotations

from typing import Any

from .excludes import REASONS, REASONS_WITH
from .keys import KEYS, NAME_PATTERN, PACKAGE_PATTERN, CellKey

__all__ = ["schema"]


def schema() -> dict[str, Any]:
    """The JSON schema of a file of cells (draft 2020-12), made from `KEYS`."""
    values = {key: {"$ref": f"#/$defs/{key}"} for key in KEYS}
    axes: dict[str, Any] = {
        key: {"anyOf": [value, {"type": "array", "items": value, "minItems": 1}]} if KEYS[key].axis else value
        for key, value in values.items()
    }
    version: dict[str, Any] = {"type": "string"}
    several = {"anyOf": [version, {"type": "array", "items": version, "minItems": 1}]}
    axes["packages"] = {"anyOf": [values["packages"], _packages(several)]}
    where: dict[str, Any] = {
        key: {"anyOf": [value, {"type": "array", "items": value}]} for key, value in values.items() if KEYS[key].axis
    }
    some = {"anyOf": [version, {"type": "array", "items": version}]}
    where["packages"] = _packages(some)
    exclude = {
        "type": "object",
        "properties": {
            **where,
            "because": {
                "description": "why, in a word that is checked",
                "oneOf": [
                    {"const": name, "description": meaning}
                    for name, meaning in (
                        *((name, meaning) for name, (meaning, _) in REASONS.items()),
                        *((name, meaning) for name, (_, meaning) in REASONS_WITH.items()),
                    )
                ],
            },
            "cell": {"type": "string", "description": "for same-as: the cell that has the same values"},
            "issue": {"type": "string", "description": "for known-issue: its address"},
            "until": {"description": "for known-issue: the date from which the exclude is an error"},
            "note": {"type": "string", "description": "for people"},
        },
        "required": ["because"],
        "additionalProperties": False,
    }
    name = {"type": "string", "description": "names of the cells, with keys in braces: 'ctk-{ctk}-driver-{driver}'"}
    of_axes = {**axes, "name": name, "exclude": {"type": "array", "items": exclude}}
    # in [axes.packages] each key that is not a cell's is a package
    of_packages = {**of_axes, "exclude": {"type": "array", "items": {**exclude, "additionalProperties": some}}}
    cell_names = {"pattern": f"^{NAME_PATTERN}$"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The cells of a matrix (pytest-cudalink)",
        "$defs": {key: _schema_of(spec) for key, spec in KEYS.items()},
        "type": "object",
        "properties": {
            "defaults": {"type": "object", "properties": values, "additionalProperties": False},
            "cells": {
                "type": "object",
                "propertyNames": cell_names,
                "additionalProperties": {"type": "object", "properties": values, "additionalProperties": False},
            },
            "axes": {
                "type": "object",
                "properties": {
                    "packages": {"type": "object", "properties": of_packages, "additionalProperties": several},
                },
                "additionalProperties": {"type": "object", "properties": of_axes, "additionalProperties": False},
            },
            "toolkits": {
                "type": "object",
                "description": "packages that make exactly one toolkit, where a project needs others than usual",
                "additionalProperties": {
                    "type": "object",
                    "properties": {"packages": {"type": "array", "items": {"type": "string"}}},
                    "required": ["packages"],
                    "additionalProperties": False,
                },
            },
        },
        "additionalProperties": False,
    }


def _packages(version: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a table of packages with the versions of each."""
    return {
        "type": "object",
        "propertyNames": {"pattern": f"^{PACKAGE_PATTERN}$"},
        "additionalProperties": version,
    }


def _schema_of(spec: CellKey) -> dict[str, Any]:
    match spec.kind:
        case "boolean":
            return {"description": spec.help, "type": "boolean"}
        case "table":
            return {"description": spec.help, "type": "object", "additionalProperties": {"type": "string"}}
        case "packages":
            requirements = {"type": "array", "items": {"type": "string"}}
            return {"description": spec.help, "anyOf": [requirements, _packages({"type": "string"})]}
        case "strings":
            items = {"type": "string", "pattern": spec.pattern} if spec.pattern else {"type": "string"}
            return {"description": spec.help, "type": "array", "items": items}
    if spec.fault is None:
        return {"description": spec.help, "enum": list(spec.words)}
    text: dict[str, Any] = {"type": "string"}
    if spec.pattern:
        text["pattern"] = spec.pattern
    if not spec.words:
        return {"description": spec.help, **text}
    return {"description": spec.help, "anyOf": [{"enum": list(spec.words)}, text]}
