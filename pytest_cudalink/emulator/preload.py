"""Load libraries before any other module opens them: the only module that preloads.

A later ``dlopen("libcuda.so.1")`` returns the library that is loaded under that SONAME, even if that one was opened by
its path and locally (measured with glibc 2.36). Child processes find the same libraries through their environment.
"""

import ctypes
import os
import shlex
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from .. import probes
from ..base import elf, scratch
from ..loader.loads import loaded_file
from ..probes import elsewhere, libcuda
from . import MALLOC, Emulation, control, from_environment, library_folder, prepended

_DRIVER: Final = "libcuda.so.1"
#: Libraries of an emulated or absent driver, in the order in which they are loaded.
_DRIVER_LIBRARIES: Final = (_DRIVER, "libcuda.so", "libnvidia-ml.so.1")
_LOAD_EARLY: Final = (
    "Load the plugin early, with `pytest -p cudalink` or by its entry point and not from a conftest, and import "
    "nothing of CUDA before"
)
#: Libraries that look for the driver once, when this module is imported, and remember that there was none; the module
#: keeps its words in ``driver.initialization_error``.
_LOOKS_ONCE: Final = {"numba.cuda.cudadrv.driver": "numba-cuda"}

_kept: list[ctypes.CDLL] = []
_emulation: Emulation | None = None
_driver: control.DriverControl | None = None


class LoadedTooLateError(RuntimeError):
    """Another library of that name is in this process already, or one was looked for in vain; says what to do."""


def emulation() -> Emulation | None:
    """Settings of the emulated driver that this process or a parent loaded; None without one."""
    global _emulation  # noqa: PLW0603 (the owner of this piece of process state)
    if _emulation is None and emulated_driver() is not None:
        _emulation = from_environment(os.environ)
    return _emulation


def emulated_driver() -> control.DriverControl | None:
    """Control of the emulated driver that this process or a parent loaded; None without one."""
    global _driver  # noqa: PLW0603 (the owner of this piece of process state)
    if _driver is None and elsewhere.may_be_emulated():
        with suppress(libcuda.DriverNotFoundError):
            _driver = control.attach(libcuda.library())
    return _driver


def driver_exists() -> bool:
    """Whether this process could open a driver, real or emulated; another process tries, so that this one does not."""
    return elsewhere.driver().exists


def emulate_driver(emulation: Emulation) -> None:
    """Load an emulated driver into this process and, through the environment, into its children.

    Raises LoadedTooLateError if this process has a libcuda already, or a library in it has found none and will not look
    again.
    Raises EmulatorError if the native libraries were not built.
    """
    global _emulation  # noqa: PLW0603 (the owner of this piece of process state)
    folder = library_folder()
    _refuse_other(folder, f"the emulated driver {emulation.version}")
    if (library := found_none_before()) is not None:
        raise LoadedTooLateError(
            f"the emulated driver {emulation.version} comes too late for {library}: it was imported before, found no "
            "driver and does not look again. pytest 9.2 imports the warning classes that `filterwarnings` and `-W` "
            f"name before it loads plugins. Run `cudalink driver run --version {emulation.version} -- pytest ...`, or "
            f"name no class of {library} there"
        )
    os.environ.update(emulation.environment())
    if emulation.lifetime != "off":
        _mark_freed_memory()
    _kept.extend(ctypes.CDLL(str(folder / name)) for name in _DRIVER_LIBRARIES)
    probes.cache_clear()
    present = emulated_driver()
    if present is None or present.version != emulation.version:
        raise LoadedTooLateError(
            f"the emulated driver {emulation.version} cannot be loaded: this process has one of CUDA "
            f"{present.version if present else '(unknown)'} already, from its environment; start it without "
            "`cudalink driver run`, or request the same version"
        )
    _emulation = emulation


def absent_driver() -> None:
    """Hide the driver and NVML from this process and its children, even if the machine has them.

    A process that would find none stays as it is. In others `dlopen` finds nothing, and objects that are linked with
    the driver get a library that has none of its functions. For children, an empty file ends the search of its loader.

    Raises LoadedTooLateError if this process has a libcuda already.
    Raises EmulatorError if the native libraries were not built.
    """
    if not driver_exists():
        return
    folder = library_folder(absent=True)
    _refuse_other(folder, "--cudalink-driver=absent")
    hidden = scratch.fresh(libcuda.HIDDEN)
    for name in _DRIVER_LIBRARIES:
        (hidden / name).touch()
    os.environ["LD_LIBRARY_PATH"] = prepended(hidden)
    _kept.extend(ctypes.CDLL(str(folder / name)) for name in _DRIVER_LIBRARIES)
    from ..loader.jitlink import jitlink_calls

    jitlink_calls.hide_driver(hidden / "none")
    probes.cache_clear()


def preload_nvjitlink(path: Path) -> None:
    """Load a real nvJitLink under its SONAME, so that every later ``dlopen`` of that name returns this one.

    Raises LoadedTooLateError if this process has another nvJitLink already.
    Raises DamagedLibraryError if the file is cut off or damaged, of which the loader would die.
    """
    elf.check(path, f"remove its toolchain and add it again: rm -r {shlex.quote(str(path.parent.parent))}")
    present = loaded_file("libnvJitLink.so")
    if present is not None and not Path(present).samefile(path):
        msg = f"{path} cannot be the nvJitLink of this process: {present} is in this process already. {_LOAD_EARLY}"
        raise LoadedTooLateError(msg)
    _kept.append(ctypes.CDLL(str(path)))
    probes.cache_clear()


def _refuse_other(folder: Path, library: str) -> None:
    present = loaded_file(_DRIVER)
    if present is not None and Path(present).parent != folder:
        raise LoadedTooLateError(f"{library} cannot be loaded: {present} is in this process already. {_LOAD_EARLY}")


def found_none_before() -> str | None:
    """Return the library of this process that has looked for a driver in vain and does not look again, or None."""
    for name, library in _LOOKS_ONCE.items():
        if getattr(getattr(sys.modules.get(name), "driver", None), "initialization_error", None) is not None:
            return library
    return None


def _mark_freed_memory() -> None:
    """Let malloc mark freed memory, as `emulator.Emulation.environment` does for child processes."""
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        for parameter, value in MALLOC.values():
            libc.mallopt(parameter, value)
