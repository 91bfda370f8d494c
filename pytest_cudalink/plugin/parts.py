"""The parts of the plugin: where each class is, which is imported when a run first uses it. Imports no part itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from .backends import Backends
    from .causes import Causes
    from .check import Reporter
    from .descendants import Descendants
    from .event_file import EventFile
    from .faults import RunFaults
    from .isolation import Isolation
    from .jitlink_contract import JitLinkContractCheck
    from .ledger import Ledger
    from .lifetimes import Lifetimes
    from .mismatches import Mismatches
    from .native_links import LoadedModules, NativeLinks
    from .provenance import Provenance
    from .record_file import RecordFile
    from .require import Required
    from .results import Results
    from .run import CurrentTest
    from .runtest import MarkedTests
    from .sticky import StickyGuard
    from .xdist import HandOver

__all__ = [
    "BACKENDS",
    "CAUSES",
    "CURRENT_TEST",
    "DESCENDANTS",
    "EVENT_FILE",
    "FAULTS",
    "HAND_OVER",
    "ISOLATION",
    "JITLINK_CONTRACT",
    "LEDGER",
    "LIFETIMES",
    "LOADED_MODULES",
    "MARKED_TESTS",
    "MISMATCHES",
    "NATIVE_LINKS",
    "PROVENANCE",
    "RECORD_FILE",
    "REPORTER",
    "REQUIRED",
    "RESULTS",
    "STICKY_GUARD",
    "Key",
]

T = TypeVar("T")


class Key(Generic[T]):
    """The key of a plugin object of type `T`, as ``pytest.StashKey`` is that of a value.

    Attributes
    ----------
    name : str
        The object is registered with pytest under ``cudalink-NAME``.
    place : str
        ``"module:Class"``; the class takes the run.
    """

    __slots__ = ("name", "place")

    def __init__(self, name: str, place: str) -> None:
        self.name, self.place = name, place


BACKENDS: Final[Key[Backends]] = Key("backends", "backends:Backends")
CAUSES: Final[Key[Causes]] = Key("causes", "causes:Causes")
CURRENT_TEST: Final[Key[CurrentTest]] = Key("current-test", "run:CurrentTest")
DESCENDANTS: Final[Key[Descendants]] = Key("descendants", "descendants:Descendants")
EVENT_FILE: Final[Key[EventFile]] = Key("event-file", "event_file:EventFile")
FAULTS: Final[Key[RunFaults]] = Key("faults", "faults:RunFaults")
HAND_OVER: Final[Key[HandOver]] = Key("xdist", "xdist:HandOver")
ISOLATION: Final[Key[Isolation]] = Key("isolation", "isolation:Isolation")
JITLINK_CONTRACT: Final[Key[JitLinkContractCheck]] = Key("jitlink-contract", "jitlink_contract:JitLinkContractCheck")
LEDGER: Final[Key[Ledger]] = Key("ledger", "ledger:Ledger")
LIFETIMES: Final[Key[Lifetimes]] = Key("lifetimes", "lifetimes:Lifetimes")
LOADED_MODULES: Final[Key[LoadedModules]] = Key("loaded-modules", "native_links:LoadedModules")
MARKED_TESTS: Final[Key[MarkedTests]] = Key("marked-tests", "runtest:MarkedTests")
MISMATCHES: Final[Key[Mismatches]] = Key("mismatches", "mismatches:Mismatches")
NATIVE_LINKS: Final[Key[NativeLinks]] = Key("native-links", "native_links:NativeLinks")
PROVENANCE: Final[Key[Provenance]] = Key("provenance", "provenance:Provenance")
RECORD_FILE: Final[Key[RecordFile]] = Key("record-file", "record_file:RecordFile")
REPORTER: Final[Key[Reporter]] = Key("reporter", "check:Reporter")
REQUIRED: Final[Key[Required]] = Key("require", "require:Required")
RESULTS: Final[Key[Results]] = Key("results", "results:Results")
STICKY_GUARD: Final[Key[StickyGuard]] = Key("sticky", "sticky:StickyGuard")
