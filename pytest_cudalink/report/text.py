"""The report for a terminal, and as Markdown for pull requests and job summaries."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, TextIO

from . import safe_text
from .cell_run import BAD, NOT_RUN, CellRun
from .compare import Comparison
from .matrix_report import MatrixReport
from .safe_text import line
from .views import NAMES, Section, links_in_words, sections, summary

__all__ = ["markdown", "plain", "terminal"]

_ROWS = 20
#: Characters of a column that is printed without rich, before the columns after it are no longer in line.
_WIDEST = 60
#: Bytes; the limit of a GitHub job summary is 1 MiB.
_MARKDOWN_SIZE = 900_000
_COLOURS = {"P": "green", "D": "cyan", "F": "bold red", "E": "bold magenta", "C": "bold white on red", "S": "dim"}
#: Sections that are too long for a terminal; only the other forms show them.
_NOT_HERE = frozenset({"versions", "slowest", "cells", "verdicts"})


def markdown(report: MatrixReport, comparison: Comparison | None = None, extra: Sequence[Section] = ()) -> str:
    """Return the report as GitHub's Markdown, no longer than the limit of a job summary."""
    figures = [f"**{number}** {safe_text.markdown(text)}" for number, text, _ in summary(report, comparison)]
    parts = ["## Compatibility matrix", " · ".join(figures)]
    for section in [*sections(report, comparison), *extra]:
        lines = [f"### {safe_text.markdown(section.title)}", ""]
        if section.note:
            lines += [section.note, ""]
        lines.append("| " + " | ".join(map(safe_text.markdown, section.head)) + " |")
        lines.append("|" + "---|" * len(section.head))
        lines += ["| " + " | ".join(map(safe_text.markdown, row)) + " |" for row in section.rows]
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


def terminal(
    report: MatrixReport,
    comparison: Comparison | None = None,
    extra: Sequence[Section] = (),
    file: TextIO | None = None,
) -> None:
    """Print the report with rich: colours and lines on a terminal, plain in a pipe; without rich always plain."""
    if find_spec("rich") is None:
        (file or sys.stdout).write(plain(report, comparison, extra))
        return
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


def plain(report: MatrixReport, comparison: Comparison | None = None, extra: Sequence[Section] = ()) -> str:
    """Return what `terminal` prints, without rich: columns under each other, each row on one line."""
    parts = [", ".join(f"{number} {text}" for number, text, _ in summary(report, comparison))]
    shown = _present(report)
    rows = [
        [line(cell.name), *(str(counts[one] or NOT_RUN) for one in shown), _links(cell), f"{cell.duration:.1f}"]
        for cell in report.cells
        for counts in [cell.counts]
    ]
    parts.append(_columns(["cell", *(NAMES[letter] for letter in shown), "links", "seconds"], rows))
    for section in [*sections(report, comparison), *extra]:
        if section.id not in _NOT_HERE:
            values = [[str(value) for value in row] for row in section.rows[:_ROWS]]
            parts += [f"\n{section.title}", _columns(section.head, values)]
            if section.total > _ROWS:
                parts.append(f"… and {section.total - _ROWS} more {section.what}")
    return "\n".join(parts) + "\n"


def _columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows as lines, with columns as wide as their values, but no wider than a limit."""
    widths = [min(_WIDEST, max(map(len, column))) for column in zip(head, *rows, strict=True)]
    lines = ("  ".join(one.ljust(width) for one, width in zip(row, widths, strict=True)) for row in (head, *rows))
    return "\n".join(one.rstrip() for one in lines)


def _present(report: MatrixReport) -> list[str]:
    """Return the letters of the outcomes that some cell has, the worst first."""
    counts = report.counts
    return [letter for letter in NAMES if counts[letter]]


def _links(cell: CellRun) -> str:
    return line(links_in_words(cell))


def _grid(report: MatrixReport) -> Any:
    """Return a table of the cells with their counts, the worst outcome first in each row."""
    from rich.table import Table
    from rich.text import Text

    present = _present(report)
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
            Text(line(cell.name), style="bold" if bad else ""), *numbers, Text(_links(cell)), f"{cell.duration:.1f}"
        )
    return table


def _table(section: Section) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=section.title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim"
    )
    for name in section.head:
        table.add_column(Text(name), overflow="fold")
    for row in section.rows[:_ROWS]:
        table.add_row(*(Text(str(value)) for value in row))
    return table
