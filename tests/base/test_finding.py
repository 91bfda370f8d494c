"""Findings and commands are data: no module reads a sentence back."""

import ast
from dataclasses import asdict
from pathlib import Path

from pytest_cudalink.base.finding import VERDICTS, Finding, exit_code_of, plain
from pytest_cudalink.base.install_command import Command

PACKAGE = Path(__file__).parents[2] / "pytest_cudalink"
#: Fields that are written for people.
SENTENCES = {
    *("advice", "evidence", "fix", "install", "message", "otherwise", "sentence", "what", "where", "why", "witness")
}
PARSERS = {
    *("endswith", "find", "findall", "finditer", "fullmatch", "index", "match", "partition", "removeprefix"),
    *("removesuffix", "replace", "rpartition", "rsplit", "search", "split", "startswith", "sub"),
}
#: Asks a table for its own words.
EXCUSED = {("linker/dispatch.py", "message")}


def field_of(node: ast.expr) -> object:
    """The field that an expression reads: by name, by key, as text or joined; and a variable that may have one."""
    match node:
        case ast.Call(func=ast.Name(id="str") | ast.Attribute(attr="join"), args=[inner]):
            return field_of(inner)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case ast.Subscript(slice=ast.Constant(value=name)):
            return name
        case _:
            return None


def parsed(source: str) -> set[object]:
    """The fields with sentences that a source takes apart."""
    fields: set[object] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(attr=name, value=value), args=arguments) if name in PARSERS:
                fields |= {field_of(argument) for argument in (value, *arguments)}
            case ast.Compare(left=ast.Constant() | ast.Name(), ops=[ast.In() | ast.NotIn()], comparators=[right]):
                fields.add(field_of(right))
    return fields & SENTENCES


def test_no_sentence_is_parsed() -> None:
    """What a module needs of a finding, a verdict or a need is a field."""
    habits = ("x.message.partition(':')", "re.match('a', x['fix'])", "'a' in x.witness", "re.sub('', '', str(x.what))")
    habits += ("what.startswith('used after ')", "re.search('=', ' '.join(x.fix.install))", "f(what, '+0x' in line)")
    assert [len(parsed(habit)) for habit in habits] == [1] * 6 + [0]
    files = {file.relative_to(PACKAGE).as_posix(): file for file in PACKAGE.rglob("*.py")}
    places = {(name, field) for name, file in files.items() for field in parsed(file.read_text(encoding="utf-8"))}
    assert places == EXCUSED


def test_the_verdict_of_findings() -> None:
    """An error outweighs what is not known; warnings and notes do not count."""
    cases = (("note", "warning"), ("unknown", "error"), ("unknown", "note"), ())
    assert [VERDICTS[exit_code_of(case)] for case in cases] == [VERDICTS[0], VERDICTS[1], VERDICTS[2], VERDICTS[0]]


def test_remedies() -> None:
    """The command comes before the other remedy, and is left out where there is none."""
    assert Finding("note", "x", Command(("a",)), "wait").remedies == ("pip install a", "wait")
    assert Finding("note", "x", otherwise="wait").remedies == ("wait",)


def test_plain_data() -> None:
    """A command is its text; every other field stays as it is."""
    content = asdict(Finding("note", "x", Command(("a",)), evidence=(1,)), dict_factory=plain)
    assert (content["severity"], content["fix"], content["evidence"]) == ("note", "pip install a", (1,))
