"""Schedules: what the option asks for, the search for the fewest displaced operations, and the timeline."""

import json
from dataclasses import replace
from itertools import combinations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cudalink.emulator.control import ScheduledWork, UnpromisedWait
from pytest_cudalink.emulator.no_wait import sentences_of_row
from pytest_cudalink.plugin.hostile.schedule_rules import KINDS, ScheduleFailure, by_kind, own_lines, rows, shrink
from pytest_cudalink.plugin.settings import LIMIT_SEED, ScheduleRequest, parse_schedules

numbers = st.sets(st.integers(1, 15))
chosen = numbers.filter(bool).map(sorted).map(tuple)
seeds = st.integers(0, LIMIT_SEED - 1)


def queued(number: int, function: str, stack: tuple[str, ...], *at: int, stream=1, call="", native=()) -> ScheduledWork:
    """An operation with the times at which it was queued, could run and was done; 0 for one that is not known."""
    return ScheduledWork(number, "copy", function, stream, 0, *at, call, stack[::-1], native)


def work(number: int, times: tuple[int, int, int], known: int) -> ScheduledWork:
    """An operation of which the first so many times are known."""
    at = [sum(times[: nth + 1]) if nth < known else 0 for nth in range(3)]
    return queued(number, "cuMemcpyAsync", (f"/root/own.py:{number % 3} in f",), *at, call="cuMemFree_v2")


WAIT = UnpromisedWait(1, 0, "cuMemcpyHtoD_v2", True, ("/p/t.py:4 in test", "/p/t.py:9 in f"), ())
times = st.tuples(st.integers(1, 60), st.integers(0, 9), st.integers(0, 30))
works = st.lists(st.tuples(times, st.integers(0, 3)), max_size=12).map(
    lambda drawn: tuple(work(number, *fields) for number, fields in enumerate(drawn, 1))
)
failures = st.builds(
    ScheduleFailure,
    st.sampled_from(("a.py::test", "b.py::test")),
    st.sampled_from(list(KINDS)),
    st.text(max_size=9),
    seeds,
    works,
    st.text(),
    numbers.map(sorted).map(tuple),
    st.booleans(),
    st.booleans(),
    st.integers(1, 9),
    st.sampled_from(((), (WAIT,))),
)


# -- the option


@given(
    st.builds(
        ScheduleRequest,
        st.integers(1, 1_000_000),
        seeds,
        st.one_of(st.none(), numbers.filter(bool).map(sorted).map(tuple)),
        st.booleans(),
    )
)
def test_option_and_back(wanted: ScheduleRequest) -> None:
    """What is printed is read as what it was."""
    assert parse_schedules(str(wanted)) == wanted


def test_option() -> None:
    """A number alone takes any seed; ranges are what they say."""
    assert parse_schedules("200") == ScheduleRequest(200)
    assert parse_schedules("1:7@3,5-6,4") == ScheduleRequest(1, 7, (3, 4, 5, 6))
    assert str(ScheduleRequest(1, 7, (1, 2, 4, 5, 6))) == "1:7@1,2,4-6"
    assert (ScheduleRequest(1, 7, (1, 2, 4, 5, 6)).wanted, ScheduleRequest(20).wanted) == ("1,2,4-6", "")
    assert parse_schedules("1:7@100000,5") == ScheduleRequest(1, 7, (5, 100000))
    assert (parse_schedules("20+promised"), str(ScheduleRequest(20))) == (ScheduleRequest(20, promised=True), "20")
    assert (list(ScheduleRequest(3, LIMIT_SEED - 1).seeds), list(ScheduleRequest(1).seeds)) == (
        [LIMIT_SEED - 1, 0, 1],
        [0],
    )


TOO_MUCH = ("5:1@1,3-2", "1000001", f"5:{LIMIT_SEED}", "5:1@1000000")


@pytest.mark.parametrize(
    "text", ["0", "x", "-1", "5:", "5:1@", "5:1@3-2", "5:1@1,,2", "5:1@0", "5@1", "٣", "5+promise", *TOO_MUCH]
)
def test_wrong_option(text: str) -> None:
    """What cannot be read says what is expected."""
    with pytest.raises(ValueError, match=rf"^expected .* 1 to 1000000, then :SEED .0 to {2**63 - 1}. .* such as 200"):
        parse_schedules(text)


# -- shrinking


@given(st.lists(numbers.filter(bool).map(frozenset), min_size=1, max_size=3), numbers)
def test_shrinking(causes: list[frozenset[int]], others: set[int]) -> None:
    """The result is a part of what was given and fails, and passes without any one of its operations."""
    given_numbers = sorted(others.union(*causes))

    def fails(tried: tuple[int, ...]) -> bool:
        assert list(tried) == sorted(tried)
        return any(cause <= set(tried) for cause in causes)

    smallest, least = shrink(given_numbers, fails)
    assert least
    assert fails(smallest)
    assert set(smallest) <= set(given_numbers)
    if len(smallest) > 1:
        assert not any(map(fails, combinations(smallest, len(smallest) - 1)))


@given(st.integers(0, 63))
def test_shrinking_is_fast(culprit: int) -> None:
    """One of 64 is found in at most as many runs as halving needs."""
    tried = []
    assert shrink(range(64), lambda these: tried.append(these) or culprit in these) == ((culprit,), True)
    assert len(tried) <= 12


def test_what_shrinking_tries() -> None:
    """Halves, then smaller parts and what they leave, from the coarsest that may still help."""
    runs: list[str] = []
    shrink(range(7), lambda some: runs.append("".join(map(str, some))) or {0, 3, 5} <= set(some))
    first = "012 3456 0 12 34 56 123456 03456 0 34 56 3456 056 034 0 3 4 5 6 3456 0456 0356"
    assert " ".join(runs) == f"{first} 0 3 5 6 356 056 036 035 0 3 5 35 05 03"


def test_shrinking_ends_when_time_is_spent() -> None:
    """The best so far is the result, which says that it may not be the least."""
    runs: list[tuple[int, ...]] = []
    shrunk = shrink(range(8), lambda these: runs.append(these) or 1 in these, lambda: len(runs) == 1)
    assert shrunk == ((0, 1, 2, 3), False)


# -- timelines


@given(works, numbers)
def test_rows(queued: tuple[ScheduledWork, ...], displaced: set[int]) -> None:
    """Rows are in order, lie inside the timeline, and have each late operation whose time is known, up to a limit."""
    shown, length = rows(queued, displaced)
    assert [row.work.number for row in shown] == sorted(row.work.number for row in shown)
    assert all(0 <= row.at <= row.ready <= row.end < length for row in shown)
    late = {work.number for work in queued if work.number in displaced and work.submitted}
    assert {row.work.number for row in shown if row.late} == late or len(shown) == 24
    assert all(row.late == (row.work.number in displaced) for row in shown)


def test_which_rows_there_are() -> None:
    """Those that were queued or done meanwhile, and of very many the nearest; none where the time is not known."""

    def at(number: int, *times: int) -> ScheduledWork:
        return queued(number, "f", (), *times)

    some = [at(1, 3, 3, 4), at(2, 3, 3, 5), at(3, 5, 6, 9), at(4, 9, 9, 12), at(5, 10, 10, 12), at(6, 0, 0, 0)]
    shown, steps = rows(some, [3])
    assert [(row.work.number, *row[2:]) for row in shown] == [(2, 0, 0, 2), (3, 2, 3, 6), (4, 6, 6, 9)]
    assert (steps, rows(some, [6, 7]), rows([], [])) == (10, ([], 1), ([], 1))
    many = [at(number, 100 - 2 * number, 0, 200) for number in range(1, 31)]
    assert [row.work.number for row in rows(many, [2, 20])[0]] == [*range(1, 10), *range(13, 28)]


@settings(max_examples=40)
@given(failures)
def test_lines(failure: ScheduleFailure) -> None:
    """Any failure can be shown; a line of the timeline is at most as wide as its parts."""
    first, *_ = failure.lines("/root", 200)
    assert first.startswith(f"{failure.kind}: {failure.nodeid} under {failure.number} of 200 schedules: ")


@given(failures)
def test_failures_reach_the_other_process(failure: ScheduleFailure) -> None:
    """What another process reads is the same."""
    assert msgspec.convert(json.loads(json.dumps(msgspec.to_builtins(failure))), ScheduleFailure) == failure


def test_order() -> None:
    """The worst kinds come first, and equal ones stay as they are."""
    failures = [replace(FAILURE, kind=kind, seed=seed) for seed in (1, 2) for kind in ("failed", "violation", "crash")]
    assert [(finding.kind, finding.seed) for finding in by_kind(failures)] == [
        (kind, seed) for kind in ("crash", "violation", "failed") for seed in (1, 2)
    ]


STACK = ("/p/t.py:8 in read", "/p/t.py:4 in test")
NATIVE = ("libcuda.so.1+0x1", "libown.so+0x12")
LATE = queued(3, "cuMemcpyDtoHAsync_v2", STACK, 5, 6, 9, call="cuInit", native=NATIVE)
NEXT = queued(4, "cuMemsetD8Async", ("/p/t.py:9 in read",), 6, 6, 7, stream=2, call="cuMemsetD8Async")
TEXT = ">   assert x\nE   old"
FAILURE = ScheduleFailure("t.py::test", "failed", "AssertionError: old", 7, (LATE, NEXT), TEXT, (3,))


def test_words() -> None:
    """A failure says what was late, by which path, what passed it, and what the test says itself."""
    assert replace(FAILURE, number=2).lines("/p", 200) == [
        "failed: t.py::test under 2 of 200 schedules: AssertionError: old",
        "  seed 7 with 1 of 2 operations displaced; time is in calls of the driver:",
        "  * 3 cuMemcpyDtoHAsync_v2 (stream 1) .===| t.py:8 in read",
        "    4 cuMemsetD8Async (stream 2)       =|   t.py:9 in read",
        (
            "  3: cuMemcpyDtoHAsync_v2, called at t.py:8 in read < t.py:4 in test (libown.so+0x12), was queued in call "
            "5, and done 4 calls later, in cuInit"
        ),
        "    queued after it, and done before it:",
        "      4: cuMemsetD8Async on stream 2, called at t.py:9 in read",
        "  >   assert x",
        "  E   old",
    ]


def test_words_of_a_wait() -> None:
    """A wait that a test relies on stands before the timeline, with its place; the command leaves such waits out."""
    failure = replace(FAILURE, kind="unpromised", waits=(WAIT, WAIT._replace(python_stack=())))
    sentences = [f"    {sentence}" for sentence in sentences_of_row(0, "cuMemcpyHtoD_v2")]
    assert failure.lines("/p", 200)[1:9] == [
        "  relies on an undocumented wait: cuMemcpyHtoD_v2, called at t.py:9 in f < t.py:4 in test",
        *sentences,
        "  relies on an undocumented wait: cuMemcpyHtoD_v2, called at a place that is not known",
        *sentences,
    ]
    assert str(failure.request) == "1:7@3+promised"


def test_words_of_a_crash() -> None:
    """Without a list of that run, the clean one's tells what was displaced."""
    untimed = LATE._replace(submitted=0, started=0, ended=0)
    first, _, *lines = replace(FAILURE, kind="crash", works=(untimed,), text="").lines("/p", 1)
    assert first == "crash: t.py::test under 1 of 1 schedule: AssertionError: old"
    assert lines == [
        (
            "  3: cuMemcpyDtoHAsync_v2, called at t.py:8 in read < t.py:4 in test (libown.so+0x12), was displaced; the "
            "process ended before it could say more"
        )
    ]


def test_words_of_what_never_ended() -> None:
    """An operation that was not done when the test ended has no end in the timeline."""
    lines = replace(FAILURE, works=(LATE._replace(ended=0), NEXT._replace(number=10)), least=False).lines("/p", 1)
    assert lines[1] == (
        "  seed 7 with 1 of 2 operations displaced (fewer may do: the search took too long); time is in calls of the "
        "driver:"
    )
    assert lines[2] == "  *  3 cuMemcpyDtoHAsync_v2 (stream 1) .==> t.py:8 in read"
    assert lines[4].endswith("was queued in call 5, and not done when the test ended")


def test_words_of_what_passed() -> None:
    """Three are named. A helper through which everything goes is no place, unless there is no other."""

    def at(number: int, begin: int, ended: int, *places: str) -> ScheduledWork:
        stack = tuple(f"/p/{place} in g" for place in places)
        return queued(number, "f", stack, begin, begin, ended, native=("libffi.so.8+0x1",) if places else ())

    works = [at(1, 1, 4, "h.py:1", "t.py:1"), at(2, 2, 10, "h.py:1", "t.py:2"), at(3, 3, 4, "h.py:1", "t.py:3")]
    works += [at(4, 4, 5), at(5, 5, 6, "h.py:1"), at(6, 7, 10, "h.py:1"), at(7, 8, 0, "h.py:1"), at(8, 0, 0, "h.py:1")]
    failure = replace(FAILURE, displaced=(2,), text="")
    story = [
        "  2: f, called at h.py:1 in g < t.py:2 in g, was queued in call 2, and done 8 calls later",
        "    queued after it, and done before it:",
        "      3: f on stream 1, called at t.py:3 in g",
        "      4: f on stream 1, called at a place that is not known",
        "      5: f on stream 1, called at h.py:1 in g",
    ]
    lines = replace(failure, works=tuple(works)).lines("/p", 1)
    assert lines[-5:] == story
    assert [line.rpartition("  ")[2].lstrip("|=>. ") for line in lines[2:6]] == [
        *("t.py:1 in g", "t.py:2 in g", "t.py:3 in g", "a place that is not known")
    ]
    more = replace(failure, works=(*works, at(9, 9, 9, "h.py:1"))).lines("/p", 1)
    assert more[-5:] == [story[0], "    queued after it, and done before it, such as:", *story[2:]]
    never = replace(failure, works=(works[1]._replace(ended=0, native_stack=("libown.so",)), *works[2:])).lines("/p", 1)
    words = "(libown.so), was queued in call 2, and not done when the test ended"
    assert never[-5] == f"  2: f, called at h.py:1 in g < t.py:2 in g {words}"
    assert never[-1] == "      5: f on stream 1, called at h.py:1 in g"
    alone = replace(failure, works=(works[1], works[3])).lines("/p", 1)
    assert alone[2].endswith("| h.py:1 in g")
    nowhere = replace(failure, works=(works[3],), displaced=(4,)).lines("/p", 1)
    assert nowhere[2].endswith("| a place that is not known")
    assert len(nowhere) == 4


def test_words_of_native_code() -> None:
    """Native frames are a place where no line of Python is, and ctypes is not; what was never ready is at its end."""
    native = queued(1, "f", (), 3, 0, 9, stream=0, native=("libown.so+0x1",))
    *_, story = replace(FAILURE, works=(native,), displaced=(1,), text="").lines("/p", 1)
    assert story == "  1: f, called at libown.so+0x1, was queued in call 3, and done 6 calls later"
    (row,) = replace(FAILURE, works=(native,), displaced=(1,)).operations("/p")
    assert (row["stream"], row["place"], row["ready"]) == ("no stream", "libown.so+0x1", 6)
    by_ctypes = queued(1, "f", STACK, 3, 3, 9, native=("_ctypes.cpython-311-x86_64-linux-gnu.so+0x1",))
    *_, story = replace(FAILURE, works=(by_ctypes,), displaced=(1,), text="").lines("/p", 1)
    assert story.startswith("  1: f, called at t.py:8 in read < t.py:4 in test, was queued")


def test_words_of_what_does_not_repeat() -> None:
    """A failure that does not repeat says so, and its command displaces whatever the seed says."""
    failure = replace(FAILURE, repeats=False)
    assert failure.request == ScheduleRequest(1, 7)
    assert any("passed when it ran under seed 7 again" in line for line in failure.lines("", 1))
    assert (FAILURE.request, FAILURE.place) == (ScheduleRequest(1, 7, (3,)), "")
    alone = replace(FAILURE, displaced=())
    assert (alone.request, alone.lines("", 1)[1:]) == (ScheduleRequest(1, 7), ["  >   assert x", "  E   old"])


def test_operations() -> None:
    """A record has the rows of the timeline; what was never done has no end."""
    names = ("number", "function", "stream", "place", "late", "queued", "ready", "done")
    rows = [
        (3, "cuMemcpyDtoHAsync_v2", "stream 1", "t.py:8 in read", True, 0, 1, 4),
        (4, "cuMemsetD8Async", "stream 2", "t.py:9 in read", False, 1, 1, None),
    ]
    shown = replace(FAILURE, works=(LATE, NEXT._replace(ended=0))).operations("/p")
    assert shown == [dict(zip(names, row, strict=True)) for row in rows]


def test_own_lines() -> None:
    """Of a test's failure, the lines that raised and the error are shown; of anything else, its end."""
    assert own_lines("def f():\n>   g()\n\nE   no\nt.py:3: E") == [">   g()", "E   no"]
    assert own_lines("a\nb\n  \nc\nd") == ["b", "c", "d"]
    assert own_lines("E x\n" * 12) == ["E x"] * 12
    assert own_lines("E x\n" * 14) == ["E x"] * 12 + ["and 2 more"]
