"""The tox face of the matrix: a plugin that defines an environment for each cell of ``matrices/cells.toml``.

``tox -e ctk-13.0`` runs one, ``tox -m skew`` those with a tag, ``tox p`` all in parallel. What the project's own tox
configuration says of an environment counts for more than the cell.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tox.config.loader.memory import MemoryLoader
from tox.config.types import Command, EnvList
from tox.plugin import impl
from tox.report import HandledError

from . import plan
from .cells import Cell
from .reading import CellsError, load_cells

if TYPE_CHECKING:
    from tox.config.loader.api import Loader
    from tox.config.sets import ConfigSet
    from tox.session.state import State
    from tox.tox_env.api import ToxEnv

__all__ = ["tox_add_core_config", "tox_before_run_commands", "tox_extend_envs"]

_LOG = logging.getLogger(__name__)
#: How a project runs its tests: here the settings that all its environments share count for more than the cell.
_SHARED_FIRST = ("commands", "package", "extras", "dependency_groups", "pass_env")


def _cells() -> list[Cell]:
    file = plan.cells_file(Path.cwd())
    if not file.is_file():
        _LOG.debug("cudalink: no environments, because there is no %s", file)
        return []
    try:
        return load_cells(file)
    except CellsError as error:
        raise HandledError(str(error)) from error


@impl
def tox_extend_envs() -> Iterable[str]:
    """One environment for each cell."""
    return [cell.name for cell in _cells()]


@impl
def tox_add_core_config(core_conf: ConfigSet, state: State) -> None:
    """Fill the environments, before tox reads their settings."""
    del core_conf
    before: str | None = None
    for cell in _cells():
        settings = _settings(cell, Path.cwd(), state.conf.pos_args(None))
        if cell.gpu:  # one after the other, also under `tox p`
            if before is not None:
                settings["depends"] = EnvList([before])
            before = cell.name
        ours = MemoryLoader(**settings)
        state.conf.memory_seed_loaders[cell.name].append(ours)
        theirs = [loader for loader in state.conf.get_env(cell.name).loaders if loader is not ours]
        for loader in theirs:
            _give_way(ours, loader, cell, state)


def _settings(cell: Cell, root: Path, given: Sequence[str] | None) -> dict[str, Any]:
    """A cell in tox's words; `given` are the arguments after ``--``, which go to pytest."""
    install = cell.values["install"]
    settings: dict[str, Any] = {
        "description": cell.description,
        "labels": list(cell.tags),
        "deps": [*plan.plugin_requirement(root), *cell.packages],
        "set_env": cell.environment(root / plan.RECORDS),
        # the caches of the package manager and of toolchains
        "pass_env": ["CUDALINK_*", "UV_*", "PIP_*", "XDG_CACHE_HOME", "HOME", "CUDA_VISIBLE_DEVICES", "GITHUB_*"],
        "package": {"editable": "editable", "wheel": "wheel", "none": "skip"}[install],
        "commands": [Command(["pytest", *(given or cell.values["tests"])])],
    }
    if cell.values["extras"]:
        settings["extras"] = cell.values["extras"]
    if cell.values["groups"]:
        settings["dependency_groups"] = cell.values["groups"]
    if cell.python:
        settings["base_python"] = [f"python{cell.python}"]
    return settings


def _give_way(ours: MemoryLoader, theirs: Loader[Any], cell: Cell, state: State) -> None:
    """Leave out what the user's configuration says itself, and join what belongs together."""
    own = theirs.section.name == cell.name
    for key in theirs.found_keys():
        if own or key in _SHARED_FIRST:
            if ours.raw.pop(key, None) is not None:
                _LOG.debug("cudalink: %s of %s is the project's own, from %s", key, cell.name, theirs.section.key)
        elif key == "deps" and key in ours.raw:
            ours.raw[key] = [*_lines(theirs.load_raw(key, state.conf, cell.name)), *ours.raw[key]]
        elif key in {"set_env", "setenv"} and "set_env" in ours.raw:
            shared = theirs.load_raw(key, state.conf, cell.name)
            if not isinstance(shared, dict):
                shared = dict(part.split("=", 1) for part in _lines(shared) if "=" in part)
            ours.raw["set_env"] = {**shared, **ours.raw["set_env"]}


def _lines(value: Any) -> list[str]:
    return [line.strip() for line in value.splitlines() if line.strip()] if isinstance(value, str) else list(value)


@impl
def tox_before_run_commands(tox_env: ToxEnv) -> None:
    """Bring the toolchains of the cell."""
    for cell in _cells():
        if cell.name == tox_env.name:
            plan.prepare(cell, Path.cwd())
