"""``cudalink matrix``."""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from ..base.safe_text import complain, say
from ..base.words import columns, counted
from ..matrix import Cell, CellsError, load_cells, runner
from ..matrix.cells import schema
from ..matrix.ci import github_matrix, parse_shard, read_durations, spread
from ..matrix.keys import KEYS
from ..matrix.project import warnings
from .arguments import CommandError, add_verbs, answer, any_path, hint, input_file, offer, tagged, wrong_file

DESCRIPTION: Final = (
    "Check, list and show the cells of a project. A cell is one environment, in which the tests run once; nox, tox "
    "and GitHub read the same file of cells."
)

GUESSED: Final = {
    "run": "nox and tox run cells: `cudalink matrix list` shows the names, and `nox -s NAME` or `tox -e NAME` runs one"
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verbs."""
    verbs = add_verbs(parser)
    check = verbs.add_parser("check", help="report every mistake in the file, with its line and key")
    check.add_argument("--schema", action="store_true", help="print the JSON schema instead")
    listing = verbs.add_parser("list", help="show one line for each cell")
    show = verbs.add_parser("show", help="show everything about one cell")
    cell = show.add_argument("cell", metavar="CELL", help="name a cell of the file")
    offer(cell, lambda options: [cell.name for cell in load_cells(_file(options))])
    github = verbs.add_parser("github", help="print the matrix of a GitHub workflow, for fromJSON")
    for verb in (listing, github):
        verb.add_argument(
            "--records",
            type=input_file(
                "a record file or a folder of record files", "run the cells first, or correct the path", or_folder=True
            ),
            action="append",
            metavar="PATH",
            help="read the records of earlier runs from this file or folder (default: .cudalink); may be repeated",
        )
        verb.add_argument(
            "--shard",
            type=_shard_of,
            metavar="NUMBER/COUNT",
            help="take only the cells of one of several machines, such as 3/10; the records show how long cells take, "
            "so that the machines end together",
        )
        tags = verb.add_argument(
            "--tags", default="", metavar="TAG,…", help="take only cells with one of these tags; !TAG leaves out cells"
        )
        offer(tags, _known_tags)
    github.add_argument(
        "--gpu-runner",
        default="",
        metavar="LABEL,…",
        help="run cells with gpu = true and no runs-on on a machine with these labels",
    )
    github.add_argument(
        "--jobs",
        type=int,
        default=256,
        metavar="NUMBER",
        help="make at most so many jobs, several cells in a job if need be (default: 256, GitHub's limit)",
    )
    for verb in (listing, show):
        verb.add_argument("--json", action="store_true", help="print JSON")
    for verb in (check, listing, show, github):
        verb.add_argument(
            "--file",
            type=any_path,
            metavar="FILE",
            help="read the cells from this file (default: $CUDALINK_CELLS, else matrices/cells.toml)",
        )


def run(options: argparse.Namespace) -> int:
    """Run one verb; return exit code 1 for a file with faults, 2 for a missing file, or for an unknown cell or tag."""
    verbs = {"check": _check, "list": _list, "show": _show, "github": _github}
    file = _file(options)
    try:
        return verbs[options.verb](options, file)
    except CellsError as error:
        complain(f"{error}\ncudalink matrix: {counted(len(error.faults), 'error')} in {file}")
        return 1
    except OSError as error:
        wrong = wrong_file(file, "a file of cells") or f"is {file}, which cannot be read: {error.strerror}"
        remedy = "`cudalink init` writes one" if isinstance(error, FileNotFoundError) else "name another with --file"
        raise CommandError(f"the file of cells {wrong}; {remedy}") from error


def _file(options: argparse.Namespace) -> Path:
    return options.file or runner.cells_file(Path())


def _known_tags(options: argparse.Namespace) -> Iterable[str]:
    return sorted({tag for cell in load_cells(_file(options)) for tag in cell.tags})


def _check(options: argparse.Namespace, file: Path) -> int:
    if options.schema:
        return answer(schema(), (), as_json=True)
    cells = load_cells(file)
    if not cells:
        complain(f"cudalink matrix: {file} has no cells; add [cells.NAME], or let `cudalink init` write a file")
        return 1
    doubts = warnings(cells, Path())
    say("".join(f"{file}: warning: {text}\n" for text in doubts), end="")
    more = f", {counted(len(doubts), 'warning')}" if doubts else ""
    say(f"{file}: {counted(len(cells), 'cell')}, no errors{more}")
    return 0


def _list(options: argparse.Namespace, file: Path) -> int:
    cells = _some(options, file)
    rows = [
        {"name": cell.name, "axes": cell.axes, "tags": cell.tags, "description": cell.description} for cell in cells
    ]
    lines = columns([(cell.name, cell.description, " ".join(cell.tags)) for cell in cells])
    return answer(rows, lines, as_json=options.json)


def _show(options: argparse.Namespace, file: Path) -> int:
    cell = _chosen_cell(options, file)
    every = {key: cell.values.value(key) for key in KEYS if key != "packages"} | {"versions": dict(cell.versions)}
    values = {key: value for key, value in every.items() if value not in ("", (), {})}
    content = {
        "name": cell.name,
        "description": cell.description,
        "line": cell.line,
        "values": values,
        "tags": list(cell.tags),
        "packages": list(cell.packages),
        "toolchains": [f"{version} ({layout})" for version, layout in cell.toolchains],
        "environment": cell.environment(runner.RECORDS),
    }
    sections: dict[str, list[str]] = {
        "values": [f"{key} = {_toml(value)}" for key, value in values.items()],
        "tags": list(cell.tags),
        "packages": list(cell.packages),
        "toolchains": [f"cudalink toolchain add {version} --layout {layout}" for version, layout in cell.toolchains],
        "environment": [f"{name}={value}" for name, value in cell.environment(runner.RECORDS).items()],
    }
    lines = [f"{cell.name}: {cell.description} ({file}, line {cell.line})"]
    for title, texts in sections.items():
        lines += ["", title, *(f"  {text}" for text in texts)] if texts else []
    return answer(content, lines, as_json=options.json)


def _chosen_cell(options: argparse.Namespace, file: Path) -> Cell:
    """Return the cell that is named; raise an error with the nearest names if there is no such cell."""
    cells: Mapping[str, Cell] = {cell.name: cell for cell in load_cells(file)}
    if options.cell not in cells:
        known = hint(options.cell, cells, "; `cudalink matrix list` shows them")
        raise CommandError(f"no cell {options.cell!r} in {file}{known}")
    return cells[options.cell]


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)


def _some(options: argparse.Namespace, file: Path, *, none: bool = False) -> list[Cell]:
    """Return the cells of the file that --tags and --shard select; with `none`, as `tagged` has it."""
    cells = tagged(load_cells(file), options.tags, file, none=none)
    if options.shard is None:
        return cells
    number, count = options.shard
    return spread(cells, count, _seconds(options))[number - 1]


def _seconds(options: argparse.Namespace) -> dict[str, float]:
    """Return how long cells took when they last ran, by name."""
    return read_durations(options.records or [runner.RECORDS])


def _shard_of(text: str) -> tuple[int, int]:
    try:
        return parse_shard(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _github(options: argparse.Namespace, file: Path) -> int:
    cells = _some(options, file, none=True)
    seconds = _seconds(options) if len(cells) > options.jobs else {}
    matrix = github_matrix(cells, Path(), options.gpu_runner, options.jobs, seconds)
    text = json.dumps(matrix, separators=(",", ":"))
    sys.stdout.write(text + "\n")
    if output := os.environ.get("GITHUB_OUTPUT"):
        with Path(output).open("a", encoding="utf-8") as stream:
            # GitHub fails a job whose matrix is empty: `if: needs.cells.outputs.any == 'true'`
            stream.write(f"matrix={text}\nany={'true' if cells else 'false'}\n")
    return 0
