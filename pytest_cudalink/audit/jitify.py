"""The floor of libraries that open nvJitLink through jitify, as libcudf does.

jitify compares the version of the nvJitLink that it opened with the release that it was built with, and refuses an
older one: "Dynamically loaded libnvJitLink.so.12 is too old; it is version 12.2, need at least version 12.9". The
release is a constant in machine code; the device code of the same library names the release of its compiler.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from .device_code import images
from .dynamic import contains
from .needs import Need

__all__ = ["jitify_need"]

_REFUSAL: Final = b"need at least version "
#: Images that are asked for their compiler; a library of one build has one.
_ASKED: Final = 32


def jitify_need(path: str) -> Need | None:
    """Return what a library that opens nvJitLink through jitify needs; None for other libraries.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If its device code cannot be read, or is packed and nothing here unpacks it.
    """
    if not contains(path, _REFUSAL):
        return None
    asked = list(islice(images(path), _ASKED))
    producers = [image.producer for image in asked if image.producer is not None]
    if not producers and any(image.packed and image.data is None for image in asked):
        msg = "its device code is packed; expected lz4 and zstandard: pip install 'pytest-cudalink[audit]'"
        raise ValueError(msg)
    if not producers:
        return None
    floor = max(producers)
    evidence = f"opens libnvJitLink through jitify, which refuses one older than its build; built with CUDA {floor}"
    return Need(path, "libnvJitLink", floor.major, floor, "opened", evidence)
