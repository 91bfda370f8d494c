"""The parts of the plugin: where each class is, which is imported when a run first uses it. Imports no part itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from .conditions.backends import Backends
    from .conditions.faults import RunFaults
    from .hostile.schedules import Schedules
    from .hostile.sweep import FaultSweep
    from .isolation.parent import Isolation
    from .isolation.processes import Copies, Servers
    from .items.runtest import MarkedTests
    from .records.ledger import Ledger
    from .records.record_file import RecordFile
    from .records.results import Results
    from .run import CurrentTest
    from .session.account import Account, Required
    from .session.lifecycle import Ends
    from .session.xdist import HandOver
    from .watch.causes import Causes
    from .watch.check import Reporter
    from .watch.descendants import Descendants
    from .watch.native_links import LoadedModules, Mismatches, NativeLinks
    from .watch.no_wait import NoWait
    from .watch.provenance import Provenance
    from .watch.sticky import StickyGuard
    from .watch.violation_checks import Deadlocks, EventFile, JitLinkContractCheck, Lifetimes, Order

T = TypeVar("T")


class Key(Generic[T]):
    """The key of a plugin object of type `T`, as ``pytest.StashKey`` is that of a value.

    `name`: the object is registered with pytest under ``cudalink-NAME``.
    `place`: ``"module:Class"``; the class takes the run.
    """

    __slots__ = ("name", "place")

    def __init__(self, name: str, place: str) -> None:
        self.name, self.place = name, place


ASKED: Final[Key[Account]] = Key("asked", "session.account:Account")
BACKENDS: Final[Key[Backends]] = Key("backends", "conditions.backends:Backends")
CAUSES: Final[Key[Causes]] = Key("causes", "watch.causes:Causes")
COPIES: Final[Key[Copies]] = Key("copies", "isolation.processes:Copies")
CURRENT_TEST: Final[Key[CurrentTest]] = Key("current-test", "run:CurrentTest")
DEADLOCKS: Final[Key[Deadlocks]] = Key("deadlocks", "watch.violation_checks:Deadlocks")
DESCENDANTS: Final[Key[Descendants]] = Key("descendants", "watch.descendants:Descendants")
ENDS: Final[Key[Ends]] = Key("ends", "session.lifecycle:Ends")
EVENT_FILE: Final[Key[EventFile]] = Key("event-file", "watch.violation_checks:EventFile")
FAULTS: Final[Key[RunFaults]] = Key("faults", "conditions.faults:RunFaults")
FAULT_SWEEP: Final[Key[FaultSweep]] = Key("fault-sweep", "hostile.sweep:FaultSweep")
HAND_OVER: Final[Key[HandOver]] = Key("xdist", "session.xdist:HandOver")
ISOLATION: Final[Key[Isolation]] = Key("isolation", "isolation.parent:Isolation")
JITLINK_CONTRACT: Final[Key[JitLinkContractCheck]] = Key(
    "jitlink-contract", "watch.violation_checks:JitLinkContractCheck"
)
LEDGER: Final[Key[Ledger]] = Key("ledger", "records.ledger:Ledger")
LIFETIMES: Final[Key[Lifetimes]] = Key("lifetimes", "watch.violation_checks:Lifetimes")
LOADED_MODULES: Final[Key[LoadedModules]] = Key("loaded-modules", "watch.native_links:LoadedModules")
MARKED_TESTS: Final[Key[MarkedTests]] = Key("marked-tests", "items.runtest:MarkedTests")
MISMATCHES: Final[Key[Mismatches]] = Key("mismatches", "watch.native_links:Mismatches")
NATIVE_LINKS: Final[Key[NativeLinks]] = Key("native-links", "watch.native_links:NativeLinks")
NO_WAIT: Final[Key[NoWait]] = Key("no-wait", "watch.no_wait:NoWait")
ORDER: Final[Key[Order]] = Key("order", "watch.violation_checks:Order")
PROVENANCE: Final[Key[Provenance]] = Key("provenance", "watch.provenance:Provenance")
RECORD_FILE: Final[Key[RecordFile]] = Key("record-file", "records.record_file:RecordFile")
REPORTER: Final[Key[Reporter]] = Key("reporter", "watch.check:Reporter")
REQUIRED: Final[Key[Required]] = Key("require", "session.account:Required")
RESULTS: Final[Key[Results]] = Key("results", "records.results:Results")
SCHEDULES: Final[Key[Schedules]] = Key("schedules", "hostile.schedules:Schedules")
SERVERS: Final[Key[Servers]] = Key("servers", "isolation.processes:Servers")
STICKY_GUARD: Final[Key[StickyGuard]] = Key("sticky", "watch.sticky:StickyGuard")
#: Those that run each test again.
RERUNS: Final[tuple[Key[Any], ...]] = (FAULT_SWEEP, SCHEDULES)
