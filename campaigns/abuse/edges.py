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

from campaigns.driver import Driver
from pytest_cudalink.emulator import notes, preload
from pytest_cudalink.linker import Linker, LinkerOptions, ObjectCode
from pytest_cudalink.loader import last_words
from pytest_cudalink.report import Writer
from pytest_cudalink.report.records import ViolationRecord

from .mutations import SAMPLES
from .scenarios import Outcome, Scenario, Use

_PR_SET_PDEATHSIG: Final = 1
_SIZE: Final = 2 << 20
#: What a round does, with its random numbers.
Round = Callable[[random.Random], object]


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


def must_end(child: int, *expected: int) -> None:
    """Wait for the end of a process; fail if its exit code is none of those expected, negative for a signal."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (expected or (0,)), f"the process ended with {code}; expected {expected or 0}"


def _beside(work: Callable[[], object]) -> None:
    """Repeat some work in a thread until the process ends."""

    def repeat() -> None:
        while True:
            work()

    threading.Thread(target=repeat, daemon=True).start()


def _together(*works: Callable[[], object]) -> list[threading.Thread]:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    return threads


def _join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join()


def crash() -> Round:
    """End processes by SIGABRT while their threads make events; each must end, and say so in its record."""
    cuda, folder = Driver(), tempfile.TemporaryDirectory()
    record, events = Path(folder.name, "record.jsonl"), Path(folder.name, "events.jsonl")
    calls = ("cuLinkDestroy", "cuModuleUnload")

    def make_events() -> None:
        for call in calls:
            cuda.do(call, None)

    def work(to_file: bool, ready: int) -> None:
        if to_file:
            os.environ["CUDALINK_EMULATOR_EVENTS"] = str(events)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        faulthandler.enable()
        last_words.watch(record, None, 2)
        driver = preload.emulated_driver()
        assert driver is not None
        last_words.emulated_driver(driver.signal_functions)
        _beside(make_events)
        _beside(make_events)
        os.write(ready, b"x")
        while True:
            make_events()

    def run(pick: random.Random) -> None:
        assert folder  # whose end would remove it
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
        assert all(json.loads(event)["call"] in calls for event in said["last_events"])

    return run


def unloads() -> Round:
    """Close libraries in the middle of threads that made a context current and made events; no thread may crash."""

    def work(pick: random.Random) -> None:
        driver, nvml = Driver(), ctypes.CDLL("libnvidia-ml.so.1")
        used, closed = threading.Barrier(4), threading.Barrier(4)

        def thread() -> None:
            driver.start()
            assert nvml.nvmlInit_v2() == 0
            used.wait()
            closed.wait()

        threads = _together(*[thread] * 3)
        used.wait()
        libraries = [driver.cuda, nvml]
        pick.shuffle(libraries)
        for library in libraries:
            _ctypes.dlclose(library._handle)
        closed.wait()
        _join(threads)

    return lambda pick: must_end(forked(partial(work, pick)))


class _Held:
    """What keeps a descriptor of ours open: each kind of memory that is shared, a link worker, and a record file."""

    def __init__(self, pick: random.Random, folder: Path) -> None:
        self._driver, self._pick = Driver(), pick
        self._driver.start()
        self._address, self._reserved, self._pool, self._external, self._physical = (
            ctypes.c_uint64() for _ in range(5)
        )
        self._writer = Writer(folder / "record.jsonl")

    def make(self) -> None:
        """Make each kind of object; what there is no descriptor for is refused."""
        do, byref = self._driver.do, ctypes.byref
        properties = (ctypes.c_int * 22)(1, 1, 1)  # pinned, a file, a device
        do("cuMemAlloc_v2", byref(self._address), _SIZE)
        do("cuMemPoolCreate", byref(self._pool), properties)
        do("cuMemCreate", byref(self._physical), _SIZE, properties, 0)
        do("cuMemAddressReserve", byref(self._reserved), _SIZE, 0, 0, 0)
        with tempfile.TemporaryFile() as file:
            file.truncate(_SIZE)
            description = (ctypes.c_int * 26)(1, 0, os.dup(file.fileno()))
            description[6] = _SIZE
            do("cuImportExternalMemory", byref(self._external), description)

    def use(self) -> None:
        """Make calls that write, map, grow or duplicate what these are kept in."""
        out, handle, address = ctypes.c_int(), ctypes.create_string_buffer(64), ctypes.c_uint64()
        to, there = ctypes.byref(out), ctypes.byref(address)
        calls: list[Callable[[], object]] = [
            partial(self._driver.do, *call)
            for call in (
                ("cuIpcGetMemHandle", handle, self._address),
                ("cuMemGetHandleForAddressRange", to, self._address, _SIZE, 1, 0),
                ("cuMemAllocFromPoolAsync", there, _SIZE, self._pool, None),
                ("cuMemPoolExportToShareableHandle", to, self._pool, 1, 0),
                ("cuMemExportToShareableHandle", to, self._physical, 1, 0),
                ("cuMemMap", self._reserved, _SIZE, 0, self._physical, 0),
                ("cuExternalMemoryGetMappedBuffer", there, self._external, (ctypes.c_uint64 * 11)(0, 1 << 20)),
                ("cuModuleUnload", None),  # an event
            )
        ]
        calls.append(lambda: self._writer.write(ViolationRecord(nodeid=None, text="one")))
        self._pick.shuffle(calls)
        for call in calls[: self._pick.randrange(1, len(calls) + 1)]:
            with suppress(OSError):
                call()

    def link(self) -> None:
        """Begin a link, which starts or takes a worker."""
        state, do = ctypes.c_uint64(), self._driver.do
        text = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { ret; }\0"
        do("cuLinkCreate_v2", 0, None, None, ctypes.byref(state))
        do("cuLinkAddData_v2", state, 1, text, len(text), b"k", 0, None, None)
        do("cuLinkDestroy", state)

    def end(self) -> None:
        """Give everything back, in any order."""
        calls: list[Callable[[], object]] = [
            partial(self._driver.do, "cuMemFree_v2", self._address),
            partial(self._driver.do, "cuMemPoolDestroy", self._pool),
            partial(self._driver.do, "cuMemRelease", self._physical),
            partial(self._driver.do, "cuDestroyExternalMemory", self._external),
            self._writer.close,
        ]
        self._pick.shuffle(calls)
        for call in calls:
            call()


def daemons() -> Round:
    """Use the driver, close every descriptor, open a log in their place and go on; the log must stay as it is.

    So do daemons, which close every descriptor, and open files of their own at the same numbers.
    """
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

    def run(pick: random.Random) -> None:
        log.write_bytes(text)
        must_end(forked(partial(work, pick)), 0, -signal.SIGABRT)
        said = log.read_bytes()
        assert said == text, f"the log has {len(said)} bytes instead of {len(text)}: {said[-2000:]!r}"

    return run


def nvml_forks() -> Round:
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
    _beside(lambda: nvml.nvmlEventSetFree(1))
    _beside(call)

    def run(pick: random.Random) -> None:
        time.sleep(pick.uniform(0, 0.002))
        with warnings.catch_warnings(action="ignore"):  # Python warns of each fork beside threads
            must_end(forked(call))

    return run


def first_forks() -> Round:
    """Fork while a thread makes the first link of the process; each child must be able to link, too."""
    image = (SAMPLES / "13.0" / "user.cubin").read_bytes()

    def link() -> None:
        options = LinkerOptions(arch="sm_90", contain=True)
        with Linker(ObjectCode.from_cubin(image), options=options, backend="nvjitlink") as linker:
            linker.link("cubin")

    def work(pick: random.Random) -> None:
        threads = _together(link)
        time.sleep(pick.uniform(0, 0.3))
        with warnings.catch_warnings(action="ignore"):  # Python warns of each fork beside threads
            child = forked(link)
        must_end(child)
        _join(threads)

    return lambda pick: must_end(forked(partial(work, pick)))


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

    def run(self, driver: Driver) -> None:
        """Start this process and those below it; each must end as planned."""
        must_end(forked(partial(self._live, driver)), -signal.SIGKILL if self.killed else 0)

    def _live(self, driver: Driver) -> None:
        for level in self.below:
            level.run(driver)  # before cuInit, or it answers 3
        violate = partial(self._violate, driver, driver.start())
        workers = _together(*[violate] * self.threads)
        violate()
        _join(workers)
        if self.killed:
            os.kill(os.getpid(), signal.SIGKILL)

    def _violate(self, driver: Driver, context: int) -> None:
        """Change option values that link states have."""
        driver.must("cuCtxSetCurrent", context)
        for _ in range(self.violations):
            values, state = (ctypes.c_uint64 * 1)(1), ctypes.c_uint64()
            driver.must("cuLinkCreate_v2", 1, (ctypes.c_int * 1)(12), values, ctypes.byref(state))
            values[0] = 99
            driver.must("cuLinkDestroy", state)


def descendants() -> Round:
    """Break a rule in two trees of processes at once, which exit or are killed; each violation must be noted."""
    mine = notes.Notes("")
    atexit.register(mine.end)
    os.environ[notes.VARIABLE] = mine.path
    driver = Driver()

    def run(pick: random.Random) -> None:
        first, second = (_Process.planned(pick, 2) for _ in range(2))
        beside = forked(partial(second.run, driver))
        first.run(driver)
        must_end(beside)
        violations, total = mine.take_counted(), first.total + second.total
        assert len(violations) == total, f"{len(violations)} of {total} violations were noted"
        assert all(violation["option"] == "CU_JIT_LOG_VERBOSE" for violation in violations)

    return run


def _rounds(title: str, prepare: Callable[[], Round], emulated: bool = True) -> Scenario:
    """The scenario of rounds that inputs seed, each of which must end without an error."""

    def prepared() -> Use:
        run = prepare()

        def use(_: object, data: bytes) -> Outcome:
            run(random.Random(data))
            return Outcome.ACCEPTED

        return use

    return Scenario(title, frozenset({"ptx"}), prepared, emulated=emulated)


EDGES: Final = {
    "descendants": _rounds("violations in trees of processes", descendants),
    "nvml-forks": _rounds("forks beside NVML calls", nvml_forks),
    "unloads": _rounds("dlclose beside threads", unloads),
    "first-forks": _rounds("forks beside a first link", first_forks, emulated=False),
    "daemons": _rounds("descriptors that are closed and opened again", daemons),
    "crash": _rounds("SIGABRT beside events", crash),
}
