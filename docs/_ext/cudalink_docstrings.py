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
    return prose, [found for line in lines if (found := _ENTRY.match(line))]


def _type(annotation: object, module: str) -> str:
    """An annotation as text; a name of a module for several types is replaced by them."""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    known = {
        name: one for name, one in vars(sys.modules[module]).items() if get_origin(one) in (Literal, UnionType, Union)
    }
    return re.sub(r"\w+", lambda found: str(known.get(found[0], found[0])), text).replace("typing.", "")


def _fields_of_call(what: str, called: object, entries: list[re.Match[str]]) -> Iterator[str]:
    """The fields of a function or a constructor: every parameter, what is returned, what is raised."""
    parameters = {name: one for name, one in inspect.signature(called).parameters.items() if name != "self"}
    said = {name: found[2] for found in entries if found[1] for name in re.findall(r"\w+", found[1])}
    for name, one in parameters.items() if what != "exception" else ():
        star = {one.VAR_POSITIONAL: r"\*", one.VAR_KEYWORD: r"\*\*"}.get(one.kind, "")
        yield f":param {star}{name}: {said.pop(name, '')}"
        if one.annotation is not one.empty:
            yield f":type {star}{name}: {_type(one.annotation, called.__module__)}"
    yield from (f":ivar {name}: {text}" for name, text in said.items())
    yield from (f":{found[3]}: {found[4]}" for found in entries if found[3])
    result = inspect.signature(called).return_annotation
    if what in ("function", "method") and result not in (None, "None", inspect.Signature.empty):
        yield f":rtype: {_type(result, called.__module__)}"
    yield from (f":raises {found[5]}: {found[6]}" for found in entries if found[5])


def _fields_of_class(described: type) -> Iterator[str]:
    """The annotated names of a class, with the comments above or behind them."""
    lines = textwrap.dedent(inspect.getsource(described)).splitlines()
    (tree,) = ast.parse("\n".join(lines)).body
    fields = []
    for one in tree.body:
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and not one.target.id.startswith("_"):
            comment = lines[one.end_lineno - 1][one.end_col_offset :].partition("  # ")[2]
            if not comment or comment.startswith(("noqa", "type:")):
                first = last = one.lineno - 1
                while lines[first - 1].strip().startswith("# "):
                    first -= 1
                comment = " ".join(line.strip()[2:] for line in lines[first:last])
            fields.append((one.target.id, ast.unparse(one.annotation), comment))
    if any(comment for *_, comment in fields):
        for name, annotation, comment in fields:
            yield f":ivar {name}: {comment}"
            yield f":vartype {name}: {_type(annotation, described.__module__)}"


def describe(_app: Sphinx, what: str, _name: str, described: object, _options: object, lines: list[str]) -> None:
    """Put the fields of an object behind the prose of its docstring."""
    prose, entries = split("\n".join(lines))
    called = described.fget if isinstance(described, property) else described
    fields = list(_fields_of_call(what, called, entries)) if entries and what != "module" else []
    if what in ("class", "exception"):
        fields += _fields_of_class(described)
    if fields:
        lines[:] = [*prose.splitlines(), "", *fields, ""]


def setup(app: Sphinx) -> dict[str, bool]:
    """Describe every object before other extensions see its docstring."""
    app.connect("autodoc-process-docstring", describe, priority=400)
    return {"parallel_read_safe": True}
