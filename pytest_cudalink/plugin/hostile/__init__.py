"""Runs under a hostile driver: each call of a test fails once, and work of streams is done in other orders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ..run import Key

if TYPE_CHECKING:
    from .schedules import Schedules
    from .sweep import FaultSweep

FAULT_SWEEP: Final[Key[FaultSweep]] = Key("hostile.sweep:FaultSweep")
SCHEDULES: Final[Key[Schedules]] = Key("hostile.schedules:Schedules")
#: Those that run each test again.
RERUNS: Final[tuple[Key[Any], ...]] = (FAULT_SWEEP, SCHEDULES)
