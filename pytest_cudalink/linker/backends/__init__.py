"""The linker's two backends: how each opens a link."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ...targets.choice import Backend
from .driver import DriverLinkState
from .nvjitlink import NvJitLinkState
from .state import LinkState

__all__ = ["OPENERS"]

#: Opens a link with the options that `LinkerOptions.for_driver` or `LinkerOptions.for_nvjitlink` has written. `Linker`
#: looks here for each link: a test replaces an entry to link without a library, or on memory that it watches.
OPENERS: Final[dict[Backend, Callable[[Any], LinkState]]] = {"driver": DriverLinkState, "nvjitlink": NvJitLinkState}
