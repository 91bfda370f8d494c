"""Making a random program from a seed, the same with every release of Python."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any, TypeVar

from pytest_cudalink.emulator.recorder.execute import Program

from . import arguments
from .api import FUNCTIONS, KINDS, MAKERS, THEMES, WAITING, WORDS, WRITES, Function

T = TypeVar("T")

#: Pinned memory of a program about order: gates from 0 on, words from 1024 on, counters from 4096 on.
AREA_BYTES = 16384

#: Whose end takes everything else with it.
_ENDS = ("cuCtxDestroy_v2", "cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxRelease_v2", "cuCtxDetach")
_BY_SYMBOL = {function.symbol: function for function in reversed(FUNCTIONS)}


@dataclass
class Handle:
    """A value that a call of the program gives, and what the generator remembers of it."""

    kind: str
    reference: str
    facts: dict[str, Any] = field(default_factory=dict)


class Generator:
    """A program in the making."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.program: Program = []
        self.live: dict[str, list[Handle]] = {}
        self.dead: dict[str, list[Handle]] = {}
        self.call: list[Any] = []
        self.pending: list[Handle] = []
        self.gone: list[Handle] = []
        self.outs = 0
        self.careful = True
        self.depth = 0
        self.lost_context = False
        self.facts: dict[str, Any] = {}
        # of programs about order: pinned memory for gates, words and counters; filled device memory; closed gates
        self.area = self.filled = ""
        self.gates: list[str] = []
        self.closed: list[str] = []

    # chance, by nothing but random(), which no release of Python changes

    def chance(self, share: float) -> bool:
        """True in this share of the cases."""
        return self.random.random() < share

    def pick(self, several: Sequence[T]) -> T:
        return several[int(self.random.random() * len(several))]

    def weighted(self, several: Sequence[tuple[float, T]]) -> T:
        """One of several by weight."""
        place = self.random.random() * sum(weight for weight, _ in several)
        for weight, choice in several:
            place -= weight
            if place < 0:
                return choice
        return several[-1][1]

    def wrong(self, share: float = 0.35) -> bool:
        """True where this argument is to be invalid."""
        return not self.careful and self.chance(share)

    def number(self, valid: Sequence[int], invalid: Sequence[int] = ()) -> int:
        """A valid number, sometimes an invalid one."""
        return self.pick(invalid) if invalid and self.wrong() else self.pick(valid)

    # arguments of the call in the making

    def push(self, *arguments: Any) -> None:
        self.call += arguments
        self.outs += sum(map(self._outs, arguments))

    def _outs(self, argument: Any) -> int:
        if not isinstance(argument, list):
            return 0
        if argument[0] in ("o", "io"):
            return 1
        if argument[0] == "S":
            return (len(argument[3]) if len(argument) > 3 else 0) + sum(map(self._outs, argument[2].values()))
        if argument[0] in ("A", "P"):
            return sum(map(self._outs, argument[1]))
        return sum(map(self._outs, argument[2])) if argument[0] == "L" else 0

    def make(self, kind: str, place: int, **facts: Any) -> Handle:
        """Note that the call gives a handle as its value number `place`."""
        handle = Handle(kind, f"${len(self.program)}" + (f".{place}" if place else ""), facts)
        self.pending.append(handle)
        return handle

    def need(self, kind: str) -> Handle | None:
        """A live handle of a kind; a call that makes one goes in front when there is none."""
        if not self.live.get(kind) and kind in MAKERS and self.depth < 3:
            self.emit_symbol(self.pick(MAKERS[kind].split()))
        handles = self.live.get(kind)
        if not handles:
            return None
        # younger ones more often
        return handles[-1] if self.chance(0.5) else self.pick(handles)

    def handle(self, kind: str, optional: bool = False) -> Any:
        """A handle as an argument: mostly alive."""
        if optional and self.chance(0.35):
            return self.pick((0, 0, 0, 1, 2)) if kind == "stream" else 0
        if not self.careful and self.chance(0.3):
            what = self.random.random()
            if what < 0.5:
                return 0
            if what < 0.64 and self.dead.get(kind):
                return self.pick(self.dead[kind]).reference
            if 0.64 <= what < 0.73:
                others = [handle for name in KINDS for handle in self.live.get(name, ()) if name != kind]
                if others:
                    return self.pick(others).reference
            if 0.73 <= what < 0.75:
                return self.pick((16, 4096, 3735928559))
        handle = self.need(kind)
        return handle.reference if handle else 0

    def pointer(self, kinds: Sequence[str] = ("dptr", "mptr", "aptr", "va")) -> tuple[Any, int]:
        """A pointer to device memory and its size."""
        if self.wrong(0.2):
            return self.handle(self.pick(kinds)), 64
        alive = [handle for kind in kinds for handle in self.live.get(kind, ())]
        handle = self.pick(alive) if alive else self.need(kinds[0])
        return (handle.reference, handle.facts.get("size", 64)) if handle else (0, 64)

    def of_type(self, kind: str, **facts: Any) -> Handle | None:
        """A live handle of which these facts are true; None without one."""
        fitting = [h for h in self.live.get(kind, ()) if all(h.facts.get(k) == v for k, v in facts.items())]
        return self.pick(fitting) if fitting else None

    # calls

    def emit_symbol(self, symbol: str) -> None:
        """Append a valid call of a function."""
        self.emit(_BY_SYMBOL[symbol], careful=True)

    def emit(self, function: Function, careful: bool | None = None) -> None:  # noqa: C901, PLR0912 (in its order)
        """Append a call of a function, and in front of it what makes its handles."""
        saved = self.call, self.pending, self.gone, self.outs, self.careful, self.facts
        self.depth += 1
        careful = self.chance(0.75) if careful is None else careful
        # what is missing is made first, so that the number of this call is known
        self.careful = careful
        for _ in range(4):
            before = len(self.program)
            state = self.random.getstate()
            self.call, self.pending, self.gone, self.outs, self.facts = [function.symbol], [], [], 0, {}
            for word in function.parameters:
                if (made := self.value(word)) is not None:
                    self.push(made)
            if len(self.program) == before:
                break
            self.random.setstate(state)
        else:
            self.pending = []
        self.program.append(self.call)
        for handle in self.pending:
            handle.facts = {**self.facts, **handle.facts}
            self.live.setdefault(handle.kind, []).append(handle)
        for handle in self.gone:
            if handle in self.live.get(handle.kind, []):
                self.live[handle.kind].remove(handle)
                self.dead.setdefault(handle.kind, []).append(handle)
        symbol = function.symbol
        if symbol in _ENDS and self.chance(0.7):
            for kind, handles in self.live.items():
                self.dead.setdefault(kind, []).extend(handles)
                self.live[kind] = []
        if symbol in ("cuCtxPopCurrent_v2", *_ENDS):
            self.lost_context = True
        elif symbol.startswith("cuCtxCreate") or symbol == "cuCtxPushCurrent_v2":
            self.lost_context = False
        elif symbol == "cuCtxSetCurrent":
            self.lost_context = self.call[1] == 0
        self.depth -= 1
        self.call, self.pending, self.gone, self.outs, self.careful, self.facts = saved

    def value(self, word: str) -> Any:  # noqa: C901, PLR0911 (a branch for each sign)
        """What a word stands for; None for one that has pushed its arguments itself."""
        sign, rest = word[0], word[1:]
        if share := re.match(r"(\d+)%", word):
            return 0 if self.wrong(int(share[1]) / 100) else self.value(word[share.end() :])
        if rest[:1] == "(":
            valid, invalid = _choices(rest[1:-1])
            number = self.pick(valid) if sign == "p" else self.number(valid, invalid)
            if sign == "s":
                self.facts["size"] = number
            return number
        if sign == "@":
            name, _, detail = rest.partition(":")
            return self.value(WORDS[name]) if name in WORDS else getattr(arguments, name)(self, *filter(None, [detail]))
        if sign == ">":
            return self._written(rest)
        if sign == "<":
            letter, _, before = rest.removeprefix(">").partition("=")
            return ["io", letter, self.value(before)] if before else ["o", letter[0], int(letter[1:])]
        if sign == "~":
            reference = self.handle(rest)
            self.gone += [handle for handle in self.live.get(rest, ()) if handle.reference == reference]
            return reference
        if sign == "{":
            reads = [word for word in rest[:-1].split()[1:] if "=" not in word]
            return ["S", rest.split()[0], self._set(rest), *([reads] if reads else [])]
        if sign == "[":
            letter, *several = rest[:-1].split()
            return ["L", letter, [self.value(argument) for argument in several]]
        if sign == "*":
            return self.pointer()[0]
        if word == "dev":
            return self.number((0,), (1, -1, 99))
        if sign == "?":
            return self.handle(rest, optional=True)
        return self.handle(word) if word in KINDS else _literal(word)

    def _written(self, kind: str) -> Any:
        """Room for a value or a handle, sometimes NULL."""
        known, kind = kind.startswith("="), kind.removeprefix("=")
        if self.wrong(0.06):
            return 0
        if kind in KINDS:
            self.make(kind, self.outs)
            return ["o", ("H" if known else "h") + KINDS[kind]]
        return ["o", "X" if kind == "x4" else kind[0], *([int(kind[1:])] if kind[1:] else [])]

    def fields(self, name: str, prefix: str = "") -> dict[str, Any]:
        """The fields that a structure of arguments.txt sets."""
        return self._set(WORDS[name].partition("{")[2], prefix)

    def _set(self, words: str, prefix: str = "") -> dict[str, Any]:
        pairs = (word.split("=", 1) for word in words.rstrip("}").split() if "=" in word)
        return {f"{prefix}{field}": self.value(word) for field, word in pairs}


@cache
def _choices(text: str) -> list[list[Any]]:
    """What stands on either side of the bar."""
    return [[_literal(word) for word in side.split(",")] if side else [] for side in text.partition("|")[::2]]


def _literal(text: str) -> Any:
    """A number, such as 2^20, or a text."""
    base, _, power = text.partition("^")
    try:
        return float(text) if "." in text else int(base) ** int(power or 1)
    except ValueError:
        return text


def _start(generator: Generator) -> None:
    """The calls that most programs begin with."""
    if not generator.chance(0.02):
        generator.emit_symbol("cuInit")
    how = generator.random.random()
    if how < 0.05:
        return
    if how < 0.55:
        generator.emit_symbol("cuDevicePrimaryCtxRetain")
        generator.program.append(["cuCtxSetCurrent", f"${len(generator.program) - 1}"])
    else:
        generator.emit_symbol(generator.pick(MAKERS["ctx"].split()[:2]))


def _start_order(generator: Generator) -> None:
    """What programs about order begin with: a context in both threads, pinned memory, filled device memory."""
    program = generator.program
    generator.emit_symbol("cuInit")
    generator.emit_symbol("cuDevicePrimaryCtxRetain")
    program += [["cuCtxSetCurrent", "$1"], ["cuCtxSetCurrent@1", "$1"]]
    generator.area = f"${len(program)}"
    program += [["cuMemHostAlloc", ["o", "h"], AREA_BYTES, 0], ["!clear", generator.area, AREA_BYTES]]
    generator.filled = f"${len(program)}"
    program += [["cuMemAlloc_v2", ["o", "h"], 4096], ["cuMemsetD32_v2", generator.filled, 7, 1024]]
    program += [["cuCtxSynchronize"]]
    for _ in range(2):
        generator.emit_symbol("cuStreamCreate")


def _step_order(generator: Generator, function: Function) -> None:
    """A step of a program about order: open a gate, read a word, or call a function in one of two threads."""
    program = generator.program
    if generator.closed and generator.chance(0.12):
        program.append(["!open", generator.closed.pop(int(generator.random.random() * len(generator.closed)))])
        return
    written = _written(program)
    if written and generator.chance(0.1):
        program.append(["!read", generator.pick(written)])
        return
    if generator.closed and function.symbol in WAITING and not generator.chance(0.1):
        return
    generator.emit(function, careful=generator.chance(0.9))
    if program[-1][0].startswith("cuStreamWaitValue") and str(program[-1][2]).startswith(f"{generator.area}+"):
        generator.gates.append(program[-1][2])
        generator.closed.append(program[-1][2])
    if generator.chance(0.3):
        program[-1][0] += "@1"


def _written(program: Program) -> list[str]:
    """The words and counters that a program's work writes."""
    written = [call[WRITES[name]] for call in program if (name := call[0].partition("@")[0]) in WRITES]
    return [reference for reference in written if isinstance(reference, str) and "+" in reference]


def _end_order(generator: Generator) -> None:
    """What they end with: open gates, and all words."""
    program = generator.program
    program += [*(["!open", handle] for handle in generator.closed), ["cuCtxSynchronize"]]
    program += [["!read", reference] for reference in _written(program)]


def generate(seed: int, length: int = 40, theme: str | None = None) -> tuple[str, Program]:
    """The theme and the calls of a seed's program."""
    generator = Generator(seed)
    if 50000 <= seed % 100000 < 60000:
        theme = "order"
    theme = theme or generator.weighted([(share, name) for name, (share, _) in THEMES.items()])
    groups = THEMES[theme][1]
    per_group = Counter[str]()
    for function in FUNCTIONS:
        per_group[function.group] += function.weight
    # a program has some groups only, so that it comes to states which need several calls
    chosen = {name: weight for name, weight in groups.items() if weight >= 8 or generator.chance(0.6)}
    table = [
        # some of the functions more often than others
        (
            chosen[function.group] * function.weight / per_group[function.group] * generator.pick((0.3, 1.0, 3.0)),
            function,
        )
        for function in FUNCTIONS
        if function.group in chosen
    ]
    if theme == "order":
        _start_order(generator)
        while len(generator.program) < length:
            _step_order(generator, generator.weighted(table))
        _end_order(generator)
        return theme, generator.program
    _start(generator)
    while len(generator.program) < length:
        if generator.lost_context and generator.chance(0.4):
            generator.emit_symbol(generator.pick(("cuCtxSetCurrent", "cuCtxPushCurrent_v2")))
        else:
            generator.emit(generator.weighted(table))
    return theme, generator.program
