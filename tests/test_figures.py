"""Every measured figure of the documentation names the command that makes it, and the date of the measurement.

A figure is a number with a unit of time, size or share in the text of a page; code and output are something else. Its
section has a sentence ``Measured 2026-11-22 by `COMMAND` on MACHINE.``, or its paragraph or row leads to a section
that has one. Numbers that nobody measured, such as limits and versions, are listed in figures.toml with what they are.
"""

from __future__ import annotations

import datetime as dt
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docs.test_snippets import PAGES, check_command

__all__ = ()

ROOT = Path(__file__).parent.parent
#: What is a number with a unit, and not measured: page -> text -> what it is.
CONSTANTS: dict[str, dict[str, str]] = tomllib.loads((Path(__file__).parent / "figures.toml").read_text("utf-8"))
UNIT = r"(?:ns|µs|ms|s|seconds?|minutes?|min|hours?|%|percent|[kKMGT]i?B|bytes|instructions|×|times|GB/s|MHz|US\$|€)"
NUMBER = r"\d(?:[\d,.]*\d)?"
FIGURE = re.compile(
    rf"(?<![\w.-]){NUMBER}(?: (?:to|and) {NUMBER})? ?{UNIT}(?![\w-])"
    rf"|(?:×|\bx) {NUMBER}(?!\w)|×{NUMBER}|[$€] ?{NUMBER}"
)
MEASURED = re.compile(r"\bMeasured (\d{4}-\d\d-\d\d)\b((?:`[^`]*`|[^`.:;)]|[.:;](?!\s|$))*)")
ITEM = re.compile(r"\s*(?:[-*]|\d+\.) ")
LINK = re.compile(r"\]\(([^)#\s]*)#([^)\s]+)\)")


class Section(NamedTuple):
    """A section of a page, from its heading to the next one."""

    page: str
    anchor: str
    text: str


def plain(text: str) -> str:
    """The text without fenced blocks and comments, which keep their lines."""
    fenced = re.compile(r"^( *)(```+|~~~+)[^\n]*\n.*?^\1\2 *$|<!--.*?-->", re.MULTILINE | re.DOTALL)
    return fenced.sub(lambda found: "\n" * found[0].count("\n"), text)


def anchor(heading: str) -> str:
    """The anchor that the documentation's tool gives a heading."""
    words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def sections(page: str) -> list[Section]:
    """The sections of a page; the first may be what stands before any heading."""
    parts = re.split(r"^#{1,6} +(.+)$", plain(PAGES[page].read_text("utf-8")), flags=re.MULTILINE)
    return [Section(page, "", parts[0])] + [
        Section(page, anchor(heading), text) for heading, text in zip(parts[1::2], parts[2::2], strict=True)
    ]


def passages(text: str) -> list[str]:
    """Paragraphs, items of lists and rows of tables: what a reader takes as one statement."""
    found = []
    for paragraph in re.split(r"\n\s*\n", text):
        found += re.split(r"\n(?=\||\s*[-*] |\s*\d+\. )", paragraph)
    return found


def figures(passage: str) -> list[str]:
    """The numbers with a unit, outside of code and of addresses."""
    prose = MEASURED.sub(" ", passage)
    prose = re.sub(r"`[^`\n]+`|\]\([^)]*\)|https?://\S+", " ", prose)
    return [found[0] for found in FIGURE.finditer(prose)]


def measurement(text: str) -> tuple[str, list[str]] | None:
    """The date and the commands of a section's measurement."""
    found = MEASURED.search(text)
    return (found[1], re.findall(r"`([^`]+)`", found[2])) if found else None


def target(page: str, link: str, fragment: str) -> Section | None:
    """The section to which a link leads."""
    path = (PAGES[page].parent / link).resolve() if link else PAGES[page]
    name = next((name for name, one in PAGES.items() if one.resolve() == path.resolve()), None)
    return next((one for one in sections(name) if one.anchor == fragment), None) if name else None


def without_source(page: str) -> Iterator[str]:
    """Every figure of a page that has neither a command nor a place in figures.toml."""
    known = CONSTANTS.get(page, {})
    for section in sections(page):
        # a measurement in an item of a list is of that item alone; one in a paragraph is of the section
        parts = passages(section.text)
        if any(measurement(one) and not ITEM.match(one) for one in parts):
            continue
        for passage in parts:
            if measurement(passage):
                continue
            words = " ".join(passage.split())
            found = figures(re.sub("|".join(re.escape(text) for text in known) or "(?!)", " ", words))
            led = [target(page, *link) for link in LINK.findall(passage)]
            if found and not any(one and measurement(one.text) for one in led):
                yield f"#{section.anchor}: {', '.join(found)} in: {words[:160]}"


@pytest.mark.parametrize("page", sorted(PAGES))
def test_every_figure_names_its_command_and_its_date(page: str) -> None:
    """A figure without a source is an error: add `Measured DATE by COMMAND`, or say in figures.toml what it is."""
    assert [*without_source(page)] == []


def measured() -> list[Section]:
    """Every section that says what it measured."""
    return [one for page in PAGES for one in sections(page) if "Measured 2" in one.text]


@pytest.mark.parametrize("section", measured(), ids=lambda one: f"{one.page}#{one.anchor}")
def test_measurements_have_a_date_and_commands_that_exist(section: Section) -> None:
    """The date is one of the past; the commands are forms that the programs take."""
    for found in MEASURED.finditer(section.text):
        assert dt.date.fromisoformat(found[1]) <= dt.datetime.now(dt.UTC).date()
        commands = re.findall(r"`([^`]+)`", found[2])
        rows = re.findall(r"^\|.*`[^`]+`.*\|$", section.text, re.MULTILINE)
        assert commands or rows, "a measurement names its command, or each row of its table has one"
        for command in commands:
            if command.split()[0] in ("cudalink", "pytest", "nox", "python", "time"):
                check_command(command.removeprefix("time "))
                files = re.findall(r"\b(?:benchmarks|tests|matrices|docs)/[\w./-]+", command)
                assert [file for file in files if not (ROOT / file).exists()] == []


def test_constants_are_still_said() -> None:
    """figures.toml has nothing that its page no longer says."""
    gone = {
        (page, text)
        for page, texts in CONSTANTS.items()
        for text in texts
        if text not in " ".join(plain(PAGES[page].read_text("utf-8")).split())
    }
    assert gone == set()


def test_figures_are_recognized() -> None:
    """What counts as a figure, and what does not."""
    assert figures("It takes 3.5 ms, 0.2 to 0.3 % more, x 1.04, × 2, 1,000 instructions and $ 12.") == [
        *("3.5 ms", "0.2 to 0.3 %", "x 1.04", "× 2", "1,000 instructions", "$ 12")
    ]
    assert figures("CUDA 13.0 on sm_90, `sleep 3 s`, [3 ms](https://a.b/3s), 4-byte values") == ["3 ms"]
    assert measurement("Measured 2026-11-22 by `nox -s bench` on two cores. 3 ms") == ("2026-11-22", ["nox -s bench"])
