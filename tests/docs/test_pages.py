"""Explanations, questions, limitations, glossary: what they name exists, and the reference has their figures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_cudalink.plugin.settings import OPTIONS

__all__ = ()

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
EXPLANATIONS = sorted((DOCS / "explanation").glob("*.md"))
#: Pages whose every option of pytest must exist.
PAGES = [*EXPLANATIONS, *(DOCS / f"{name}.md" for name in ("faq", "limitations", "glossary"))]
#: Words of the project that the glossary must define.
WORDS = (
    *("driver API", "JIT link", "nvJitLink", "LTO-IR", "PTX", "cubin", "fatbin", "backend", "cell", "target", "seam"),
    *(
        "steer",
        "toolchain",
        "emulated driver",
        "lifetime violation",
        "guard rail",
        "skew",
        "sticky error",
        "provenance",
    ),
    *("stub", "policy", "record", "matrix", "isolated test", "link worker", "fault", "bare cell"),
)
#: Pages that are one list, to which a limitation may lead without a section.
WHOLE_PAGES = ("reference/platforms.md", "reference/suites.md", "how-to/pdb.md")


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", EXPLANATIONS, ids=lambda page: page.stem)
def test_tests_that_are_named_exist(page: Path) -> None:
    """Each file and each function of the tests that an explanation names is there."""
    text = read(page)
    files = {ROOT / name for name in re.findall(r"`(?:pytest )?(tests/[\w/]+\.py)", text)}
    assert [path for path in files if not path.is_file()] == []
    code = "\n".join(map(read, files))
    assert [name for name in re.findall(r"`(test_\w+)`", text) if f"def {name}(" not in code] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_options_that_are_named_exist(page: Path) -> None:
    """Each option of pytest that a page names is one of the settings."""
    named = set(re.findall(r"--(?:cudalink-[\w-]+\w|force-backend)", read(page)))
    assert named - {option.flag for option in OPTIONS} == set()


def test_every_limitation_has_its_page() -> None:
    """Each line of the limitations begins with a link, to a section wherever the page has several."""
    items = re.findall(r"^- (.+(?:\n  .+)*)", read(DOCS / "limitations.md"), re.MULTILINE)
    assert len(items) >= 30
    for item in items:
        assert re.search(r"\]\((?:\w[\w/-]*\.md#[\w-]+|reference/(?:platforms|suites)\.md|how-to/pdb\.md)\)", item), (
            item
        )


def test_every_answer_is_short_and_leads_on() -> None:
    """Each answer has at most four lines and a link."""
    answers = re.findall(r"^### (.+)\n\n((?:[^#|\n].*\n)+)", read(DOCS / "faq.md"), re.MULTILINE)
    assert len(answers) >= 18
    for question, answer in answers:
        assert answer.count("\n") <= 4, question
        assert re.search(r"\]\(.+\.md", answer), question


def test_glossary_has_the_words() -> None:
    """The glossary defines the words of the project, in alphabetical order, each of them once."""
    terms = re.findall(r"^(\S[^\n]*)\n  \S", read(DOCS / "glossary.md"), re.MULTILINE)
    assert set(WORDS) <= set(terms)
    assert terms == sorted(set(terms), key=str.lower)


def test_figures_of_the_emulated_driver_are_those_of_the_reference() -> None:
    """The explanation repeats no figure that the reference does not have."""
    table = read(DOCS / "explanation" / "emulated-driver.md").partition("| what is compared")[2].partition("\n\n")[0]
    reference = read(DOCS / "reference" / "emulator.md") + read(DOCS / "explanation" / "reliability.md")
    figures = re.findall(r"(?<![\w.:-])\d[\d,.]*\d(?: %)?(?![\w-])", re.sub(r"`[^`]*`", "", table))
    assert len(figures) >= 8
    assert [figure for figure in figures if figure not in reference] == []


def test_figures_of_isolation_are_those_of_the_table() -> None:
    """The answer on isolation has the milliseconds of the reference's table."""
    answer = read(DOCS / "faq.md").partition("### What does isolation cost?\n\n")[2]
    shown = re.match(r"(\d+) ms .*?, (\d+) with.*?, (\d+) where", answer)
    rows = dict(re.findall(r"^\| ([^|]+) \| (\d+) \| \d+% \|$", read(DOCS / "reference" / "plugin.md"), re.MULTILINE))
    assert shown is not None
    assert shown.groups() == (rows["isolated"], rows["isolated, beside pytest-cov"], rows["new process"])
