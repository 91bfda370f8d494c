"""Queues of streams on the emulated driver: closed gates, order, host functions, default streams of threads."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

import pytest_cudalink
from pytest_cudalink import emulator
from tests.emulator.conftest import HEAD, programs

Check = Callable[..., str]
TABLE = tomllib.loads(
    (Path(pytest_cudalink.__file__).parent / "data/emulator/synchronization.toml").read_text(encoding="utf-8")
)

#: The answers of an H100.
RECORDED = Path(__file__).parents[2] / "campaigns/conformance/recorded/host-calls-580.159.04.json"

#: Streams, memory of each kind, and gates: a stream stands at one until it is opened.
GATES = """
context = start()
pages = []
def pageable(size=4096):
    pages.append(create_string_buffer(size))
    return addressof(pages[-1])
words, numbers = pinned(), itertools.count()
class Gate:
    def __init__(self, at, name="cuStreamWaitValue32_v2"):
        self.word = c_uint.from_address(words + 4 * next(numbers))
        self.address = c_uint64(addressof(self.word))
        ok(getattr(cuda, name)(at, self.address, 1, 0))
    def open(self, wait=None):
        self.word.value = 1
        if wait:
            ok(wait() if callable(wait) else cuda.cuStreamSynchronize(wait))
def captured(at):
    return new(cuda.cuGraphInstantiateWithFlags, new(cuda.cuStreamEndCapture, at, c_void_p), c_uint64(0))
HOST = CFUNCTYPE(None, c_void_p)
blocking, other, apart, legacy, own = stream(), stream(), stream(1), c_void_p(1), c_void_p(2)
memory = allocate(4096)
def fill(at, value=1, to=memory):
    return cuda.cuMemsetD8Async(c_uint64(to), value, c_size_t(64), at)
def read(of=memory):
    into = create_string_buffer(1)
    ok(cuda.cuMemcpyDtoHAsync_v2(into, c_uint64(of), c_size_t(1), stream(1)))
    return into.raw[0]
def in_thread(call):
    answers = []
    thread = threading.Thread(target=lambda: (ok(cuda.cuCtxSetCurrent(context)), answers.append(call())))
    thread.start()
    return thread, answers
def waits(gate, call):
    thread, answers = in_thread(call)
    thread.join(0.03)
    waited = thread.is_alive()
    gate.open()
    thread.join()
    ok(answers[0])
    return waited
"""


@pytest.fixture
def gates(check: Check) -> Check:
    """Run a program with the names of `GATES`."""
    return lambda program, **options: check(GATES + program, **options)


#: A graph of a host function and a copy to pinned memory, from memory of the device that is freed before its turn.
LOST = """
gone, into = c_uint64(allocate(4096)), c_void_p(pinned())
calls = []
call = HOST(calls.append)
ok(cuda.cuStreamBeginCapture_v2(apart, 2))
ok(cuda.cuLaunchHostFunc(apart, call, c_void_p(1)))
ok(cuda.cuMemcpyDtoHAsync_v2(into, gone, c_size_t(64), apart))
ok(cuda.cuLaunchHostFunc(apart, call, c_void_p(2)))
executable = captured(apart)
ok(cuda.cuMemFree_v2(gone))
ok(cuda.cuCtxSynchronize())
"""


@pytest.mark.parametrize("wait", ["cuStreamSynchronize(apart)", "cuCtxSynchronize()", "cuEventSynchronize(late)"])
def test_queued_work_that_fails(gates: Check, wait: str) -> None:
    """What waits for it answers 700, and so does every later call; host functions behind it do not run."""
    gates(
        LOST
        + f"""
late, gate = event(), Gate(apart)
ok(cuda.cuGraphLaunch(executable, apart))
ok(cuda.cuEventRecord(late, apart))
gate.open()
assert (cuda.{wait}, cuda.cuStreamQuery(other), cuda.cuMemAlloc_v2(byref(c_uint64()), 64)) == (700, 700, 700)
assert calls == [1]
"""
    )


#: Makes each copy and filling of a table in a blocking stream behind a gate; prints the rows that behave otherwise.
ROWS_OF_THE_TABLE = """
places = dict(pageable=pageable, pinned=pinned, device=lambda: allocate(4096), managed=managed)
size, source, behaviour = c_size_t(64), 0, ""
def fill_source(value):
    memset(source, value, 64) if kind == "pageable" else ok(cuda.cuMemsetD8_v2(c_uint64(source), value, size))
def differs(call, asynchronous, target):
    gate = Gate(blocking)
    if behaviour in ("caller", "drained"):
        if not waits(gate, call): return True
    else:
        ok(call())
        pending = cuda.cuStreamQuery(blocking if asynchronous else None) == 600
        if behaviour == "staged": memset(source, 6, 64)
        gate.open(cuda.cuCtxSynchronize)
        if not pending: return True
    into = create_string_buffer(64)
    ok(cuda.cuMemcpy(c_uint64(addressof(into)), c_uint64(target), size))
    return into.raw != b"\\x05" * 64
wrong = []
for form, kind, to, behaviour in copies:
    source, target = places[kind](), places[to]()
    fill_source(5)
    given = c_uint64(target), c_uint64(source), size
    asynchronous = form == "asynchronous"
    copy = (lambda: cuda.cuMemcpyAsync(*given, blocking)) if asynchronous else lambda: cuda.cuMemcpy(*given)
    if differs(copy, asynchronous, target): wrong.append((form, kind, to, behaviour))
for form, to, behaviour in fillings:
    given = c_uint64(target := places[to]()), 5, size
    asynchronous = form == "asynchronous"
    fill = (lambda: cuda.cuMemsetD8Async(*given, blocking)) if asynchronous else lambda: cuda.cuMemsetD8_v2(*given)
    if differs(fill, asynchronous, target): wrong.append((form, to, behaviour))
assert not wrong, wrong
"""


def test_rows_of_the_table(gates: Check) -> None:
    """A copy or a filling waits for its stream in the call, or not, by the memory that it reads and writes."""
    copies, fillings = TABLE["copies"]["rows"], TABLE["fillings"]["rows"]
    assert (len(copies), len(fillings)) == (32, 6)
    gates(f"copies, fillings = {copies}, {fillings}\n{ROWS_OF_THE_TABLE}")


def test_the_end_of_a_process(on_driver) -> None:
    """A process ends while work waits at a gate and a host function runs."""
    program = """
Gate(apart)
ok(fill(apart, 2))
running = threading.Event()
never = threading.Event()
call = HOST(lambda data: (running.set(), never.wait()))
ok(cuda.cuLaunchHostFunc(blocking, call, None))
running.wait()
"""
    done = on_driver("13.0", "-c", HEAD + GATES + program, fresh=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_an_h100_refuses_in_host_functions() -> None:
    """Every function that is refused there is refused here, in callbacks too."""
    environment = {**os.environ, **emulator.emulation_for("13.0").environment()}
    run = [sys.executable, "-m", "campaigns.hardware.host_calls"]
    answers = json.loads(subprocess.run(run, env=environment, capture_output=True, check=True).stdout)
    refused = json.loads(RECORDED.read_text(encoding="utf-8"))["answers"]["800"]
    assert {name: answers[name] for name in refused} == {name: ["800", "800"] for name in refused}


#: A copy of three rows of four bytes, 16 bytes apart on the host's side and 8 on the other.
ROWS = """
def put_rows(host, to, at):
    rows = struct.pack("<QQI4x6QI4x6Q", 0, 0, 1, host, 0, 0, 16, 0, 0, 2, 0, to, 0, 8, 4, 3)
    return cuda.cuMemcpy2DAsync_v2(rows, at)
"""


#: An array of 64 bytes, and the copies of a host's 64 bytes to it and back.
ARRAY = """
array = new(cuda.cuArrayCreate_v2, struct.pack("<QQiI", 64, 0, 1, 1))
def put(host, at, size=64):
    return cuda.cuMemcpyHtoAAsync_v2(array, c_size_t(0), c_void_p(host), c_size_t(size), at)
def fetch(host, at):
    return cuda.cuMemcpyAtoHAsync_v2(c_void_p(host), array, c_size_t(0), c_size_t(64), at)
def byte(host):
    return c_ubyte.from_address(host).value
"""


WATCHED = """
from pytest_cudalink.emulator import control
driver = control.attach(cuda)
driver.start_watching()
def submit(host):
    ok(cuda.cuMemcpyHtoDAsync_v2(c_uint64(memory), c_void_p(host), c_size_t(64), apart))
def told():
    return [(one.rule, one.text.partition(": ")[2].partition("; ")[0], bool(one.history)) for one in driver.violations]
"""


PROGRAMS = {
    "the_legacy_stream": """
# It waits for blocking streams, and they wait for it, but not for each other; none waits for a non-blocking one.
# An event on a blocking stream without work of its own waits for the legacy one; without a time it is no work of the
# stream (recorded programs, theme "order").
def behind(gated, asked, work=True):
    gate = Gate(gated)
    if work:
        ok(fill(asked))
    code = cuda.cuStreamQuery(asked)
    gate.open(cuda.cuCtxSynchronize)
    return code
assert [behind(blocking, one) for one in (legacy, other, own, apart)] == [600, 0, 0, 0]
assert [behind(legacy, one) for one in (blocking, own, apart)] == [600, 600, 0]
assert [behind(own, one) for one in (legacy, blocking, apart)] == [600, 0, 0]
assert [behind(apart, one) for one in (legacy, blocking, own)] == [0, 0, 0]
assert [behind(legacy, one, False) for one in (blocking, own)] == [0, 0]
assert behind(blocking, legacy, False) == 600
for flags, asked in ((0, 600), (2, 0), (6, 600)):
    gate, late = Gate(legacy), event(flags)
    ok(cuda.cuEventRecord(late, blocking))
    assert (cuda.cuEventQuery(late), cuda.cuStreamQuery(blocking)) == (600, asked), flags
    gate.open(cuda.cuCtxSynchronize)
    ok(cuda.cuEventQuery(late))
gate = Gate(blocking)
ok(cuda.cuEventRecord(late, legacy))
assert cuda.cuEventQuery(late) == 600
gate.open()
ok(cuda.cuEventSynchronize(late))
""",
    "events_between_streams": """
# A stream waits for an event as it was recorded then; a later record, or its end, changes nothing for the wait.
gate, done = Gate(apart), event()
second = stream(1)
ok(cuda.cuEventRecord(done, apart))
ok(cuda.cuStreamWaitEvent(second, done, 0))
ok(fill(second, 5))
ok(cuda.cuEventRecord(done, stream(1)))
ok(cuda.cuEventQuery(done))
ok(cuda.cuEventDestroy_v2(done))
assert (cuda.cuStreamQuery(second), read()) == (600, 0)
gate.open(second)
assert read() == 5
gate, done = Gate(apart), event()
ok(cuda.cuCtxRecordEvent(context, done))
assert cuda.cuEventQuery(done) == 600
ok(cuda.cuCtxWaitEvent(context, done))
ok(fill(second, 6))
assert cuda.cuStreamQuery(second) == 600
gate.open(cuda.cuCtxSynchronize)
assert (cuda.cuEventQuery(done), read()) == (0, 6)
# what names its context or its stream needs none that is current (H200)
managed = new(cuda.cuMemAllocManaged, c_uint64, c_size_t(64), 1)
ok(cuda.cuCtxSetCurrent(None))
ok(cuda.cuCtxRecordEvent(context, done)), ok(cuda.cuCtxWaitEvent(context, done)), ok(cuda.cuEventQuery(done))
ok(cuda.cuStreamAttachMemAsync(second, managed, c_size_t(0), 4))
assert cuda.cuStreamAttachMemAsync(None, managed, c_size_t(0), 1) == 201
""",
    "destroying_what_is_pending": """
# A stream or an executable graph that is destroyed does its work all the same; a context waits for its own.
gone = stream(1)
gate = Gate(gone)
ok(fill(gone, 9))
ok(cuda.cuStreamDestroy_v2(gone))
assert cuda.cuStreamQuery(gone) == 400
gate.open(cuda.cuCtxSynchronize)
assert read() == 9
made = new(cuda.cuCtxCreate_v2, 0, 0)
inside = stream(1)
gate = Gate(inside)
def destroy():
    return cuda.cuCtxDestroy_v2(made)
assert waits(gate, destroy)
ok(cuda.cuCtxSetCurrent(context))
assert cuda.cuStreamQuery(inside) == 201
""",
    "host_functions": """
# They run in order, on one thread that is not the caller's, while the caller may hold a lock that they take.
lock, calls, threads = threading.Lock(), [], set()
@HOST
def call(data):
    threads.add(threading.get_ident())
    with lock:
        calls.append(data)
with lock:
    for number in range(1, 4):
        ok(cuda.cuLaunchHostFunc(apart, call, c_void_p(number)))
    ok(cuda.cuLaunchHostFunc(blocking, call, c_void_p(4)))
    assert cuda.cuStreamQuery(apart) == 600
ok(cuda.cuStreamSynchronize(apart))
ok(cuda.cuStreamSynchronize(blocking))
assert [one for one in calls if one < 4] == [1, 2, 3] and sorted(calls) == [1, 2, 3, 4]
assert len(threads) == 1 and threads != {threading.get_ident()}
CALLBACK = CFUNCTYPE(None, c_void_p, c_int, c_void_p)
@CALLBACK
def back(*arguments):
    calls.append(arguments)
ok(cuda.cuStreamAddCallback(apart, back, c_void_p(7), 0))
ok(fill(apart, 4))
ok(cuda.cuStreamSynchronize(apart))
assert (calls[-1], read()) == ((apart.value, 0, 7), 4)
""",
    "a_gate_opens_during_a_host_function": """
# Other streams go on while a host function runs; other host functions do not.
gate, flag = Gate(apart), c_uint.from_address(words + 2048)
ok(cuda.cuStreamWriteValue32_v2(apart, c_uint64(addressof(flag)), 7, 0))
order = []
@HOST
def first(data):
    gate.open()
    while flag.value != 7:
        pass
    order.append(1)
second = HOST(lambda data: order.append(2))
ok(cuda.cuLaunchHostFunc(blocking, first, None))
ok(cuda.cuLaunchHostFunc(other, second, None))
ok(cuda.cuCtxSynchronize())
assert order == [1, 2]
""",
    "default_streams_of_threads": """
# Each thread has its own, by handle 2 and by the `_ptsz` names; cuGetProcAddress gives those on request.
def identity(handle, suffix=""):
    return get(getattr(cuda, "cuStreamGetId" + suffix), handle, c_uint64)
assert identity(None, "_ptsz") == identity(own) != identity(None) == identity(legacy)
found = []
thread, answers = in_thread(lambda: found.append(identity(own)) or cuda.cuStreamQuery(own))
thread.join()
assert found[0] not in (identity(own), identity(legacy))
gate = Gate(None, "cuStreamWaitValue32_v2_ptsz")
assert (cuda.cuStreamQuery(own), cuda.cuStreamQuery_ptsz(None), cuda.cuStreamQuery(blocking)) == (600, 600, 0)
thread, answers = in_thread(lambda: cuda.cuStreamQuery(own))
thread.join()
assert answers == [0]
gate.open()
ok(cuda.cuStreamSynchronize_ptsz(None))
address = get(cuda.cuGetProcAddress_v2, b"cuStreamGetId", c_void_p, 13000, c_uint64(2), None)
assert get(CFUNCTYPE(c_int, c_void_p, c_void_p)(address), None, c_uint64) == identity(own)
""",
    "graphs": """
# A graph with host functions and gates keeps its edges; launches of one executable graph run one after another.
calls = []
call = HOST(calls.append)
word = c_uint.from_address(words + 2048)
second = stream(1)
fork, join = event(), event()
ok(cuda.cuStreamBeginCapture_v2(apart, 2))
ok(cuda.cuLaunchHostFunc(apart, call, c_void_p(1)))
ok(cuda.cuEventRecord(fork, apart))
ok(cuda.cuStreamWaitEvent(second, fork, 0))
ok(cuda.cuStreamWaitValue32_v2(second, c_uint64(addressof(word)), 1, 0))
ok(cuda.cuLaunchHostFunc(second, call, c_void_p(2)))
ok(cuda.cuEventRecord(join, second))
ok(fill(apart, 8))
ok(cuda.cuStreamWaitEvent(apart, join, 0))
ok(cuda.cuLaunchHostFunc(apart, call, c_void_p(3)))
executable = captured(apart)
ok(cuda.cuGraphLaunch(executable, apart))
ok(cuda.cuGraphLaunch(executable, stream(1)))
ok(cuda.cuGraphExecDestroy(executable))
while read() != 8:
    pass
assert (cuda.cuStreamQuery(apart), calls) == (600, [1])
word.value = 1
ok(cuda.cuCtxSynchronize())
assert calls == [1, 2, 3, 1, 2, 3]
""",
    "pools": """
# What is freed in a stream is dead at once for callers, and serves the work before the free (recorded: 1, 1).
gate = Gate(apart)
there = new(cuda.cuMemAllocAsync, c_uint64, c_size_t(64), apart)
ok(fill(apart, 6, there.value))
into = pinned()
ok(cuda.cuMemcpyDtoHAsync_v2(c_void_p(into), there, c_size_t(64), apart))
ok(cuda.cuMemFreeAsync(there, apart))
assert cuda.cuMemcpyDtoHAsync_v2(c_void_p(into), there, c_size_t(64), apart) == 1
assert cuda.cuMemFreeAsync(there, apart) == 1
gate.open(apart)
assert c_ubyte.from_address(into).value == 6
""",
    "callbacks_behind_queued_work_that_fails": LOST
    + """
# A callback is called all the same, with the error, and a gate behind the work holds nothing up.
told = []
back = CFUNCTYPE(None, c_void_p, c_int, c_void_p)(lambda stream, code, data: told.append(code))
gate = Gate(apart)
ok(cuda.cuGraphLaunch(executable, apart))
Gate(apart)
ok(cuda.cuStreamAddCallback(apart, back, None, 0))
ok(cuda.cuLaunchHostFunc(apart, call, c_void_p(3)))
gate.open()
assert cuda.cuStreamSynchronize(apart) == 700
assert (told, calls) == ([700], [1])
""",
    "a_gate_whose_memory_is_gone": """
# A wait for a value fails like a copy when its memory was given back before its turn.
there, gate = c_uint64(), Gate(apart)
ok(cuda.cuMemAllocAsync(byref(there), c_size_t(64), other))
ok(cuda.cuStreamSynchronize(other))
ok(cuda.cuStreamWaitValue32_v2(apart, there, 1, 0))
ok(cuda.cuMemFreeAsync(there, other))
gate.open()
assert cuda.cuStreamSynchronize(apart) == 700
""",
    "memory_of_a_graph_that_waits": """
# It is allocated for callers from the launch on: it counts, its stream can free it, none launches it twice.
for gated in (True, False):
    ok(cuda.cuStreamBeginCapture_v2(apart, 2))
    there = new(cuda.cuMemAllocAsync, c_uint64, c_size_t(4096), apart)
    ok(fill(apart, 6, there.value))
    executable = captured(apart)
    gate = Gate(apart)
    gated or gate.open()
    for _ in range(3):
        ok(cuda.cuGraphLaunch(executable, apart))
        assert cuda.cuGraphLaunch(executable, apart) == 1
        assert get(cuda.cuDeviceGetGraphMemAttribute, 0, 0, c_uint64) == 32 << 20
        ok(cuda.cuMemcpyDtoDAsync_v2(c_uint64(memory), there, c_size_t(64), apart))
        ok(cuda.cuMemFreeAsync(there, apart))
        assert cuda.cuMemFreeAsync(there, apart) == 1
    gate.open(apart)
    assert read() == 6
""",
    "a_forked_child": """
# A child that is forked while work is pending has neither the work nor the engine, and ends.
gate = Gate(apart)
ok(fill(apart, 2))
child = os.fork()
if not child:
    os._exit(0 if cuda.cuStreamQuery(apart) == 3 else 1)
assert os.waitpid(child, 0)[1] == 0
gate.open(apart)
assert read() == 2
""",
    "copies_of_arrays": ARRAY
    + """
# They are done in the order of their stream as other copies are, wait for it as those do, and are captured.
here, back = pinned(), pinned()
memset(here, 5, 64)
gate = Gate(apart)
ok(put(here, apart))
ok(fetch(back, apart))
assert (cuda.cuStreamQuery(apart), byte(back)) == (600, 0)
gate.open(apart)
assert byte(back) == 5

gate, own_pages = Gate(apart), pageable()
memset(own_pages, 6, 64)
ok(put(own_pages, apart))  # which reads them before it returns
memset(own_pages, 7, 64)
assert cuda.cuStreamQuery(apart) == 600
assert waits(gate, lambda: fetch(own_pages, apart))  # memory of the host's own is written by the host
assert byte(own_pages) == 6

ok(cuda.cuStreamBeginCapture_v2(apart, 2))
ok(put(here, apart))
ok(put(here, apart, 0))
ok(fetch(back, apart))
graph = new(cuda.cuStreamEndCapture, apart, c_void_p)
assert get(cuda.cuGraphGetNodes, graph, None, c_size_t) == 2
executable = new(cuda.cuGraphInstantiateWithFlags, graph, c_uint64(0))
memset(here, 8, 64)
ok(cuda.cuGraphLaunch(executable, apart))
ok(cuda.cuStreamSynchronize(apart))
assert byte(back) == 8
""",
    "host_memory_that_dies_before_its_copy": WATCHED
    + """
# It is a violation with both ends that host memory is unmapped, unregistered or freed under an unfinished copy.
libc = CDLL(None)
libc.mmap.restype = c_void_p
mapped = libc.mmap(None, c_size_t(8192), 3, 0x22, -1, c_size_t(0))
ok(cuda.cuMemHostRegister_v2(c_void_p(mapped), c_size_t(8192), 0))
gate = Gate(apart)
submit(mapped)
libc.munmap(c_void_p(mapped), c_size_t(8192))
gate.open(apart)
freed = "asynchronous copy: the memory was freed, noticed by the stream, when it came to the copy"
assert told() == [("asynchronous copy", freed, True)], driver.violations
assert "cuMemcpyHtoDAsync_v2" in driver.violations[0].history[0] and "submit" in str(driver.violations[0].history)
for make, give in ((pinned, "cuMemFreeHost"), (pageable, "cuMemHostUnregister")):
    host = make()
    if make is pageable:
        ok(cuda.cuMemHostRegister_v2(c_void_p(host), c_size_t(4096), 0))
    gate = Gate(apart)
    submit(host)
    assert waits(gate, lambda: getattr(cuda, give)(c_uint64(host)))
    assert told()[-1][1] == f"asynchronous copy: the memory was given up before, noticed by {give}"
assert len(told()) == 3
""",
    "host_memory_that_dies_before_its_copy_to_an_array": WATCHED
    + ARRAY
    + """
# It is watched as that of other copies.
host, gate = pinned(), Gate(apart)
ok(put(host, apart))
assert waits(gate, lambda: cuda.cuMemFreeHost(c_uint64(host)))
given_up = "asynchronous copy: the memory was given up before, noticed by cuMemFreeHost"
assert told() == [("asynchronous copy", given_up, True)]
""",
    "rows_of_host_memory_that_die_before_their_copy": WATCHED
    + ROWS
    + """
# All of them are watched, from the first to the last.
base = pageable(8192)
ok(cuda.cuMemHostRegister_v2(c_void_p(base), c_size_t(4096), 0))
gate = Gate(apart)
ok(put_rows(base + 32, memory, apart))
assert waits(gate, lambda: cuda.cuMemHostUnregister(c_uint64(base)))
ok(cuda.cuStreamSynchronize(apart))
given_up = "asynchronous copy: the memory was given up before, noticed by cuMemHostUnregister"
assert told() == [("asynchronous copy", given_up, True)]
assert "36 bytes at" in driver.violations[0].text
gate = Gate(apart)
ok(put_rows(base, memory, apart))
ok(cuda.cuMemHostRegister_v2(c_void_p(base + 4096), c_size_t(64), 0))
assert waits(gate, lambda: cuda.cuMemHostUnregister(c_uint64(base + 4096)))
assert len(told()) == 1
""",
    "host_memory_that_lives_long_enough": WATCHED
    + """
# Nothing is said of memory that is freed behind its copy, nor of another one's.
gate, host, other_host = Gate(apart), pinned(), pinned()
submit(host)
assert waits(gate, lambda: cuda.cuMemFreeHost(c_uint64(other_host)))
ok(cuda.cuStreamSynchronize(apart))
ok(cuda.cuMemFreeHost(c_uint64(host)))
assert told() == []
""",
}
test_programs = programs(PROGRAMS, fixture="gates")
