"""Putting libraries into this process before anything can open its own: the only module that does so.

The loader answers a later ``dlopen("libcuda.so.1")`` with whatever is loaded under that SONAME, also when it was opened
by its path and locally (measured with glibc 2.36). Child processes find the same libraries by the environment.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from .. import probes
from ..emulator import (
    MMAP_THRESHOLD,
    PERTURB_BYTE,
    TRIM_THRESHOLD,
    Emulation,
    control,
    from_environment,
    library_folder,
    prepended,
)
from .maps import mapped_files

__all__ = [
    "LoadedTooLateError",
    "absent_driver",
    "driver",
    "driver_exists",
    "emulate_driver",
    "emulated",
    "loaded_file",
    "nvjitlink",
]

_DRIVER: Final = "libcuda.so.1"
#: What an emulated or absent driver consists of, in the order in which it is loaded.
_DRIVER_LIBRARIES: Final = (_DRIVER, "libcuda.so", "libnvidia-ml.so.1")
_M_PERTURB, _M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -6, -3, -1  # parameters of mallopt (malloc.h)

_kept: list[ctypes.CDLL] = []
_emulation: Emulation | None = None
_driver: control.Driver | None = None


class LoadedTooLateError(RuntimeError):
    """Another library of that name is in this process already; says which, and what to do."""


def loaded_file(name: str) -> str | None:
    """The file of a library that this process has, by the beginning of its file name; None if it has none.

    ``libcuda.so.1`` is a link to ``libcuda.so.580.65.06``, which is the name that shows in the process's map.
    """
    stem = name.partition(".so")[0] + ".so"
    return next((path for path in mapped_files() if path.rpartition("/")[2].startswith(stem)), None)


def emulated() -> Emulation | None:
    """What the emulated driver of this process was made from, however it came here; None if there is none."""
    global _emulation  # noqa: PLW0603 (the owner of this piece of process state)
    if _emulation is None and driver() is not None:
        _emulation = from_environment(os.environ)
    return _emulation


def driver() -> control.Driver | None:
    """The control of the emulated driver, however it came into this process; None if there is none."""
    global _driver  # noqa: PLW0603 (the owner of this piece of process state)
    if _driver is None:
        from ..probes import libcuda

        if loaded_file(_DRIVER) is not None or "CUDALINK_EMULATOR_VERSION" in os.environ:
            with suppress(libcuda.DriverNotFoundError):
                _driver = control.attach(libcuda.library())
    return _driver


def driver_exists() -> bool:
    """Whether a driver can be opened here, real or emulated; asked in a child, so that it is not opened here."""
    program = f"import ctypes, sys; sys.exit(hasattr(ctypes.CDLL({_DRIVER!r}), 'cudalinkAbsentDriver'))"
    done = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, check=False)  # noqa: S603
    return done.returncode == 0


def emulate_driver(emulation: Emulation) -> None:
    """Load an emulated driver into this process, and let child processes find it.

    Raises
    ------
    LoadedTooLateError
        If a libcuda is here already.
    EmulatorError
        If the native libraries were not built.
    """
    global _emulation  # noqa: PLW0603 (the owner of this piece of process state)
    folder = library_folder()
    _refuse_other(folder, f"the emulated driver {emulation.version}")
    os.environ.update(emulation.environment())
    if emulation.lifetime != "off":
        _mark_freed_memory()
    _kept.extend(ctypes.CDLL(str(folder / name)) for name in _DRIVER_LIBRARIES)
    probes.cache_clear()
    present = driver()
    if present is None or present.version != emulation.version:
        msg = (
            f"the emulated driver {emulation.version} cannot be loaded: this process has one of CUDA "
            f"{present.version if present else '(unknown)'} already, from its environment; start it without "
            "`cudalink driver run`, or ask for the same version"
        )
        raise LoadedTooLateError(msg)
    _emulation = emulation


def absent_driver() -> None:
    """Let this process and its children see no driver and no NVML, on a machine that has them too.

    Raises
    ------
    LoadedTooLateError
        If a libcuda is here already.
    EmulatorError
        If the native libraries were not built.
    """
    folder = library_folder(absent=True)
    _refuse_other(folder, "--cudalink-driver=absent")
    os.environ["LD_LIBRARY_PATH"] = prepended(folder)
    _kept.extend(ctypes.CDLL(str(folder / name)) for name in _DRIVER_LIBRARIES)
    probes.cache_clear()


def nvjitlink(path: Path) -> None:
    """Load a real nvJitLink under its SONAME, so that whoever opens that name later gets this one.

    Raises
    ------
    LoadedTooLateError
        If another one is here already.
    """
    present = loaded_file("libnvJitLink.so")
    if present is not None and not Path(present).samefile(path):
        msg = (
            f"{path} cannot be the nvJitLink of this process: {present} is in it already. Load the plugin early, with "
            "`pytest -p cudalink` or by its entry point and not from a conftest, and import nothing of CUDA before"
        )
        raise LoadedTooLateError(msg)
    _kept.append(ctypes.CDLL(str(path)))
    probes.cache_clear()


def _refuse_other(folder: Path, what: str) -> None:
    present = loaded_file(_DRIVER)
    if present is not None and Path(present).parent != folder:
        msg = (
            f"{what} cannot be loaded: {present} is in this process already. Load the plugin early, with "
            "`pytest -p cudalink` or by its entry point and not from a conftest, and import nothing of CUDA before"
        )
        raise LoadedTooLateError(msg)


def _mark_freed_memory() -> None:
    """As `emulator.Emulation.environment` does for child processes."""
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_PERTURB, PERTURB_BYTE)
        libc.mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD)
        libc.mallopt(_M_TRIM_THRESHOLD, TRIM_THRESHOLD)
