"""The parts of the HTML page that are not plain tables, as values for its template. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..base.safe_text import line
from ..base.words import counted, listed
from .cell_run import BAD, NOT_RUN, CellRun
from .matrix_report import Group, MatrixReport
from .origin import Origin
from .records import FindingRecord
from .views import (
    NAMES,
    Alike,
    Section,
    alike,
    block_of,
    findings_by_cells,
    lines_of,
    links_in_words,
    needing_gpu,
    picture_of,
    skews,
    title_of,
)

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


def css(letter: str) -> str:
    """Return the CSS class of a letter; x and X have different ones, because selectors may ignore case."""
    if letter in CELL_STATES:
        return f"s-{letter}"
    return f"o-{letter}-low" if letter.islower() else "o-none" if letter == NOT_RUN else f"o-{letter}"


def badge(letter: str, number: int = 0) -> dict[str, Any]:
    """Return a letter with its meaning and the number of results that have it."""
    name = CELL_STATES.get(letter) or NAMES.get(letter, "not run")
    return {"letter": letter, "css": css(letter), "name": name, "number": number}


def facts(origin: Origin, differ: Sequence[str]) -> list[dict[str, str]]:
    """Return the facts in the head of the page: project, commit, branch, date and CI run, as far as they are known."""
    commit, run = origin.commit or "", origin.ci_url or ""
    differing = {"CI" if name == "ci_url" else name for name in differ}
    rows = (
        ("project", origin.project, "", ""),
        (
            "commit",
            commit[:10],
            _commit_address(run, commit),
            "with uncommitted changes" if origin.dirty else "",
        ),
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
        before, found, _ = run.partition(mark)
        if found and commit.isalnum():
            return f"{before}{to}{commit}"
    return ""


def failures(report: MatrixReport, names: Mapping[str, int]) -> dict[str, list[dict[str, Any]]]:
    """Return by section the causes of failures, and the tests that fail for another reason.

    Each of them has its cells and the axes that explain it; a cause has its tests, and a test its messages.

    `names`: position of each test.
    """
    some = alike(report, {one.test: one.explanation for one in report.partial})
    every = alike(report, dict.fromkeys(report.failing_everywhere, ""))
    return {
        "causes": [_caused(report, names, one) for one in skews(report)[:_SHOWN]],
        "some": [_failure(report, names, one) for one in some[:_SHOWN]],
        "everywhere": [_failure(report, names, one) for one in every[:_SHOWN]],
        "gpu": [_caused(report, names, one) for one in needing_gpu(report)[:_SHOWN]],
        "findings": [_finding_card(report, names, one, cells) for one, cells in findings_by_cells(report)[:_SHOWN]],
    }


def _caused(report: MatrixReport, names: Mapping[str, int], group: Group) -> dict[str, Any]:
    """Return the card of a cause; what pytest printed for the first of its tests stands for all."""
    block, indexes = block_of(report, group), [names[test] for test in group.tests]
    columns = [number for number, cell in enumerate(report.cells) if cell.name in group.cells]
    found = {report.grid[index][column] for index in indexes for column in columns} & {*BAD, "U"}
    first = group.tests[0]
    texts = [cell.details[first].text for cell in report.cells if first in cell.details and cell.outcomes[first] in BAD]
    return {
        **_several(indexes, block.tests, "\n".join(block.lines)),
        "index": indexes[0],
        "badges": [badge(letter) for letter in NAMES if letter in found],
        "why": line(group.explanation),
        "has_text": any(texts),
        "count": f"{len(group.cells)} of {counted(len(report.cells), 'cell')}",
        "cells": line(listed(group.cells)),
    }


def _several(indexes: Sequence[int], tests: Sequence[str], block: str) -> dict[str, Any]:
    """Return what the card of several tests has: they are named below the lines that all of them share."""
    return {
        "indexes": " ".join(map(str, indexes)),
        "title": counted(len(indexes), "test"),
        "block": block,
        "picture": None,
        "whole": False,
        "tests": [*zip(indexes[:_SHOWN], tests, strict=False)],
        "more_tests": max(0, len(indexes) - _SHOWN),
    }


def _finding_card(
    report: MatrixReport, names: Mapping[str, int], finding: FindingRecord, cells: Sequence[str]
) -> dict[str, Any]:
    """Return the card of what faults or schedules found; its test may have no result."""
    test = finding.nodeid or "outside tests"
    index = names.get(test, -1)
    return {
        "indexes": index,
        "index": index,
        "badges": [],
        "title": title_of(finding),
        "block": "\n".join(lines_of(finding)),
        "picture": picture_of(finding),
        "whole": True,
        "why": "",
        "tests": [(index, line(test))],
        "more_tests": 0,
        "has_text": False,
        "count": f"{len(cells)} of {counted(len(report.cells), 'cell')}",
        "cells": line(listed(cells)),
    }


def _failure(report: MatrixReport, names: Mapping[str, int], group: Alike) -> dict[str, Any]:
    """Return the card of a test, or of several that fail alike; of the failures those whose cause is not known."""
    test = group.tests[0]
    index = names[test]
    row = report.judged[index]
    failing = [
        cell
        for cell, causes, letter in zip(report.cells, report.causes, row, strict=True)
        if letter in BAD and test not in causes
    ]
    found = [cell.details.get(test) for cell in failing]
    reasons = Counter(
        line(one.reason or one.text.strip().rpartition("\n")[2]) for one in found if one and (one.reason or one.text)
    )
    ran = sum(letter != NOT_RUN for letter in row)
    card = {
        "index": index,
        "test": line(test),
        "badges": [badge(letter) for letter in NAMES if letter in BAD and letter in row],
        "why": line(group.explanation),
        "messages": [{"text": text, "number": number} for text, number in reasons.most_common(_MESSAGES)],
        "more": max(0, len(reasons) - _MESSAGES),
        "has_text": any(one and one.text for one in found),
        "count": f"{len(failing)} of {counted(ran, 'cell')}",
        "cells": line(listed([cell.name for cell in failing])),
    }
    if len(group.tests) == 1:
        return card
    return card | _several([names[one] for one in group.tests], [*map(line, group.tests)], line(group.error))


def state_of(cell: CellRun) -> list[dict[str, Any]]:
    """Return the states of a cell that no test's result shows."""
    numbers = {"I": int(bool(cell.fault)), "V": len(cell.violations), "N": cell.not_steered}
    return [badge(letter, number) for letter, number in numbers.items() if number]


def cells(report: MatrixReport) -> dict[str, Any]:
    """Return the table of cells: only the outcomes that a cell has, and only the axes in which cells differ."""
    values: dict[str, set[str | None]] = {}
    for name in dict.fromkeys(name for cell in report.cells for name in cell.axes):
        values[name] = {cell.axes.get(name) for cell in report.cells}
    differing = [name for name, found in values.items() if len(found) > 1]
    rows = [
        {
            "index": number,
            "name": line(cell.name),
            "results": [badge(letter, counts[letter]) for letter in NAMES if counts[letter]],
            "states": state_of(cell),
            "fault": line(cell.fault),
            "links": links_in_words(cell),
            "seconds": f"{cell.duration:.1f}" if cell.duration else "",
            "axes": [(line(name), line(cell.axes[name])) for name in differing if name in cell.axes],
        }
        for number, cell in enumerate(report.cells[:_SHOWN])
        for counts in [cell.counts]
    ]
    rows += [
        {
            "index": None,
            "name": line(name),
            "results": [],
            "states": [badge("I", 1)],
            "fault": line(report.why_missing(name)),
            "links": "",
            "seconds": "",
            "axes": [],
        }
        for name in report.missing
    ]
    same = [(line(name), line(next(iter(found)))) for name, found in values.items() if len(found) == 1]
    return {"rows": rows, "same": same if len(report.cells) > 1 else [], "more": max(0, len(report.cells) - _SHOWN)}


def versions(report: MatrixReport) -> dict[str, Any]:
    """Return the versions as a table of cells and libraries; those that are the same everywhere are one line."""
    columns, same = [], []
    for name in report.version_names:
        found = [_version(cell, name) for cell in report.cells]
        common, number = Counter(found).most_common(1)[0]
        if 1 < len(found) == number and not common[1]:
            same.append((line(name), line(common[0])))
            continue
        usual = common if number * 2 > len(found) else None
        columns.append((line(name), found, usual))
    rows: list[dict[str, Any]] = [
        {
            "index": number,
            "name": line(cell.name),
            "values": [
                {
                    "name": name,
                    "text": line(found[number][0]),
                    "wrong": line(found[number][1]),
                    "odd": usual is not None and found[number] != usual,
                }
                for name, found, usual in columns
            ],
        }
        for number, cell in enumerate(report.cells[:_SHOWN])
    ]
    every = [value for row in rows for value in row["values"]]
    return {
        "head": [name for name, _, _ in columns],
        "rows": rows if columns else [],
        "same": same,
        "more": max(0, len(report.cells) - _SHOWN),
        "wrong": any(value["wrong"] for value in every),
        "odd": any(value["odd"] for value in every),
    }


def _version(cell: CellRun, name: str) -> tuple[str, str]:
    """Return the version of a library in a cell, with the requested one if it is another."""
    version = cell.versions.get(name)
    if version is None:
        return "not recorded", ""
    found, kind = version.get("found") or "none", version.get("kind") or ""
    text = found if kind in ("", "real", "absent") else f"{found} {kind}"
    wrong = next((requested for one, requested, _ in cell.mismatches if one == name), "")
    return text, wrong


def kept_columns(section: Section) -> list[int]:
    """Return the columns of a table that have a value other than 0 in some row."""
    return [number for number in range(len(section.head)) if any(row[number] not in ("", 0) for row in section.rows)]
