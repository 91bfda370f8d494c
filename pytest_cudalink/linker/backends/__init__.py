"""The linker's two backends: how each opens a link."""

import os
from collections.abc import Callable
from typing import Any, Final

from ...probes import importing, libcuda
from ...targets.base import Backend
from .driver import DriverLinkState
from .nvjitlink import NvJitLinkState
from .state import LinkState

#: The environment variable that contains every link on nvJitLink: ``"yes"``.
CONTAIN: Final = "CUDALINK_CONTAIN"

#: Opens a link with the options that `LinkerOptions.written` returns. `Linker` looks here for each link: a test
#: replaces an entry to link without a library, or on memory that it watches.
OPENERS: Final[dict[Backend, Callable[[Any], LinkState]]] = {"driver": DriverLinkState, "nvjitlink": NvJitLinkState}


def _contained_by_environment() -> bool:
    value = os.environ.get(CONTAIN, "")
    if value not in ("", "no", "yes"):
        raise ValueError(f"{CONTAIN} is {value!r}; expected yes or no; set one of them, or unset it")
    return value == "yes"


def opener(backend: Backend, *, contain: bool) -> Callable[[Any], LinkState]:
    """Return what opens a link on a backend: `OPENERS`, or a link worker if links are contained.

    Raises ValueError if the driver must be contained and is a real one; if the variable has another value than ``yes``
    or ``no``.
    """
    if backend == "nvjitlink" and (contain or _contained_by_environment()):
        with importing:
            from .contained import ContainedState

        return ContainedState
    if backend == "driver" and contain and not hasattr(libcuda.library(), "cudalinkEmulatorVersion"):
        msg = "LinkerOptions.contain = True, but the real driver links in this process; use backend='nvjitlink'"
        raise ValueError(msg)
    return OPENERS[backend]
