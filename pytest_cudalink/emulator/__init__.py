"""The emulated driver: a ``libcuda.so.1`` and ``libnvidia-ml.so.1`` of a chosen CUDA version that link for real.

`plan` says what such a driver needs, `Emulation.environment` makes child processes see it,
`pytest_cudalink.process.preload` puts it into this process, and `control` talks to the one that this process has.
Importing
this package loads nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from ..versions import ARCHITECTURES as _KNOWN_ARCHITECTURES
from ..versions import CudaVersion
from ..wheels import NVJITLINK, installed_wheels
from ._tables import table
from .faults import parse, text_of

__all__ = [
    "ARCHITECTURES",
    "LIFETIME_MODES",
    "MMAP_THRESHOLD",
    "PERTURB_BYTE",
    "TRIM_THRESHOLD",
    "Emulation",
    "EmulatorError",
    "from_environment",
    "library_folder",
    "number_of_devices",
    "plan",
    "release_of",
    "supported_versions",
]

_HERE = Path(__file__).parent
#: Architectures without a compiler in CUDA 13; the driver still has one, which is that of 12.9.
_FIRST_ARCH_OF_13: Final = 75
_LAST_OF_12: Final = CudaVersion(12, 9)
#: There are no wheels of nvJitLink 12.7.
_STAND_IN: Final = {CudaVersion(12, 7): CudaVersion(12, 8)}
#: What makes dead memory recognizable (malloc.h): freed memory is overwritten with this byte, and large blocks, such as
#: cuda-core's log buffers of 4 MiB, always go back to the system. A lower threshold costs links a third of their time.
#: The top of the heap stays: given back and fetched again it would be zeros, which is what an empty log looks like.
PERTURB_BYTE: Final = 0xA5
MMAP_THRESHOLD: Final = 3072 * 1024
TRIM_THRESHOLD: Final = 1 << 30
_VARIABLES: Final = ("VERSION", "RELEASE", "ARCH", "DEVICES", "NVJITLINK", "NVJITLINK_OLD", "EVENTS", "FAULTS")
LIFETIME_MODES: Final = ("off", "report", "fail", "punish")


class EmulatorError(RuntimeError):
    """An emulated driver cannot be had as asked for; says what to do.

    Attributes
    ----------
    parameter : str
        Of `plan`, whose value is refused; empty where it is none of them.
    """

    def __init__(self, message: str, parameter: str = "") -> None:
        super().__init__(message)
        self.parameter = parameter


@cache
def supported_versions() -> tuple[CudaVersion, ...]:
    """Every CUDA version that a driver can be emulated of."""
    return tuple(CudaVersion.parse(name) for name in table("releases")["releases"])


#: Devices that the emulated driver can show: ``data/devices.toml``.
ARCHITECTURES: Final = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")


def release_of(version: CudaVersion) -> str:
    """The driver release that a CUDA version came with, such as ``"580.65.06"`` (``data/releases.toml``)."""
    release: str = table("releases")["releases"][str(version)]
    return release


def library_folder(*, absent: bool = False) -> Path:
    """The folder of the native libraries.

    Parameters
    ----------
    absent : bool
        The folder whose libraries stand for no driver at all.

    Raises
    ------
    EmulatorError
        If they were not built: on Windows, or when the package was copied and not installed.
    """
    folder = _HERE / "lib" / "absent" if absent else _HERE / "lib"
    if not (folder / "libcuda.so.1").is_file():
        msg = (
            f"the emulated driver is not built: {folder / 'libcuda.so.1'} is missing. Install pytest-cudalink with pip "
            "on Linux (from a source tree this needs a C compiler or the ziglang wheel)"
        )
        raise EmulatorError(msg)
    return folder


@dataclass(frozen=True)
class Emulation:
    """One emulated driver, with all that it is made from.

    Attributes
    ----------
    version : CudaVersion
        What cuDriverGetVersion answers.
    release : str
        What NVML answers, such as ``"580.65.06"``.
    arch : str
        Of its devices, such as ``"sm_90"``.
    devices : int
        How many; 0 makes cuInit answer CUDA_ERROR_NO_DEVICE.
    nvjitlink : Path or None
        The library that links; None when it was not found, and then every add answers 221 with the command to get it.
    nvjitlink_old : Path or None
        NvJitLink 12.9, for architectures that CUDA 13's own no longer knows.
    lifetime : str
        ``"off"``, ``"report"``, ``"fail"`` or ``"punish"`` (which writes through dead pointers).
    events : Path or None
        File that every event is appended to, one JSON object per line.
    faults : str
        ``FUNCTION:NTH=CODE[@MILLISECONDS]`` and ``lost=CODE``, separated by semicolons.
    """

    version: CudaVersion
    release: str
    arch: str = "sm_90"
    devices: int = 1
    nvjitlink: Path | None = None
    nvjitlink_old: Path | None = None
    lifetime: str = "report"
    events: Path | None = None
    faults: str = ""
    needs: CudaVersion = field(default=CudaVersion(0, 0), compare=False)

    @property
    def toolchains(self) -> tuple[CudaVersion, ...]:
        """Releases whose nvJitLink it links with, its own and, for an architecture that CUDA 13 dropped, 12.9."""
        old = self.version.major > _LAST_OF_12.major and int(self.arch.removeprefix("sm_")) < _FIRST_ARCH_OF_13
        return (self.needs, _LAST_OF_12) if old else (self.needs,)

    @property
    def missing(self) -> str:
        """What is not there, with the command that brings it; empty when all is."""
        if self.nvjitlink is None:
            return f"nvJitLink {self.needs} was not found: run cudalink toolchain add {self.needs}"
        if _LAST_OF_12 in self.toolchains and self.nvjitlink_old is None and self.needs != _LAST_OF_12:
            return f"nvJitLink {_LAST_OF_12} (for {self.arch}) was not found: run cudalink toolchain add {_LAST_OF_12}"
        return ""

    def variables(self) -> dict[str, str]:
        """The environment variables that the native libraries read."""
        return {
            "CUDALINK_EMULATOR_VERSION": str(self.version),
            "CUDALINK_EMULATOR_RELEASE": self.release,
            "CUDALINK_EMULATOR_ARCH": self.arch,
            "CUDALINK_EMULATOR_DEVICES": str(self.devices),
            "CUDALINK_EMULATOR_NVJITLINK": str(self.nvjitlink or ""),
            "CUDALINK_EMULATOR_NVJITLINK_OLD": str(self.nvjitlink_old or ""),
            "CUDALINK_EMULATOR_EVENTS": str(self.events or ""),
            "CUDALINK_EMULATOR_FAULTS": self.faults,
            "CUDALINK_LIFETIME": self.lifetime,
        }

    def environment(self) -> dict[str, str]:
        """`variables`, and the search path by which a child process finds this driver before any other."""
        malloc = {
            "MALLOC_PERTURB_": str(PERTURB_BYTE),
            "MALLOC_MMAP_THRESHOLD_": str(MMAP_THRESHOLD),
            "MALLOC_TRIM_THRESHOLD_": str(TRIM_THRESHOLD),
        }
        return {
            **self.variables(),
            **(malloc if self.lifetime != "off" else {}),
            "LD_LIBRARY_PATH": prepended(library_folder()),
        }


def prepended(folder: Path) -> str:
    """A library search path with a folder at its front, and there only."""
    rest = [part for part in os.environ.get("LD_LIBRARY_PATH", "").split(":") if part and part != str(folder)]
    return ":".join([str(folder), *rest])


def number_of_devices(text: str) -> int:
    """Read how many devices are asked for.

    Raises
    ------
    EmulatorError
        If that is no number from 0 to 64.
    """
    if not (text.isdecimal() and int(text) <= 64):
        msg = f"{text} devices cannot be emulated; 0 to 64 can"
        raise EmulatorError(msg, "devices")
    return int(text)


def plan(
    version: str | CudaVersion,
    *,
    release: str | None = None,
    arch: str = "sm_90",
    devices: int = 1,
    lifetime: str = "report",
    events: Path | None = None,
    faults: str = "",
) -> Emulation:
    """Find what a driver of this version needs.

    Parameters
    ----------
    version : str or CudaVersion
        ``"12.0"`` to ``"13.5"``.
    release : str, optional
        Driver release for NVML; default that of the version.
    arch : str
        One of `ARCHITECTURES`.
    devices : int
        Number of devices, 0 to 64.
    lifetime, events, faults
        As in `Emulation`.

    Raises
    ------
    EmulatorError
        If a value is none of those, naming what is known; if nothing can be appended to `events`, with the reason.
    """
    wanted = version
    if isinstance(version, str):
        try:
            wanted = CudaVersion.parse(version)
        except ValueError as error:
            raise EmulatorError(str(error), "version") from error
    if wanted not in supported_versions():
        known = supported_versions()
        msg = f"a driver of CUDA {wanted} cannot be emulated; {known[0]} to {known[-1]} can"
        raise EmulatorError(msg, "version")
    assert isinstance(wanted, CudaVersion)
    if arch not in ARCHITECTURES:
        msg = f"there is no emulated device of {arch!r}; known: {', '.join(ARCHITECTURES)}"
        raise EmulatorError(msg, "arch")
    number_of_devices(str(devices))
    if lifetime not in LIFETIME_MODES:
        msg = f"lifetime mode {lifetime!r} is unknown; known: {', '.join(LIFETIME_MODES)}"
        raise EmulatorError(msg, "lifetime")
    since = next(one.since for one in _KNOWN_ARCHITECTURES if arch == f"sm_{one.number}")
    if wanted < since:
        msg = f"a driver of CUDA {wanted} has no device of {arch}, which needs CUDA {since} or newer"
        raise EmulatorError(msg, "arch")
    try:
        faults = text_of(parse(faults, wanted))
    except ValueError as error:
        raise EmulatorError(str(error), "faults") from error
    needs = _STAND_IN.get(wanted, wanted)
    return Emulation(
        wanted,
        _release(release, wanted),
        arch,
        devices,
        _nvjitlink(needs),
        _nvjitlink(_LAST_OF_12) if wanted.major > _LAST_OF_12.major else None,
        lifetime,
        None if events is None else _appendable(events),
        faults,
        needs,
    )


def _release(release: str | None, version: CudaVersion) -> str:
    if release is not None and not re.fullmatch(r"\d+(\.\d+)+", release, re.ASCII):
        msg = f"{release!r} is not a driver release; write one such as {release_of(version)!r}"
        raise EmulatorError(msg, "release")
    return release or release_of(version)


def _appendable(events: Path) -> Path:
    """The file of events in full, as children may run elsewhere."""
    events = events.absolute()
    try:
        events.open("a").close()
    except OSError as error:
        msg = f"events cannot be appended to {events}: {error.strerror}; name a file that can be written to"
        raise EmulatorError(msg, "events") from error
    return events


def from_environment(environment: Mapping[str, str]) -> Emulation | None:
    """The emulated driver that `Emulation.environment` put into an environment; None if there is none in it."""
    value = {name: environment.get(f"CUDALINK_EMULATOR_{name}", "") for name in _VARIABLES}
    if not value["VERSION"]:
        return None
    version = CudaVersion.parse(value["VERSION"])
    paths = [Path(value[name]) if value[name] else None for name in ("NVJITLINK", "NVJITLINK_OLD", "EVENTS")]
    return Emulation(
        version,
        value["RELEASE"] or release_of(version),
        value["ARCH"] or "sm_90",
        int(value["DEVICES"] or 1),
        paths[0],
        paths[1],
        environment.get("CUDALINK_LIFETIME") or "report",
        paths[2],
        value["FAULTS"],
        _STAND_IN.get(version, version),
    )


def _nvjitlink(version: CudaVersion) -> Path | None:
    """The library of exactly this version: the copy of the toolchain cache, else that of the environment's wheels."""
    from .. import toolchains

    cached = toolchains.emulator_library_path(version)
    return cached or _nvjitlink_of_environment(version)


def _nvjitlink_of_environment(version: CudaVersion) -> Path | None:
    for wheel in installed_wheels(*NVJITLINK):
        if CudaVersion.parse(wheel.version) != version:
            continue
        for file in wheel.files or ():
            if file.name.startswith("libnvJitLink.so."):
                path = Path(str(wheel.locate_file(file))).resolve()
                if path.is_file():
                    return path
    return None
