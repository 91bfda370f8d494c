"""``cudalink report``."""

import argparse
import fnmatch
import itertools
import os
import sys
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from ..base import regular_files
from ..base.install_command import install_command
from ..base.progress import progress
from ..base.regular_files import open_regular
from ..base.safe_text import complain, line
from ..matrix import CellsError, load_cells, runner
from ..report import html
from ..report import text as text_form
from ..report.compare import FAIL_ON, FAILING, FAILING_AGAINST, Comparison, damage, findings, history, in_order
from ..report.matrix_report import MatrixReport, Plan
from ..report.merge import merge
from ..report.records import RecordError
from ..report.views import differing
from .arguments import CommandError, append_summary, command_errors, input_file, tagged

#: The options that name a file to write.
_FORMS: Final = ("save", "html", "markdown")
#: How many damaged files and differing tests are named with a finding.
_NAMED: Final = 5
#: Where the cells of a project leave their records.
_RECORDS: Final = Path(".cudalink")
#: Where --open writes the page if no --html names a file.
_PAGE: Final = _RECORDS / "report.html"
#: How many folders with records are named, and how many entries of a folder are looked at for them.
_FOLDERS: Final = 5
_ENTRIES: Final = 200
#: How a line of a record file begins.
_RECORD: Final = b'{"event": '

DESCRIPTION: Final = (
    "Merge the records of all cells into one report: on the terminal, and as HTML and Markdown. In a GitHub job the "
    "Markdown also goes to the job's summary. FILE can be - for stdout; the text then goes to stderr. Exit code 1: "
    "there is a finding of a kind that --fail-on names."
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "paths",
        nargs="*",
        type=Path,
        default=[_RECORDS],
        metavar="DIR",
        help=f"merge these folders of records, files, or a saved report (default: {_RECORDS})",
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write one self-contained page")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write GitHub's Markdown")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the merged report, to compare with later")
    parser.add_argument(
        "--against",
        type=Path,
        metavar="OLD",
        action="append",
        default=[],
        help="compare with an older report or the folder of its records; of several, the newest decides which results "
        "are regressions",
    )
    parser.add_argument("--open", action="store_true", help=f"show the page in the browser; without --html: {_PAGE}")
    parser.add_argument(
        "--cells",
        type=input_file("a file of cells", "`cudalink init` writes one"),
        metavar="FILE",
        help="report the cells of this file that have no records as missing",
    )
    parser.add_argument("--tags", default="", metavar="TAG,…", help="expect records of these cells only (see --cells)")
    parser.add_argument(
        "--allow-missing",
        default="",
        metavar="CELL,…",
        help="only list these cells if they have no records, as names or patterns such as '*-python-*' (see --cells)",
    )
    parser.add_argument(
        "--fail-on",
        metavar="WORD,…",
        help="exit with 1 for these findings: regressions, failed, crashed, incomplete, violations, hostile, "
        "mismatch, skipped-everywhere, damaged, repeats, not-run, or none (default: damaged,repeats and, with "
        "--against, regressions, else failed,crashed,incomplete,violations,hostile)",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")


def run(options: argparse.Namespace) -> int:
    """Merge and write; return exit code 1 for findings, 2 for a file or option that cannot be used."""
    default = FAILING_AGAINST if options.against else FAILING
    given = [word.strip() for word in options.fail_on.split(",")] if options.fail_on else default
    words = [word for word in given if word and word != "none"]
    if fault := _option_fault(options, words):
        raise CommandError(fault)
    if options.open and options.html is None:
        options.html = _PAGE
    with command_errors(RecordError, CellsError, OSError):
        report = _merged(options)
        comparison = _compared(report, options.against)
    written = _write(options, report, comparison)
    failing = _print_findings(report, comparison, words)
    opened = not (options.open and written) or _open(options.html)
    return 2 if not (written and opened) else 1 if failing else 0


def _compared(report: MatrixReport, against: Sequence[Path]) -> Comparison | None:
    """Return the differences from the older reports; None without any."""
    if not against:
        return None
    with progress("reading the older reports", len(against)) as step:
        older = []
        for path in against:
            step.say(path.name)
            older.append((str(path), merge([path])))
            step.advance()
        return history([*in_order(older), ("this report", report)])


def _nearby(paths: Sequence[Path]) -> str:
    """Return which folders near the given paths, and near the working directory, have records; empty if none has."""
    folders: dict[str, None] = {}
    for path in (*paths, Path()):
        bases = [folder for folder in (path, path.parent) if folder.is_dir()]
        for folder in [inner for base in bases[:1] for inner in (base, *_folders(base))]:
            folders.update((str(place), None) for place in (folder, folder / ".cudalink") if _has_records(place))
    if not folders:
        return ""
    more = ", …" if len(folders) > _FOLDERS else ""
    return f"; records are in {', '.join([*folders][:_FOLDERS])}{more}"


def _folders(base: Path) -> Iterator[Path]:
    """Yield the folders in a folder, of its first entries."""
    with suppress(OSError), os.scandir(base) as entries:
        first = itertools.islice(entries, _ENTRIES)
        yield from sorted(Path(entry.path) for entry in first if entry.is_dir(follow_symlinks=False))


def _has_records(folder: Path) -> bool:
    """Return whether a folder has a record file among its first entries."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in itertools.islice(entries, _ENTRIES):
            if entry.name.endswith(".jsonl"):
                with suppress(OSError), open_regular(entry.path) as file:
                    if file.read(len(_RECORD)) == _RECORD:
                        return True
    return False


def _merged(options: argparse.Namespace) -> MatrixReport:
    """Return the report of the records, with what the file of cells and the runners say of each cell.

    Raises RecordError if a path has no records; the error names folders nearby that have some.
    """
    every = load_cells(options.cells) if options.cells else []
    expected = [cell.name for cell in tagged(every, options.tags, options.cells)]
    reasons = runner.notes(options.paths)
    if options.cells:
        reasons = {name: reason for name, reason in reasons.items() if name in expected}
    try:
        with progress("reading the records") as step:
            report = merge(options.paths, expected, progress=step.set, reasons=reasons)
    except RecordError as error:
        raise RecordError(f"{error}{_nearby(options.paths)}") from error
    if options.cells and (strange := report.keep({cell.name for cell in every})):
        text = f"left out, because {options.cells} has no such cell: {', '.join(strange)}"
        complain(f"cudalink report: {line(text)}")
    report.allowed = _matching([cell.name for cell in every], options.allow_missing)
    tests = {cell.name: [*runner.paths(cell.tests, Path())] for cell in every}
    report.plan = Plan({cell.name: cell.axes for cell in every}, tests)
    report.request(report.plan.axes)
    return report


def _print_findings(report: MatrixReport, comparison: Comparison | None, words: Sequence[str]) -> bool:
    """Print the findings of the kinds that ``--fail-on`` names; return whether there are any."""
    counts = {word: number for word, number in findings(report, comparison).items() if word in words and number}
    named = {"damaged": damage(report, comparison), "repeats": [": ".join(texts) for texts in differing(report)]}
    for word, number in counts.items():
        complain(f"cudalink report: {word}: {number} ({FAIL_ON[word]})")
        for text in named.get(word, ())[:_NAMED]:
            complain(f"  {line(text)}")
    return bool(counts)


def _option_fault(options: argparse.Namespace, words: Sequence[str]) -> str:
    """Return what is wrong with the options together; empty if nothing is."""
    if unknown := [word for word in words if word not in FAIL_ON]:
        return line(f"--fail-on {unknown[0]!r} is unknown; known: {', '.join(FAIL_ON)}, none")
    if "regressions" in words and not options.against:
        return "--fail-on regressions needs an older report: --against OLD"
    if options.tags and not options.cells:
        return "--tags needs a file of cells: --cells FILE"
    if options.allow_missing and not options.cells:
        return "--allow-missing needs a file of cells: --cells FILE"
    if len(given := _on_stdout(options)) > 1:
        return f"{' and '.join(given)} are both -, stdout; expected at most one; name a file"
    if options.open and "--html" in given:
        return "--open shows a file, and --html is -, stdout; name a file, or leave --html out"
    if (options.html or options.open) and find_spec("jinja2") is None:
        wanted = "--html" if options.html else "--open"
        remedy = install_command("pytest-cudalink[report]")
        return f"{wanted} needs jinja2, which is not installed; {remedy}"
    return ""


def _matching(names: list[str], patterns: str) -> set[str]:
    """Return the names that match one of the patterns, which are separated by commas."""
    result: set[str] = set()
    for pattern in filter(None, map(str.strip, patterns.split(","))):
        if not (matching := fnmatch.filter(names, pattern)):
            raise CellsError([f"--allow-missing {pattern!r} matches no cell; `cudalink matrix list` shows them"])
        result.update(matching)
    return result


def _on_stdout(options: argparse.Namespace) -> list[str]:
    """Return the options that write to stdout."""
    return [f"--{name}" for name in _FORMS if str(getattr(options, name)) == "-"]


def _write(options: argparse.Namespace, report: MatrixReport, comparison: Comparison | None) -> bool:
    """Write every form that is asked for; return whether all were written. One that fails keeps no other back."""

    @cache
    def markdown() -> str:
        return text_form.markdown(report, comparison)

    forms: dict[str, Callable[[], str]] = {
        "save": report.as_json,
        "html": lambda: html.render(report, comparison),
        "markdown": markdown,
    }
    problems: list[str] = []
    on_stdout = ""
    with progress("writing the report") as step:
        for name, form in forms.items():
            path = getattr(options, name)
            if path is None:
                continue
            step.say(name)
            content = form()
            if str(path) == "-":
                on_stdout = content
                continue
            try:
                if path == _PAGE:
                    path.parent.mkdir(exist_ok=True)
                regular_files.write_whole(path, content)
            except OSError as error:
                why = error.strerror or error
                problems.append(f"--{name} is {path}; it cannot be written: {why}; name another file")
        problems += append_summary(markdown)
    if _on_stdout(options):
        _print_form(on_stdout)
    if not options.quiet:
        text_form.terminal(report, comparison, sys.stderr if _on_stdout(options) else None)
    for problem in problems:
        complain(f"cudalink report: {line(problem)}")
    return not problems


def _open(page: Path) -> bool:
    """Show a page in the browser; return whether there is one."""
    if webbrowser.open(page.resolve().as_uri()):
        return True
    text = f"--open finds no browser; the page is {page}; open it yourself, or name a browser: BROWSER=firefox"
    complain(f"cudalink report: {line(text)}")
    return False


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
