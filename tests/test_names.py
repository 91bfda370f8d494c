"""Names that a search finds in one place."""

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from campaigns.conformance.programs.api import THEMES

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "pytest_cudalink"
OTHERS = [
    path for name in ("tests", "campaigns", "benchmarks", "tools", "docs") for path in (ROOT / name).rglob("*.py")
]
OTHERS.append(ROOT / "noxfile.py")
#: More modules of one name than this are too many; a command and its part have the same, as cli/audit.py and audit/.
_MOST_MODULES: Final = 3
#: Words that say nothing about the thing, and that a search finds everywhere.
_NO_NOUNS: Final = {"it", "of", "that", "this", "what"}
_NO_MEMBERS: Final = {"asked", "found", "given", "home", "judgement", "lack", "one", "seen", "way", "ways"}
#: Texts and comments of a module, and the two words in what is left.
_TEXT: Final = re.compile(r'"""[\s\S]*?"""|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#.*')
_BARE: Final = re.compile(r"(?<![.\w])(?:one|found)\b")
#: What may be a function, a class, a member or a parameter of such a name.
_VAGUE: Final = re.compile(rf"(?:def |class |[(*, ])(?i:{'|'.join(_NO_NOUNS | _NO_MEMBERS)})[(:]")
#: Members that users know by these names: of records, of tables, and of what a probe or a decision returns.
_PUBLISHED: Final = {
    *("ArchRecord.found", "CellRun.asked", "Decision.found", "KnownBad.seen", "NvJitLink.found", "Recording.asked"),
    *("Recording.found", "VersionRecord.found", "Wait.given"),
}

#: A comment of the C that says where an answer comes from, with the name of a test or a recording.
_MEASURED: Final = re.compile(r"\((?:measured|recorded)(?=[):;]| on| for)(?:: ([\w./-]*\w))?")
RECORDED = ROOT / "campaigns" / "conformance" / "recorded"


def test_few_modules_and_no_two_public_classes_have_one_name() -> None:
    """A name in a message, a page or a traceback leads to one class, and in an editor to one of three files."""
    files = [*PACKAGE.rglob("*.py")]
    classes = Counter(
        name for file in files for name in re.findall(r"(?m)^class ([a-zA-Z]\w*)", file.read_text("utf-8"))
    )
    modules = Counter(file.stem for file in files if not file.stem.startswith("__"))
    assert [name for name, number in classes.items() if number > 1] == []
    assert [name for name, number in modules.items() if number > _MOST_MODULES] == []


@cache
def code(file: Path) -> str:
    """A module without its texts and comments."""
    return _TEXT.sub("", file.read_text(encoding="utf-8"))


def vague_names(text: str) -> Iterator[str]:
    """The functions, classes and parameters of a module that have no noun for a name, and such members of a class."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.arguments):
            every = (*node.posonlyargs, *node.args, *node.kwonlyargs, node.vararg, node.kwarg)
            yield from (
                f"({parameter.arg})"
                for parameter in every
                if parameter and parameter.annotation and parameter.arg in _NO_NOUNS | _NO_MEMBERS
            )
        elif isinstance(node, ast.ClassDef):
            names = (
                getattr(part, "name", "") or getattr(getattr(part, "target", None), "id", "") for part in node.body
            )
            yield from (f"{node.name}.{name}" for name in names if name in _NO_MEMBERS)
    named = (part.name for part in tree.body if isinstance(part, ast.FunctionDef | ast.ClassDef))
    yield from (name for name in named if name.lower() in _NO_NOUNS | _NO_MEMBERS)


def test_names_have_nouns() -> None:
    """What a search for a function, a class, a member or a parameter finds is that one."""
    source = "class Way:\n    def one(self): ...\nclass Door:\n    seen: int\n    what: str\n"
    source += "def it(lock, *given: int): ...\n"
    assert {*vague_names(source)} == {"Way", "Way.one", "Door.seen", "it", "(given)"}
    files = [file for file in (*PACKAGE.rglob("*.py"), *OTHERS) if _VAGUE.search(code(file))]  # few are parsed
    vague = [(file, name) for file in files for name in vague_names(file.read_text(encoding="utf-8"))]
    assert {name for file, name in vague if PACKAGE in file.parents and not name.startswith("_")} == _PUBLISHED
    assert [(file, name) for file, name in vague if PACKAGE not in file.parents and "." not in name] == []


def test_files_name_what_they_take() -> None:
    """What a loop takes, or a call returns, has its noun for a name."""
    bare = []
    for file in (file for file in (*PACKAGE.rglob("*.py"), *OTHERS) if _BARE.search(code(file))):
        nodes = [*ast.walk(ast.parse(file.read_text(encoding="utf-8")))]
        members = {node.target for node in nodes if isinstance(node, ast.AnnAssign)}  # of `_PUBLISHED`
        names = [(node.id, node) for node in nodes if isinstance(node, ast.Name) and node not in members]
        names += [(node.arg, node) for node in nodes if isinstance(node, ast.arg)]
        bare += [f"{file}:{node.lineno}" for name, node in names if name in ("one", "found")]
    assert bare == []


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
        f"{file.name}: {match[0]}"
        for file in sorted(PACKAGE.glob("*/native/*.[ch]"))
        for match in _MEASURED.finditer(re.sub(r"\n\s*\*?\s*", " ", file.read_text(encoding="utf-8")))
        if match[1] not in known
    ]
    assert wrong == []
