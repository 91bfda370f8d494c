"""The device code in a wheel, a library or an archive: what it is, and what each driver does with it on each GPU."""

from __future__ import annotations

from .images import Fault, Image, found_in, images
from .rule import Answer, Outcome, what_happens
from .verdicts import DeviceCode, Group, device_code

__all__ = [
    "Answer",
    "DeviceCode",
    "Fault",
    "Group",
    "Image",
    "Outcome",
    "device_code",
    "found_in",
    "images",
    "what_happens",
]
