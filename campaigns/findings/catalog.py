"""The findings of ``docs/findings/findings.toml``: one fault of a library each, with the releases that ran.

``blocks`` makes the page of all findings from them, their reproducers and their sessions (``docs/examples/findings``).
``python -m campaigns.findings.catalog ID`` prints the text of an issue from the same parts; without an ID, it lists
them.
"""

import argparse
import re
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import Version

from tests import sessions

ROOT = Path(__file__).parent.parent.parent
DATA = ROOT / "docs" / "findings" / "findings.toml"
EXAMPLES = ROOT / "docs" / "examples" / "findings"
SESSIONS = ROOT / "tools" / "sessions.toml"
#: The page "What breaks in the field", whose sessions run as those of findings do, with the files of its examples.
FIELD = ROOT / "docs" / "explanation" / "field.md"

EMULATED = """\
No GPU is needed: `--cudalink-driver` of [pytest-cudalink](https://pypi.org/project/pytest-cudalink/) puts an emulated
`libcuda.so.1` under the test."""
FAULTS = "`--cudalink-fault-sweep` makes its calls fail, one in each run."


@dataclass(frozen=True)
class Runs:
    """Releases that ran the reproducer in environments of the same packages; ``{}`` stands for the release."""

    packages: tuple[str, ...] = ()
    bad: tuple[str, ...] = ()
    good: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cells:
    """Cells of the atlas that a finding states, each with the same status and code, such as ``"refused 3"``."""

    step: str
    kind: str
    made: tuple[str, ...]
    read: tuple[str, ...]
    archs: tuple[str, ...]
    answer: str


@dataclass(frozen=True)
class Issue:
    """What the text of an issue about a finding needs in addition to the finding."""

    to: str
    why: str  # why the fault matters to those who use the library
    searches: tuple[str, ...]  # date and words of each search that found no thread about it
    log: str = ""  # what a real driver prints, where the session is of an emulated driver that does not have the fault


@dataclass(frozen=True)
class Finding:
    """One fault of a published library."""

    id: str
    library: str
    kind: str
    title: str
    determined: str  # how the releases were determined, in one sentence
    expected: str  # the answer that its contract asks for
    seen: str  # the answer that came
    about: str  # the mechanism, in Markdown that stands without this project
    contract: str  # where the contract stands
    fix: str  # a proposed one
    upstream: str  # where it was reported, or that no thread on GitHub was found
    command: str  # of the reproducer, in which ``{}`` stands for the release
    shows: str  # the pattern that its output has where the release is bad
    runs: tuple[Runs, ...]
    measured: tuple[
        str, ...
    ] = ()  # releases found bad in another way than by the reproducer, such as a driver on a GPU
    cells: tuple[Cells, ...] = ()
    driver: str = ""  # why the reproducer needs a driver; empty if it needs neither a driver nor this project
    here: str = ""  # what this project does about the fault, in Markdown
    ran: str = ""  # the date on which its releases ran, where that is not the date of all
    issue: Issue | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of the reproducer."""
        return tuple(sorted((EXAMPLES / self.id).glob("*.py")))

    @property
    def session(self) -> str:
        """Commands in named environments, with what they print."""
        return (EXAMPLES / self.id / "session.txt").read_text(encoding="utf-8")

    @property
    def bad(self) -> tuple[str, ...]:
        """Releases with the fault, oldest first."""
        return (*self.measured, *sorted((release for runs in self.runs for release in runs.bad), key=Version))

    @property
    def good(self) -> tuple[str, ...]:
        """Releases without the fault that ran, oldest first."""
        return tuple(sorted((release for runs in self.runs for release in runs.good), key=Version))

    @property
    def ranges(self) -> str:
        """The releases with the fault; ``A to B`` where every release between them that ran has it."""
        if self.measured:
            return ", ".join(self.bad)
        groups: list[list[str]] = []
        before = ""
        for release in sorted((*self.bad, *self.good), key=Version):
            if release in self.bad:
                if before in self.good or not groups:
                    groups.append([])
                groups[-1].append(release)
            before = release
        return ", ".join(group[0] if len(group) == 1 else f"{group[0]} to {group[-1]}" for group in groups)

    @property
    def mended(self) -> str:
        """The first release without the fault after the last one with it; empty if the newest has it."""
        later = [r for r in self.good if Version(r) > Version(self.bad[-1])] if not self.measured else []
        return later[0] if later else ""

    @property
    def outcome(self) -> str:
        """What became of the fault, for a table."""
        return self.mended or f"not mended in {self.bad[-1]} as of {as_of()}"


def _content() -> dict[str, Any]:
    return tomllib.loads(DATA.read_text(encoding="utf-8"))


def _as_tuples(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}


def as_of() -> str:
    """The date on which the releases ran and the index was asked for newer ones."""
    return str(_content()["as-of"])


def read() -> tuple[Finding, ...]:
    """Every finding, in the order of the file."""
    made = []
    for entry in _content()["findings"]:
        runs = tuple(Runs(**_as_tuples(row)) for row in entry.get("runs", ()))
        cells = tuple(Cells(**_as_tuples(row)) for row in entry.get("cells", ()))
        issue = Issue(**_as_tuples(entry["issue"])) if "issue" in entry else None
        made.append(Finding(**_as_tuples(entry) | {"runs": runs, "cells": cells, "issue": issue}))
    return tuple(made)


def sessions_of_all() -> dict[str, tuple[Path, str]]:
    """Each session in named environments, with the folder of its files: by finding; of the page as ``field-…``."""
    sections = re.split(r"^### ", FIELD.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    page = {f"field-{text.partition(chr(10))[0]}": sessions.environment_blocks(text) for text in sections}
    of_page = {name: (EXAMPLES.with_name("field"), blocks) for name, blocks in page.items() if blocks}
    return {finding.id: (EXAMPLES / finding.id, finding.session) for finding in read()} | of_page


def environments(chosen: Sequence[str] = ()) -> set[str]:
    """The environments that sessions name whose names have one of some words in them, or all."""
    texts = [text for name, (_, text) in sessions_of_all().items() if any(word in name for word in chosen or [""])]
    return {environment for text in texts for environment in re.findall(sessions.ENVIRONMENT, text, re.MULTILINE)}


def blocks() -> dict[str, str]:
    """The generated parts of the page: the table of the findings, and a section for each."""
    rows = [f"| {f.library} | [{f.title}](#{f.id}) | {f.kind} | {f.ranges} | {f.outcome} |" for f in read()]
    head = ["| library | finding | kind | releases | mended in |", "|---|---|---|---|---|"]
    return {"table": "\n".join([*head, *rows]), "findings": "\n".join(map(_section, read()))}


def _section(finding: Finding) -> str:
    facts = {
        "expected": finding.expected,
        "seen": finding.seen,
        "releases with the fault": finding.ranges,
        "releases without it": ", ".join(finding.good) or "none of those that ran",
        "determined": finding.determined,
        "needs": f"a driver. {finding.driver}" if finding.driver else "no driver, and nothing of this project",
        "reported": finding.upstream,
        **_unfiled(finding),
        "contract": finding.contract,
        "proposed fix": finding.fix,
    }
    lines = [f"({finding.id})=", f"### {finding.title}", "", finding.about, finding.here, "| | |", "|---|---|"]
    lines += [f"| {name} | {text} |" for name, text in facts.items()]
    for file in (*finding.files, EXAMPLES / finding.id / "session.txt"):
        language = "python" if file.suffix == ".py" else "console"
        path = f"../examples/findings/{finding.id}/{file.name}"
        lines += ["", f"```{{literalinclude}} {path}", f":language: {language}"]
        lines += [f":caption: {file.name}"] * (language == "python") + ["```"]
    return "\n".join([*lines, ""])


def _unfiled(finding: Finding) -> dict[str, str]:
    """Further rows for a fault that no thread names: the searches that show it, and how to get the text to send."""
    if not (issue := finding.issue):
        return {}
    command = f"`python -m campaigns.findings.catalog {finding.id}`"
    return {"searched": "; ".join(f"`{t}`" for t in issue.searches), "text to send": f"{command}, to {issue.to}"}


def _shown(finding: Finding) -> tuple[str, str, str]:
    """The step of the session that shows the fault: its environment, its command, and what that prints."""
    commands = {finding.command.replace("{}", release) for release in finding.bad}
    return next(
        step
        for step in sessions.environment_steps(finding.session)
        if any(command in step[1] for command in commands) and re.search(finding.shows, step[2], re.MULTILINE)
    )


def text_to_send(finding: Finding) -> str:
    """The text of an issue about a fault that no thread names, for a reader who does not know this project."""
    assert finding.issue is not None, f"{finding.id} is reported: {finding.upstream}"
    issue, (environment, command, printed) = finding.issue, _shown(finding)
    packages = tomllib.loads(SESSIONS.read_text(encoding="utf-8"))["findings"][environment]
    if finding.measured:
        command = command.rpartition(" -- ")[2]  # on the real driver
    elif finding.driver:
        packages = [*packages, "pytest-cudalink"]
    files = [file for file in finding.files if file.name in command or f"`{file.name}`" in finding.about]
    about = re.sub(r"\[([^]]+)\]\(#[\w-]+\)", r"\1", finding.about)  # of other findings
    upstream = finding.upstream.removeprefix("not found").lstrip("; ")
    mended = f"- {finding.mended} has mended it; this is for those who use an older release" if finding.mended else ""
    versions = (
        f"- with the fault: {finding.ranges}",
        f"- without it: {', '.join(finding.good) or 'no release that ran'}",
        mended,
        f"\n{finding.determined} Linux x86-64, Python 3.11, {finding.ran or as_of()}.",
    )
    install = " ".join(f"'{package}'" for package in packages)
    reproducer = (
        *(f"`{file.name}`:\n\n```python\n{file.read_text(encoding='utf-8')}```" for file in files),
        f"```console\n$ pip install {install}\n$ {command}\n```",
        EMULATED if finding.command.startswith("pytest ") else "",
        FAULTS if "--cudalink-fault-sweep" in command else "",
    )
    searched = ("GitHub, for:", *(f"- {row}" for row in issue.searches), upstream and f"\nRelated: {upstream}")
    parts = {
        "Why it matters": issue.why,
        "Versions": "\n".join(filter(None, versions)),
        "To reproduce": "\n\n".join(filter(None, reproducer)),
        "Expected": finding.expected,
        "Seen": f"{finding.seen}\n\n```console\n{issue.log or printed}```",
        "Contract": finding.contract,
        "Proposed fix": finding.fix,
        "Searched before": "\n".join(filter(None, searched)),
    }
    sections = "\n\n".join(f"### {name}\n\n{text}" for name, text in parts.items())
    return f"To: {issue.to}\nTitle: {finding.title}\n\n{about.strip()}\n\n{sections}\n"


def main(arguments: list[str] | None = None) -> int:
    """Print the texts of some findings, or a list of all with their addressees."""
    parser = argparse.ArgumentParser(
        description="Print the text of an issue for each finding that is named; without a name, list them."
    )
    unfiled = {finding.id: finding for finding in read() if finding.issue}
    parser.add_argument("findings", nargs="*", metavar="ID", help="; ".join(unfiled))
    chosen = parser.parse_args(arguments).findings
    if unknown := set(chosen) - unfiled.keys():
        parser.error(f"{', '.join(sorted(unknown))}: not a finding to send; expected some of {', '.join(unfiled)}")
    if chosen:
        print("\n".join(text_to_send(unfiled[name]) for name in chosen))
    else:
        print("\n".join(f"{name}: to {finding.issue.to}" for name, finding in unfiled.items() if finding.issue))
    return 0


if __name__ == "__main__":
    sys.exit(main())
