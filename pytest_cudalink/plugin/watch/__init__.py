"""What is forced and noticed while tests run, and fails them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..run import Key

if TYPE_CHECKING:
    from .backends import Backends, Mismatches
    from .causes import Causes
    from .check import Reporter
    from .descendants import Descendants
    from .guard import Guard
    from .native_links import LoadedModules, NativeLinks
    from .no_wait import NoWait
    from .provenance import Provenance
    from .sticky import Sticky
    from .violation_checks import Deadlocks, EventFile, JitlinkContract, Lifetimes, Order

BACKENDS: Final[Key[Backends]] = Key("watch.backends:Backends")
CAUSES: Final[Key[Causes]] = Key("watch.causes:Causes")
DEADLOCKS: Final[Key[Deadlocks]] = Key("watch.violation_checks:Deadlocks")
DESCENDANTS: Final[Key[Descendants]] = Key("watch.descendants:Descendants")
EVENT_FILE: Final[Key[EventFile]] = Key("watch.violation_checks:EventFile")
GUARD: Final[Key[Guard]] = Key("watch.guard:Guard")
JITLINK_CONTRACT: Final[Key[JitlinkContract]] = Key("watch.violation_checks:JitlinkContract")
LIFETIMES: Final[Key[Lifetimes]] = Key("watch.violation_checks:Lifetimes")
LOADED_MODULES: Final[Key[LoadedModules]] = Key("watch.native_links:LoadedModules")
MISMATCHES: Final[Key[Mismatches]] = Key("watch.backends:Mismatches")
NATIVE_LINKS: Final[Key[NativeLinks]] = Key("watch.native_links:NativeLinks")
NO_WAIT: Final[Key[NoWait]] = Key("watch.no_wait:NoWait")
ORDER: Final[Key[Order]] = Key("watch.violation_checks:Order")
PROVENANCE: Final[Key[Provenance]] = Key("watch.provenance:Provenance")
REPORTER: Final[Key[Reporter]] = Key("watch.check:Reporter")
STICKY: Final[Key[Sticky]] = Key("watch.sticky:Sticky")
