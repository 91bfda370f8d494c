"""The report as one HTML page that loads nothing from a network."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from ..base.safe_text import block, line
from ..base.words import counted
from .cell_run import BAD, GOOD, NOT_RUN
from .compare import KINDS, Comparison
from .matrix_report import MatrixReport
from .page_parts import (
    CELL_STATES,
    badge,
    cells,
    css,
    facts,
    failures,
    kept_columns,
    state_of,
    versions,
)
from .verdict import SYMBOLS, figures, verdict
from .views import NAMES, Section, cell_title, sections
from .wording import explanation

#: Characters of failure texts that a page carries; the records have the rest.
_TEXTS: Final = 8_000_000
#: Sections below the grid, in this order.
_LATER: Final = {"cells": 1, "versions": 2, "libraries": 3, "slowest": 4}
#: Tables with at most so many columns share a line with another one on a wide window.
_SMALL: Final = 3
#: Sections that need the whole width.
_WIDE: Final = frozenset({"causes", "findings", "some", "everywhere", "gpu", "cells", "versions"})
#: Changes of one kind that the page lists.
_CHANGES: Final = 100


def render(
    report: MatrixReport,
    comparison: Comparison | None = None,
) -> str:
    """Return the report as the text of one HTML page.

    Raises ModuleNotFoundError if jinja2 is missing; ``pip install 'pytest-cudalink[report]'``.
    """
    template = _template()
    from markupsafe import Markup

    names = {test: position for position, test in enumerate(report.tests)}
    columns = {cell.name: position for position, cell in enumerate(report.cells)}
    # inside <script>, only the end of the element must not occur
    data = json.dumps(_data(report, names, columns, comparison), separators=(",", ":")).replace("<", "\\u003c")
    axes: dict[str, dict[str, None]] = {}
    for cell in report.cells:
        for name, value in cell.axes.items():
            axes.setdefault(line(name), {})[line(value)] = None
    longest = max((len(cell.name) for cell in report.cells), default=0)
    judged = verdict(report, comparison)
    counts = report.counts
    lacking = sum(row.count(NOT_RUN) for row in report.grid)
    project = line(report.origin.project or "")
    found = sections(report, comparison)
    return str(
        template.render(
            title="Compatibility matrix" + (f" of {project}" if project else ""),
            subtitle=f"{counted(len(report.tests), 'test')} in {counted(len(report.cells), 'cell')}",
            verdict={"level": judged.level, "symbol": SYMBOLS[judged.level], "words": line(judged.words)},
            facts=facts(report.origin, report.origins_differ),
            chips=[
                {**asdict(one), "css": css(one.shows[len("has=")]) if one.shows.startswith("has=") else ""}
                for one in figures(report, comparison)
                if one.number
            ],
            sections=_placed(found, {"test": names, "cell": columns}),
            failures=failures(report, names),
            cells=cells(report),
            versions=versions(report),
            history=_history(comparison, names, columns) if comparison is not None else None,
            letters=[badge(letter, counts[letter]) for letter in NAMES],
            not_run=lacking,
            states=[badge(letter) for letter in CELL_STATES],
            axes=[{"name": name, "options": sorted(values)} for name, values in axes.items() if len(values) > 1],
            header_height=min(320, 24 + 8 * longest),
            version=_version(),
            data=Markup(data),  # noqa: S704 (JSON without a "<")
        )
    )


def _placed(found: Sequence[Section], places: Mapping[str, Mapping[str, int]]) -> list[dict[str, Any]]:
    """Return the tables with the columns that have values, two small ones side by side.

    Each row has the positions of the test and the cell that it names, so that the page can filter it.
    """
    shown = {head: {line(name): number for name, number in at.items()} for head, at in places.items()}
    result: list[dict[str, Any]] = []
    small: dict[str, Any] | None = None
    for one in sorted(found, key=lambda section: _LATER.get(section.id, 0)):
        kept = kept_columns(one)
        rows = [
            {
                "values": [(one.head[number], row[number]) for number in kept],
                **{head: at.get(str(named.get(head))) for head, at in shown.items()},
            }
            for row in one.rows
            for named in [dict(zip(one.head, row, strict=True))]
        ]
        table = {
            "id": one.id,
            "title": one.title,
            "note": one.note,
            "head": [one.head[number] for number in kept],
            "rows": rows,
            "total": one.total,
            "what": one.what,
            "later": one.id in _LATER,
            "half": False,
        }
        result.append(table)
        fits = len(kept) <= _SMALL and one.id not in _WIDE
        if fits and small is not None and small["later"] == table["later"]:
            table["half"] = small["half"] = True
            small = None
        else:
            small = table if fits else None
    return result


def _history(found: Comparison, names: Mapping[str, int], columns: Mapping[str, int]) -> dict[str, Any]:
    """Return the earlier reports and the changes since, by kind."""
    changes = {kind: found.of(kind) for kind in KINDS}
    return {
        "steps": [
            {
                "name": line(step.name),
                "facts": [one for one in facts(step.origin, ()) if one["name"] in ("commit", "date")],
                "totals": [badge(letter, step.totals[letter]) for letter in NAMES if step.totals.get(letter)],
            }
            for step in found.reports
        ],
        "kinds": [
            {
                "kind": kind,
                "meaning": KINDS[kind],
                "number": len(rows),
                "rows": [
                    {
                        "test": line(one.test),
                        "cell": line(one.cell),
                        "at": (names.get(one.test), columns.get(one.cell)),
                        "letters": [badge(letter) for letter in one.letters],
                    }
                    for one in rows[:_CHANGES]
                ],
            }
            for kind, rows in changes.items()
            if rows
        ],
    }


@cache
def _template() -> Any:
    """Return the compiled template of the page."""
    import jinja2

    text = (Path(__file__).parent / "page.html.jinja").read_bytes().decode()
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(text)


def _version() -> str:
    try:
        return metadata.version("pytest-cudalink")
    except metadata.PackageNotFoundError:
        return ""


def _data(
    report: MatrixReport, index: Mapping[str, int], columns: Mapping[str, int], comparison: Comparison | None
) -> dict[str, Any]:
    """Return the data of the grid; equal texts are stored once."""
    texts: dict[str, int] = {"": 0}
    room = _TEXTS

    def number(text: str) -> int:
        nonlocal room
        if text not in texts and len(text) > room:
            text = "(left out to keep this page small; see the records)"
        if text not in texts:
            room -= len(text)
        return texts.setdefault(text, len(texts))

    details: dict[int, dict[int, tuple[int, int, int]]] = {}
    gpu: dict[int, list[int]] = {}
    for column, (cell, causes) in enumerate(zip(report.cells, report.causes, strict=True)):
        for test, detail in cell.details.items():
            cause = causes.get(test)
            reason, lines = number(block(detail.reason)), explanation(cause) if cause is not None else ""
            details.setdefault(index[test], {})[column] = reason, number(block(detail.text)), number(lines)
            if cause is not None and cause["kind"] == "not_emulated":
                gpu.setdefault(index[test], []).append(column)
    changes: dict[str, dict[int, list[int]]] = {}
    for kind in KINDS:
        for one in comparison.of(kind) if comparison is not None else ():
            if one.test in index and one.cell in columns:
                changes.setdefault(kind, {}).setdefault(index[one.test], []).append(columns[one.cell])
    return {
        "cells": [
            {
                "name": line(cell.name),
                "states": "".join(one["letter"] for one in state_of(cell)),
                "axes": {line(name): line(value) for name, value in cell.axes.items()},
                "title": line(cell_title(cell)),
            }
            for cell in report.cells
        ],
        "tests": [line(test) for test in report.tests],
        "grid": report.grid,
        "letters": NAMES,
        "states": CELL_STATES,
        "css": {letter: css(letter) for letter in (*NAMES, *CELL_STATES)},
        "changes": changes,
        "gpu": gpu,
        "bad": sorted(BAD),
        "good": sorted(GOOD),
        "details": details,
        "texts": list(texts),
        "why": {index[one.test]: line(one.explanation) for one in report.partial},
    }
