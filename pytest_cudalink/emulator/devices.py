"""The devices of an emulated driver, as users write them: ``h100``, ``sm_90:2``, ``h100:2,memory=8GiB``, ``none``."""

from __future__ import annotations

import difflib
import re
from typing import Final, NamedTuple

from ..compat import names
from ..words import read_words

__all__ = ["NO_DEVICE", "Devices", "parse_devices"]

#: How a driver without a device is written.
NO_DEVICE: Final = "none"
_WORDS: Final = {"": ("DEVICE[:NUMBER]",), "memory": ("SIZE",)}
_UNITS: Final = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


class Devices(NamedTuple):
    """The devices of an emulated driver, which are all equal.

    Attributes
    ----------
    arch : str
        Architecture, such as ``"sm_90"``.
    model : str
        Such as ``"h100"``; empty for the first one of the architecture.
    number : int
        0 for a driver without a device.
    memory : int
        Bytes of each device; 0 for what the model has, at most half of the machine's memory.
    """

    arch: str = names.DEFAULT_ARCHITECTURE
    model: str = ""
    number: int = 1
    memory: int = 0

    def __str__(self) -> str:
        number = f":{self.number}" if self.number > 1 else ""
        memory = f",memory={self.memory}B" if self.memory else ""
        return f"{self.model or self.arch}{number}{memory}" if self.number else NO_DEVICE


def parse_devices(text: str) -> Devices:
    """Return the devices that a text asks for; what it leaves out is the default.

    Raises
    ------
    ValueError
        If a word is unknown, or a number or a size out of range; the message says what is expected.
    """
    words = read_words(text, _WORDS)
    device, _, number = words.get("", "").partition(":")
    if device == NO_DEVICE and not number:
        return Devices(number=0)
    model = device if device in names.EMULATED_DEVICES else ""
    arch = names.EMULATED_DEVICES.get(device, device or names.DEFAULT_ARCHITECTURE)
    if arch not in names.EMULATED_ARCHITECTURES:
        known = (*names.EMULATED_DEVICES, *names.EMULATED_ARCHITECTURES, NO_DEVICE)
        near = difflib.get_close_matches(device, known, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        msg = f"there is no emulated device {device!r}; expected {', '.join(known)}{hint}"
        raise ValueError(msg)
    if number and not (re.fullmatch(r"\d{1,4}", number, re.ASCII) and 1 <= int(number) <= names.LIMIT_DEVICES):
        msg = f"the number of devices is {number!r}; expected 1 to {names.LIMIT_DEVICES}, or {NO_DEVICE} for no device"
        raise ValueError(msg)
    return Devices(arch, model, int(number or 1), _bytes(words.get("memory", "")))


def _bytes(size: str) -> int:
    found = re.fullmatch(r"(\d{1,16}(?:\.\d{1,3})?) ?([KMGT]iB|B|)", size, re.ASCII)
    memory = int(float(found[1]) * _UNITS[found[2]]) if found else 0
    if size and memory < names.LIMIT_LEAST_DEVICE_MEMORY:
        msg = f"the memory of a device is {size!r}; expected a size of at least 16MiB, such as 512MiB or 8GiB"
        raise ValueError(msg)
    return memory
