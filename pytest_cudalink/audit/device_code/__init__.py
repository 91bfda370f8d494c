"""The device code in a wheel, a library or an archive: what it is, and what each driver does with it on each GPU."""

from __future__ import annotations

from .images import DeviceImage, UnreadImage, all_images, images
from .verdicts import DeviceCode, DriverAnswer, DriverOutcome, ImageGroup, device_code, what_happens

__all__ = [
    "DeviceCode",
    "DeviceImage",
    "DriverAnswer",
    "DriverOutcome",
    "ImageGroup",
    "UnreadImage",
    "all_images",
    "device_code",
    "images",
    "what_happens",
]
