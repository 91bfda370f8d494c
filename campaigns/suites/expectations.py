"""How many tests of each suite must pass: `expected.toml`."""

import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .results import COLUMNS, FileResult

EXPECTED = Path(__file__).with_name("expected.toml")
HEAD = """\
# What each suite gave when it was last run in full: `python -m campaigns.suites CHECKOUT --write-expected`.
# Fewer passed tests than here fail a run of `nox -s suites`. commit: of the checkout. best: the most that
# ever passed, where that is more; because: why."""
#: In place of a commit that no file has: runs before 2026-11-23 did not write theirs.
UNKNOWN = "not kept"
Row = dict[str, Any]


def read_rows() -> list[Row]:
    """Return the rows of the file."""
    if not EXPECTED.exists():
        return []
    content: dict[str, list[Row]] = tomllib.loads(EXPECTED.read_text(encoding="utf-8"))
    return [
        {**dict.fromkeys(COLUMNS, 0), "commit": UNKNOWN, "best": row["passed"], **row} for row in content.get("run", [])
    ]


def read_expected() -> dict[tuple[str, str, str], int]:
    """Return how many tests must pass, by suite, driver and backend."""
    return {(str(row["suite"]), str(row["driver"]), str(row["backend"])): int(row["passed"]) for row in read_rows()}


def write_expected(results: Iterable[FileResult], commits: Mapping[str, str], because: str) -> None:
    """Write the counts of a run, with the commit of each suite; rows of suites that it did not run stay.

    `commits`: of the checkout, by suite.
    `because`: why fewer tests pass than the rows say; kept in each row that is lowered until it has its best again.
    """
    rows = {(str(row["suite"]), str(row["driver"]), str(row["backend"])): row for row in read_rows()}
    new: dict[tuple[str, str, str], Counter[str]] = {}
    for result in results:
        new.setdefault((result.suite, result.driver, result.backend), Counter()).update(result.counts)
    for key, counts in new.items():
        before = rows.get(key, {})
        passed, best = counts["passed"], max(counts["passed"], before.get("best", 0))
        reason = because if passed < before.get("passed", 0) else before.get("because", "")
        rows[key] = {
            **{column: counts[column] for column in COLUMNS},
            "commit": commits.get(key[0], UNKNOWN),
            "best": best,
            "because": reason if passed < best else "",
        }
    lines = [HEAD]
    for (suite, driver, backend), row in sorted(rows.items()):
        lines += ["", "[[run]]", f'suite = "{suite}"', f'driver = "{driver}"', f'backend = "{backend}"']
        lines += [f"{column} = {row[column]}" for column in COLUMNS]
        lines += [f"commit = {json.dumps(row['commit'])}"]
        if row["passed"] < row["best"]:
            lines += [f"best = {row['best']}", f"because = {json.dumps(row.get('because', ''))}"]
    EXPECTED.write_text("\n".join(lines) + "\n", encoding="utf-8")
