"""``cudalink report``."""

from __future__ import annotations

import argparse
import fnmatch
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..report.safe_text import line
from .paths import input_file

if TYPE_CHECKING:
    from ..report.compare import Comparison
    from ..report.matrix_report import MatrixReport
    from ..report.views import Section

__all__ = ["DESCRIPTION", "configure", "run"]

#: The options that name a file to write.
_FORMS: Final = ("save", "html", "junit", "markdown")
#: How many damaged files and differing tests are named with a finding.
_NAMED: Final = 5

DESCRIPTION: Final = (
    "Merge the records of all cells into one report: on the terminal, and as HTML, Markdown and JUnit. In a GitHub job "
    "the Markdown also goes to the job's summary. FILE can be - for stdout. Exit code 1 if there is a finding of a "
    "kind that --fail-on names."
)


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
        "--cells",
        type=input_file("a file of cells", "`cudalink init` writes one"),
        metavar="FILE",
        help="file of cells; cells without records are reported as missing",
    )
    parser.add_argument("--tags", default="", metavar="TAG,…", help="expect records of these cells only (see --cells)")
    parser.add_argument(
        "--allow-missing",
        default="",
        metavar="CELL,…",
        help="cells that may have no records, as names or patterns such as '*-python-*'; they are listed (see --cells)",
    )
    parser.add_argument(
        "--skew",
        type=input_file("output of `cudalink skew --json`"),
        metavar="FILE",
        help="output of `cudalink skew --json`, to include",
    )
    parser.add_argument(
        "--fail-on",
        metavar="WORD,…",
        help="findings for exit code 1: regressions, failed, crashed, incomplete, violations, mismatch, "
        "skipped-everywhere, damaged, repeats, not-run, or none (default: damaged,repeats and, with --against, "
        "regressions, else failed,crashed,incomplete)",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")


def run(options: argparse.Namespace) -> int:
    """Merge and write; return exit code 1 for findings, 2 for a file or option that cannot be used."""
    from ..matrix import CellsError
    from ..report.compare import compare
    from ..report.merge import merge
    from ..report.records import RecordError

    default = "regressions,damaged,repeats" if options.against else "failed,crashed,incomplete,damaged,repeats"
    words = [word for word in (options.fail_on or default).split(",") if word != "none"]
    if fault := _option_fault(options, words):
        sys.stderr.write(f"cudalink report: {fault}\n")
        return 2
    try:
        report = _merged(options)
        comparison = compare(report, merge([options.against])) if options.against else None
        extra = _skew(options.skew) if options.skew else []
    except (RecordError, CellsError, OSError) as error:
        sys.stderr.write(f"cudalink report: {line(error)}\n")
        return 2
    written = _write(options, report, comparison, extra)
    found = _print_findings(report, comparison, words)
    return 2 if not written else 1 if found else 0


def _merged(options: argparse.Namespace) -> MatrixReport:
    """Return the report of the records, with what the file of cells and the runners say of each cell."""
    from ..matrix import load_cells, select
    from ..matrix.runner import notes
    from ..report.merge import merge
    from ..report.plan import Plan

    every = load_cells(options.cells) if options.cells else []
    report = merge(options.paths, [cell.name for cell in select(every, options.tags)])
    if options.cells and (strange := report.keep({cell.name for cell in every})):
        text = f"left out, because {options.cells} has no such cell: {', '.join(strange)}"
        sys.stderr.write(f"cudalink report: {line(text)}\n")
    report.allowed = _matching([cell.name for cell in every], options.allow_missing)
    report.reasons = notes(options.paths)
    report.plan = Plan({cell.name: cell.axes for cell in every}, {cell.name: cell.tests for cell in every})
    report.request(report.plan.axes)
    return report


def _print_findings(report: MatrixReport, comparison: Comparison | None, words: Sequence[str]) -> bool:
    """Print the findings of the kinds that ``--fail-on`` names; return whether there are any."""
    from ..report.compare import FAIL_ON, damage, findings
    from ..report.views import differing

    found = {word: number for word, number in findings(report, comparison).items() if word in words and number}
    named = {"damaged": damage(report, comparison), "repeats": [": ".join(one) for one in differing(report)]}
    for word, number in found.items():
        sys.stderr.write(f"cudalink report: {word}: {number} ({FAIL_ON[word]})\n")
        for text in named.get(word, ())[:_NAMED]:
            sys.stderr.write(f"  {line(text)}\n")
    return bool(found)


def _option_fault(options: argparse.Namespace, words: Sequence[str]) -> str:
    """Return what is wrong with the options together; empty if nothing is."""
    from ..report.compare import FAIL_ON

    if unknown := [word for word in words if word not in FAIL_ON]:
        return f"--fail-on {unknown[0]!r} is unknown; known: {', '.join(FAIL_ON)}, none"
    if "regressions" in words and not options.against:
        return "--fail-on regressions needs an older report: --against OLD"
    if options.tags and not options.cells:
        return "--tags needs a file of cells: --cells FILE"
    if options.allow_missing and not options.cells:
        return "--allow-missing needs a file of cells: --cells FILE"
    if len(given := _on_stdout(options)) > 1:
        return f"{' and '.join(given)} are both -, stdout; expected at most one; name a file"
    return ""


def _matching(names: list[str], patterns: str) -> set[str]:
    """Return the names that match one of the patterns, which are separated by commas."""
    from ..matrix import CellsError

    result: set[str] = set()
    for pattern in filter(None, map(str.strip, patterns.split(","))):
        if not (found := fnmatch.filter(names, pattern)):
            raise CellsError([f"--allow-missing {pattern!r} matches no cell; `cudalink matrix list` shows them"])
        result.update(found)
    return result


def _on_stdout(options: argparse.Namespace) -> list[str]:
    """Return the options that write to stdout."""
    return [f"--{name}" for name in _FORMS if str(getattr(options, name)) == "-"]


def _write(
    options: argparse.Namespace, report: MatrixReport, comparison: Comparison | None, extra: Sequence[Section]
) -> bool:
    """Write every form that is asked for; return whether all were written. One that fails keeps no other back."""
    from ..report import html, junit, text, whole_file

    @cache
    def markdown() -> str:
        return text.markdown(report, comparison, extra)

    forms: dict[str, Callable[[], str]] = {
        "save": report.as_json,
        "html": lambda: html.render(report, comparison, extra),
        "junit": lambda: junit.junit(report),
        "markdown": markdown,
    }
    problems = []
    for name, form in forms.items():
        path = getattr(options, name)
        if path is None:
            continue
        try:
            if str(path) == "-":
                _print_form(form())
            else:
                whole_file.write(path, form())
        except OSError as error:
            if str(path) == "-":
                raise  # as for all that goes to stdout
            problems.append(f"--{name} is {path}; it cannot be written: {error.strerror or error}; name another file")
        except ModuleNotFoundError as error:
            problems.append(f"--{name} needs {error.name}: pip install 'pytest-cudalink[report]'")
    problems += _write_summary(markdown)
    if not options.quiet and not _on_stdout(options):
        text.terminal(report, comparison, extra)
    for problem in problems:
        sys.stderr.write(f"cudalink report: {line(problem)}\n")
    return not problems


def _print_form(content: str) -> None:
    """Write a form to stdout as UTF-8, which the form says it is, whatever the encoding of the terminal."""
    encoded = content.encode("utf-8", errors="backslashreplace")
    sys.stdout.flush()
    stream = getattr(sys.stdout, "buffer", None)
    if stream is None:  # a replacement of sys.stdout that takes text only
        sys.stdout.write(encoded.decode("utf-8"))
    else:
        stream.write(encoded)
        stream.flush()


def _write_summary(markdown: Callable[[], str]) -> list[str]:
    """Append the Markdown to the summary of a GitHub job; return what is wrong."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return []
    try:
        with Path(path).open("a", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(markdown())
    except OSError as error:
        return [f"GITHUB_STEP_SUMMARY is {path}; it cannot be written: {error.strerror or error}"]
    return []


def _skew(path: Path) -> list[Section]:
    from .. import skew

    return skew.sections(skew.load(path))
