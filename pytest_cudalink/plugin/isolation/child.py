"""The child of isolated tests: runs those that it is asked for, and hands over their reports."""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from ...base.regular_files import identity
from ...base.words import counted, listed
from .. import pytest_private
from ..conditions import FAULTS
from ..records import LEDGER
from ..records.ledger import Outside
from ..run import Run, Task, run_of
from ..watch import DESCENDANTS, REPORTER, STICKY
from .processes import key

#: Values in a child for options of pytest and its plugins that select tests, or write files of the whole run.
NOT_FOR_CHILDREN: Final[dict[str, Any]] = {
    **dict.fromkeys(("basetemp", "xmlpath", "pastebin", "report_log", "htmlpath", "deselect", "numprocesses")),
    **dict.fromkeys(("reruns", "splits", "group")),
    **dict.fromkeys(("json_report", "lf", "failedfirst", "newfirst", "stepwise", "stepwise_skip", "cacheclear"), False),
    **dict.fromkeys(("collectonly", "usepdb"), False),
    **dict.fromkeys(("keyword", "markexpr"), ""),
    "log_file": os.devnull,
    "maxfail": 0,
    "dist": "no",
    "tx": [],
    "num_shards": 1,
    "shard_id": 0,
}

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
_ALIKE: Final = "another process finds a test by its name; give each item of the file another one"


class Child:
    """A plugin object of a child that has collected: it runs each test that is asked for, and writes reports, warnings.

    It changes the options: the child collects the tests of its task, and writes no file of the whole run.
    Each request is a line of JSON. A copy of this process, or this one if it runs a single test, returns from the loop
    with its test, and ends as any pytest does; tests that run here one after the other share fixtures.
    """

    def __init__(self, config: pytest.Config, task: Task) -> None:
        self._config, self._task = config, task
        self._session: pytest.Session | None = None
        self._file: int | None = None
        self._identity: tuple[int, int] | None = None
        self._reports_tests = True  # the process that waits for a trial reads only its result
        self._items: dict[str, pytest.Item] = {}
        self._alike: set[str] = set()
        for name, value in {**NOT_FOR_CHILDREN, **task.options}.items():
            if hasattr(config.option, name):
                setattr(config.option, name, value)
        if task.paths:
            config.args = task.paths
        for pipe in task.pipes:
            os.set_inheritable(pipe, False)  # noqa: FBT003 (the parameter has no name)
        self._open(task.reports)

    def _open(self, reports: str) -> None:
        self._close()
        self._file = os.open(reports, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._identity, self._reports = identity(self._file), reports

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None and identity(file) == self._identity:
            os.close(file)

    def _write(self, kind: str, data: Any) -> None:
        if self._file is not None:
            if identity(self._file) != self._identity:  # the test has closed every descriptor
                self._open(self._reports)
            os.write(self._file, f"{json.dumps({kind: data}, default=str)}\n".encode())

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Know the tests by what their node IDs have in common with the parent's."""
        for item in items:
            if self._items.setdefault(key(item), item) is not item:
                self._alike.add(key(item))

    def pytest_collection_finish(self) -> Generator[None]:
        """Forget what the process that waits has seen, too, when all hooks have run: it has collected the same."""
        yield
        run = run_of(self._config)
        if (reporter := run.get(REPORTER)) is not None:
            reporter.between()
        run.part(LEDGER).outside = Outside()

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Hand over what ends the run: ``pytest.exit``, or an interruption that the test itself has raised."""
        error = excinfo.value
        if isinstance(error, pytest.exit.Exception):
            self._write("exit", {"reason": error.msg, "returncode": error.returncode})
        else:
            self._write("interrupt", None)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand over what fails the run although the test's reports, already written, do not show it."""
        self._session = session
        run = run_of(self._config)
        if (planned := run.get(FAULTS)) is not None:
            self._write("faults", planned.as_json())
        self._write("outside", run.part(LEDGER).outside.as_json())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._reports_tests:
            self._write("report", self._config.hook.pytest_report_to_serializable(config=self._config, report=report))

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage, when: str) -> None:
        if when == "runtest" and self._reports_tests:  # the other process has collected, too, and was warned itself
            category = warning_message.category
            self._write(
                "warning",
                {
                    "message": str(warning_message.message),
                    "module": category.__module__,
                    "category": category.__name__,
                    "filename": warning_message.filename,
                    "lineno": warning_message.lineno,
                },
            )

    def pytest_unconfigure(self) -> None:
        """Say with which exit code pytest ends this process: with another one it died."""
        if self._session is not None:
            self._write("ended", int(self._session.exitstatus))
        self._close()

    def _reply(self, **answer: Any) -> None:
        os.write(self._task.pipes[1], f"{json.dumps(answer)}\n".encode())

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Serve requests until the process that waits closes their pipe, or ends."""
        session.testsfailed = 0  # files that could not be collected: the process that waits has seen them, too
        if self._task.mode == "copies":
            gc.collect()
            gc.freeze()  # a copy would spend most of its time looking at what this process has made
        else:  # once: what a test has started goes on writing there
            pytest_private.own_captured(session.config, f"{self._task.reports}-std")
        self._reply(ready=True)
        with os.fdopen(self._task.pipes[0], encoding="utf-8", closefd=False) as requests:
            while line := _line(requests):
                if self._serve(session, json.loads(line)):
                    break
        return True

    def _serve(self, session: pytest.Session, request: dict[str, Any]) -> bool:
        """Run one test; True in the process that has run it, such as a copy of this one, if it can run no other."""
        mode = self._task.mode
        if refusal := self._refusal(request):
            if mode == "alone":
                self._begin(request["reports"])
                raise pytest.UsageError(f"cudalink: {refusal}")
            self._reply(refused=refusal)
            return False
        item = self._items[request["key"]]
        pytest_private.rename(item, request["nodeid"])
        if request["trials"]:
            self._serve_trials(session, item, request)
            return False
        child = _fork() if mode == "copies" else 0
        if child == 0:
            if mode == "shared":
                self._reply(pid=os.getpid())
            else:
                self._become_single(session, item)
            self._begin(request["reports"])
            following = self._items.get(request["next"] or "")
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            self._write("stops", {name: getattr(session, name) for name in ("shouldstop", "shouldfail")})
            if mode != "shared":
                return True
            self._open(self._task.reports)
            guard = run_of(item.config).get(STICKY)
            ends = guard is not None and guard.found is not None
            self._reply(ends=ends)
            return ends
        self._reply(pid=child)
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that waits decides
        try:
            _, status = os.waitpid(child, 0)
        finally:
            signal.signal(signal.SIGINT, before)
        self._reply(status=status)
        return False

    def _refusal(self, request: dict[str, Any]) -> str:
        """Return why this process cannot run a test as it is to run; empty if it can."""
        if request["key"] not in self._items:
            return "a second process has not collected the test, or under another ID"
        if request["key"] in self._alike:
            return f"several tests have its name: {_ALIKE}"
        return _hazard(run_of(self._config), again=bool(request["trials"])) if self._task.mode == "copies" else ""

    def _begin(self, reports: str) -> None:
        """Begin with a test: say in its file that the process has come so far; what is captured outlives it."""
        self._open(reports)
        self._write("began", None)
        if self._task.mode == "copies":
            pytest_private.own_captured(self._config, f"{reports}-std")

    def _become_single(self, session: pytest.Session, item: pytest.Item) -> None:
        """Make this process, a copy of one that serves or one that was started for it, one that runs a single test."""
        for pipe in self._task.pipes:
            os.close(pipe)
        session.items, session.testscollected = [item], 1
        if self._task.mode == "copies":
            pytest_private.drop_summary(session.config)
            if (below := run_of(session.config).get(DESCENDANTS)) is not None:
                below.forked()
            pytest_private.own_captured(session.config)  # several copies may run at once

    def _serve_trials(self, session: pytest.Session, item: pytest.Item, request: dict[str, Any]) -> None:
        """Run a test under several conditions, some of them at once, each in a copy of this process."""
        from . import trial

        trial.prepare(item)
        driver = run_of(session.config).emulated
        waiting = deque(enumerate(request["trials"]))
        running: dict[int, _Copy] = {}
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that waits decides
        try:
            while waiting or running:
                while waiting and len(running) < request["at_once"]:
                    number, asked = waiting.popleft()
                    _wait_for_rest()
                    child = _fork()
                    if child == 0:
                        signal.signal(signal.SIGINT, before)
                        for descriptor in running:
                            os.close(descriptor)
                        self._become_single(session, item)
                        self._open(f"{request['reports']}-{number}")
                        if driver is not None:
                            driver.keep_driver()
                        self._reports_tests = False
                        self._write("trial", getattr(trial, asked.pop("how"))(item, driver, **asked))
                        if (below := run_of(session.config).get(DESCENDANTS)) is not None:
                            below.drop()
                        os._exit(0)  # the interpreter would free one object after the other
                    self._reply(pid=child)
                    running[os.pidfd_open(child)] = _Copy(number, child, time.monotonic() + request["deadline"])
                self._wait_for_some(running)
        finally:
            signal.signal(signal.SIGINT, before)
        self._reply(done=True)

    def _wait_for_some(self, running: dict[int, _Copy]) -> None:
        """Wait until a copy ends or is late, and then no longer."""
        ended = select.poll()
        for descriptor in running:
            ended.register(descriptor, select.POLLIN)
        due = min(copy.until for copy in running.values())
        ready = {descriptor for descriptor, _ in ended.poll(max(0.0, due - time.monotonic()) * 1000)}
        for descriptor, copy in [*running.items()]:
            late = descriptor not in ready and time.monotonic() >= copy.until
            if late:
                os.kill(copy.pid, signal.SIGKILL)
            if late or descriptor in ready:
                _, status = os.waitpid(copy.pid, 0)
                os.close(descriptor)
                del running[descriptor]
                self._reply(number=copy.number, pid=copy.pid, status=status, late=late)


class _Copy(NamedTuple):
    """A copy that runs a test: the number of its condition, and when it is late."""

    number: int
    pid: int
    until: float


def _fork() -> int:
    """Fork; what Python 3.12 warns of, where there are threads, is what `_hazard` looks for."""
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _line(requests: Any) -> str:
    """Return the next request; empty at the end, or when the user interrupts the run between two tests."""
    with suppress(KeyboardInterrupt):
        return str(requests.readline())
    return ""


# -- what keeps a copy of a process from running a test as the process itself would
#
# A copy has one thread, and the memory of all. What the other threads were doing is never finished there: a lock that
# one of them holds stays locked. A thread that rests, in `accept`, `recv`, `sleep` or its own lock, holds none that a
# test needs; the run of the test in which nothing fails shows whether that is so. A thread that runs may hold any,
# another one in each copy. A pool of native threads does not know that it is gone, and waits for it.


def _hazard(run: Run, *, again: bool) -> str:
    """Return why a copy of this process could not run a test as a new process does; empty if it can.

    `again`: whether a copy runs the test once more, with the emulated driver as it is. Otherwise a new process can,
    too, which has all threads.
    """
    own = Path("/proc/self")
    if others := _others():
        _fork_once()
        until = time.monotonic() + _LINGERING
        while (others := _others()) and not (again and _are_of_python(others)) and time.monotonic() < until:
            time.sleep(0.005)
        if others and not again:
            return f"collecting the tests started {counted(len(others), 'thread')}"
        if hazard := _hazard_of(_wait_for_rest()):
            return hazard
    for descriptor in own.joinpath("fd").iterdir():
        with suppress(OSError):
            if str(descriptor.readlink()).startswith("/dev/nvidia"):
                return "collecting the tests initialized the driver"
    with suppress(OSError):  # not every kernel lists them
        if own.joinpath("task", str(os.getpid()), "children").read_bytes().strip():
            return "collecting the tests started a process that still runs"
    present = run.emulated
    if present is not None and not again and any(event.get("call") == "cuInit" for event in present.events()):
        return "collecting the tests initialized the driver"
    return ""


def _hazard_of(busy: set[int]) -> str:
    """Return which thread a copy would miss: one that runs, or a native one; empty for none."""
    names = {thread.native_id: f"{thread.name!r}" for thread in threading.enumerate()}
    if busy:
        return f"a running thread: {listed([names.get(thread, str(thread)) for thread in sorted(busy)])}"
    others = _others()
    if _are_of_python(others):
        return ""
    native = [f"{_read(thread, 'comm').strip()} {thread}" for thread in sorted(others) if thread not in names]
    return f"a native thread, on which its library may rely: {listed(native)}"


def _are_of_python(others: set[int]) -> bool:
    """Whether the other threads are no more than those that the interpreter knows."""
    return len(others) < len(sys._current_frames())  # noqa: SLF001 (that of this thread is one)


def _wait_for_rest() -> set[int]:
    """Wait until each other thread rests, but not long; return those that do not."""
    until = time.monotonic() + _LINGERING
    busy = {thread for thread in _others() if not _is_idle(thread)}
    while busy:
        before = {thread: _switches(thread) for thread in busy}
        time.sleep(_REST)  # without the interpreter's lock, so that threads that wait for it run
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


def _fork_once() -> None:
    """Fork a process that ends at once, so that libraries that are ready for forks end their threads before it.

    OpenBLAS does, and starts them again when it is used: numpy alone would make every copy unsafe. OpenMP does not.
    """
    child = _fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
