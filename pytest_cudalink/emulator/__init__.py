"""The emulated driver: a ``libcuda.so.1`` and ``libnvidia-ml.so.1`` of a chosen CUDA version that link for real.

`emulation_for` finds what such a driver needs, `Emulation.environment` makes child processes see it,
`pytest_cudalink.emulator.preload` loads it into this process, and `control` talks to the one that is loaded.
Importing this package loads nothing.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from ..base.regular_files import DATA, read_text
from ..base.words import did_you_mean, read_words
from ..compat import names
from ..compat.architectures import ARCHITECTURES, dropped_by
from ..compat.releases import DRIVER_RELEASES, STAND_INS, version_named
from ..environment.wheels import NVJITLINK, files_of, installed_wheels
from ..versions import CudaVersion
from . import worker

_HERE = Path(__file__).parent
#: The driver of CUDA 13 still compiles for architectures that its toolkit dropped, with the compiler of this release.
_LAST_OF_12: Final = max(release for release in DRIVER_RELEASES if release.major == 12)
#: Settings of malloc.h, each with its number there, that make dead memory recognizable: freed memory is overwritten
#: with a byte, and large blocks, such as cuda-core's log buffers of 4 MiB, always go back to the system. A lower
#: threshold costs links a third of their time. The top of the heap stays: given back and fetched again it would be
#: zeros, as an empty log is.
MALLOC: Final = {"PERTURB": (-6, 0xA5), "MMAP_THRESHOLD": (-3, 3072 * 1024), "TRIM_THRESHOLD": (-1, 1 << 30)}


class EmulatorError(RuntimeError):
    """The requested emulated driver cannot be created; the message says what to do.

    `parameter`: the parameter of `emulation_for` whose value is refused; empty if the error has another cause.
    """

    def __init__(self, message: str, parameter: str = "") -> None:
        super().__init__(message)
        self.parameter = parameter


def supported_versions() -> tuple[CudaVersion, ...]:
    """Return every CUDA version whose driver can be emulated, oldest first."""
    return tuple(DRIVER_RELEASES)


def release_of(version: CudaVersion) -> str:
    """Return the driver release that a CUDA version came with, such as ``"580.65.06"``."""
    return DRIVER_RELEASES[version]


def library_folder(*, absent: bool = False) -> Path:
    """Return the folder of the native libraries.

    `absent`: true for the folder whose libraries hide the machine's driver and act as if there were none.
    Raises EmulatorError if they were not built: on Windows, or when the package was copied and not installed.
    """
    folder = _HERE / "lib" / "absent" if absent else _HERE / "lib"
    if not (folder / "libcuda.so.1").is_file():
        raise EmulatorError(
            f"the emulated driver is not built: {folder / 'libcuda.so.1'} is missing. Install pytest-cudalink with pip "
            "on Linux (from a source tree this needs a C compiler or the ziglang wheel)"
        )
    return folder


#: How a driver without a device is written.
NO_DEVICE: Final = "none"
_WORDS: Final = {"": ("DEVICE[:NUMBER]",), "memory": ("SIZE",)}
_NO_RECORDING: Final = (
    "{} shows no driver with a device; expected a file that cudalink driver record -o FILE wrote next to a GPU"
)
#: A file, and how many devices.
_RECORDING: Final = r"(.+\.json)(?::(.*))?"
_UNITS: Final = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


class Devices(NamedTuple):
    """The devices of an emulated driver, which are all equal."""

    arch: str = names.DEFAULT_ARCHITECTURE  # architecture, such as "sm_90"
    model: str = ""  # such as "h100"; empty for the first one of the architecture
    number: int = 1  # 0 for a driver without a device
    memory: int = 0  # bytes of each device; 0 for what the model has, at most half of the machine's memory
    # path of the file of `cudalink driver record` whose first device they are; empty for a device of ours
    recording: str = ""
    profile: str = ""  # that device for the native library: "NAME;MEMORY;ATTRIBUTE=VALUE,...;"

    def __str__(self) -> str:
        number = f":{self.number}" if self.number > 1 else ""
        memory = f",memory={self.memory}B" if self.memory else ""
        return f"{self.recording or self.model or self.arch}{number}{memory}" if self.number else NO_DEVICE


def parse_devices(text: str) -> Devices:
    """Return the devices that a text asks for; what it leaves out is the default.

    Raises ValueError if a word is unknown, or a number or a size out of range; the message says what is expected.
    """
    words = read_words(text, _WORDS)
    file = re.fullmatch(_RECORDING, words.get("", ""))
    if file:
        devices = _recorded(Path(file[1]).absolute())
        return devices._replace(number=_number(file[2]) or devices.number, memory=_bytes(words.get("memory", "")))
    device, _, number = words.get("", "").partition(":")
    if device == NO_DEVICE and not number:
        return Devices(number=0)
    model = device if device in names.EMULATED_DEVICES else ""
    arch = names.EMULATED_DEVICES.get(device, device or names.DEFAULT_ARCHITECTURE)
    if arch not in names.EMULATED_ARCHITECTURES:
        known = (*names.EMULATED_DEVICES, *names.EMULATED_ARCHITECTURES, NO_DEVICE, "FILE.json")
        msg = f"there is no emulated device {device!r}; expected {', '.join(known)}{did_you_mean(device, known)}"
        raise ValueError(msg)
    return Devices(arch, model, _number(number) or 1, _bytes(words.get("memory", "")))


def _number(text: str | None) -> int:
    """Return a number of devices; 0 if none is given."""
    if text and not (re.fullmatch(r"\d{1,4}", text, re.ASCII) and 1 <= int(text) <= names.LIMIT_DEVICES):
        msg = f"the number of devices is {text!r}; expected 1 to {names.LIMIT_DEVICES}, or {NO_DEVICE} for no device"
        raise ValueError(msg)
    return int(text or 0)


def recorded(file: Path) -> dict[str, Any]:
    """Return the content of a file of `cudalink driver record`. Raises ValueError if it is not such a file."""
    try:
        content = json.loads(read_text(file, DATA))
        return {"cuda": str(content["cuda"]), "driver": str(content["driver"]), "devices": list(content["devices"])}
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}; correct the path") from error
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(_NO_RECORDING.format(file)) from error


def _recorded(file: Path) -> Devices:
    """Return the devices of a file of `cudalink driver record`: the first, and as many as are equal to it."""
    several = recorded(file)["devices"]
    try:
        device, arch = several[0], str(several[0]["arch"])
        attributes = ",".join(f"{int(number)}={int(value)}" for number, value in device["attributes"].items())
        name = re.sub(r"[^ -:<-~]", "?", device["name"])
        profile = f"{name};{int(device['memory'])};{attributes};"
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(_NO_RECORDING.format(file)) from error
    if arch not in names.EMULATED_ARCHITECTURES:
        msg = f"{file} is of {arch}, which cannot be emulated; expected {', '.join(names.EMULATED_ARCHITECTURES)}"
        raise ValueError(msg)
    return Devices(arch, number=several.count(device), recording=str(file), profile=profile)


def _bytes(size: str) -> int:
    match = re.fullmatch(r"(\d{1,16}(?:\.\d{1,3})?) ?([KMGT]iB|B|)", size, re.ASCII)
    memory = int(float(match[1]) * _UNITS[match[2]]) if match else 0
    if size and memory < names.LIMIT_LEAST_DEVICE_MEMORY:
        msg = f"the memory of a device is {size!r}; expected a size of at least 16MiB, such as 512MiB or 8GiB"
        raise ValueError(msg)
    return memory


class Emulation(NamedTuple):
    """One emulated driver: its version, its devices, the libraries that it links with."""

    version: CudaVersion  # CUDA version that cuDriverGetVersion answers
    release: str  # driver release that NVML answers, such as "580.65.06"
    devices: Devices = Devices()  # without any, cuInit answers CUDA_ERROR_NO_DEVICE
    # the nvJitLink that links; if it was not found (None), every add answers 221 with the command to get it
    nvjitlink: Path | None = None
    nvjitlink_old: Path | None = None  # NvJitLink 12.9, for architectures that CUDA 13's own nvJitLink no longer knows
    lifetime: str = "report"  # "off", "report", "fail" or "strict" (which writes through dead pointers)
    events: Path | None = None  # file that every event is appended to, one JSON object per line
    faults: str = ""  # `FUNCTION:NTH=CODE[@MILLISECONDS]`, `lost=CODE` and `jit=CODE`, separated by semicolons

    @property
    def arch(self) -> str:
        """Architecture of the devices, such as ``"sm_90"``."""
        return self.devices.arch

    @property
    def needs(self) -> CudaVersion:
        """The release whose nvJitLink it links with: its own, or the one that stands in for it."""
        return STAND_INS.get(self.version, self.version)

    @property
    def toolchains(self) -> tuple[CudaVersion, ...]:
        """Every release whose nvJitLink it links with: `needs`, and 12.9 for an architecture that CUDA 13 dropped."""
        return (self.needs, _LAST_OF_12) if dropped_by(self.version, self.arch) else (self.needs,)

    @property
    def lacks(self) -> tuple[CudaVersion, ...]:
        """Every release of `toolchains` whose nvJitLink was not found."""
        paths = {_LAST_OF_12: self.nvjitlink_old, self.needs: self.nvjitlink}
        return tuple(release for release in self.toolchains if paths[release] is None)

    @property
    def missing(self) -> str:
        """The nvJitLink that was not found, with the command that fetches it; empty if none is missing."""
        if not self.lacks:
            return ""
        release = self.lacks[0]
        purpose = "" if release == self.needs else f" (for {self.arch})"
        return f"nvJitLink {release}{purpose} was not found: run cudalink toolchain add {release}"

    def variables(self) -> dict[str, str]:
        """Return the environment variables that the native libraries read."""
        return {
            "CUDALINK_EMULATOR_VERSION": str(self.version),
            "CUDALINK_EMULATOR_RELEASE": self.release,
            "CUDALINK_EMULATOR_ARCH": self.arch,
            "CUDALINK_EMULATOR_DEVICE": self.devices.model,
            "CUDALINK_EMULATOR_DEVICES": str(self.devices.number),
            "CUDALINK_EMULATOR_DEVICE_MEMORY": str(self.devices.memory or ""),
            "CUDALINK_EMULATOR_PROFILE": f"{self.devices.profile}{self.devices.recording}",
            "CUDALINK_EMULATOR_NVJITLINK": str(self.nvjitlink or ""),
            "CUDALINK_EMULATOR_NVJITLINK_OLD": str(self.nvjitlink_old or ""),
            "CUDALINK_EMULATOR_WORKER": str(worker.program()),
            "CUDALINK_EMULATOR_EVENTS": str(self.events or ""),
            "CUDALINK_EMULATOR_FAULTS": self.faults,
            "CUDALINK_EMULATOR_LIFETIME": self.lifetime,
        }

    def environment(self) -> dict[str, str]:
        """Return `variables`, and the search path by which a child process finds this driver before any other."""
        malloc = {f"MALLOC_{name}_": str(value) for name, (_, value) in MALLOC.items()}
        return {
            **self.variables(),
            **(malloc if self.lifetime != "off" else {}),
            "LD_LIBRARY_PATH": prepended(library_folder()),
        }


def prepended(folder: Path) -> str:
    """Return the library search path with a folder at its front, and nowhere else."""
    rest = [part for part in os.environ.get("LD_LIBRARY_PATH", "").split(":") if part and part != str(folder)]
    return ":".join([str(folder), *rest])


def emulation_for(
    version: str | CudaVersion,
    *,
    release: str | None = None,
    device: str = "",
    lifetime: str = "report",
    events: Path | None = None,
    faults: str = "",
) -> Emulation:
    """Return the emulation of a driver of this version, with the libraries that it needs where they were found.

    `version`: ``"12.0"`` to ``"13.5"``; or the file of a driver that `cudalink driver record` recorded, whose version,
    release and devices are those of the emulated driver where no other is given.
    `release`: driver release that NVML answers; by default the one that the version came with.
    `device`: its devices, such as ``"sm_90"`` or ``"h100:2,memory=8GiB"``, see `devices.parse_devices`.
    `lifetime`, `events`, `faults`: as in `Emulation`.
    Raises EmulatorError if a value is out of range, with the known ones; if the file of `events` cannot be written to,
    with the reason.
    """
    with _refusing("version"):
        if isinstance(version, str) and version.endswith(".json"):
            recording = recorded(Path(version).absolute())
            device, version = device or version, recording["cuda"]
            release = release or recording["driver"] or None
        wanted = version_named(version)
    with _refusing("device"):
        devices = parse_devices(device)
    if lifetime not in names.CHECK_MODES:
        raise EmulatorError(f"lifetime mode {lifetime!r} is unknown; known: {', '.join(names.CHECK_MODES)}", "lifetime")
    since = next(known.since for known in ARCHITECTURES if devices.arch == f"sm_{known.number}")
    if wanted < since:
        msg = f"a driver of CUDA {wanted} has no device of {devices.arch}, which needs CUDA {since} or newer"
        raise EmulatorError(msg, "device")
    if faults:
        from .faults import parse, text_of

        with _refusing("faults"):
            faults = text_of(parse(faults, wanted))
    release = _release(release, wanted)
    events = None if events is None else _appendable(events)
    return completed(Emulation(wanted, release, devices, lifetime=lifetime, events=events, faults=faults))


@contextmanager
def _refusing(parameter: str) -> Iterator[None]:
    """Refuse the value of a parameter of `emulation_for` that the block finds invalid."""
    try:
        yield
    except ValueError as error:
        raise EmulatorError(str(error), parameter) from error


def _release(release: str | None, version: CudaVersion) -> str:
    if release is not None and not re.fullmatch(r"\d+(\.\d+)+", release, re.ASCII):
        msg = f"{release!r} is not a driver release; write one such as {release_of(version)!r}"
        raise EmulatorError(msg, "release")
    return release or release_of(version)


def _appendable(events: Path) -> Path:
    """Return the file of events as an absolute path: child processes may have another current folder."""
    events = events.absolute()
    try:
        events.open("a").close()
    except OSError as error:
        msg = f"events cannot be appended to {events}: {error.strerror}; name a file that can be written to"
        raise EmulatorError(msg, "events") from error
    return events


def from_environment(environment: Mapping[str, str]) -> Emulation | None:
    """Return the emulated driver that `Emulation.environment` put into an environment; None if it names none."""

    def value(name: str) -> str:
        return environment.get(f"CUDALINK_EMULATOR_{name}", "")

    def path(name: str) -> Path | None:
        return Path(value(name)) if value(name) else None

    if not value("VERSION"):
        return None
    version = CudaVersion.parse(value("VERSION"))
    profile, semicolon, recording = value("PROFILE").rpartition(";")
    return Emulation(
        version=version,
        release=value("RELEASE") or release_of(version),
        devices=Devices(
            value("ARCH") or names.DEFAULT_ARCHITECTURE,
            value("DEVICE"),
            int(value("DEVICES") or 1),
            int(value("DEVICE_MEMORY") or 0),
            recording=recording,
            profile=profile + semicolon,
        ),
        nvjitlink=path("NVJITLINK"),
        nvjitlink_old=path("NVJITLINK_OLD"),
        lifetime=value("LIFETIME") or "report",
        events=path("EVENTS"),
        faults=value("FAULTS"),
    )


def completed(emulation: Emulation) -> Emulation:
    """Return an emulation with the libraries that are there by now."""
    own = _nvjitlink(emulation.needs)
    old = _nvjitlink(_LAST_OF_12) if emulation.version > _LAST_OF_12 else None
    return emulation._replace(nvjitlink=own, nvjitlink_old=old)


def _nvjitlink(version: CudaVersion) -> Path | None:
    """Find nvJitLink of exactly this version: the one in the toolchain cache, else the one that a wheel installed."""
    from .. import toolchains

    try:
        return toolchains.library_path(version)
    except toolchains.UntrustedError as error:
        raise EmulatorError(str(error)) from error
    except toolchains.ToolchainError:
        return _nvjitlink_of_environment(version)


def _nvjitlink_of_environment(version: CudaVersion) -> Path | None:
    wheels = (wheel for wheel in installed_wheels(*NVJITLINK) if CudaVersion.parse(wheel.version) == version)
    paths = (path.resolve() for wheel in wheels for path in files_of(wheel, r"libnvJitLink\.so\..*"))
    return next((path for path in paths if path.is_file()), None)
