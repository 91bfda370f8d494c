"""What reads what: the rules that the linker and the guard rails share, and what was measured and documented of each.

A rule is a relation of two releases, so that a link opens no file. The atlas (`pytest_cudalink.compat.atlas`) is opened
when a rule refuses something, or when a caller asks. It holds every pair of its releases; beyond them a rule
extrapolates, and `evidence` says so. ``cudalink can-link`` shows both, and a test compares every rule with every cell.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from ..base.tables import read_table
from ..versions import CudaVersion, Needs
from .releases import NVVM_IR, PTX_ISA, needs_for_nvvm_ir, needs_for_ptx_isa

if TYPE_CHECKING:
    from .atlas import AtlasAnswer

#: Known to every release from 12.0 on; the architecture that is asked for where none is given.
ARCH: Final = "sm_90"

#: Whether a release may read what another one made, by the name of the rule.
RELATIONS: Final[dict[str, Callable[[CudaVersion, CudaVersion], bool]]] = {
    "any": lambda _made, _read: True,
    "exact": operator.eq,
    "not-newer": operator.le,
    "not-newer-major": lambda made, read: made.major <= read.major,
    "same-major": lambda made, read: made.major == read.major and made <= read,
}

_LOADS: Final = ("load", "real-load")
_DRIVERS: Final = ("driver", "real-driver")


def contents_of(kind: str) -> str:
    """Return the kind of code in a fatbin, such as ``"ptx"`` for ``"fatbin-ptx"``, or in what a linker merged."""
    return kind.rpartition("-")[2] if kind.startswith(("fatbin-", "merged-", "nvvm-")) else kind


def header_needs(producer: CudaVersion, kind: str) -> Needs:
    """Return the release that the header of an artifact asks for, as `pytest_cudalink.artifacts.inspect` reads it."""
    if kind == "ptx" and producer in PTX_ISA:
        return needs_for_ptx_isa(PTX_ISA[producer])
    if kind == "ltoir" and producer in NVVM_IR:
        return needs_for_nvvm_ir(NVVM_IR[producer])
    return Needs(producer)


def expected(step: str, kind: str, producer: CudaVersion, consumer: CudaVersion) -> bool:
    """Return whether the bundled linker lets a link begin, or a driver is expected to load an image.

    `step`, `kind`: as in the atlas: ``"nvjitlink"``, ``"driver"``, ``"load"``; ``"ptx"``, ``"fatbin-cubin"``.
    `producer`, `consumer`: the release that made the code, and the one that reads it.
    """
    inside = contents_of(kind)
    if step in _LOADS:
        return RELATIONS["not-newer-major"](producer, consumer)
    if inside == "linked-cubin" or (inside == "ltoir" and step in _DRIVERS):
        return False  # neither library links an executable image, and no driver links LTO-IR
    return header_needs(producer, inside).met_by(consumer)


def found_words(answer: AtlasAnswer) -> str:
    """Return what a library answered, in words: ``"works"``, or the call with code, name and text."""
    if answer.works:
        return "works"
    if answer.status == "not-made":
        return "cannot be asked"
    code = f"{answer.code} {answer.name}".strip() if answer.code or answer.name else ""
    said = ": ".join(filter(None, (" answers ".join(filter(None, (answer.call, code))), answer.text)))
    words = {"refused": said, "wrong": f"reports success, and is wrong: {said}", "crashed": f"crashes: {said}"}
    return words[answer.status]


def evidence(step: str, kind: str, producer: CudaVersion, consumer: CudaVersion) -> str:
    """Return what was measured of a pair of releases, or that the rule is extrapolated; opens the atlas."""
    from .atlas import load

    atlas = load()
    answer = atlas.ask(producer, consumer, kind, step, ARCH)
    if answer is not None:
        return f"measured for {ARCH}: {found_words(answer)}"
    unknown = [str(release) for release in (producer, consumer) if str(release) not in map(str, atlas.releases)]
    if not unknown:
        return f"not measured for {kind}"
    first, last = atlas.releases[0], atlas.releases[-1]
    return f"not measured: CUDA {unknown[0]} is not in the atlas of {first} to {last}, the rule is extrapolated"


# -- what NVIDIA documents, from ``data/documented.toml``

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
    """One documented rule."""

    name: str  # short and stable
    source: str  # document with its section
    url: str  # its address
    says: str  # the rule, in our words
    kinds: tuple[str, ...]  # of the grids of the atlas that it speaks of
    steps: tuple[str, ...]  # of the same grids
    rule: str  # what it predicts: a key of `_RULES`
    read: str  # what was read, and when
    verified: bool  # whether that has the statement in NVIDIA's words

    @property
    def cited(self) -> str:
        """The document with its section; a statement that we could not check says so."""
        return self.source if self.verified else f"{self.source}; unverified"

    def predicts(self, producer: str | CudaVersion, consumer: str | CudaVersion) -> bool | None:
        """Return whether it says that the step works; None where it says nothing."""
        return _RULES[self.rule](CudaVersion.parse(str(producer)), CudaVersion.parse(str(consumer)))


@cache
def statements() -> tuple[Statement, ...]:
    """Return every statement, in the order of the data."""
    return tuple(
        Statement(**{**row, "kinds": tuple(row["kinds"]), "steps": tuple(row["steps"])})
        for row in read_table("documented.toml")["statements"]
    )
