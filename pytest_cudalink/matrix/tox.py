"""The matrix for tox: a plugin that defines an environment for each cell of ``matrices/cells.toml``.

``tox -e ctk-13.0`` runs one, ``tox -m skew`` those with a tag, ``tox p`` all in parallel. The project's tox
configuration of an environment takes precedence over the cell.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from tox.config.loader.api import ConfigLoadArgs
from tox.config.loader.memory import MemoryLoader
from tox.config.types import Command, EnvList
from tox.plugin import impl
from tox.report import HandledError
from tox.tox_env.errors import Fail
from tox.tox_env.python.api import Python
from tox.tox_env.python.pip.req_file import PythonDeps

from .. import toolchains
from ..base.process_end import ending
from . import runner
from .cells import Cell
from .reading import CellsError, load_cells

if TYPE_CHECKING:
    from tox.config.loader.api import Loader
    from tox.config.sets import ConfigSet, EnvConfigSet
    from tox.execute.api import Outcome
    from tox.session.state import State
    from tox.tox_env.api import ToxEnv

_LOG = logging.getLogger(__name__)
#: How a project runs its tests: for these, the settings that all environments share take precedence over the cell.
_SHARED_FIRST = ("commands", "package", "extras", "dependency_groups", "pass_env")
_SET_ENV = frozenset({"set_env", "setenv"})


class _Project:
    """The project's root; tox reports it only after it asks for the environments' names, which are therefore lazy."""

    root: Path | None = None
    #: The cells whose versions this process has chosen; tox installs into an environment several times.
    resolved: ClassVar[set[str]] = set()
    #: The cells whose commands have begun.
    began: ClassVar[set[str]] = set()


def _cell_of(tox_env: ToxEnv) -> Cell | None:
    return next((cell for cell in _cells() if cell.name == tox_env.name), None)


def _cells() -> tuple[Cell, ...]:
    return _read(runner.cells_file(_Project.root or Path.cwd()))


@cache
def _read(file: Path) -> tuple[Cell, ...]:
    """Return the cells of a file; cached, because tox asks for every environment."""
    if not file.is_file():
        _LOG.debug("cudalink: no environments, because there is no %s", file)
        return ()
    try:
        return tuple(load_cells(file))
    except CellsError as error:
        raise HandledError(str(error)) from error


@impl
def tox_extend_envs() -> Iterable[str]:
    """Yield an environment for each cell; lazily, because tox knows the project's root only when it reads the names."""
    return (cell.name for _ in (None,) for cell in _cells())


@impl
def tox_add_core_config(core_conf: ConfigSet, state: State) -> None:
    """Fill the environments, before tox reads their settings."""
    root = _Project.root = core_conf["tox_root"]
    before: str | None = None
    for cell in _cells():
        settings = _settings(cell, root, state.conf.pos_args(None))
        if cell.gpu:  # one by one, also under `tox p`
            if before is not None:
                settings["depends"] = EnvList([before])
            before = cell.name
        ours = MemoryLoader(**settings)
        state.conf.memory_seed_loaders[cell.name].append(ours)
        theirs = [loader for loader in state.conf.get_env(cell.name).loaders if loader is not ours]
        for loader in theirs:
            _give_way(ours, loader, cell)


@impl
def tox_add_env_config(env_conf: EnvConfigSet, state: State) -> None:
    """Add to the settings that all environments share; tox can read them only here, where it knows the environment."""
    cell = next((cell for cell in _cells() if cell.name == env_conf.name), None)
    if cell is None:
        return
    root: Path = state.conf.core["tox_root"]
    own = any(_is_own(loader, cell) and _SET_ENV & loader.found_keys() for loader in env_conf.loaders)
    env_conf["set_env"].update(runner.environment(cell, root), override=not own)
    ours = next(loader for loader in env_conf.loaders if isinstance(loader, MemoryLoader))
    shared = next((loader for loader in env_conf.loaders if loader is not ours and "deps" in loader), None)
    if shared is not None and not any(_is_own(loader, cell) and "deps" in loader for loader in env_conf.loaders):
        read = partial(PythonDeps.factory, root)
        deps = shared.load("deps", PythonDeps, read, state.conf, ConfigLoadArgs([], env_conf.name, cell.name))
        ours.raw["deps"] = [*deps.lines(), *_packages(cell, root)]


def _packages(cell: Cell, root: Path) -> list[str]:
    plugin = runner.plugin_requirement(root) if cell.runs_pytest else []
    # a bare cell has its constraints from the environment, because tox gives those of deps to no package
    chosen = [] if cell.is_bare else [" ".join(runner.constraints(cell, root))]
    return [*plugin, *cell.packages, *filter(None, chosen)]


def _settings(cell: Cell, root: Path, arguments: Sequence[str] | None) -> dict[str, object]:
    """Return a cell as tox settings; `arguments` are the arguments after ``--``, which go to pytest."""
    install = cell.values.install
    settings: dict[str, object] = {
        "description": cell.description,
        "labels": list(cell.tags),
        "deps": _packages(cell, root),
        # the caches of the package manager and of toolchains
        "pass_env": ["CUDALINK_*", "UV_*", "PIP_*", "XDG_CACHE_HOME", "HOME", "CUDA_VISIBLE_DEVICES", "GITHUB_*"],
        "package": {"editable": "editable", "wheel": "wheel", "none": "skip"}[install],
        "commands": [Command(runner.command(cell, arguments or (), root))],
        "extras": list(cell.values.extras),
        "dependency_groups": list(cell.values.groups),
    }
    if not cell.runs_pytest:
        settings["allowlist_externals"] = [sys.executable]
    if cell.python:
        settings["base_python"] = [f"python{cell.python}"]
    return settings


def _is_own(loader: Loader[object], cell: Cell) -> bool:
    """Return whether a loader has the settings of this environment alone."""
    return loader.section.name == cell.name


def _give_way(ours: MemoryLoader, theirs: Loader[object], cell: Cell) -> None:
    """Remove the settings that the user's configuration has."""
    for key in theirs.found_keys():
        if (_is_own(theirs, cell) or key in _SHARED_FIRST) and ours.raw.pop(key, None) is not None:
            _LOG.debug("cudalink: %s of %s is the project's own, from %s", key, cell.name, theirs.section.key)


@impl
def tox_on_install(tox_env: ToxEnv) -> None:
    """Choose the versions of a cell before anything is installed into its environment."""
    cell = _cell_of(tox_env)
    if cell is None or cell.name in _Project.resolved:
        return
    _Project.resolved.add(cell.name)
    try:
        runner.choose_versions(cell, tox_env.core["tox_root"], _LOG.warning)
    except (CellsError, OSError) as error:
        raise Fail(str(error)) from error


@impl
def tox_before_run_commands(tox_env: ToxEnv) -> None:
    """Install the toolchains of the cell."""
    if (cell := _cell_of(tox_env)) is None:
        return
    _Project.began.add(cell.name)
    runner.begin(cell, tox_env.core["tox_root"])
    try:
        runner.prepare(cell, tox_env.core["tox_root"], _LOG.warning)
    except (toolchains.ToolchainError, OSError) as error:
        raise Fail(str(error)) from error


@impl
def tox_after_run_commands(tox_env: ToxEnv, outcomes: list[Outcome]) -> None:
    """Add to the record of a cell how its pytest ended; fail the environment of one that exited with 0 in a test."""
    cell = _cell_of(tox_env)
    of_pytest = [outcome for outcome in outcomes if any("pytest" in word for word in outcome.request.cmd[:3])]
    if cell is None or not outcomes:
        return
    several, root = of_pytest or outcomes, tox_env.core["tox_root"]
    # of several, the first that failed: tox may be set to go on
    last = next((outcome for outcome in several if outcome.exit_code), several[-1])
    if last.exit_code is None:
        return
    if not of_pytest:  # the project's own commands
        runner.note(cell, root, f"its commands {ending(last.exit_code)}")
    elif words := runner.conclude(cell, root, last.exit_code, f"{last.out}\n{last.err}"):
        raise Fail(words)


@impl
def tox_env_teardown(tox_env: ToxEnv) -> None:
    """Note that a cell could not be installed, and how to name another build of the plugin where that is the reason.

    tox ends an environment that cannot be installed without asking its plugins; this is the next that it asks them.
    """
    cell, failed = _cell_of(tox_env), isinstance(sys.exception(), SystemExit)
    if cell is None or cell.name in _Project.began:
        return
    root = tox_env.core["tox_root"]
    if failed:
        runner.begin(cell, root)
    if isinstance(tox_env, Python):
        packages = tox_env.env_site_package_dir()
        lacks = packages.is_dir() and not any(packages.glob("pytest_cudalink-*.dist-info"))
        if lacks and (words := runner.plugin_missing(cell, root)):
            _LOG.warning("%s", words)
            runner.note(cell, root, words)
    if failed:
        runner.note(cell, root, f"its environment could not be made; `tox -e {cell.name}` shows why")
