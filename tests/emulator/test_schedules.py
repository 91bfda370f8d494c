"""Schedules on the emulated driver: work is done early or late, as a seed says, and never against the rules."""

import json
from collections.abc import Callable

import pytest

from tests.emulator import checkers
from tests.emulator.conftest import ROOT, programs
from tests.emulator.test_queues import GATES, Check

SCHEDULES = (
    GATES
    + """
from pytest_cudalink.emulator import control
driver = control.attach(cuda)
def seeds(count=60):
    for seed in range(count):
        driver.start_schedule(seed)
        yield seed
    driver.end_schedule()
def log():
    return [one[:9] for one in driver.scheduled_work()]
"""
)


@pytest.fixture
def schedules(check: Check) -> Callable[..., str]:
    """Run a program with the names of `SCHEDULES`."""
    return lambda program, **options: check(SCHEDULES + program, **options)


#: Streams, events, host functions, pools and graphs; prints the logs of some schedules.
REPEATED = (
    SCHEDULES
    + """
calls = []
call = HOST(calls.append)
def program():
    there, done = c_uint64(), event()
    ok(cuda.cuMemAllocAsync(byref(there), c_size_t(64), apart))
    ok(fill(apart, 3, there.value))
    ok(cuda.cuEventRecord(done, apart))
    ok(cuda.cuStreamWaitEvent(blocking, done, 0))
    ok(cuda.cuLaunchHostFunc(blocking, call, c_void_p(1)))
    ok(cuda.cuMemcpyDtoDAsync_v2(c_uint64(memory), there, c_size_t(64), blocking))
    ok(cuda.cuLaunchHostFunc(other, call, c_void_p(2)))
    ok(cuda.cuStreamSynchronize(blocking))
    ok(cuda.cuMemFreeAsync(there, blocking))
    ok(cuda.cuLaunchHostFunc(apart, call, c_void_p(3)))
    ok(cuda.cuCtxSynchronize())
    ok(cuda.cuEventDestroy_v2(done))
logs = []
for seed in seeds(12):
    program()
    logs.append([calls[:], log()])
    calls.clear()
print(json.dumps(logs))
"""
)


def test_a_seed_repeats(check: Check, as_kept) -> None:
    """The same seed gives the same order and the same log, in this process and in another, and as was kept."""
    once = json.loads(check(REPEATED))
    lines = (f"{seed}; {calls}; {work}\n" for seed, (calls, log) in enumerate(once) for work in log)
    as_kept(ROOT / "tests" / "data" / "schedules.txt", "".join(lines))
    assert once == json.loads(check(REPEATED.replace("calls =", "spare = stream(), stream()\ncalls ="), fresh=True))
    assert {tuple(calls) for calls, _ in once} == {(1, 2, 3), (2, 1, 3), (1, 3, 2)}


@pytest.mark.slow
def test_waiting_for_memory(schedules: Check) -> None:
    """A program that only looks at memory sees the work done after about a second, and so does a host function."""
    schedules(
        """
word = c_uint.from_address(words + 2048)
@HOST
def wait(data):
    while word.value != data:
        pass
for seed in range(4):
    driver.start_schedule(seed)
    word.value = 0
    ok(cuda.cuStreamWriteValue32_v2(apart, c_uint64(addressof(word)), 1, 0))
    wait(1)
    ok(cuda.cuLaunchHostFunc(other, wait, c_void_p(2)))
    ok(cuda.cuStreamWriteValue32_v2(apart, c_uint64(addressof(word)), 2, 0))
    ok(cuda.cuStreamSynchronize(other))
    driver.end_schedule()
"""
    )


CHANGED = """
driver.start_watching()
host = pinned()
def submit():
    ok(cuda.cuMemcpyHtoDAsync_v2(c_uint64(memory), c_void_p(host), c_size_t(64), apart))
def submit_rows():
    rows = struct.pack("<QQI4x6QI4x6Q", 0, 0, 1, host, 0, 0, 16, 0, 0, 2, 0, memory, 0, 8, 4, 3)
    ok(cuda.cuMemcpy2DAsync_v2(rows, apart))
"""


@pytest.mark.parametrize("rows", [False, True], ids=["line", "rows"])
def test_a_source_that_changes(schedules: Check, rows: bool) -> None:
    """It is a violation with both ends that pinned memory changes while a copy that began reads it, and only then.

    A schedule that notes no stacks has the same violation.
    """
    schedules(
        CHANGED
        + f"submit = submit_rows if {rows} else submit"
        + """
def change():
    memset(host, 1, 64)
    submit()
    memset(host + 4, 2, 12)  # between the rows nothing is read
    memset(host + 32, 2, 4)
    ok(cuda.cuStreamSynchronize(apart))
    work, = driver.scheduled_work()
    return work
told = late = 0
for seed in seeds():
    work = change()
    late = seed if work.displaced else late
    found = driver.violations[told:]
    told = len(driver.violations)
    assert len(found) == work.displaced, (work, found)
    for one in found:
        assert one.rule == "asynchronous copy" and "submit" in str(one.history), one
        assert ": the memory was changed, noticed by the stream, when the copy ended" in one.text, one.text
assert 20 < told < 60, told
driver.start_schedule(late, stacks=False)
work = change()
unnoted = driver.violations[told]
assert work.displaced and (work.python_stack, work.native_stack) == ((), ()), work
assert unnoted.what == one.what and "submit" not in str(unnoted.history), unnoted
driver.end_schedule()
"""
    )


PROGRAMS = {
    "a_copy_stays_pending": """
# A copy is done in its call, calls later, or when something waits; until then its destination holds poison.
host, seen = pinned(), set()
ok(cuda.cuMemsetD8_v2(c_uint64(memory), 5, c_size_t(64)))
for seed in seeds():
    memset(host, 1, 64)
    ok(cuda.cuMemcpyDtoHAsync_v2(c_void_p(host), c_uint64(memory), c_size_t(64), apart))
    work, = driver.scheduled_work()
    assert string_at(host, 64) == (b"\\xd7" if work.delay != 0 else b"\\x05") * 64, (work, string_at(host, 64))
    assert (work.kind, work.function, work.stream, work.submitted, work.started) == (
        "copy", "cuMemcpyDtoHAsync_v2", 1, 1, 1)
    assert work.python_stack[-1].endswith("in <module>") and work.native_stack
    for _ in range(30):
        ok(cuda.cuStreamQuery(other))
    late = work.delay is None
    assert string_at(host, 64) == (b"\\xd7" if late else b"\\x05") * 64
    ok(cuda.cuStreamSynchronize(apart))
    assert string_at(host, 64) == b"\\x05" * 64
    work, = driver.scheduled_work()
    assert work.ended == (32 if late else 1 + work.delay), work
    expected = "cuMemcpyDtoHAsync_v2" if not work.displaced else "cuStreamSynchronize" if late else "cuStreamQuery"
    assert work.call == expected, work
    seen.add(work.delay)
assert {None, 0, 1, 2, 3, 4} < seen and len(seen) > 6, seen
""",
    "a_filling_stays_pending": """
# Until memory is filled, it may have neither its old bytes nor the new ones.
found = set()
for seed in seeds():
    ok(cuda.cuMemsetD8_v2(c_uint64(memory), 1, c_size_t(64)))
    ok(fill(apart, 5))
    found.add(read())
    ok(cuda.cuStreamSynchronize(apart))
assert found > {5, 0xd7}, found
""",
    "nothing_is_displaced": """
# Without displaced work everything is done in the call that submits it, as without a schedule.
driver.start_schedule(1, [])
for value in range(1, 40):
    ok(fill(apart, value))
    assert (read(), cuda.cuStreamQuery(apart)) == (value, 0)
assert {(one.delay, one.ended - one.submitted, one.displaced) for one in driver.scheduled_work()} == {(0, 0, False)}
driver.end_schedule()
""",
    "a_schedule_takes_over_work_that_is_ready": """
# A schedule that begins while the engine does ready work goes on with the rest of it.
size = 4 << 20
for _ in range(3):
    gate, behind = Gate(apart), event(2)
    ok(cuda.cuEventRecord(behind, apart))
    streams, places = [stream(1) for _ in range(24)], [allocate(size) for _ in range(24)]
    for one, place in zip(streams, places):
        ok(cuda.cuStreamWaitEvent(one, behind, 0))
        ok(cuda.cuMemsetD8Async(c_uint64(place), 5, c_size_t(size), one))
    gate.open()
    while cuda.cuStreamQuery(streams[0]) and cuda.cuStreamQuery(streams[-1]):
        pass
    driver.start_schedule(1)
    for one, place in zip(streams, places):
        ok(cuda.cuStreamSynchronize(one))
        ok(cuda.cuStreamDestroy_v2(one))
        ok(cuda.cuMemFree_v2(c_uint64(place)))
    driver.end_schedule()
""",
    "displaced_work_is_named": """
# Work that is not named is not displaced; named work has the delay that it has when all may be displaced.
def run(seed, displaced=None):
    driver.start_schedule(seed, displaced)
    for one in (apart, other, apart, blocking, apart, other):
        ok(fill(one))
    ok(cuda.cuCtxSynchronize())
    work = driver.scheduled_work()
    driver.end_schedule()
    return {one.number: one.delay for one in work}
for seed in range(30):
    every = run(seed)
    assert every == run(seed) and list(every) == [1, 2, 3, 4, 5, 6]
    for some in ([2], [3, 5], [9]):
        assert run(seed, some) == {number: every[number] if number in some else 0 for number in every}
for arguments, said in (
    *(((seed,), f"seed = {seed}; expected 0 to 2**64 - 1") for seed in (-1, 2**64)),
    *(((1, some), f"displaced = {some}; expected numbers from 1 to 2**32 - 1") for some in ([0], [3, 2**32])),
):
    try:
        driver.start_schedule(*arguments)
    except ValueError as error:
        assert str(error) == said
    else:
        raise AssertionError(said)
""",
    "a_wait_does_what_it_needs": """
# Work of another stream stays pending while a stream, an event or a synchronous copy is waited for.
host, left = pinned(), 0
for seed in seeds():
    memset(host, 0, 64)
    ok(fill(apart, 1, memory))
    ok(cuda.cuMemcpyDtoHAsync_v2(c_void_p(host), c_uint64(memory), c_size_t(1), apart))
    done = event()
    ok(cuda.cuEventRecord(done, apart))
    ok(cuda.cuMemsetD8Async(c_uint64(host + 64), 1, c_size_t(1), other))
    ok(cuda.cuEventSynchronize(done) if seed % 2 else cuda.cuStreamSynchronize(apart))
    assert string_at(host, 1) == b"\\1"
    filled = driver.scheduled_work()[3]
    assert (filled.kind, filled.stream) == ("fill", 2)
    if filled.delay is None:
        assert filled.ended == 0 and cuda.cuStreamQuery(other) == 600
        left += 1
    ok(cuda.cuStreamSynchronize(other))
assert left > 3
""",
    "asking_again_and_again": """
# A program that only asks is answered in the end, by streams and by events.
most = 0
for seed in seeds():
    ok(fill(apart))
    done, asked = event(), 0
    ok(cuda.cuEventRecord(done, apart))
    while cuda.cuEventQuery(done) if seed % 2 else cuda.cuStreamQuery(apart):
        asked += 1
    most = max(most, asked)
assert 2 < most < 100
""",
    "host_functions_under_a_schedule": """
# They run early, late and between, on the driver's thread; they may wait for a lock that the caller has.
lock, calls, threads, orders, early = threading.Lock(), [], set(), set(), set()
@HOST
def call(data):
    threads.add(threading.get_ident())
    calls.append(data)
@HOST
def locked(data):
    with lock:
        calls.append(data)
for seed in seeds(80):
    calls.clear()
    ok(cuda.cuLaunchHostFunc(apart, call, c_void_p(1)))
    early.add(len(calls))
    ok(cuda.cuLaunchHostFunc(other, call, c_void_p(2)))
    ok(cuda.cuLaunchHostFunc(apart, call, c_void_p(3)))
    ok(cuda.cuStreamQuery(blocking))
    ok(cuda.cuCtxSynchronize())
    orders.add(tuple(calls))
assert orders == {(1, 2, 3), (1, 3, 2), (2, 1, 3)} and early == {0, 1}
assert len(threads) == 1 and threads != {threading.get_ident()}
calls.clear()
driver.start_schedule(1, [])
with lock:
    ok(cuda.cuLaunchHostFunc(apart, locked, c_void_p(1)))
    assert cuda.cuStreamQuery(apart) == 600 and calls == []
ok(cuda.cuStreamSynchronize(apart))
assert calls == [1]
driver.end_schedule()
""",
    "graphs_under_a_schedule": """
# Nodes of a launched graph are done in each order that its edges allow, and its end may be late.
calls, orders = [], set()
call = HOST(calls.append)
graph, nodes = new(cuda.cuGraphCreate, 0), []
for number, on in enumerate(((), (0,), (0,), (1, 2))):
    before = (c_void_p * 2)(*(nodes[one] for one in on))
    parameters = (c_void_p * 2)(cast(call, c_void_p), c_void_p(number + 1))
    nodes.append(new(cuda.cuGraphAddHostNode, graph, before, c_size_t(len(on)), parameters))
executable = new(cuda.cuGraphInstantiateWithFlags, graph, c_uint64(0))
ended = set()
for seed in seeds():
    calls.clear()
    ok(cuda.cuGraphLaunch(executable, apart))
    ok(cuda.cuStreamSynchronize(apart))
    orders.add(tuple(calls))
    work = driver.scheduled_work()
    assert [one.kind for one in work] == ["host function"] * 4 + ["end of a graph"]
    assert {one.stream for one in work} == {1}
    assert {one.function for one in work} == {"cuGraphLaunch"} and all(one.python_stack for one in work)
assert orders == {(1, 2, 3, 4), (1, 3, 2, 4)}
""",
    "the_end_of_a_graph_is_late": """
# The destructor of a user object may run long after the launch, and runs once.
gone, late = [], 0
destroy = HOST(gone.append)
for seed in seeds():
    gone.clear()
    graph = new(cuda.cuGraphCreate, 0)
    object = new(cuda.cuUserObjectCreate, c_void_p(5), destroy, 1, 1)
    ok(cuda.cuGraphRetainUserObject(graph, object, 1, 1))
    node = new(cuda.cuGraphAddEmptyNode, graph, None, c_size_t(0))
    executable = new(cuda.cuGraphInstantiateWithFlags, graph, c_uint64(0))
    ok(cuda.cuGraphLaunch(executable, apart))
    ok(cuda.cuGraphExecDestroy(executable))
    ok(cuda.cuGraphDestroy(graph))
    late += not gone
    ok(cuda.cuCtxSynchronize())
    assert gone == [5], (gone, driver.scheduled_work())
assert 5 < late < 60, late
""",
    "memory_of_graphs_and_pools_under_a_schedule": """
# A graph that allocates and frees is launched again and again; memory that a pending free has serves the next.
ok(cuda.cuStreamBeginCapture_v2(apart, 2))
there = new(cuda.cuMemAllocAsync, c_uint64, c_size_t(4096), apart)
ok(fill(apart, 6, there.value))
ok(cuda.cuMemcpyDtoDAsync_v2(c_uint64(memory), there, c_size_t(64), apart))
ok(cuda.cuMemFreeAsync(there, apart))
executable = captured(apart)
large = c_size_t(get(cuda.cuMemGetInfo_v2, c_size_t, None) // 4 * 3)
for seed in seeds():
    ok(fill(apart, 1))
    for _ in range(3):
        ok(cuda.cuGraphLaunch(executable, apart))
    ok(cuda.cuStreamSynchronize(apart))
    assert read() == 6
    for _ in range(3):
        ok(cuda.cuMemAllocAsync(byref(there), large, apart))
        ok(fill(apart, 1, there.value))
        ok(cuda.cuMemFreeAsync(there, apart))
    ok(cuda.cuStreamSynchronize(apart))
""",
    "when_a_copy_reads": """
# A copy that is unfinished has read its source, or will; both are seen. A source from pageable memory was read.
source, into, seen = allocate(64), allocate(64), set()
page = pageable(64)
for seed in seeds(150):
    ok(cuda.cuMemsetD8_v2(c_uint64(source), 1, c_size_t(64)))
    ok(cuda.cuStreamSynchronize(legacy))
    ok(cuda.cuMemcpyDtoDAsync_v2(c_uint64(into), c_uint64(source), c_size_t(64), apart))
    ok(cuda.cuMemsetD8Async(c_uint64(source), 2, c_size_t(64), stream(1)))  # nothing orders the two
    memset(page, 7, 64)
    ok(cuda.cuMemcpyHtoDAsync_v2(c_uint64(memory), c_void_p(page), c_size_t(64), apart))
    memset(page, 8, 64)
    ok(cuda.cuStreamSynchronize(apart))
    assert read() == 7
    seen.add(read(into))
assert {1, 2} <= seen <= {1, 2, 0xd7}, seen
""",
    "a_source_that_changes_before_its_copy": CHANGED
    + """
# Memory may change as long as a gate or other work holds its copy up.
for seed in seeds():
    gate = Gate(apart)
    submit()
    memset(host, seed, 64)
    gate.open(apart)
    assert read() == seed
assert driver.violations == ()
""",
    "waits_that_nobody_promises_are_left_out": """
# Work stays pending over a call whose wait is left out; the others wait, and each is listed with its place.
from pytest_cudalink.emulator.no_wait import waits
host = pinned()
ok(cuda.cuMemsetD8_v2(c_uint64(memory), 5, c_size_t(64)))
def work():
    memset(host, 1, 64)
    ok(cuda.cuMemcpyDtoHAsync_v2(c_void_p(host), c_uint64(memory), c_size_t(64), apart))
def free():
    return cuda.cuMemFree_v2(c_uint64(allocate(64)))
def after(left_out, call):
    driver.leave_out_waits(left_out)
    driver.start_schedule(late)
    work()
    ok(call())
    done = string_at(host, 1) == b"\\x05"
    driver.end_schedule()
    driver.keep_waits()
    return done
late = next(seed for seed in seeds() if not work() and driver.scheduled_work()[0].delay is None)
assert after([], free) and not after(None, free)
one, = driver.unpromised_waits()
assert (one.number, one.function, one.pending) == (1, "cuMemFree_v2", True)
assert "cuMemFree_v2" in waits()[one.row - 1].calls and waits()[one.row - 1].given == {
    "memory": ("device", "managed")}
assert one.python_stack[-1].endswith("in free") and one.native_stack
assert [after(numbers, lambda: free() or free()) for numbers in ([1], [2], [1, 2])] == [True, True, False]
assert [one.pending for one in driver.unpromised_waits()] == [True, True]
assert after(None, cuda.cuCtxSynchronize) and not driver.unpromised_waits()
driver.start_schedule(late)
work()
ok(free())
assert string_at(host, 1) == b"\\x05"
""",
    "copies_of_pageable_memory_without_their_waits": """
# They are pending as those of pinned memory are: a source may be read late, and a result is there late.
page, large, seen = pageable(64), pageable(4 << 20), set()
into = allocate(4 << 20)
for seed in range(60):
    driver.leave_out_waits()
    driver.start_schedule(seed)
    memset(page, 7, 64)
    ok(cuda.cuMemcpyHtoDAsync_v2(c_uint64(memory), c_void_p(page), c_size_t(64), apart))
    memset(page, 8, 64)
    memset(large, 7, 4 << 20)
    ok(cuda.cuMemcpyHtoDAsync_v2(c_uint64(into), c_void_p(large), c_size_t(4 << 20), other))
    memset(large, 8, 4 << 20)
    ok(cuda.cuCtxSynchronize())
    rows = [one.row for one in driver.unpromised_waits()]; assert rows[0] == 0 < rows[1], rows
    driver.keep_waits()
    seen.add((read(), read(into)))
    driver.leave_out_waits()
    memset(page, 1, 64)
    ok(cuda.cuMemcpyDtoHAsync_v2(c_void_p(page), c_uint64(memory), c_size_t(64), apart))
    early = string_at(page, 1)[0]
    ok(cuda.cuStreamSynchronize(apart))
    seen.add(early if early == 0xd7 else early == string_at(page, 1)[0])
    assert [bool(one.row) for one in driver.unpromised_waits()] == [True]
assert seen == {(7, 7), (7, 8), (8, 7), (8, 8), 0xd7, True}, seen
""",
    "a_context_that_dies_without_waiting": """
# Work of a context that is destroyed is not done if the wait for it is left out.
host = pinned()
def destroyed(left_out, seed):
    made = new(cuda.cuCtxCreate_v2, 0, 0)
    mine, memory = stream(1), allocate(64)
    ok(cuda.cuMemsetD8_v2(c_uint64(memory), 5, c_size_t(64)))
    driver.leave_out_waits(left_out)
    driver.start_schedule(seed)
    memset(host, 1, 64)
    ok(cuda.cuMemcpyDtoHAsync_v2(c_void_p(host), c_uint64(memory), c_size_t(64), mine))
    ok(cuda.cuCtxDestroy_v2(made))
    ok(cuda.cuCtxSetCurrent(context))
    driver.end_schedule()
    driver.keep_waits()
    return string_at(host, 1)[0]
assert {destroyed([], seed) for seed in range(30)} == {5}
assert {destroyed(None, seed) for seed in range(30)} == {5, 0xd7}
""",
    "a_forked_child_has_no_schedule": """
# It has none of its parent's work; the parent goes on.
driver.start_schedule(6)
ok(fill(apart, 2))
child = os.fork()
if not child:
    os._exit(0 if cuda.cuStreamQuery(apart) == 3 and not driver.scheduled_work() else 1)
assert os.waitpid(child, 0)[1] == 0
ok(cuda.cuStreamSynchronize(apart))
assert read() == 2
""",
    "the_end_of_a_schedule": """
# Pending work is done, but for what a gate holds up; that is done later, and no other schedule knows it.
for seed in range(20):
    calls = []
    call = HOST(calls.append)
    driver.start_schedule(seed)
    ok(fill(other, 7))
    gate = Gate(apart)
    ok(cuda.cuLaunchHostFunc(apart, call, c_void_p(1)))
    ok(cuda.cuLaunchHostFunc(blocking, call, c_void_p(2)))
    driver.end_schedule()
    assert (read(), calls) == (7, [2])
    driver.start_schedule(seed + 1)
    gate.open(apart)
    assert calls == [2, 1] and driver.scheduled_work() == []
    driver.end_schedule()
    ok(fill(other, 1))
""",
}
test_programs = programs(PROGRAMS, fixture="schedules")


@pytest.mark.parametrize("thousands", [1, pytest.param(30, marks=pytest.mark.slow)])
def test_orders_of_schedules(thousands: int) -> None:
    """A checker that knows the rules alone forbids none of the orders; `checkers orders` makes a million."""
    assert checkers.orders(thousands) == []
