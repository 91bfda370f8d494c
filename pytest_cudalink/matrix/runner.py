"""The steps of running a cell that nox, tox and CI share."""

import os
import re
import select
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

from .. import toolchains
from ..base.process_end import ending, signal_name
from ..base.regular_files import open_regular
from ..base.safe_text import line as safe
from .cell_facts import NEWER
from .cells import Cell
from .keys import LATEST, LOWEST, distribution, package_requirement
from .project import Project, requirements, warnings
from .reading import CellsError

#: Packages that are parts of a toolkit, or have its version.
_OF_TOOLKIT: Final = re.compile(r"nvidia-|cuda-(bindings|python|toolkit)==")
#: Where a project keeps its cells, relative to its root.
CELLS = Path("matrices", "cells.toml")
#: Where the records of the cells go, relative to the root of the project. CI copies only this folder between machines.
RECORDS = Path(".cudalink")
#: The options of pytest and its best-known plugins whose next argument can look like a path of tests, and is not one.
_WITH_PATH: Final = frozenset(
    (
        *("-k", "-m", "-p", "-c", "-o", "-n", "-r", "-W", "--ignore", "--ignore-glob", "--deselect", "--rootdir"),
        *("--confcutdir", "--basetemp", "--cov", "--cov-report", "--cudalink-provenance"),
    )
)
#: Ends the name of a file that says why a cell has no record.
_NOTE: Final = ".missing.txt"
_LONGEST_NOTE: Final = 2000
#: The note of a cell from its beginning until it has a record or another note.
_BEGAN: Final = "its run began, and nothing says how it ended"
#: How much of the end of a program's output a note has.
_LAST_LINES: Final = 6
_LAST_BYTES: Final = 4096
#: More than a pipe holds.
_PIPE: Final = 1 << 20
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
#: Seconds that the package index may take to answer.
_INDEX_SECONDS: Final = 20


def cells_file(root: Path) -> Path:
    """Return the project's file of cells: ``$CUDALINK_CELLS``, else ``matrices/cells.toml``."""
    return root / os.environ.get("CUDALINK_CELLS", CELLS)


def project_requirement(cell: Cell, root: Path) -> list[str]:
    """Return pip's arguments that install the project itself; empty for ``install = "none"``."""
    if cell.values.install == "none":
        return []
    extras = f"[{','.join(cell.values.extras)}]" if cell.values.extras else ""
    editable = ["-e"] if cell.values.install == "editable" else []
    return [*editable, f"{root}{extras}"]


def command(cell: Cell, words: Sequence[str], folder: Path) -> list[str]:
    """Return the program that a cell runs with its arguments: pytest, the same with files hidden, or bare steps.

    `cell`, `words`, `folder`: as for `arguments`. A bare cell takes no arguments for its steps.
    """
    if not cell.runs_pytest:
        return [sys.executable, "-m", "pytest_cudalink.cli.bare_cell"]
    pytest = ["pytest", *arguments(cell, words, folder)]
    return ["python", "-m", "pytest_cudalink.matrix", *pytest] if cell.values.hidden else pytest


def environment(cell: Cell, root: Path) -> dict[str, str]:
    """Return the environment variables of a cell's run, and of its installation where versions are constrained."""
    result = cell.environment(root / RECORDS)
    if not cell.runs_pytest:
        # the runner's Python runs the steps; its package is perhaps not installed, but a checkout
        result["PYTHONPATH"] = str(Path(__file__).parents[2])
    if cell.is_bare and _chooses(cell):
        file = str(chosen_file(cell, root))
        result |= {"PIP_CONSTRAINT": file, "UV_CONSTRAINT": file}
    return result


def _chooses(cell: Cell) -> bool:
    """Return whether the versions of a cell are chosen before it is installed."""
    words = [*cell.versions.values()] if not cell.is_bare else [LOWEST] * len(cell.versions)
    return LOWEST in words or cell.values.resolution in ("lowest", "lowest-direct")


def chosen_file(cell: Cell, root: Path) -> Path:
    """Return the file that `resolve` writes."""
    return root / RECORDS / f"{cell.name}.requirements.txt"


def constraints(cell: Cell, root: Path) -> list[str]:
    """Return pip's arguments for the versions that `resolve` chose; empty where it chooses none.

    A bare cell gets no package that its project does not require.
    """
    if not _chooses(cell):
        return []
    return ["-c" if cell.is_bare else "-r", str(chosen_file(cell, root))]


def choose_versions(cell: Cell, root: Path, warn: Callable[[str], object]) -> None:
    """Warn of requirements that do not fit a cell, and choose its versions before anything is installed.

    Raises CellsError as from `resolve`.
    """
    for text in warnings([cell], root):
        warn(text)
    resolve(cell, root)
    note_newer(cell, root)


def resolve(cell: Cell, root: Path) -> None:
    """Write the versions that the keys ``resolution`` and ``packages`` of a cell choose, for any installer.

    uv chooses them whatever the runner installs with, because pip only knows the newest. It installs nothing.

    Raises CellsError if uv is missing or finds no versions, or no requirement of the project limits a package from
    below.
    """
    if not _chooses(cell):
        return
    resolution = cell.values.resolution
    named = {name: package_requirement(name, version) for name, version in cell.versions.items()}
    lowest = [name for name, version in cell.versions.items() if version == LOWEST]
    for name in lowest:
        # an unlimited requirement would be satisfied by the first release ever
        named[name] = "\n".join(_limits(cell, root, name))
    pins: list[str] = []
    if resolution in ("lowest", "lowest-direct"):
        project = root / "pyproject.toml"
        sources = [str(project)] if cell.values.install != "none" else []
        extras = [f"--extra={extra}" for extra in cell.values.extras]
        for name in [name for name, version in cell.versions.items() if version == LATEST]:
            (named[name],) = _compile(cell, root, _requirements(cell, root, name), "--no-deps")
        pins = _compile(cell, root, [*cell.packages, *named.values()], "--resolution", resolution, *sources, *extras)
    else:
        for name in lowest:
            pins += _compile(cell, root, [named[name]], "--resolution", "lowest-direct", "--no-deps")
        pins += [line for name, line in named.items() if name not in lowest and cell.is_bare and line != name]
    _write(chosen_file(cell, root), "".join(f"{pin}\n" for pin in pins))


def note_newer(cell: Cell, root: Path) -> None:
    """Write the releases that the project gets without the toolkit of a cell, with which the run compares its own.

    An installer that must have a toolkit takes an old release of a package whose newer ones do not fit it, and does not
    say so. Nothing is written where no release is known: without uv, or without an answer of the package index.
    """
    file = chosen_file(cell, root).with_name(f"{cell.name}{NEWER}")
    file.unlink(missing_ok=True)
    wanted = [str(each.requirement) for each in requirements(cell, Project.read(root))]
    if not wanted or cell.ctk == "none" or cell.values.resolution in ("lowest", "lowest-direct"):
        return
    try:
        pins = _compile(cell, root, wanted)
    except CellsError:
        return
    # packages of the toolkit, and those whose version the cell chooses, are older because the cell says so
    chosen = {distribution(requirement) for requirement in cell.packages if requirement not in cell.values.packages}
    pins = [pin for pin in pins if distribution(pin) not in chosen and not _OF_TOOLKIT.match(pin)]
    _write(file, "".join(f"{pin}\n" for pin in pins))


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(text.encode())


def _compile(cell: Cell, root: Path, requirements: Sequence[str], *options: str) -> list[str]:
    """Return the versions that uv chooses for some requirements, as requirements."""
    version = (cell.python or f"{sys.version_info[0]}.{sys.version_info[1]}").rstrip("t")
    done = _ask_uv(requirements, root, "--no-progress", "--python-version", version, *options)
    if done is None:
        msg = f"the cell {cell.name} asks for the oldest versions, which uv finds and pip cannot; install uv"
        raise CellsError([msg])
    if done.returncode != 0:
        msg = f"the versions of the cell {cell.name} cannot be resolved by uv: {done.stderr.strip()}"
        raise CellsError([msg])
    return [line.strip() for line in done.stdout.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def _requirements(cell: Cell, root: Path, package: str) -> list[str]:
    """Return what the project and the cell require of a package."""
    every = [*(str(wanted.requirement) for wanted in requirements(cell, Project.read(root))), *cell.packages]
    return list(dict.fromkeys(requirement for requirement in every if distribution(requirement) == package))


def _limits(cell: Cell, root: Path, package: str) -> list[str]:
    """Return what the project and the cell require of a package.

    Raises CellsError if that does not limit its version.
    """
    limits = _requirements(cell, root, package)
    if not any(Requirement(requirement).specifier for requirement in limits):
        dynamic = "; its dependencies are dynamic" if "dependencies" in Project.read(root).dynamic else ""
        why = f"nothing in {root / 'pyproject.toml'} or the cell limits its version{dynamic}"
        do = f"write a requirement such as '{package}>=1.0', or the version into the cell"
        raise CellsError([f"the cell {cell.name} asks for {package} = 'lowest', but {why}; {do}"])
    return limits


def plugin_requirement(root: Path) -> list[str]:
    """Return the requirement of the plugin, or ``$CUDALINK_REQUIREMENT``; empty in the plugin's own project."""
    if Project.read(root).name == "pytest-cudalink":
        return []
    return [os.environ.get("CUDALINK_REQUIREMENT") or "pytest-cudalink"]


def plugin_missing(cell: Cell, root: Path) -> str:
    """Return what to do where uv does not find the plugin that a cell needs; empty if it does, or is not there itself.

    Call it after an installation failed: it asks the package index.
    """
    plugin = plugin_requirement(root) if cell.runs_pytest else []
    line = newest(plugin[0], root) if plugin else None
    if line is None or line:
        return ""
    lost = f"the plugin cannot be installed into the cell {cell.name}: {plugin[0]!r} is not found"
    do = "name another build in the environment variable CUDALINK_REQUIREMENT"
    return f"{lost}; {do}: a version on your package index, the path of a wheel, or a URL"


def newest(requirement: str, folder: Path | None = None) -> str | None:
    """Return the line that uv makes of a requirement, such as ``"numpy==2.4.1"``; empty if it finds no release.

    None if nothing can be said: there is no uv, or the package index does not answer soon.

    `folder`: where uv runs: its settings and relative paths count from there.
    """
    try:
        done = _ask_uv([requirement], folder, "--no-deps", timeout=_INDEX_SECONDS)
    except subprocess.TimeoutExpired:
        return None
    if done is None:
        return None
    return done.stdout.strip() if done.returncode == 0 else ""


def _ask_uv(
    requirements: Sequence[str], folder: Path | None, *options: str, timeout: int | None = None
) -> subprocess.CompletedProcess[str] | None:
    """Return the answer of ``uv pip compile``; None without uv."""
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv is None:
        return None
    return subprocess.run(  # noqa: S603
        [uv, "pip", "compile", "-q", "--no-header", "--no-annotate", *options, "-"],
        input="\n".join(requirements),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def arguments(cell: Cell, words: Sequence[str], folder: Path) -> list[str]:
    """Return pytest's arguments: those of the cell and the given ones, or only these if they name a path.

    `words`: what the user wrote after ``--``.
    `folder`: the folder that pytest runs in.
    """
    if any(_is_path(path, folder) for path in paths(words, folder)):
        return list(words)
    return [*cell.tests, *words]


def paths(words: Sequence[str], folder: Path) -> Iterator[str]:
    """Yield the arguments of pytest that are neither options nor their values.

    Which options of plugins take a value is not known here. What follows a long option is therefore taken for a path
    only if it cannot be much else: a folder that exists, a Python file, or a test.
    """
    before = ""
    for word in words:
        if not (word.startswith("-") or before in _WITH_PATH):
            path, _, inside = word.partition("::")
            long = before.startswith("--") and "=" not in before
            if not long or inside or path.endswith(".py") or (folder / path).is_dir():
                yield word
        before = word


def _is_path(argument: str, folder: Path) -> bool:
    """Return whether an argument selects tests, also where the file is misspelt."""
    path, _, inside = argument.partition("::")
    return bool(inside) or os.sep in path or path.endswith(".py") or (folder / path).exists()


def _record(cell: Cell, root: Path) -> Path:
    return Path(cell.environment(root / RECORDS)["CUDALINK_REPORT"])


def _note_file(cell: Cell, root: Path) -> Path:
    return root / RECORDS / f"{cell.name}{_NOTE}"


def begin(cell: Cell, root: Path) -> None:
    """Delete what the last run of a cell left, and note that another one began.

    The report takes no older record for this run's then, and names the cell if nothing more is written.
    """
    for file in (_record(cell, root), _note_file(cell, root)):
        file.unlink(missing_ok=True)
    note(cell, root, _BEGAN)


def forget_older(cell: Cell, root: Path, since: float) -> None:
    """Delete what a cell left that did not run since a time, in seconds since 1970: it is an earlier run's."""
    for file in (_record(cell, root), _note_file(cell, root)):
        if file.exists() and file.stat().st_mtime < since:
            file.unlink()


def is_explained(cell: Cell, root: Path) -> bool:
    """Return whether a cell has a record, or a note that says why it has no record."""
    return _record(cell, root).exists() or _noted(cell, root) not in ("", _BEGAN)


def note(cell: Cell, root: Path, reason: str) -> None:
    """Write why a cell did not run, and what to do, for the report; a cell that has a record or a note keeps it."""
    if not is_explained(cell, root):
        _write(_note_file(cell, root), reason)


def _noted(cell: Cell, root: Path) -> str:
    """Return the note of a cell; empty if it has none."""
    try:
        return _beginning(_note_file(cell, root))
    except FileNotFoundError:
        return ""


def notes(folders: Iterable[Path]) -> dict[str, str]:
    """Return the reasons that `note` wrote into folders, or into folders in them, by cell."""
    files = (file for folder in folders for file in sorted(folder.rglob(f"*{_NOTE}")))
    return {file.name.removesuffix(_NOTE): _beginning(file) for file in files}


def _beginning(file: Path) -> str:
    with open_regular(file) as stream:
        return " ".join(stream.read(_LONGEST_NOTE).decode(errors="replace").split())


def python_missing(cell: Cell) -> str:
    """Return what to do where the Python of a cell does not start here; empty if it does, or if any will do."""
    if cell.python is None:
        return ""
    # a name on the path may be that of a version manager, which has no such Python
    program = shutil.which(f"python{cell.python}")
    if program and subprocess.run([program, "-c", ""], capture_output=True, check=False).returncode == 0:  # noqa: S603
        return ""
    install = f"install it, as with `uv python install {cell.python}`"
    return f"no Python {cell.python} here; {install}, or leave the cell out with --allow-missing={cell.name}"


def prepare(cell: Cell, root: Path, say: Callable[[str], object]) -> dict[str, str]:
    """Install the toolchains that a cell needs; return the environment of its run.

    `say`: called with a sentence before a toolchain is fetched, which can take minutes.
    Raises ToolchainError if a toolchain cannot be installed.
    """
    for version, layout in cell.toolchains:
        try:
            toolchains.find(version, layout)
        except toolchains.ToolchainError:
            folder = toolchains.folder(version, layout)
            say(f"fetching the toolchain {version} ({toolchains.DOWNLOADS[layout]}, once) into {folder}")
            toolchains.add(version, layout)
    return environment(cell, root)


@contextmanager
def copied(end: bytearray) -> Iterator[int]:
    """Yield a descriptor for the output of a program: our stdout gets its text at once, and `end` keeps the last.

    It is for the stderr of a program whose stdout stays a terminal, else for both.
    """
    if os.name != "posix":  # select takes no pipes there
        yield subprocess.STDOUT
        return
    reading, writing = os.pipe()
    # a process that the program leaves behind can hold the pipe open, so its end is no sign that the program ended
    waiting, ending = os.pipe()
    os.set_blocking(reading, False)
    thread = threading.Thread(target=_copy, args=(reading, waiting, end), daemon=True)
    thread.start()
    try:
        yield writing
    finally:
        os.close(ending)
        thread.join()
        for descriptor in (reading, writing, waiting):
            os.close(descriptor)


def _copy(reading: int, waiting: int, end: bytearray) -> None:
    """Copy what comes through a pipe until the other one ends."""
    ended = False
    while not ended:
        ended = waiting in select.select([reading, waiting], [], [])[0]
        with suppress(BlockingIOError):
            some = os.read(reading, _PIPE)
            end += some
            del end[:-_LAST_BYTES]
            while some:
                try:
                    some = some[os.write(1, some) :]
                except OSError:  # the reader of our stdout is gone
                    break


def conclude(cell: Cell, root: Path, code: int, said: str) -> str:
    """Add to a cell's record how its run ended, if pytest could not write that itself; without a record, note it.

    `code`: the exit code of the process; negative for a signal.
    `said`: the end of its output.
    Returns what happened and what to do; empty for a run that ended as its record says.
    """
    from ..report import RecordError, Writer, read
    from ..report.merge import merge
    from ..report.records import CrashRecord, ExitRecord

    path = _record(cell, root)
    name, how = signal_name(code), ending(code)
    lines = [safe(line) for line in _ESCAPES.sub("", said).splitlines() if line.strip(" ^~")][-_LAST_LINES:]
    if not path.exists():
        note(cell, root, ": ".join(filter(None, [f"{cell.program} {how}", " | ".join(lines)])))
        return ""
    _note_file(cell, root).unlink(missing_ok=True)  # the record says more
    try:
        record = read(path)
    except (OSError, RecordError):
        return ""
    if record.run is None:
        return ""
    last = record.exit.exitcode if record.exit else record.end.exitstatus if record.end else None
    if last == code:
        if code and not any(cell_run.is_explained for cell_run in merge([path]).cells):
            with Writer(path) as writer:
                writer.write(ExitRecord(exitcode=code, output=lines))
        return ""
    began = record.unfinished[-1].nodeid if record.end is None and record.unfinished else None
    if not record.crashes or record.crashes[-1].nodeid != began:
        with Writer(path) as writer:
            writer.write(CrashRecord(nodeid=began, signal=name, exitcode=None if name else code))
    where = began or ("outside tests" if record.end is None else "after the last test")
    do = "run with --cudalink-processes=isolated or restarted, so that a crash ends one test only"
    return f"pytest {how} ({where}); {do}"
