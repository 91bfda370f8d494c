"""The driver of a run: which one the process gets, when, and what to do where it gets none."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from ...base.safe_text import block
from ...compat.settings_table import OF_EMULATION, label
from ..run import is_on_emulated_driver, run_of
from ..settings import Settings, restore
from ..start import warn

if TYPE_CHECKING:
    from ...emulator import Emulation

_INHERITED: Final = pytest.StashKey[bool]()
_FETCHED: Final = pytest.StashKey[list[str]]()
#: The library that had looked for a driver when the markers were known.
_TOO_LATE_FOR: Final = pytest.StashKey[str]()
#: Options with which pytest shows something and runs no test.
_ONLY_SHOW: Final = ("help", "version", "markers", "showfixtures", "show_fixtures_per_test")
#: The plugins of pytest that make tests of files whose names are known here.
_COLLECTORS: Final = frozenset({"python", "doctest"})
#: What a test without a driver needs, as the summary counts it.
A_DRIVER: Final = "a CUDA driver"
#: Facts of the environment that a process without a driver does not have; a marker can require them.
FACTS: Final = frozenset({"driver", "arch", "gpu"})
#: The version that a remedy names where the toolkit's is not known.
_EXAMPLE: Final = "13.0"


def load(config: pytest.Config, settings: Settings) -> None:
    """Give the process the driver that the settings ask for; the environment is restored when the run ends.

    Raises pytest.UsageError if it cannot: another libcuda is loaded already, the native libraries are not built, the
    real driver is asked for and missing, the nvJitLink of an emulated one cannot be fetched.
    """
    config.stash[_INHERITED] = settings.driver.value == "auto" and is_on_emulated_driver()
    with _restored_at_the_end(config):
        _apply(config, settings)


def load_late(config: pytest.Config, settings: Settings) -> bool:
    """Emulate a driver for tests whose marker forces the driver backend, as `load` does for ``--force-backend``.

    Markers are known after collection, when test modules may have imported CUDA. That is early enough for every library
    that looks for the driver when it is first used; it is too late for one that has looked and remembers the answer.

    Returns whether the process has an emulated driver now that it did not have before.
    Raises pytest.UsageError as `load`.
    """
    from ... import emulator
    from ...emulator import preload

    if settings.driver.value != "auto" or preload.emulated_driver() is not None:
        return False
    library = preload.found_none_before()
    if library is not None and not preload.driver_exists():
        config.stash[_TOO_LATE_FOR] = library
        return False
    try:
        emulator.library_folder()
    except emulator.EmulatorError:
        return False  # as on Windows: the tests are skipped, and others run
    with _restored_at_the_end(config):
        _emulate_toolkit(config, settings)
    return preload.emulated_driver() is not None


def may_come_late(settings: Settings) -> bool:
    """Whether `load_late` can still emulate a driver, as far as is known before collection."""
    from ...emulator import preload

    return settings.driver.value == "auto" and not settings.forces_driver and not preload.driver_exists()


def came_too_late(config: pytest.Config) -> bool:
    """Whether no driver could be emulated for the markers, because a library had looked for one before."""
    return _TOO_LATE_FOR in config.stash


def remedy(config: pytest.Config, settings: Settings) -> str:
    """Return what gives a test a driver that has none, as the end of a skip's reason."""
    if settings.driver.value == "absent":
        return f"--cudalink-driver is {settings.driver}, which hides it"
    if library := config.stash.get(_TOO_LATE_FOR, None):
        return (
            f"run with --cudalink-driver={_toolkit_version() or _EXAMPLE} or --force-backend=driver, because {library} "
            "looked for one before the markers were known"
        )
    return f"run with --cudalink-driver={_toolkit_version() or _EXAMPLE}, which emulates one"


def fetched(config: pytest.Config) -> list[str]:
    """Return a sentence on each toolchain that this process fetched for the driver of its run."""
    return config.stash.get(_FETCHED, [])


def inherited(config: pytest.Config) -> bool:
    """Whether the run keeps the emulated driver that its process was started on."""
    return config.stash.get(_INHERITED, False)


@contextmanager
def _restored_at_the_end(config: pytest.Config) -> Iterator[None]:
    """Undo, when the run ends, what the block does to the environment."""
    before = dict(os.environ)
    yield
    changed = {name: before.get(name) for name, value in os.environ.items() if before.get(name) != value}
    run_of(config).start.environment.update((name, os.environ[name]) for name in changed)
    config.add_cleanup(partial(restore, changed))


def _apply(config: pytest.Config, settings: Settings) -> None:
    from ...emulator import preload

    wanted = settings.driver.value
    if wanted in ("real", "auto") and (present := preload.emulated_driver()) is not None:
        if wanted == "auto":
            return
        raise pytest.UsageError(
            f"cudalink: --cudalink-driver is {settings.driver}: this process has the emulated driver of CUDA "
            f"{present.version}, from its environment; start it without `cudalink driver run`, or ask for auto"
        )
    if wanted == "real" and not _only_shows(config):
        _refuse_missing(settings)
    if settings.keeps_driver:
        return
    if wanted == "auto":
        _emulate_toolkit(config, settings)
        return
    with _usage_errors(settings):
        if wanted == "absent":
            preload.absent_driver()
        else:
            preload.emulate_driver(_whole(config, settings, _emulation(settings, wanted)))


@contextmanager
def _usage_errors(settings: Settings) -> Iterator[None]:
    """Turn what keeps the process from its driver into a usage error that names the setting."""
    from ... import emulator
    from ...emulator import preload

    try:
        yield
    except (emulator.EmulatorError, preload.LoadedTooLateError) as error:
        raise pytest.UsageError(block(f"cudalink: --cudalink-driver is {settings.driver}: {error}")) from error


def _only_shows(config: pytest.Config) -> bool:
    """Whether pytest shows its help or the like: that must work on any machine, and fetches nothing."""
    return any(getattr(config.known_args_namespace, name, False) for name in _ONLY_SHOW)


def _may_collect(config: pytest.Config) -> bool:
    """Whether pytest may find a test: a file has the name of one, or a plugin collects files by other names."""
    given = config.known_args_namespace
    collectors = {hook.plugin_name for hook in config.pluginmanager.hook.pytest_collect_file.get_hookimpls()}
    if not collectors <= _COLLECTORS or given.pyargs or given.doctestmodules:
        return True
    names = [*config.getini("python_files"), *(given.doctestglob or ["test*.txt"]), "conftest.py"]
    places = [Path(place) for place in given.file_or_dir]
    if not places and config.invocation_params.dir == config.rootpath:
        places = [path for pattern in config.getini("testpaths") for path in config.rootpath.glob(pattern)]
    skipped = config.getini("norecursedirs")
    for place in places or [config.invocation_params.dir]:
        if not place.is_dir():
            return True
        for folder, folders, files in os.walk(place):
            if any(fnmatch(name, pattern) for name in files for pattern in names):
                return True
            below = [name for name in folders if not any(fnmatch(name, pattern) for pattern in skipped)]
            if any(os.path.islink(os.path.join(folder, name)) for name in below):  # noqa: PTH114, PTH118
                return True
            folders[:] = [name for name in below if not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))]  # noqa: PTH110, PTH118
    return False


def _refuse_missing(settings: Settings) -> None:
    """Refuse a machine without a driver."""
    from ...probes import elsewhere, libcuda

    asked = elsewhere.driver(device=bool(settings.report.value))  # all that the run will ask
    if not asked.exists:
        raise pytest.UsageError(
            f"cudalink: --cudalink-driver is {settings.driver}, and this process finds no driver: the dynamic loader "
            f"was asked for {libcuda.LIBRARY_NAME} and said: {asked.problem}. Install the NVIDIA driver, start the "
            "container with its GPUs (docker run --gpus all), or put the folder of that library into LD_LIBRARY_PATH; "
            f"without a GPU, --cudalink-driver={_toolkit_version() or _EXAMPLE} emulates a driver"
        )


def _emulate_toolkit(config: pytest.Config, settings: Settings) -> None:
    """Emulate a driver of the toolkit's version; not where there is a driver or no toolkit whose version it could take.

    Without one, what needs a driver is skipped, and says so.
    """
    from ...emulator import preload
    from ...loader.loads import loaded_file

    with _usage_errors(settings):
        if loaded_file("libcuda.so.1") or preload.driver_exists():
            return
        version = _toolkit_version()
        if version is not None:
            preload.emulate_driver(_whole(config, settings, _emulation(settings, version)))


def _whole(config: pytest.Config, settings: Settings, emulation: Emulation) -> Emulation:
    """Return the emulation with every nvJitLink that it links with, fetched where the settings allow it."""
    mode = settings.toolchains
    if not emulation.lacks or mode.value == "never":
        return emulation
    # a run that will have no test, as far as that is known before collection, fetches nothing
    if _only_shows(config) or config.known_args_namespace.collectonly or not _may_collect(config):
        return emulation
    from ... import emulator
    from ...toolchains import ToolchainError, provide

    lacking = " and ".join(map(str, emulation.lacks))
    start = f"cudalink: the emulated driver {emulation.version} needs nvJitLink {lacking}"
    if mode.value == "cached":
        raise pytest.UsageError(
            f"{start}, which neither the toolchain cache nor the environment has, and cudalink_toolchains is {mode}; "
            f"run: cudalink toolchain add {' '.join(map(str, emulation.lacks))}"
        )
    try:
        toolchains = provide(emulation.lacks, lambda text: _say(f"cudalink: {text} ..."))
        config.stash.setdefault(_FETCHED, []).extend(toolchains)
    except ToolchainError as error:
        raise pytest.UsageError(
            f"{start}, which is not here and could not be fetched: {error}. With CUDALINK_TOOLCHAINS=never the run "
            "starts without it, and its links fail with 221"
        ) from error
    return emulator.completed(emulation)


def _say(text: str) -> None:
    sys.stderr.write(f"{block(text)}\n")
    sys.stderr.flush()


def _toolkit_version() -> str | None:
    """Return the CUDA release of the toolkit's wheels, such as ``"13.0"``: nvJitLink's, else NVRTC's."""
    from ... import probes

    version = probes.nvjitlink_wheel() or probes.wheel_version("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")
    return ".".join(version.split(".")[:2]) if version else None


def _emulation(settings: Settings, version: str) -> Emulation:
    """Return the driver of a version that the settings ask for; an error names the setting that is wrong."""
    from ... import emulator

    events = settings.events.value
    try:
        return emulator.emulation_for(
            version,
            device="" if settings.device.source == "default" else settings.device.value,
            lifetime=settings.lifetime.value,
            events=Path(events).absolute() if events else None,
            faults=settings.faults.value,
        )
    except emulator.EmulatorError as error:
        if error.parameter not in OF_EMULATION:
            raise
        msg = f"cudalink: {label(error.parameter)} is {getattr(settings, error.parameter)}: {error}"
        raise pytest.UsageError(msg) from error


def warn_of_ignored(config: pytest.Config, options: Sequence[str]) -> None:
    """Warn of options of an emulated driver where this process has none; an error as that of `run.warn`."""
    from ...emulator import preload

    if preload.emulated_driver() is not None:
        return
    text = (
        f"cudalink: ignored, because this run has no emulated driver: {', '.join(options)}; "
        f"--cudalink-driver={_toolkit_version() or _EXAMPLE} emulates one"
    )
    warn(config, text)
