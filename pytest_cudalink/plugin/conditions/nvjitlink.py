"""The nvJitLink of one run: that of the environment, none, or the real one of another release."""

import mmap
import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from ... import probes, toolchains
from ...base import elf
from ...emulator import preload
from ...environment.wheels import files_of, installed_wheel
from ...loader.imports import ImportWatch
from ...loader.loads import loaded_file
from ..settings import Settings

_PATHFINDER: Final = "cuda.pathfinder._dynamic_libs.load_nvidia_dynamic_lib"
_ALIAS: Final = re.compile(rb"__nvJitLink[A-Za-z]+_(\d+)_(\d+)\0")
_CUSPARSE: Final = ("nvidia-cusparse-cu12", "nvidia-cusparse")
_HIDDEN_BY: Final = "--cudalink-nvjitlink=absent"


def apply(settings: Settings) -> Callable[[], None] | None:
    """Give the process the nvJitLink that the settings ask for, which is not "auto", before it can open another.

    Returns what undoes it; None where nothing can be undone.
    Raises pytest.UsageError if it cannot: the release is not in the toolchain cache, another copy is loaded already, or
    a library of the environment could not use it.
    """
    wanted = settings.nvjitlink.value
    try:
        if wanted == "absent":
            return _hide()
        path = toolchains.library_path(wanted)
        _load(wanted, path)
    except (toolchains.ToolchainError, preload.LoadedTooLateError, probes.DamagedLibraryError) as error:
        raise pytest.UsageError(f"cudalink: --cudalink-nvjitlink is {settings.nvjitlink}: {error}") from error
    return None


def _load(wanted: str, path: Path) -> None:
    """Load a copy, unless cuSPARSE cannot use it; raise an error unless cuda.pathfinder finds it, as libraries will."""
    if reason := unusable_by_cusparse(path):
        raise toolchains.ToolchainError(reason)
    preload.preload_nvjitlink(path)
    present = probes.nvjitlink()
    if str(present.found) != wanted:
        raise preload.LoadedTooLateError(
            f"{path} was loaded, but cuda.pathfinder still finds {present.path} (nvJitLink {present.found}): the "
            "libraries of this environment want another major version"
        )


def _hide() -> Callable[[], None]:
    """Make cuda.pathfinder, which every library asks for nvJitLink, find none."""
    present = loaded_file("libnvJitLink.so")
    if present is not None and not probes.hiders:
        msg = f"{present} is in this process already; load the plugin early, and import nothing of CUDA before"
        raise preload.LoadedTooLateError(msg)
    probes.hiders.append(_HIDDEN_BY)  # a pytest inside a pytest may be the second
    imports = ImportWatch(_wrap_pathfinder)
    imports.watch([_PATHFINDER])
    probes.cache_clear()

    def show() -> None:
        probes.hiders.remove(_HIDDEN_BY)
        imports.stop()
        probes.cache_clear()

    return show


def _wrap_pathfinder(module: ModuleType) -> None:
    from cuda.pathfinder import DynamicLibNotFoundError

    from ...targets.steering import replace_everywhere

    original: Any = module.load_nvidia_dynamic_lib

    @wraps(original)
    def load(name: str) -> Any:
        if probes.hiders and name == "nvJitLink":
            error = DynamicLibNotFoundError(f'Failure finding "libnvJitLink.so": {_HIDDEN_BY} hides it')
            error.hidden_by = _HIDDEN_BY  # for `probes`: installing one would not help
            raise error
        return original(name)

    module.load_nvidia_dynamic_lib = load  # type: ignore[attr-defined]
    replace_everywhere(original, load)


def aliases(library: Path) -> set[tuple[int, int]]:
    """Return the releases whose names (``__nvJitLinkCreate_12_9``) a library defines or needs, without loading it.

    Raises DamagedLibraryError if its file is cut off or damaged.
    """
    elf.check(library, "install its wheel, or add its toolchain, again")
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return {(int(match[1]), int(match[2])) for match in _ALIAS.finditer(content)}


def unusable_by_cusparse(path: Path) -> str:
    """Return why the cuSPARSE of this environment cannot use an nvJitLink; empty if it can, or is not installed.

    cuSPARSE asks for names of the release that it was built with; with an older libnvJitLink of the same major in the
    process it cannot be loaded (``undefined symbol: __nvJitLinkComplete_12_9``).
    """
    offered = aliases(path)
    for name in _CUSPARSE:
        library = next(files_of(installed_wheel(name), r"libcusparse\.so\.\d+"), None)
        if library is None:
            continue
        needed = {release for release in aliases(library) if release[0] in {major for major, _ in offered}}
        if missing := needed - offered:
            newest = "{}.{}".format(*max(missing))
            return (
                f"{path} offers names up to {'{}.{}'.format(*max(offered))}, but {name} "
                f"({library}) needs those of {newest} and cannot be loaded together with it; use nvJitLink {newest} or "
                f"newer, or an environment without {name}"
            )
    return ""
