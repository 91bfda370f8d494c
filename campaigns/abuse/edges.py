"""Ways of a campaign that use no damaged image: each seeds one round of what processes do beside the driver.

A round runs in a forked child, because it ends, or may end, its process; a child that hangs ends with its parent.
"""

from __future__ import annotations

import _ctypes
import atexit
import ctypes
import faulthandler
import json
import os
import random
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from pytest_cudalink.emulator import notes, preload
from pytest_cudalink.linker import Linker, LinkerOptions, ObjectCode
from pytest_cudalink.loader import last_words
from pytest_cudalink.report import Writer
from pytest_cudalink.report.records import ViolationRecord

from .mutations import SAMPLES, Subject
from .scenarios import Outcome, Scenario, Use, driver

_PR_SET_PDEATHSIG: Final = 1


def forked(work: Callable[[], object]) -> int:
    """Return the process that does some work, and exits with 0 after it; it ends with this one."""
    if child := os.fork():
        return child
    code = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        work()
        code = 0
    finally:
        os._exit(code)  # an error is in the exit code; `unraisable` hooks of the parent would print it twice


def must_end(child: int, expected: int = 0) -> None:
    """Wait for the end of a process; fail if its exit code is not as expected, negative for a signal."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code == expected, f"the process ended with {code}; expected {expected}"


def _beside(work: Callable[[], object], threads: int) -> None:
    """Repeat some work in threads until the process ends."""

    def repeat() -> None:
        while True:
            work()

    for _ in range(threads):
        threading.Thread(target=repeat, daemon=True).start()


# -- fatal signals beside events


def _crash() -> Use:
    """End processes by SIGABRT while their threads make events; each must end, and say so in its record."""
    cuda: Any = ctypes.CDLL("libcuda.so.1")
    folder = tempfile.TemporaryDirectory()
    record, events = Path(folder.name, "record.jsonl"), Path(folder.name, "events.jsonl")

    def make_events() -> None:
        cuda.cuLinkDestroy(None)
        cuda.cuModuleUnload(None)

    def work(to_file: bool, ready: int) -> None:
        if to_file:
            os.environ["CUDALINK_EMULATOR_EVENTS"] = str(events)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        faulthandler.enable()
        last_words.watch(record, None, 2)
        driver = preload.emulated_driver()
        assert driver is not None
        last_words.emulated_driver(driver.signal_functions)
        _beside(make_events, 2)
        os.write(ready, b"x")
        while True:
            make_events()

    def use(_: Subject, data: bytes) -> Outcome:
        assert folder  # whose end would remove it
        pick = random.Random(data)
        record.write_bytes(b"")
        begun, ready = os.pipe()
        child = forked(lambda: work(pick.random() < 0.5, ready))
        os.read(begun, 1)
        os.close(begun)
        os.close(ready)
        time.sleep(pick.uniform(0.001, 0.01))
        os.kill(child, signal.SIGABRT)
        must_end(child, -signal.SIGABRT)
        said = json.loads(record.read_bytes())
        assert said["signal"] == "SIGABRT"
        assert all(json.loads(event)["call"] in ("cuLinkDestroy", "cuModuleUnload") for event in said["last_events"])
        return Outcome.ACCEPTED

    return use


# -- libraries that are closed while threads that used them go on


def _unloads() -> Use:
    """Close libraries in the middle of threads that made a context current and made events; no thread may crash."""

    def work(pick: random.Random) -> None:
        libraries = [ctypes.CDLL(name) for name in ("libcuda.so.1", "libnvidia-ml.so.1")]
        used, closed = threading.Barrier(4), threading.Barrier(4)

        def thread() -> None:
            context = ctypes.c_void_p()
            assert libraries[0].cuInit(0) == 0
            assert libraries[0].cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
            assert libraries[0].cuCtxSetCurrent(context) == 0
            assert libraries[1].nvmlInit_v2() == 0
            used.wait()
            closed.wait()

        threads = [threading.Thread(target=thread) for _ in range(3)]
        for racer in threads:
            racer.start()
        used.wait()
        pick.shuffle(libraries)
        for library in libraries:
            _ctypes.dlclose(library._handle)
        closed.wait()
        for racer in threads:
            racer.join()

    def use(_: Subject, data: bytes) -> Outcome:
        must_end(forked(lambda: work(random.Random(data))))
        return Outcome.ACCEPTED

    return use


# -- daemons, which close every descriptor and open files of their own at the same numbers


class _Held:
    """What keeps a descriptor of ours open: each kind of memory that is shared, a link worker, and a record file."""

    def __init__(self, pick: random.Random, folder: Path) -> None:
        self._cuda, self._pick = driver(), pick
        self._address, self._reserved = ctypes.c_uint64(), ctypes.c_uint64()
        self._pool, self._external = ctypes.c_void_p(), ctypes.c_void_p()
        self._physical = ctypes.c_uint64()
        self._writer = Writer(folder / "record.jsonl")

    def make(self) -> None:
        """Make each kind of object; what there is no descriptor for is refused."""
        cuda, size = self._cuda, ctypes.c_size_t(2 << 20)
        properties = (ctypes.c_int * 22)(1, 1, 1)  # pinned, a file, a device
        cuda.cuMemAlloc_v2(ctypes.byref(self._address), size)
        cuda.cuMemPoolCreate(ctypes.byref(self._pool), properties)
        cuda.cuMemCreate(ctypes.byref(self._physical), size, properties, ctypes.c_uint64())
        cuda.cuMemAddressReserve(
            ctypes.byref(self._reserved), size, ctypes.c_size_t(), ctypes.c_uint64(), ctypes.c_uint64()
        )
        with tempfile.TemporaryFile() as file:
            file.truncate(2 << 20)
            description = (ctypes.c_int * 26)(1, 0, os.dup(file.fileno()))
            description[6] = 2 << 20
            cuda.cuImportExternalMemory(ctypes.byref(self._external), description)

    def use(self) -> None:
        """Make calls that write, map, grow or duplicate what these are kept in."""
        cuda, size, out = self._cuda, ctypes.c_size_t(2 << 20), ctypes.c_int()
        handle, address = ctypes.create_string_buffer(64), ctypes.c_uint64()
        buffer = (ctypes.c_uint64 * 11)(0, 1 << 20)
        calls: list[Callable[[], object]] = [
            lambda: cuda.cuIpcGetMemHandle(handle, self._address),
            lambda: cuda.cuMemGetHandleForAddressRange(ctypes.byref(out), self._address, size, 1, ctypes.c_uint64()),
            lambda: cuda.cuMemAllocFromPoolAsync(ctypes.byref(address), size, self._pool, None),
            lambda: cuda.cuMemPoolExportToShareableHandle(ctypes.byref(out), self._pool, 1, ctypes.c_uint64()),
            lambda: cuda.cuMemExportToShareableHandle(ctypes.byref(out), self._physical, 1, ctypes.c_uint64()),
            lambda: cuda.cuMemMap(self._reserved, size, ctypes.c_size_t(), self._physical, ctypes.c_uint64()),
            lambda: cuda.cuExternalMemoryGetMappedBuffer(ctypes.byref(address), self._external, buffer),
            lambda: cuda.cuModuleUnload(None),  # an event
            lambda: self._writer.write(ViolationRecord(nodeid=None, text="one")),
        ]
        self._pick.shuffle(calls)
        for call in calls[: self._pick.randrange(1, len(calls) + 1)]:
            with suppress(OSError):
                call()

    def link(self) -> None:
        """Begin a link, which starts or takes a worker."""
        state = ctypes.c_void_p()
        text = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { ret; }\0"
        self._cuda.cuLinkCreate_v2(0, None, None, ctypes.byref(state))
        self._cuda.cuLinkAddData_v2(state, 1, text, ctypes.c_size_t(len(text)), b"k", 0, None, None)
        self._cuda.cuLinkDestroy(state)

    def end(self) -> None:
        """Give everything back, in any order."""
        cuda = self._cuda
        calls = [
            lambda: cuda.cuMemFree_v2(self._address),
            lambda: cuda.cuMemPoolDestroy(self._pool),
            lambda: cuda.cuMemRelease(self._physical),
            lambda: cuda.cuDestroyExternalMemory(self._external),
            self._writer.close,
        ]
        self._pick.shuffle(calls)
        for call in calls:
            call()


def _daemons() -> Use:
    """Use the driver, close every descriptor, open a log in their place and go on; the log must stay as it is."""
    ctypes.CDLL("libcuda.so.1")  # which the children share
    folder = tempfile.TemporaryDirectory()
    log, text = Path(folder.name, "log"), b"the daemon's\n" * 1000

    def work(pick: random.Random) -> None:
        os.environ["CUDALINK_EMULATOR_EVENTS"] = str(Path(folder.name, "events.jsonl"))
        held = _Held(pick, Path(folder.name))
        last_words.watch(Path(folder.name, "record.jsonl"), None, None)
        links = pick.random() < 0.1
        held.make()
        held.use()
        if links:
            held.link()
        highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
        os.closerange(0, highest + 1)
        opened = os.open(log, os.O_RDWR)
        for number in range(opened + 1, highest + 1):
            os.dup2(opened, number)
        held.use()
        if links:
            held.link()
        if pick.random() < 0.5:
            os.kill(os.getpid(), signal.SIGABRT)
        held.end()
        held.make()
        held.use()

    def use(_: Subject, data: bytes) -> Outcome:
        pick = random.Random(data)
        log.write_bytes(text)
        child = forked(lambda: work(pick))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said = log.read_bytes()
        assert said == text, f"the log has {len(said)} bytes instead of {len(text)}: {said[-2000:]!r}"
        assert code in (0, -signal.SIGABRT), code
        return Outcome.ACCEPTED

    return use


# -- forks beside calls


def _nvml_forks() -> Use:
    """Fork while threads are inside NVML; each child must be able to make the same calls."""
    nvml: Any = ctypes.CDLL("libnvidia-ml.so.1")
    assert nvml.nvmlInit_v2() == 0

    def call() -> None:
        made = ctypes.c_void_p()
        assert nvml.nvmlInit_v2() == 0
        assert nvml.nvmlEventSetCreate(ctypes.byref(made)) == 0
        assert nvml.nvmlEventSetFree(made) == 0
        assert nvml.nvmlShutdown() == 0

    made = ctypes.c_void_p()
    for _ in range(200_000):  # a search for a set that is not there takes its time, under the lock
        assert nvml.nvmlEventSetCreate(ctypes.byref(made)) == 0
    _beside(lambda: nvml.nvmlEventSetFree(1), 1)
    _beside(call, 1)

    def use(_: Subject, data: bytes) -> Outcome:
        time.sleep(random.Random(data).uniform(0, 0.002))
        with warnings.catch_warnings(action="ignore"):  # Python warns of each fork beside threads
            must_end(forked(call))
        return Outcome.ACCEPTED

    return use


def _first_forks() -> Use:
    """Fork while a thread makes the first link of the process; each child must be able to link, too."""
    image = (SAMPLES / "13.0" / "user.cubin").read_bytes()

    def link() -> None:
        options = LinkerOptions(arch="sm_90", contain=True)
        with Linker(ObjectCode.from_cubin(image), options=options, backend="nvjitlink") as linker:
            linker.link("cubin")

    def work(pick: random.Random) -> None:
        thread = threading.Thread(target=link)
        thread.start()
        time.sleep(pick.uniform(0, 0.3))
        with warnings.catch_warnings(action="ignore"):  # Python warns of each fork beside threads
            child = forked(link)
        must_end(child)
        thread.join()

    def use(_: Subject, data: bytes) -> Outcome:
        must_end(forked(lambda: work(random.Random(data))))
        return Outcome.ACCEPTED

    return use


_SEED: Final = frozenset({"ptx"})

# -- violations in processes below


class _Process(NamedTuple):
    """A process of a tree: those that it starts, its violations in each thread, its threads, whether it is killed."""

    below: tuple[_Process, ...]
    violations: int
    threads: int
    killed: bool

    @classmethod
    def planned(cls, pick: random.Random, depth: int) -> _Process:
        below = tuple(cls.planned(pick, depth - 1) for _ in range(pick.randint(0, 2) if depth else 0))
        return cls(below, pick.randint(0, 3), pick.randint(0, 2), pick.random() < 0.5)

    @property
    def total(self) -> int:
        """Violations of the whole tree."""
        return self.violations * (1 + self.threads) + sum(level.total for level in self.below)

    def run(self, cuda: Any) -> None:
        """Start this process and those below it; each must end as planned."""
        must_end(forked(partial(self._live, cuda)), -signal.SIGKILL if self.killed else 0)

    def _live(self, cuda: Any) -> None:
        for level in self.below:
            level.run(cuda)  # before cuInit, or it answers 3
        context = ctypes.c_void_p()
        assert cuda.cuInit(0) == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
        workers = [threading.Thread(target=self._violate, args=(cuda, context)) for _ in range(self.threads)]
        for worker in workers:
            worker.start()
        self._violate(cuda, context)
        for worker in workers:
            worker.join()
        if self.killed:
            os.kill(os.getpid(), signal.SIGKILL)

    def _violate(self, cuda: Any, context: ctypes.c_void_p) -> None:
        """Change option values that link states have."""
        assert cuda.cuCtxSetCurrent(context) == 0
        for _ in range(self.violations):
            values, state = (ctypes.c_uint64 * 1)(1), ctypes.c_void_p()
            assert cuda.cuLinkCreate_v2(1, (ctypes.c_int * 1)(12), values, ctypes.byref(state)) == 0
            values[0] = 99
            assert cuda.cuLinkDestroy(state) == 0


def _descendants() -> Use:
    """Break a rule in two trees of processes at once, which exit or are killed; each violation must be noted."""
    mine = notes.Notes("")
    atexit.register(mine.end)
    os.environ[notes.VARIABLE] = mine.path
    cuda: Any = ctypes.CDLL("libcuda.so.1")

    def use(_: Subject, data: bytes) -> Outcome:
        pick = random.Random(data)
        first, second = (_Process.planned(pick, 2) for _ in range(2))
        beside = forked(partial(second.run, cuda))
        first.run(cuda)
        must_end(beside)
        violations, total = mine.take_counted(), first.total + second.total
        assert len(violations) == total, f"{len(violations)} of {total} violations were noted"
        assert all(violation["option"] == "CU_JIT_LOG_VERBOSE" for violation in violations)
        return Outcome.ACCEPTED

    return use


EDGES: Final = {
    "descendants": Scenario("violations in trees of processes", _SEED, _descendants, emulated=True),
    "nvml-forks": Scenario("forks beside NVML calls", _SEED, _nvml_forks, emulated=True),
    "unloads": Scenario("dlclose beside threads", _SEED, _unloads, emulated=True),
    "first-forks": Scenario("forks beside a first link", _SEED, _first_forks, emulated=False),
    "daemons": Scenario("descriptors that are closed and opened again", _SEED, _daemons, emulated=True),
    "crash": Scenario("SIGABRT beside events", _SEED, _crash, emulated=True),
}
