"""The device code in a wheel, a library or an archive: what it is, and what each driver does with it on each GPU."""

from __future__ import annotations

from .images import Fault, Image, found_in, images

__all__ = ["Fault", "Image", "found_in", "images"]
