"""The atlas of JIT-link compatibility: which release links, loads or compiles what another one made, as measured.

The data are in ``matrices/atlas.json``, which ``nox -s atlas`` measures and writes; its schema is ``atlas.schema.json``
in the same folder.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

from ..base.tables import matrices_dir
from ..versions import CudaVersion
from .releases import PTX_ISA

FORMAT: Final = 1

#: The kind that nothing links: tileiras compiles it.
TILE: Final = "tileir"

#: What a release makes: relocatable PTX, LTO-IR and cubins, an executable cubin, and fatbins by its own nvFatbin; one
#: unit of NVRTC's LTO-IR with one of libNVVM's; and what its own nvJitLink merges by ``-r``: cubins into a cubin,
#: LTO-IR into a cubin or into LTO-IR. Of Tile IR, bytecode of the release's version.
KINDS: Final = (
    *("ptx", "ltoir", "cubin", "linked-cubin", "fatbin-ptx", "fatbin-cubin", "fatbin-ltoir"),
    *("nvvm-ltoir", "merged-cubin", "merged-lto-cubin", "merged-ltoir", TILE),
)

#: The headers of a release, which its own and other releases' NVRTC compile.
HEADERS: Final = ("runtime-headers", "cccl-headers")

#: What was done with it, each with its meaning.
STEPS: Final[Mapping[str, str]] = {
    "nvjitlink": "the consumer's nvJitLink links what the producer made",
    "tileiras": "the consumer's tileiras compiles Tile IR bytecode of the producer's version",
    "nvrtc": "the consumer's NVRTC compiles a program that includes the producer's headers",
    "driver": "the consumer's emulated driver links what the producer made",
    "load": "the consumer's emulated driver loads what the producer's own nvJitLink linked",
    "real-driver": "a real driver links what the producer made",
    "real-load": "a real driver loads what the producer's own nvJitLink linked",
    "real-run": "a GPU runs what the consumer's nvJitLink linked, and NumPy agrees with its numbers",
}

#: What an answer can be, each with its meaning.
STATUSES: Final[Mapping[str, str]] = {
    "works": "success, and the result is right",
    "refused": "an error code",
    "wrong": "success, but no result, or a wrong one",
    "crashed": "the process ended",
    "not-made": "no answer: the producer cannot make it, the consumer has no such device, or no GPU was asked yet",
}


@dataclass(frozen=True)
class AtlasAnswer:
    """The answer to one question of the atlas."""

    status: str  # one of `STATUSES`
    call: str = ""  # function that refused, such as "nvJitLinkAddData"; empty if none did
    code: int = 0  # what it returned, or the number of the signal that ended the process
    name: str = ""  # name of the code, such as "NVJITLINK_ERROR_INVALID_INPUT"
    text: str = ""  # the log of the library, or what is wrong with the result

    @property
    def works(self) -> bool:
        """Whether the link, the load or the run succeeded with the right result."""
        return self.status == "works"

    def __str__(self) -> str:
        said = f"{self.call}: {self.code} {self.name}".strip() if self.call else self.name
        return ", ".join(part for part in (self.status, said, self.text) if part)


@dataclass(frozen=True)
class RealDriver:
    """The driver and the GPU that the steps ``real-…`` were measured on."""

    driver: str
    cuda: str
    device: str
    date: str
    command: str


@dataclass(frozen=True)
class Grid:
    """The answers of one step, kind and architecture."""

    step: str
    kind: str
    arch: str
    rows: Mapping[str, str]  # a letter for each consumer, by producer
    consumers: tuple[str, ...] = ()  # releases of the letters, in their order: see `columns`


@dataclass(frozen=True)
class Atlas:
    """Every measured answer."""

    releases: tuple[str, ...]  # CUDA releases that make and link, oldest first
    wheels: Mapping[str, Mapping[str, str]]  # version of each library of a release
    measured: Mapping[str, str]  # date, command, machine and version of this package
    real: tuple[RealDriver, ...]
    answers: Mapping[str, AtlasAnswer]  # letter to answer
    grids: tuple[Grid, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that some grid has, in the order of `KINDS` and `HEADERS`."""
        return tuple(kind for kind in (*KINDS, *HEADERS) if any(grid.kind == kind for grid in self.grids))

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps that some grid has, in the order of `STEPS`."""
        return tuple(step for step in STEPS if any(grid.step == step for grid in self.grids))

    def grid(self, step: str, kind: str, arch: str = "sm_90") -> Grid | None:
        """Return one grid, or None if that was not measured."""
        return next((grid for grid in self.grids if (grid.step, grid.kind, grid.arch) == (step, kind, arch)), None)

    def ask(
        self, producer: str | CudaVersion, consumer: str | CudaVersion, kind: str, step: str, arch: str = "sm_90"
    ) -> AtlasAnswer | None:
        """Return the measured answer, or None if the question was not measured.

        `producer`: CUDA release that made the input.
        `consumer`: CUDA release that linked or loaded it.
        `kind`: one of `KINDS` or `HEADERS`.
        `step`: one of `STEPS`.
        `arch`: architecture such as ``"sm_90"``.
        """
        grid = self.grid(step, kind, arch)
        made, read = str(producer), str(consumer)
        if grid is None or made not in grid.rows or read not in grid.consumers:
            return None
        letter = grid.rows[made][grid.consumers.index(read)]
        return _filled(self.answers[letter], made, read, arch)

    def tileiras_for(self, arch: str, bytecode: CudaVersion | None = None) -> tuple[CudaVersion, ...]:
        """Return the releases whose tileiras compiles Tile IR for a GPU, oldest first; by default the oldest bytecode.

        Nothing is known of bytecode or of a GPU that was not measured.
        """
        grid = self.grid("tileiras", TILE, arch)
        if grid is None:
            return ()
        letters = grid.rows.get(str(bytecode or grid.consumers[0]), "")
        works = (read for read, letter in zip(grid.consumers, letters, strict=False) if self.answers[letter].works)
        return tuple(map(CudaVersion.parse, works))


def _filled(answer: AtlasAnswer, producer: str, consumer: str, arch: str) -> AtlasAnswer:
    """Return the answer with what the question says in its text; the file has placeholders for it."""
    text = answer.text.replace("{bytecode}", producer).replace("{gpu}", arch.removeprefix("sm_"))
    for place, release in (("{written}", producer), ("{read}", consumer)):
        isa = PTX_ISA.get(CudaVersion.parse(release), "?")  # a release that is not known has none
        text = text.replace(place, ".".join(map(str, isa)))
    return replace(answer, text=text)


def columns(
    step: str, releases: Sequence[str], wheels: Mapping[str, Mapping[str, str]], real: Sequence[RealDriver]
) -> tuple[str, ...]:
    """Return the consumers of a step: every release, those that have a tileiras, or the real drivers."""
    if step == "tileiras":
        return tuple(release for release in releases if "tileiras" in wheels[release])
    return tuple(driver.cuda for driver in real) if step in ("real-driver", "real-load") else tuple(releases)


def atlas_of(content: Mapping[str, Any]) -> Atlas:
    """Return the atlas of a parsed ``atlas.json``.

    Raises ValueError if the file has a format that this version does not read.
    """
    if content["format"] != FORMAT:
        msg = f"the atlas has format {content['format']}; expected {FORMAT}; install a newer pytest-cudalink"
        raise ValueError(msg)
    releases = tuple(content["releases"])
    real = tuple(RealDriver(**row) for row in content["real"])
    wheels = content["wheels"]
    return Atlas(
        releases,
        wheels,
        content["measured"],
        real,
        {letter: AtlasAnswer(**answer) for letter, answer in content["answers"].items()},
        tuple(Grid(**grid, consumers=columns(grid["step"], releases, wheels, real)) for grid in content["grids"]),
    )


@cache
def load() -> Atlas:
    """Return the atlas that this package ships; the file is opened at the first call."""
    return atlas_of(json.loads((matrices_dir() / "atlas.json").read_bytes()))
