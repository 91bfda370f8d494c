"""The report as one HTML page that loads nothing from a network."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from ..base.safe_text import block, line
from ..base.tables import grouped
from ..base.words import counted, listed
from ..environment.wheels import own_version
from . import views
from .cell_run import BAD, GOOD, NAMES, NOT_RUN, CellRun
from .compare import KINDS, SYMBOLS, Comparison, figures, verdict
from .matrix_report import Group, MatrixReport
from .origin import Origin
from .records import FindingRecord
from .views import Block, Section, alike, block_of, cell_title, links_in_words, sections
from .wording import explanation

#: The states of a cell that no test's result shows, by letter.
CELL_STATES: Final = {
    "I": "did not run or did not finish",
    "V": "violations (lifetimes, order, nvJitLink)",
    "N": "links not steered (unsteered)",
}
#: Rows of a table, as in `views.section`.
_SHOWN: Final = 200
_MESSAGES: Final = 3
#: The end of a time without a zone, as `origin.moment` writes it.
_SECONDS: Final = re.compile(r"T(\d\d:\d\d):\d\dZ$")
#: Characters of failure texts that a page carries; the records have the rest.
_TEXTS: Final = 8_000_000
#: Sections below the grid, in this order.
_LATER: Final = {"cells": 1, "versions": 2, "libraries": 3, "slowest": 4}
#: Tables with at most so many columns share a line with another one on a wide window.
_SMALL: Final = 3
#: Sections that need the whole width.
_WIDE: Final = frozenset({"causes", "findings", "some", "everywhere", "gpu", "cells", "versions"})
#: Changes of one kind that the page lists.
_CHANGES: Final = 100


def render(report: MatrixReport, comparison: Comparison | None = None) -> str:
    """Return the report as the text of one HTML page.

    Raises ModuleNotFoundError if jinja2 is missing; ``pip install 'pytest-cudalink[report]'``.
    """
    template = _template()
    from markupsafe import Markup

    names = {test: position for position, test in enumerate(report.tests)}
    columns = {cell.name: position for position, cell in enumerate(report.cells)}
    # inside <script>, only the end of the element must not occur
    data = json.dumps(_data(report, names, columns, comparison), separators=(",", ":")).replace("<", "\\u003c")
    axes = grouped((line(name), line(value)) for cell in report.cells for name, value in cell.axes.items())
    longest = max((len(cell.name) for cell in report.cells), default=0)
    judged = verdict(report, comparison)
    project = line(report.origin.project or "")
    return str(
        template.render(
            title="Compatibility matrix" + (f" of {project}" if project else ""),
            subtitle=f"{counted(len(report.tests), 'test')} in {counted(len(report.cells), 'cell')}",
            verdict=judged,
            symbol=SYMBOLS[judged.severity],
            facts=facts(report.origin, report.origins_differ),
            chips=[figure for figure in figures(report, comparison) if figure.number],
            sections=_placed(sections(report, comparison), {"test": names, "cell": columns}),
            failures=failures(report, names),
            report=report,
            cells=cells(report),
            versions=versions(report),
            comparison=comparison,
            kinds={kind: (meaning, comparison.of(kind)) for kind, meaning in KINDS.items()} if comparison else {},
            test_places=names,
            cell_places=columns,
            counts=report.counts,
            not_run=sum(row.count(NOT_RUN) for row in report.grid),
            axes=[{"name": name, "options": sorted({*each})} for name, each in axes.items() if len({*each}) > 1],
            header_height=min(320, 24 + 8 * longest),
            version=own_version(),
            data=Markup(data),  # noqa: S704 (JSON without a "<")
        )
    )


def _placed(sections: Sequence[Section], places: Mapping[str, Mapping[str, int]]) -> list[dict[str, Any]]:
    """Return the tables with the columns that have values, two small ones side by side.

    Each row has the positions of the test and the cell that it names, so that the page can filter it.
    """
    shown = {head: {line(name): number for name, number in at.items()} for head, at in places.items()}
    result: list[dict[str, Any]] = []
    small: dict[str, Any] | None = None
    for section in sorted(sections, key=lambda section: _LATER.get(section.id, 0)):
        kept = [n for n in range(len(section.head)) if any(row[n] not in ("", 0) for row in section.rows)]
        rows = [
            {
                "values": [(section.head[number], row[number]) for number in kept],
                **{head: at.get(str(named.get(head))) for head, at in shown.items()},
            }
            for row in section.rows
            for named in [dict(zip(section.head, row, strict=True))]
        ]
        head = [section.head[number] for number in kept]
        table = {**vars(section), "head": head, "rows": rows, "later": section.id in _LATER, "half": False}
        result.append(table)
        fits = len(kept) <= _SMALL and section.id not in _WIDE
        if fits and small is not None and small["later"] == table["later"]:
            table["half"] = small["half"] = True
            small = None
        else:
            small = table if fits else None
    return result


@cache
def _template() -> Any:
    """Return the compiled template of the page."""
    import jinja2

    text = (Path(__file__).parent / "page.html.jinja").read_bytes().decode()
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters["line"] = line
    environment.globals.update(badge=badge, css=css, facts_of=facts, links_in_words=links_in_words, state_of=state_of)
    environment.globals.update(NAMES=NAMES, CELL_STATES=CELL_STATES, MOST_CHANGES=_CHANGES)
    return environment.from_string(text)


def _data(
    report: MatrixReport, index: Mapping[str, int], columns: Mapping[str, int], comparison: Comparison | None
) -> dict[str, Any]:
    """Return the data of the grid; equal texts are stored once."""
    texts: dict[str, int] = {"": 0}
    room = _TEXTS

    def number(text: str) -> int:
        nonlocal room
        if text not in texts and len(text) > room:
            text = "(left out to keep this page small; see the records)"
        if text not in texts:
            room -= len(text)
        return texts.setdefault(text, len(texts))

    details: dict[int, dict[int, tuple[int, int, int]]] = {}
    gpu: dict[int, list[int]] = {}
    for column, (cell, causes) in enumerate(zip(report.cells, report.causes, strict=True)):
        for test, detail in cell.details.items():
            cause = causes.get(test)
            reason, lines = number(block(detail.reason)), explanation(cause) if cause is not None else ""
            details.setdefault(index[test], {})[column] = reason, number(block(detail.text)), number(lines)
            if cause is not None and cause.kind == "not_emulated":
                gpu.setdefault(index[test], []).append(column)
    changes: dict[str, dict[int, list[int]]] = {}
    for kind in KINDS:
        for change in comparison.of(kind) if comparison is not None else ():
            if change.test in index and change.cell in columns:
                changes.setdefault(kind, {}).setdefault(index[change.test], []).append(columns[change.cell])
    return {
        "cells": [
            {
                "name": line(cell.name),
                "states": "".join(state["letter"] for state in state_of(cell)),
                "axes": {line(name): line(value) for name, value in cell.axes.items()},
                "title": line(cell_title(cell)),
            }
            for cell in report.cells
        ],
        "tests": [line(test) for test in report.tests],
        "grid": report.grid,
        "letters": NAMES,
        "states": CELL_STATES,
        "css": {letter: css(letter) for letter in (*NAMES, *CELL_STATES)},
        "changes": changes,
        "gpu": gpu,
        "bad": sorted(BAD),
        "good": sorted(GOOD),
        "details": details,
        "texts": list(texts),
        "why": {index[partial.test]: line(partial.explanation) for partial in report.partial},
    }


# -- the parts that are not plain tables


def css(letter: str) -> str:
    """Return the CSS class of a letter; x and X have different ones, because selectors may ignore case."""
    if letter in CELL_STATES:
        return f"s-{letter}"
    return f"o-{letter}-low" if letter.islower() else "o-none" if letter == NOT_RUN else f"o-{letter}"


def badge(letter: str) -> dict[str, str]:
    """Return a letter with its meaning."""
    name = CELL_STATES.get(letter) or NAMES.get(letter, "not run")
    return {"letter": letter, "css": css(letter), "name": name}


def facts(origin: Origin, differ: Sequence[str]) -> list[dict[str, str]]:
    """Return the facts in the head of the page: project, commit, branch, date and CI run, as far as they are known."""
    commit, run = origin.commit or "", origin.ci_url or ""
    differing = {"CI" if name == "ci_url" else name for name in differ}
    changed = "with uncommitted changes" if origin.dirty else ""
    rows = (
        ("project", origin.project, "", ""),
        ("commit", commit[:10], _commit_address(run, commit), changed),
        ("branch", origin.branch, "", ""),
        ("date", _SECONDS.sub(r" \1 UTC", origin.started or ""), "", ""),
        ("CI", "this run" if run else "", run, ""),
    )
    return [
        {
            "name": name,
            "text": line(text or ""),
            "link": line(link),
            "note": "not the same in every cell" if name in differing else note,
        }
        for name, text, link, note in rows
        if text or name in differing
    ]


def _commit_address(run: str, commit: str) -> str:
    """Return the address of a commit, from that of a CI run of GitHub or GitLab; empty for another CI system."""
    for mark, to in (("/actions/runs/", "/commit/"), ("/-/pipelines/", "/-/commit/"), ("/-/jobs/", "/-/commit/")):
        before, separator, _ = run.partition(mark)
        if separator and commit.isalnum():
            return f"{before}{to}{commit}"
    return ""


def failures(report: MatrixReport, names: Mapping[str, int]) -> dict[str, list[dict[str, Any]]]:
    """Return by section the causes of failures, and the tests that fail for another reason.

    Each of them has its cells and the axes that explain it; a cause has its tests, and a test its messages.

    `names`: position of each test.
    """
    some = alike(report, {partial.test: partial.explanation for partial in report.partial})
    every = alike(report, dict.fromkeys(report.failing_everywhere, ""))
    return {
        "causes": [_caused(report, names, group) for group in views.skews(report)[:_SHOWN]],
        "some": [_failure(report, names, group) for group in some[:_SHOWN]],
        "everywhere": [_failure(report, names, group) for group in every[:_SHOWN]],
        "gpu": [_caused(report, names, group) for group in views.needing_gpu(report)[:_SHOWN]],
        "findings": [
            _finding_card(report, names, finding, cells) for finding, cells in views.findings_by_cells(report)[:_SHOWN]
        ],
    }


def _card(report: MatrixReport, indexes: Sequence[int], block: Block, **own: Any) -> dict[str, Any]:
    """Return the card of a block, whose tests are named below the lines that all of them share.

    `indexes`: position of each test.
    `own`: what this card has besides, or in place of the usual.
    """
    return {
        "indexes": " ".join(map(str, indexes)),
        "index": indexes[0],
        "badges": [],
        "title": counted(len(indexes), "test"),
        "block": "\n".join(block.lines),
        "picture": None,
        "whole": False,
        "why": "",
        "tests": [*zip(indexes[:_SHOWN], block.tests, strict=False)],
        "more_tests": max(0, len(indexes) - _SHOWN),
        "has_text": False,
        "count": f"{len(block.cells)} of {counted(len(report.cells), 'cell')}",
        "cells": line(listed(block.cells)),
        **own,
    }


def _caused(report: MatrixReport, names: Mapping[str, int], group: Group) -> dict[str, Any]:
    """Return the card of a cause; what pytest printed for the first of its tests stands for all."""
    indexes, first = [names[test] for test in group.tests], group.tests[0]
    columns = [number for number, cell in enumerate(report.cells) if cell.name in group.cells]
    letters = {report.grid[index][column] for index in indexes for column in columns} & {*BAD, "U"}
    texts = [cell.details[first].text for cell in report.cells if first in cell.details and cell.outcomes[first] in BAD]
    badges = [badge(letter) for letter in NAMES if letter in letters]
    block, why = block_of(report, group), line(group.explanation)
    return _card(report, indexes, block, badges=badges, why=why, has_text=any(texts))


def _finding_card(
    report: MatrixReport, names: Mapping[str, int], finding: FindingRecord, cells: Sequence[str]
) -> dict[str, Any]:
    """Return the card of what faults or schedules found; its test may have no result."""
    block, picture = views.block_of_finding(finding, cells), views.picture_of(finding)
    return _card(report, [names.get(finding.nodeid or "", -1)], block, title=block.title, picture=picture, whole=True)


def _failure(report: MatrixReport, names: Mapping[str, int], group: Group) -> dict[str, Any]:
    """Return the card of a test, or of several that fail alike; of the failures those whose cause is not known."""
    test = group.tests[0]
    index = names[test]
    row = report.judged[index]
    failing = [
        cell
        for cell, causes, letter in zip(report.cells, report.causes, row, strict=True)
        if letter in BAD and test not in causes
    ]
    details = [cell.details.get(test) for cell in failing]
    reasons = Counter(
        line(detail.reason or detail.text.strip().rpartition("\n")[2])
        for detail in details
        if detail and (detail.reason or detail.text)
    )
    ran = sum(letter != NOT_RUN for letter in row)
    card = {
        "index": index,
        "test": line(test),
        "badges": [badge(letter) for letter in NAMES if letter in BAD and letter in row],
        "why": line(group.explanation),
        "messages": [{"text": text, "number": number} for text, number in reasons.most_common(_MESSAGES)],
        "more": max(0, len(reasons) - _MESSAGES),
        "has_text": any(detail and detail.text for detail in details),
        "count": f"{len(failing)} of {counted(ran, 'cell')}",
        "cells": line(listed([cell.name for cell in failing])),
    }
    if len(group.tests) == 1:
        return card
    block = Block("", (line(group.cause.what),), tuple(map(line, group.tests)), ())
    return _card(report, [names[other] for other in group.tests], block, **card)


def state_of(cell: CellRun) -> list[dict[str, Any]]:
    """Return the states of a cell that no test's result shows."""
    numbers = {"I": int(bool(cell.fault)), "V": len(cell.violations), "N": cell.not_steered}
    return [{**badge(letter), "number": number} for letter, number in numbers.items() if number]


def cells(report: MatrixReport) -> dict[str, Any]:
    """Return the table of cells: only the outcomes that a cell has, and only the axes in which cells differ."""
    names = dict.fromkeys(name for cell in report.cells for name in cell.axes)
    values = {name: {cell.axes.get(name) for cell in report.cells} for name in names}
    rows = [
        *((number, cell, cell.fault) for number, cell in enumerate(report.cells[:_SHOWN])),
        *((None, CellRun(name), report.why_missing(name)) for name in report.missing),
    ]
    same = [(line(name), line(next(iter(seen)))) for name, seen in values.items() if len(seen) == 1]
    return {
        "rows": rows,
        "differing": [name for name, seen in values.items() if len(seen) > 1],
        "same": same if len(report.cells) > 1 else [],
        "more": max(0, len(report.cells) - _SHOWN),
    }


def versions(report: MatrixReport) -> dict[str, Any]:
    """Return the versions as a table of cells and libraries; those that are the same everywhere are one line."""
    columns, same = [], []
    for name in report.version_names:
        cells_versions = [_version(cell, name) for cell in report.cells]
        common, number = Counter(cells_versions).most_common(1)[0]
        if 1 < len(cells_versions) == number and not common[1]:
            same.append((line(name), line(common[0])))
            continue
        usual = common if number * 2 > len(cells_versions) else None
        columns.append((line(name), cells_versions, usual))
    rows: list[dict[str, Any]] = [
        {
            "index": number,
            "name": line(cell.name),
            "values": [
                {
                    "name": name,
                    "text": line(column[number][0]),
                    "wrong": line(column[number][1]),
                    "odd": usual is not None and column[number] != usual,
                }
                for name, column, usual in columns
            ],
        }
        for number, cell in enumerate(report.cells[:_SHOWN])
    ]
    return {
        "head": [name for name, _, _ in columns],
        "rows": rows if columns else [],
        "same": same,
        "more": max(0, len(report.cells) - _SHOWN),
        **{key: any(value[key] for row in rows for value in row["values"]) for key in ("wrong", "odd")},
    }


def _version(cell: CellRun, name: str) -> tuple[str, str]:
    """Return the version of a library in a cell, with the requested one if it is another."""
    version = cell.versions.get(name)
    if version is None:
        return "not recorded", ""
    present, kind = version.get("found") or "none", version.get("kind") or ""
    text = present if kind in ("", "real", "absent") else f"{present} {kind}"
    wrong = next((requested for library, requested, _ in cell.mismatches if library == name), "")
    return text, wrong
