"""The verdicts of a fault sweep, the choice of its runs, and its baseline."""

import json
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_cudalink.emulator.control import DriverState as State
from pytest_cudalink.plugin.hostile.sweep_plan import (
    KINDS,
    REPEATS,
    Call,
    FailedCall,
    FailureMode,
    SweepFailure,
    SweepTotals,
    SweptTrial,
    baseline_lines,
    baseline_place,
    gone,
    judge,
    merged,
    new_failures,
    plan,
    read_baseline,
    site_of,
)
from pytest_cudalink.report.naming import Raised, Said

MEMORY = FailureMode(2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory")
LOST = FailureMode(46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable", "device")
CALLS = ("cuInit", "cuMemAlloc_v2", "cuMemsetD8_v2", "cuMemFree_v2")
CLEAN = SweptTrial("passed", CALLS)
ALLOCATE = FailedCall(2, Call("cuMemAlloc_v2", "own.py:3 in make"), MEMORY)
FREE = FailedCall(4, Call("cuMemFree_v2", "own.py:9 in drop"), MEMORY)

places = st.builds(Call, st.sampled_from(CALLS), st.sampled_from(("a.py:1 in f", "a.py:2 in f", "b.py:1 in g")))
calls = st.lists(places, max_size=12)
modes = st.lists(st.sampled_from((MEMORY, MEMORY._replace(stays="function"), LOST)), unique=True)
failures = st.lists(
    st.builds(
        SweepFailure,
        st.sampled_from(list(KINDS)),
        st.builds(FailedCall, st.integers(1, 9), places, st.just(MEMORY)),
        st.just("seen"),
        st.just("a.py::test"),
    ),
    max_size=8,
)


def said(faulted: SweptTrial, fault: FailedCall = ALLOCATE, clean: SweptTrial = CLEAN) -> list[tuple[str, str]]:
    return [(failure.kind, failure.detail) for failure in judge(clean, faulted, fault, "test")]


def kinds(faulted: SweptTrial, fault: FailedCall = ALLOCATE, clean: SweptTrial = CLEAN) -> list[str]:
    return [failure.kind for failure in judge(clean, faulted, fault, "test")]


def failed(said: str, calls: tuple[str, ...] = CALLS[:2], **facts: Any) -> SweptTrial:
    return SweptTrial("failed", calls, (Raised(said),), **facts)


def test_raising_with_its_cause() -> None:
    """A test that fails and names the error is right; `test_naming` has how."""
    assert kinds(failed("CUDAError: CUDA_ERROR_OUT_OF_MEMORY")) == []
    assert kinds(failed("CUDAError: CUDA_ERROR_OUT_OF_MEMORY_2")) == ["no-cause"]
    nothing = ALLOCATE._replace(mode=MEMORY._replace(words=""))
    assert kinds(failed("no"), nothing) == ["no-cause"]
    assert kinds(SweptTrial("failed", CALLS[:2], notices=(Said("cuMemAlloc failed"),))) == []


def test_error_of_another_call() -> None:
    """A code that another call has answered for itself names nothing, unless every call answers it from then on."""
    text = "DriverError: cuMemsetD8_v2 failed with CUDA_ERROR_OUT_OF_MEMORY"
    assert kinds(failed(text, CALLS, failing=(2, 3))) == ["no-cause"]
    assert kinds(failed(text, CALLS, failing=(2,))) == []
    assert kinds(failed(text, CALLS, failing=(2, 3), lasts=True)) == []
    lost = ALLOCATE._replace(mode=LOST)
    assert kinds(failed(text.replace("OUT_OF_MEMORY", "DEVICE_UNAVAILABLE"), CALLS, failing=(2, 3)), lost) == []
    assert kinds(failed("cuMemsetD8_v2 returned 46", CALLS), lost) == []
    assert kinds(failed("cuMemsetD8_v2 returned 2", CALLS)) == ["no-cause"]
    another_way = ("cuInit", "cuMemsetD8_v2")  # the call of this number is the one that the sweep let fail
    assert kinds(failed(text, another_way, failing=(2,))) == []
    again = ("cuInit", "cuMemAlloc_v2", "cuMemAlloc_v2")
    assert kinds(failed("DriverError: cuMemAlloc_v2 failed", again, failing=(2, 3))) == []


def test_failing_anyway() -> None:
    """Of a test that fails in the clean run nothing is said."""
    assert kinds(failed("x"), clean=failed("x", CALLS)) == []


def test_swallowing() -> None:
    """A test that passes with the calls of the clean run has swallowed the error."""
    assert kinds(SweptTrial("passed", CALLS)) == ["swallowed"]
    assert kinds(SweptTrial("passed", CALLS), clean=SweptTrial("passed", CALLS, failing=(1, 3))) == ["swallowed"]
    assert kinds(SweptTrial("passed", CALLS), clean=SweptTrial("passed", CALLS, failing=(2,))) == []


@pytest.mark.parametrize(
    ("faulted", "fault"),
    [
        pytest.param(SweptTrial("passed", (*CALLS[:2], *CALLS[1:])), ALLOCATE, id="retry"),
        pytest.param(SweptTrial("passed", (*CALLS[:2], "cuMemAllocHost_v2")), ALLOCATE, id="another way"),
        pytest.param(SweptTrial("passed", CALLS[:2]), ALLOCATE, id="without it"),
        pytest.param(SweptTrial("passed", CALLS, notices=(Said("out of memory"),)), ALLOCATE, id="words"),
        pytest.param(SweptTrial("passed", CALLS, notices=(Said("go slower", alarm=True),)), ALLOCATE, id="warning"),
        pytest.param(SweptTrial("passed", CALLS, (Raised("out of memory"),)), ALLOCATE, id="a failure expected"),
        pytest.param(SweptTrial("passed", CALLS[:1]), ALLOCATE, id="never called"),
        pytest.param(SweptTrial("passed", CALLS), FREE, id="a free that fails"),
        pytest.param(SweptTrial("passed", CALLS), ALLOCATE._replace(call=Call("cuInit", "")), id="cuInit once more"),
        pytest.param(SweptTrial("skipped", CALLS), ALLOCATE, id="skip"),
    ],
)
def test_going_on_rightly(faulted: SweptTrial, fault: FailedCall) -> None:
    """A test may pass where something has noticed the error."""
    assert kinds(faulted, fault) == []


def test_words_of_every_run() -> None:
    """What a clean run says, too, notices nothing, in whatever words."""
    words = tuple(Said(text, alarm) for text in ("cuMemAlloc: 8 bytes at 0x7f00", "out of memory?") for alarm in (0, 1))
    later = tuple(word._replace(text=word.text.replace("7f00", "80ff")) for word in words)
    clean = SweptTrial("passed", CALLS, notices=words)
    assert kinds(SweptTrial("passed", CALLS, notices=later), clean=clean) == ["swallowed"]
    assert kinds(SweptTrial("passed", CALLS, notices=(*words, words[0])), clean=clean) == []
    assert kinds(failed("it failed", notices=later), clean=clean) == ["no-cause"]


MANY = "1 x memory, 1 x stream, 1 x event (1 bytes)"


@pytest.mark.parametrize(
    ("before", "after", "left"),
    [
        ({"stream": (2, 0), "memory": (1, 100)}, {"stream": (2, 0), "memory": (3, 300)}, "2 x memory (200 bytes)"),
        ({"memory": (1, 100)}, {"memory": (1, 100)}, None),
        ({"memory": (1, 100)}, {}, None),
        ({"memory": (1, 100)}, {"memory": (2, 100), "stream": (1, 0), "event": (1, 1)}, MANY),
        ({"stream": (1, 0)}, {"memory": (1, 4096)}, "1 x memory (4,096 bytes)"),
    ],
)
def test_leaks(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]], left: str | None) -> None:
    """What a clean run frees and this one does not is a leak; what both leave is none."""
    failures = said(failed("cuMemAlloc", alive=after), clean=SweptTrial("passed", alive=before))
    assert failures == ([] if left is None else [("leak", f"a clean run frees what this one left: {left}")])


def test_leak_of_a_free_that_fails() -> None:
    """What the failed call was to free stays and is no leak; anything more is."""
    assert kinds(failed("cuMemFree", CALLS, alive={"device memory": (1, 4)}), FREE) == []
    earlier = failed("cuMemFree", ("cuMemFree_v2", *CALLS[1:]), alive={"device memory": (2, 8)})
    assert kinds(earlier, FREE._replace(mode=MEMORY._replace(stays="function"))) == ["leak"]
    closer = failed("cuMemFree", ("cuMemFree_v2", "cuMemFree_v2"), alive={"device memory": (2, 8)})
    assert kinds(closer, FREE._replace(number=2, mode=MEMORY._replace(stays="function"))) == ["leak"]
    both = failed("cuMemFree", (*CALLS, CALLS[-1]), alive={"device memory": (2, 8)})
    assert kinds(both, FREE._replace(mode=MEMORY._replace(stays="function"))) == []
    assert kinds(both, FREE) == ["leak"]
    graph = FREE._replace(call=Call("cuGraphExecDestroy", ""))
    owned = failed("cuGraphExecDestroy", CALLS, alive={"executable graph": (1, 0), "user object": (1, 0)})
    assert kinds(owned, graph) == []
    assert kinds(failed("cuMemFree", CALLS, alive={"device memory": (2, 8)}), FREE) == ["leak"]
    assert kinds(failed("cuMemFree", CALLS, alive={"event": (1, 0), "stream": (1, 0)}), FREE) == ["leak"]


P, C = "primary context of device 0", "context"
TWO = f"a {C} under a {C} under a {P}"
PUSHED = (
    "it left the stack of its thread with {}, and a clean run with {}, so that later calls work in another context; "
    "{} where a call fails, too"
)


CAPTURES = (
    "it left {}, so that no work of it is done, and calls that a capture forbids fail; call cuStreamEndCapture where a "
    "call fails, too"
)
THREAD = (
    f"it left a {P} on the stack of a thread that has not ended; pop what was pushed, and end the thread, where a call "
    "fails, too"
)
MODE = "it left its thread with capture mode 2, and a clean run with 0; exchange it back where a call fails, too"
NONE = State()
STACK, MORE, OTHER = State((P,)), State((P, C)), State((C,))
CAPTURING, IN_THREAD = State(captures=1), State(threads=((P,),))


@pytest.mark.parametrize(
    ("before", "wanted", "after", "name", "expected"),
    [
        (NONE, NONE, STACK, "cuMemAlloc_v2", PUSHED.format(f"a {P}", "no context", "pop what was pushed")),
        (STACK, STACK, NONE, "cuMemAlloc_v2", PUSHED.format("no context", f"a {P}", "push what was popped")),
        (STACK, STACK, OTHER, "cuInit", PUSHED.format(f"a {C}", f"a {P}", "make the other one current")),
        (STACK, STACK, STACK, "cuMemAlloc_v2", None),
        (NONE, STACK, NONE, "cuMemAlloc_v2", None),  # it did not come to what a clean run leaves
        (STACK, OTHER, State(("other",)), "cuMemAlloc_v2", None),  # nor does a clean run put anything back
        (NONE, State((P, P)), STACK, "cuMemAlloc_v2", None),
        (STACK, NONE, STACK, "cuMemAlloc_v2", None),
        (NONE, STACK, MORE, "cuMemAlloc_v2", PUSHED.format(f"a {C} under a {P}", f"a {P}", "pop what was pushed")),
        (State((P, P)), STACK, NONE, "cuInit", PUSHED.format("no context", f"a {P}", "push what was popped")),
        (NONE, NONE, STACK, "cuCtxPopCurrent_v2", None),
        (NONE, STACK, State((P, P)), "cuCtxPopCurrent_v2", None),
        (STACK, STACK, OTHER, "cuCtxSetCurrent", None),
        (STACK, STACK, State((P, C, C)), "cuCtxDestroy_v2", PUSHED.format(TWO, f"a {P}", "pop what was pushed")),
        (State((P, P)), STACK, NONE, "cuCtxPushCurrent_v2", None),
        (NONE, NONE, CAPTURING, "cuInit", CAPTURES.format("a stream that captures")),
        (NONE, NONE, State(captures=2), "cuInit", CAPTURES.format("2 streams that capture")),
        (NONE, NONE, State(captures=2), "cuStreamEndCapture", CAPTURES.format("2 streams that capture")),
        (NONE, NONE, CAPTURING, "cuStreamEndCapture", None),
        (NONE, NONE, CAPTURING, "cuStreamDestroy_v2", None),
        (CAPTURING, NONE, CAPTURING, "cuInit", None),
        (NONE, CAPTURING, CAPTURING, "cuInit", None),
        (CAPTURING, CAPTURING, NONE, "cuInit", None),
        (NONE, NONE, State(mode=2), "cuInit", MODE),
        (NONE, State(mode=1), State(mode=2), "cuInit", None),
        (NONE, NONE, State(mode=2), "cuThreadExchangeStreamCaptureMode", None),
        (NONE, NONE, IN_THREAD, "cuInit", THREAD),
        (NONE, IN_THREAD, IN_THREAD, "cuInit", None),
        (IN_THREAD, NONE, IN_THREAD, "cuInit", None),
        (NONE, IN_THREAD, State(threads=((P,),) * 2), "cuInit", THREAD),
        (NONE, IN_THREAD, NONE, "cuInit", None),
    ],
)
def test_state_that_is_left(before: State, wanted: State, after: State, name: str, expected: str | None) -> None:
    """It is to be put back where a clean run does so, but for what the failed call was to do."""
    fault = ALLOCATE._replace(call=Call(name, ""))
    clean = SweptTrial("passed", CALLS, before=before, after=wanted)
    faulted = failed(name, before=before, after=after)
    assert said(faulted, fault, clean) == ([("state", expected)] if expected else [])
    assert said(replace(faulted, after=None), fault, clean) == []
    assert said(faulted, fault, replace(clean, after=None)) == []


@pytest.mark.parametrize(
    ("begun", "wanted", "after", "right"),
    [
        ((P,), (P,), (), False),
        ((P,), (P,), (P,), True),
        (None, (P,), (), True),  # its fixture failed
        ((), (P,), (), True),
        ((P,), (), (), True),
        ((P,), (), (P,), False),
    ],
)
def test_stack_that_a_fixture_leaves(
    begun: tuple[str, ...] | None, wanted: tuple[str, ...], after: tuple[str, ...], right: bool
) -> None:
    """A test that begins with a context of its fixture, and ends with it, is to put it back."""
    begun_with = State(begun) if begun is not None else None
    faulted = failed("cuMemAlloc", before=State(), begun=begun_with, after=State(after))
    clean = SweptTrial("passed", CALLS, after=State(wanted))
    assert kinds(faulted, clean=clean) == ([] if right else ["state"])


def test_state_of_calls_that_fail_again() -> None:
    """Each call that the sweep has let fail may leave one context; one that was made and not destroyed is a leak."""
    twice = FailedCall(1, Call("cuCtxPopCurrent_v2", ""), MEMORY._replace(stays="function"))
    calls, after = ("cuCtxPopCurrent_v2",) * 2, State((P, P))
    assert kinds(failed("cuCtxPopCurrent", calls, after=after), twice) == []
    assert kinds(failed("cuCtxPopCurrent", calls[:1], after=after), twice) == ["state"]
    leak = {"context": (1, 0)}
    assert kinds(failed("cuMemAlloc", after=State((C,)), alive=leak)) == ["leak"]
    assert kinds(failed("cuMemAlloc", after=State((C, C)), alive=leak)) == ["leak", "state"]
    known = SweptTrial("passed", CALLS, alive=leak)
    assert kinds(failed("cuMemAlloc", after=State((C,)), alive=leak), clean=known) == ["state"]
    assert kinds(failed("cuMemAlloc", after=State((C,))), clean=known) == ["state"]


def test_several_things_that_are_left() -> None:
    """They are one failure."""
    ((kind, text),) = said(failed("cuMemAlloc", after=State(captures=1, mode=2)))
    assert (kind, text) == ("state", f"{CAPTURES.format('a stream that captures')}; {MODE}")


LATER = ("later", "the same test fails in this process afterwards, although no call of it does: boom")
SWALLOWED = ("swallowed", "the test passed, and made the same calls as if this one had succeeded")
BROKEN = SweptTrial("passed", CALLS, violations=("a", "b"), later="boom")


@pytest.mark.parametrize(
    ("faulted", "clean", "expected"),
    [
        (SweptTrial(hung=True, end="was stopped"), CLEAN, [("hang", "the test did not end: its process was stopped")]),
        (
            SweptTrial("passed", CALLS, end="was killed by SIGSEGV"),
            CLEAN,
            [("crash", "the process was killed by SIGSEGV")],
        ),
        (SweptTrial(), CLEAN, [("crash", "the process ended before the test did")]),
        (BROKEN, CLEAN, [("violation", "a"), LATER, SWALLOWED]),
        (BROKEN, SweptTrial("passed", CALLS, violations=("a",)), [("violation", "b"), LATER, SWALLOWED]),
        (BROKEN, SweptTrial("passed", CALLS, violations=("a", "b")), [LATER, SWALLOWED]),
        (BROKEN, SweptTrial("passed", CALLS, later="too"), [("violation", "a"), SWALLOWED]),
        (
            failed("\n \n KeyError: 2 \n at a.py"),
            CLEAN,
            [("no-cause", "the test failed without naming the error: KeyError: 2")],
        ),
        (
            SweptTrial("failed", CALLS[:2]),
            CLEAN,
            [("no-cause", "the test failed without naming the error: it said nothing")],
        ),
        (failed("KeyError: 2", CALLS[:1]), CLEAN, []),
    ],
)
def test_words_of_a_verdict(faulted: SweptTrial, clean: SweptTrial, expected: list[tuple[str, str]]) -> None:
    """A hang or a crash is the only failure of its run; a broken rule and a later failure come with others."""
    assert said(faulted, clean=clean) == expected


@pytest.mark.parametrize(
    ("fault", "called"),
    [
        (ALLOCATE, "CUDA_ERROR_OUT_OF_MEMORY, called at own.py:3 in make"),
        (
            ALLOCATE._replace(mode=MEMORY._replace(stays="function")),
            "CUDA_ERROR_OUT_OF_MEMORY, as did each later call of it, called at own.py:3 in make",
        ),
        (
            ALLOCATE._replace(mode=LOST, call=Call("cuMemAlloc_v2", "")),
            "CUDA_ERROR_DEVICE_UNAVAILABLE and the device stayed lost, called at a place that is not known",
        ),
    ],
)
def test_finding_as_a_line(fault: FailedCall, called: str) -> None:
    """A failure names kind, call, number, code and place."""
    (failure,) = judge(CLEAN, CLEAN, fault, "test")
    (placed,) = judge(CLEAN, CLEAN, fault, "test", "own.py::test")
    assert (failure.place, placed.place, SweepFailure("leak", fault, "", "").place) == ("", "own.py::test", "")
    assert str(failure) == f"swallowed: cuMemAlloc_v2 (call 2) failed with {called}: {SWALLOWED[1]}"
    assert (str(ALLOCATE), str(ALLOCATE._replace(mode=LOST))) == ("2:2", "2:46:device")


def test_site() -> None:
    """The place of a call is its innermost lines, each in short."""
    stack = ["/p/.venv/site-packages/cuda/a.py:1 in x", "/p/own.py:3 in make", "/p/t.py:9 in test", "/p/t.py:1 in f"]
    assert site_of(stack, "/p") == "cuda/a.py:1 in x < own.py:3 in make < t.py:9 in test"
    assert site_of(["/X/own.py:3 in make"], "/X/") == "own.py:3 in make"
    assert site_of(stack[1:2], "/elsewhere/") == "/p/own.py:3 in make"
    assert site_of([], "/p") == ""


@given(calls, modes, st.integers(0, 20))
def test_plan(some: list[Call], how: list[FailureMode], budget: int) -> None:
    """Each call fails once in each way; a budget takes the first ones, of each function and place before more."""
    everything, *left = plan(some, lambda _: how)
    assert left == [[], [], []]
    assert len(set(everything)) == len(everything) == len(some) * len(how)
    assert all(some[fault.number - 1] == fault.call for fault in everything)
    first = {(fault.call, fault.mode) for fault in everything[: len(set(some)) * len(how)]}
    assert first == {(call, way) for call in some for way in how}
    chosen, over, elsewhere, repeats = plan(some, lambda _: how, budget=budget)
    assert chosen == everything[: budget or None]
    assert chosen + over == everything
    assert elsewhere == repeats == []


@given(calls, modes, st.integers(0, 20), st.integers(1, 4))
def test_plan_for_several_machines(some: list[Call], how: list[FailureMode], budget: int, machines: int) -> None:
    """Machines share the runs: none is made twice, and none is missing."""
    shares = [plan(some, lambda _: how, budget=budget, part=(number + 1, machines)) for number in range(machines)]
    parts = [share.chosen for share in shares]
    whole = plan(some, lambda _: how, budget=budget)
    assert sorted(chain(*parts)) == sorted(whole.chosen)
    assert all(sorted(share.chosen + share.elsewhere) == sorted(whole.chosen) for share in shares)
    assert all(share.over_budget == whole.over_budget for share in shares)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_plan_of_functions() -> None:
    """A user may name functions, with or without the number of their form; some calls are left out."""
    some = [Call(name, "") for name in ("cuMemAlloc_v2", "cuMemFree_v2", "cuInit")]
    assert [fault.number for fault in plan(some, lambda _: [MEMORY], functions=["cuMemAlloc", "cuInit"])[0]] == [1, 3]
    assert [fault.number for fault in plan(some, lambda _: [MEMORY], functions=["cuMemFree_v2"])[0]] == [2]
    assert [fault.number for fault in plan(some, lambda _: [MEMORY], closed={2})[0]] == [1, 3]


@example([("cuInit", "loop"), ("cuInit", ""), ("cuInit", "other")] * 40)
@example([("cuInit", "loop")] * 9 + [("cuInit", "other")] * 9)
@given(st.lists(st.sampled_from([("cuInit", "loop"), ("cuInit", "other"), ("cuMemAlloc_v2", "loop"), ("cuInit", "")])))
def test_repeats(some: list[tuple[str, str]]) -> None:
    """Six calls of a function by one stack fail, far apart, with the first, second and last; all without a stack."""
    calls = [Call(function, "own.py:3 in make") for function, _ in some]
    stacks = [[stack] if stack else [] for _, stack in some]
    chosen, over, elsewhere, repeats = plan(calls, lambda _: [MEMORY, LOST], stacks=stacks, budget=10_000)
    assert over == elsewhere == []
    assert sorted(chosen + repeats) == sorted(plan(calls, lambda _: [MEMORY, LOST], stacks=stacks).chosen)
    for value in set(some):
        numbers = [number for number, other in enumerate(some, 1) if other == value]
        failing = [number for number in numbers if FailedCall(number, calls[number - 1], LOST) in chosen]
        if len(numbers) <= REPEATS or not value[1]:
            assert failing == numbers
        else:
            assert len(failing) == REPEATS == 6
            assert {*numbers[:2], numbers[-1]} <= set(failing)
            gaps = [numbers.index(after) - numbers.index(before) for before, after in pairwise(failing[1:])]
            assert max(gaps) - min(gaps) <= 1


def test_order_of_the_plan() -> None:
    """The first call of a place comes first, then the last, then the others; the likeliest code first."""
    some = [Call("cuMemAlloc_v2", "a")] * 4 + [Call("cuInit", "a")]
    chosen = plan(some, lambda _: [MEMORY, LOST])[0]
    assert [str(fault) for fault in chosen[:6]] == ["1:2", "5:2", "1:46:device", "5:46:device", "4:2", "4:46:device"]


def test_order_of_failures() -> None:
    """Those of a kind are in the order of their functions, then of their places."""
    faults = [FREE._replace(call=Call(*call)) for call in (("b", "1"), ("a", "3"), ("a", "2"))]
    pairs = merged(SweepFailure("leak", fault, "", "") for fault in faults)
    assert [str(failure.fault.call.site) for failure, _ in pairs] == ["2", "3", "1"]


@given(failures)
def test_merging(some: list[SweepFailure]) -> None:
    """Equal failures of one place are one; the worst are first, and none is lost."""
    pairs = merged(some)
    assert sum(count for _, count in pairs) == len(some)
    assert len({failure.key for failure, _ in pairs}) == len(pairs)
    order = [list(KINDS).index(failure.kind) for failure, _ in pairs]
    assert order == sorted(order)


@given(failures, failures)
def test_baseline(some: list[SweepFailure], others: list[SweepFailure]) -> None:
    """What a baseline was made from is known to it, and all of it is there; it says which of its lines can go."""
    lines = read_baseline("# of today\n\n" + "\n".join(baseline_lines(some)))
    assert new_failures(some, lines) == []
    tried = {line.partition(" ")[2] for line in lines}
    assert gone(some, lines, tried) == []
    assert new_failures(some, []) == merged(some)
    assert gone([], lines[::-1], tried) == lines
    kept = len(lines) - len(gone(others, lines, tried))
    assert len(new_failures(others, lines)) == len(merged(others)) - kept


@given(failures, failures)
def test_adding_up(some: list[SweepFailure], others: list[SweepFailure]) -> None:
    """Processes hand over what they found as JSON, and it adds up; where nothing is said, no call is left out."""
    assert (SweptTrial().unlisted, SweepTotals().repeats) == (0, 0)
    both = ({"a": 1, "b": 1}, {"c": 1}, {"d": 1}, {"f", "g"}, {"h"}, {"i"})
    first, second = SweepTotals(), SweepTotals(10, 20, *both[:3], others, 30, 40, 50, 60, *both[3:])
    first.add(SweepTotals(1, 2, {"a": 1}, {}, {}, some, 3, 4, 5, 6, {"f"}))
    first.add(msgspec.convert(json.loads(json.dumps(msgspec.to_builtins(second))), SweepTotals))
    assert first == SweepTotals(11, 22, {"a": 2, "b": 1}, *both[1:3], some + others, 33, 44, 55, 66, *both[3:])


def test_lines_that_may_be_known_for_good_reason() -> None:
    """A line can leave only if its call has failed: a test that was not swept, or a budget, says nothing of it."""
    lines = baseline_lines(judge(CLEAN, CLEAN, ALLOCATE, "test"))
    assert gone([], lines, {baseline_place(FREE.call)}) == []
    assert gone([], lines, {baseline_place(ALLOCATE.call), baseline_place(FREE.call)}) == lines


def test_baseline_without_line_numbers() -> None:
    """A change above a place does not make its failure new."""
    (failure,) = judge(CLEAN, CLEAN, ALLOCATE, "test")
    (moved,) = judge(CLEAN, CLEAN, ALLOCATE._replace(call=Call("cuMemAlloc_v2", "own.py:30 in make")), "test")
    assert baseline_lines([failure]) == ["swallowed cuMemAlloc_v2 own.py in make"]
    assert new_failures([moved], baseline_lines([failure])) == []
    assert len(new_failures([failure, moved], baseline_lines([failure]))) == 1


@pytest.mark.parametrize("line", ["nonsense cuInit", "leak"])
def test_wrong_baseline(line: str) -> None:
    """A line that is no failure is named."""
    kinds = "crash, hang, violation, later, leak, state, swallowed, no-cause"
    with pytest.raises(ValueError, match=rf"^line 2 is '{line}'; expected KIND FUNCTION PLACE, .* kinds {kinds}$"):
        read_baseline(f"# comment\n{line}")
    assert read_baseline("leak  cuInit\n") == ["leak cuInit"]
