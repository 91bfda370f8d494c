"""The plan of a fault sweep: which call of a test fails next; and what is wrong with the run in which it failed."""

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ...base.tables import grouped
from ...emulator.control import DriverState
from ...report.naming import Error, Raised, Said, new, tells
from .reruns import RerunTotals

#: Kinds of findings, worst first, each with what the test or its code did.
KINDS: Final = {
    "crash": "the process died",
    "hang": "the test did not end",
    "violation": "a rule of the driver was broken",
    "later": "a later test fails",
    "leak": "something stayed alive",
    "state": "later calls meet another state",
    "swallowed": "the test passed, and nothing noticed the error",
    "no-cause": "the test failed without naming the error",
}
#: Parts of the names of functions that free or destroy. Their resource stays allocated even if the error is handled.
_RELEASES: Final = re.compile(r"Free|Destroy|Unload|Release|Unmap|Unregister|Unbind|Close|Reset|Pop|Detach")
#: Parts of the names of those that destroy what owns other objects, which then stay, too.
_OWNERS: Final = re.compile(r"Ctx|Graph|Pool|Module|Library|UserObject")
#: Functions that change the stack of a thread, and those that end a capture or change its mode.
_OF_STACK: Final = re.compile(r"cuCtx(?:Push|Pop|Set)Current|cu(?:Green)?Ctx(?:Create|Destroy)")
_OF_CAPTURE: Final = re.compile(r"cuStreamEndCapture|cu\w+Destroy")
_OF_MODE: Final = "cuThreadExchangeStreamCaptureMode"
#: Lines of a stack that tell two places apart.
_SITE_LINES: Final = 3
#: Calls of one function by one stack that fail where there is a budget: a loop seldom has an error path for each turn.
REPEATS: Final = 6


class Call(NamedTuple):
    """A call of a run."""

    function: str  # symbol of the function
    site: str  # the place that made it, "FILE:LINE in FUNCTION"; empty where it was not noted


class FailureMode(NamedTuple):
    """A way in which a call can fail."""

    code: int
    name: str  # "CUDA_ERROR_OUT_OF_MEMORY"
    words: str  # how cuGetErrorString says it
    stays: str = "alone"  # "alone", "function" for each later call of the function too, "device" for a lost device

    def __str__(self) -> str:
        return f"{self.code}" if self.stays == "alone" else f"{self.code}:{self.stays}"


class FailedCall(NamedTuple):
    """One call that fails in one way."""

    number: int  # of the call, from 1
    call: Call
    mode: FailureMode

    def __str__(self) -> str:
        """Return how the option has it."""
        return f"{self.number}:{self.mode}"


class SweepPlan(NamedTuple):
    """The runs of a test, each with the call that fails."""

    chosen: list[FailedCall]
    over_budget: list[FailedCall]  # those that the budget leaves out
    elsewhere: list[FailedCall]  # those of the other machines
    repeats: list[FailedCall]  # those that are left out because enough others of their function and stack fail


@dataclass(frozen=True)
class SweptTrial:
    """One run of a test."""

    outcome: str = ""  # "passed", "failed" or "skipped"; empty if its process did not get that far
    calls: tuple[str, ...] = ()  # the functions that it called, in their order
    messages: tuple[Raised, ...] = ()  # what it raised, with the chains of the exceptions
    notices: tuple[Said, ...] = ()  # what it warned of, logged and wrote
    # how many objects were alive when it was over, and their bytes, by kind
    alive: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    before: DriverState = field(default_factory=DriverState)
    begun: DriverState | None = None  # where its fixtures were set up; None if they were not
    # None where nothing could be put back, because the error stays
    after: DriverState | None = field(default_factory=DriverState)
    violations: tuple[str, ...] = ()  # sentences on the rules that were broken
    end: str = ""  # how its process ended, if not by itself, such as "was killed by SIGSEGV"
    hung: bool = False  # whether it was ended because it took too long
    # what a clean run of the test in the same process raised afterwards; empty if it passed, or there was none
    later: str = ""
    # numbers of the calls that returned an error; those of other libraries than the driver are not known
    failing: tuple[int, ...] = ()
    lasts: bool = False  # whether the error stays, so that each later call has it
    unlisted: int = 0  # how many more calls it made than the driver lists
    # of the clean run, by call: lines of Python, innermost first, or native frames; None for a call that never fails
    stacks: tuple[tuple[str, ...] | None, ...] = ()


@dataclass(frozen=True)
class SweepFailure:
    """What is wrong with the run of a test in which a call failed.

    No `Finding`: notes keep it by the fault, which can be repeated, and those of one key become one finding.
    """

    kind: str  # one of `KINDS`
    fault: FailedCall
    detail: str  # what was seen
    nodeid: str  # the test
    place: str = ""  # the test's file and its names in there, as a command names it

    @property
    def key(self) -> tuple[str, str, str]:
        """What equal failures have in common: kind, function and place."""
        return self.kind, self.fault.call.function, self.fault.call.site

    def __str__(self) -> str:
        fault = self.fault
        stays = {"function": ", as did each later call of it", "device": " and the device stayed lost"}
        return (
            f"{self.kind}: {fault.call.function} (call {fault.number}) failed with {fault.mode.name}"
            f"{stays.get(fault.mode.stays, '')}, called at {fault.call.site or 'a place that is not known'}: "
            f"{self.detail}"
        )


@dataclass
class SweepTotals(RerunTotals):
    """What the sweep of one test, or of several, found."""

    planned: int = 0  # in how many runs each call would have failed in each way
    left: int = 0  # how many of them the budget left out
    elsewhere: int = 0  # how many other machines make
    repeats: int = 0  # how many were left out because enough others of their function and stack failed
    called: set[str] = field(default_factory=set)  # the functions that tests called and that could fail
    tried: set[str] = field(default_factory=set)  # `baseline_place` of each call that failed
    partly: set[str] = field(default_factory=set)  # the same of those that did not fail in every way that was planned
    failures: list[SweepFailure] = field(default_factory=list)


def site_of(stack: Sequence[str], root: str) -> str:
    """Return the place of a call: its innermost lines, because a helper that makes every call tells nothing alone.

    `stack`: lines of Python, innermost first, or native frames.
    `root`: the project's folder, to which its files are relative; those of installed packages are to theirs.
    """
    prefix = root.rstrip("/") + "/"
    lines = (line.rpartition("/site-packages/")[2].removeprefix(prefix) for line in stack[:_SITE_LINES])
    return " < ".join(lines)


def names_of(function: str) -> tuple[str, str]:
    """Return the names that a user may write for a function: its symbol, and that without the number of its form."""
    return function, re.sub(r"_v\d+$", "", function)


def plan(
    calls: Sequence[Call],
    modes: Callable[[str], Sequence[FailureMode]],
    *,
    stacks: Sequence[Sequence[str]] = (),
    functions: Iterable[str] = (),
    closed: Container[int] = (),
    budget: int = 0,
    part: tuple[int, int] = (1, 1),
) -> SweepPlan:
    """Choose the runs of a test, those that find most first.

    Each function is failed first once from each place that calls it, then at its last call from there, then at every
    other one; with a budget at no more than `REPEATS` of those that one stack makes.

    `calls`: those of the clean run.
    `modes`: returns how a function can fail, the likeliest way first.
    `stacks`: of each call all lines that led to it, where they are known.
    `functions`: names of the functions to fail, also without the number of their form; empty for all.
    `closed`: numbers of calls that do not fail.
    `budget`: most runs; 0 for any number, and for every repeat.
    `part`: number of this machine, from 1, and of all that share the runs.
    """
    wanted = set(functions)
    numbered = [
        (number, call)
        for number, call in enumerate(calls, 1)
        if number not in closed and (not wanted or not wanted.isdisjoint(names_of(call.function)))
    ]
    first = {call: number for number, call in reversed(numbered)}
    last = {call: number for number, call in numbered}

    def rank(number: int, call: Call) -> int:
        return 0 if number == first[call] else 1 if number == last[call] else 2

    ranked = sorted(
        (rank(number, call), nth, number, FailedCall(number, call, mode))
        for number, call in numbered
        for nth, mode in enumerate(modes(call.function))
    )
    repeated = _repeats(numbered, stacks) if budget else set()
    chosen = [fault for *_, fault in ranked if fault.number not in repeated]
    repeats = [fault for *_, fault in ranked if fault.number in repeated]
    kept, (machine, machines) = chosen[: budget or None], part
    elsewhere = [fault for nth, fault in enumerate(kept) if nth % machines != machine - 1]
    return SweepPlan(kept[machine - 1 :: machines], chosen[len(kept) :], elsewhere, repeats)


def _repeats(numbered: Iterable[tuple[int, Call]], stacks: Sequence[Sequence[str]]) -> set[int]:
    """Return the numbers of calls that need not fail, because `REPEATS` others of their function and stack do.

    These are the first two, the last, and some between, which lie equally far apart.
    """
    alike = grouped(
        ((call.function, *stacks[number - 1]), number)
        for number, call in numbered
        if number <= len(stacks) and stacks[number - 1]  # calls of whose places nothing is known may have others
    )
    repeated: set[int] = set()
    for numbers in alike.values():
        step = (len(numbers) - 2) / (REPEATS - 2)
        kept = {0, *(1 + int(step * nth) for nth in range(REPEATS))}
        repeated |= {number for at, number in enumerate(numbers) if at not in kept}
    return repeated


def judge(
    clean: SweptTrial, faulted: SweptTrial, fault: FailedCall, nodeid: str, place: str = ""
) -> list[SweepFailure]:
    """Return what is wrong with a run in which one call failed; raising is right.

    `clean`: the run in which every call had its own answer.
    `nodeid`, `place`: the test.
    """
    return [SweepFailure(kind, fault, detail, nodeid, place) for kind, detail in _verdicts(clean, faulted, fault)]


def _verdicts(clean: SweptTrial, faulted: SweptTrial, fault: FailedCall) -> Iterator[tuple[str, str]]:
    if faulted.hung:
        yield "hang", f"the test did not end: its process {faulted.end}"
        return
    if faulted.end or not faulted.outcome:
        yield "crash", f"the process {faulted.end or 'ended before the test did'}"
        return
    if new := Counter(faulted.violations) - Counter(clean.violations):
        yield "violation", next(iter(new))
    if faulted.later and not clean.later:
        yield "later", f"the same test fails in this process afterwards, although no call of it does: {faulted.later}"
    if left := _left(clean, faulted, fault):
        yield "leak", f"a clean run frees what this one left: {left}"
    if changed := "; ".join(_changed(clean, faulted, fault)):
        yield "state", changed
    if len(faulted.calls) < fault.number or _is_told(clean, faulted, fault):
        return  # the call was never made, or the error was reported to a caller
    if faulted.outcome == "failed" and clean.outcome != "failed":
        said = [line.strip() for raised in faulted.messages for line in raised.text.splitlines() if line.strip()]
        yield "no-cause", f"the test failed without naming the error: {said[0] if said else 'it said nothing'}"
    elif faulted.outcome == "passed" and _goes_on(clean, faulted, fault) and not _warns(clean, faulted):
        yield "swallowed", "the test passed, and made the same calls as if this one had succeeded"


def _is_told(clean: SweptTrial, faulted: SweptTrial, fault: FailedCall) -> bool:
    """Whether an exception names the error, or something that a clean run does not say."""
    lasts = fault.mode.stays == "device" or faulted.lasts  # then every call has the same error
    others = set() if lasts else {faulted.calls[at - 1] for at in faulted.failing if at != fault.number}
    return tells(
        Error(fault.call.function, *fault.mode[:3], lasts=lasts),
        faulted.messages,
        faulted.notices,
        clean.notices,
        others - {fault.call.function},
    )


def _warns(clean: SweptTrial, faulted: SweptTrial) -> bool:
    """Whether the run warns of something of which a clean one does not, in whatever words."""
    return any(notice.alarm for notice in new(faulted.notices, clean.notices))


def _left(clean: SweptTrial, faulted: SweptTrial, fault: FailedCall) -> str:
    """Return what a run left alive and a clean one did not, in words."""
    nothing = (0, 0)
    excess = {
        kind: (count - before, size - bytes_before)
        for kind, (count, size) in faulted.alive.items()
        for before, bytes_before in [clean.alive.get(kind, nothing)]
        if count > before
    }
    # what the failed calls themselves were to free is there, and not a mistake of the code
    failed = _failed(faulted, fault)
    number = sum(count for count, _ in excess.values())
    if _RELEASES.search(fault.call.function) and (number <= failed or _OWNERS.search(fault.call.function)):
        return ""
    return ", ".join(f"{count} x {kind}" + f" ({size:,} bytes)" * (size > 0) for kind, (count, size) in excess.items())


def _failed(faulted: SweptTrial, fault: FailedCall) -> int:
    """Return how many calls the sweep has let fail."""
    return faulted.calls[fault.number - 1 :].count(fault.call.function) if fault.mode.stays == "function" else 1


def _changed(clean: SweptTrial, faulted: SweptTrial, fault: FailedCall) -> Iterator[str]:
    """Yield what a run left in another state than before, where a clean one does not; with the way to mend it."""
    if clean.after is None or faulted.after is None:
        return
    before, begun, after, wanted = faulted.before, faulted.begun, faulted.after, clean.after
    function = fault.call.function
    # what the failed calls should have restored is not a mistake of the code, and a context that was made is a leak
    forgiven = _failed(faulted, fault) if _OF_STACK.match(function) else 0
    forgiven += max(0, faulted.alive.get("context", (0, 0))[0] - clean.alive.get("context", (0, 0))[0])
    # what a fixture does, and nothing undoes, is there when the test begins
    fixed = begun is not None and before.stack != wanted.stack == begun.stack
    if not _is_put_back(wanted.stack if fixed else before.stack, wanted.stack, after.stack, forgiven):
        left = f"the stack of its thread with {_contexts(after.stack)}, and a clean run with {_contexts(wanted.stack)}"
        more = len(after.stack) - len(wanted.stack)
        mend = "pop what was pushed" if more > 0 else "push what was popped" if more else "make the other one current"
        yield f"it left {left}, so that later calls work in another context; {mend} where a call fails, too"
    for stack in Counter(after.threads) - Counter((*wanted.threads, *before.threads)):
        left = f"{_contexts(stack)} on the stack of a thread that has not ended"
        yield f"it left {left}; pop what was pushed, and end the thread, where a call fails, too"
    ends = _failed(faulted, fault) if _OF_CAPTURE.match(function) else 0
    if (more := after.captures - max(before.captures, wanted.captures)) > ends:
        left = "a stream that captures" if more == 1 else f"{more} streams that capture"
        yield (
            f"it left {left}, so that no work of it is done, and calls that a capture forbids fail; call "
            "cuStreamEndCapture where a call fails, too"
        )
    if before.mode == wanted.mode != after.mode and function != _OF_MODE:
        yield (
            f"it left its thread with capture mode {after.mode}, and a clean run with {wanted.mode}; exchange it back "
            "where a call fails, too"
        )


def _is_put_back(before: Sequence[str], wanted: Sequence[str], after: Sequence[str], forgiven: int) -> bool:
    """Whether a stack is as it was, but for some contexts; a clean run that leaves it otherwise may end in between."""
    if list(before) == list(wanted):
        same = next((at for at, (was, now) in enumerate(zip(before, after, strict=False)) if was != now), None)
        common = min(len(before), len(after)) if same is None else same
        return max(len(before), len(after)) - common <= forgiven
    least, most = sorted((len(before), len(wanted)))
    return least - forgiven <= len(after) <= most + forgiven


def _contexts(stack: Sequence[str]) -> str:
    return " under ".join(f"a {context}" for context in stack[::-1]) or "no context"


def _goes_on(clean: SweptTrial, faulted: SweptTrial, fault: FailedCall) -> bool:
    """Whether the calls after the failed one are those of the clean run: no retry, no other way, no clean-up.

    After a release that failed there is nothing else to do. Where calls succeed after a cuInit that failed, the driver
    was initialized before. What fails in a clean run, too, has no success to go on with.
    """
    if _RELEASES.search(fault.call.function) or fault.call.function == "cuInit" or fault.number in clean.failing:
        return False
    return faulted.calls[fault.number - 1 :] == clean.calls[fault.number - 1 :]


# -- many failures


def merged(failures: Iterable[SweepFailure]) -> list[tuple[SweepFailure, int]]:
    """Return one failure for equal ones, with how many there are; the worst kinds first."""
    alike, order = grouped((failure.key, failure) for failure in failures), list(KINDS)
    keys = sorted(alike, key=lambda key: (order.index(key[0]), key[1:]))
    return [(alike[key][0], len(alike[key])) for key in keys]


def baseline_place(call: Call) -> str:
    """Return a call as a baseline has it: without the number of the line, which other changes move."""
    return " ".join(f"{call.function} {re.sub(r':[0-9]+ in ', ' in ', call.site)}".split())


def _line(failure: SweepFailure) -> str:
    return f"{failure.kind} {baseline_place(failure.fault.call)}"


def baseline_lines(failures: Iterable[SweepFailure]) -> list[str]:
    """Return the baseline in which these failures are known: a line for each place."""
    return sorted(_line(failure) for failure, _ in merged(failures))


def read_baseline(text: str) -> list[str]:
    """Return the lines of a baseline; those that begin with ``#`` are comments.

    Raises ValueError if a line is not a failure; names the line and what is expected.
    """
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        entry = " ".join(line.split())
        if not entry or entry.startswith("#"):
            continue
        kind, _, place = entry.partition(" ")
        if kind not in KINDS or not place:
            msg = f"line {number} is {entry!r}; expected KIND FUNCTION PLACE, with one of the kinds {', '.join(KINDS)}"
            raise ValueError(msg)
        entries.append(entry)
    return entries


def new_failures(failures: Iterable[SweepFailure], baseline: Iterable[str]) -> list[tuple[SweepFailure, int]]:
    """Return the merged failures that a baseline does not know; each of its lines knows one place."""
    known = Counter(baseline)
    unknown = []
    for failure, count in merged(failures):
        line = _line(failure)
        if known[line] > 0:
            known[line] -= 1
        else:
            unknown.append((failure, count))
    return unknown


def gone(failures: Iterable[SweepFailure], baseline: Iterable[str], tried: Container[str]) -> list[str]:
    """Return the lines of a baseline that no failure has any more, so that it can shrink.

    `tried`: `baseline_place` of each call that has failed in every way; nothing is known of other lines.
    """
    lines = (Counter(baseline) - Counter(baseline_lines(failures))).elements()
    return sorted(line for line in lines if line.partition(" ")[2] in tried)
