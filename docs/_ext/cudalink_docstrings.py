"""Fields of the API pages from what the code says once: annotations, lines of docstrings, comments behind fields."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from types import UnionType
from typing import Literal, Union, get_origin

from sphinx.application import Sphinx

#: A line of a docstring's last paragraph that says something of parameters, of the result, or of an error.
_ENTRY = re.compile(r"(`\w+`(?:, `\w+`)*): (.+)|(Returns|Yields|Warns) (.+)|Raises ([\w.]+(?:, [\w.]+)*) (.+)")


def split(text: str) -> tuple[str, list[re.Match[str]]]:
    """Return the prose of a docstring, and the entries of its last paragraph, each on one line."""
    prose, blank, last = text.rstrip().rpartition("\n\n")
    if not blank or not _ENTRY.match(last):
        return text, []
    lines: list[str] = []
    for line in last.splitlines():
        if _ENTRY.match(line):
            lines.append(line)
        else:
            lines[-1] += f" {line.strip()}"
    return prose, [entry for line in lines if (entry := _ENTRY.match(line))]


def _type(annotation: object, module: str) -> str:
    """An annotation as text; a name of a module for several types is replaced by them."""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    known = {name: a for name, a in vars(sys.modules[module]).items() if get_origin(a) in (Literal, UnionType, Union)}
    return re.sub(r"\w+", lambda match: str(known.get(match[0], match[0])), text).replace("typing.", "")


def _fields_of_call(kind: str, called: object, entries: list[re.Match[str]]) -> Iterator[str]:
    """The fields of a function or a constructor: every parameter, what is returned, what is raised."""
    parameters = {name: parameter for name, parameter in inspect.signature(called).parameters.items() if name != "self"}
    said = {name: entry[2] for entry in entries if entry[1] for name in re.findall(r"\w+", entry[1])}
    for name, parameter in parameters.items() if kind != "exception" else ():
        star = {parameter.VAR_POSITIONAL: r"\*", parameter.VAR_KEYWORD: r"\*\*"}.get(parameter.kind, "")
        yield f":param {star}{name}: {said.pop(name, '')}"
        if parameter.annotation is not parameter.empty:
            yield f":type {star}{name}: {_type(parameter.annotation, called.__module__)}"
    yield from (f":ivar {name}: {text}" for name, text in said.items())
    yield from (f":{entry[3]}: {entry[4]}" for entry in entries if entry[3])
    result = inspect.signature(called).return_annotation
    if kind in ("function", "method") and result not in (None, "None", inspect.Signature.empty):
        yield f":rtype: {_type(result, called.__module__)}"
    yield from (f":raises {entry[5]}: {entry[6]}" for entry in entries if entry[5])


def _fields_of_class(described: type) -> Iterator[str]:
    """The annotated names of a class, with the comments above or behind them."""
    lines = textwrap.dedent(inspect.getsource(described)).splitlines()
    (tree,) = ast.parse("\n".join(lines)).body
    fields = []
    for field in tree.body:
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and not field.target.id.startswith("_")
        ):
            comment = lines[field.end_lineno - 1][field.end_col_offset :].partition("  # ")[2]
            if not comment or comment.startswith(("noqa", "type:")):
                first = last = field.lineno - 1
                while lines[first - 1].strip().startswith("# "):
                    first -= 1
                comment = " ".join(line.strip()[2:] for line in lines[first:last])
            fields.append((field.target.id, ast.unparse(field.annotation), comment))
    if any(comment for *_, comment in fields):
        for name, annotation, comment in fields:
            yield f":ivar {name}: {comment}"
            yield f":vartype {name}: {_type(annotation, described.__module__)}"


def describe(_app: Sphinx, kind: str, _name: str, described: object, _options: object, lines: list[str]) -> None:
    """Put the fields of an object behind the prose of its docstring."""
    prose, entries = split("\n".join(lines))
    called = described.fget if isinstance(described, property) else described
    fields = list(_fields_of_call(kind, called, entries)) if entries and kind != "module" else []
    if kind in ("class", "exception"):
        fields += _fields_of_class(described)
    if fields:
        lines[:] = [*prose.splitlines(), "", *fields, ""]


def setup(app: Sphinx) -> dict[str, bool]:
    """Describe every object before other extensions see its docstring."""
    app.connect("autodoc-process-docstring", describe, priority=400)
    return {"parallel_read_safe": True}
