"""What newcomers met is held by tests, and the path of the session ``stranger`` is the documented one."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests import sessions

from .__main__ import missed, table
from .path import FIRST, MATRIX, MUST_SAY, Step, steps

__all__ = ()

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
STATEMENTS = {
    statement: tests
    for part in tomllib.loads((Path(__file__).parent / "newcomer.toml").read_text(encoding="utf-8")).values()
    for statement, tests in part.items()
}
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


@cache
def functions(file: str) -> set[str]:
    """The functions of a module, without importing it."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_test_holds_each_statement(statement: str) -> None:
    """Each test that is named for it exists, and so does the page in its brackets."""
    assert STATEMENTS[statement]
    for name in STATEMENTS[statement]:
        found = re.fullmatch(r"(tests/\S+\.py)::(test_\w+)(?:\[(\S+)\])?", name)
        assert found is not None, name
        file, function, page = found.groups()
        assert function in functions(file), name
        assert not page or (DOCS / f"{page}.md").read_text(encoding="utf-8").count("```console\n$ "), name


def test_tutorial_counts_what_it_shows() -> None:
    """The numbers of files and cells in the tutorial's sentences are those of the output above them."""
    text = MATRIX.read_text(encoding="utf-8")
    shown = {command.split("  #")[0]: out for command, out in sessions.steps(sessions.blocks(text))}
    written = shown["cudalink init --runner nox --ci github"].count("write   ")
    cells = len(shown["cudalink matrix list"].splitlines())
    assert f"`init` wrote {NUMBERS[written]} files" in text
    assert f"{NUMBERS[cells]} cells" in text.replace("\n", " ")
    assert re.search(rf"Commit the\s+{NUMBERS[written]}\s+files", text)


def test_folders_of_the_runners_are_ignored() -> None:
    """Git does not offer the environments of nox and tox, nor the records."""
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert {".nox/", ".tox/", ".cudalink/"} <= set(ignored)


def test_the_path_is_documented() -> None:
    """It goes from the installation over demo and init to red, the fix and green, by commands of the pages."""
    path = steps()
    commands = [step.command for step in path]
    order = [
        "python -m venv venv",
        'pip install "pytest-cudalink[cu13]"',
        *MUST_SAY,
    ]
    places = [commands.index(command) for command in order]
    assert places[:2] == sorted(places[:2])
    assert all(place > places[1] for place in places[2:])
    fix = commands.index("git apply fix.diff")
    assert commands.index("nox -s ctk-13.2-driver-13.0") < fix < commands.index("nox -R -s ctk-13.2-driver-13.0")
    assert {step.command for step in path if step.code} == {
        "pytest --cudalink-driver=12.9",
        "nox -s ctk-13.2-driver-13.0",
        "cudalink report .cudalink --html report.html --save before.json",
        "nox -s ctk-13.0-driver-12.9",
    }
    assert {step.page for step in path} == {"", "README.md", FIRST.name, MATRIX.name}


def test_downloads_are_apart() -> None:
    """The table has what the second walk saved as downloads, the sums, and what misses a limit is named."""
    path = [Step("p", "f", "one"), Step("p", "f", "two")]
    assert table(path, [10, 1], [4, 2]).splitlines() == [
        "      cold      ours downloads  step",
        "      10.0       4.0       6.0  one",
        "       1.0       2.0       0.0  two",
        "      11.0       6.0       6.0  seconds in all",
    ]
    assert table(path, None, [4, 2]).splitlines()[0] == "      ours  step"
    assert missed([500, 99], [299, 0]) == []
    assert missed([500, 100], [200, 100]) == [
        "the path without caches took 600 s; expected less than 600 s",
        "what is ours of it took 300 s; expected less than 300 s",
    ]
