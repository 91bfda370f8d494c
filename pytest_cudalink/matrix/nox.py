"""The matrix for nox: one session for each cell, and one that reports on all.

In a noxfile::

    from pytest_cudalink.matrix.nox import sessions

    sessions("matrices/cells.toml")
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..base.process_end import ending
from ..toolchains import ToolchainError
from . import runner
from .cells import Cell
from .reading import CellsError, load_cells

if TYPE_CHECKING:
    import nox
    from nox.command import CommandFailed

#: Set to the time when the report session is requested. The report then decides pass or fail, so a failing cell must
#: not stop nox, and a record that is older is that of another run.
_JUDGED: Final = "CUDALINK_MATRIX_JUDGE"
_INSTALLATION: Final = "the installation"


def sessions(
    path: str | Path = runner.CELLS, *, root: str | Path = ".", report: str | None = "report", default: bool = False
) -> list[Cell]:
    """Define a session for each cell of a file, under the cell's name, with its tags and description.

    Arguments after ``--`` are added to the cell's ``tests``; a path among them replaces these. If the report is
    requested, they go to ``cudalink report``. Sessions may run in parallel (``nox -j``), except those on a real GPU.

    `path`: the file of cells, relative to the working folder; ``$CUDALINK_CELLS`` names another.
    `root`: the project, whose ``pyproject.toml`` has the extras and dependency groups.
    `report`: name of the session that merges the records; it requires all cells without a GPU. None for no such
    session.
    `default`: whether the sessions run if nox is called without a name.
    Raises SystemExit if the file cannot be used, or a cell has the name of the report or of an earlier session; nox
    shows the text and ends.
    """
    import nox

    base = Path(root).resolve()
    path = Path(os.environ.get("CUDALINK_CELLS", path))
    try:
        cells = load_cells(path)
    except CellsError as error:
        raise SystemExit(str(error)) from error
    except OSError as error:
        raise SystemExit(f"cudalink: {error.strerror}: {path}; `cudalink init` writes one") from error
    earlier = nox.registry.get()
    if report in earlier:
        taken_by = f"the session {report!r} of the noxfile has the name of the one that merges the records"
        raise SystemExit(f'{taken_by}; choose another, as with sessions(..., report="cudalink-report")')
    taken = {report, *earlier}
    if clash := next((cell.name for cell in cells if cell.name in taken), None):
        msg = f"{path}: the cell {clash!r} has the name of another session of the noxfile; rename one of them"
        raise SystemExit(msg)
    # an older nox runs the sessions one by one, and does not know the keyword
    parallel = "allow_parallel" in inspect.signature(nox.session).parameters
    for cell in cells:
        function = _function(cell.description, run_cell, cell=cell, root=base)
        define: Callable[..., Callable[..., object]] = nox.session
        if parallel:
            define = partial(define, allow_parallel=not cell.gpu)
        define(name=cell.name, python=cell.python, tags=list(cell.tags), default=default)(function)
    if report is not None:
        if report in _asked_for(sys.argv[1:]):
            os.environ.setdefault(_JUDGED, str(time.time()))
            nox.options.error_on_missing_interpreters = False  # the default on CI, where no report would come
        judged = [cell for cell in cells if not cell.gpu]
        text = "Run every cell that needs no GPU, then merge the records of all into one report."
        function = _function(text, _report, cells=judged, root=base, path=path.resolve())
        nox.session(name=report, requires=[cell.name for cell in judged], default=False)(function)
    return cells


def _function(text: str, work: Callable[..., None], **arguments: object) -> Callable[[nox.Session], None]:
    """Return a function with a docstring and some arguments given: nox -P copies the code of a session's function."""

    def function(session: nox.Session) -> None:
        work(session, **arguments)

    function.__doc__ = text
    return function


def _asked_for(arguments: list[str]) -> set[str]:
    """Return the session names given to nox, as arguments or in its environment; what follows ``--`` is not for nox."""
    before = arguments[: arguments.index("--")] if "--" in arguments else arguments
    text = " ".join([*before, os.environ.get("NOXSESSION", "")])
    return {word.removeprefix("-s") for word in re.split(r"[\s=,]+", text)}


def run_cell(session: nox.Session, cell: Cell, root: Path) -> None:
    """Make the environment of a cell and run pytest in it.

    If the report is requested, this session never fails, because nox would then not make the report: it is skipped with
    a reason, which the summary of nox shows.
    """
    from nox.command import CommandFailed

    runner.begin(cell, root)
    judged = _is_judged(cell)
    step, end = _INSTALLATION, bytearray()
    try:
        runner.choose_versions(cell, root, session.warn)
        plugin = runner.plugin_requirement(root) if cell.runs_pytest else []
        packages = [*_groups(cell, root), *cell.packages, *runner.constraints(cell, root)]
        _install(session, cell, root, [*runner.project_requirement(cell, root), *plugin, *packages])
        environment = runner.prepare(cell, root, session.log)
        given = () if judged else session.posargs
        program = runner.command(cell, given, Path.cwd())
        step = cell.program
        # bare steps are run by the Python of nox, which is not in the environment
        run: Callable[..., object] = session.run if cell.runs_pytest else partial(session.run, external=True)
        with runner.copied(end) as output:
            # a terminal stays one
            run(*program, env=environment, stdout=None if os.isatty(1) else output, stderr=output)
    except CommandFailed as error:
        code = _exit_code(error)
        how = ending(code) if code is not None else f"ended with {error.reason or 'an error'}"
        said = end.decode(errors="replace")
        if code is not None and step != _INSTALLATION and (words := runner.conclude(cell, root, code, said)):
            session.warn(words)
        runner.note(cell, root, f"{step} {how}; `nox -s {cell.name}` shows why")
        if not judged:
            raise
        _fail(session, cell, f"{step} {how}")
    except (CellsError, ToolchainError, OSError) as error:
        runner.note(cell, root, str(error))
        _fail(session, cell, str(error))
    else:
        if words := runner.conclude(cell, root, 0, end.decode(errors="replace")):
            _fail(session, cell, words)


def _is_judged(cell: Cell) -> bool:
    """Return whether a report is to decide pass or fail; it asks for no cell that needs a GPU."""
    return _JUDGED in os.environ and not cell.gpu


def _fail(session: nox.Session, cell: Cell, words: str) -> None:
    """Fail a session, or leave that to the report."""
    if _is_judged(cell):
        session.skip(f"RED: {words}")
    else:
        session.error(words)


def _exit_code(error: CommandFailed) -> int | None:
    """Return the exit code of a command that failed; before nox 2026.07.11 only the sentence of the error has it."""
    match = re.match(r"Returned code (-?\d+)", str(error.reason))
    return getattr(error, "return_code", int(match[1]) if match else None)


def _install(session: nox.Session, cell: Cell, root: Path, requirements: list[str]) -> None:
    """Install a cell; where the plugin is what the installer did not find, say how to name another build."""
    from nox.command import CommandFailed

    try:
        session.install(*requirements)
    except CommandFailed:
        if words := runner.plugin_missing(cell, root):
            session.warn(words)
            runner.note(cell, root, words)  # the first note of a cell is the one that stays
        raise


def _groups(cell: Cell, root: Path) -> list[str]:
    """Return the requirements of the dependency groups of a cell."""
    import nox

    if not cell.values.groups:
        return []
    pyproject = root / "pyproject.toml"
    try:
        return list(nox.project.dependency_groups(nox.project.load_toml(pyproject), *cell.values.groups))
    except (LookupError, ValueError) as error:
        msg = f"{pyproject} lacks a dependency group of the cell {cell.name}; expected {', '.join(cell.values.groups)}"
        raise CellsError([msg]) from error


def _report(session: nox.Session, cells: list[Cell], root: Path, path: Path) -> None:
    """Merge the records of the cells; nox left out those whose Python it did not find, without a word to the report."""
    for cell in cells:
        runner.forget_older(cell, root, float(os.environ.get(_JUDGED, "0")))
        if not runner.is_explained(cell, root):  # else the Python of every cell would be started for nothing
            runner.note(cell, root, runner.python_missing(cell) or f"it did not run; `nox -s {cell.name}` shows why")
    (plugin,) = runner.plugin_requirement(root) or [str(root)]
    session.install(plugin, "rich", "jinja2")
    selected = ("--cells", str(path), "--tags", "!gpu")
    session.run("cudalink", "report", str(root / runner.RECORDS), *selected, *session.posargs)
