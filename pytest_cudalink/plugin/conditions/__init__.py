"""Under which conditions tests run: the driver, nvJitLink, faults, the cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..run import Key

if TYPE_CHECKING:
    from .faults import Faults

FAULTS: Final[Key[Faults]] = Key("conditions.faults:Faults")
