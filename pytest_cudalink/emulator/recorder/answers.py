"""Comparing answers: what two drivers said to the same program, without what no two machines share."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from ...base.tables import read_table
from .execute import WAITED, Answer, Program

_NOT_READY: Final = 600
_FUNCTIONS: Final = {name: words.split() for name, words in read_table("recorder/functions.toml").items()}
CONTEXT_CHANGING: Final = frozenset(_FUNCTIONS["changes_context"])
LAUNCHES: Final = frozenset(_FUNCTIONS["launches"])
#: Functions that end handles, with the position of the argument that has the handle.
ENDS: Final = dict.fromkeys(_FUNCTIONS["ends_first"], 0) | dict.fromkeys(_FUNCTIONS["ends_second"], 1)
#: Functions whose handles lie in the object that they are given: functions of a module, nodes of a graph.
_LOOKS_UP: Final = re.compile(
    r"Get(Function|Kernel|Module|Library|Global|Level|Plane)|Enumerate|GraphAdd|GetNodes|GetRoot"
)


@dataclass(frozen=True)
class Difference:
    """A call that the two drivers answer otherwise."""

    seed: int
    call: int  # its number in the program
    symbol: str
    real: str  # codes, or where these are equal the values
    ours: str


@dataclass
class Result:
    """The comparison of one program."""

    seed: int
    theme: str
    counted: int = 0
    equal: int = 0
    left_out: int = 0
    early: int = 0  # calls that waited for a gate on the real driver, and did not on the emulated one
    differences: list[Difference] = field(default_factory=list)


def references(argument: Any) -> Iterator[int]:
    """Yield the numbers of the calls whose values an argument uses."""
    if isinstance(argument, str):
        if argument[:1] == "$":
            yield int(argument[1:].partition("+")[0].partition(".")[0])
    elif isinstance(argument, list):
        for one in argument:
            yield from references(one)
    elif isinstance(argument, dict):
        for one in argument.values():
            yield from references(one)


def _dead(program: Program) -> list[tuple[set[int], set[int]]]:
    """For each call the earlier calls whose handles were destroyed by then, and those whose handles lay in them."""
    destroyed: set[int] = set()
    inside: set[int] = set()
    found = []
    for number, call in enumerate(program):
        found.append((set(destroyed), set(inside)))
        ended = set(references(call[ENDS[call[0]] + 1 : ENDS[call[0]] + 2])) if call[0] in ENDS else set()
        if ended - destroyed:
            destroyed |= ended
            for earlier, one in enumerate(program[:number]):
                if _LOOKS_UP.search(one[0]) and (destroyed | inside) & set(references(one[1:])):
                    inside.add(earlier)
            inside -= destroyed
    return found


def _alike(real: Any, ours: Any, dead: set[int]) -> bool:
    """Whether values are equal; the name of a handle that is gone equals any: addresses come back by chance."""
    if isinstance(real, list) and isinstance(ours, list):
        return len(real) == len(ours) and all(_alike(*pair, dead) for pair in zip(real, ours, strict=True))
    named = [one for one in (real, ours) if isinstance(one, str) and one[:1] == "="]
    return real == ours or any(int(one[1:].partition(".")[0]) in dead for one in named)


def _same(real: list[Any], ours: list[Any], dead: set[int]) -> bool:
    """Whether answers are equal: values count only where the call succeeded."""
    return bool(real[0] == ours[0]) and (real[0] != 0 or _alike(real, ours, dead))


def compare(  # noqa: C901, PLR0912 (the rules of what counts, in their order)
    seed: int, theme: str, program: Program, real: list[Answer], ours: list[Answer]
) -> Result:
    """Return the comparison of one program's answers."""
    result = Result(seed, theme)
    program = [[symbol.partition("@")[0], *arguments] for symbol, *arguments in program]  # in whichever thread
    dead = _dead(program)
    spoilt: set[int] = set()
    for number, call in enumerate(program):
        theirs = real[number] if number < len(real) else None
        own = ours[number] if number < len(ours) else None
        if theirs and own and WAITED in (theirs[-1], own[-1]):
            # calls that wait although no page of CUDA says so are counted apart; a wait of ours alone is a difference
            result.early += own[-1] != WAITED
            if theirs[-1] == WAITED:
                own = [one for one in own if one != WAITED]
            theirs = [one for one in theirs if one != WAITED]
        if theirs and theirs[0] == "signal":
            # the real driver died: whatever an emulated one answers is better
            break
        needed = {one for argument in call[1:] for one in references(argument)}
        if needed & (spoilt | dead[number][1]):
            # a handle that lay in a destroyed object may be alive again by chance, as an address that came back
            spoilt.add(number)
            result.left_out += 1
            if call[0] in CONTEXT_CHANGING:
                break
            continue
        if theirs is None or own is None:
            spoilt.add(number)
            result.left_out += 1
            if number >= len(real) or number >= len(ours):
                break
            continue
        if call[0] in LAUNCHES and theirs[0] == 0 and own[0] == 801:
            result.left_out += 1
            continue
        slower = theirs[0] == _NOT_READY and own[0] == 0 and theme != "order"
        faster = theirs[0] == 0 and own[0] == _NOT_READY and theme == "programs"
        if slower or faster:
            # how fast hardware is; work of an emulated driver without gates is done when a call returns
            result.left_out += 1
            continue
        result.counted += 1
        if _same(theirs, own, dead[number][0] | dead[number][1]):
            result.equal += 1
            continue
        codes = theirs[0] != own[0]
        result.differences.append(
            Difference(
                seed,
                number,
                call[0],
                str(theirs[0]) if codes else json.dumps(theirs[1:]),
                str(own[0] if own[0] != "signal" else own[1]) if codes else json.dumps(own[1:]),
            )
        )
        spoilt.add(number)
        if codes:
            # one driver changed its handles and the other did not
            spoilt |= needed
            if call[0] in CONTEXT_CHANGING or own[0] == "signal":
                break
    return result
