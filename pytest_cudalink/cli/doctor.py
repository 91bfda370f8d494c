"""``cudalink doctor``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ..guardrails.doctor import DoctorReport

__all__ = ["DESCRIPTION", "configure", "run"]

DESCRIPTION: Final = (
    "The parts of CUDA in this environment, whether they fit together, and what repairs them. Exit code 0: coherent, "
    "1: incoherent, 2: not enough is known."
)

_MARKS: Final = {
    "compatible": "ok",
    "incompatible": "NO",
    "insufficient_metadata": "?",
    "incoherent": "NO",
    "unknown": "?",
    "warning": "!",
    "note": "-",
}
_COLOURS: Final = {"ok": "green", "NO": "bold red", "?": "yellow", "!": "yellow", "-": "dim"}

#: More columns than any table needs.
_ANY_WIDTH: Final = 100_000

#: A title, the heads of its columns, and its rows.
Table = tuple[str, tuple[str, ...], list[tuple[str, ...]]]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--ctk-version", metavar="SPECIFIER", help="the CUDA releases that are wanted: '>=13.2,<14'")


def run(options: argparse.Namespace) -> int:
    """Examine and report; exit code 2 also for an invalid option."""
    from ..guardrails import doctor

    try:
        report = doctor.examine(options.ctk_version)
    except (ValueError, RuntimeError) as error:
        sys.stderr.write(f"cudalink doctor: {error}\n")
        return 2
    if options.json:
        sys.stdout.write(json.dumps(report.as_json(), indent=1) + "\n")
    elif not _in_colour(report):
        sys.stdout.write("".join(f"{line}\n" for line in _plain(report)))
    return report.exit_code


def _tables(report: DoctorReport) -> Iterator[Table]:
    """The page as tables; the same for a pipe and for a terminal."""
    driver = report.driver
    version = f"CUDA {driver['version']}" if driver["version"] else "none"
    rows: list[tuple[str, ...]] = [("CUDA version", version, driver["witness"] or "")]
    if driver["version"]:
        rows += [
            ("release", driver["release"] or "unknown", driver["release_witness"] or ""),
            ("kind", driver["kind"] or "unknown", driver["path"] or ""),
            ("device", driver["arch"] or "none", ""),
        ]
    yield "Driver", ("fact", "value", "where it was read"), rows
    items: list[tuple[str, ...]] = [
        (item.label, str(item.version or "unknown"), item.found_via, item.path, item.witness) for item in report.items
    ]
    yield "Toolkit", ("item", "CUDA", "found via", "path", "version read from"), items
    if report.missing:
        yield "Not found", ("items",), [(", ".join(report.missing),)]
    copies: list[tuple[str, ...]] = [
        (copy.name, str(copy.version or "unknown"), copy.role, copy.path) for copy in report.copies
    ]
    yield "Copies loaded, or first for the loader", ("library", "CUDA", "where", "path"), copies
    yield "Rules", ("", "rule", "verdict"), list(_rules(report))
    links: list[tuple[str, ...]] = [(link.policy, link.kind, link.backend, link.why) for link in report.links]
    yield "Links", ("policy", "input", "backend", "why"), links
    findings: list[tuple[str, ...]] = [
        (
            _MARKS[finding.severity],
            finding.text,
            finding.fix,
            f"or {finding.otherwise}" if finding.fix and finding.otherwise else finding.otherwise,
        )
        for finding in report.findings
    ]
    yield "Findings", ("", "what", "repaired by", "otherwise"), findings


def _rules(report: DoctorReport) -> Iterator[tuple[str, ...]]:
    """One row for each rule that holds, and for each different failure; --json has every verdict."""
    groups: dict[tuple[str, str], list[str]] = {}
    for verdict in report.rules:
        several = verdict.rule == "driver" or verdict.status == "compatible"
        key = "" if several else verdict.message
        groups.setdefault((verdict.rule, _MARKS[verdict.status] + key), []).append(verdict.message)
    for (rule, marked), messages in groups.items():
        mark = next(mark for mark in ("ok", "NO", "?") if marked.startswith(mark))
        more = f" (and {len(messages) - 1} more)" if len(messages) > 1 else ""
        yield mark, rule, f"{messages[0]}{more}"


def _plain(report: DoctorReport) -> Iterator[str]:
    """The page as aligned text; the last column is not padded, and repairs are on separate lines."""
    for title, _, rows in _tables(report):
        yield title
        if not rows:
            yield "  none"
        if title == "Findings":
            for mark, text, *repairs in rows:
                yield f"  {mark:<2} {text}"
                yield from (f"     {repair}" for repair in repairs if repair)
        else:
            yield from _aligned(rows)
        yield ""
    yield f"Verdict: {report.verdict}"


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)]
        yield f"  {'  '.join(cells)}".rstrip()


def _stacked(rows: Sequence[tuple[str, ...]], width: int) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """For each row the padded cells of its first line, and the cells below it, one on each line.

    Paths, commands and other cells on the right are not cut, so that they can be copied: cells without room go below.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    beside = max((n for n in range(len(widths) + 1) if sum(widths[:n]) + 2 * n <= width), default=0)
    beside = max(beside, min(2, len(widths)))  # a mark is never alone on its line
    for row in rows:
        padded = (f"{cell:<{size}}" for cell, size in zip(row[:beside], widths, strict=False))
        yield tuple(padded), tuple(filter(None, row[beside:]))


def _in_colour(report: DoctorReport) -> bool:
    """Print with rich, as tables where they have room; False without a terminal or without rich."""
    if not sys.stdout.isatty():
        return False
    try:
        from rich.console import Console
        from rich.table import Table as RichTable
        from rich.text import Text
    except ImportError:
        return False
    console: Any = Console()
    for title, heads, rows in _tables(report):
        if not rows:
            console.print(Text(f"{title}: none"))
            continue
        table: Any = RichTable(*heads, title=title, title_justify="left", title_style="bold")
        for row in rows:
            table.add_row(*(Text(cell, style=_COLOURS.get(cell, "") if at == 0 else "") for at, cell in enumerate(row)))
        if console.measure(table, options=console.options.update(max_width=_ANY_WIDTH)).maximum <= console.width:
            console.print(table)
            continue
        console.print(Text(title, style="bold"))
        for beside, below in _stacked(rows, console.width):
            line = Text("  ").join(
                Text(cell, style=_COLOURS.get(cell.strip(), "") if at == 0 else "") for at, cell in enumerate(beside)
            )
            line.rstrip()
            console.print(Text("  ").append_text(line), soft_wrap=True)
            for cell in below:
                console.print(Text(f"     {cell}"), soft_wrap=True)
        console.print()
    style = ("bold green", "bold red", "bold yellow")[report.exit_code]
    console.print(Text(f"Verdict: {report.verdict}", style=style))
    return True
