"""``cudalink doctor``."""

from __future__ import annotations

import argparse
import json
import os
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ..base.safe_text import BLOCK_LIMIT
from ..base.safe_text import line as safe
from ..base.tables import grouped
from ..base.words import and_more, columns, counted
from .arguments import command_errors

if TYPE_CHECKING:
    from ..base.finding import Finding
    from ..base.install_command import Command
    from ..doctor import DoctorReport, FindingCause, PredictedLink
    from ..guardrails import Verdict

DESCRIPTION: Final = (
    "Check whether the CUDA parts of this environment fit together and fit the driver, and show how to repair them. "
    "The verdict comes first, then one line for each cause. A machine without a driver is coherent if its toolkit is, "
    "and if what links at run time has a usable nvJitLink. Exit code 0: coherent, 1: incoherent, 2: not enough is "
    "known, or an option is invalid."
)

_MARKS: Final = {
    "compatible": "ok",
    "incompatible": "NO",
    "insufficient_metadata": "?",
    "error": "NO",
    "unknown": "?",
    "warning": "!",
    "note": "-",
}
_COLOURS: Final = {"NO": "1;31", "?": "33", "!": "33", "-": "2"}
_VERDICT_COLOURS: Final = ("1;32", "1;31", "1;33")
_BACKENDS: Final = {"driver": "by the driver", "nvjitlink": "by nvJitLink"}
_KINDS: Final = {"ptx": "PTX", "ltoir": "LTO-IR"}

#: Columns of the page without --verbose.
_WIDTH: Final = 80

#: A line of the page and the colour of its first word; empty for none.
Line = tuple[str, str]

#: A title and the rows below it.
Table = tuple[str, list[tuple[str, ...]]]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("-v", "--verbose", action="store_true", help="show every part, copy, rule, link and finding")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument(
        "--ctk-version", metavar="SPECIFIER", help="accept only CUDA releases such as 13 or '>=13.2,<14'"
    )


def run(options: argparse.Namespace) -> int:
    """Print the report on this environment.

    Returns the exit code: 0 coherent, 1 incoherent, 2 not enough is known, or an option is invalid.
    """
    from .. import doctor
    from ..guardrails.rules import parse_constraint

    with command_errors(ValueError, RuntimeError):
        report = doctor.examine(parse_constraint(options.ctk_version, "--ctk-version"))
    if options.json:
        sys.stdout.write(json.dumps(report.as_json(), indent=1) + "\n")
        return report.exit_code
    coloured = _in_colour()
    for shown, colour in page(report, verbose=options.verbose):
        text = safe(shown, BLOCK_LIMIT)
        sys.stdout.write(f"{_painted(text, colour) if coloured else text}\n")
    return report.exit_code


def page(report: DoctorReport, *, verbose: bool = False) -> Iterator[Line]:
    """The lines of the page: the verdict, what to do first, the causes, and what there is; at most 80 columns.

    With `verbose` every detail follows, in lines of any width.
    """
    causes = report.causes
    first = next((cause for cause in causes if cause.counts and (cause.fixes or cause.otherwise)), None)
    yield f"Verdict: {report.verdict}", _VERDICT_COLOURS[report.exit_code]
    if first is None:
        yield "First:   nothing to repair" if not report.exit_code else "First:   see below; no command repairs it", ""
    elif first.fixes:
        yield from _command("First:   ", first.fixes[0])
    else:
        yield from _wrapped("First:   ", first.otherwise[0])
    if causes:
        yield "", ""
    shown: set[Command] = {first.fixes[0]} if first and first.fixes else set()
    for cause in causes:
        yield from _cause(cause, shown, done=first if cause is first else None)
    yield "", ""
    if verbose:
        yield from _tables(report)
    else:
        yield from _facts(report)
        yield "--verbose shows every part, copy, rule, link and finding.", ""


def _cause(cause: FindingCause, shown: set[Command], done: FindingCause | None) -> Iterator[Line]:
    """Yield one line for the cause, and the repairs below it that no line above has shown; adds them to `shown`."""
    mark = _MARKS[cause.severity]
    several = f" ({counted(len(cause.findings), 'finding')})" if len(cause.findings) > 1 else ""
    room = _WIDTH - len(several)
    yield f"{_row(mark, cause.what, 3, room)}{several}", _COLOURS[mark]
    otherwise = list(cause.otherwise)
    if done and not cause.fixes:
        del otherwise[0]
    for command in cause.fixes:
        if command not in shown:
            yield from _command("   and: " if done else "   ", command)
            shown.add(command)
    # the remedy of one finding may end in that of another
    for advice in [tip for tip in otherwise if not any(other != tip and other.endswith(tip) for other in otherwise)]:
        yield from _wrapped("   or " if cause.fixes or done else "   ", advice)


def _cut(text: str, room: int) -> str:
    """Return a text on one line that fits; the end of a longer one is left out."""
    line = " ".join(text.split())
    return line if len(line) <= room else f"{line[: room - 1].rstrip()}…"


def _row(name: str, text: str, column: int = 9, room: int = _WIDTH) -> str:
    return f"{name:<{column}}{_cut(text, room - column)}"


def _wrapped(start: str, text: str) -> Iterator[Line]:
    indent = " " * len(start)
    for line in textwrap.wrap(text, _WIDTH, initial_indent=start, subsequent_indent=indent) or [start.rstrip()]:
        yield line, ""


def _command(start: str, command: Command) -> Iterator[Line]:
    """Yield a command as lines that a shell reads as one command; a word that is longer than a line is cut."""
    room = _WIDTH - len(start) - 2
    words = [_cut(word, room) for word in command.words]
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + 1 + len(word) > room:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    for number, line in enumerate(lines):
        more = " \\" if number < len(lines) - 1 else ""
        yield f"{start if number == 0 else ' ' * len(start)}{line}{more}", ""


def _facts(report: DoctorReport) -> Iterator[Line]:
    """Yield a line each for driver, toolkit and links; a missing driver is one of the causes."""
    driver = report.driver
    if driver.get("version"):
        facts = (f"CUDA {driver['version']}", driver.get("release"), driver.get("kind"), driver.get("arch"))
        yield _row("Driver", ", ".join(filter(None, facts))), ""
    versions = sorted({item.version for item in report.items if item.version})
    parts = counted(len(report.items), "part")
    toolkit = f"CUDA {', '.join(map(str, versions)) or 'unknown'}, {parts}; not found: {len(report.missing)}"
    yield _row("Toolkit", toolkit if report.items else "none"), ""
    if links := _short_links(report):
        yield _row("Links", links), ""


def _short_links(report: DoctorReport) -> str:
    """Return the backends of the default policy, which comes first, and whether those of other policies differ."""
    policies: dict[str, dict[str, str]] = {}
    for link in report.links:
        impossible = link.backend == "driver" and not report.driver.get("version")
        policies.setdefault(link.policy, {})[link.kind] = "error" if impossible else link.backend
    if not policies:
        return ""
    default, taken = next(iter(policies.items()))
    backends = grouped((backend, _KINDS.get(kind, kind)) for kind, backend in taken.items())

    def failing(kinds: Sequence[str]) -> str:
        # a coherent toolkit may lack what one kind needs; a note says so
        return "not linked" if not report.exit_code else "fails" if len(kinds) == 1 else "fail"

    words = ", ".join(
        f"{' and '.join(kinds)} {_BACKENDS.get(backend) or failing(kinds)}" for backend, kinds in backends.items()
    )
    same = all(policy == taken for policy in policies.values())
    return f"{words} ({'any policy' if same else f'{default}; others differ'})"


def _tables(report: DoctorReport) -> Iterator[Line]:
    """Yield every detail as tables; the last column of a table is not padded."""
    for title, rows in _details(report):
        yield title, ""
        if not rows:
            yield "  none", ""
        if title == "Findings":
            for mark, text, *repairs in rows:
                yield f"  {mark:<2} {text}", ""
                for repair in filter(None, repairs):
                    yield f"     {repair}", ""
        else:
            yield from ((f"  {line}", "") for line in columns(rows))
        yield "", ""


def _details(report: DoctorReport) -> Iterator[Table]:
    driver = report.driver
    rows: list[tuple[str, ...]] = []
    if driver.get("version"):
        rows = [
            ("CUDA version", f"CUDA {driver['version']}", driver.get("witness") or ""),
            ("release", driver.get("release") or "unknown", driver.get("release_witness") or ""),
            ("kind", driver.get("kind") or "unknown", driver.get("path") or ""),
            ("device", driver.get("arch") or "none", ""),
        ]
    yield "Driver", rows
    items = report.items
    yield "Toolkit", [(i.label, str(i.version or "unknown"), i.found_via, i.path, i.witness) for i in items]
    if report.missing:
        yield "Not found", [(", ".join(report.missing),)]
    yield (
        "Copies loaded, or first for the loader",
        [(copy.name, str(copy.version or "unknown"), copy.role, copy.path) for copy in report.copies],
    )
    yield "Rules", list(_rules(report))
    yield "Links", list(_links(report.links))

    def remedies(finding: Finding) -> Iterator[str]:
        return (f"{'or ' if number else ''}{remedy}" for number, remedy in enumerate(finding.remedies))

    findings = report.findings
    yield "Findings", [(_MARKS[finding.severity], finding.what, *remedies(finding)) for finding in findings]


def _rules(report: DoctorReport) -> Iterator[tuple[str, ...]]:
    """Yield one row for each rule that holds, and for each different failure; --json has every verdict."""

    def key(verdict: Verdict) -> tuple[str, str, str]:
        together = verdict.kind == "driver" or verdict.severity == "note"
        return verdict.kind, _MARKS[verdict.status], "" if together else verdict.what

    # without a driver, a finding says so once
    verdicts = [verdict for verdict in report.rules if verdict.kind != "driver" or report.driver.get("version")]
    for (rule, mark, _), messages in grouped((key(verdict), verdict.what) for verdict in verdicts).items():
        more = and_more(len(messages) - 1)
        yield mark, rule, f"{messages[0]} ({more.strip()})" if more else messages[0]


def _links(links: Sequence[PredictedLink]) -> Iterator[tuple[str, ...]]:
    """Yield one row for all policies and inputs that take the same backend for the same reason."""
    for (backend, why), alike in grouped(((link.backend, link.why), link) for link in links).items():
        policies, kinds = dict.fromkeys(link.policy for link in alike), dict.fromkeys(link.kind for link in alike)
        yield ", ".join(policies), ", ".join(kinds), backend, why


def _in_colour() -> bool:
    """Return whether to use colours: NO_COLOR forbids them, FORCE_COLOR demands them, else a terminal gets them."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (sys.stdout.isatty() and os.environ.get("TERM") != "dumb")


def _painted(text: str, colour: str) -> str:
    """Return a line with the mark of its cause, or the verdict, in colour."""
    if not colour:
        return text
    start, _, rest = text.partition(" ")
    if start == "Verdict:":
        return f"{start} \x1b[{colour}m{rest}\x1b[0m"
    return f"\x1b[{colour}m{start}\x1b[0m {rest}"
