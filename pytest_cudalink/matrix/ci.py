"""The matrix of a GitHub workflow, the Python of its cells, and how cells spread over machines by their durations."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Final

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from ..base.regular_files import DATA, is_regular, open_regular
from ..base.tables import grouped
from ..base.words import counted
from .cells import Cell
from .project import Project
from .reading import CellsError

#: How the lines begin that are parsed; the rest is most of a file.
_READ: Final = (b'{"event": "run"', b'{"event": "end"')
_SHARD = re.compile(r"([1-9]\d{0,4})/([1-9]\d{0,4})")


def parse_shard(text: str) -> tuple[int, int]:
    """Return number and count of a shard such as ``"3/10"``.

    Raises ValueError if the text is something else.
    """
    match = _SHARD.fullmatch(text)
    if match is None or int(match[1]) > int(match[2]):
        msg = f"the shard is {text!r}; expected NUMBER/COUNT such as 3/10, with a number from 1 to the count"
        raise ValueError(msg)
    return int(match[1]), int(match[2])


def spread(cells: Sequence[Cell], count: int, seconds: Mapping[str, float]) -> list[list[Cell]]:
    """Return so many lists of cells, whose sums of seconds are as even as taking the longest first makes them.

    `seconds`: how long cells took when they last ran, by name; any other cell counts as their mean.
    """
    usual = fmean(seconds.values()) if seconds else 1.0
    cost = {cell.name: max(seconds.get(cell.name, usual), 0.001) for cell in cells}
    order = {cell.name: number for number, cell in enumerate(cells)}
    parts: list[list[Cell]] = [[] for _ in range(count)]
    sums = [0.0] * count
    for cell in sorted(cells, key=lambda each: (-cost[each.name], each.name)):
        least = min(range(count), key=sums.__getitem__)
        parts[least].append(cell)
        sums[least] += cost[cell.name]
    return [sorted(part, key=lambda cell: order[cell.name]) for part in parts]


def read_durations(paths: Iterable[Path]) -> dict[str, float]:
    """Return the seconds of the newest run of each cell, by the cell's name.

    A cell whose newest run did not finish, or has a damaged record, is left out.

    `paths`: record files, and folders of them.
    """
    newest: dict[str, tuple[float, float | None]] = {}
    for path in paths:
        names = [path] if path.is_file() else [Path(top, name) for top, _, files in os.walk(path) for name in files]
        for file in sorted(each for each in names if each.suffix == ".jsonl" and is_regular(each, DATA)):
            cell, began, seconds = _read(file)
            if cell not in newest or began >= newest[cell][0]:
                newest[cell] = began, seconds
    return {cell: seconds for cell, (_, seconds) in newest.items() if seconds is not None}


def _read(file: Path) -> tuple[str, float, float | None]:
    """Return the cell of a record, when its run began, and its seconds; None if the run did not finish."""
    from ..report import records

    try:
        with open_regular(file) as stream:
            record = records.parse(line for line in stream if line.startswith(_READ))
        if record.run is not None:
            seconds = float(record.end.duration) if record.end is not None else None
            return str(record.run.cell or file.stem), float(record.run.time), seconds
    except (OSError, records.RecordError, TypeError, ValueError):  # damaged, or values of another type
        pass
    return file.stem, 0.0, None


#: How each runner runs cells in CI, and the variable that names them, separated by commas.
RUN: Final = {"nox": "nox", "tox": "tox run"}
CELLS_VARIABLE: Final = {"nox": "NOXSESSION", "tox": "TOXENV"}
#: Jobs that a matrix of GitHub can have (GitHub Actions limits, 2026-11-22).
MOST_JOBS: Final = 256
#: What a runner needs besides itself and the plugin.
RUNNER_PACKAGES: Final = {"nox": "", "tox": "--with tox-uv "}
#: Minor versions of Python 3 in the order of preference; the plugin needs 3.11.
_MINORS: Final = (12, *range(13, 31), 11)
#: A patch release that is newer than every real one.
_NEWEST_PATCH: Final = 999
_PATCHES: Final = range(50, -1, -1)


def default_python(root: Path) -> str:
    """Return the Python of the cells that name none: the preferred one that the project's ``requires-python`` allows.

    `root`: the project. Without ``requires-python`` in its ``pyproject.toml``, every Python is allowed.
    Returns a minor version such as ``"3.12"``; a patch release if the newest patch release of no minor version is
    allowed.
    Raises CellsError if ``pyproject.toml`` cannot be read, or allows no Python that the plugin runs on.
    """
    file, text = root / "pyproject.toml", Project.read(root).requires_python
    try:
        allowed = SpecifierSet(text)
    except InvalidSpecifier as error:
        raise CellsError([f"{file}: {error}"]) from error
    wanted = [(f"3.{minor}", f"3.{minor}.{_NEWEST_PATCH}") for minor in _MINORS]
    wanted += [(version, version) for minor in _MINORS for version in (f"3.{minor}.{patch}" for patch in _PATCHES)]
    for name, release in wanted:
        if allowed.contains(release):
            return name
    msg = f"{file}: requires-python is {text!r}; expected a range with Python 3.11 or newer, which the plugin needs"
    raise CellsError([f"{msg}; widen it"])


def _pythons(cells: Iterable[Cell], root: Path) -> dict[str, str]:
    """Return the Python of each cell by its name."""
    named = {cell.name: cell.python for cell in cells}
    # requires-python does not matter if every cell names a Python
    default = default_python(root) if None in named.values() else ""
    return {name: python or default for name, python in named.items()}


def _labels(cell: Cell, gpu_runner: str) -> list[str]:
    """Return the labels of a cell's CI machine, from the cell or the CI's variable; empty if neither names any."""
    given = [word.strip() for word in gpu_runner.split(",") if word.strip()]
    return list(cell.values.runs_on) or (given if cell.gpu else [])


def github_matrix(
    cells: Iterable[Cell],
    root: Path,
    gpu_runner: str = "",
    jobs: int = MOST_JOBS,
    seconds: Mapping[str, float] | None = None,
) -> dict[str, object]:
    """Return the matrix of a GitHub workflow: a job for each cell, or for several where there are more than `jobs`.

    `root`: the project.
    `gpu_runner`: labels of the machine with a GPU, separated by commas, for cells with ``gpu = true`` and no
    ``runs-on``.
    `jobs`: most jobs. Cells that share a job have the same Python and machine; their names are separated by commas.
    `seconds`: how long cells took when they last ran, by name.
    Raises CellsError if no Python fits the project, or the cells need more kinds of machines than there may be jobs.
    """
    cells = list(cells)
    pythons = _pythons(cells, root)
    kinds = grouped((repr((pythons[cell.name], cell.gpu, _labels(cell, gpu_runner))), cell) for cell in cells)
    if len(kinds) > jobs:
        msg = f"the cells need {len(kinds)} kinds of machines and Pythons, and may have {jobs} jobs"
        raise CellsError([f"{msg}; select some with --tags or --shard"])
    groups = [[cell] for cell in cells] if len(cells) <= jobs else _grouped(list(kinds.values()), jobs, seconds or {})
    return {"include": [_row(group, pythons, gpu_runner) for group in groups]}


def _grouped(kinds: list[list[Cell]], jobs: int, seconds: Mapping[str, float]) -> list[list[Cell]]:
    """Return the cells in at most so many jobs, each kind of machine with as many as its share of the cells."""
    every = sum(map(len, kinds))
    shares = [max(1, (jobs - len(kinds)) * len(kind) // every + 1) for kind in kinds]
    return [group for kind, share in zip(kinds, shares, strict=True) for group in spread(kind, share, seconds) if group]


def _row(group: list[Cell], pythons: Mapping[str, str], gpu_runner: str) -> dict[str, object]:
    """Return one job."""
    cell = group[0]
    return {
        "cell": ",".join(member.name for member in group),
        "python": pythons[cell.name],
        "gpu": cell.gpu,
        "tags": list(dict.fromkeys(tag for member in group for tag in member.tags)),
        "runs-on": _labels(cell, gpu_runner) or ["ubuntu-latest"],
        "description": cell.description if len(group) == 1 else counted(len(group), "cell"),
        "toolchains": "-".join(dict.fromkeys(release for member in group for release, _ in member.toolchains)),
    }
