"""Which calls of the driver wait for unfinished work, as ``data/emulator/waits.toml`` has it."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ..tables import read_table

__all__ = ["DOCUMENTED", "Wait", "WaitTable", "base_of", "read_waits", "table"]

#: Where most promises stand.
DOCUMENTED: Final = 'CUDA Driver API 13.0, "API synchronization behavior"'
_ASYNC: Final = "{}Async"
_MEMORY: Final = ("pageable", "pinned", "managed", "device", "pool")
#: The type of each condition.
_CONDITIONS: Final[dict[str, type]] = {
    "memory": list,
    "to": list,
    "source": list,
    "larger_than": int,
    "limit": str,
    "first": bool,
}
_MEMBERS: Final = ("calls", "given", "loading", "waits_for", "holds", "promised", "may", "source", "instead")
_WAITS_FOR: Final = ("own", "stream", "legacy", "event", "context", "device")


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

    @property
    def is_promised(self) -> bool:
        """Whether a program may rely on this wait."""
        return bool(self.promised) and not self.may

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
    """Return what ``data/emulator/waits.toml`` has."""
    return read_waits(read_table("emulator/waits.toml"))


def read_waits(content: Mapping[str, Any]) -> WaitTable:
    """Return the rows of a table.

    Raises ValueError if a member, a call, a condition or a lock is unknown, with the nearest known one, or a value has
    another type.
    """
    exported = read_table("emulator/functions.toml")["symbols"].values()
    symbols = frozenset(name for names in exported for name in names)
    _known(content, ("locks", "room", "wait"), "member")
    locks = {name: frozenset(_known(calls, symbols, "call")) for name, calls in content["locks"].items()}
    return WaitTable(
        tuple(_row(row, symbols, locks) for row in content["wait"]),
        MappingProxyType(locks),
        MappingProxyType({**content["room"]}),
    )


def _row(row: Mapping[str, Any], symbols: Collection[str], locks: Collection[str]) -> Wait:
    _known(row, _MEMBERS, "member")
    if missing := [name for name in ("calls", "waits_for", "promised") if name not in row]:
        msg = f"a row of {', '.join(row.get('calls', ())) or 'no call'} has no {missing[0]!r}; add it"
        raise ValueError(msg)
    given: dict[str, Any] = {}
    for name, value in row.get("given", {}).items():
        _known([name], _CONDITIONS, "condition")
        if type(value) is not _CONDITIONS[name]:
            msg = f"the condition {name!r} is {value!r}; expected a value of type {_CONDITIONS[name].__name__}"
            raise ValueError(msg)
        given[name] = tuple(_known(value, _MEMORY, "kind of memory")) if isinstance(value, list) else value
    if "limit" in given:
        _known([given["limit"]], read_table("emulator/enums.toml")["CUlimit"], "limit")
    _known([row["waits_for"]], _WAITS_FOR, "value of 'waits_for'")
    may = row.get("may", False)
    if type(may) is not bool:
        msg = f"'may' of a row of {', '.join(row['calls'])} is {may!r}; expected true or false"
        raise ValueError(msg)
    if "loading" in row:
        _known([row["loading"]], ("lazy", "eager"), "value of 'loading'")
    if row.get("instead", _ASYNC) != _ASYNC:
        _known([row["instead"]], symbols, "call")
    return Wait(
        tuple(_known(row["calls"], symbols, "call")),
        MappingProxyType(given),
        row.get("loading", ""),
        row["waits_for"],
        tuple(_known(row.get("holds", ()), locks, "lock")),
        row["promised"],
        may,
        row.get("source", DOCUMENTED if row["promised"] else ""),
        row.get("instead", ""),
    )


def _known(names: Collection[str], known: Collection[str], what: str) -> Collection[str]:
    """Return the names; ValueError for one that is not known."""
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            msg = f"there is no {what} {name!r}{hint}"
            raise ValueError(msg)
    return names
