"""The report as one HTML page that loads nothing from anywhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from .cell_run import BAD, GOOD, UNKNOWN
from .compare import Comparison
from .matrix_report import MatrixReport
from .safe_text import block, line
from .views import NAMES, Section, cell_title, letters, sections, summary
from .wording import counted

__all__ = ["render"]

#: Characters of failure texts that a page carries; the records have the rest.
_TEXTS: Final = 8_000_000
#: Sections below the grid.
_LATER: Final = ("cells", "versions", "slowest", "skew")


def render(
    report: MatrixReport, comparison: Comparison | None = None, extra: Sequence[Section] = (), title: str = ""
) -> str:
    """Return the report as the text of one HTML page.

    Parameters
    ----------
    extra : sequence of Section
        Further tables, such as the measured compatibility of `pytest_cudalink.skew`.

    Raises
    ------
    ModuleNotFoundError
        If jinja2 is missing; ``pip install 'pytest-cudalink[report]'``.
    """
    template = _template()
    from markupsafe import Markup

    # inside <script>, only the end of the element must not occur
    data = json.dumps(_data(report), separators=(",", ":")).replace("<", "\\u003c")
    axes: dict[str, dict[str, None]] = {}
    for cell in report.cells:
        for name, value in cell.axes.items():
            axes.setdefault(line(name), {})[line(value)] = None
    longest = max((len(cell.name) for cell in report.cells), default=0)
    return str(
        template.render(
            title=line(title) or "Compatibility matrix",
            subtitle=f"{counted(len(report.tests), 'test')} in {counted(len(report.cells), 'cell')}",
            figures=[
                {"number": number, "text": text, "alarm": alarm} for number, text, alarm in summary(report, comparison)
            ],
            sections=[*sections(report, comparison), *extra],
            letters=[
                {"letter": letter, "name": NAMES[letter], "css": _css(letter), "colour": _colour(letter)}
                for letter in letters(report)
            ],
            axes=[{"name": name, "options": sorted(values)} for name, values in axes.items() if len(values) > 1],
            header_height=min(320, 24 + 8 * longest),
            version=_version(),
            later=_LATER,
            data=Markup(data),  # noqa: S704 (JSON without a "<")
        )
    )


@cache
def _template() -> Any:
    """Return the compiled template of the page."""
    import jinja2

    text = (Path(__file__).parent / "page.html.jinja").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=False)
    return environment.from_string(text)


def _colour(letter: str) -> str:
    """Return the name of a letter's colours in the style sheet."""
    return "unknown" if letter == UNKNOWN else letter


def _css(letter: str) -> str:
    """Return a separate class for each letter; x and X would be the same class where case is ignored."""
    return f"o-{letter}-low" if letter.islower() else f"o-{_colour(letter)}"


def _version() -> str:
    try:
        return metadata.version("pytest-cudalink")
    except metadata.PackageNotFoundError:
        return ""


def _data(report: MatrixReport) -> dict[str, Any]:
    """Return the data of the grid; equal texts are stored once."""
    texts: dict[str, int] = {"": 0}
    room = _TEXTS

    def number(text: str) -> int:
        nonlocal room
        if text not in texts:
            if len(text) > room:
                text = "(left out to keep this page small; see the records)"
            if text not in texts:
                room -= len(text)
                texts[text] = len(texts)
        return texts[text]

    index = {test: position for position, test in enumerate(report.tests)}
    details: dict[int, dict[int, tuple[int, int]]] = {}
    for column, cell in enumerate(report.cells):
        for test, detail in cell.details.items():
            details.setdefault(index[test], {})[column] = (number(block(detail.reason)), number(block(detail.text)))
    return {
        "cells": [
            {
                "name": line(cell.name),
                "axes": {line(name): line(value) for name, value in cell.axes.items()},
                "title": line(cell_title(cell)),
            }
            for cell in report.cells
        ],
        "tests": [line(test) for test in report.tests],
        "grid": report.grid,
        "letters": NAMES,
        "css": {letter: _css(letter) for letter in NAMES},
        "bad": sorted(BAD),
        "good": sorted(GOOD),
        "details": details,
        "texts": list(texts),
        "why": {index[one.test]: line(one.explanation) for one in report.partial},
    }
