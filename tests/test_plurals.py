"""Numbers with their nouns."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import pytest_cudalink
from pytest_cudalink.plurals import counted, plural


@pytest.mark.parametrize(
    ("number", "expected"), [(0, "0 entries"), (1, "1 entry"), (2, "2 entries"), (11, "11 entries")]
)
def test_given_plural(number: int, expected: str) -> None:
    """Only one is singular."""
    assert counted(number, "entry", "entries") == expected


def test_regular_plural() -> None:
    """A plural ends in s where no other is given."""
    assert [counted(number, "cell") for number in (0, 1, 2)] == ["0 cells", "1 cell", "2 cells"]
    assert [plural(number, "was", "were") for number in (0, 1, 2)] == ["were", "was", "were"]


#: What texts count, in the plural. Bytes and seconds are units, which are measured.
NOUNS = (
    "answers|artifacts|attempts|axes|calls|cells|changes|copies|crashes|devices|drivers|entries|errors|events|failures|"
    "faults|figures|files|findings|folders|functions|groups|handles|images|items|jobs|layers|libraries|lines|links|"
    "members|messages|minutes|modules|names|objects|packages|pairs|parts|problems|processes|records|releases|reports|"
    "rules|runs|sections|sessions|steps|stubs|subtests|symbols|tests|toolchains|violations|warnings|wheels|words"
)
#: Texts whose number cannot be 1.
MORE_THAN_ONE = {
    "audit/device_code/images.py": "the limit of images, a constant",
    "compat/make_exports.py": "a script of this project; its error is about any number but 1",
    "emulator/control.py": "the limit of faults, a constant",
    "emulator/data/make_functions.py": "a script of this project, about a table with hundreds",
    "emulator/faults.py": "an error about more faults than the limit",
    "guardrails/guard.py": "the repr of an object",
    "matrix/reading.py": "an error about more cells than the limit",
}
_AFTER = re.compile(rf" (?:[a-z-]+ )?(?:{NOUNS})\b")
PACKAGE = Path(pytest_cudalink.__file__).parent


def _wrong(source: str) -> Iterator[str]:
    """Yield the f-strings of a source in which a noun in the plural follows a number, and plurals made by hand."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            for value, text in pairwise(node.values):
                match value, text:
                    case ast.FormattedValue(value=number), ast.Constant(value=str(words)):
                        if _is_number(number) and _AFTER.match(words):
                            yield f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.BinOp | ast.IfExp) and _is_by_hand(node):
            yield f"line {node.lineno}: {ast.unparse(node)}"


def _is_by_hand(node: ast.BinOp | ast.IfExp) -> bool:
    """Return whether an expression adds an s: ``"s" * (n != 1)``, or ``"" if n == 1 else "s"``."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Mult) and _text(node.left) == "s"
    return {_text(node.body), _text(node.orelse)} == {"", "s"}


def _text(node: ast.expr) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _is_number(node: ast.expr) -> bool:
    """Return whether a value can be a number: a name or attribute that is not one of texts, a call of len or sum."""
    if isinstance(node, ast.Call):
        return ast.unparse(node.func).split(".")[-1] in {"len", "sum", "total", "count"}
    name = ast.unparse(node).split(".")[-1]
    return bool(re.search(r"count|number|total|size|MOST|most|LIMIT|DEPTH|lost|left|unsafe|done|every", name))


def test_plurals_are_made_in_one_place() -> None:
    """No text says `1 cells`: numbers and their nouns come from `counted`."""
    found = {
        str(path.relative_to(PACKAGE)): wrong
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.name != "plurals.py" and (wrong := list(_wrong(path.read_text(encoding="utf-8"))))
    }

    assert {name: wrong for name, wrong in found.items() if name not in MORE_THAN_ONE} == {}
    assert MORE_THAN_ONE.keys() <= found.keys(), "an exception without a text"


@pytest.mark.parametrize(
    ("source", "is_wrong"),
    [
        ('f"{len(found)} cells, no errors"', True),
        ('f"{count} newer wheels"', True),
        ('''f"{count} file{'s' * (count != 1)}"''', True),
        ('''f"{n} file{'' if n == 1 else 's'}"''', True),
        ("f\"{counted(len(found), 'cell')}\"", False),
        ('f"the toolchain {release} links"', False),
        ('f"{size} bytes"', False),
    ],
)
def test_the_search_finds(source: str, is_wrong: bool) -> None:
    """The search sees a plural, and no verb."""
    assert bool(list(_wrong(source))) is is_wrong
