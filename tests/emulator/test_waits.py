"""Waits for unfinished work on the emulated driver, and deadlocks: who waits for what, and what may end it."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.emulator.conftest import programs
from tests.emulator.test_queues import GATES
from tests.nested import ALONE
from tests.planted import expected

Check = Callable[..., str]


@pytest.mark.parametrize(("rows", "waited"), [(2, False), (513, True)])
def test_rows_from_pageable_memory_are_read_in_the_call(check: Check, rows: int, waited: bool) -> None:
    """Up to 2 MiB are staged, in rows of a box, too; a larger copy waits for its stream."""
    check(
        GATES
        + f"""
width, rows, pitch = 4096, {rows}, 4096 + 512
source = create_string_buffer(pitch * rows)
memset(source, 5, len(source))
there = allocate(width * rows)
side = lambda kind, host, device, pitch: [0, 0, kind, host, device, 0, pitch]
box = (c_uint64 * 16)(*side(1, addressof(source), 0, pitch), *side(2, 0, there, width), width, rows)
gate = Gate(apart)
def copy():
    return cuda.cuMemcpy2DAsync_v2(byref(box), apart)
if {waited}:
    assert waits(gate, copy)
else:
    ok(copy())
    memset(source, 6, len(source))
    gate.open(cuda.cuCtxSynchronize)
back = create_string_buffer(width * rows)
ok(cuda.cuMemcpyDtoH_v2(addressof(back), there, width * rows))
assert back.raw == b"\\x05" * width * rows
"""
    )


#: Runs each planted deadlock and its twin in its own process, as each waits for some looks; prints what was named.
PLANTED = """
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from tests.planted import deadlocks
def violations_of(name):
    driver = control.attach(cuda)
    driver.start_watching()
    deadlocks.BROKEN[name]()
    found = driver.violations
    driver.consume(found)
    deadlocks.MENDED[name]()
    assert driver.violations == (), driver.violations
    driver.stop_watching()
    return [[one.check, one.text, one.fix, one.python_stack, one.history] for one in found]
with ProcessPoolExecutor(len(deadlocks.BROKEN), get_context("fork")) as pool:
    print(json.dumps(dict(zip(deadlocks.BROKEN, pool.map(violations_of, deadlocks.BROKEN)))))
"""


def test_deadlocks_are_named(check: Check) -> None:
    """Each names every call that waits, where its thread is, and what would end it; then the program goes on.

    The same programs pass without a word where no thread waits for itself.
    """
    calls, named = expected("deadlocks"), json.loads(check(PLANTED))
    assert named.keys() == calls.keys()
    assert len(named) == 9
    for name, violations in named.items():
        ((kind, text, fix, stack, history),) = violations
        assert kind == "deadlock"
        for call in calls[name]:
            waits_in = rf"thread \d+ waits in {call} for (the (value|context)|a host function)"
            assert re.search(waits_in, text), (name, text)
        assert fix.startswith(("Write the value before ", "Let the host function "))
        assert any("tests/planted/deadlocks.py" in line for line in (*stack, *history)), (name, stack, history)


def test_another_process_is_waited_for(check: Check, tmp_path: Path) -> None:
    """A gate is no deadlock that another process opens, by memory that both map, or by waking a thread."""
    (tmp_path / "shared").write_bytes(bytes(4096))
    check(
        GATES
        + f"path = {str(tmp_path / 'shared')!r}"
        + """
import multiprocessing
driver = control.attach(cuda)
driver.start_watching()
with open(path, "r+b") as file:
    pages = mmap.mmap(file.fileno(), 4096)
word = c_uint64(addressof(c_char.from_buffer(pages)))
ok(cuda.cuMemHostRegister_v2(word, c_size_t(4096), 0))
ok(cuda.cuStreamWaitValue32_v2(apart, word, c_uint(1), 0))
write = f"import time; time.sleep(0.55); open({path!r}, 'r+b').write(bytes([1]))"
other = subprocess.Popen([sys.executable, "-S", "-c", write])
ok(cuda.cuStreamSynchronize(apart))
other.wait()
forking = multiprocessing.get_context("fork")
woken = forking.Semaphore(0)
gate = Gate(apart)
thread, _ = in_thread(lambda: (woken.acquire(), gate.open()))
waker = forking.Process(target=lambda: (time.sleep(0.55), woken.release()))
waker.start()
ok(cuda.cuStreamSynchronize(apart))
thread.join()
waker.join()
assert driver.violations == (), driver.violations
driver.stop_watching()
"""
    )


#: Waits at gates that no call opens: what may open them is named, or they are given up at once.
MAY_OPEN = (
    GATES
    + """
from tests.emulator.memory_calls import *
driver = control.attach(cuda)
driver.start_watching()
cuda.cudalinkGiveUpGates(c_uint(6))  # looks, of which three are enough where nothing may open a gate
libc = CDLL(None)
libc.signal.argtypes = c_int, c_void_p
libc.signal.restype = c_void_p
def handle(number, handler):
    libc.signal(number, cast(handler, c_void_p))
def close(address, at=apart):
    ok(cuda.cuStreamWaitValue32_v2(at, c_uint64(address), c_uint(1), 0))
def who():
    assert cuda.cuStreamSynchronize(apart) == 702
    one, = driver.violations
    driver.consume(driver.violations)
    return one.text.partition("; ")[2].partition(" might have ended this")[0]
def who_of(address):
    close(address)
    return who()
def who_in_thread():
    close(pinned())
    thread, answers = in_thread(who)
    thread.join()
    return answers[0]
"""
)
WHO_MAY_OPEN = {
    "handlers_of_signals": """
# A handler of the program may, for a signal that another process or a timer may send.
handle(signal.SIGUSR1, libc.abs)
assert who_of(pinned()) == "a signal handler"
handle(signal.SIGUSR1, None)
handle(signal.SIGSEGV, libc.abs)  # a thread must run for it
assert who_of(pinned()) == ""
""",
    "handlers_in_python": """
# They are called where the main thread runs Python, so not while it waits in the driver; KeyboardInterrupt opens none.
signal.signal(signal.SIGALRM, lambda *_: None)
assert who_of(pinned()) == ""
assert who_in_thread() == "a signal handler"
signal.signal(signal.SIGALRM, signal.SIG_DFL)
signal.signal(signal.SIGINT, lambda *_: None)
assert who_in_thread() == "a signal handler"
signal.signal(signal.SIGINT, signal.default_int_handler)
assert who_in_thread() == ""
""",
    "pages": """
# Memory of the host that was registered: where another process may map it.
for flags, expected in ((mmap.MAP_SHARED, "another process"), (mmap.MAP_PRIVATE, "")):
    pages = mmap.mmap(-1, 4096, flags)
    address = addressof(c_char.from_buffer(pages))
    ok(cuda.cuMemHostRegister_v2(address, 4096, 0))
    assert who_of(address) == expected, flags
""",
    "memory_with_a_handle": """
# Memory of the device once there is a handle of it, for all that lies in one slab with it.
address, large = allocate(4096), allocate(1 << 22)
assert who_of(address) == ""
ok(cuda.cuIpcGetMemHandle(byref(Handle()), address))
assert [who_of(one) for one in (address, large)] == ["another process", ""]
""",
    "physical_memory": """
# What was exported before it was mapped or later, and what was imported.
size = 2 << 20
def mapped(handle):
    code, address = reserve(size)
    ok(cuda.cuMemMap(address, size, 0, handle, 0))
    ok(give_access(address, size))
    return address
(_, handle), (_, other) = (physical(size, handle_types=POSIX_FILE) for _ in range(2))
file, imported = c_int(), c_uint64()
address, beside = mapped(handle), mapped(other)
assert who_of(address) == ""
ok(cuda.cuMemExportToShareableHandle(byref(file), handle, POSIX_FILE, 0))
ok(cuda.cuMemImportFromShareableHandle(byref(imported), file.value, POSIX_FILE))
every = address, mapped(handle), mapped(imported), beside
assert [who_of(one) for one in every] == [*["another process"] * 3, ""]
""",
    "pools": """
# The allocations of a pool whose pointers were exported, and no others of it.
pool = new_pool(handle_types=POSIX_FILE)
(_, first), (_, second) = from_pool(pool, 4096), from_pool(pool, 4096)
ok(cuda.cuStreamSynchronize(None))
ok(cuda.cuMemPoolExportToShareableHandle(byref(c_int()), pool, POSIX_FILE, c_uint64(0)))
ok(cuda.cuMemPoolExportPointer(byref(Handle()), first))
assert [who_of(one) for one in (first, second)] == ["another process", ""]
""",
    "external_memory": """
# Files of other libraries.
file, memory, out = os.memfd_create("shared"), c_void_p(), c_uint64()
os.truncate(file, 4096)
ok(cuda.cuImportExternalMemory(byref(memory), (c_uint64 * 13)(1, file, 0, 4096)))
ok(cuda.cuExternalMemoryGetMappedBuffer(byref(out), memory, (c_uint64 * 11)(0, 4096)))
assert who_of(out.value) == "another process"
""",
    "gates_behind_gates": """
# Another process may open one behind which the value is written that a thread waits for.
pages = mmap.mmap(-1, 4096)
address, word, opener = addressof(c_char.from_buffer(pages)), pinned(), stream(1)
ok(cuda.cuMemHostRegister_v2(address, 4096, 0))
close(address, opener)
ok(cuda.cuStreamWriteValue32_v2(opener, c_uint64(word), c_uint(1), 0))
assert who_of(word) == "another process"
ok(cuda.cuStreamSynchronize(opener))
""",
    "the_end_of_a_thread": """
# A thread of C that joins another waits for this process alone.
close(pinned())
thread, ended = c_ulong(), c_ulong()
libc.pthread_create.argtypes = c_void_p, c_void_p, c_void_p, c_void_p
ok(libc.pthread_create(byref(thread), None, cast(cuda.cuStreamSynchronize, c_void_p), apart))
ok(libc.pthread_join(thread, byref(ended)))
assert ended.value == 702
one, = driver.violations
assert "might" not in one.text, one.text
""",
    "threads": """
# One that sleeps for a time may.
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
assert who_of(pinned()) == "another thread"
""",
}
test_who_may_open_a_gate = pytest.mark.slow(programs(WHO_MAY_OPEN, MAY_OPEN))


@pytest.mark.slow
def test_gates_that_are_opened_from_outside(check: Check) -> None:
    """A timer's handler, another process that sends a signal, and one with a handle of the memory are waited for."""
    check(
        MAY_OPEN.replace("c_uint(6)", "c_uint(600)")
        + """
word = c_uint.from_address(pinned())
def open_it(*_):
    word.value = 1
in_c = CFUNCTYPE(None, c_int)(open_it)
handle(signal.SIGALRM, in_c)
close(addressof(word))
signal.setitimer(signal.ITIMER_REAL, 0.7)
ok(cuda.cuStreamSynchronize(apart))
handle(signal.SIGALRM, None)
word.value = 0
signal.signal(signal.SIGUSR1, open_it)
close(addressof(word))
sender = subprocess.Popen(["sh", "-c", f"sleep 0.7; kill -USR1 {os.getpid()}"])
thread, answers = in_thread(lambda: cuda.cuStreamSynchronize(apart))
thread.join()
ok(answers[0])
assert sender.wait() == 0
signal.signal(signal.SIGUSR1, signal.SIG_DFL)
exported, address = Handle(), allocate(4096)
ok(cuda.cuIpcGetMemHandle(byref(exported), address))
close(address)
open_there = f'''
import time
from ctypes import byref, c_uint64
from tests.emulator.memory_calls import Handle, cuda, ok, write
from tests.emulator.cu import start
start()
time.sleep(0.7)
ok(cuda.cuIpcOpenMemHandle_v2(byref(address := c_uint64()), Handle.from_buffer_copy({bytes(exported)!r}), 1))
write(address.value, bytes([1]))
'''
opener = subprocess.Popen([sys.executable, "-c", open_there])
ok(cuda.cuStreamSynchronize(apart))
assert opener.wait() == 0
assert driver.violations == (), driver.violations
driver.stop_watching()
"""
    )


#: A test with a deadlock, and one that comes after it.
SUITE = """
from tests.planted import deadlocks

def test_broken():
    deadlocks.BROKEN["free_beside_a_pageable_copy"]()

def test_mended():
    deadlocks.MENDED["free_beside_a_pageable_copy"]()
"""


@pytest.mark.parametrize(
    "options", [ALONE, pytest.param(("-n1", "--cudalink-checks=lifetimes=off"), id="xdist", marks=pytest.mark.slow)]
)
def test_a_deadlock_fails_its_test(run_pytest, pytester, toolchain, options: tuple[str, ...]) -> None:
    """The message says who waits for what, and where each thread is; the session goes on, and did not wait for long."""
    toolchain("13.0")
    pytester.makepyfile(SUITE)
    result = run_pytest("-p", "no:cacheprovider", "--cudalink-driver=13.0", *options)
    result.assert_outcomes(passed=1, failed=1)
    assert result.duration < 60  # after which it would have been named in any case
    result.stdout.fnmatch_lines(
        [
            "*cudalink: 1 deadlock during this test's call:",
            (
                "*deadlock: thread * waits in cuMemcpyDtoH_v2 for the context, which thread * holds in cuMemFree_v2; "
                "thread * waits in cuMemFree_v2 for the value at 0x*, which nobody writes"
            ),
            "*thread * (MainThread) waits in:",
            "* in free_beside_a_pageable_copy",
            "*thread * (Thread-* (run)) waits in:",
            "*Write the value before cuMemFree_v2, or in a thread that waits for none of these.",
        ]
    )


OF_GATES = {
    "another_context_is_not_held_up": """
# The locks are those of a context.
gate = Gate(apart)
first, codes = in_thread(lambda: cuda.cuMemFree_v2(memory))
first.join(0.02)
elsewhere = new(cuda.cuCtxCreate_v2, 0, 0)
allocate(64)
assert first.is_alive()
gate.open()
first.join()
ok(codes[0])
""",
    "what_the_table_adds_waits": """
# The size of the persisting cache, and a synchronous copy or filling of memory that synchronizes.
there, synchronous = allocate(64), allocate(64)
ok(cuda.cuPointerSetAttribute(byref(c_uint(1)), 6, c_uint64(synchronous)))
for size in (1 << 20, 1 << 20):
    assert waits(Gate(apart), lambda: cuda.cuCtxSetLimit(6, c_size_t(size)))
for call in (
    lambda: cuda.cuMemcpyDtoD_v2(c_uint64(synchronous), c_uint64(there), c_size_t(64)),
    lambda: cuda.cuMemsetD8_v2(c_uint64(synchronous), 1, c_size_t(64)),
):
    assert waits(Gate(blocking), call)
""",
    "a_thread_that_may_go_on_is_waited_for": """
# A gate that another thread opens late is no deadlock: that thread sleeps for a time, or works.
driver = control.attach(cuda)
driver.start_watching()
def sleep(): time.sleep(0.55)
def work():
    end = time.monotonic() + 0.55
    while time.monotonic() < end: pass
for late in (sleep, work):
    gate = Gate(apart)
    thread, _ = in_thread(lambda: (late(), gate.open()))
    ok(cuda.cuStreamSynchronize(apart))
    thread.join()
assert driver.violations == ()
driver.stop_watching()
""",
    "calls_that_were_given_up_say_so_once": """
# They answer CUDA_ERROR_LAUNCH_TIMEOUT, and the contexts can be used again; what stood at the gate is not done.
gate = Gate(apart)
ok(fill(apart, 7))
assert cuda.cuStreamSynchronize(apart) == 702
assert cuda.cuStreamQuery(apart) == 0
ok(cuda.cuStreamSynchronize(apart))
assert read() == 0
ok(fill(apart, 8))
ok(cuda.cuCtxSynchronize())
assert read() == 8
""",
    "a_wait_under_pythons_lock_is_named": """
# A host function in Python cannot begin while the thread that waits for it holds Python's lock.
driver = control.attach(cuda)
driver.start_watching()
called = []
function = HOST(lambda _: called.append(1))
ok(cuda.cuLaunchHostFunc(apart, function, None))
assert PyDLL("libcuda.so.1").cuStreamSynchronize(apart) == 702
ok(cuda.cuStreamSynchronize(apart))
assert called == [1]
(one,) = driver.violations
assert "waits in cuStreamSynchronize for a host function, which does not return" in one.text
driver.stop_watching()
""",
    "a_full_stream_takes_no_more": """
# A call waits for room where very much is unfinished: not a host function, and not in another stream.
gate = Gate(apart)
for _ in range(1020):
    ok(fill(apart))
call = HOST(lambda data: None)
assert not [1 for _ in range(9) if cuda.cuLaunchHostFunc(apart, call, None)]
ok(fill(other))
assert waits(gate, lambda: fill(apart))
ok(cuda.cuStreamSynchronize(apart))
gate = Gate(apart)
for _ in range(1020):
    ok(fill(apart))
event = new(cuda.cuEventCreate, 2)
assert waits(gate, lambda: cuda.cuEventRecord(event, apart))
""",
    "a_full_stream_can_be_a_deadlock": """
# The thread that would open the gate waits for room behind it: this is named, and the calls go on.
from pytest_cudalink.emulator import control
driver = control.attach(cuda)
driver.start_watching()
gate = Gate(apart)
found = [fill(apart) for _ in range(1030)]
assert found[:1020] == [0] * 1020 and found[1020] == 702, found[1015:]
one, = driver.violations
assert one.check == "deadlock" and "waits in cuMemsetD8Async for the value at" in one.text + one.what, one
""",
    "a_deadlock_of_many_threads_counts_those_that_it_has_no_room_for": """
import threading
from pytest_cudalink.emulator import control
driver = control.attach(cuda)
driver.start_watching()
gate, context = Gate(apart), c_void_p()
ok(cuda.cuCtxGetCurrent(byref(context)))
def wait():
    ok(cuda.cuCtxSetCurrent(context))
    cuda.cuStreamSynchronize(apart)
threads = [threading.Thread(target=wait) for _ in range(11)]
for thread in threads:
    thread.start()
wait()
for thread in threads:
    thread.join()
one, = driver.violations
text = one.text
named = text.count(" waits in cuStreamSynchronize for the value at ")
assert 1 < named < 12 and text.endswith(f"which nobody writes; {12 - named} more wait"), one
""",
}
test_programs_of_gates = programs(OF_GATES, GATES)
