"""The nox face of the matrix: one literal session for each cell, and one that reports on all.

In a noxfile::

    from pytest_cudalink.matrix.nox import sessions

    sessions("matrices/cells.toml")
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from . import plan
from .cells import Cell
from .reading import load_cells

if TYPE_CHECKING:
    import nox

__all__ = ["run_cell", "sessions"]

#: Set when the report is asked for. Then it is the judge: a red test does not keep nox from coming to it.
_JUDGED: Final = "CUDALINK_MATRIX_JUDGE"
#: pytest's "some tests failed", and every signal that can end it: the records say the rest.
_JUDGED_CODES: Final = (0, 1, *range(-64, 0), *range(129, 160))


def sessions(
    path: str | Path = plan.CELLS, *, root: str | Path = ".", report: str | None = "report", default: bool = False
) -> list[Cell]:
    """Define a session for each cell of a file, under the cell's name, with its tags and description.

    Arguments after ``--`` go to pytest in place of the cell's own. Sessions may run in parallel (``nox -j``), except
    those on a real GPU.

    Parameters
    ----------
    path : path-like
        The file of cells, relative to the working folder.
    root : path-like
        The project, whose ``pyproject.toml`` has the extras and dependency groups.
    report : str or None
        Name of the session that merges the records; it requires all cells without a GPU. None for no such session.
    default : bool
        Whether the sessions run when nox is called without a name.

    Returns
    -------
    list of Cell

    Raises
    ------
    CellsError
        If the file cannot be used.
    """
    import nox

    base = Path(root).resolve()
    cells = load_cells(path)
    # an older nox runs everything in turn, and does not know the word
    parallel = "allow_parallel" in inspect.signature(nox.session).parameters
    for cell in cells:
        function: Callable[[nox.Session], None] = partial(run_cell, cell=cell, root=base)
        function.__doc__ = cell.description
        options: dict[str, Any] = {"allow_parallel": not cell.gpu} if parallel else {}
        nox.session(name=cell.name, python=cell.python, tags=list(cell.tags), default=default, **options)(function)
    if report is not None:
        if report in _asked_for(sys.argv[1:]):
            os.environ[_JUDGED] = report
        function = partial(_report, root=base, path=Path(path).resolve())
        function.__doc__ = "Run every cell that needs no GPU, then merge the records of all into one report."
        needed = [cell.name for cell in cells if not cell.gpu]
        nox.session(name=report, requires=needed, default=False)(function)
    return cells


def _asked_for(arguments: list[str]) -> list[str]:
    """What nox was called with, without what is for pytest."""
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


def run_cell(session: nox.Session, cell: Cell, root: Path, *install: str) -> None:
    """Make the environment of a cell and run pytest in it.

    Parameters
    ----------
    install : str
        Further requirements.
    """
    import nox

    groups = []
    if cell.values["groups"]:
        pyproject = nox.project.load_toml(root / "pyproject.toml")
        groups = list(nox.project.dependency_groups(pyproject, *cell.values["groups"]))
    project = plan.project_requirement(cell, root)
    session.install(*project, *plan.plugin_requirement(root), *groups, *cell.packages, *install)
    environment = plan.prepare(cell, root)
    codes = _JUDGED_CODES if _JUDGED in os.environ else (0,)
    session.run("pytest", *(session.posargs or cell.values["tests"]), env=environment, success_codes=codes)


def _report(session: nox.Session, root: Path, path: Path) -> None:
    """Merge what the cells left."""
    (plugin,) = plan.plugin_requirement(root) or [str(root)]
    session.install(plugin, "rich", "jinja2")
    judged = ["--cells", str(path), "--tags", "!gpu"] if _JUDGED in os.environ else []
    session.run("cudalink", "report", str(root / plan.RECORDS), *judged, *session.posargs)
