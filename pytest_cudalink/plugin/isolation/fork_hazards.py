"""What keeps a copy of a process from running a test as the process itself would.

A copy has one thread, and the memory of all. What the other threads were at is never finished there: a lock that one of
them holds stays locked. A thread that rests, in `accept`, `recv`, `sleep` or a lock of its own, holds none that a test
needs; the run of the test in which nothing fails shows whether that is so. A thread that runs may hold any, another one
in each copy. A pool of native threads does not know that it is gone, and waits for it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Final

from ...base.words import counted, listed
from ..run import Run

#: Seconds for which the system may still list a thread that has ended, and for which one that runs may come to rest.
_LINGERING: Final = 0.1
#: Seconds for which a thread that waits for a lock must not have run: what waits for the interpreter's does each 5 ms.
_REST: Final = 0.012
#: Numbers of the system calls in which a thread waits for nothing of this process, by machine: read, select, poll,
#: epoll and their variants, nanosleep, accept, recv, sigtimedwait, wait (asm/unistd.h).
_IDLE: Final = {
    "x86_64": {0, 7, 23, 35, 43, 45, 47, 61, 128, 230, 232, 247, 270, 271, 281, 288, 299},
    "aarch64": {22, 63, 72, 73, 95, 101, 115, 137, 202, 207, 212, 242, 243, 260},
}.get(os.uname().machine, set())
_TASKS: Final = Path("/proc/self/task")


def find(run: Run, *, again: bool) -> str:
    """Return why a copy of this process could not run a test as a new process does; empty if it can.

    `again`: whether a copy runs the test once more, with the emulated driver as it is. Otherwise a new process can,
    too, which has all threads.
    """
    own = Path("/proc/self")
    if others := _others():
        fork_once()
        until = time.monotonic() + _LINGERING
        while (others := _others()) and not (again and _are_of_python(others)) and time.monotonic() < until:
            time.sleep(0.005)
        if others and not again:
            return f"collecting the tests started {counted(len(others), 'thread')}"
        if hazard := _hazard_of(wait_for_rest()):
            return hazard
    for descriptor in own.joinpath("fd").iterdir():
        with suppress(OSError):
            if str(descriptor.readlink()).startswith("/dev/nvidia"):
                return "collecting the tests initialized the driver"
    with suppress(OSError):  # not every kernel lists them
        if own.joinpath("task", str(os.getpid()), "children").read_text(encoding="ascii").strip():
            return "collecting the tests started a process that still runs"
    present = run.emulated
    if present is not None and not again and any(event.get("call") == "cuInit" for event in present.events()):
        return "collecting the tests initialized the driver"
    return ""


def _hazard_of(busy: set[int]) -> str:
    """Return which thread a copy would miss: one that runs, or a native one; empty for none."""
    names = {thread.native_id: f"{thread.name!r}" for thread in threading.enumerate()}
    if busy:
        return f"a thread that does not rest: {listed([names.get(one, str(one)) for one in sorted(busy)])}"
    others = _others()
    if _are_of_python(others):
        return ""
    native = [f"{_read(one, 'comm').strip()} {one}" for one in sorted(others) if one not in names]
    return f"a native thread, on which its library may rely: {listed(native)}"


def _are_of_python(others: set[int]) -> bool:
    """Whether the other threads are no more than those that the interpreter knows."""
    return len(others) < len(sys._current_frames())  # noqa: SLF001 (that of this thread is one)


def wait_for_rest() -> set[int]:
    """Wait until each other thread rests, but not long; return those that do not."""
    until = time.monotonic() + _LINGERING
    busy = {thread for thread in _others() if not _is_idle(thread)}
    while busy:
        before = {thread: _switches(thread) for thread in busy}
        time.sleep(_REST)  # without the interpreter's lock, so that who waits for it runs
        here = _others()
        busy = {
            thread
            for thread in busy & here
            if not _is_idle(thread) and (_state(thread) != "S" or _switches(thread) != before[thread])
        }
        if time.monotonic() > until:
            break
    return busy


def _others() -> set[int]:
    """Return the other threads of this process, by the numbers that the system has for them."""
    return {int(thread.name) for thread in _TASKS.iterdir()} - {threading.get_native_id()}


def _read(thread: int, name: str) -> str:
    """Return the text of a file of the system about a thread; empty where there is none."""
    with suppress(OSError):
        return _TASKS.joinpath(str(thread), name).read_text(encoding="utf-8", errors="replace")
    return ""


def _is_idle(thread: int) -> bool:
    """Whether a thread is in a system call that waits for nothing of this process."""
    number = _read(thread, "syscall").partition(" ")[0]
    return number.isdecimal() and int(number) in _IDLE


def _state(thread: int) -> str:
    return _read(thread, "stat").rpartition(") ")[2][:1]


def _switches(thread: int) -> list[str]:
    """Return how often a thread has stopped running."""
    return [line for line in _read(thread, "status").splitlines() if "ctxt_switches" in line]


def fork() -> int:
    """Fork; what Python 3.12 warns of, where there are threads, is what `find` looks for."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def fork_once() -> None:
    """Fork a process that ends at once, so that libraries that are ready for forks end their threads before it.

    OpenBLAS does, and starts them again when it is used: numpy alone would make every copy unsafe. OpenMP does not.
    """
    child = fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
