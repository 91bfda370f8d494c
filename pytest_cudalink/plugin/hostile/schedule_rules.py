"""Schedules of queued work: the seeds of a run, the fewest displaced operations of a failure, and its timeline."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from ...base.words import and_more, counted
from ...emulator.control import ScheduledWork, UnpromisedWait
from ...emulator.no_wait import sentences_of_row
from ..settings import ScheduleRequest
from .sweep_plan import site_of

if TYPE_CHECKING:
    from ...report.records import OperationRecord

#: Kinds of failures, worst first, each with what the test or its code did.
KINDS: Final = {
    "crash": "the process died",
    "hang": "the test did not end",
    "violation": "a rule of the driver was broken",
    "failed": "the test failed",
    "unpromised": "the test relies on a wait that CUDA does not promise",
}
#: Most lines of a timeline, and columns for its time.
_ROWS: Final = 24
_COLUMNS: Final = 32
#: Operations that passed a late one, by name.
_NAMED: Final = 3
#: Lines of a stack that may be those of a helper through which everything goes.
_HELPERS: Final = 3
#: Most lines of the test's own failure.
_LINES: Final = 12


# -- shrinking


def shrink(
    numbers: Sequence[int], fails: Callable[[tuple[int, ...]], bool], spent: Callable[[], bool] = lambda: False
) -> tuple[tuple[int, ...], bool]:
    """Return few displaced operations with which a test still fails (ddmin).

    `numbers`: displaced operations with which it fails.
    `fails`: whether it fails with these.
    `spent`: whether to stop, because enough time was spent.
    Returns whether it passes without any one of them.
    """
    smallest, parts = tuple(numbers), 2
    while len(smallest) > 1:
        chunks = _chunks(smallest, parts)
        smaller = [*chunks, *(tuple(n for n in smallest if n not in chunk) for chunk in map(frozenset, chunks))]
        if parts == 2:  # each half is what the other one leaves
            smaller = chunks
        for position, tried in enumerate(smaller):
            if spent():
                return smallest, False
            if fails(tried):
                smallest = tried
                parts = 2 if position < len(chunks) else max(parts - 1, 2)
                break
        else:
            if parts >= len(smallest):
                return smallest, True
            parts = min(2 * parts, len(smallest))
    return smallest, True


def _chunks(numbers: tuple[int, ...], parts: int) -> list[tuple[int, ...]]:
    edges = [len(numbers) * part // parts for part in range(parts + 1)]
    return [numbers[start:end] for start, end in pairwise(edges)]


# -- what failed


@dataclass(frozen=True)
class ScheduleFailure:
    """A test that passes alone and fails under a schedule."""

    nodeid: str  # the test
    kind: str  # one of `KINDS`
    detail: str  # what was seen, in a line
    seed: int
    works: tuple[ScheduledWork, ...]  # of the run with the displaced operations; none was submitted if it died
    text: str  # the test's own failure
    displaced: tuple[int, ...] = ()  # the operations without which it passes, by number
    least: bool = True  # whether it passes without any one of them; otherwise the search was stopped
    repeats: bool = True  # whether it failed again with the same seed
    number: int = 1  # under how many seeds the test fails, for this cause or another
    waits: tuple[UnpromisedWait, ...] = ()  # waits that it relies on
    place: str = ""  # the test's file and its names in there, as a command names it

    @property
    def request(self) -> ScheduleRequest:
        """The schedule that repeats it."""
        return ScheduleRequest(
            1, self.seed, self.displaced if self.repeats and self.displaced else None, bool(self.waits)
        )

    def operations(self, root: str) -> list[OperationRecord]:
        """Return the rows of its timeline for a record; parameter as of `lines`."""
        return [
            {
                "number": row.work.number,
                "function": row.work.function,
                "stream": _stream(row.work),
                "place": _own_place(row.work, _shared(self.works), root),
                "late": row.late,
                "queued": row.at,
                "ready": row.ready,
                "done": row.end if row.work.ended else None,
            }
            for row in rows(self.works, self.displaced)[0]
        ]

    def lines(self, root: str, schedules: int) -> list[str]:
        """Return it in lines: what failed, the timeline, and the test's own failure.

        `root`: the project's folder.
        `schedules`: how many the test ran under.
        """
        lines = [f"{self.kind}: {self.nodeid} under {self.number} of {counted(schedules, 'schedule')}: {self.detail}"]
        if not self.repeats:
            lines.append(
                f"  it passed when it ran under seed {self.seed} again: something other than the driver changes "
                "between the runs, such as threads of the test"
            )
        for wait in self.waits:
            lines.append(f"  relies on an undocumented wait: {wait.function}, called at {_place(_stack(wait), root)}")
            lines += [f"    {sentence}" for sentence in sentences_of_row(wait.row, wait.function)]
        late = [work for work in self.works if work.number in self.displaced]
        if late:
            fewest = "" if self.least else " (fewer may do: the search took too long)"
            number = f"{len(self.displaced)} of {counted(len(self.works), 'operation')}"
            lines.append(f"  seed {self.seed} with {number} displaced{fewest}; time is in calls of the driver:")
            lines += [f"  {line}" for line in _timeline(self.works, self.displaced, root)]
            lines += [f"  {sentence}" for work in late for sentence in _story(work, self.works, root)]
        lines += [f"  {line}" for line in own_lines(self.text)]
        return lines


def own_lines(text: str) -> list[str]:
    """Return what a test's own failure says: the line that raised, the error, and the fix of a broken rule."""
    lines = [line for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if re.match(r"(>|E|fix)\s", line)] or lines[-3:]
    return telling[:_LINES] + [and_more(len(telling) - _LINES).strip()] * (len(telling) > _LINES)


def by_kind(failures: Iterable[ScheduleFailure]) -> list[ScheduleFailure]:
    """Return failures, the worst kinds first."""
    order = list(KINDS)
    return sorted(failures, key=lambda failure: order.index(failure.kind))


# -- timelines


class TimelineRow(NamedTuple):
    """A line of a timeline."""

    work: ScheduledWork
    late: bool  # whether the schedule has displaced it
    at: int  # steps since the timeline begins, when it was queued
    ready: int  # the same, ready to run
    end: int  # the same, done


def rows(works: Sequence[ScheduledWork], displaced: Iterable[int]) -> tuple[list[TimelineRow], int]:
    """Return the operations that show what was displaced: these, and those that were queued or done meanwhile.

    Returns the rows in the order of submission, and the number of steps.
    """
    late = set(displaced)
    timed = {work.number: (work.submitted, work.ended) for work in works if work.submitted}
    if late.isdisjoint(timed):
        return [], 1
    last = max(step for pair in timed.values() for step in pair) + 1
    spans = {number: (at, end or last) for number, (at, end) in timed.items()}
    centres = [spans[number] for number in late if number in spans]

    def near(work: ScheduledWork) -> tuple[bool, int]:
        at = spans[work.number][0]
        return work.number not in late, min(abs(at - there) for there, _ in centres)

    shown = [
        work
        for work in works
        if work.number in spans
        and any(spans[work.number][0] <= end and at <= spans[work.number][1] for at, end in centres)
    ]
    shown = sorted(sorted(shown, key=near)[:_ROWS], key=lambda work: work.number)
    start = min(spans[work.number][0] for work in shown)
    shown_rows = []
    for work in shown:
        at, end = spans[work.number]
        ready = min(max(work.started, at), end) if work.started else end
        shown_rows.append(TimelineRow(work, work.number in late, at - start, ready - start, end - start))
    return shown_rows, max(row.end for row in shown_rows) + 1


def _timeline(works: Sequence[ScheduledWork], displaced: Iterable[int], root: str) -> list[str]:
    """Return the timeline as text: ``.`` waits for other work, ``=`` could run, ``|`` is done, ``>`` never was."""
    shown, steps = rows(works, displaced)
    if not shown:
        return []
    columns = min(steps, _COLUMNS)
    shared = _shared(works)
    digits = len(str(shown[-1].work.number))
    names = [f"{row.work.number:>{digits}} {row.work.function} ({_stream(row.work)})" for row in shown]
    width = max(map(len, names))
    lines = []
    for row, name in zip(shown, names, strict=True):
        at, ready, end = (step * columns // steps for step in (row.at, row.ready, row.end))
        closing = "|" if row.work.ended else ">"
        bar = " " * at + "." * (ready - at) + "=" * (end - ready) + closing
        lines.append(
            f"{'*' if row.late else ' '} {name:{width}} {bar:{columns}} {_own_place(row.work, shared, root)}".rstrip()
        )
    return lines


def _stream(work: ScheduledWork) -> str:
    return f"stream {work.stream}" if work.stream else "no stream"


def _stack(call: ScheduledWork | UnpromisedWait) -> Sequence[str]:
    """Return the lines of Python that led to a call, or else its native frames, innermost first."""
    return call.python_stack[::-1] or call.native_stack


def _shared(works: Sequence[ScheduledWork]) -> frozenset[str]:
    """Return the lines that called the driver for each of several operations, such as those of a helper."""
    lines = [frozenset(stack[:_HELPERS]) for stack in map(_stack, works) if stack]
    return frozenset.intersection(*lines) if lines else frozenset()


def _own_place(work: ScheduledWork, shared: frozenset[str], root: str) -> str:
    """Return the innermost line that other operations have not, too."""
    stack = _stack(work)
    own = [line for line in stack if line not in shared] or stack
    return _place(own[:1], root)


def _place(stack: Sequence[str], root: str) -> str:
    return site_of(stack, root) or "a place that is not known"


def _caller(work: ScheduledWork) -> str:
    """Return the native frame that called the driver for lines of Python; empty if Python's ctypes did."""
    frame = next((frame for frame in work.native_stack if not frame.startswith("libcuda.so")), "")
    return frame if work.python_stack and not frame.startswith(("libffi", "_ctypes")) else ""


def _story(late: ScheduledWork, works: Sequence[ScheduledWork], root: str) -> Iterator[str]:
    """Say of an operation that was displaced where it was queued, when it was done, and what passed it."""
    caller = _caller(late)
    native = f" ({caller})" if caller else ""
    name = f"{late.number}: {late.function}, called at {_place(_stack(late), root)}{native},"
    if not late.submitted:
        yield f"{name} was displaced; the process ended before it could say more"
        return
    if not late.ended:
        yield f"{name} was queued in call {late.submitted}, and not done when the test ended"
    else:
        after = counted(late.ended - late.submitted, "call")
        within = f", in {late.call}" if late.call else ""
        yield f"{name} was queued in call {late.submitted}, and done {after} later{within}"
    passed = [
        work
        for work in works
        if work.number > late.number and work.ended and (not late.ended or work.ended < late.ended)
    ]
    more = ", such as" if len(passed) > _NAMED else ""
    if passed:
        yield f"  queued after it, and done before it{more}:"
    for work in passed[:_NAMED]:
        place = _own_place(work, _shared(works), root)
        yield f"    {work.number}: {work.function} on {_stream(work)}, called at {place}"
