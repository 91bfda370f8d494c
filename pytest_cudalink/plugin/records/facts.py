"""The facts of a run: driver, toolkit, GPU and packages, each with its kind and where it was read.

Each fact is read when it is looked up, not before.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from ... import probes
from ...environment.requirements import EnvironmentFact
from ...environment.wheels import installed_wheel, named_toolkits, toolkit_version
from ...loader.loads import loaded_file
from ...probes import elsewhere

if TYPE_CHECKING:
    from ...emulator import Emulation

#: Distributions that have a line in the records, by their name there.
PACKAGES: Final = ("cuda-bindings", "cuda-core", "numba-cuda", "cuda-pathfinder", "cupy-cuda13x", "warp-lang")

_NVRTC: Final = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")


def _installed(*names: str) -> EnvironmentFact:
    for name in names:
        if (wheel := installed_wheel(name)) is not None:
            return EnvironmentFact(wheel.version, source=f"metadata of {name}")
    return EnvironmentFact(None, "absent", f"no {' or '.join(names)} is installed")


def _emulation() -> Emulation | None:
    """The emulated driver of this process."""
    if not elsewhere.may_be_emulated():
        return None  # without the modules that control one
    from ...emulator.preload import emulation

    return emulation()


def device_arch() -> str | None:
    """Architecture of the first device that this process sees, without a call in it; None without a device."""
    emulation = _emulation()
    if emulation is None or "CUDA_VISIBLE_DEVICES" in os.environ:
        return elsewhere.driver(device=True).arch
    return emulation.arch if emulation.devices.number else None


def _driver() -> EnvironmentFact:
    version = probes.driver_version_elsewhere()
    value = None if version is None else str(version)
    if probes.fakes().fakes_driver:
        return EnvironmentFact(value, "faked", "fake_versions")
    if version is None:
        return EnvironmentFact(None, "absent", "libcuda.so.1")
    return EnvironmentFact(value, _kind(), "cuDriverGetVersion")


def _kind() -> Literal["real", "emulated"]:
    return "real" if _emulation() is None else "emulated"


def _driver_release() -> EnvironmentFact:
    """Release of the driver, such as 580.65.06."""
    emulation = _emulation()
    if emulation is not None:
        return EnvironmentFact(emulation.release, "emulated", "the emulated driver")
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            match = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", file.read())
    except OSError:
        match = None
    if match is None:
        return EnvironmentFact(None, "absent", "/proc/driver/nvidia/version")
    return EnvironmentFact(match[1], source="/proc/driver/nvidia/version")


def _nvjitlink() -> EnvironmentFact:
    """Ask the wheel, or another process, unless the library is loaded: tests see that, and guard rails judge it."""
    if not loaded_file("libnvJitLink.so"):
        wheel = probes.unloaded_nvjitlink()
        if wheel is not None:
            return EnvironmentFact(str(wheel.found), source=f"metadata of the wheel with {wheel.path}")
        if not (probes.fakes().fakes_nvjitlink or probes.hiders) and (asked := elsewhere.nvjitlink()) is not None:
            release, file, obstacle = asked
            if obstacle:
                return EnvironmentFact(None, "absent", obstacle)
            return EnvironmentFact(release, source=f"nvJitLinkVersion of {file}")
    try:
        version = probes.nvjitlink_version(warn=False)
    except RuntimeError as error:
        guard_rails = sys.modules.get("pytest_cudalink.guardrails")
        if guard_rails is None or not isinstance(error, guard_rails.CompatibilityCheckError):
            raise
        return EnvironmentFact(None, "absent", f"refused by the guard rails: {error.verdict.what}")
    value = None if version is None else str(version)
    if probes.fakes().fakes_nvjitlink:
        return EnvironmentFact(value, "faked", "fake_versions")
    if value is None:
        return EnvironmentFact(None, "absent", probes.nvjitlink().obstacle or "nvJitLink")
    return EnvironmentFact(value, source=f"nvJitLinkVersion of {probes.nvjitlink().path}")


def _local(component: str) -> EnvironmentFact | None:
    """Return what the toolkit folder that the environment names says of a component; None without such a toolkit."""
    for variable, folder in named_toolkits():
        if version := toolkit_version(folder, component):
            return EnvironmentFact(version, source=f"{folder / 'version.json'} (from {variable})")
    return None


def _installed_or_local(component: str, *names: str) -> EnvironmentFact:
    """Return the release of the first of some wheels that is installed; without them, that of a local toolkit."""
    fact = _installed(*names)
    return fact if fact.value else _local(component) or fact


def _gpu() -> EnvironmentFact:
    arch = device_arch()
    if arch is None:
        return EnvironmentFact(None, "absent", "cuDeviceGet")
    return EnvironmentFact(arch, _kind(), "cuDeviceGetAttribute")


_ASK: Final[dict[str, Callable[[], EnvironmentFact]]] = {
    "ctk": partial(_installed_or_local, "cuda", "cuda-toolkit", *_NVRTC),  # the metapackage, or the compiler
    "driver": _driver,
    "driver_release": _driver_release,
    "nvjitlink": _nvjitlink,
    "nvrtc": partial(_installed_or_local, "cuda_nvrtc", *_NVRTC),
    "gpu": _gpu,
    "arch": _gpu,
    **{name: partial(_installed, name) for name in PACKAGES},
}


class Environment(Mapping[str, EnvironmentFact]):
    """Facts by name, read when they are looked up: the names of the marker and of the records, and `PACKAGES`."""

    def __getitem__(self, name: str) -> EnvironmentFact:
        return _ASK[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(_ASK)

    def __len__(self) -> int:
        return len(_ASK)
