"""Closed gates: which call of a thread waits for unfinished work, on any driver, and without interposing on it.

A gate is `cuStreamWaitValue32` on pinned memory. While gates stand in streams of every kind, a call that waits for
unfinished work does not come back. A watchdog sees that the thread stands still, takes its stack and opens the gates: a
call that comes back at once has waited. A real driver and the emulated one both honour gates.
"""

import ctypes
import sys
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

_OURS: Final = Path(__file__).parent / "lib" / "libcudalink-gates.so"
_DRIVER: Final = "libcuda.so.1"
#: Libraries in which the driver waits, with those that take the frames.
_INNER: Final = ("libcudalink-gates.", "libc.", "libpthread.", "libgcc_s.", "ld-", "linux-vdso", "?", "[")
#: CUDA's handles of the default streams, its flags of streams and of pinned memory, and the mode in which a capture
#: of another thread does not mind.
_LEGACY, _PER_THREAD, _NON_BLOCKING, _PORTABLE, _RELAXED = 1, 2, 1, 3, 2
#: Seconds: between two looks; for which a thread that waits stands still; in which it goes on once the gates open.
_LOOK, _STILL, _RETURNS = 0.004, 0.05, 0.1
#: Seconds after which the gates open, because the block may ask in a loop for the end of work behind them.
LONGEST: Final = 10.0
#: Milliseconds after which C opens the gates, because Python does not run.
_SILENT: Final = 200
_STACK_SIZE: Final = 16384
#: Frames of a call that are kept; those of an interpreter have no end.
_FRAMES: Final = 16


class NoGatesError(RuntimeError):
    """The driver lets no gate stand in a stream; the message says why."""


class FoundWait(NamedTuple):
    """A call that waited."""

    call: str  # symbol of the driver function; empty if the frames do not show it
    python_stack: tuple[str, ...]  # lines of Python that led to the call, outermost first
    native_stack: tuple[str, ...]  # native frames of the waiting thread from the driver on, innermost first


@cache
def _native() -> Any:
    """Return the native part of this module; None where it was not built."""
    if sys.platform != "linux" or not _OURS.is_file():
        return None
    native = ctypes.CDLL(str(_OURS))
    native.cudalinkThreadStack.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)
    native.cudalinkThreadStack.restype = ctypes.c_size_t
    native.cudalinkStartGuard.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_uint)
    native.cudalinkStartGuard.restype = ctypes.c_void_p
    native.cudalinkGuardOpened.restype = ctypes.c_char_p
    for name in ("cudalinkGuardBeat", "cudalinkGuardOpened", "cudalinkEndGuard"):
        getattr(native, name).argtypes = (ctypes.c_void_p,)
    return native


def run_delay(thread: int) -> float:
    """Return the seconds for which a thread could have run and got no processor; 0 where the kernel does not say.

    `thread`: as `threading.get_native_id` returns it.
    """
    try:
        # proc(5): time on a processor, time on the run queue, and time slices
        return int(Path(f"/proc/self/task/{thread}/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def thread_stack(thread: int) -> tuple[str, ...]:
    """Return the native frames of a thread, innermost first; empty if it gives none.

    `thread`: as `threading.get_native_id` returns it.
    """
    text = ctypes.create_string_buffer(_STACK_SIZE)
    _native().cudalinkThreadStack(thread, text, _STACK_SIZE)
    return tuple(text.value.decode(errors="replace").splitlines())


def call_of(frames: Sequence[str]) -> str | None:
    """Return the driver function that may wait, by native frames: the outermost of the driver that has a name.

    None where the driver is not at work, where it has called another library, such as the compiler of PTX, or where it
    is asked whether work has ended: a loop that asks seems to stand still.
    """
    ours = [at for at, frame in enumerate(frames) if frame.startswith("libcuda.so")]
    if not ours or any(not frame.startswith(_INNER) for frame in frames[: ours[0]]):
        return None
    name = next((name for at in reversed(ours) if (name := frames[at].partition(" ")[2])), "")
    return None if name.startswith(("cuEventQuery", "cuStreamQuery")) else name


class _Place(NamedTuple):
    """The gates of one context: the word that opens them, and the streams that the gates may stand in."""

    word: int
    streams: tuple[int, ...]


#: By context. Nothing is freed before the process ends: to free pinned memory would wait for the work of the test.
_places: Final[dict[tuple[int, int], _Place]] = {}


class _Driver:
    """The loaded driver."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL(_DRIVER)
        except OSError as error:
            raise NoGatesError(f"no CUDA driver: {error}") from error
        if hasattr(self._library, "cudalinkAbsentDriver"):
            raise NoGatesError("no CUDA driver: --cudalink-driver=absent hides it")
        names = ("cuStreamWaitValue32_v2", "cuStreamWaitValue32")
        self._gate = next((name for name in names if hasattr(self._library, name)), "")
        if not self._gate:
            raise NoGatesError("a driver without cuStreamWaitValue32")
        self.must("cuInit", 0)

    def do(self, name: str, *arguments: Any) -> int:
        """Call the driver; numbers go as 64 bits, which the calling conventions of Linux allow for shorter ones."""
        return int(
            getattr(self._library, name)(*[ctypes.c_uint64(each) if type(each) is int else each for each in arguments])
        )

    def must(self, name: str, *arguments: Any) -> None:
        """Call the driver; an error says that no gate can stand."""
        if code := self.do(name, *arguments):
            raise NoGatesError(f"{name} answers {code}")

    def made(self, name: str, *arguments: Any) -> int:
        """Call a function that writes a handle, and return that."""
        there = ctypes.c_uint64()
        self.must(name, ctypes.byref(there), *arguments)
        return there.value

    def close(self, stream: int, word: int, number: int) -> None:
        """Close a gate in a stream until `number` is written to its word."""
        status = ctypes.c_int()
        # the legacy stream is of no use while a blocking stream captures, and the attempt would end the capture
        if stream != _LEGACY or not self.do("cuStreamIsCapturing", stream, ctypes.byref(status)):
            self.must(self._gate, stream, word, number, 0)

    @contextmanager
    def current(self, context: int) -> Iterator[None]:
        """Make a context current for a block."""
        self.must("cuCtxPushCurrent_v2", context)
        try:
            yield
        finally:
            self.do("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_uint64()))

    @contextmanager
    def minding_no_capture(self) -> Iterator[None]:
        """Let a capture of the program forbid nothing for a block."""
        mode = ctypes.c_int(_RELAXED)
        self.do("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        try:
            yield
        finally:
            self.do("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))

    def release(self, devices: Collection[int]) -> None:
        """Release the primary contexts that `contexts` has retained."""
        for device in devices:
            self.do("cuDevicePrimaryCtxRelease_v2", device)

    def contexts(self) -> tuple[list[int], list[int]]:
        """Return the current context and the active primary ones, and the devices whose primary context is retained.

        Where there is no context, that is the primary one of the first device.
        """
        current = self.made("cuCtxGetCurrent")
        contexts, retained = [current] if current and self.number(current) >= 0 else [], []
        count, flags, active = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
        self.must("cuDeviceGetCount", ctypes.byref(count))
        if not count.value:
            raise NoGatesError("no device")
        for device in range(count.value):
            self.do("cuDevicePrimaryCtxGetState", device, ctypes.byref(flags), ctypes.byref(active))
            if active.value or (device == 0 and not contexts):
                contexts.append(self.made("cuDevicePrimaryCtxRetain", device))
                retained.append(device)
        return list(dict.fromkeys(contexts)), retained

    def number(self, context: int) -> int:
        """Return the number of a context, which no other has, not even one of the same handle; -1 if it is destroyed.

        Drivers before CUDA 12.0 have no numbers: 0.
        """
        number = ctypes.c_uint64()
        if not hasattr(self._library, "cuCtxGetId"):
            return 0
        return -1 if self.do("cuCtxGetId", context, ctypes.byref(number)) else number.value

    def place(self, context: int) -> _Place:
        """Return the gates of the current context."""
        number = self.number(context)
        if (context, number) not in _places:
            with self.minding_no_capture():
                word = self.made("cuMemHostAlloc", 4096, _PORTABLE)
                streams = tuple(self.made("cuStreamCreate", flags) for flags in (0, _NON_BLOCKING))
            _places[context, number] = _Place(word, (*streams, _LEGACY))
        return _places[context, number]


class ClosedGates:
    """Closed gates around a block that one thread runs, and the watchdog that sees whether it waits.

    `streams`: those of the program in the current context that get a gate, too.
    `allowed`: symbols of driver functions that may wait. Once such a call is back, the gates close again.
    `found`: the call that waited; the gates stay open after it.
    `gave_up`: whether the block took so long that the gates were opened before its end.
    Raises NoGatesError if the driver lets no gate stand in a stream.
    """

    def __init__(self, streams: Collection[int] = (), allowed: Collection[str] = ()) -> None:
        self.found: list[FoundWait] = []
        self.gave_up = False
        if _native() is None:
            raise NoGatesError("no native library of pytest-cudalink for this platform")
        self._driver = _Driver()
        self._streams, self._allowed = streams, allowed
        self._places: dict[int, _Place] = {}
        #: Each gate waits for this number in its word.
        self._number = 0
        self._ended = threading.Event()
        self._thread, self._native_thread = threading.get_ident(), threading.get_native_id()

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Close the gates for a block of this thread."""
        native, driver, retained = _native(), self._driver, list[int]()
        try:
            contexts, retained = driver.contexts()
            for at, context in enumerate(contexts):
                with driver.current(context):
                    word, streams = driver.place(context)
                    # the default stream of this thread is another one in the watchdog's, which may close gates again
                    self._places[context] = _Place(word, (*streams, *(self._streams if at == 0 else ())))
                    ctypes.c_uint32.from_address(word).value = 0
            self._close(_PER_THREAD)
        except BaseException:
            self._open()
            driver.release(retained)
            raise
        words = (ctypes.c_void_p * len(self._places))(*(place.word for place in self._places.values()))
        self._guard = native.cudalinkStartGuard(words, len(words), self._native_thread, _SILENT)
        watchdog = threading.Thread(target=self._watch, name="cudalink-gates", daemon=True)
        watchdog.start()
        try:
            yield
        finally:
            self._ended.set()
            watchdog.join()
            self._open()
            if self._guard:
                native.cudalinkEndGuard(self._guard)
            driver.release(retained)

    def _close(self, *further: int) -> None:
        """Close a gate in streams of each kind of all contexts."""
        self._number += 1
        with self._driver.minding_no_capture():
            for context, place in self._places.items():
                with self._driver.current(context):
                    for stream in (*place.streams, *further):
                        self._driver.close(stream, place.word, self._number)

    def _open(self) -> None:
        for place in self._places.values():
            ctypes.c_uint32.from_address(place.word).value = self._number

    # -- the watchdog

    def _at(self) -> tuple[int, int]:
        """Return where the watched thread is, in a form that keeps nothing alive."""
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001
        return (id(frame), frame.f_lasti) if frame is not None else (0, 0)

    def _watch(self) -> None:
        """Look until the block ends, or until a call has waited."""
        native = _native()
        began = time.monotonic()
        before, since, delay = (0, 0), began, 0.0
        while not self._ended.wait(_LOOK):
            if self._guard:
                native.cudalinkGuardBeat(self._guard)
                if (opened := native.cudalinkGuardOpened(self._guard)) is not None:
                    # the thread gives Python's lock away at the end of its call, and is still in that line
                    self._note(tuple(opened.decode(errors="replace").splitlines()))
                    return
            if time.monotonic() - began > LONGEST:
                self.gave_up = True
                self._open()
                return
            now = self._at()
            if now == before and time.monotonic() - since < _STILL:
                continue
            delayed = run_delay(self._native_thread) - delay
            # a thread that has no processor stands still, too
            if now == before and delayed < _STILL / 2 and self._judge(now):
                return
            before, since, delay = self._at(), time.monotonic(), delay + delayed

    def _judge(self, before: tuple[int, int]) -> bool:
        """Open the gates if a thread that stands still is in a call of the driver; return whether that call waited."""
        frames = self._frames()
        if not frames or self._at() != before:
            return False
        allowed = call_of(frames) in self._allowed
        if not allowed:
            self._note(frames)
        self._open()
        end = time.monotonic() + _RETURNS
        while self._at() == before:
            if self._ended.wait(0.001):
                return True
            if self._guard:
                _native().cudalinkGuardBeat(self._guard)
            if time.monotonic() > end and not allowed:
                self.found.clear()  # the call takes long for another reason
                allowed = True
        if allowed:
            self._close()
        return not allowed

    def _frames(self) -> tuple[str, ...]:
        """Return the native frames of the watched thread if it is in a call of the driver, or else of one that is."""
        own = threading.get_native_id()
        others = [thread.native_id for thread in threading.enumerate()]
        for thread in dict.fromkeys((self._native_thread, *others)):
            if thread not in (None, own):
                frames = thread_stack(thread)
                if call_of(frames) is not None:
                    return frames
        return ()

    def _note(self, frames: tuple[str, ...]) -> None:
        """Note the call that native frames show, with the lines of Python that the watched thread runs."""
        call = call_of(frames)
        if call is None or call in self._allowed:
            return
        frame: FrameType | None = sys._current_frames().get(self._thread)  # noqa: SLF001
        lines = []
        while frame is not None:
            lines.append(f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}")
            frame = frame.f_back
        first = next(at for at, line in enumerate(frames) if line.startswith("libcuda.so"))
        self.found.append(FoundWait(call, tuple(reversed(lines)), frames[first : first + _FRAMES]))
