"""Closed gates, at a driver that is made of Python: which calls it gets, and what the watchdog says of a thread."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_cudalink.loader import gates
from pytest_cudalink.loader.gates import ClosedGates, NoGatesError, call_of, run_delay

DRIVER = ("libcuda.so.1+0x1", "libcuda.so.1+0x2 cuMemFree_v2")
INNER = ("libc.so.6+0x1 read", "linux-vdso.so.1+0x2")


@pytest.mark.parametrize(
    ("frames", "call"),
    [
        ((), None),
        (("python+0x1 main",), None),
        (DRIVER, "cuMemFree_v2"),
        ((*INNER, *DRIVER, "libtorch.so+0x9 f"), "cuMemFree_v2"),
        (("libcuda.so.1+0x1 cuInner", "libcuda.so.1+0x2 cuOuter", "libcuda.so.1+0x3"), "cuOuter"),
        (("libcuda.so.1+0x1",), ""),
        (("libnvidia-ptxjitcompiler.so.1+0x1", *DRIVER), None),
        (("libcuda.so.1+0x1 cuEventQuery",), None),
        (("libcuda.so.1+0x1 cuStreamQuery_ptsz",), None),
        (("libcuda.so.1+0x1 cuStreamSynchronize",), "cuStreamSynchronize"),
    ],
)
def test_the_call_that_frames_show(frames: Sequence[str], call: str | None) -> None:
    """It is the outermost of the driver that has a name; what asks, or has called a compiler, does not wait."""
    assert call_of(frames) == call


def test_run_delay(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's second number is nanoseconds; what cannot be read is no delay."""
    monkeypatch.setattr(gates, "Path", lambda path: tmp_path / path.strip("/").replace("/", "-"))
    for thread, text in {1: "5 2500000000 7", 2: "5", 3: "x y z"}.items():
        (tmp_path / f"proc-self-task-{thread}-schedstat").write_text(text, encoding="ascii")
    assert [run_delay(thread) for thread in (1, 2, 3, 4)] == [2.5, 0.0, 0.0, 0.0]


class Driver:
    """A driver that writes its calls down. Two devices, of which the second one's primary context is active."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.answers: dict[str, int] = {}
        self.current, self.devices, self.active = 7, 2, {1}
        self.numbers = {7: 70, 100: 71, 101: 72}
        self.missing: set[str] = set()
        self.memory = (ctypes.c_uint32 * 8)()
        self.pinned = 0
        self.stack = [7]
        self.lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu") or name.startswith("cudalink") or name in self.missing:
            raise AttributeError(name)
        return lambda *arguments: self.call(name, *arguments)

    def call(self, name: str, *arguments: Any) -> int:
        """Answer a call; the first argument may be where the answer goes."""
        plain = [one.value if isinstance(one, ctypes.c_uint64) else one for one in arguments]
        outs = [one._obj for one in plain if hasattr(one, "_obj")]
        with self.lock:
            self.calls.append((name, *(one for one in plain if not hasattr(one, "_obj"))))
            if code := self.answers.get(name, 0):
                return code
            first = next((one for one in plain if isinstance(one, int)), 0)
            self.pinned += name == "cuMemHostAlloc"
            written = {
                "cuCtxGetCurrent": self.current,
                "cuDeviceGetCount": self.devices,
                "cuDevicePrimaryCtxGetState": first in self.active,
                "cuDevicePrimaryCtxRetain": 100 + first,
                "cuCtxGetId": self.numbers.get(first, 0),
                "cuMemHostAlloc": ctypes.addressof(self.memory) + 4 * (self.pinned - 1),
                "cuStreamCreate": 1000 + len(self.calls),
            }
            if name in written:
                outs[-1].value = written[name]
            return 201 if name == "cuCtxGetId" and first not in self.numbers else 0

    def named(self, *names: str) -> list[tuple[Any, ...]]:
        return [one for one in self.calls if one[0] in names]


class Native:
    """The native part, which sees what a test says."""

    def __init__(self) -> None:
        self.frames: dict[int, tuple[str, ...]] = {}
        self.opened: bytes | None = None
        self.guards: list[Any] = []
        self.beats = 0

    def cudalinkStartGuard(self, words: Any, count: int, thread: int, silent: int) -> int:  # noqa: N802
        self.guards.append(([*words], count, thread, silent))
        return 5

    def cudalinkGuardBeat(self, guard: int) -> None:  # noqa: N802
        assert guard == 5
        self.beats += 1

    def cudalinkGuardOpened(self, guard: int) -> bytes | None:  # noqa: N802
        assert guard == 5
        return self.opened

    def cudalinkEndGuard(self, guard: int) -> None:  # noqa: N802
        self.guards.append(guard)


def loading(load: Callable[[str], Any]) -> SimpleNamespace:
    """A ctypes that loads libraries in another way."""
    return SimpleNamespace(**{**vars(ctypes), "CDLL": load})


def until(condition: Callable[[], object]) -> None:
    """Wait for what the watchdog does; nobody waits for it longer than a minute."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A driver and a native part, in the place of the real ones."""
    found = SimpleNamespace(driver=Driver(), native=Native())
    monkeypatch.setattr(gates, "_native", lambda: found.native)
    monkeypatch.setattr(gates, "ctypes", loading(lambda name: found.driver if name == "libcuda.so.1" else None))
    monkeypatch.setattr(gates, "_places", {})
    monkeypatch.setattr(gates, "thread_stack", lambda thread: found.native.frames.get(thread, ()))
    monkeypatch.setattr(gates, "run_delay", lambda _: 0.0)
    return found


def test_what_keeps_gates_out(machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """No driver, an absent one, one without the function, no device, a call that fails: each is said."""

    def said() -> str:
        with pytest.raises(NoGatesError) as caught, ClosedGates().closed():
            pass
        return str(caught.value)

    driver = machine.driver
    driver.missing = {"cuStreamWaitValue32_v2", "cuStreamWaitValue32"}
    assert said() == "a driver without cuStreamWaitValue32"
    driver.missing = set()
    driver.answers = {"cuInit": 100}
    assert said() == "cuInit answers 100"
    driver.answers = {}
    driver.devices = 0
    assert said() == "no device"
    driver.devices = 2
    driver.answers = {"cuStreamWaitValue32_v2": 801}
    assert said() == "cuStreamWaitValue32_v2 answers 801"
    assert driver.named("cuDevicePrimaryCtxRelease_v2") == [("cuDevicePrimaryCtxRelease_v2", 1)]
    assert [*driver.memory][:2] == [1, 1]  # what was closed is open again
    driver.cudalinkAbsentDriver = 1
    assert said() == "no CUDA driver: --cudalink-driver=absent hides it"

    def no_library(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(gates, "ctypes", loading(no_library))
    assert said() == "no CUDA driver: libcuda.so.1"
    monkeypatch.setattr(gates, "_native", lambda: None)
    assert said() == "no native library of pytest-cudalink for this platform"


def test_where_gates_stand(machine: SimpleNamespace) -> None:
    """In new streams, the legacy and the thread's stream of the current and each active context, and in the block's."""
    driver, native = machine.driver, machine.native
    with ClosedGates(streams=[55]).closed():
        closed = driver.named("cuStreamWaitValue32_v2")
        first, second = ctypes.addressof(driver.memory), ctypes.addressof(driver.memory) + 4
        streams = [(stream, word) for _, stream, word, *_ in closed]
        assert [word for _, word in streams] == [first] * 5 + [second] * 4
        assert [stream for stream, _ in streams if stream < 1000] == [1, 55, 2, 1, 2]
        assert {one[3:] for one in closed} == {(1, 0)}
        assert [*driver.memory][:3] == [0, 0, 0]
    assert [*driver.memory][:3] == [1, 1, 0]
    assert driver.named("cuStreamCreate") == [("cuStreamCreate", flags) for flags in (0, 1, 0, 1)]
    assert driver.named("cuMemHostAlloc") == [("cuMemHostAlloc", 4096, 3)] * 2
    assert driver.named("cuCtxPushCurrent_v2") == [("cuCtxPushCurrent_v2", one) for one in (7, 101, 7, 101)]
    assert len(driver.named("cuCtxPopCurrent_v2")) == 4
    assert driver.named("cuDevicePrimaryCtxRelease_v2") == [("cuDevicePrimaryCtxRelease_v2", 1)]
    assert len(driver.named("cuThreadExchangeStreamCaptureMode")) == 6
    assert native.guards == [([first, second], 2, threading.get_native_id(), 200), 5]
    before = len(driver.named("cuStreamCreate"))
    with ClosedGates().closed():
        assert len(driver.named("cuStreamCreate")) == before  # the same gates are used again
    driver.numbers[7] = 80  # another context has its handle
    with ClosedGates().closed():
        assert len(driver.named("cuStreamCreate")) == before + 2


def test_contexts_that_get_gates(machine: SimpleNamespace) -> None:
    """Without a current context, or with one that is destroyed, the first device's primary one gets them, too."""
    driver = machine.driver
    driver.current, driver.active = 0, set()
    with ClosedGates().closed():
        assert driver.named("cuDevicePrimaryCtxRetain") == [("cuDevicePrimaryCtxRetain", 0)]
    assert driver.named("cuDevicePrimaryCtxRelease_v2") == [("cuDevicePrimaryCtxRelease_v2", 0)]
    driver.current, driver.calls = 8, []  # no number: it is destroyed
    with ClosedGates().closed():
        assert {one[1] for one in driver.named("cuCtxPushCurrent_v2")} == {100}
    driver.missing, driver.current, driver.calls = {"cuCtxGetId", "cuStreamWaitValue32_v2"}, 8, []
    with ClosedGates().closed():  # a driver before CUDA 12.0
        assert {one[1] for one in driver.named("cuCtxPushCurrent_v2")} == {8}
        assert driver.named("cuStreamWaitValue32")


def test_a_captured_legacy_stream_gets_no_gate(machine: SimpleNamespace) -> None:
    """The attempt would end the capture."""
    driver = machine.driver
    driver.active, driver.answers = set(), {"cuStreamIsCapturing": 906}
    with ClosedGates().closed():
        assert 1 not in [one[1] for one in driver.named("cuStreamWaitValue32_v2")]
        assert 2 in [one[1] for one in driver.named("cuStreamWaitValue32_v2")]


# -- the watchdog


@contextmanager
def in_call(machine: SimpleNamespace, *frames: str) -> Iterator[None]:
    """The native frames of this thread during a call."""
    machine.native.frames[threading.get_native_id()] = frames
    yield
    machine.native.frames.clear()


def wait_for_gate(machine: SimpleNamespace, number: int = 1) -> None:
    """Return when the gate opens, as a call that waits does; nothing here moves meanwhile."""
    stand_still(lambda: machine.driver.memory[0] >= number)


def stand_still(condition: Callable[[], object]) -> None:
    """Stay in one line until something is true."""
    done = threading.Event()
    threading.Thread(target=lambda: (until(condition), done.set()), daemon=True).start()
    assert done.wait(60)


def test_a_call_that_waits_is_found(machine: SimpleNamespace) -> None:
    """Its name, the lines of Python and the frames from the driver on are kept; what comes later is not looked at."""
    frames = (*INNER, *DRIVER, *(f"libtorch.so+{at}" for at in range(20)))
    watch = ClosedGates()
    with watch.closed():
        with in_call(machine, *frames):
            wait_for_gate(machine)
        with in_call(machine, "libcuda.so.1+0x1 cuMemFreeHost"):
            time.sleep(0.2)
    (found,) = watch.found
    assert (found.call, found.native_stack) == ("cuMemFree_v2", frames[2:18])
    assert any("in test_a_call_that_waits_is_found" in line for line in found.python_stack[:-1])
    assert found.python_stack[-1].endswith("in wait")
    assert not watch.gave_up
    assert machine.native.beats


def test_an_allowed_call_may_wait(machine: SimpleNamespace) -> None:
    """The gates close again after it, and the next call that waits is found."""
    watch = ClosedGates(allowed={"cuMemFree_v2"})
    with watch.closed():
        with in_call(machine, *DRIVER):
            wait_for_gate(machine)
        until(lambda: machine.driver.named("cuStreamWaitValue32_v2")[-1][3] == 2)
        with in_call(machine, "libcuda.so.1+0x1 cuMemFreeHost"):
            wait_for_gate(machine, 2)
    assert [one.call for one in watch.found] == ["cuMemFreeHost"]


def test_a_call_that_is_slow_has_not_waited(machine: SimpleNamespace) -> None:
    """It does not come back when the gates open; they close again once it does."""
    watch = ClosedGates()
    with watch.closed():
        with in_call(machine, *DRIVER):
            stand_still(lambda: machine.driver.memory[0] and not watch.found)
        until(lambda: machine.driver.named("cuStreamWaitValue32_v2")[-1][3] == 2)
    assert watch.found == []


def test_a_thread_outside_the_driver_may_stand_still(machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """So may one that gets no processor, in the driver or not."""
    watch = ClosedGates()
    with watch.closed(), in_call(machine, "libc.so.6+0x1 sleep"):
        time.sleep(0.2)
    assert watch.found == []
    began = time.monotonic()
    monkeypatch.setattr(gates, "run_delay", lambda _: time.monotonic() - began)
    watch = ClosedGates()
    with watch.closed(), in_call(machine, *DRIVER):
        time.sleep(0.2)
        assert machine.driver.memory[0] == 0
    assert watch.found == []


def test_another_thread_that_the_block_waits_for(machine: SimpleNamespace) -> None:
    """Where the block waits for a thread of Python that is in the driver, the frames are that thread's."""
    ready, done = threading.Event(), threading.Event()

    def work() -> None:
        with in_call(machine, *DRIVER):
            ready.set()
            until(lambda: machine.driver.memory[0])
        done.set()

    watch = ClosedGates()
    thread = threading.Thread(target=work)
    thread.start()
    ready.wait()
    with watch.closed():
        assert done.wait(60)
    thread.join()
    assert [one.call for one in watch.found] == ["cuMemFree_v2"]


def test_gates_that_c_opened(machine: SimpleNamespace) -> None:
    """Where Python does not run, C opens them and keeps the frames."""
    machine.native.opened = "\n".join((*INNER, *DRIVER)).encode()
    watch = ClosedGates()
    with watch.closed():
        until(lambda: watch.found)
    assert [one.call for one in watch.found] == ["cuMemFree_v2"]


@pytest.mark.parametrize("longest", [0.05, 10.0])
def test_a_long_block(machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, longest: float) -> None:
    """After a time the gates open, which is noted."""
    monkeypatch.setattr(gates, "LONGEST", longest)
    watch = ClosedGates()
    with watch.closed():
        if longest < 1:
            until(lambda: machine.driver.memory[0])
        else:
            time.sleep(0.1)
            assert not machine.driver.memory[0]
    assert watch.gave_up == (longest < 1)
    assert longest == gates.LONGEST
