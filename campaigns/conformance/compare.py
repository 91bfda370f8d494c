"""Comparing what two drivers answered to the same cases."""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "recorded" / "driver-580.159.04.json"

Row = dict[str, Any]


@dataclass(frozen=True)
class Difference:
    """One field of one row that is not the same."""

    case: str
    row: int  # number of the call in the case, from 0
    field: str  # "call" and "code" are codes and order; "ended" says that one driver died there
    recorded: object
    replayed: object


def _plain(value: object) -> object:
    """A text without what differs from run to run: folders, and the time that a compiler took."""
    if not isinstance(value, str):
        return value
    return re.sub(r"Compile time = [\d.]+ ms", "Compile time = T ms", re.sub(r"/tmp/tmp\w+/", "/tmp/T/", value))


def _length(row: Row, name: str) -> int:
    """A log's size without the digits of compile times."""
    text = str(row.get(name, ""))
    return int(row[f"{name}_size"]) - (len(text) - len(str(_plain(text))))


def _same(field: str, recorded: Row, replayed: Row) -> bool:
    if field in ("info_size", "error_size") and field in recorded and field in replayed:
        name = field.removesuffix("_size")
        return _length(recorded, name) == _length(replayed, name)
    return _plain(recorded.get(field)) == _plain(replayed.get(field))


def differences(case: str, recorded: list[Row], replayed: list[Row]) -> Iterator[Difference]:
    """Every difference of one case; nothing is compared after a call that one of the drivers did not survive."""
    for number in range(max(len(recorded), len(replayed))):
        ours = replayed[number] if number < len(replayed) else {}
        theirs = recorded[number] if number < len(recorded) else {}
        if "signal" in theirs or "signal" in ours:
            if theirs.get("signal") != ours.get("signal"):
                yield Difference(case, number, "ended", theirs.get("signal"), ours.get("signal"))
            return
        for field in sorted({*theirs, *ours}):
            if not _same(field, theirs, ours):
                yield Difference(case, number, field, theirs.get(field), ours.get(field))


@cache
def reasons() -> list[dict[str, Any]]:
    """The list of differences.toml."""
    text = (Path(__file__).parent / "differences.toml").read_text(encoding="utf-8")
    return list(tomllib.loads(text)["difference"])


def explained(difference: Difference) -> str | None:
    """The reason of a difference; None if the list has none."""
    for entry in reasons():
        if difference.field in entry["fields"] and any(fnmatch(difference.case, case) for case in entry["cases"]):
            return str(entry["reason"])
    return None
