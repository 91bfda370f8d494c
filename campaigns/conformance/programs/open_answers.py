"""Answers of random programs that hardware is free in: those of time, of a machine, and of handles of another kind.

A recorded answer of these is left out. `hasty` says which answers time decides: in a program about order a query says
"done" or "not ready", and a word was written or not. Hardware may hold work up that nothing in the program holds up
(busy engines and threads, queues that streams share), so where it was not done and the emulated driver is, the answer
is open, unless the program itself says that the work is not done: a closed gate stands in front of it, in its stream,
in the legacy stream as far as the two wait for each other, or behind an event. Where hardware is done, the emulated
driver must be.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from pytest_cudalink.emulator.recorder.execute import NOT_READY, QUERIES, Answer, Program
from pytest_cudalink.emulator.recorder.grade import ENDS, references

from .api import FUNCTIONS, KINDS, WRITES
from .gates import WAITED

#: Functions that put work into a stream, with the position of the stream behind their name.
_WORK = {
    "cuLaunchHostFunc": 1, "cuStreamWriteValue32_v2": 1, "cuStreamWaitValue32_v2": 1, "cuStreamWaitValue64_v2": 1,
    "cuMemcpyDtoHAsync_v2": 4, "cuMemcpyHtoDAsync_v2": 4, "cuMemcpyDtoDAsync_v2": 4, "cuMemcpyAsync": 4,
    "cuMemsetD8Async": 4, "cuMemsetD16Async": 4, "cuMemsetD32Async": 4,
}  # fmt: skip
#: A live handle of a kind, as functions.txt writes it.
_SIGNS = "?~"


def _steps(*sides: Any) -> Iterator[tuple[int, str, list[Any], Any, Any]]:
    """Each call of a program with its number and symbol, and both answers."""
    for number, (call, theirs, own) in enumerate(zip(*sides, strict=False)):
        yield number, call[0].partition("@")[0], call, theirs, own


@dataclass
class _Order:
    """The closed gates that stand in front of each stream, event and word."""

    flags: dict[Any, bool] = field(default_factory=dict)  # of a stream that was made: whether it is a blocking one
    streams: dict[Any, set[str]] = field(default_factory=dict)
    events: dict[Any, set[str]] = field(default_factory=dict)
    words: dict[Any, set[str]] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    captures: set[Any] = field(default_factory=set)  # streams and events whose work goes into a graph

    def stream(self, argument: Any, thread: str) -> Any:
        return f"own{thread}" if argument == 2 else 0 if argument in (0, 1) else argument

    def blocking(self, stream: Any) -> bool:
        return self.flags.get(stream, str(stream).startswith("own"))

    def before(self, stream: Any) -> set[str]:
        """What stands in front of new work in a stream; that of the legacy stream waits for every blocking one."""
        mine = self.streams.setdefault(stream, set())
        if stream == 0:
            for reference, gates in self.streams.items():
                if self.blocking(reference):
                    mine |= gates
        elif self.blocking(stream):
            mine |= self.streams.get(0, set())
        return mine

    def step(self, number: int, call: list[Any]) -> None:  # noqa: C901 (a branch for each kind of call)
        """Follow a call that succeeded."""
        symbol, _, thread = call[0].partition("@")
        if symbol == "!open":
            self.closed.discard(call[1])
        elif symbol.startswith("cuStreamCreate"):
            self.flags[f"${number}"] = not call[2] & 1
        elif symbol.startswith("cuStreamBeginCapture"):
            self.captures.add(self.stream(call[1], thread))
        elif symbol == "cuStreamEndCapture":
            self.captures.clear()
        elif symbol in _WORK:
            stream = self.stream(call[_WORK[symbol]], thread)
            if stream in self.captures:
                return
            gates = self.before(stream)
            if symbol.startswith("cuStreamWaitValue"):
                gates.add(call[2])
                self.closed.add(call[2])
            if symbol in WRITES:
                self.words[call[WRITES[symbol]]] = set(gates)
        elif symbol.startswith("cuEventRecord"):
            stream = self.stream(call[2], thread)
            self.events[call[1]] = set(self.before(stream)) if stream not in self.captures else set()
            (self.captures.add if stream in self.captures else self.captures.discard)(call[1])
        elif symbol == "cuStreamWaitEvent":
            stream = self.stream(call[1], thread)
            if call[2] in self.captures:
                self.captures.add(stream)
            elif stream not in self.captures:
                self.streams.setdefault(stream, set()).update(self.events.get(call[2], ()))

    def holds(self, call: list[Any]) -> bool:
        """Whether a closed gate stands in front of what a query or a look at a word is about."""
        symbol, _, thread = call[0].partition("@")
        if symbol == "!read":
            gates = self.words.get(call[1], set())
        elif symbol == "cuStreamQuery":
            gates = self.streams.get(self.stream(call[1], thread), set())
        else:
            gates = set().union(*(self.events.get(argument, ()) for argument in call[1:] if isinstance(argument, str)))
        return bool(gates & self.closed)


def done(call: list[Any], answer: Answer) -> bool | None:
    """Whether the answer of a query or of a look at a word says that work is done; None for other calls and answers."""
    symbol = call[0].partition("@")[0]
    if not answer:
        return None
    if symbol == "!read":
        return bool(answer[-1])
    return bool(answer[0] == 0) if symbol in QUERIES and answer[0] in (0, NOT_READY) else None


def hasty(program: Program, real: list[Answer], ours: list[Answer]) -> Iterator[int]:
    """The calls of a program about order whose work hardware was free to hold up, and the emulated driver has done."""
    order = _Order()
    for number, _, call, theirs, own in _steps(program, real, ours):
        if done(call, theirs) is False and done(call, own) and not order.holds(call):
            yield number
        if WAITED in (theirs or [])[1:]:
            order.closed.clear()
        if theirs and theirs[0] == 0:
            order.step(number, call)


def _makers() -> dict[tuple[str, int], str]:
    """Which kind of handle a function gives as its value number so and so."""
    kinds: dict[tuple[str, int], str] = {}
    for function in FUNCTIONS:
        written = [parameter for parameter in function.parameters if parameter[0] == ">"]
        if len(written) == sum(parameter[0] in ">@" for parameter in function.parameters):
            kinds |= {(function.symbol, at): parameter[1:].removeprefix("=") for at, parameter in enumerate(written)}
    return kinds


_MAKES = _makers()
_TAKES = {function.symbol: function.parameters for function in FUNCTIONS}
#: Kinds of pointers, which many functions take for each other.
_POINTERS = {"dptr", "mptr", "aptr", "hptr", "reg", "va"}


def strangers(program: Program, real: list[Answer], ours: list[Answer]) -> Iterator[int]:
    """The calls that both drivers refuse, and that were given a handle of another kind, such as an event as stream.

    A handle is an address to the driver, which reads whatever the object of the other kind has there: the code is an
    accident of that memory. That of NULL, and of an object that was destroyed, is compared.
    """
    for number, _, call, theirs, own in _steps(program, real, ours):
        for kind, argument in _objects(call) if _refused(theirs) and _refused(own) else ():
            if kind in _POINTERS:
                continue
            if argument[0] == "@":
                yield number  # memory of the program, which is not a handle at all
                continue
            maker, _, place = argument[1:].partition("+")[0].partition(".")
            if _MAKES.get((program[int(maker)][0].partition("@")[0], int(place or 0)), kind) != kind:
                yield number


def _destroyed(program: Program, real: list[Answer]) -> list[frozenset[int]]:
    """For each call the earlier ones whose objects had been destroyed by then."""
    gone, states = frozenset[int](), []
    for _, symbol, call, theirs, _own in _steps(program, real, real):
        states.append(gone)
        if theirs and theirs[0] == 0 and symbol in ENDS:
            gone |= {*references(call[ENDS[symbol] + 1])}
    return states


def _refused(answer: Answer) -> bool:
    return bool(answer and isinstance(answer[0], int) and answer[0] not in (0, NOT_READY))


def machine(program: Program, real: list[Answer], ours: list[Answer]) -> Iterator[int]:
    """The calls about multicast on a machine that has it: it needs a fabric, and two machines with an H100 differ."""
    for number, _, call, theirs, _own in _steps(program, real, real):
        if call[0] == "cuMulticastGetGranularity" and theirs and theirs[0] in (0, 1):
            yield number


def ended_contexts(  # noqa: C901 (a branch for each kind of call)
    program: Program, real: list[Answer]
) -> list[frozenset[int]]:
    """For each call the earlier ones whose objects were in a context that had ended by then."""
    current: list[Any] = [None]
    context: dict[int, Any] = {}
    retained, gone, states = 0, frozenset[int](), []
    names: dict[str, Any] = {}  # what stands for a context that a call gave again
    for number, symbol, call, theirs, _ in _steps(program, real, real):
        states.append(gone)
        context[number] = current[-1]
        if not theirs or theirs[0] != 0:
            continue
        own, ends = f"${number}", cast("Any", None)
        match symbol:
            case "cuDevicePrimaryCtxRetain":
                retained += 1
                names[own] = "primary"
            case "cuCtxGetCurrent" | "cuCtxAttach":
                names[own] = current[-1]
            case "cuCtxCreate_v2" | "cuCtxCreate_v3" | "cuCtxCreate_v4":
                current.append(own)
            case "cuCtxSetCurrent":
                current[-1:] = [names.get(str(call[1]), call[1])]
            case "cuCtxPushCurrent_v2":
                current.append(names.get(str(call[1]), call[1]))
            case "cuCtxPopCurrent_v2":
                current = current[:-1] or [None]
            case "cuDevicePrimaryCtxRelease_v2":
                retained -= 1
                ends = "primary" if not retained else None
            case "cuDevicePrimaryCtxReset_v2":
                ends = "primary"
            case "cuCtxDestroy_v2" | "cuCtxDetach":
                ends = names.get(str(call[1]), call[1])
        if ends:
            gone |= {owned for owned, where in context.items() if ends in (where, names.get(f"${owned}"), f"${owned}")}
    return states


def _objects(call: list[Any]) -> Iterator[tuple[str, str]]:
    """The kinds of handles that a call takes, with what it is given."""
    for word, argument in zip(_TAKES.get(call[0].partition("@")[0], ()), call[1:], strict=False):
        kind = word.lstrip(_SIGNS)
        if kind in KINDS and isinstance(argument, str):
            yield kind, argument


def left_behind(program: Program, real: list[Answer], ours: list[Answer]) -> Iterator[int]:
    """The calls that both drivers refuse, and that were given an object after its end or after that of its context.

    cuda.h: to pass resources of a destroyed context "will result in undefined behavior". Hardware has refused a
    destroyed event with 400, 709, 201 and 1.
    """
    ended, destroyed = ended_contexts(program, real), _destroyed(program, real)
    for number, _, call, theirs, own in _steps(program, real, ours):
        if _refused(theirs) and _refused(own):
            used = {reference for _, argument in _objects(call) for reference in references(argument)}
            if used & (destroyed[number] | ended[number]):
                yield number


def addresses(program: Program, real: list[Answer], ours: list[Answer]) -> Iterator[int]:
    """The calls whose answer depends on what lies at an address that the program has no claim to.

    That is a range that goes on behind its reservation, and memory that was freed, where one driver has given the
    address out again and the other has not: one refuses it, or dies of it, and the other does not. So is the base of
    the mapping that a driver puts several small allocations of managed memory into.
    """
    freed = set[int]()
    same: dict[int, int] = {}  # calls that gave an address again, with the first one that gave it
    for number, symbol, call, theirs, own in _steps(program, real, ours):
        if not theirs or not own:
            continue
        used = {same.get(reference, reference) for reference in references(call[1:])}
        was_freed = {theirs[0], own[0]} in ({0, 1}, {0, "signal"}) and used & freed
        is_base = symbol == "cuPointerGetAttribute" and call[2] == _MAPPING_BASE and theirs[0] == own[0] == 0
        if was_freed or is_base or (symbol == "cuMemUnmap" and _goes_on(program, call)):
            yield number
        if theirs[0] == 0 and isinstance(theirs[-1], (int, str)):
            for name in (argument for argument in theirs[1:] if isinstance(argument, str) and argument[:1] == "="):
                same[number] = int(name[1:].partition(".")[0])
        if theirs[0] == 0 and symbol in _FREES:
            freed |= used


_MAPPING_BASE = 19
_FREES = ("cuMemFree_v2", "cuMemFreeAsync", "cuMemFreeHost", "cuMemHostUnregister", "cuMemAddressFree")


def _goes_on(program: Program, call: list[Any]) -> bool:
    """Whether a range goes on behind the reservation that it begins in."""
    number, _, offset = str(call[1]).removeprefix("$").partition("+")
    maker = program[int(number)] if number.isdecimal() and int(number) < len(program) else [""]
    return maker[0] == "cuMemAddressReserve" and int(offset or 0) + call[2] > maker[2]


def undefined(program: Program, real: list[Answer], ours: list[Answer]) -> Iterator[int]:
    """The calls that cuda.h calls undefined, and those that read behind what the program gives.

    It is "undefined behavior to release references not owned by the caller, or to use a user object handle after all
    references are released"; a count of two descriptions in front of one reads whatever lies behind it; and an object
    with a view of a destroyed array describes memory that is gone.
    """
    released, destroyed = set[str](), _destroyed(program, real)
    for number, symbol, call, *_ in _steps(program, real, real):
        if symbol in ("cuMemPoolSetAccess", "cuMemSetAccess") and isinstance(call[-2], list) and call[-1] > 1:
            yield number
        of_user = symbol.startswith(("cuUserObject", "cuGraphRetainUser", "cuGraphReleaseUser"))
        if of_user and released & {*map(str, call)}:
            yield number
        if symbol == "cuGraphReleaseUserObject" or (symbol == "cuUserObjectRelease" and call[2] != 0):
            released.add(str(call[2 if symbol == "cuGraphReleaseUserObject" else 1]))
        if symbol in ("cuTexObjectGetResourceDesc", "cuSurfObjectGetResourceDesc"):
            viewed = {deep for reference in references(call[2]) for deep in references(program[reference][1:])}
            if viewed & destroyed[number]:
                yield number


def shared_pages(program: Program, real: list[Answer], ours: list[Answer]) -> Iterator[int]:
    """The calls about the pages of managed memory that may be those of another allocation, too.

    A driver puts several small allocations into one page, so that what was advised, prefetched and written for one,
    also before it was freed, is reported of the other: where they lie is not promised.
    """
    made = 0
    for number, _, call, theirs, _own in _steps(program, real, real):
        made += call[0] in ("cuMemAllocManaged", "cuLibraryGetManaged") and bool(theirs and theirs[0] == 0)
        if call[0].startswith("cuMemRangeGetAttribute") and made > 1:
            yield number


def left_open(theme: str, program: Program, real: list[Answer], ours: list[Answer]) -> dict[str, set[int]]:
    """The calls of a program whose recorded answers are not compared, by the reason."""
    reasons = (machine, strangers, left_behind, addresses, undefined, shared_pages, *[hasty] * (theme == "order"))
    return {reason.__name__: {*reason(program, real, ours)} for reason in reasons}
