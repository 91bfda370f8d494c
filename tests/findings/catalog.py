"""The findings of ``docs/findings/findings.toml``: one fault of a library each, with the releases that ran."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import Version

from tests import sessions

__all__ = ["EXAMPLES", "PAGES", "Cells", "Finding", "Runs", "as_of", "environments", "read"]

ROOT = Path(__file__).parent.parent.parent
PAGES = ROOT / "docs" / "findings"
EXAMPLES = ROOT / "docs" / "examples" / "findings"


@dataclass(frozen=True)
class Runs:
    """Releases that ran the reproducer in environments of the same packages; ``{}`` stands for the release."""

    packages: tuple[str, ...]
    bad: tuple[str, ...]
    good: tuple[str, ...]


@dataclass(frozen=True)
class Cells:
    """Cells of the atlas that a page states, each with the same status and code, such as ``"refused 3"``."""

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
    def page(self) -> Path:
        """The page of the finding."""
        return PAGES / f"{self.id}.md"

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
    return tomllib.loads((PAGES / "findings.toml").read_text(encoding="utf-8"))


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
    """The environments that the sessions of some findings' pages name."""
    texts = [(PAGES / f"{one}.md").read_text(encoding="utf-8") for one in identifiers]
    return {environment for text in texts for environment in re.findall(sessions.ENVIRONMENT, text, re.MULTILINE)}
