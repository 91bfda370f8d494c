"""Commands for the user to paste into a shell: the one that finds something again, from the folder of the run.

They have the words of the run's own command line, so that every option counts again, of whatever plugin; only what
chose the tests, and what writes files of the whole run, is left out. The rest comes back by itself, from ini files,
or stands before the command, from the environment.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...base.safe_text import quote
from ...compat.names import DEFAULT_ARCHITECTURE
from ...compat.options import OPTIONS
from .. import pytest_private
from ..conditions import run_driver
from ..isolation.child import NOT_FOR_CHILDREN
from ..isolation.processes import interpreter_options, key

if TYPE_CHECKING:
    import pytest

    from ..run import Run

#: Options, by their ``dest``, that spread the tests of a run over processes or go on with an earlier one, and have no
#: place in the run of one test; besides those that a child leaves out.
_OF_THE_RUN: Final = frozenset(
    (
        *("distload", "maxprocesses", "maxworkerrestart", "looponfail", "testrunuid", "stepwise_reset"),
        *("verbose", "cudalink_report"),
    )
)
#: Those of what is repeated.
_REPEATED: Final = frozenset(("cudalink_fault_sweep", "cudalink_schedules"))
#: Variables of pytest that change a run, and that the user's shell may lack.
_OF_PYTEST: Final = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTEST_DISABLE_PLUGIN_AUTOLOAD")


def place_of(item: pytest.Item) -> str:
    """Return what names a test in every process: its file, and behind ``::`` its names; the file alone without any."""
    return key(item) if "::" in item.nodeid else str(item.path)


def command(run: Run, option: str, place: str = "") -> str:
    """Return the command that runs one test again under an option, or all tests of the run.

    `place`: of the test, as `place_of` returns it; empty for the tests of the run.
    """
    test = [_in_quotes(_argument(run, place))] if place else []
    return " ".join([*_variables(run), *map(quote, _program(run)), *test, *map(quote, [*_options(run, place), option])])


def _in_quotes(word: str) -> str:
    quoted = quote(word)
    return f"'{word}'" if quoted == word else quoted


def _options(run: Run, place: str) -> Iterator[str]:
    """Yield the words of the run's command line that count for one test, or for all, and what they leave out."""
    config = run.config
    for dest, words in pytest_private.words_of(config, run.arguments):
        chooses = dest in NOT_FOR_CHILDREN or dest in _OF_THE_RUN or dest.startswith("cov") or not dest
        if not (dest in _REPEATED or (place and chooses)) and all(map(_can_be_passed, words)):
            yield from words
    if place and not pytest_private.finds_setup(config, place.partition("::")[0]):
        yield f"--rootdir={_relative(run, config.rootpath)}"
        yield "-c"
        yield _relative(run, config.inipath) if config.inipath is not None else os.devnull
    emulation = run.emulation
    if emulation is not None and run_driver.inherited(config):
        yield f"--cudalink-driver={emulation.version}"
        for name, value, default in (
            ("device", str(emulation.devices), DEFAULT_ARCHITECTURE),
            ("faults", emulation.faults, ""),
            ("checks", f"lifetimes={run.settings.lifetime.value}", "lifetimes=fail"),
        ):
            if value != default:
                yield f"--cudalink-{name}={value}"


def _variables(run: Run) -> Iterator[str]:
    """Yield the assignments that stand before the command; a session of nox or tox makes its own."""
    known = {**os.environ, **run.withheld}
    given = {setting.source for _, setting in run.settings.items()}
    ours = [
        option.env
        for option in OPTIONS
        if f"environment {option.env}" in given and option.ini not in _OF_THE_RUN | _REPEATED
    ]
    for name in (*_OF_PYTEST, *(ours if not _session(run) else ())):
        if (value := known.get(name)) and _can_be_passed(value):
            yield f"{name}={quote(value)}"


def _session(run: Run) -> list[str]:
    """Return the command of the session of nox or tox that the run is; empty if it is not one."""
    cell = os.environ.get("CUDALINK_CELL")
    folder = run.config.invocation_params.dir
    if cell and os.environ.get("NOX_CURRENT_SESSION") == cell and (folder / "noxfile.py").is_file():
        return ["nox", "-s", cell, "--"]
    if cell and os.environ.get("TOX_ENV_NAME") == cell:
        return ["tox", "-e", cell, "--"]
    return []


def _program(run: Run) -> list[str]:
    """Return the words that started pytest, as short as the user's shell finds them."""
    if session := _session(run):
        return session
    script, options = Path(run.start.argv[0]), interpreter_options(run.start.orig_argv)
    python = [_short("python", Path(sys.executable)), *options]
    if script.name not in ("pytest", "py.test"):
        return [*python, "-m", "pytest"]
    return [*python, str(script)] if options else [_short(script.name, script)]


def _short(name: str, path: Path) -> str:
    """Return the name of a program where the shell finds this one by it, else its path."""
    found = shutil.which(name)
    same = found is not None and os.path.realpath(Path(found).parent) == os.path.realpath(path.parent)
    return name if same else str(path)


def _argument(run: Run, place: str) -> str:
    """Return the argument of pytest that names a test, or the nearest thing that an argument can name."""
    file, separator, names = place.partition("::")
    path = _relative(run, Path(file))
    if "[" in path:  # pytest reads parameters from there on
        while "[" in path:
            path = str(Path(path).parent)
        return path
    while separator and not _can_be_passed(names):
        names, separator, _ = names.rpartition("[" if "[" in names else "::")
    return f"{path}::{names}" if separator else path


def _relative(run: Run, path: Path) -> str:
    """Return a path as it is called from the folder of the run; it begins with no sign that pytest takes otherwise."""
    found = os.path.relpath(path, run.config.invocation_params.dir)
    return f"./{found}" if found.startswith(("-", "@")) else found


def _can_be_passed(word: str) -> bool:
    try:
        quote(word)
    except ValueError:
        return False
    return True
