"""Under which conditions tests run: the driver, nvJitLink, forced backends, faults, the cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..run import Key

if TYPE_CHECKING:
    from .backends import Backends
    from .faults import Faults

BACKENDS: Final[Key[Backends]] = Key("conditions.backends:Backends")
FAULTS: Final[Key[Faults]] = Key("conditions.faults:Faults")
