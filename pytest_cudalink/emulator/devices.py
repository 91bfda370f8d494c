"""The devices of an emulated driver, such as ``h100``, ``sm_90:2``, ``h100:2,memory=8GiB``, ``none``, ``FILE.json``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

from ..base.regular_files import DATA, read_text
from ..base.words import did_you_mean, read_words
from ..compat import names

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
        found = json.loads(read_text(file, DATA))
        return {"cuda": str(found["cuda"]), "driver": str(found["driver"]), "devices": list(found["devices"])}
    except OSError as error:
        msg = f"{file} cannot be read: {error.strerror}; correct the path"
        raise ValueError(msg) from error
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
    found = re.fullmatch(r"(\d{1,16}(?:\.\d{1,3})?) ?([KMGT]iB|B|)", size, re.ASCII)
    memory = int(float(found[1]) * _UNITS[found[2]]) if found else 0
    if size and memory < names.LIMIT_LEAST_DEVICE_MEMORY:
        msg = f"the memory of a device is {size!r}; expected a size of at least 16MiB, such as 512MiB or 8GiB"
        raise ValueError(msg)
    return memory
