"""The control of the emulated driver that is loaded into this process: its events, faults and violations."""

import atexit
import ctypes
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import starmap
from typing import Any, Final, NamedTuple

from ..base.finding import RUNNERS, Violation
from ..base.tables import read_table
from ..compat.names import LIMIT_EVENT_SIZE, LIMIT_FAULTS
from ..versions import CudaVersion

_HOOK = ctypes.CFUNCTYPE(None, ctypes.c_char_p)

#: Functions of Python's C API that the driver needs to note which lines of Python called it, in the order of the C.
_API = (
    "PyGILState_GetThisThreadState",
    "PyGILState_Ensure",
    "PyGILState_Release",
    "PyErr_Fetch",
    "PyErr_Restore",
    "PyEval_GetFrame",
    "PyFrame_GetBack",
    "PyFrame_GetCode",
    "PyFrame_GetLineNumber",
    "PyObject_GetAttrString",
    "PyUnicode_AsUTF8",
    "Py_IncRef",
    "Py_DecRef",
    "PyGILState_Check",
    "PyImport_ImportModule",
    "PyObject_CallMethod",
)
_PYTHON = (ctypes.c_void_p * len(_API))(
    *(ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value for name in _API)
)

#: Blocks without waits of a task and of those that started it, innermost last; which of all such blocks are open.
_BLOCKS: ContextVar[tuple[int, ...]] = ContextVar("cudalink_blocks", default=())
_OPEN: Final[set[int]] = set()


def _runs_tasks() -> bool:
    """Whether this thread runs tasks in turn, by asyncio or trio."""
    asyncio, trio = sys.modules.get("asyncio"), sys.modules.get("trio")
    if asyncio is not None and asyncio._get_running_loop() is not None:  # noqa: SLF001 (the public one raises)
        return True
    return trio is not None and trio.lowlevel.in_trio_run()


def _block_of_task() -> int:
    """Return the number of the innermost open block of the task that this thread runs; 0 without one."""
    return next((number for number in reversed(_BLOCKS.get()) if number in _OPEN), 0)


#: Kept for as long as the process: C has its address.
_BLOCK_OF_TASK: Final = ctypes.CFUNCTYPE(ctypes.c_uint)(_block_of_task)


_INT, _UINT, _NUMBER, _SIZE = ctypes.c_int, ctypes.c_uint, ctypes.c_uint64, ctypes.c_size_t
_TEXT, _POINTER = ctypes.c_char_p, ctypes.c_void_p
#: Functions of the native library: the type of the result, and those of the arguments.
_PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "cudalinkEventCount": (_NUMBER,),
    "cudalinkLostEventCount": (_NUMBER, _POINTER),
    "cudalinkViolationCount": (_NUMBER,),
    "cudalinkStateCount": (_NUMBER,),
    "cudalinkCreator": (_SIZE, _NUMBER, _TEXT, _SIZE),
    "cudalinkInject": (_UINT, _TEXT, _UINT, _INT, _UINT),
    "cudalinkImageCount": (_NUMBER,),
    "cudalinkLinkCount": (_NUMBER,),
    "cudalinkRefusalCount": (_NUMBER,),
    "cudalinkUnsupported": (None, _TEXT, _TEXT),
    "cudalinkFaultMet": (_INT, _UINT, _INT),
    "cudalinkSweep": (_INT, _UINT, _INT, _INT),
    "cudalinkSweepEnd": (_UINT,),
    "cudalinkSweptCalls": (_SIZE, _TEXT, _SIZE),
    "cudalinkSweptStack": (_SIZE, _UINT, _TEXT, _SIZE),
    "cudalinkNoWaitOfTask": (None, _UINT, _POINTER),
    "cudalinkAlive": (_SIZE, _TEXT, _SIZE),
    "cudalinkState": (_SIZE, _TEXT, _SIZE),
    "cudalinkStartSchedule": (_INT, _NUMBER, _POINTER, _SIZE, _INT, _INT),
    "cudalinkScheduledCount": (_UINT,),
    "cudalinkScheduledWork": (_SIZE, _UINT, _POINTER, _TEXT, _SIZE),
    "cudalinkLeaveOutWaits": (_INT, _POINTER, _SIZE, _INT),
    "cudalinkUnpromisedCount": (_UINT,),
    "cudalinkUnpromisedWait": (_SIZE, _UINT, _POINTER, _TEXT, _SIZE),
    "cudalinkEventRead": (_INT, _NUMBER, _TEXT, _SIZE),
}

#: Bytes of a stack that the driver writes: 24 native frames of 128 bytes and 64 lines of 512.
_STACK_SIZE = 40_000

#: How a call of a sweep fails, in the order of the C: alone, with each later call of its function, with the device.
STAYS = ("alone", "function", "device")


def _rule_of(kind: str, rule: str, after: str) -> tuple[str, str, str]:
    """Return what a call did for the object, the rule in a sentence, and the fix, of a rule of lifetimes.

    `after`: the call that ended an object which was used afterwards; empty for another violation.
    """
    rules = read_table("rules.toml")["lifetimes"]
    if kind == "argument":  # NULL has one rule for all
        row = rules["NULL as argument"]
    elif not after:
        row = rules.get(rule, rules["memory of a link state"])
    else:
        row = rules.get(kind, rules["freed memory" if rule == "CUdeviceptr" else "destroyed handle"])
    words = {"rule": rule, "end": after}
    return row["verb"], row["advice"].format_map(words), row["fix"].format_map(words)


def _tells(filename: str) -> bool:
    """Whether a frame of this file helps to find the code that caused a violation."""
    return not filename.startswith("<frozen") and not any(part in filename for part in RUNNERS)


def _written_by(write: Callable[..., int], *arguments: Any) -> list[str]:
    """Return the lines that a function of the library writes by ``cl_write_stack``; none if it has no stack."""
    text = ctypes.create_string_buffer(_STACK_SIZE)
    write(*arguments, text, _STACK_SIZE)
    return text.value.decode(errors="replace").splitlines()


def _stacks(lines: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the lines of Python in those that ``cl_write_stack`` wrote, outermost first, and the native frames."""
    python = [line[1:] for line in lines if line.startswith("p") and _tells(line[1:].rpartition(":")[0])]
    return tuple(python[::-1]), tuple(line[1:] for line in lines if line.startswith("n"))


def _noted(note: Mapping[str, Any], member: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the lines of Python of a stack in a note, outermost first, and its native frames: it has either."""
    lines = list(map(str, note.get(member, ())))
    return ((), tuple(lines)) if note.get(f"{member} native") else (tuple(telling_frames(lines)[::-1]), ())


def _telling(lines: Sequence[str]) -> list[str]:
    """Return the lines of Python of a stack that the driver wrote, innermost first, or else its native frames."""
    python, native = _stacks(lines)
    return [*python[::-1]] or [*native]


def telling_frames(lines: Sequence[str]) -> list[str]:
    """Return the lines of a Python stack that help to find the code of a test."""
    return [line for line in lines if _tells(line.rpartition(":")[0])]


def _process_of(note: Mapping[str, Any]) -> dict[str, Any]:
    """The members of a violation that say where it happened."""
    test = str(note.get("test", ""))
    name, _, phase = test.rpartition(" ")
    return {
        "process": f"process {note.get('pid', '')} ({note['command']})" if "command" in note else "",
        "test": name if phase.startswith("(") else test,
    }


def _violation(note: Mapping[str, Any], head: str = "", **members: Any) -> Violation:
    """Return a violation with what its note says, behind a word, and other members."""
    what, fix = str(note.get("what", "")), str(note.get("fix", ""))
    said = {"what": what, "text": f"{head}{what}", "call": str(note.get("call", "")), "advice": fix, "fix": fix}
    number: dict[str, Any] = {"number": int(note.get("violation", 0)), "handle": 0}
    return Violation(**(number | said | _process_of(note) | members))


def _order_violation(note: Mapping[str, Any]) -> Violation:
    """Return a pair of accesses that nothing orders; the driver noted the call sites of both."""
    (first, first_native), (second, second_native) = (_noted(note, member) for member in ("made", "stack"))
    rule = str(note.get("option", ""))
    called = f"the first, {note.get('maker', '')}, was called from:"
    history = (called, *(f"  {line}" for line in first or first_native))
    return _violation(note, check="order", rule=rule, native_stack=second_native, python_stack=second, history=history)


def _stacks_of_threads(numbers: Collection[int]) -> Iterator[str]:
    """Lines on where each thread is, by its number in the kernel; those that Python knows."""
    frames = sys._current_frames()  # noqa: SLF001
    for thread in threading.enumerate():
        # Python may know the main thread of a forked process by the number of the one that forked it
        number = os.getpid() if thread is threading.main_thread() else thread.native_id
        if number in numbers and thread.ident in frames:
            stack = traceback.extract_stack(frames[thread.ident])
            telling = (frame for frame in stack if _tells(frame.filename) and frame.filename != threading.__file__)
            yield f"thread {number} ({thread.name}) waits in:"
            yield from (f"  {frame.filename}:{frame.lineno} in {frame.name}" for frame in telling)


def _wait_violation(note: Mapping[str, Any], python_stack: Sequence[str]) -> Violation:
    """Return a call that waits where a test forbids it."""
    from .no_wait import violation_of_wait  # most runs forbid no waits

    violation = violation_of_wait(
        str(note.get("call", "")),
        waits_for=str(note.get("option", "")),
        number=int(note.get("violation", 0)),
        python_stack=python_stack,
        native_stack=tuple(map(str, note.get("stack", ()))),
    )
    return violation._replace(**_process_of(note))


def violation_of(
    note: Mapping[str, Any], *, python_stack: Sequence[str] = (), creator: Sequence[str] = ()
) -> Violation:
    """Return the violation that a driver noted; of another note, process and test are right.

    `note`: the note of a process below this one, or the event of this one.
    `creator`: the stack of the cuLinkCreate that took the memory, if the note lacks that of the object's maker; for a
    deadlock lines on where each thread is.
    """

    def text(field: str) -> str:
        return str(note.get(field, ""))

    if text("object") == "order":
        return _order_violation(note)
    if text("object") == "deadlock":
        python, native = _noted(note, "stack")
        python = () if creator or native else tuple(python_stack or python)
        stacks = {"native_stack": native, "python_stack": python, "history": tuple(creator)}
        return _violation(note, "deadlock: ", check="deadlock", rule="deadlock", **stacks)
    if text("object") == "wait":
        return _wait_violation(note, python_stack)
    kind, number, rule, what = text("object"), int(note.get("number", 0)), text("option"), text("what")
    verb, advice, fix = _rule_of(kind, rule, text("after"))
    made, made_native = _noted(note, "made")
    creator = creator or made or made_native
    began = f"{kind} {number} was {verb} by {text('maker') or 'cuLinkCreate'}, called from:"
    noticed = f"noticed by {text('call')}; expected {text('expected')}, found {text('found')}"
    return _violation(
        note,
        check="lifetimes",
        handle=number if kind == "link state" else 0,
        rule=rule,
        text=f"{kind} {number}: {rule}: {what}, {noticed}",
        native_stack=tuple(map(str, note.get("stack", ()))),
        python_stack=tuple(python_stack),
        history=(began, *(f"  {line}" for line in creator)) if creator else (),
        advice=advice,
        fix=fix,
    )


class Injected(NamedTuple):
    """A fault that waits for its call."""

    number: int  # number of the fault in the order of injection, from 1; those of `CUDALINK_EMULATOR_FAULTS` come first
    function: str  # symbol of the driver function


class SweptCall(NamedTuple):
    """A call that a sweep counted."""

    function: str  # symbol of the driver function
    failed: bool  # whether it returned an error, by itself or because of the sweep
    # lines of Python that led to it, innermost first, or else native frames. Empty in a run in which another call
    # fails.
    stack: tuple[str, ...]
    caller: str = ""  # file name of the object that made it; empty where the stack is


class Alive(NamedTuple):
    """How much of one kind of object is alive."""

    number: int
    size: int  # bytes; 0 for objects that are not memory


class DriverState(NamedTuple):
    """What the calls of a program leave for later ones, besides objects."""

    stack: tuple[str, ...] = ()  # kinds of the contexts on the stack of the calling thread, outermost first
    threads: tuple[tuple[str, ...], ...] = ()  # the same for each other thread whose stack is not empty
    captures: int = 0  # captures of streams that are not over
    mode: int = 0  # of capture, of the calling thread
    #: How many captures were ever invalidated, the call that last did, and whether another mode of capture allows it.
    invalid: tuple[int, str, bool] = (0, "", False)


class ScheduledWork(NamedTuple):
    """A piece of work that was submitted to a stream under a schedule.

    Calls of the driver are counted from 1, since the schedule began, over all threads.
    """

    number: int  # from 1, in the order of submission
    # "copy", "fill", "host function", "callback", "memory operations", "record", "allocation", "free", or "end of a
    # graph", after which its resources may be released
    kind: str
    function: str  # symbol of the driver function that submitted it
    stream: int  # number of its stream, from 1, in the order of their first work; 0 for work of a whole context
    # for how many calls it stayed pending although it could have been done; None: until something waited for it, or for
    # 200 calls
    delay: int | None
    submitted: int  # number of the call that submitted it
    # number of the call in which the last work before it was done. From then on until its end its destination holds
    # poison, and its source must not change. 0: it was not reached.
    started: int
    ended: int  # number of the call in which it was done. 0: it was not.
    call: str  # symbol of that call's function; empty if it was not done
    python_stack: tuple[str, ...]  # lines of Python that led to its submission, outermost first
    native_stack: tuple[str, ...]  # native frames, innermost first

    @property
    def displaced(self) -> bool:
        """Whether it stayed pending although it could have been done."""
        return self.delay != 0


class _ScheduledWork(ctypes.Structure):
    """``ScheduledWork`` of schedule.h."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("number", "delay", "stream")),
        *((name, ctypes.c_uint64) for name in ("submitted", "started", "ended")),
        *((name, ctypes.c_char_p) for name in ("kind", "function", "call")),
    )


class UnpromisedWait(NamedTuple):
    """A call that waits although CUDA's documentation does not promise it."""

    number: int  # from 1, in the order of such calls
    # number of its row in `data/emulator/waits.toml`, from 1; 0 for a copy that reads pageable memory before it returns
    row: int
    function: str  # its symbol
    pending: bool  # whether anything was unfinished
    python_stack: tuple[str, ...]  # lines of Python, outermost first
    native_stack: tuple[str, ...]  # native frames, innermost first


class _UnpromisedWait(ctypes.Structure):
    """``UnpromisedWait`` of promises.h."""

    _fields_ = (("row", ctypes.c_uint32), ("pending", ctypes.c_uint32), ("function", ctypes.c_char_p))


class DriverControl:
    """The emulated driver of this process. Made by `attach`."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        for name, (result, *arguments) in _PROTOTYPES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        self._read = library.cudalinkEventRead
        self.event_count: Callable[[], int] = library.cudalinkEventCount  # number of events so far in this process
        self._lock = threading.Lock()
        #: Numbers of the faults that were injected here; 0 for one that was refused.
        self.injected: list[int] = []
        self._violations: list[Violation] = []
        #: Return something else after each call, and while there are violations that were not consumed.
        self.signs = (self.event_count, library.cudalinkViolationCount, self._violations.__len__)
        self._counted_before = self._count
        self._noted = self._watchers = 0
        self._hook: Any = None
        self._ends = False  # whether `_end` is called when Python ends

    @property
    def version(self) -> CudaVersion:
        """The CUDA version that cuDriverGetVersion answers."""
        return CudaVersion.from_driver(self._library.cudalinkEmulatorVersion())

    @property
    def state_count(self) -> int:
        """Number of link states created so far in this process, which is the number of the newest one."""
        return int(self._library.cudalinkStateCount())

    @property
    def live_states(self) -> int:
        """Number of link states that were created and not destroyed."""
        return int(self._library.cudalinkLiveStates())

    @property
    def signal_functions(self) -> tuple[Any, Any, Any]:
        """The C functions for a signal handler: they count and read events, and know addresses of device memory."""
        return self._library.cudalinkEventCount, self._read, self._library.cudalinkIsDeviceAddress

    def events(self, start: int = 0) -> list[dict[str, Any]]:
        """Return the events from number `start` on, oldest first; the last 16,384 are kept.

        Each describes one call: ``n``, ``pid``, ``thread``, ``call``, ``result``, and the arguments that matter.
        """
        text = ctypes.create_string_buffer(LIMIT_EVENT_SIZE)
        return [
            json.loads(text.value)
            for number in range(start, self.event_count())
            if self._read(number, text, LIMIT_EVENT_SIZE) >= 0
        ]

    @property
    def event_file_error(self) -> str:
        """Why events of this process are missing in the event file, by the first of them; empty if none is."""
        error = ctypes.c_int()
        if not self._library.cudalinkLostEventCount(ctypes.byref(error)):
            return ""
        return os.strerror(error.value) if error.value else "an event was cut"

    @property
    def unlinked_images(self) -> int:
        """Number of different finished images that were loaded in this process, less those that its cuLink* made.

        Finished code is a cubin, also one in a fatbin; PTX is compiled by the driver. Each link is taken to have made
        one of the images, so that the number is never too high; it is negative where images were linked and not loaded.
        """
        return int(self._library.cudalinkImageCount()) - int(self._library.cudalinkLinkCount())

    @property
    def refusal_count(self) -> int:
        """Number of calls in this process that the driver does not emulate, or that refused an image."""
        return int(self._library.cudalinkRefusalCount())

    def refusals(self, start: int) -> list[dict[str, Any]]:
        """Return the events of these calls, from number `start` on, oldest first.

        A call that is not emulated has ``unsupported``. One that refused an image has ``image``, the words of a line
        for the image and each that lies in it, and ``for``, the architecture of the device or link. One in which the
        linker's process failed has ``linker failed``.
        """
        members = {"unsupported", "image", "linker failed"}
        return [event for event in self.events(start) if not members.isdisjoint(event)]

    def refuse(self, function: str, note: str) -> None:
        """Count a function that is answered in Python, such as one of the CUDA runtime, as refused."""
        self._library.cudalinkUnsupported(function.encode(), note.encode())

    def inject(self, function: str, code: int | str = 0, *, nth: int = 1, delay: float = 0.0) -> Injected:
        """Make a coming call of a driver function fail, or wait.

        `function`: the name in cuda.h, for which programs call the newest form that the driver has, or a symbol of an
        older form with its number, such as ``"cuCtxCreate_v2"``.
        `code`: CUresult to answer, by number or name; 0 lets the call through, after the delay.
        `nth`: number of the call, counted from now: 1 is the next call, 0 is every call.
        `delay`: seconds to wait first.
        Returns what `remove_fault` takes.
        Raises ValueError if the driver exports no such function, or a number is out of range.
        Raises RuntimeError if 64 faults are injected already.
        """
        from .faults import Fault, code_of, symbol_of

        fault = Fault(symbol_of(function, self.version), code_of(code), nth, delay)
        arguments = (fault.function.encode(), nth, fault.code, fault.milliseconds)
        with self._lock:
            # one call in C: an exception that comes as a call returns loses what it returned
            self.injected.extend(starmap(self._library.cudalinkInject, (arguments,)))
            number = self.injected[-1]
        if not number:
            raise RuntimeError(f"there are {LIMIT_FAULTS} injected faults already; clear them first")
        return Injected(number, fault.function)

    def was_triggered(self, number: int) -> bool:
        """Whether the fault with this number was triggered in this process; True for one that is used up."""
        return bool(self._library.cudalinkFaultMet(number, 0))

    def remove_fault(self, injected: Injected) -> bool:
        """Remove one fault if it is still waiting, and return whether it was triggered in this process."""
        return not injected.number or bool(self._library.cudalinkFaultMet(injected.number, 1))

    @property
    def lost(self) -> int:
        """The code that everything answers because the device is lost; 0 if it is not."""
        return int(self._library.cudalinkDeviceLost())

    def lose_device(self, code: int | str = 46) -> int:
        """Let every function that needs the device answer `code`, by default CUDA_ERROR_DEVICE_UNAVAILABLE.

        `code`: CUresult to answer, by number or name; 0 brings the device back.
        Returns the code that was set before; 0 if the device was not lost.
        Raises ValueError if a driver never answers with `code`.
        """
        from .faults import code_of

        return int(self._library.cudalinkLoseDevice(code_of(code)))

    def end_error(self) -> None:
        """End an error that stays, which no call of a real driver does: contexts and memory are what they were."""
        self._library.cudalinkEndError()

    def clear(self) -> None:
        """Remove every fault, those of the run too, bring a lost device back, and end a sticky error."""
        self._library.cudalinkClearFaults()

    def keep_driver(self) -> None:
        """Go on, in a forked process, with the driver as it was; CUDA's own would answer "not initialized".

        The process that forked must have had a single thread, and no work that waits.
        """
        self._library.cudalinkKeepDriver()

    def start_sweep(self, number: int = 0, code: int | str = 0, stays: str = "alone") -> None:
        """Count the calls of this process from now on, and make one of them fail.

        `number`: that of the call, from 1; 0 lets all of them pass, and notes who made each.
        `code`: CUresult to answer, by number or name; for a call of another library (see `sweep_of_others`) the number
        of its result.
        `stays`: one of `STAYS`.
        Raises ValueError if a driver never answers with `code`.
        Raises MemoryError if there is no memory for the list of calls.
        """
        from .faults import code_of, nvrtc_errors

        answer = code if isinstance(code, int) and code in nvrtc_errors() else code_of(code)
        self._note_lines()
        if not self._library.cudalinkSweep(number, answer, STAYS.index(stays)):
            raise MemoryError("no memory for the list of calls of a sweep")

    @property
    def sweep_of_others(self) -> Any:
        """The C function that another library has to ask before each of its calls, so that a sweep counts them too."""
        return self._library.cudalinkSweepOther

    def end_sweep(self) -> int:
        """Count and fail no more calls, and bring a device back that the sweep has lost; return how many there were."""
        count = int(self._library.cudalinkSweepEnd())
        if self._hook is None:
            self._library.cudalinkSetPython(None)
        return count

    def swept_calls(self, *, stacks: bool = True) -> list[SweptCall]:
        """Return the calls that a sweep counted, in their order; the first 16,384 are kept.

        `stacks`: whether to read the stacks, of which a run in which a call fails has one: see `swept_stack`.
        """
        calls: list[SweptCall] = []
        for number, line in enumerate(self._text(self._library.cudalinkSweptCalls).splitlines(), 1):
            lines = _written_by(self._library.cudalinkSweptStack, number) if stacks else []
            objects = [line[1:].partition("+")[0] for line in lines if line.startswith("n")]
            caller = next((name for name in objects if not name.startswith("libcuda.so")), "")
            calls.append(SweptCall(line[1:], line[0] == "!", tuple(_telling(lines)), caller))
        return calls

    def swept_stack(self, number: int) -> tuple[str, ...]:
        """Return the lines that led to the call that a sweep has let fail, innermost first; empty for another call."""
        return tuple(_telling(_written_by(self._library.cudalinkSweptStack, number)))

    @staticmethod
    def _text(write: Callable[[ctypes.Array[ctypes.c_char], int], int]) -> str:
        """Return what a function of the library writes, as often as its text does not fit."""
        text = ctypes.create_string_buffer(4096)
        while (size := write(text, len(text))) > len(text):
            text = ctypes.create_string_buffer(size)
        return text.value.decode()

    def alive(self) -> dict[str, Alive]:
        """Return what is alive in the driver, by kind; a kind of which nothing is alive is not there."""
        rows = (line.split(":") for line in self._text(self._library.cudalinkAlive).splitlines())
        return {kind: Alive(int(number), int(size)) for kind, number, size in rows}

    def state(self) -> DriverState:
        """Return what later calls depend on, without a call of the driver."""
        rows = [line.split("\t") for line in self._text(self._library.cudalinkState).splitlines()]
        (captures, mode), *_ = [map(int, values) for kind, *values in rows if kind == "captures"]
        (own, *_) = [tuple(names) for kind, *names in rows if kind == "stack"]
        (number, call, by_mode) = next(values for kind, *values in rows if kind == "invalid")
        threads = tuple(tuple(names) for kind, *names in rows if kind == "thread")
        return DriverState(own, threads, captures, mode, (int(number), call, by_mode == "1"))

    def start_schedule(self, seed: int, displaced: Sequence[int] | None = None, *, stacks: bool = True) -> None:
        """Do queued work early, late or in between from now on, in any order that CUDA allows.

        The same program has the same schedule for the same seed. A schedule that runs already ends.

        `seed`: from 0 to 2**64 - 1.
        `displaced`: numbers of the work that may stay pending; all other work is done as soon as it may be. Without it,
        all may.
        `stacks`: whether the stack of each submission is noted, which costs more than the submission.
        Raises ValueError if `seed` or a number is out of range.
        """
        if not 0 <= seed < 2**64:
            raise ValueError(f"seed = {seed}; expected 0 to 2**64 - 1")
        numbers = sorted(set(displaced or ()))
        if numbers and not (numbers[0] > 0 and numbers[-1] < 2**32):
            raise ValueError(f"displaced = {numbers}; expected numbers from 1 to 2**32 - 1")
        self._note_lines()
        array = (ctypes.c_uint32 * len(numbers))(*numbers)
        if self._library.cudalinkStartSchedule(seed, array, len(numbers), displaced is None, stacks):
            raise MemoryError

    def end_schedule(self) -> None:
        """Do all pending work that no gate holds up, and do work as soon as it may be done again."""
        self._library.cudalinkEndSchedule()
        if self._hook is None:
            self._library.cudalinkSetPython(None)  # it must not be asked for lines when it ends

    def scheduled_work(self) -> list[ScheduledWork]:
        """Return the work that was submitted under the last schedule, in that order; the schedule may still run."""
        return [self._scheduled(number) for number in range(1, self._library.cudalinkScheduledCount() + 1)]

    def _scheduled(self, number: int) -> ScheduledWork:
        facts = _ScheduledWork()
        python, native = _stacks(_written_by(self._library.cudalinkScheduledWork, number, ctypes.byref(facts)))
        values: dict[str, Any] = {name: getattr(facts, name) for name, *_ in _ScheduledWork._fields_}
        values |= {name: (values[name] or b"").decode() for name in ("kind", "function", "call")}
        values["delay"] = None if facts.delay == 2**32 - 1 else facts.delay
        return ScheduledWork(**values, python_stack=python, native_stack=native)

    def leave_out_waits(self, numbers: Sequence[int] | None = None) -> None:
        """Let calls not wait from now on where CUDA's documentation promises no wait, until `keep_waits`.

        That shows under a schedule alone, for which call this before `start_schedule`.

        `numbers`: the calls that do not wait, by `UnpromisedWait.number`. Without it, none of them does.
        """
        array = (ctypes.c_uint32 * len(numbers or ()))(*(numbers or ()))
        if self._library.cudalinkLeaveOutWaits(array, len(array), numbers is None):
            raise MemoryError

    def keep_waits(self) -> None:
        """Let calls wait again as on the recorded GPUs."""
        self._library.cudalinkKeepWaits()

    def unpromised_waits(self) -> list[UnpromisedWait]:
        """Return the calls since `leave_out_waits` that wait although CUDA's documentation does not promise it."""
        return [self._unpromised(number) for number in range(1, self._library.cudalinkUnpromisedCount() + 1)]

    def _unpromised(self, number: int) -> UnpromisedWait:
        facts = _UnpromisedWait()
        stacks = _stacks(_written_by(self._library.cudalinkUnpromisedWait, number, ctypes.byref(facts)))
        return UnpromisedWait(number, facts.row, facts.function.decode(), bool(facts.pending), *stacks)

    def start_watching(self) -> None:
        """Collect violations, each with the Python stack of the call that caused it, until `stop_watching`.

        A run inside a run starts and stops, too: the last stop counts.
        """
        self._watchers += 1
        if self._hook is None:
            self._counted_before = self._count - self._noted
            self._note_lines()
            self._hook = _HOOK(self._notice)
            self._library.cudalinkSetViolationHook(self._hook)

    def _note_lines(self) -> None:
        """Let the driver note lines of Python, until Python ends at the latest: it is called even after that."""
        if not self._ends:
            self._ends = True
            atexit.register(self._end)
        self._library.cudalinkSetPython(_PYTHON)

    def _end(self) -> None:
        self._library.cudalinkSetViolationHook(None)
        self._library.cudalinkSetPython(None)

    def stop_watching(self) -> None:
        """Stop collecting violations; the driver must not call into an interpreter that ends."""
        self._watchers = max(0, self._watchers - 1)
        if self._hook is not None and not self._watchers:
            self._end()
            self._hook = None

    def find_messenger(self) -> None:
        """Name deadlocks at once although a thread that now reads, if there is one, may go on.

        In a worker of pytest-xdist that is the thread which hands on messages of the controller.
        """
        self._library.cudalinkFindMessenger()

    def check_order(self, *, on: bool) -> None:
        """Compare the accesses of streams and the host from now on, or no longer; what was done so far is forgotten.

        A pair that nothing orders is a violation of the check ``"order"``, whether it ran in a bad order or not.
        """
        self._library.cudalinkCheckOrder(on)

    @contextmanager
    def no_wait(self, thread: int, allowed: Collection[str] = ()) -> Iterator[None]:
        """Let each call of a thread that waits for unfinished work be a violation of the check ``"wait"`` in a block.

        A call counts whether or not any work is pending, by ``data/emulator/waits.toml``.

        A block that begins in a task of asyncio or trio is of that task, and of those that it starts.

        `thread`: as `threading.get_native_id` returns it; 0 for all.
        `allowed`: symbols of functions that may wait.
        Raises MemoryError if the driver has no memory for the block.
        """
        names = (ctypes.c_char_p * len(allowed))(*(name.encode() for name in allowed))
        number = self._library.cudalinkNoWait(ctypes.c_int64(thread), names, ctypes.c_size_t(len(names)))
        if not number:
            raise MemoryError("no memory for a block in which no call may wait")
        if _runs_tasks():
            _BLOCKS.set((*(block for block in _BLOCKS.get() if block in _OPEN), number))
            _OPEN.add(number)
            self._library.cudalinkNoWaitOfTask(number, _BLOCK_OF_TASK)
        try:
            yield
        finally:
            self._library.cudalinkEndNoWait(number)
            _OPEN.discard(number)

    def own_notes(self, path: str, above: str) -> None:
        """Let forked processes leave notes in a file; this one's violations go to the collection, if there is one.

        `above`: the file of the process above this one, for what happens after `end_notes`; empty if there is none.
        """
        self._library.cudalinkOwnNotes(os.fsencode(path), os.fsencode(above))
        if self._hook is not None:
            self._library.cudalinkSetViolationHook(self._hook)  # a forked process is not watched unless it says so

    def end_notes(self, *, quiet: bool, fails: bool) -> None:
        """Let the driver report violations from now on, because nothing in Python will.

        `quiet`: whether they go to the process above, if there is one, and otherwise to stderr.
        `fails`: whether those on stderr change the exit code of this process from 0 to 1.
        """
        if not self._watchers:
            self._library.cudalinkEndNotes(quiet, fails)

    def fail_at_exit(self) -> None:
        """Change the exit code of this process from 0 to 1."""
        self._library.cudalinkFailAtExit()

    @property
    def violations(self) -> tuple[Violation, ...]:
        """The violations collected since `start_watching`, without those taken by `consume`."""
        if not self._violations:
            return ()  # each check asks in each phase
        with self._lock:
            return tuple(self._violations)

    @property
    def _count(self) -> int:
        return int(self._library.cudalinkViolationCount())

    @property
    def lost_violations(self) -> int:
        """Number of violations that the driver counted since `start_watching` and that could not be noted."""
        with self._lock:
            return self._count - self._counted_before - self._noted

    def consume(self, violations: tuple[Violation, ...]) -> None:
        """Remove violations from the list, because they were expected or reported."""
        with self._lock:
            self._violations[:] = [violation for violation in self._violations if violation not in violations]

    def _creator(self, state: int) -> list[str]:
        """Lines of Python that led to the cuLinkCreate of a state, or else native frames.

        Empty if it was called before the run began, or if more than 64 states were destroyed since this one was.
        """
        python, native = _stacks(_written_by(self._library.cudalinkCreator, state))
        return [*python] or [*native]

    def _notice(self, event: bytes) -> None:
        facts = json.loads(event)
        frames = traceback.extract_stack(sys._getframe(1)) if sys._getframe().f_back else []  # noqa: SLF001
        stack = [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames if _tells(frame.filename)]
        if facts["object"] == "deadlock":
            creator = list(_stacks_of_threads(facts["threads"]))
        else:
            creator = [] if "made" in facts else self._creator(facts["number"])
        noticed = violation_of(facts, python_stack=stack, creator=creator)
        with self._lock:
            self._violations.append(noticed)
            self._noted += 1


def attach(library: ctypes.CDLL) -> DriverControl | None:
    """Return the control of a driver library; None if it is a real driver."""
    return DriverControl(library) if hasattr(library, "cudalinkEmulatorVersion") else None
