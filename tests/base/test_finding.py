"""Findings and commands are data: no module reads a sentence back."""

import ast
import json
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from pytest_cudalink import audit, doctor
from pytest_cudalink.audit import Audit
from pytest_cudalink.audit.environment import Claim, EnvironmentAudit
from pytest_cudalink.base.finding import VERDICTS, Finding, RerunFinding, exit_code_of
from pytest_cudalink.base.install_command import Command
from pytest_cudalink.cli import can_link, main
from pytest_cudalink.guardrails.can_link import Reply
from pytest_cudalink.guardrails.items import Verdict
from pytest_cudalink.plugin.watch.check import section_of
from pytest_cudalink.report import html
from pytest_cudalink.report.cell_run import CellRun, Detail
from pytest_cudalink.report.matrix_report import MatrixReport
from pytest_cudalink.report.records import FindingRecord, VerdictRecord
from pytest_cudalink.report.wording import cause_of, cause_record, explanation, verdict_record

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


FIELDS = tuple(field.name for field in fields(Finding))
#: What people see of a finding in each output, besides its severity.
COMMANDS = {
    "doctor -v": "what fix otherwise why",
    "audit .": "what place kind",
    "audit --environment": "what fix otherwise why evidence place",
    "audit . --format=github": "what fix why place kind",
    "audit --environment --format=github": "what fix why place kind",
    "can-link 13.0 nvjitlink-13.0 ptx": "what suggestion",
}
AUDITS = [*COMMANDS][1:3]
RUNS = {
    "guard rails": "what fix otherwise evidence kind",
    "check": "evidence kind",
    "cause": "what why suggestion",
    "page: guard rails": "what fix kind",
    "page: cause": "what why suggestion",
    "page: sweep": "what evidence kind",
}


def made(kind: type[Finding], mark: str = "_", **more: object) -> Any:
    """A finding whose fields have their names as text, between marks."""
    texts: dict[str, Any] = {name: f"{mark}{name.upper()}_" for name in FIELDS}
    texts |= {"severity": "error", "fix": Command((texts["fix"],))}
    return kind(**{**texts, "evidence": (texts["evidence"],), "suggestion": (texts["suggestion"],), **more})


def shown(text: str, mark: str = "_") -> str:
    return " ".join(name for name in FIELDS if f"{mark}{name.upper()}_" in text)


def test_every_command_reads_the_same_fields(monkeypatch, capsys) -> None:
    """JSON has them under their names, all but that of can-link, where a reply has no others."""
    claim, known = Claim("_EVIDENCE_", "x", "", "declared", "", None), {"answer": None, "hardware": ()}
    there = EnvironmentAudit("/p", "3.12", 1, (), (made(Finding, evidence=(claim,)),), (), 0, 1.0)
    reply = partial(made, Reply, documented=(), rules=(), **known)
    monkeypatch.setattr(doctor, "examine", lambda _: doctor.DoctorReport(findings=[made(Finding)]))
    monkeypatch.setattr(doctor, "examine_environment", lambda *_, **__: there)
    monkeypatch.setattr(audit, "audit", lambda _: Audit("x", (), (made(Finding),), ()))
    monkeypatch.setattr(can_link, "reply_to", lambda _, question: reply(question=question))

    def printed(words: str) -> str:
        assert main(words.split()) == 1
        return capsys.readouterr().out

    assert {words: shown(printed(words).rpartition("::endgroup::")[2]) for words in COMMANDS} == COMMANDS
    plain = [json.loads(printed(words)) for words in ("doctor --json", *(f"{words} --format=json" for words in AUDITS))]
    for content in (plain[0], plain[1][0], plain[2]):
        finding = content["findings"][0]
        assert (tuple(finding), shown(str(finding)).split()) == (FIELDS, [*FIELDS[1:]])
    (answer,) = json.loads(printed(f"{[*COMMANDS][-1]} --json"))["answers"]
    own = {name: answer[name] for name in FIELDS if name in answer}
    assert own == {"severity": "error", "what": "_WHAT_", "why": "_WHY_", "suggestion": ["_SUGGESTION_"]}


def test_every_part_of_a_run_reads_the_same_fields() -> None:
    """Sections of a test, records and a report; a cause of an earlier version is read, too."""
    verdict, cause, rerun = made(Verdict, "V_"), made(Finding, "C_"), made(RerunFinding, "R_")
    record = {name: getattr(rerun, name) for name in FindingRecord.__struct_fields__ if hasattr(rerun, name)}
    details = {"t": Detail(cause=cause_record(cause))}
    cell = CellRun("a", finished=True, exitstatus=1, outcomes={"t": "F"}, details=details)
    cell.verdicts, cell.findings = [VerdictRecord(**verdict_record(verdict))], [FindingRecord(**record)]
    page = html.render(MatrixReport([cell]))
    assert {
        "guard rails": shown(verdict.text, "V_"),
        "check": shown("".join(section_of(made(Finding)))),
        "cause": shown(explanation(cause), "C_"),
        "page: guard rails": shown(page, "V_"),
        "page: cause": shown(page, "C_"),
        "page: sweep": shown(page, "R_"),
    } == RUNS
    for content, mark in ((cause_record(cause), "C_"), (verdict_record(verdict), "V_"), (record, "R_")):
        own = {name: content[name] for name in FIELDS[1:] if name in content}
        assert shown(str(own), mark).split() == [*own]
    assert cause_of({**cause_record(cause), "suggestion": [], "fix": ["older"]}).suggestion == ("older",)
