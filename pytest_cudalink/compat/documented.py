"""What NVIDIA documents about linking across releases, from ``data/documented.toml``, and where the atlas disagrees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Final

from ..tables import read_table
from ..versions import CudaVersion
from .architectures import known_architectures
from .atlas import Atlas, AtlasAnswer, Grid
from .releases import PTX_ISA

__all__ = ["Disagreement", "Statement", "disagreements", "reproducer", "statements"]

_Rule = Callable[[CudaVersion, CudaVersion], bool | None]

#: What each name in the data predicts for a producer and a consumer; None where it says nothing.
_RULES: Final[Mapping[str, _Rule]] = {
    "no": lambda _made, _reads: False,
    "no-if-newer": lambda made, reads: False if made > reads else None,
    "no-if-newer-major": lambda made, reads: False if made.major > reads.major else None,
    "no-if-other-major": lambda made, reads: False if made.major != reads.major else None,
    "yes-if-not-newer-in-major": lambda made, reads: True if made.major == reads.major and made <= reads else None,
    "yes-if-older-major": lambda made, reads: True if made.major < reads.major else None,
    "yes-up-to-major": lambda made, reads: True if made.major <= reads.major else None,
    "by-ptx-isa": lambda made, reads: PTX_ISA[made] <= PTX_ISA[reads],
}


@dataclass(frozen=True)
class Statement:
    """One documented rule.

    Attributes
    ----------
    name : str
        Short and stable.
    source, url : str
        Document with its section, and its address.
    says : str
        The rule, in our words.
    kinds, steps : tuple of str
        Grids of the atlas that it speaks of.
    rule : str
        What it predicts, by name.
    read : str
        What was read, and when.
    verified : bool
        Whether that has the statement in NVIDIA's words.
    """

    name: str
    source: str
    url: str
    says: str
    kinds: tuple[str, ...]
    steps: tuple[str, ...]
    rule: str
    read: str
    verified: bool

    @property
    def cited(self) -> str:
        """The document with its section; a statement that we could not check says so."""
        return self.source if self.verified else f"{self.source}; unverified"

    def predicts(self, producer: str | CudaVersion, consumer: str | CudaVersion) -> bool | None:
        """Return whether it says that the step works; None where it says nothing."""
        return _RULES[self.rule](_release(producer), _release(consumer))


@dataclass(frozen=True)
class Disagreement:
    """Pairs for which one grid contradicts a statement with the same answer.

    A documented "no" is contradicted by success, whatever the image is worth; a "yes" by anything but the right result.
    A crash contradicts both.

    Attributes
    ----------
    statement : Statement
    grid : pytest_cudalink.compat.atlas.Grid
    cells : tuple of tuple of str
        Producer and consumer of each pair.
    answer : pytest_cudalink.compat.atlas.AtlasAnswer
        The answer to the first pair; the others differ in version numbers at most.
    reproducer : str
        A command that shows it.
    """

    statement: Statement
    grid: Grid
    cells: tuple[tuple[str, str], ...]
    answer: AtlasAnswer
    reproducer: str

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


def _release(value: str | CudaVersion) -> CudaVersion:
    return value if isinstance(value, CudaVersion) else CudaVersion.parse(value)


def _span(releases: list[str]) -> str:
    """Return releases as a list with ranges: ``"12.0 to 12.2, 12.9"``."""
    known = [str(one) for one in PTX_ISA if str(one) != "12.7"]
    parts: list[list[str]] = []
    for one in releases:
        if parts and known.index(one) == known.index(parts[-1][-1]) + 1:
            parts[-1].append(one)
        else:
            parts.append([one])
    return ", ".join(part[0] if len(part) == 1 else f"{part[0]} to {part[-1]}" for part in parts)


@cache
def statements() -> tuple[Statement, ...]:
    """Return every statement, in the order of the data."""
    return tuple(
        Statement(
            row["name"],
            row["source"],
            row["url"],
            row["says"],
            tuple(row["kinds"]),
            tuple(row["steps"]),
            row["predicts"],
            row["read"],
            row["verified"],
        )
        for row in read_table("documented.toml")["statements"]
    )


def disagreements(atlas: Atlas) -> tuple[Disagreement, ...]:
    """Return every pair for which the atlas contradicts a statement, grouped by grid and answer."""
    result = []
    for statement in statements():
        for grid in atlas.grids:
            if grid.step not in statement.steps or grid.kind not in statement.kinds:
                continue
            found: dict[tuple[bool, str], list[tuple[str, str]]] = {}
            for producer, letters in grid.rows.items():
                for consumer, letter in zip(grid.consumers, letters, strict=True):
                    predicted = statement.predicts(producer, consumer)
                    if predicted is not None and _contradicts(atlas.answers[letter].status, works=predicted):
                        found.setdefault((predicted, letter), []).append((producer, consumer))
            for cells in found.values():
                answer = atlas.ask(*cells[0], grid.kind, grid.step, grid.arch)
                assert answer is not None
                # `cudalink can-link --measure` shows a pair of releases that both compile for the architecture
                shown = next((pair for pair in cells if all(_knows(one, grid.arch) for one in pair)), cells[0])
                command = reproducer(*shown, grid.kind, grid.step, grid.arch)
                result.append(Disagreement(statement, grid, tuple(cells), answer, command))
    return tuple(result)


def _contradicts(status: str, *, works: bool) -> bool:
    if status in ("crashed", "not-made"):
        return status == "crashed"
    return status != "works" if works else status in ("works", "wrong")


def _knows(release: str, arch: str) -> bool:
    return arch in known_architectures(CudaVersion.parse(release))


def reproducer(producer: str, consumer: str, kind: str, step: str, arch: str) -> str:
    """Return the command that measures one pair."""
    if step.startswith("real"):
        return "python -m tools.atlas_on_gpu run atlas.tar.xz --out real.json"
    if kind.startswith("fatbin"):  # only that session has nvFatbin
        releases = " ".join(dict.fromkeys((producer, consumer)))
        return f"nox -s atlas -- {releases} --kind {kind} --arch {arch} --show"
    library = "nvjitlink" if step == "nvjitlink" else "driver"
    return f"cudalink can-link {producer} {library}-{consumer} {kind} --arch {arch} --measure"
