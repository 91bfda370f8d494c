"""Calls that wait where a test forbids it: the names that it allows, and how a wait reads."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Sequence
from functools import cache
from typing import Final

from ..tables import read_table
from ..violations import Violation
from .waits import base_of, table

__all__ = ["allowed_symbols", "violation_of_wait"]

#: What a call waits for, by `Wait.waits_for`.
_WORDS: Final = {
    "own": "the work of its stream",
    "stream": "all that new work in its stream would wait for",
    "legacy": "all that new work in the legacy stream would wait for",
    "event": "the work that the event records",
    "context": "all streams of the context",
    "device": "all streams of all contexts",
}
_PINNED: Final = "Copy between pinned memory and the device instead"
_RECORDING: Final = "an H100, driver 580.159.04"


def _plain(symbol: str) -> str:
    """Return the name in cuda.h of a symbol."""
    return re.sub(r"_v\d+$", "", base_of(symbol))


@cache
def _symbols() -> dict[str, frozenset[str]]:
    """Return the symbols of each name of cuda.h."""
    found: dict[str, set[str]] = {}
    for names in read_table("emulator/functions.toml")["symbols"].values():
        for name in names:
            found.setdefault(_plain(name), set()).add(name)
    return {name: frozenset(symbols) for name, symbols in found.items()}


def allowed_symbols(names: Collection[str]) -> frozenset[str]:
    """Return all symbols of driver functions that are named as in cuda.h, or by a symbol.

    Raises
    ------
    ValueError
        If no function has a name; the message has the nearest.
    """
    known, found = _symbols(), set[str]()
    for name in names:
        if _plain(name) not in known:
            # the name of the runtime is near to that of the driver, but for its beginning
            near = difflib.get_close_matches(re.sub("^cuda(?=[A-Z])", "cu", name), known, 1)
            hint = f"did you mean {near[0]!r}?" if near else "give a name of cuda.h, such as 'cuMemFree'"
            msg = f"the driver has no function {name!r}; {hint}"
            raise ValueError(msg)
        found |= known[_plain(name)]
    return frozenset(found)


def violation_of_wait(
    call: str,
    *,
    waits_for: str = "",
    number: int = 0,
    python_stack: Sequence[str] = (),
    native_stack: Sequence[str] = (),
    seen: bool = False,
) -> Violation:
    """Return a call that waits where a test forbids it.

    Parameters
    ----------
    call : str
        Its symbol; empty if it is not known.
    waits_for : str
        As `Wait.waits_for`; empty if it is not known.
    number : int
    python_stack, native_stack : sequence of str
    seen : bool
        Whether it waited behind a gate, and not by the table alone.
    """
    rows = [row for row in table().waits if base_of(call) in row.calls and waits_for in ("", row.waits_for)]
    name = _plain(call)
    instead = next((found for row in rows if (found := row.instead_of(call))), "")
    objects = {row.waits_for for row in rows}
    waited = _WORDS[objects.pop()] if len(objects) == 1 else "work that was not done"
    why = f"It waits for {waited} ({'it came back when a gate in a stream opened' if seen else _RECORDING})."
    if seen and not rows:
        why += f" On {_RECORDING}, this call waits only where a stream holds about 1,020 pieces of unfinished work."
    promises = {(row.promised, row.source) for row in rows}
    promised, source = promises.pop() if len(promises) == 1 else ("", "")
    if promised:
        documented = f"CUDA's documentation: {promised} ({source})."
    elif len(rows) > 1 and any(row.promised for row in rows):
        documented = "CUDA's documentation promises this wait for some of its arguments."
    else:
        documented = "CUDA's documentation does not say so: another driver may not wait."
    change = f"Call {_plain(instead)} instead" if instead else "Call it elsewhere"
    if name.startswith("cuMemcpy"):  # the asynchronous form waits, too, where memory is pageable
        change = f"Call {_plain(instead)} with pinned memory instead" if instead else _PINNED
    elif any(instead in row.calls and row.loading != "eager" for row in table().waits):
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
