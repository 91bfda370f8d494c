"""Where the atlas differs: from NVIDIA's documentation, and from our own rules; docs/atlas/differences.md shows both.

A rule that the atlas contradicts needs a reason in ``tools/contradictions.toml``: a documented promise that is stricter
than what was measured, for example. A test fails without one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Final

from pytest_cudalink.compat.atlas import Atlas, AtlasAnswer, Grid
from pytest_cudalink.compat.link_rules import Statement, contents_of, statements
from pytest_cudalink.compat.releases import PTX_ISA
from pytest_cudalink.guardrails.can_link import Prediction, predictions
from pytest_cudalink.probes import FIRST_USABLE_NVJITLINK
from pytest_cudalink.versions import CudaVersion

_STEPS: Final = ("nvjitlink", "driver", "load", "real-driver", "real-load")
_WHERE: Final[dict[str, Callable[[CudaVersion, CudaVersion], bool]]] = {
    "any": lambda _made, _read: True,
    "newer": lambda made, read: made > read,
    "older-major": lambda made, read: made.major < read.major,
    "newer-minor": lambda made, read: made.major == read.major and made > read,
    "unusable": lambda made, _read: made < FIRST_USABLE_NVJITLINK,
    "unusable-reader": lambda _made, read: read < FIRST_USABLE_NVJITLINK,
}


@dataclass(frozen=True)
class Disagreement:
    """Pairs for which one grid contradicts a statement with the same answer.

    A documented "no" is contradicted by success, whatever the image is worth; a "yes" by anything but the right result.
    A crash contradicts both.
    """

    statement: Statement
    grid: Grid
    cells: tuple[tuple[str, str], ...]  # producer and consumer of each pair
    answer: AtlasAnswer  # the answer to the first pair; the others differ in version numbers at most
    reproducer: str  # a command that shows it

    @property
    def predicted(self) -> bool:
        """What the statement says of these pairs."""
        return bool(self.statement.predicts(*self.cells[0]))

    @property
    def where(self) -> str:
        """The pairs in words: ``"12.4 to 12.6 into 12.0 to 12.3"``, in groups of producers with the same consumers."""
        rows: dict[str, list[str]] = {}
        for producer, consumer in self.cells:
            rows.setdefault(producer, []).append(consumer)
        groups = groupby(rows, key=lambda producer: rows[producer])
        return "; ".join(f"{_span(list(made))} into {_span(consumers)}" for consumers, made in groups)

    def __str__(self) -> str:
        said = "works" if self.predicted else "is refused"
        grid = self.grid
        return (
            f"{self.statement.name}: documented that it {said}, {self.answer} ({grid.step} {grid.kind}: {self.where})"
        )


def _span(releases: list[str]) -> str:
    """Return releases as a list with ranges: ``"12.0 to 12.2, 12.9"``."""
    known = [str(release) for release in PTX_ISA if str(release) != "12.7"]
    parts: list[list[str]] = []
    for release in releases:
        if parts and known.index(release) == known.index(parts[-1][-1]) + 1:
            parts[-1].append(release)
        else:
            parts.append([release])
    return ", ".join(part[0] if len(part) == 1 else f"{part[0]} to {part[-1]}" for part in parts)


def disagreements(atlas: Atlas) -> tuple[Disagreement, ...]:
    """Return every pair for which the atlas contradicts a statement, grouped by grid and answer."""
    result = []
    for statement in statements():
        for grid in atlas.grids:
            if grid.step not in statement.steps or grid.kind not in statement.kinds:
                continue
            by_answer: dict[tuple[bool, str], list[tuple[str, str]]] = {}
            for producer, letters in grid.rows.items():
                for consumer, letter in zip(grid.consumers, letters, strict=True):
                    predicted = statement.predicts(producer, consumer)
                    if predicted is not None and _contradicts(atlas.answers[letter].status, works=predicted):
                        by_answer.setdefault((predicted, letter), []).append((producer, consumer))
            for cells in by_answer.values():
                answer = atlas.ask(*cells[0], grid.kind, grid.step, grid.arch)
                assert answer is not None
                command = reproducer(*cells[0], grid.kind, grid.step, grid.arch)
                result.append(Disagreement(statement, grid, tuple(cells), answer, command))
    return tuple(result)


def _contradicts(status: str, *, works: bool) -> bool:
    if status in ("crashed", "not-made"):
        return status == "crashed"
    return status != "works" if works else status in ("works", "wrong")


def reproducer(producer: str, consumer: str, kind: str, step: str, arch: str) -> str:
    """Return the command that measures one pair."""
    if step.startswith("real"):
        return "python -m tools.atlas_on_gpu run atlas.tar.xz --out real.json"
    releases = " ".join(dict.fromkeys((producer, consumer)))
    return f"nox -s atlas -- {releases} --kind {kind} --arch {arch} --show"


@dataclass(frozen=True)
class Reason:
    """Why a rule stays although the atlas contradicts it: a row of ``contradictions.toml``.

    A row for a step on an emulated driver is also for that step on a real one.
    """

    rules: tuple[str, ...]
    steps: tuple[str, ...]
    kinds: tuple[str, ...]
    where: str
    allows: bool
    because: str

    @staticmethod
    def kinds_of(contradiction: Contradiction) -> set[str]:
        """Return the words that name the kind of a contradiction in a row: its own, and what is in it."""
        return {contradiction.kind, contents_of(contradiction.kind)}

    def covers(self, contradiction: Contradiction) -> bool:
        """Whether the row is about a contradiction."""
        return (
            contradiction.prediction.rule in self.rules
            and contradiction.step.removeprefix("real-") in self.steps
            and not self.kinds_of(contradiction).isdisjoint(self.kinds)
            and contradiction.prediction.works == self.allows
            and _WHERE[self.where](contradiction.producer, contradiction.consumer)
        )


@dataclass(frozen=True)
class Contradiction:
    """A cell of the atlas that is not what a rule predicts."""

    prediction: Prediction
    step: str
    kind: str
    arch: str
    producer: CudaVersion
    consumer: CudaVersion
    answer: AtlasAnswer  # what was measured

    @property
    def reason(self) -> Reason | None:
        """Why the rule stays; None if no row says so, which fails a test."""
        return next((row for row in reasons() if row.covers(self)), None)

    def __str__(self) -> str:
        word = "allows what fails" if self.prediction.works else "rejects what works"
        return (
            f"{self.prediction.rule} {word}: {self.step}, {self.kind}, {self.producer} -> {self.consumer}, {self.arch}"
        )


@cache
def reasons() -> tuple[Reason, ...]:
    """Return the rows of ``contradictions.toml``."""
    file = Path(__file__).with_name("contradictions.toml")
    rows = tomllib.loads(file.read_text(encoding="utf-8"))["contradictions"]
    return tuple(
        Reason(
            tuple(row["rules"]),
            tuple(row["steps"]),
            tuple(row["kinds"]),
            row["where"],
            row["allows"],
            row["because"],
        )
        for row in rows
    )


def contradictions(atlas: Atlas) -> Iterator[Contradiction]:
    """Yield the cells of the atlas in which a rule predicts another result."""
    for grid in atlas.grids:
        if grid.step not in _STEPS:
            continue
        for producer in atlas.releases:
            for consumer in atlas.releases:
                answer = atlas.ask(producer, consumer, grid.kind, grid.step, grid.arch)
                if answer is None or answer.status == "not-made":
                    continue
                made, read = CudaVersion.parse(str(producer)), CudaVersion.parse(str(consumer))
                for prediction in predictions(grid.step, grid.kind, made, read):
                    if prediction.works != answer.works:
                        yield Contradiction(prediction, grid.step, grid.kind, grid.arch, made, read, answer)
