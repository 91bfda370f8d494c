"""What NVIDIA documents about linking across releases, from ``data/documented.toml``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from ..base.tables import read_table
from ..versions import CudaVersion
from .releases import PTX_ISA

__all__ = ["Statement", "statements"]

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
        Statement(**{**one, "kinds": tuple(one["kinds"]), "steps": tuple(one["steps"])})
        for one in read_table("documented.toml")["statements"]
    )
