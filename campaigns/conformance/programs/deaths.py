"""Which calls end the process: ``python -m campaigns.conformance.programs.deaths OUT.json.xz`` records it.

A question is a valid call of functions.txt with one thing that is wrong: an argument or a field is NULL, or a handle
that was destroyed, or everything is of a context that was destroyed. Each runs in a child. What memory of a destroyed
object holds is up to the allocator: those questions are asked twice, the second time with an allocator that overwrites
what is freed.
"""

import argparse
import copy
import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import reduce
from itertools import product
from operator import getitem
from pathlib import Path
from typing import Any, Final

from pytest_cudalink.emulator.recorder.execute import Answer, Program, execute
from pytest_cudalink.emulator.recorder.record import load, save

from .api import FUNCTIONS, KINDS, Function
from .generate import Generator, Handle
from .images import image
from .record import record as recorded

#: How many programs of a function are looked at: together they have every field that a handle can be in.
_SEEDS: Final = 24
#: The signs of parameters that take a pointer of the caller.
_POINTERS: Final = ("o", "io", "S", "A", "L", "P")
_ENDS: Final = {
    "ctx": "cuCtxDestroy_v2", "stream": "cuStreamDestroy_v2", "event": "cuEventDestroy_v2", "mod": "cuModuleUnload",
    "lib": "cuLibraryUnload", "link": "cuLinkDestroy", "dptr": "cuMemFree_v2", "mptr": "cuMemFree_v2",
    "hptr": "cuMemFreeHost", "reg": "cuMemHostUnregister", "pool": "cuMemPoolDestroy", "vmh": "cuMemRelease",
    "arr": "cuArrayDestroy", "mip": "cuMipmappedArrayDestroy", "tex": "cuTexObjectDestroy",
    "surf": "cuSurfObjectDestroy", "texref": "cuTexRefDestroy", "graph": "cuGraphDestroy",
    "node": "cuGraphDestroyNode", "exec": "cuGraphExecDestroy", "gctx": "cuGreenCtxDestroy",
}  # fmt: skip
_PRIMARY, _CREATED = "$1", "$3"


@dataclass(frozen=True)
class Question:
    """A call with one thing that is wrong."""

    symbol: str
    place: str  # of the argument, from 0 on, and of a field in it: "2", "1.hStream"; "" for "orphan"
    wrong: str  # "null", "dead" or "orphan": its context was destroyed
    kind: str  # of the handle, as functions.txt names it; "pointer" for memory of the caller, "" for "orphan"
    program: Program  # the call is the last

    @property
    def key(self) -> str:
        """What identifies it in a recording."""
        return " ".join((self.symbol, self.wrong, self.place or "-", self.kind or "-"))


def _generator(function: Function, seed: int, *, orphan: bool) -> Generator:
    """A program that has a primary context and another one; the other is current if it is to be destroyed."""
    generator = Generator(seed)
    generator.program = [
        ["cuInit", 0],
        ["cuDevicePrimaryCtxRetain", ["o", "H"], 0],
        ["cuCtxSetCurrent", _PRIMARY],
        ["cuCtxCreate_v2", ["o", "h"], 0, 0],
    ]
    if not orphan:
        generator.program.append(["cuCtxPopCurrent_v2", ["o", "H"]])
    generator.live["ctx"] = [Handle("ctx", _CREATED)]
    if function.group == "green":
        generator.emit_symbol("cuDeviceGetDevResource")
    return generator


def _places(argument: Any, path: str, steps: tuple[Any, ...]) -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """Each part of an argument that may be a handle or a pointer, with its place, and the steps that lead there."""
    yield path, argument, steps
    if not isinstance(argument, list) or argument[0] not in ("S", "A", "P", "L"):
        return
    at = 1 if argument[0] in ("A", "P") else 2
    named = argument[at].items() if argument[0] == "S" else enumerate(argument[at])
    for name, one in named:
        yield from _places(one, f"{path}.{name}" if argument[0] == "S" else f"{path}[{name}]", (*steps, at, name))


def _without(call: list[Any], steps: tuple[Any, ...]) -> list[Any]:
    """A call with NULL where some steps lead."""
    changed = copy.deepcopy(call)
    *before, last = steps
    reduce(getitem, before, changed)[last] = 0  # type: ignore[arg-type]
    return changed


def _kind(generator: Generator, value: Any) -> str:
    """The kind of handle that a value is; "pointer" for memory of the caller, "" for a number."""
    if isinstance(value, list):
        return "pointer" if value[0] in _POINTERS else ""
    if not isinstance(value, str):
        return ""
    if value[0] != "$":
        return "pointer" if value[0] in "@!'&" else ""
    reference = value.partition("+")[0]
    for handles in (generator.live, generator.dead):
        for kind, several in handles.items():
            if any(one.reference == reference for one in several):
                return kind
    return ""


def _ending(program: Program, kind: str, value: str) -> list[tuple[str, Program]]:
    """How a handle ends: what to call it then, and the calls."""
    reference = value.partition("+")[0]
    number = int(reference[1:].partition(".")[0])
    maker = program[number]
    if kind == "aptr":
        free: Program = [["cuMemFreeAsync", reference, 0]]
        return [(kind, [*free, ["cuStreamSynchronize", 0]]), (f"{kind} not synchronized", free)]
    if kind == "va":
        return [(kind, [["cuMemAddressFree", reference, maker[2]]])]
    if kind == "uobj":
        return [(kind, [["cuUserObjectRelease", reference, maker[4]]])]
    if kind == "note":
        return [(kind, [["cuDeviceUnregisterAsyncNotification", 0, reference]])]
    if kind == "log":
        return [(kind, [["cuLogsUnregisterCallback", reference]])]
    if kind == "fun" and maker[0] == "cuModuleGetFunction":
        return [(kind, [["cuModuleUnload", maker[2]]])]
    if kind == "ker" and maker[0] == "cuLibraryGetKernel":
        return [(kind, [["cuLibraryUnload", maker[2]]])]
    found: list[tuple[str, Program]] = []
    if kind in ("node", "cond") and maker[0].startswith(("cuGraphAdd", "cuGraphConditional")):
        found.append((f"{kind} of a graph", [["cuGraphDestroy", maker[2]]]))
    if kind in _ENDS and (kind != "pool" or maker[0] == "cuMemPoolCreate"):
        found.append((kind, [[_ENDS[kind], reference]]))
    return found


def _wrong(function: Function, generator: Generator, *, orphan: bool) -> Iterator[Question]:
    """The questions that come from a valid program."""
    *before, call = generator.program
    kinds: set[str] = set()
    parts = (one for at, argument in enumerate(call[1:]) for one in _places(argument, str(at), (at + 1,)))
    for place, value, steps in parts:
        kind = _kind(generator, value)
        kinds.add(kind)
        if orphan or not kind or (kind == "pointer" and "[" in place):
            continue
        yield Question(function.symbol, place, "null", kind, [*before, _without(call, steps)])
        for name, calls in _ending(generator.program, kind, value) if kind in KINDS else ():
            yield Question(function.symbol, place, "dead", name, [*before, *calls, call])
    if orphan and kinds - {"", "pointer", "ctx"}:
        ends: Program = [["cuCtxDestroy_v2", _CREATED], ["cuCtxSetCurrent", _PRIMARY]]
        yield Question(function.symbol, "", "orphan", "", [*before, *ends, call])


def _is_valid(program: Program, library: ctypes.CDLL) -> bool:
    """Whether a driver takes all calls."""
    answers = execute(program, library, seconds=10, images=image, aliases=False)
    return len(answers) == len(program) and all(one and one[0] in (0, "missing") for one in answers)


def choose(library: ctypes.CDLL) -> list[Question]:
    """All questions; from programs that a driver takes where there are such."""
    taken: dict[str, Question] = {}
    others: dict[str, Question] = {}
    for function in FUNCTIONS:
        if function.symbol == "cuInit" or function.group == "gate":
            continue
        for seed, orphan in product(range(_SEEDS), (False, True)):
            generator = _generator(function, seed, orphan=orphan)
            generator.emit(function, careful=True)
            fresh = [one for one in _wrong(function, generator, orphan=orphan) if one.key not in taken]
            if fresh:
                into = taken if _is_valid(generator.program, library) else others
                for one in fresh:
                    into.setdefault(one.key, one)
    return list({**others, **taken}.values())


def _overwrites(pick: Callable[[str], tuple[str, Program]]) -> Callable[[str], tuple[str, Program]]:
    """The same programs, run with an allocator that overwrites what is freed."""

    def picked(key: str) -> tuple[str, Program]:
        ctypes.CDLL(None).mallopt(-6, 165)  # M_PERTURB, of glibc
        return pick(key)

    return picked


def _answer(program: Program, answers: list[Answer]) -> list[Any]:
    """What the last call answered: its code, or the signal; what failed before it; the call that a signal ended."""
    codes = ["missing" if one is None else one[-1] if one[0] == "signal" else one[0] for one in answers]
    *before, found = codes
    early = [[number, program[number][0], code] for number, code in enumerate(before) if code]
    found = "hangs" if found == "SIGALRM" else found
    return [found, *([early] if early else []), *([len(before)] if len(codes) < len(program) else [])]


def record(several: list[Question], processes: int, seconds: float) -> dict[str, Any]:
    """The recording: of each question what it answered, and with an allocator that overwrites what is freed."""
    programs = {one.key: one.program for one in several}
    found: dict[str, Any] = {}
    rows: dict[str, list[Any]] = {key: [program, None, None] for key, program in sorted(programs.items())}

    def pick(key: str) -> tuple[str, Program]:
        *before, (symbol, *arguments) = programs[key]
        # what is written there may be no address of a text
        return "", [*before, [symbol, *(["o", "x"] if one == ["o", "s"] else one for one in arguments)]]

    dangling = [one.key for one in several if one.wrong != "null"]
    for place, (keys, make) in enumerate(((list(programs), pick), (dangling, _overwrites(pick))), 1):
        found = recorded(keys, processes, seconds / 2, make=make, aliases=False)
        for key, _, program, answers in found.pop("programs"):
            rows[key][place] = _answer(program, answers)
    return {**found, "rows": {key: row for key, row in rows.items() if row[1] or row[2]}}


def main() -> int:
    """Choose questions, or record and write one file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--choose", action="store_true", help="write the questions; on an emulated driver")
    parser.add_argument("--questions", type=Path, help="what --choose wrote")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=220, help="stop after this time with what is there")
    parser.add_argument("--add-to", type=Path, help="a recording of this driver, whose answers are kept")
    options = parser.parse_args()
    started = time.monotonic()
    if options.choose:
        several = choose(ctypes.CDLL("libcuda.so.1"))
        save(options.out, [asdict(one) for one in several])
        print(f"{len(several)} questions in {time.monotonic() - started:.0f} s")
        return 0
    earlier = load(options.add_to)["rows"] if options.add_to else {}
    several = [one for one in (Question(**one) for one in load(options.questions)) if one.key not in earlier]
    found = record(several, options.processes, options.seconds)
    print(f"{len(found['rows'])} of {len(several)} questions in {time.monotonic() - started:.0f} s")
    save(options.out, {**found, "rows": dict(sorted({**earlier, **found["rows"]}.items()))})
    return 0 if found["rows"] else 2


if __name__ == "__main__":
    sys.exit(main())
