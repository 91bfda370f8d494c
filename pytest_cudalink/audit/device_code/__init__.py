"""The device code in a wheel, a library or an archive: what it is, and what each driver does with it on each GPU."""

from __future__ import annotations

from .images import DeviceImage as DeviceImage
from .images import UnreadImage as UnreadImage
from .images import all_images as all_images
from .images import images as images
from .verdicts import DeviceCode as DeviceCode
from .verdicts import DriverAnswer as DriverAnswer
from .verdicts import DriverOutcome as DriverOutcome
from .verdicts import ImageGroup as ImageGroup
from .verdicts import device_code as device_code
from .verdicts import what_happens as what_happens
