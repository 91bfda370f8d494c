"""``cudalink report``."""

from __future__ import annotations

import argparse
import fnmatch
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ..report.compare import Comparison
    from ..report.matrix_report import MatrixReport
    from ..report.views import Section

__all__ = ["DESCRIPTION", "configure", "run"]

DESCRIPTION: Final = (
    "Merge the records of all cells into one report: on the terminal, and as HTML, Markdown and JUnit. In a GitHub job "
    "the Markdown also goes to the job's summary. Exit code 1 if there is a finding of a kind that --fail-on names."
)


class _NoSuchCellError(ValueError):
    """A name in an option that is that of no cell."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "paths", nargs="+", type=Path, metavar="DIR", help="folders of records, files, or a saved report"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write one self-contained page")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write GitHub's Markdown")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write JUnit XML, a suite for each cell")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the merged report, to compare with later")
    parser.add_argument("--against", type=Path, metavar="OLD", help="an older report or its folder, to compare with")
    parser.add_argument(
        "--cells", type=Path, metavar="FILE", help="file of cells; cells without records are reported as missing"
    )
    parser.add_argument("--tags", default="", metavar="TAG,…", help="expect records of these cells only (see --cells)")
    parser.add_argument(
        "--allow-missing",
        default="",
        metavar="CELL,…",
        help="cells that may have no records, as names or patterns such as '*-python-*'; they are listed (see --cells)",
    )
    parser.add_argument("--skew", type=Path, metavar="FILE", help="output of `cudalink skew --json`, to include")
    parser.add_argument(
        "--fail-on",
        metavar="WORD,…",
        help="findings for exit code 1: regressions, failed, crashed, incomplete, violations, mismatch, "
        "skipped-everywhere, not-run, or none (default: with --against regressions, else failed,crashed,incomplete)",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")


def run(options: argparse.Namespace) -> int:
    """Merge and write; return exit code 1 for findings, 2 for a file or option that cannot be used."""
    from ..matrix import CellsError, load_cells, select
    from ..matrix.runner import notes
    from ..report.compare import FAIL_ON, compare, findings
    from ..report.merge import merge
    from ..report.plan import Plan
    from ..report.records import RecordError

    default = "regressions" if options.against else "failed,crashed,incomplete"
    words = [word for word in (options.fail_on or default).split(",") if word != "none"]
    if unknown := [word for word in words if word not in FAIL_ON]:
        sys.stderr.write(f"cudalink report: --fail-on {unknown[0]!r} is unknown; known: {', '.join(FAIL_ON)}, none\n")
        return 2
    if "regressions" in words and not options.against:
        sys.stderr.write("cudalink report: --fail-on regressions needs an older report: --against OLD\n")
        return 2
    if options.tags and not options.cells:
        sys.stderr.write("cudalink report: --tags needs a file of cells: --cells FILE\n")
        return 2
    if options.allow_missing and not options.cells:
        sys.stderr.write("cudalink report: --allow-missing needs a file of cells: --cells FILE\n")
        return 2
    try:
        every = load_cells(options.cells) if options.cells else []
        cells = select(every, options.tags)
        report = merge(options.paths, [cell.name for cell in cells])
        if options.cells and (strange := report.keep({cell.name for cell in every})):
            names = ", ".join(strange)
            sys.stderr.write(f"cudalink report: left out, because {options.cells} has no such cell: {names}\n")
        report.allowed = _matching([cell.name for cell in every], options.allow_missing)
        report.reasons = notes(options.paths)
        report.request({cell.name: cell.axes for cell in every})
        report.plan = Plan({cell.name: cell.axes for cell in every}, {one.name: one.values["tests"] for one in every})
        comparison = compare(report, merge([options.against])) if options.against else None
        _write(options, report, comparison)
    except (RecordError, CellsError, OSError, _NoSuchCellError) as error:
        sys.stderr.write(f"cudalink report: {error}\n")
        return 2
    except ModuleNotFoundError as error:
        sys.stderr.write(f"cudalink report: {error.name} is not installed; pip install 'pytest-cudalink[report]'\n")
        return 2
    found = {word: number for word, number in findings(report, comparison).items() if word in words and number}
    for word, number in found.items():
        sys.stderr.write(f"cudalink report: {word}: {number} ({FAIL_ON[word]})\n")
    return 1 if found else 0


def _matching(names: list[str], patterns: str) -> set[str]:
    """Return the names that match one of the patterns, which are separated by commas."""
    result: set[str] = set()
    for pattern in filter(None, map(str.strip, patterns.split(","))):
        if not (found := fnmatch.filter(names, pattern)):
            msg = f"--allow-missing {pattern!r} matches no cell; `cudalink matrix list` shows them"
            raise _NoSuchCellError(msg)
        result.update(found)
    return result


def _write(options: argparse.Namespace, report: MatrixReport, comparison: Comparison | None) -> None:
    from ..report import html, junit, text

    extra = _skew(options.skew) if options.skew else []
    if options.save:
        report.save(options.save)
    if options.html:
        options.html.write_text(html.render(report, comparison, extra), encoding="utf-8")
    if options.junit:
        options.junit.write_text(junit.junit(report), encoding="utf-8")
    written = text.markdown(report, comparison, extra)
    if options.markdown:
        options.markdown.write_text(written, encoding="utf-8")
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(summary).open("a", encoding="utf-8") as stream:
            stream.write(written)
    if not options.quiet:
        text.terminal(report, comparison, extra)


def _skew(path: Path) -> list[Section]:
    from .. import skew

    return skew.sections(skew.load(path))
