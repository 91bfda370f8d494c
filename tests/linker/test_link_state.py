"""One handle of a library, which several threads and the end of the process may use at once."""

import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from pytest_cudalink.linker import Linker, LinkerOptions, ObjectCode, _linker
from pytest_cudalink.linker.backends import OPENERS, opener
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
    assert not linker.is_closed
    state.finish.set()
    assert linking.result(PATIENCE).code == b"image"
    closing.result(PATIENCE)
    assert state.done[1:] == ["complete", "release"]
    assert (linker.handle, linker.is_closed, linker.get_error_log()) == (0, True, "the log")


def test_two_threads_link_once(state, linker, threads) -> None:
    """The second thread gets the same code."""
    first, second = (threads.submit(linker.link) for _ in range(2))
    state.finish.set()
    assert first.result(PATIENCE) is second.result(PATIENCE)
    assert state.done.count("complete") == 1


def test_adding_and_closing_in_two_threads(state, threads, monkeypatch) -> None:
    """A close waits for the input that another thread adds; later inputs never reach the library."""
    plain = SlowState._add

    def slow(self: SlowState, kind: str, code: bytes, name: bytes) -> None:
        self.begun.set()
        assert self.finish.wait(PATIENCE)
        plain(self, kind, code, name)

    monkeypatch.setattr(SlowState, "_add", slow)
    adding = threads.submit(state.add, "ptx", b"", "first")
    assert state.begun.wait(PATIENCE)
    closing = threads.submit(state.close)
    late = threads.submit(lambda: closing.result(PATIENCE) or state.add("ptx", b"", "late"))
    assert not closing.done()
    state.finish.set()
    adding.result(PATIENCE)
    with pytest.raises(RuntimeError, match="cannot add an input: the linker is closed"):
        late.result(PATIENCE)
    assert state.done == ["add first", "release"]


def test_adding_and_closing_a_contained_state(sample_code, threads) -> None:
    """Two threads that add to one handle of nvJitLink while a third destroys it: each input is added or refused.

    In this process nvJitLink itself dies of it, see docs/findings.
    """
    codes = [sample_code(f"13.0/{name}.ptx").code for name in ("main", "user")]  # nvJitLink refuses one added twice
    for _ in range(20):
        opened = opener("nvjitlink", contain=True)(["-arch=sm_90"])
        together = threading.Barrier(3)

        def add(code: bytes, opened: LinkState = opened, together: threading.Barrier = together) -> None:
            together.wait(PATIENCE)
            try:
                opened.add("ptx", code, "one")
            except RuntimeError as error:
                assert "the linker is closed" in str(error)

        adding = [threads.submit(add, code) for code in codes]
        together.wait(PATIENCE)
        opened.close()
        for future in adding:
            future.result(PATIENCE)
        assert opened.handle == 0


def test_logs_are_read_once_after_each_call(state) -> None:
    """A log that no call can have written to since is not read again."""
    state.add("ptx", b"", os.fsdecode(b"\xff.ptx"))
    assert state.done == ["add ?.ptx"]  # bytes that are not UTF-8 reach the library in printable form
    state.read_logs()
    state.error_log = "kept"
    state.read_logs()
    assert state.error_log == "kept"
    state.add("ptx", b"", "second")
    state.close()
    assert state.error_log == "the log"


def test_closed(state) -> None:
    """A closed handle is never passed to the library; garbage collection may close it wherever its own thread is."""
    with state.lock:
        state.close()
    assert state.handle == 0
    for use in (lambda: state.add("ptx", b"", "late"), lambda: state.complete("cubin")):
        with pytest.raises(RuntimeError, match="the linker is closed"):
            use()
    assert state.done == ["release"]


def test_the_end_of_the_process_closes_all(monkeypatch) -> None:
    """Also the linkers that come after one whose library fails; the failure is shown."""
    sound, broken, shown = SlowState(), SlowState(), []
    monkeypatch.setattr(broken, "_release", lambda: 1 / 0)
    monkeypatch.setattr(_linker, "_open_states", {1: sound, 2: broken})
    monkeypatch.setattr(sys, "excepthook", lambda kind, *_: shown.append(kind))
    _linker._close_all()
    assert sound.handle == 0
    assert shown == [ZeroDivisionError]


def test_a_linker_whose_finalizer_was_interrupted(state, sample_code, monkeypatch) -> None:
    """The next linker closes what was left of it, and forgets it."""
    opened, given = [SlowState(), state], {"options": LinkerOptions(arch="sm_90"), "backend": "nvjitlink"}
    monkeypatch.setitem(OPENERS, "nvjitlink", lambda _options: opened.pop())
    with monkeypatch.context() as patch:
        patch.setattr(Linker, "__del__", lambda _: None)
        Linker(sample_code("13.0/user.ptx"), **given)
    with Linker(sample_code("13.0/user.ptx"), **given):
        assert state.done[-1] == "release"
        assert id(state) not in _linker._open_states


def test_a_refused_linker_leaves_nothing_open(samples, sample_code, monkeypatch, state) -> None:
    """Neither one that no library saw nor one whose library refuses an input."""
    before = dict(_linker._open_states)
    with pytest.raises(ValueError, match="damaged"):
        Linker(ObjectCode.from_cubin(samples["13.0/main.cubin"][:100]))
    monkeypatch.setitem(OPENERS, "nvjitlink", lambda _options: state)
    monkeypatch.setattr(state, "_add", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Linker(sample_code("13.0/user.ptx"), options=LinkerOptions(arch="sm_90"), backend="nvjitlink")
    assert _linker._open_states == before
    assert state.done == ["release"]


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
