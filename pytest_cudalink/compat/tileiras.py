"""Which tileiras compiles which Tile IR bytecode for which GPU, as measured: ``data/tileiras.toml``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from ..tables import read_table
from ..versions import CudaVersion
from .atlas import AtlasAnswer

__all__ = ["Tileiras", "tileiras"]

#: An older tileiras misreads newer bytecode than this, and says that the architecture is wrong.
_HEADER_CHANGED: Final = CudaVersion(13, 3)


@dataclass(frozen=True)
class Tileiras:
    """What the measured releases of tileiras compile.

    Attributes
    ----------
    first : dict of str to CudaVersion
        The first release that compiles for a GPU, such as ``"sm_90"``.
    releases : tuple of CudaVersion
        Those that were measured.
    measured : str
        The wheels and the date.
    """

    first: Mapping[str, CudaVersion]
    releases: tuple[CudaVersion, ...]
    measured: str

    def compiles(self, bytecode: CudaVersion, release: CudaVersion, arch: str) -> bool:
        """Whether tileiras of a release compiles bytecode for a GPU."""
        return bytecode <= release and arch in self.first and self.first[arch] <= release

    def ask(self, bytecode: CudaVersion, release: CudaVersion, arch: str) -> AtlasAnswer | None:
        """Return what tileiras of a release answers to bytecode for a GPU; None if that was not measured."""
        if release not in self.releases or bytecode not in self.releases:
            return None
        if self.compiles(bytecode, release, arch):
            return AtlasAnswer("works")
        if arch not in self.first or self.first[arch] > release:
            return AtlasAnswer("refused", "tileiras", 1, text=f"Cannot find option named '{arch}'!")
        if release < _HEADER_CHANGED <= bytecode:
            return AtlasAnswer("refused", "tileiras", 2, text=f"invalid GPU architecture: {arch.removeprefix('sm_')}")
        return AtlasAnswer("refused", "tileiras", 3, text=f"unsupported Tile IR bytecode version: {bytecode}")

    def oldest(self, bytecode: CudaVersion, arch: str) -> CudaVersion | None:
        """Return the oldest release that compiles bytecode for a GPU; None if no known one does."""
        found = [release for release in self.releases if self.compiles(bytecode, release, arch)]
        return min(found, default=None)


@cache
def tileiras() -> Tileiras:
    """Return what was measured."""
    table = read_table("tileiras.toml")
    return Tileiras(
        {arch: CudaVersion.parse(release) for arch, release in table["first"].items()},
        tuple(sorted(CudaVersion.parse(".".join(wheel.split(".")[:2])) for wheel in table["wheels"])),
        f"nvidia-cuda-tileiras {', '.join(table['wheels'])}, {table['measured']}",
    )
