"""The forms in which ``cudalink audit`` answers: text, JSON, and the annotations and job summary of GitHub Actions."""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..base.finding import SEVERITIES, Finding, Severity, exit_code_of
from ..base.progress import Progress, progress
from ..base.safe_text import complain, markdown
from ..base.safe_text import line as safe
from ..base.words import and_more
from .arguments import append_summary

_FORMS: Final = ("text", "json", "github")
#: Findings of one answer in the job summary; GitHub refuses a summary of more than 1 MiB.
_MOST_SUMMARIZED: Final = 50
#: In a property of a workflow command, and in its message, where only the first three are escaped.
_ESCAPED: Final = {"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"}

#: The levels of GitHub's annotations that are not "error", by severity.
_LEVELS: Final[dict[str, str]] = {"note": "notice", "warning": "warning"}


@dataclass(frozen=True)
class Answer:
    """The audit of one wheel, folder, library or environment, in every form."""

    path: str  # empty for what is not a file of this machine
    lines: Sequence[str]  # for people. The first one is the verdict.
    plain: Any  # for programs
    findings: Sequence[Finding] = ()  # kind and place of each are its title

    @property
    def rows(self) -> list[tuple[Severity, str, str]]:
        """Severity, title and text of each finding, with its cause and the better remedy: the worst first."""
        ranked = sorted(self.findings, key=lambda each: SEVERITIES.index(each.severity))
        titles = [": ".join(filter(None, (each.kind, each.place))) for each in ranked]
        texts = ["; ".join(filter(None, (each.what, each.why, *each.remedies[:1]))) for each in ranked]
        return list(zip([each.severity for each in ranked], titles, texts, strict=True))

    @property
    def exit_code(self) -> int:
        """That of the findings."""
        return exit_code_of(each.severity for each in self.findings)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the option."""
    parser.add_argument(
        "--format",
        choices=_FORMS,
        default="text",
        help="print text, JSON, or annotations for GitHub Actions; github also appends to the job summary, if "
        "GITHUB_STEP_SUMMARY names a file (default: text)",
    )


def answer_each(
    form: str,
    paths: Iterable[Path],
    judge: Callable[[Path, Progress], Answer],
    errors: tuple[type[Exception], ...],
    *,
    single: bool = False,
) -> int:
    """Print the answer for each path; return the worst exit code, which is 2 for a path that cannot be judged.

    `errors`: what `judge` raises then.
    `single`: whether there is only one, whose JSON is no list.
    """
    code = 0
    answers: list[Answer] = []
    for path in paths:
        try:
            with progress(f"auditing {path.name}") as step:
                answer = judge(path, step)
        except errors as error:
            _complain(form, error)
            code = 2
            continue
        answers.append(answer)
        code = max(code, answer.exit_code)
        if form == "text":
            sys.stdout.writelines(f"{safe(line)}\n" for line in answer.lines)
        elif form == "github":
            sys.stdout.writelines(f"{line}\n" for line in _commands(answer))
    if form == "json" and (answers or not single):
        plain = [answer.plain for answer in answers]
        sys.stdout.write(json.dumps(plain[0] if single else plain, indent=2) + "\n")
    if form == "github" and answers:
        for problem in append_summary(lambda: _summary(answers)):
            _complain(form, problem)
    return code


def _complain(form: str, error: object) -> None:
    """Print to stderr why there is no answer."""
    if form == "github":
        sys.stderr.write(f"{_command('error', 'cudalink audit', str(error))}\n")
    else:
        complain(f"cudalink audit: {safe(error)}")


def _commands(answer: Answer) -> list[str]:
    """The answer as lines for the runner: the text as a group that can be opened, and an annotation per finding."""
    verdict, *lines = map(safe, answer.lines)
    return [
        f"::group::{_escaped(verdict)}",
        *lines,
        "::endgroup::",
        *(_command(_LEVELS.get(level, "error"), title, text, answer.path) for level, title, text in answer.rows),
    ]


def _command(level: str, title: str, text: str, path: str = "") -> str:
    file = f"file={_escaped(safe(path), ':,')}," if path else ""
    return f"::{level} {file}title={_escaped(safe(title), ':,')}::{_escaped(safe(text))}"


def _escaped(text: str, more: str = "") -> str:
    return "".join(_ESCAPED[char] if char in f"%\r\n{more}" else char for char in text)


def _summary(answers: Sequence[Answer]) -> str:
    rows = [
        f"| {'fails' if answer.exit_code else 'passes'} | {markdown(safe(answer.lines[0]))} |" for answer in answers
    ]
    parts = ["### cudalink audit", "", "| verdict | audited |", "|---|---|", *rows, ""]
    for answer in answers:
        findings = [
            f"- **{markdown(safe(title if severity == 'error' else f'{title} ({severity})'))}**: {markdown(safe(text))}"
            for severity, title, text in answer.rows
        ]
        parts += findings[:_MOST_SUMMARIZED]
        if more := and_more(len(findings) - _MOST_SUMMARIZED):
            parts.append(f"-{more}")
    return "\n".join([*parts, "", ""])
