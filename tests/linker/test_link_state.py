"""One handle of a library, which several threads and the end of the process may use at once."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from pytest_cudalink.linker import Linker, LinkerOptions
from pytest_cudalink.linker.backends import OPENERS
from pytest_cudalink.linker.backends.state import LinkState

PATIENCE = 60.0  # seconds; only a failing test waits that long


class SlowState(LinkState):
    """A library whose link takes until `finish` is set; it records every call."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []
        self.begun, self.finish = threading.Event(), threading.Event()
        self._handle = 1

    @property
    def handle(self) -> int:
        return self._handle

    def _add(self, kind: str, code: bytes, name: bytes) -> None:
        self.done.append(f"add {name.decode()}")

    def _complete(self, target: str) -> bytes:
        self.begun.set()
        assert self.finish.wait(PATIENCE)
        self.done.append("complete")
        return b"image"

    def _read_logs(self) -> None:
        self.error_log = "the log"

    def _release(self) -> None:
        self._handle = 0
        self.done.append("release")


@pytest.fixture
def state() -> SlowState:
    return SlowState()


@pytest.fixture
def linker(state, monkeypatch, sample_code) -> Linker:
    """A linker on that library."""
    monkeypatch.setitem(OPENERS, "nvjitlink", lambda _options: state)
    return Linker(sample_code("13.0/user.ptx"), options=LinkerOptions(arch="sm_90"), backend="nvjitlink")


@pytest.fixture
def threads():
    with ThreadPoolExecutor() as pool:
        yield pool


def test_close_waits_for_the_link(state, linker, threads) -> None:
    """Another thread's close comes after the link, whose result is whole; the logs stay."""
    linking = threads.submit(linker.link)
    assert state.begun.wait(PATIENCE)
    closing = threads.submit(linker.close)
    assert state.done == ["add 13.0/user.ptx"]
    state.finish.set()
    assert linking.result(PATIENCE).code == b"image"
    closing.result(PATIENCE)
    assert state.done[1:] == ["complete", "release"]
    assert (linker.handle, linker.get_error_log()) == (0, "the log")


def test_two_threads_link_once(state, linker, threads) -> None:
    """The second thread gets the same code."""
    first, second = (threads.submit(linker.link) for _ in range(2))
    state.finish.set()
    assert first.result(PATIENCE) is second.result(PATIENCE)
    assert state.done.count("complete") == 1


def test_closing_again_inside_a_call(state) -> None:
    """Garbage collection may close a linker wherever its own thread is."""
    with state.lock:
        state.close()
    assert state.handle == 0


@pytest.mark.parametrize("use", [lambda state: state.add("ptx", b"", "late"), lambda state: state.complete("cubin")])
def test_closed(state, use) -> None:
    """A closed handle is never passed to the library."""
    state.close()
    with pytest.raises(RuntimeError, match="the linker is closed"):
        use(state)
    assert state.done == ["release"]


def test_names_that_are_not_utf8(state) -> None:
    """A file name with bytes that are not UTF-8 reaches the library in printable form."""
    state.add("ptx", b"", os.fsdecode(b"\xff.ptx"))
    assert state.done == ["add ?.ptx"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_does_not_wait(state, threads) -> None:
    """The thread at work does not exist in the child, where the lock would stay held forever."""
    linking = threads.submit(state.complete, "cubin")
    assert state.begun.wait(PATIENCE)
    child = os.fork()
    if not child:
        signal.alarm(round(PATIENCE))
        state.close()
        os._exit(7 if state.handle else 8)
    state.finish.set()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert linking.result(PATIENCE) == b"image"
