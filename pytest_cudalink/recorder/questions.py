"""The questions: recorded programs with the answers of a real driver, and samples that every driver must pass."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any, Final

__all__ = ["RECORDED", "load", "save"]

_DATA: Final = Path(__file__).parents[1] / "data" / "recorder"
#: Programs, each a list of seed, theme, calls and the answers of this driver; `tools/choose_questions.py` writes it.
RECORDED: Final = _DATA / "driver-580.159.04.json.xz"


def load(path: Path) -> dict[str, Any]:
    """Return a recording: its driver, and of each program the seed, theme, calls and answers."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
        return found


def save(path: Path, recording: dict[str, Any]) -> None:
    """Write a recording, compressed."""
    with lzma.open(path, "wt", encoding="utf-8", preset=9) as file:
        json.dump(recording, file, separators=(",", ":"))
