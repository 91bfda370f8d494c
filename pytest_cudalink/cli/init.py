"""``cudalink init``."""

import argparse
import difflib
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..audit.needs import has_runtime
from ..base.regular_files import read_text
from ..base.safe_text import complain, say
from ..environment.installed import is_library, libraries_below
from ..environment.wheels import files_of, installed_wheel
from ..matrix import CellsError, load_cells
from ..matrix.init import OLDEST_PYTEST, Change, older_pytest, on_runtime, plan_changes, projects_below
from ..matrix.project import Project, warnings
from ..matrix.runner import CELLS
from .arguments import command_errors

DESCRIPTION: Final = (
    "Add a matrix to the project in this folder: matrices/cells.toml, a noxfile or tox.toml, and the CI's workflow. "
    "Existing files are replaced only if you confirm it."
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--runner", choices=("nox", "tox"), help="run cells with it (default: the project's, else nox)")
    parser.add_argument(
        "--ci", choices=("github", "none"), default="github", help="write the workflow of this CI (default: github)"
    )
    parser.add_argument("--dry-run", action="store_true", help="show the changes, and write nothing")
    parser.add_argument("--force", action="store_true", help="replace files that differ without asking")


def run(options: argparse.Namespace) -> int:
    """Write the files; return exit code 1 if a file that differs was left unchanged, 2 if a file cannot be used."""
    root = Path.cwd()
    with command_errors(CellsError, OSError):
        changes = plan_changes(root, options.runner, options.ci)
        for note in _notes(root):
            say(f"note: {note}")
        return _carry_out(root, changes, options)


def _notes(root: Path) -> Iterator[str]:
    """Yield what a user must hear before anything is written: where the matrix does not suit the project."""
    if below := projects_below(root):
        yield f"this folder is not a project, and these are: {', '.join(below)}; run `cudalink init` there"
    if older := older_pytest(root):
        needed = f"the pytest of pytest-cudalink, {OLDEST_PYTEST} or newer"
        yield f"no cell can be installed: {older} excludes {needed}; widen it"
    named, builds = on_runtime(root)
    reasons = [f"{name} calls the CUDA runtime" for name in _compiled(root, Project.read(root).name)]
    reasons = reasons or [f"{name} calls the CUDA runtime" for name in named]
    if builds:
        reasons.append(f"{builds[0]} builds for the CUDA runtime: each cell with the project needs nvcc")
    yield from reasons
    if reasons:
        yield (
            "the CUDA runtime does not run on the emulated driver, so that cells skip the tests that call it; cells "
            "suit tests that compile, link and load by NVRTC, nvJitLink and the driver's functions. A cell with "
            "driver = 'real' and gpu = true skips nothing"
        )


def _compiled(root: Path, name: str) -> Iterator[str]:
    """Yield the first compiled part of a project that calls the CUDA runtime: built in its folder, or installed."""
    built = list(libraries_below(root))
    with suppress(ValueError):  # without a name
        built += [str(file) for file in files_of(installed_wheel(name), ".*") if is_library(file.name)]
    for path in built:
        with suppress(OSError, ValueError):
            if has_runtime(path):
                yield path
                return


def _carry_out(root: Path, changes: Iterable[Change], options: argparse.Namespace) -> int:
    left = []
    for change in changes:
        word = _word(change, options)
        say(f"{word:<8}{change.path}")
        if options.dry_run:
            _show(root, change)
        elif word in ("write", "append", "replace"):
            (root / change.path).parent.mkdir(parents=True, exist_ok=True)
            (root / change.path).write_bytes(change.content.encode())
        if word == "leave":
            left.append(change)
        if change.advice:
            say("".join(f"        {line}\n" for line in change.advice.splitlines()), end="")
    if left:
        names = ", ".join(str(change.path) for change in left)
        complain(f"cudalink init: left unchanged: {names}; look with --dry-run, replace with --force")
    elif not options.dry_run:
        for text in warnings(load_cells(root / CELLS), root):  # as `cudalink matrix check` does
            say(f"{CELLS}: warning: {text}")
        say("next: cudalink matrix list")
    return 1 if left else 0


def _word(change: Change, options: argparse.Namespace) -> str:
    if change.action != "replace" or options.force or options.dry_run:
        return change.action
    if sys.stdin.isatty():
        say(f"{change.path} exists and differs. Replace it? [y/N] ", end="")
        sys.stdout.flush()
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            return "replace"
    return "leave"


def _show(root: Path, change: Change) -> None:
    """Print a change as a diff."""
    if change.action == "keep":
        return
    file = root / change.path
    before = read_text(file).splitlines() if file.exists() else []
    lines = difflib.unified_diff(before, change.content.splitlines(), str(change.path), str(change.path), lineterm="")
    say("".join(f"        {line}\n" for line in lines), end="")
