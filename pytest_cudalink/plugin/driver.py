"""The driver of a run: which one the process gets."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from .run import is_on_emulated_driver
from .settings import OF_EMULATION, OPTIONS, Option, Setting, check

if TYPE_CHECKING:
    from ..emulator import Emulation
    from .settings import Settings

__all__ = ["asked", "inherited", "load"]

_INHERITED: Final = pytest.StashKey[bool]()


def load(config: pytest.Config, settings: Settings) -> None:
    """Give the process the driver that the settings ask for; the environment is restored when the run ends.

    Raises
    ------
    pytest.UsageError
        If it cannot: another libcuda is loaded already, the native libraries are not built, no version is known.
    """
    config.stash[_INHERITED] = settings.driver.value == "auto" and is_on_emulated_driver()
    before = dict(os.environ)
    _apply(settings)
    changed = {name: before.get(name) for name, value in os.environ.items() if before.get(name) != value}
    config.add_cleanup(partial(_restore, changed))


def inherited(config: pytest.Config) -> bool:
    """Whether the run keeps the emulated driver that its process was started on."""
    return config.stash.get(_INHERITED, False)


def _restore(variables: dict[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _apply(settings: Settings) -> None:
    from .. import emulator
    from ..process import preload

    wanted = settings.driver.value
    if wanted in ("real", "auto") and (present := preload.emulated_driver()) is not None:
        if wanted == "auto":
            return
        msg = (
            f"cudalink: --cudalink-driver is {settings.driver}: this process has the emulated driver of CUDA "
            f"{present.version}, from its environment; start it without `cudalink driver run`, or ask for auto"
        )
        raise pytest.UsageError(msg)
    if settings.keeps_driver:
        return
    try:
        if wanted == "absent":
            preload.absent_driver()
            return
        if wanted == "auto":
            if preload.loaded_file("libcuda.so.1") or preload.driver_exists():
                return
            wanted = _toolkit_version() or ""
            if not wanted:
                return  # no toolkit whose version could be taken; what needs a driver is skipped, and says so
        preload.emulate_driver(_emulation(settings, wanted))
    except (emulator.EmulatorError, preload.LoadedTooLateError) as error:
        msg = f"cudalink: --cudalink-driver is {settings.driver}: {error}"
        raise pytest.UsageError(msg) from error


def _toolkit_version() -> str | None:
    """Return the CUDA release of the toolkit's wheels, such as ``"13.0"``: nvJitLink's, else NVRTC's."""
    from .. import probes

    version = probes.nvjitlink_wheel() or probes.wheel_version("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")
    return ".".join(version.split(".")[:2]) if version else None


def _emulation(settings: Settings, version: str) -> Emulation:
    """Return the driver of a version that the settings ask for; an error names the setting that is wrong."""
    from .. import emulator

    choices = asked(settings)
    for option in OPTIONS:
        if option.name in choices:
            check(option, choices[option.name])
    events = choices["events"].value
    try:
        return emulator.emulation_for(
            version,
            arch=choices["arch"].value,
            device=choices["device"].value,
            device_memory=choices["device_memory"].value,
            devices=emulator.number_of_devices(choices["devices"].value),
            lifetime=settings.lifetime.value,
            events=Path(events).absolute() if events else None,
            faults=choices["faults"].value,
        )
    except emulator.EmulatorError as error:
        if error.parameter not in choices:
            raise
        flag = error.parameter.replace("_", "-")
        msg = f"cudalink: --cudalink-{flag} is {choices[error.parameter]}: {error}"
        raise pytest.UsageError(msg) from error


def asked(settings: Settings | None) -> dict[str, Setting]:
    """Return what the emulated driver is asked to be besides its version, by parameter of `emulator.emulation_for`.

    Where the user chose no value, the environment's for the native library counts.

    Parameters
    ----------
    settings : Settings or None
        None for a driver that was there before the run, which ignores them all.
    """
    return {
        option.name: _asked(option, getattr(settings, option.name, Setting(option.default, "default")))
        for option in OPTIONS
        if option.name in OF_EMULATION
    }


def _asked(option: Option, setting: Setting) -> Setting:
    variable = f"CUDALINK_EMULATOR_{option.name.upper()}"
    given = os.environ.get(variable) if setting.source == "default" else None
    return Setting(given, f"environment {variable}") if given else setting
