"""The cells that a change needs: what git, the records and the file of cells say, put before `select`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .cells import Cell
from .changes import Checkout, GitError
from .reading import CellsError, load, parse
from .selection import Change, Past, Rules, Touches, Verdict, select
from .touches import read_touches

__all__ = ["Needed", "find"]


@dataclass(frozen=True)
class Needed:
    """A selection of cells, with what it was made from.

    Attributes
    ----------
    commit : str
        The commit that the changes count from: where HEAD and the revision that was named parted.
    changes : tuple of Change
        What has changed since then.
    verdicts : list of Verdict
        One for each cell.
    records : dict of str to Touches
        The last run of each cell that has one.
    """

    commit: str
    changes: tuple[Change, ...]
    verdicts: list[Verdict]
    records: dict[str, Touches]


def find(cells: Sequence[Cell], file: Path, since: str, folders: Iterable[Path]) -> Needed:
    """Return which cells the changes since a revision need.

    Parameters
    ----------
    cells : sequence of Cell
    file : Path
        The file of cells.
    since : str
        A revision of git.
    folders : iterable of Path
        Where the records are.

    Raises
    ------
    GitError
        If there is no checkout, no git, or no such revision.
    CellsError, OSError
        If the file of cells, or a folder, cannot be read.
    """
    checkout = Checkout(file.resolve().parent)
    commit = checkout.fork_point(checkout.commit(since))
    changes = checkout.changes(commit)
    name = os.path.relpath(os.path.realpath(file), os.path.realpath(checkout.root)).replace(os.sep, "/")
    touched = read_touches(folders)
    rules = load(file).rules
    pasts = {one: _past(checkout, one, file, name) for one in {record.commit for record in touched.values()} if one}
    return Needed(commit, changes, select(cells, touched, pasts, changes, rules=rules, file=name), touched)


def _past(checkout: Checkout, commit: str, file: Path, name: str) -> Past:
    """Return a commit of records compared with the working tree."""
    try:
        checkout.commit(commit)
    except GitError:
        return Past(f"commit {commit[:10]} of its record is not in this checkout; fetch more history")
    if not checkout.is_ancestor(commit):
        return Past(f"commit {commit[:10]} of its record is not in the history of HEAD")
    cells, rules = _cells_of(checkout, commit, file, name)
    return Past("", checkout.changes(commit), cells, rules)


def _cells_of(checkout: Checkout, commit: str, file: Path, name: str) -> tuple[dict[str, Cell] | None, Rules | None]:
    text = checkout.content(commit, name)
    try:
        old = parse(file, text) if text is not None else None
    except CellsError:
        old = None
    return ({cell.name: cell for cell in old.cells}, old.rules) if old is not None else (None, None)
