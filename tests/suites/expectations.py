"""How many tests of each suite must pass: `expected.toml`."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .results import COLUMNS, FileResult

__all__ = ["EXPECTED", "Row", "read_expected", "read_rows", "write_expected"]

EXPECTED = Path(__file__).with_name("expected.toml")
Row = dict[str, Any]


def read_rows() -> list[Row]:
    """Return the rows of the file."""
    if not EXPECTED.exists():
        return []
    content: dict[str, list[Row]] = tomllib.loads(EXPECTED.read_text(encoding="utf-8"))
    return [{**dict.fromkeys(COLUMNS, 0), **row} for row in content.get("run", [])]


def read_expected() -> dict[tuple[str, str, str], int]:
    """Return how many tests must pass, by suite, driver and backend."""
    return {(str(row["suite"]), str(row["driver"]), str(row["backend"])): int(row["passed"]) for row in read_rows()}


def write_expected(results: Iterable[FileResult]) -> None:
    """Write the counts of a run; those of suites that it did not run stay."""
    counts: dict[tuple[str, str, str], Counter[str]] = {}
    for row in read_rows():
        key = (str(row["suite"]), str(row["driver"]), str(row["backend"]))
        counts[key] = Counter({column: int(row.get(column, 0)) for column in COLUMNS})
    new: dict[tuple[str, str, str], Counter[str]] = {}
    for result in results:
        new.setdefault((result.suite, result.driver, result.backend), Counter()).update(result.counts)
    lines = ["# What each suite gave when it was last run in full: `python -m tests.suites CHECKOUT --write-expected`."]
    lines.append("# Fewer passed tests than here fail a run of `nox -s suites`.")
    for (suite, driver, backend), of_run in sorted({**counts, **new}.items()):
        lines += ["", "[[run]]", f'suite = "{suite}"', f'driver = "{driver}"', f'backend = "{backend}"']
        lines += [f"{column} = {of_run[column]}" for column in COLUMNS]
    EXPECTED.write_text("\n".join(lines) + "\n", encoding="utf-8")
