"""The report for a terminal, and as Markdown for pull requests and job summaries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TextIO

from .cell_run import BAD, NOT_RUN
from .compare import Comparison
from .matrix_report import MatrixReport
from .views import NAMES, Section, links_in_words, sections, summary

__all__ = ["markdown", "terminal"]

_ROWS = 20
#: Bytes; the limit of a GitHub job summary is 1 MiB.
_MARKDOWN_SIZE = 900_000
_COLOURS = {"P": "green", "D": "cyan", "F": "bold red", "E": "bold magenta", "C": "bold white on red", "S": "dim"}
#: Sections that are too long for a terminal; only the other forms show them.
_NOT_HERE = frozenset({"versions", "slowest", "cells", "verdicts"})


def markdown(report: MatrixReport, comparison: Comparison | None = None, extra: Sequence[Section] = ()) -> str:
    """Return the report as GitHub's Markdown, no longer than the limit of a job summary."""
    figures = [f"**{number}** {text}" for number, text, _ in summary(report, comparison)]
    parts = ["## Compatibility matrix", " · ".join(figures)]
    for section in [*sections(report, comparison), *extra]:
        lines = [f"### {_escaped(section.title)}", ""]
        if section.note:
            lines += [section.note, ""]
        lines.append("| " + " | ".join(section.head) + " |")
        lines.append("|" + "---|" * len(section.head))
        lines += ["| " + " | ".join(_escaped(value) for value in row) + " |" for row in section.rows]
        if section.total > len(section.rows):
            lines += ["", f"… and {section.total - len(section.rows)} more {section.what}."]
        text = "\n".join(lines)
        if section.id in {"versions", "slowest"}:
            text = f"<details><summary>{section.title}</summary>\n\n{text}\n\n</details>"
        if sum(len(part.encode()) for part in (*parts, text)) > _MARKDOWN_SIZE:
            parts.append("… the rest is too long for a summary; see the HTML page.")
            break
        parts.append(text)
    return "\n\n".join(parts) + "\n"


def _escaped(value: object) -> str:
    text = str(value).replace("\\", "\\\\")
    for mark in "|<>`*_[]":
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())


def terminal(
    report: MatrixReport,
    comparison: Comparison | None = None,
    extra: Sequence[Section] = (),
    file: TextIO | None = None,
) -> None:
    """Print the report with rich: colours and lines on a terminal, plain in a pipe.

    Raises
    ------
    ModuleNotFoundError
        If rich is missing; ``pip install 'pytest-cudalink[report]'``.
    """
    from rich.console import Console
    from rich.text import Text

    console = Console(file=file, highlight=False)
    if not console.is_terminal:
        console = Console(file=file, highlight=False, width=160)
    figures = [
        Text(f"{number} {text}", style="bold red" if alarm else "")
        for number, text, alarm in summary(report, comparison)
    ]
    console.print(Text(", ").join(figures))
    console.print(_grid(report))
    for section in [*sections(report, comparison), *extra]:
        if section.id not in _NOT_HERE:
            console.print(_table(section))
            if section.total > _ROWS:
                console.print(f"… and {section.total - _ROWS} more {section.what}", style="dim")


def _grid(report: MatrixReport) -> Any:
    """Return a table of the cells with their counts, the worst outcome first in each row."""
    from rich.table import Table
    from rich.text import Text

    present = [letter for letter in NAMES if report.counts[letter]]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("cell", overflow="fold")
    for letter in present:
        table.add_column(NAMES[letter], justify="right")
    table.add_column("links")
    table.add_column("seconds", justify="right")
    for cell in report.cells:
        counts = cell.counts
        bad = bool(set(counts) & BAD or cell.fault)
        numbers = [
            Text(str(counts[one]) if counts[one] else NOT_RUN, style=_COLOURS.get(one, "") if counts[one] else "dim")
            for one in present
        ]
        table.add_row(
            Text(cell.name, style="bold" if bad else ""), *numbers, links_in_words(cell), f"{cell.duration:.1f}"
        )
    return table


def _table(section: Section) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=section.title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim"
    )
    for name in section.head:
        table.add_column(name, overflow="fold")
    for row in section.rows[:_ROWS]:
        table.add_row(*(Text(str(value)) for value in row))
    return table
