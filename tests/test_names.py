"""Names that a search finds in one place."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from campaigns.conformance.programs.api import THEMES

PACKAGE = Path(__file__).parents[1] / "pytest_cudalink"
#: More modules of one name than this are too many; a command and its part have the same, as cli/audit.py and audit/.
_MOST_MODULES: Final = 3
#: Words that say nothing about the thing, and that a search finds everywhere.
_NO_NOUNS: Final = {"found", "it", "of", "one", "that", "this", "what"}

#: A comment of the C that says where an answer comes from, with the name of a test or a recording.
_MEASURED: Final = re.compile(r"\((?:measured|recorded)(?=[):;]| on| for)(?:: ([\w./-]*\w))?")
RECORDED = Path(__file__).parents[1] / "campaigns" / "conformance" / "recorded"


def definitions(kind: str) -> Iterator[tuple[str, str]]:
    """The path and the name of each public definition at the margin of a module: ``class`` or ``def``."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in re.findall(rf"^{kind} ([a-zA-Z]\w*)", path.read_text(encoding="utf-8"), re.MULTILINE):
            yield path.relative_to(PACKAGE).as_posix(), name


def test_no_two_public_classes_have_one_name() -> None:
    """A name in a message, a page or a traceback leads to one class."""
    places = defaultdict(list)
    for path, name in definitions("class"):
        places[name].append(path)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_few_modules_have_one_name() -> None:
    """A file that an editor opens by its name is the right one, or one of three."""
    places = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        if not path.stem.startswith("__"):
            places[path.stem].append(path.relative_to(PACKAGE).as_posix())
    assert {name: found for name, found in places.items() if len(found) > _MOST_MODULES} == {}


def test_public_functions_have_nouns() -> None:
    """What a search for a function finds is that function."""
    named = [*definitions("def"), *definitions("class")]
    assert [f"{path}: {name}" for path, name in named if name in _NO_NOUNS] == []


def test_measured_answers_name_a_test_or_a_recording() -> None:
    """Each "(measured: NAME)" of the C names a test, a row of its table, a recorded theme, or a program of edges."""
    recordings = {file.name.partition(".json")[0] for file in RECORDED.glob("*.json*")}
    edges = {f"edges/{file.stem}" for file in RECORDED.parent.glob("edges/recorded/*.txt")}
    cases = json.loads((RECORDED / "driver-580.159.04.json").read_text(encoding="utf-8"))["cases"]
    tests = "\n".join(file.read_text(encoding="utf-8") for file in Path(__file__).parent.rglob("test_*.py"))
    programs = {f"programs/{theme}" for theme in THEMES}
    names = re.findall(r'^(?:def test_| {4}")(\w+)(?:\(|": """)', tests, re.MULTILINE)
    known = {*recordings, *edges, *cases, *programs, *(f"test_{name}" for name in names)}
    wrong = [
        f"{file.name}: {found[0]}"
        for file in sorted(PACKAGE.glob("*/native/*.[ch]"))
        for found in _MEASURED.finditer(re.sub(r"\n\s*\*?\s*", " ", file.read_text(encoding="utf-8")))
        if found[1] not in known
    ]
    assert wrong == []
