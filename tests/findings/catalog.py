"""The findings of ``docs/findings/findings.toml``: one fault of a library each, with the releases that ran.

``blocks`` makes the page of all findings from them, their reproducers and their sessions (``docs/examples/findings``).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import Version

from tests import sessions

__all__ = ["DATA", "EXAMPLES", "Cells", "Finding", "Runs", "as_of", "blocks", "environments", "read"]

ROOT = Path(__file__).parent.parent.parent
DATA = ROOT / "docs" / "findings" / "findings.toml"
EXAMPLES = ROOT / "docs" / "examples" / "findings"


@dataclass(frozen=True)
class Runs:
    """Releases that ran the reproducer in environments of the same packages; ``{}`` stands for the release."""

    packages: tuple[str, ...]
    bad: tuple[str, ...]
    good: tuple[str, ...]


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
class Finding:
    """One fault of a published library."""

    id: str
    library: str
    kind: str
    title: str
    #: How the releases were determined, in one sentence.
    determined: str
    #: The answer that its contract asks for, and the answer that came.
    expected: str
    seen: str
    #: The mechanism, in Markdown; where the contract stands; and a proposed fix.
    about: str
    contract: str
    fix: str
    #: Where it was reported, or that no thread on GitHub was found.
    upstream: str
    #: The command of the reproducer, in which ``{}`` stands for the release, and the
    #: pattern that its output has where the release is bad.
    command: str
    shows: str
    runs: tuple[Runs, ...]
    #: Releases that were found bad in another way than by the reproducer, such as a driver on a GPU.
    measured: tuple[str, ...] = ()
    cells: tuple[Cells, ...] = ()
    #: Why the reproducer needs a driver; empty if it needs neither a driver nor this project.
    driver: str = ""

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
        return (*self.measured, *sorted((one for runs in self.runs for one in runs.bad), key=Version))

    @property
    def good(self) -> tuple[str, ...]:
        """Releases without the fault that ran, oldest first."""
        return tuple(sorted((one for runs in self.runs for one in runs.good), key=Version))

    @property
    def ranges(self) -> str:
        """The releases with the fault; ``A to B`` where every release between them that ran has it."""
        if self.measured:
            return ", ".join(self.bad)
        groups: list[list[str]] = []
        before = ""
        for one in sorted((*self.bad, *self.good), key=Version):
            if one in self.bad:
                if before in self.good or not groups:
                    groups.append([])
                groups[-1].append(one)
            before = one
        return ", ".join(one[0] if len(one) == 1 else f"{one[0]} to {one[-1]}" for one in groups)

    @property
    def mended(self) -> str:
        """The first release without the fault after the last one with it; empty if the newest has it."""
        later = [one for one in self.good if Version(one) > Version(self.bad[-1])] if not self.measured else []
        return later[0] if later else ""

    @property
    def outcome(self) -> str:
        """What became of the fault, for a table."""
        return self.mended or f"not mended in {self.bad[-1]} as of {as_of()}"


def _content() -> dict[str, Any]:
    return tomllib.loads(DATA.read_text(encoding="utf-8"))


def _cells(entry: dict[str, Any]) -> Cells:
    made, read, archs = (tuple(entry[key]) for key in ("made", "read", "archs"))
    return Cells(entry["step"], entry["kind"], made, read, archs, entry["answer"])


def as_of() -> str:
    """The date on which the releases ran and the index was asked for newer ones."""
    return str(_content()["as-of"])


def read() -> tuple[Finding, ...]:
    """Every finding, in the order of the file."""
    return tuple(
        Finding(
            **{
                **entry,
                "runs": tuple(Runs(*(tuple(runs.get(key, ())) for key in ("packages", "bad", "good"))) for runs in ran),
                "measured": tuple(entry.get("measured", ())),
                "cells": tuple(_cells(one) for one in entry.get("cells", ())),
            }
        )
        for entry in _content()["findings"]
        for ran in [entry.get("runs", ())]
    )


def environments(identifiers: Iterable[str]) -> set[str]:
    """The environments that the sessions of some findings name."""
    texts = [one.session for one in read() if one.id in set(identifiers)]
    return {environment for text in texts for environment in re.findall(sessions.ENVIRONMENT, text, re.MULTILINE)}


def blocks() -> dict[str, str]:
    """The generated parts of the page: the table of the findings, and a section for each."""
    rows = [
        f"| {one.library} | [{one.title}](#{one.id}) | {one.kind} | {one.ranges} | {one.outcome} |" for one in read()
    ]
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
        "contract": finding.contract,
        "proposed fix": finding.fix,
    }
    lines = [f"({finding.id})=", f"### {finding.title}", "", finding.about, "| | |", "|---|---|"]
    lines += [f"| {name} | {text} |" for name, text in facts.items()]
    for file in (*finding.files, EXAMPLES / finding.id / "session.txt"):
        language = "python" if file.suffix == ".py" else "console"
        path = f"../examples/findings/{finding.id}/{file.name}"
        lines += ["", f"```{{literalinclude}} {path}", f":language: {language}"]
        lines += [f":caption: {file.name}"] * (language == "python") + ["```"]
    return "\n".join([*lines, ""])
