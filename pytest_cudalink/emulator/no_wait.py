"""Calls that wait for unfinished work, from ``data/emulator/waits.toml``: what a test forbids, how a wait reads."""

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any, Final, NamedTuple

from ..base.finding import Violation
from ..base.tables import grouped, read_table

#: Where most promises stand.
DOCUMENTED: Final = 'CUDA Driver API 13.0, "API synchronization behavior"'


class Wait(NamedTuple):
    """Calls that wait for unfinished work."""

    calls: tuple[str, ...]  # symbols, such as "cuMemFree_v2"
    given: Mapping[str, Any]  # conditions on the arguments of the call; the head of the file names them
    waits_for: str  # "own", "stream", "legacy", "event", "context", "device" or "devices"
    holds: tuple[str, ...]  # the locks that the call holds while it waits
    promised: str  # what CUDA's documentation says about this wait; empty if it says nothing
    source: str  # where it says that
    loading: str = ""  # "lazy" or "eager" if the calls wait only there
    may: bool = False  # whether the documentation says only that the call may wait
    instead: str = ""  # a symbol, the call that does not wait; empty if there is none

    def instead_of(self, call: str) -> str:
        """Return the call that does the same without the wait, by its name in cuda.h; empty if there is none."""
        name = base_of(call).partition("_v")[0].replace("Unaligned", "")
        return self.instead.replace("{}", name).partition("_v")[0]


def base_of(symbol: str) -> str:
    """Return the symbol without the ending of default streams of threads: ``"cuMemcpy"`` for ``"cuMemcpy_ptds"``."""
    return symbol.removesuffix("_ptsz").removesuffix("_ptds")


@cache
def waits() -> tuple[Wait, ...]:
    """Return the rows of ``data/emulator/waits.toml``; the driver's build refuses names that the C does not know."""
    return tuple(map(_row, read_table("emulator/waits.toml")["wait"]))


def _row(row: Mapping[str, Any]) -> Wait:
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in row.get("given", {}).items()}
    lists = {"calls": tuple(row["calls"]), "holds": tuple(row.get("holds", ())), "given": given}
    return Wait(**{"source": DOCUMENTED if row["promised"] else "", **row, **lists})


#: What a call waits for, by `Wait.waits_for`.
_WORDS: Final = {
    "own": "the work of its stream",
    "stream": "all that new work in its stream would wait for",
    "legacy": "all that new work in the legacy stream would wait for",
    "event": "the work that the event records",
    "context": "all streams of the context",
    "device": "all streams of all contexts of the device",
    "devices": "all streams of all contexts",
}
_PINNED: Final = "Copy between pinned memory and the device instead"
_PAGEABLE: Final = (
    "CUDA's documentation: might be synchronous with respect to the host between device memory and pageable memory "
    f"({DOCUMENTED})."
)
_RECORDING: Final = "an H100, driver 580.159.04"


def _plain(symbol: str) -> str:
    """Return the name in cuda.h of a symbol."""
    return re.sub(r"_v\d+$", "", base_of(symbol))


@cache
def _symbols() -> dict[str, frozenset[str]]:
    """Return the symbols of each name of cuda.h."""
    every = chain.from_iterable(read_table("emulator/functions.toml")["symbols"].values())
    return {name: frozenset(symbols) for name, symbols in grouped((_plain(each), each) for each in every).items()}


def allowed_symbols(names: Collection[str]) -> frozenset[str]:
    """Return all symbols of driver functions that are named as in cuda.h, or by a symbol.

    Raises ValueError if no function has a name; the message has the nearest.
    """
    known, symbols = _symbols(), set[str]()
    for name in names:
        if _plain(name) not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else "give a name of cuda.h, such as 'cuMemFree'"
            raise ValueError(f"the driver has no function {name!r}; {hint}")
        symbols |= known[_plain(name)]
    return frozenset(symbols)


def _documented(row: Wait | None) -> str:
    if row is None or not row.promised:
        return "CUDA's documentation does not say so: another driver may not wait."
    return f"CUDA's documentation: {row.promised} ({row.source})."


def sentences_of_row(number: int, call: str) -> tuple[str, str, str]:
    """Return for what a call waits, what CUDA's documentation says about that, and what to do instead of relying on it.

    `number`: of the row, from 1; 0 for a copy that reads pageable memory before it returns.
    `call`: its symbol.
    """
    row = waits()[number - 1] if number else None
    if row is None:
        waiting, documented = "It reads pageable memory before it returns", _PAGEABLE
    else:
        waiting, documented = f"It waits for {_WORDS[row.waits_for]}", _documented(row)
    place = "behind" if call.startswith("cuMemcpy") else "before"
    fix = f"fix  Wait {place} {_plain(call)}, by cuStreamSynchronize or by cuEventSynchronize for an event."
    return f"{waiting} ({_RECORDING}).", documented, fix


def violation_of_wait(
    call: str,
    *,
    waits_for: str = "",
    number: int = 0,
    python_stack: Sequence[str] = (),
    native_stack: Sequence[str] = (),
    noted: bool = False,
) -> Violation:
    """Return a call that waits where a test forbids it.

    `call`: its symbol; empty if it is not known.
    `waits_for`: as `Wait.waits_for`; empty if it is not known.
    `noted`: whether it waited behind a gate, and not by the table alone.
    """
    rows = [row for row in waits() if base_of(call) in row.calls and waits_for in ("", row.waits_for)]
    name = _plain(call)
    instead = next((substitute for row in rows if (substitute := row.instead_of(call))), "")
    objects = {row.waits_for for row in rows}
    waited = _WORDS[objects.pop()] if len(objects) == 1 else "work that was not done"
    why = f"It waits for {waited} ({'it came back when a gate in a stream opened' if noted else _RECORDING})."
    if noted and not rows:
        why += f" On {_RECORDING}, this call waits only where a stream holds about 1,020 pieces of unfinished work."
    if len({(row.promised, row.source) for row in rows}) > 1:
        documented = "CUDA's documentation promises this wait for some of its arguments."
    else:
        documented = _documented(rows[0] if rows else None)
    change = f"Call {_plain(instead)} instead" if instead else "Call it elsewhere"
    if name.startswith("cuMemcpy"):  # the asynchronous form waits, too, where memory is pageable
        change = f"Call {_plain(instead)} with pinned memory instead" if instead else _PINNED
    elif any(instead in row.calls and row.loading != "eager" for row in waits()):
        change = f"Call {instead} before, where a wait does no harm"
    fix = f'{change}, or allow it: no_wait=["{name}"].' if name else f"{change}."
    what = f"waits for {waited}"
    return Violation(
        check="wait",
        number=number,
        handle=0,
        rule="no_wait",
        what=what,
        text=f"{name or 'a call of the driver'} waits for unfinished work, which no_wait forbids",
        call=call,
        native_stack=tuple(native_stack),
        python_stack=tuple(python_stack),
        advice=f"{why} {documented}\n{fix}",
        fix=fix,
    )
