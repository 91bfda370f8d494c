"""Which calls of the driver wait for unfinished work, as ``data/emulator/waits.toml`` has it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from ..base.tables import read_table

#: Where most promises stand.
DOCUMENTED: Final = 'CUDA Driver API 13.0, "API synchronization behavior"'


class Wait(NamedTuple):
    """Calls that wait for unfinished work."""

    calls: tuple[str, ...]  # symbols, such as "cuMemFree_v2"
    given: Mapping[str, Any]  # conditions on the arguments of the call; the head of the file names them
    loading: str  # "lazy" or "eager" if the calls wait only there
    waits_for: str  # "own", "stream", "legacy", "event", "context" or "device"
    holds: tuple[str, ...]  # the locks that the call holds while it waits
    promised: str  # what CUDA's documentation says about this wait; empty if it says nothing
    may: bool  # whether it says only that the call may wait
    source: str  # where it says that
    instead: str  # a symbol, the call that does not wait; empty if there is none

    def applies(self, call: str, facts: Mapping[str, Any], loading: str = "lazy") -> bool:
        """Whether a call waits by this row.

        `call`: its symbol.
        `facts`: what is known of its arguments: ``memory``, ``to`` and ``source`` with one kind of memory each,
        ``size`` in bytes, ``limit`` that it raises, ``first``.
        `loading`: ``"lazy"`` or ``"eager"``.
        """
        return (
            base_of(call) in self.calls
            and self.loading in ("", loading)
            and all(
                facts.get("size", 0) > value
                if name == "larger_than"
                else facts.get(name) in value
                if isinstance(value, tuple)
                else facts.get(name) == value
                for name, value in self.given.items()
            )
        )

    def instead_of(self, call: str) -> str:
        """Return the call that does the same without the wait, by its name in cuda.h; empty if there is none."""
        name = base_of(call).partition("_v")[0].replace("Unaligned", "")
        return self.instead.replace("{}", name).partition("_v")[0]


class WaitTable(NamedTuple):
    """Which calls wait for what."""

    waits: tuple[Wait, ...]
    locks: Mapping[str, frozenset[str]]  # by lock the calls of other threads that are held up while somebody holds it
    room: Mapping[str, int]  # by "work", "copy" and "staged" how much unfinished work a stream takes behind the first

    def row_of(self, call: str, facts: Mapping[str, Any], loading: str = "lazy") -> Wait | None:
        """Return the row by which a call waits, or None; the parameters are those of `Wait.applies`."""
        return next((one for one in self.waits if one.applies(call, facts, loading)), None)

    def holds_up(self, row: Wait, call: str) -> bool:
        """Whether a call that waits by a row holds up a call of another thread."""
        return any(base_of(call) in self.locks[lock] for lock in row.holds)


def base_of(symbol: str) -> str:
    """Return the symbol without the ending of default streams of threads: ``"cuMemcpy"`` for ``"cuMemcpy_ptds"``."""
    return symbol.removesuffix("_ptsz").removesuffix("_ptds")


@cache
def table() -> WaitTable:
    """Return what ``data/emulator/waits.toml`` has; the driver's build refuses names that the C does not know."""
    content = read_table("emulator/waits.toml")
    return WaitTable(
        tuple(map(_row, content["wait"])),
        {name: frozenset(calls) for name, calls in content["locks"].items()},
        content["room"],
    )


def _row(row: Mapping[str, Any]) -> Wait:
    given = row.get("given", {})
    return Wait(
        calls=tuple(row["calls"]),
        given={name: tuple(value) if isinstance(value, list) else value for name, value in given.items()},
        loading=row.get("loading", ""),
        waits_for=row["waits_for"],
        holds=tuple(row.get("holds", ())),
        promised=row["promised"],
        may=row.get("may", False),
        source=row.get("source", DOCUMENTED if row["promised"] else ""),
        instead=row.get("instead", ""),
    )
