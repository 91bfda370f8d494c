"""The report for a terminal, and as Markdown for pull requests and job summaries."""

import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any, Final, Literal, TextIO

from ..base import safe_text
from ..base.safe_text import line
from ..base.words import and_more, columns
from .cell_run import BAD, GOOD, NAMES, NOT_RUN, CellRun
from .compare import KINDS, Comparison, Kind, figures, verdict
from .matrix_report import MatrixReport
from .origin import Origin
from .views import Section, letters_of, libraries_in_short, links_in_words, section, sections, unsteered

#: Columns of the lines that are sentences; tables are as wide as their texts.
_WIDTH: Final = 80
#: Characters of a commit that are shown.
_COMMIT: Final = 10
#: An address that can stand in a link of Markdown as it is.
_ADDRESS: Final = re.compile(r"https?://[A-Za-z0-9._~:/?#@!$&+,;=%-]+")
_KINDS: Final[dict[Kind, str]] = {"new": "new failure", "fixed": "fixed", "flaky": "flaky", "still": "still fails"}
#: Reports from which on their history says more than the differences from the one before.
_HISTORY: Final = 3
_ROWS = 20
#: Tests and cells that a block names, in Markdown and on a terminal.
_NAMED: Final = 50
_NAMED_BRIEFLY: Final = 10
#: Characters of a column that is printed without rich, before the columns after it are no longer in line.
_WIDEST = 60
#: Bytes; the limit of a GitHub job summary is 1 MiB.
_MARKDOWN_SIZE = 900_000
_COLOURS = {"P": "green", "D": "cyan", "F": "bold red", "E": "bold magenta", "C": "bold white on red", "S": "dim"}
#: Sections that are too long for a terminal; only the other forms show them.
_NOT_HERE = frozenset({"versions", "slowest", "cells", "verdicts"})


def headline(report: MatrixReport, comparison: Comparison | None = None) -> str:
    """Return the verdict with project and commit: ``"solver at 0123456789: 3 tests fail in every cell"``."""
    subject = _subject(report)
    words = line(verdict(report, comparison).what)
    return f"{subject}: {words}" if subject else words


def _subject(report: MatrixReport) -> str:
    """Return project and commit, as far as all cells agree on them."""
    origin = report.origin
    parts = [origin.project] if origin.project else []
    if "commit" in report.origins_differ:
        parts.append("at several commits")
    elif origin.commit:
        changed = " with changes" if origin.dirty else ""
        parts.append(f"at {origin.commit[:_COMMIT]}{changed}")
    return line(" ".join(parts))


def markdown(report: MatrixReport, comparison: Comparison | None = None) -> str:
    """Return the report as GitHub's Markdown, no longer than the limit of a job summary."""
    counts = [f"**{figure.number}** {safe_text.markdown(figure.text)}" for figure in figures(report, comparison)]
    parts = ["## Compatibility matrix", f"**{safe_text.markdown(headline(report, comparison))}**"]
    parts += [*_facts(report.origin), " · ".join(counts)]
    for table in [*_histories(comparison), *sections(report, comparison)]:
        lines = [f"### {safe_text.markdown(table.title)}", ""]
        if table.note:
            lines += [table.note, ""]
        if table.rows:
            lines.append("| " + " | ".join(map(safe_text.markdown, table.head)) + " |")
            lines.append("|" + "---|" * len(table.head))
            lines += ["| " + " | ".join(map(safe_text.markdown, row)) + " |" for row in table.rows]
        for block in table.blocks:  # each line begins with a word or with spaces, and so cannot end the fence
            lines += [f"**{safe_text.markdown(block.title)}**", "", "```text", *block.all_lines(_NAMED), "```", ""]
        if more := and_more(table.total - len(table.rows) - len(table.blocks)):
            lines += ["", f"…{more} {table.what}."]
        text = "\n".join(lines)
        if table.id in {"versions", "slowest"}:
            text = f"<details><summary>{table.title}</summary>\n\n{text}\n\n</details>"
        if sum(len(part.encode()) for part in (*parts, text)) > _MARKDOWN_SIZE:
            parts.append("… the rest is too long for a summary; see the HTML page.")
            break
        parts.append(text)
    return "\n\n".join(parts) + "\n"


def _facts(origin: Origin) -> list[str]:
    """Return branch, date and CI run as a line of Markdown; nothing where none of them is known."""
    facts = [f"branch {safe_text.markdown(origin.branch)}"] if origin.branch else []
    facts += [safe_text.markdown(origin.started)] if origin.started else []
    if origin.ci_url and _ADDRESS.fullmatch(origin.ci_url):
        facts.append(f"[CI run]({origin.ci_url})")
    return [" · ".join(facts)] if facts else []


def terminal(report: MatrixReport, comparison: Comparison | None = None, file: TextIO | None = None) -> None:
    """Print the report: with rich and on a terminal with colours, otherwise as `plain` returns it."""
    console = _console(file)
    if console is None:
        (file or sys.stdout).write(plain(report, comparison))
        return
    from rich.text import Text

    console.print(Text(headline(report, comparison), style="bold"))
    counts = [
        Text(f"{figure.number} {figure.text}", style="bold red" if figure.alarm else "")
        for figure in figures(report, comparison)
    ]
    console.print(Text(", ").join(counts))
    console.print(_grid(report))
    for table in [*_histories(comparison), *_brief(report, comparison)]:
        console.print()
        if table.blocks:
            title, *lines = _block_lines(table)
            console.print(Text("\n").join([Text(title, style="bold"), *map(Text, lines)]), soft_wrap=True)
        else:
            rows = [[Text(str(value)) for value in row] for row in table.rows[:_ROWS]]
            console.print(_table(table.title, table.head, rows))
        if more := and_more(table.total - _ROWS):
            console.print(f"…{more} {table.what}", style="dim")


def _console(file: TextIO | None) -> Any:
    """Return rich's console for a terminal; None without rich, and for a pipe: its text must not depend on rich."""
    if find_spec("rich") is None:
        return None
    from rich.console import Console

    console = Console(file=file, highlight=False)
    return console if console.is_terminal else None


def plain(report: MatrixReport, comparison: Comparison | None = None) -> str:
    """Return the report as plain text: columns under each other, each row on one line."""
    parts = _wrapped(headline(report, comparison))
    parts += _wrapped(", ".join(f"{figure.number} {figure.text}" for figure in figures(report, comparison)))
    shown = letters_of(report)
    parts += columns([_head(shown), *(_cells(cell, shown) for cell in report.cells)], _WIDEST)
    for table in [*_histories(comparison), *_brief(report, comparison)]:
        if table.blocks:
            parts += ["", *_block_lines(table)]
        else:
            values = [[str(value) for value in row] for row in table.rows[:_ROWS]]
            parts += [f"\n{table.title}", *columns([table.head, *values], _WIDEST)]
        if more := and_more(table.total - _ROWS):
            parts.append(f"…{more} {table.what}")
    return "\n".join(parts) + "\n"


def _brief(report: MatrixReport, comparison: Comparison | None) -> list[Section]:
    """Return the tables that a terminal has room for; the other forms show all of every table."""
    short: dict[str, Callable[[MatrixReport], Section]] = {
        "libraries": libraries_in_short,
        "unsteered": partial(unsteered, forced_only=True),
    }
    tables = [short[table.id](report) if table.id in short else table for table in sections(report, comparison)]
    return [table for table in tables if table.total and table.id not in _NOT_HERE]


def _block_lines(section: Section) -> list[str]:
    """Return the blocks of a section, each under its title; a line is as long as its text."""
    lines = [section.title]
    for block in section.blocks[:_ROWS]:
        lines += [block.title, *(f"  {text}" for text in block.all_lines(_NAMED_BRIEFLY))]
    return lines


def _histories(comparison: Comparison | None) -> Iterable[Section]:
    """Return the tables of a comparison with several older reports: the reports, and what changed over them."""
    if comparison is None or len(comparison.reports) < _HISTORY:
        return ()
    reports = [
        (step.name, (step.origin.commit or "")[:_COMMIT], step.origin.started or "", *_results(step.totals))
        for step in comparison.reports
    ]
    changes = [
        (_KINDS[kind], change.test, change.cell, change.letters) for kind in KINDS for change in comparison.of(kind)
    ]
    head = ("report", "commit", "began", "passed", "failed")
    tables = [section("reports", head, reports)]
    if changes:
        columns = ("what", "test", "cell", "oldest to newest")
        tables.append(section("history", columns, changes))
    return tables


def _results(totals: Mapping[str, int]) -> tuple[int, int]:
    """Return how many tests passed and how many failed."""
    return sum(totals.get(letter, 0) for letter in GOOD), sum(totals.get(letter, 0) for letter in BAD)


def _wrapped(text: str) -> list[str]:
    """Return a sentence as lines that fit a terminal."""
    return textwrap.wrap(text, _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _head(letters: Sequence[str]) -> list[str]:
    """Return the titles of the table of cells."""
    return ["cell", *(NAMES[letter] for letter in letters), "links", "seconds"]


def _cells(cell: CellRun, letters: Sequence[str]) -> list[str]:
    """Return the row of a cell in that table."""
    counts = cell.counts
    numbers = (str(counts[letter] or NOT_RUN) for letter in letters)
    return [line(cell.name), *numbers, links_in_words(cell), f"{cell.duration:.1f}"]


def _grid(report: MatrixReport) -> Any:
    """Return a table of the cells with their counts, the worst outcome first in each row."""
    from rich.text import Text

    present, rows = letters_of(report), []
    for cell in report.cells:
        bad = bool(set(cell.counts) & BAD or cell.fault)
        styles = ["bold" if bad else "", *(_COLOURS.get(letter, "") for letter in present), "", ""]
        texts = zip(_cells(cell, present), styles, strict=True)
        rows.append([Text(text, style="dim" if text == NOT_RUN else style) for text, style in texts])
    return _table("", _head(present), rows)


def _table(title: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> Any:
    """Return a table of rich; in one without a title, which is that of the cells, numbers stand at the right."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.header_style = "dim" if title else "bold"
    for name in head:
        overflow: Literal["fold", "ellipsis"] = "fold" if title or name == "cell" else "ellipsis"
        table.add_column(
            Text(name), overflow=overflow, justify="left" if title or name in ("cell", "links") else "right"
        )
    for row in rows:
        table.add_row(*row)
    return table
