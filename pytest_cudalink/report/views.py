"""The sections that every form of the report shows, as tables of plain values with the same words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from msgspec.structs import asdict

from ..base.finding import Finding
from ..base.safe_text import block, line
from ..base.tables import grouped, read_table
from ..base.words import counted, either, listed
from .asked_for import KINDS, is_worth_a_look
from .cell_run import BAD, NAMES, CellRun
from .compare import Comparison, OutcomeChange, incomplete
from .matrix_report import Group, MatrixReport
from .records import CrashRecord, FindingRecord
from .wording import by_cause, call_in_words, ended_by, explanation, linked_on, status, unsteered_on, without_driver

_CATEGORIES: Final = {"fault": "when a call fails", "schedule": "under a schedule"}
#: Characters of a command, which is of no use when it is cut.
_COMMAND: Final = 100_000
#: Of a picture: the left edge of the bars, their width, the height of a line, and the width of all.
_LEFT: Final = 330
_BARS: Final = 300
_ROW: Final = 22
_WIDTH: Final = 960
#: Characters of the texts next to the bars.
_NAME: Final = 44
_PLACE: Final = 42


def findings_by_cells(report: MatrixReport) -> list[tuple[FindingRecord, list[str]]]:
    """Return what was found, each with the cells that found it."""
    every = ((finding, cell.name) for cell in report.cells for finding in cell.findings)
    same = grouped(((each.category, each.nodeid, each.what, *each.evidence), (each, name)) for each, name in every)
    return [(those[0][0], [name for _, name in those]) for those in same.values()]


def picture_of(finding: FindingRecord) -> dict[str, Any] | None:
    """Return the bars of what was queued, in pixels; None for a finding without any."""
    shown = finding.operations
    if not shown:
        return None
    times = [(operation["queued"], operation["ready"], operation["done"] or operation["ready"]) for operation in shown]
    start, last = min(queued for queued, _, _ in times), max(map(max, times))
    scale = _BARS / (last - start + 1)

    def at(step: int) -> float:
        return round(_LEFT + (step - start) * scale, 1)

    rows = []
    for number, operation in enumerate(shown):
        done = last + 1 if operation["done"] is None else operation["done"]
        queued, ready, end = at(operation["queued"]), at(max(operation["ready"], operation["queued"])), at(done)
        rows.append(
            {
                "y": number * _ROW,
                "name": line(f"{operation['number']} {operation['function']} ({operation['stream']})", _NAME),
                "place": line(operation["place"], _PLACE),
                "late": operation["late"],
                "queued": queued,
                "waits": max(0, round(ready - queued, 1)),
                "ready": ready,
                "runs": max(3, round(end - ready, 1)),  # what is done at once is there, too
                "ends": operation["done"] is not None,
            }
        )
    late = ", ".join(str(operation["number"]) for operation in shown if operation["late"])
    return {
        "rows": rows,
        "width": _WIDTH,
        "height": len(rows) * _ROW,
        "name": _LEFT - 10,
        "place": _LEFT + _BARS + 20,
        "words": f"When the operations were queued and done; late: {late}",
    }


#: How many tests that fail alike a row names.
_ALIKE: Final = 3
_SHOWN: Final = 200
_LOST: Final = 20
#: What may have made a module that no seen link made.
NOT_SEEN: Final = "modules that no seen link made: precompiled code, NVRTC, or a static copy of nvJitLink"


@dataclass(frozen=True)
class Block:
    """The failures of one cause, as lines that are safe to show in every form."""

    title: str  # how many tests there are, and in how many cells
    lines: tuple[str, ...]  # as `wording.explanation` has them; pytest shows the same under each of these tests
    tests: tuple[str, ...]
    cells: tuple[str, ...]

    def all_lines(self, shown: int) -> list[str]:
        """Return the lines with those of the tests and cells, of which the first are named."""
        return [*self.lines, f"tests  {listed(self.tests, shown)}", f"cells  {listed(self.cells, shown)}"]


@dataclass(frozen=True)
class Section:
    """One table of the report; `section` makes it, so that its texts are safe to show in every form."""

    id: str
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str | int | float, ...], ...]
    total: int  # number of rows, or of blocks; `rows` and `blocks` have only the first of them if there are too many
    what: str  # plural noun for the rows
    note: str
    blocks: tuple[Block, ...] = ()  # what the section has in place of rows


def section(name: str, head: Sequence[str], rows: Iterable[tuple[str | int | float, ...]], more: str = "") -> Section:
    """Return a table whose texts are safe to show, with its words of ``data/report.toml`` and the first of its rows.

    `more`: goes on with the title.
    """
    every, words = list(rows), read_table("report.toml")[name]
    shown = (tuple(line(value) if isinstance(value, str) else value for value in row) for row in every[:_SHOWN])
    title, note = words["title"] + more, words.get("note", "")
    return Section(name, title, tuple(map(line, head)), tuple(shown), len(every), words["what"], note)


def letters_of(report: MatrixReport) -> list[str]:
    """Return the letters of the outcomes that some cell has, the worst first."""
    counts = report.counts
    return [letter for letter in NAMES if counts[letter]]


def cell_title(cell: CellRun) -> str:
    """Return a cell's axes in one line."""
    return ", ".join(f"{name} {value}" for name, value in cell.axes.items())


def links_in_words(cell: CellRun) -> str:
    """Return a cell's links by backend in words: ``"3 on the driver, 1 on nvJitLink"``."""
    return line(", ".join(f"{number} {linked_on(key)}" for key, number in sorted(cell.links.items())))


def sections(report: MatrixReport, comparison: Comparison | None = None) -> list[Section]:
    """Return the tables that have rows, the most urgent first."""
    tables = [
        *(_changes(report, comparison) if comparison is not None else ()),
        *_of_runs(report, comparison),
        *_of_tests(report),
        *_of_notes(report),
        unsteered(report),
        _verdicts(report),
        *_of_cells(report),
    ]
    return [table for table in tables if table.total]


def _of_runs(report: MatrixReport, comparison: Comparison | None) -> Iterator[Section]:
    """Yield what is wrong with the runs themselves: crashes, what they lost, and records that do not agree."""
    crashes = (
        (cell.name, crash.nodeid or "outside tests", ended_by(crash), *_last_of(crash))
        for cell in report.cells
        for crash in cell.crashes
    )
    yield section("crashed", ("cell", "test", "ended by", "last calls", "frames"), crashes)
    lost = ((cell.name, len(cell.lost), listed(cell.lost, _LOST)) for cell in report.cells if cell.lost)
    yield section("lost", ("cell", "tests", "which"), lost)
    yield section("incomplete", ("cell", "what"), incomplete(report, comparison).items())
    several = ((cell.name, counted(cell.repeated, "test")) for cell in report.cells if cell.repeated)
    repeats = [*differing(report), *((*each, "same outcome in every record") for each in several)]
    yield section("repeats", ("cell", "test", "outcomes"), repeats)


def _last_of(crash: CrashRecord) -> tuple[str, str]:
    """Return the last calls and the innermost frames of a process that ended."""
    frames = [frame.strip() for frame in crash.frames if "File" in frame]
    return " → ".join(map(call_in_words, crash.last_events[-3:])), " ← ".join(frames[:3])


def _of_tests(report: MatrixReport) -> Iterator[Section]:
    """Yield what all cells together say of a test: why it fails, where it fails for another reason, never runs."""
    unknown = "; cause not known" if skews(report) else ""
    refused = {test for group in needing_gpu(report) for test in group.tests}
    yield _blocks(report, "causes", skews(report))
    in_some = alike(report, {partial.test: partial.explanation for partial in report.partial})
    some = (
        (listed(group.tests, _ALIKE), group.explanation, group.cause.what, listed(group.cells)) for group in in_some
    )
    yield section("some", ("test", "explained by", "error", "cells"), some, more=unknown)
    in_all = alike(report, dict.fromkeys(report.failing_everywhere, ""))
    everywhere = ((listed(group.tests, _ALIKE), group.cause.what) for group in in_all)
    yield section("everywhere", ("test", "error"), everywhere, more=unknown)
    yield _blocks(report, "gpu", needing_gpu(report))
    skipped = ((test, "; ".join(reasons)) for test, reasons in report.skipped_everywhere if test not in refused)
    yield section("skipped", ("test", "reasons"), skipped)


def _of_notes(report: MatrixReport) -> Iterator[Section]:
    """Yield what the records note besides results."""
    known = (
        (cell.name, failed, entry.title, entry.happens, ", ".join(entry.threads), entry.advice)
        for cell in report.cells
        if (failed := sum(cell.counts[letter] for letter in BAD))
        for entry in cell.known_bad
    )
    yield section("known", ("cell", "failed", "known", "what happens", "thread", "do"), known)
    not_run = ((cell, len(tests), tests[0]) for cell, tests in report.not_run.items())
    yield section("not-run", ("cell", "tests", "such as"), not_run)
    violations = (
        (cell.name, violation.nodeid or "outside tests", violation.text)
        for cell in report.cells
        for violation in cell.violations
    )
    yield section("violations", ("cell", "test", "what"), violations)
    yield _findings(report)
    yield _asked_for(report)
    left = ((cell.name, sticky.nodeid, sticky.error, sticky.after) for cell in report.cells for sticky in cell.sticky)
    yield section("sticky", ("cell", "test", "with", "tests after it, in a fresh process"), left)


def _of_cells(report: MatrixReport) -> Iterator[Section]:
    """Yield what the cells are, what they loaded and found, and what took longest there."""
    mismatches = ((cell.name, *mismatch) for cell in report.cells for mismatch in cell.mismatches)
    yield section("mismatch", ("cell", "what", "requested", "found"), mismatches)
    yield _libraries(report)
    yield section("hidden", ("cell", "how"), ((cell.name, cell.hidden) for cell in report.cells if cell.hidden))
    shown = letters_of(report)
    head = ("cell", *(NAMES[letter] for letter in shown), "links", "violations", "seconds", "what it is")

    def row(cell: CellRun) -> tuple[str | int | float, ...]:
        numbers = cell.counts
        others = links_in_words(cell), len(cell.violations), round(cell.duration, 1), cell_title(cell)
        return (cell.name, *(numbers[letter] for letter in shown), *others)

    yield section("cells", head, map(row, report.cells))
    versions = (
        (
            cell.name,
            name,
            version.get("requested") or "",
            version.get("found") or "none",
            version.get("kind") or "",
            version.get("source") or "",
        )
        for cell in report.cells
        for name in report.version_names
        if (version := cell.versions.get(name)) is not None
    )
    yield section("versions", ("cell", "what", "requested", "found", "kind", "read from"), versions)
    slowest = ((round(seconds, 2), test, cell) for seconds, test, cell in report.slowest)
    yield section("slowest", ("seconds", "test", "cell"), slowest)


def skews(report: MatrixReport) -> list[Group]:
    """Return the failures of a known cause, but those of tests that need a GPU."""
    return [group for group in report.groups if group.cause.kind != "not_emulated"]


def needing_gpu(report: MatrixReport) -> list[Group]:
    """Return the tests that failed, or were skipped, because an emulated driver refused a call."""
    return [group for group in report.groups if group.cause.kind == "not_emulated"]


def _blocks(report: MatrixReport, name: str, groups: Sequence[Group]) -> Section:
    blocks = tuple(block_of(report, group) for group in groups[:_SHOWN])
    return replace(section(name, (), ()), total=len(groups), blocks=blocks)


def block_of(report: MatrixReport, group: Group) -> Block:
    """Return the block of one cause."""
    title = f"{counted(len(group.tests), 'test')} in {len(group.cells)} of {counted(len(report.cells), 'cell')}"
    if group.explanation:
        title += f", explained by {group.explanation}"
    tests, cells = tuple(map(line, group.tests)), tuple(map(line, group.cells))
    return Block(line(title), tuple(explanation(group.cause, group.others).splitlines()), tests, cells)


def _findings(report: MatrixReport) -> Section:
    by_cells = findings_by_cells(report)
    blocks = tuple(block_of_finding(finding, cells) for finding, cells in by_cells[:_SHOWN])
    return replace(section("findings", (), ()), total=len(by_cells), blocks=blocks)


def block_of_finding(finding: FindingRecord, cells: Sequence[str]) -> Block:
    """Return what was found in some cells, with the command that repeats it; its title is the kind and the category.

    All lines but the first begin with so many spaces that none can end a fence of Markdown.
    """
    first, _, rest = block("\n".join((finding.what, *finding.evidence))).replace("\t", "    ").partition("\n")
    repeat = [f"    repeat: {line(finding.repeat, _COMMAND)}"] if finding.repeat else []
    lines = f"what   {first}", *repeat, *(f"    {text}" for text in rest.splitlines())
    title = line(f"{finding.kind}, {_CATEGORIES.get(finding.category, finding.category)}")
    return Block(title, lines, (line(finding.nodeid or "outside tests"),), tuple(map(line, cells)))


def _asked_for(report: MatrixReport) -> Section:
    return section(
        "asked",
        ("cell", "what", "due", "happened", "left out", "left out, which is allowed"),
        (
            (
                cell.name,
                f"{entry.what}: {either(0, KINDS[entry.what].name)}" if entry.what in KINDS else entry.what,
                entry.due,
                entry.happened,
                _reasons(entry.left),
                _reasons(entry.allowed),
            )
            for cell in report.cells
            for entry in cell.asked
            if is_worth_a_look(entry.what, entry.due, entry.happened)
        ),
    )


def _reasons(counts: Mapping[str, int]) -> str:
    return "; ".join(f"{number}: {reason}" for reason, number in counts.items())


def unsteered(report: MatrixReport, *, forced_only: bool = False) -> Section:
    """Return a row for each place that links unsteered, those on another backend than the forced one first.

    `forced_only`: leave out the places and cells where nothing was forced: nothing there had to be steered.
    """
    places: Counter[tuple[bool, str, str, str, str, str]] = Counter()
    cells: dict[tuple[bool, str, str, str, str, str], dict[str, None]] = {}
    for cell in report.cells:
        for links in cell.unsteered:
            forced = links.forced
            follows = forced is None or links.backend in (forced, "unknown")
            how = follows, links.via, links.call, links.where or "unknown", unsteered_on(links.backend), forced or ""
            if forced is not None or not forced_only:
                places[how] += links.number
                cells.setdefault(how, {})[cell.name] = None
    rows: list[tuple[str | int | float, ...]] = [
        (*place[1:], number, listed(list(cells[place]))) for place, number in sorted(places.items())
    ]
    unseen = {
        cell.name: cell.unlinked_modules
        for cell in report.cells
        if cell.unlinked_modules and not (forced_only and cell.axes.get("backend", "auto") == "auto")
    }
    if unseen:
        rows.append((NOT_SEEN, "", "", "", "", f"at least {sum(unseen.values())}", listed(list(unseen))))
    return section("unsteered", ("linked by", "call", "in", "linked", "forced", "links", "cells"), rows)


def _libraries(report: MatrixReport) -> Section:
    """Return a row for each loaded CUDA library, release and place, with the cells that have it."""
    rows = (
        (*key, listed(list(entry["path"]), 1), listed(list(entry["for_whom"]), 2), listed(list(entry["cells"])))
        for key, entry in _loaded(report)
    )
    head = ("library", "release", "from", "file", "for", "cells")
    return section("libraries", head, rows)


def libraries_in_short(report: MatrixReport) -> Section:
    """Return the loaded CUDA libraries without files; of several cells, those that not every cell has."""
    several = len(report.cells) > 1
    rows = (
        (*key, listed(list(entry["cells"])))
        for key, entry in _loaded(report)
        if not several or len(entry["cells"]) < len(report.cells)
    )
    table = section("libraries", ("library", "release", "from", "cells"), rows)
    return replace(table, title="CUDA libraries that only some cells loaded") if several else table


def _loaded(report: MatrixReport) -> list[tuple[tuple[str, ...], dict[str, dict[str, None]]]]:
    """Return each loaded CUDA library, release and place, with its cells, paths, and what it was loaded for."""
    entries: dict[tuple[str, ...], dict[str, dict[str, None]]] = {}
    for cell in report.cells:
        for library in cell.libraries:
            place = f"{library.place}: {library.owner}" if library.owner else library.place
            key = library.soname or library.name, library.version or "not known", place
            entry = entries.setdefault(key, {"cells": {}, "path": {}, "for_whom": {}})
            entry["cells"][cell.name] = None
            entry["path"][library.path] = None
            entry["for_whom"][library.for_whom or "not known"] = None
    return sorted(entries.items(), key=lambda pair: pair[0])


def _changes(report: MatrixReport, comparison: Comparison) -> list[Section]:
    def rows(changes: Iterable[OutcomeChange]) -> Iterable[tuple[str, ...]]:
        return ((change.test, change.cell, _word(change.before), _word(change.now)) for change in changes)

    head = ("test", "cell", "before", "now")
    return [
        _regressions(report, comparison),
        section("worse", ("what", "test", "cell"), comparison.worse),
        section("fixed", head, rows(comparison.fixed)),
        section("now-skipped", head, rows(comparison.skipped)),
        section("gone", head, rows(comparison.gone)),
    ]


def _regressions(report: MatrixReport, comparison: Comparison) -> Section:
    """Return a row for each regression, and one for those that have a cause in common."""
    causes = {cell.name: causes_of for cell, causes_of in zip(report.cells, report.causes, strict=True)}
    alike: dict[tuple[str, ...], list[OutcomeChange]] = {}
    for number, change in enumerate(comparison.regressions):
        cause = causes.get(change.cell, {}).get(change.test)
        why = (cause.kind, cause.why) if cause is not None else ("", f"{number}")
        alike.setdefault((change.before, change.now, *why), []).append(change)
    rows = [
        (
            listed(list(dict.fromkeys(change.test for change in changes))),
            listed(list(dict.fromkeys(change.cell for change in changes))),
            _word(before),
            _word(now),
            *([why if kind else ""] if any(key[2] for key in alike) else []),
        )
        for (before, now, kind, why), changes in alike.items()
    ]
    head = ("test", "cell", "before", "now", "why")[: len(rows[0]) if rows else 4]
    return section("regressions", head, rows)


def _word(letter: str) -> str:
    return NAMES.get(letter, "not run")


def _verdicts(report: MatrixReport) -> Section:
    """Return a row for each cause, as in pytest's summary."""
    rows = []
    every = ({**asdict(verdict), "cell": cell.name} for cell in report.cells for verdict in cell.verdicts)
    for verdicts in by_cause(every):
        first, messages = verdicts[0], {verdict["what"] for verdict in verdicts}
        more = f" (and {counted(len(messages) - 1, 'other')} for the same cause)" if len(messages) > 1 else ""
        names = list(dict.fromkeys(verdict["cell"] for verdict in verdicts))
        if without_driver(first):
            row = ("not compared", "driver", "no driver", "--cudalink-driver=VERSION emulates one")
        else:
            row = (status(first), first["kind"], f"{first['what']}{more}", first["fix"] or first["otherwise"])
        rows.append((*row, listed(names)))
    return section("verdicts", ("status", "rule", "what", "fix", "cells"), rows)


def differing(report: MatrixReport) -> list[tuple[str, str, str]]:
    """Return cell and test where the records of a cell differ, with the outcome in each record."""
    return [
        (cell.name, test, "; ".join(f"{_word(letter)} in {name}" for letter, name in results))
        for cell in report.cells
        for test, results in cell.differing.items()
    ]


def alike(report: MatrixReport, explanations: Mapping[str, str]) -> list[Group]:
    """Return those of some tests whose cause is not known, grouped by cells and error, which stands for the cause.

    They are in the order of the tests; one for which pytest says no error stands alone.

    `explanations`: the axes that explain where a test fails, by test.
    """
    by_error: dict[tuple[str, ...], list[str]] = {}
    for test, axes in explanations.items():
        if test in report.unexplained:
            error = _error(report, test)
            cells = (cell.name for cell in report.cells if cell.outcomes.get(test) in BAD)
            by_error.setdefault(("" if error else test, axes, error, *cells), []).append(test)
    return [Group(Finding("error", key[2]), 0, tuple(tests), key[3:], key[1]) for key, tests in by_error.items()]


def _error(report: MatrixReport, test: str) -> str:
    """Return the commonest error of a test in the cells in which it fails, and how many others there are."""
    errors = Counter(
        cell.details[test].reason
        for cell, causes in zip(report.cells, report.causes, strict=True)
        if cell.outcomes.get(test) in BAD and test in cell.details and test not in causes
    )
    if not errors:
        return ""
    ((commonest, _),) = errors.most_common(1)
    return f"{commonest} (and {counted(len(errors) - 1, 'other error')})" if len(errors) > 1 else commonest
