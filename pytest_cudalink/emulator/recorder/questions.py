"""The questions: samples that every driver must pass, and recorded programs with the answers of a real driver."""

from __future__ import annotations

import hashlib
import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...base.regular_files import DATA, read_bounded
from ...base.tables import read_table
from .execute import Program

_DATA: Final = Path(__file__).parents[2] / "data" / "recorder"
#: Programs, each a list of seed, theme and calls; `tools/choose_questions.py` writes them and the recordings.
PROGRAMS: Final = _DATA / "programs.json.xz"
#: What `record` returned for drivers with a device.
RECORDED: Final = (_DATA / "driver-580.159.04-h100.json.xz", _DATA / "driver-580.159.04-h200.json.xz")
#: In the order in which they are asked.
GROUPS: Final = ("samples", "nvml", "two", "programs")


class DriverQuestion(NamedTuple):
    """A program that a driver is asked to run."""

    group: str  # one of `GROUPS`
    name: str  # of a recorded program its seed
    calls: Program  # as `execute` takes them
    source: str = ""  # the page or sample of NVIDIA's that a must-pass question is from; empty for recorded programs
    # the answer that the source promises for a call, by its number; of the other calls it is `[0, ...]`
    values: dict[str, list[Any]] = {}  # noqa: RUF012 (never changed)
    devices: int = 1  # how many it needs, and sees
    least_cuda: str = ""  # the first CUDA version that has its functions; empty if every driver has them


def load(path: Path) -> Any:
    """Return the content of a compressed file."""
    unpacked = lzma.LZMADecompressor(memlimit=DATA).decompress(read_bounded(path, DATA), DATA)
    return json.loads(unpacked)


def save(path: Path, recording: Any) -> None:
    """Write a compressed file."""
    with lzma.open(path, "wt", encoding="utf-8", preset=9) as file:
        json.dump(recording, file, separators=(",", ":"))


@cache
def questions() -> tuple[DriverQuestion, ...]:
    """Return every question, those first that show most."""
    samples = [
        DriverQuestion(
            one.get("group", "samples"),
            one["name"],
            [json.loads(line) for line in one["calls"].splitlines() if line],
            one["source"],
            one.get("values", {}),
            one.get("devices", 1),
            one.get("least_cuda", ""),
        )
        for one in read_table("recorder/samples.toml")["sample"]
    ]
    programs = [DriverQuestion("programs", str(seed), calls) for seed, _, calls in load(PROGRAMS)]
    return tuple(sorted([*samples, *programs], key=lambda one: GROUPS.index(one.group)))


@cache
def versions() -> dict[str, str]:
    """Return what tells a sample, by name, from one that had other calls; a seed always means the same program."""
    return {
        one.name: hashlib.sha256(json.dumps(one.calls).encode()).hexdigest()[:8] for one in questions() if one.source
    }
