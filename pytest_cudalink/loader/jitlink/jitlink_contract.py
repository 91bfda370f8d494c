"""nvJitLink's contract: violations that `native/jitlink_contract.c` notices, with the Python code that made them.

The stand-ins of `jitlink_calls` check every call of a handle. They never take a lock of Python: the thread that has it
may wait for the one that links. What the main thread did is reported to Python through a pending call, which runs as
soon as that thread is back from C, with the stack of the caller.
"""

import os
import sys
import threading
from collections.abc import Callable
from itertools import islice
from traceback import walk_stack
from types import CodeType, FrameType
from typing import Any, Final

from ...base.finding import RUNNERS, Violation
from ...base.tables import read_table
from . import jitlink_calls

#: The functions, in the order of `JitLinkFunction` in native/jitlink_contract.h.
_FUNCTIONS: Final = tuple(
    f"nvJitLink{name}"
    for name in (
        *("Create", "Destroy", "AddData", "AddFile", "Complete"),
        *("GetLinkedCubinSize", "GetLinkedCubin", "GetLinkedPtxSize", "GetLinkedPtx", "GetLinkedLTOIRSize"),
        *("GetLinkedLTOIR", "GetErrorLogSize", "GetErrorLog", "GetInfoLogSize", "GetInfoLog"),
    )
)
#: What was seen of a broken rule, by its name, for `str.format` with the violation.
_FACTS: Final = {
    "grew": "{0.asked} bytes, where {0.actual} are needed now",
    "name": "{name!r}",
    "failed": "{other} returned an error",
    "busy": "another one is in {other}",
    "unknown": "{0.handle:#x}",
}
_CREATED, _DESTROYED, _VIOLATION = range(3)
_PLACE_SIZE: Final = 4352
_STACKS: Final = 4096  # that are kept
_DEPTH: Final = 200
_LIBRARIES: Final = "/site-packages/"
_USER, _PACKAGE, _SILENT, _END, _NO_KIND = range(5)
_kinds: Final[dict[str, int]] = {}
_STANDARD: Final = os.path.dirname(os.__file__) + os.sep  # noqa: PTH120 (compared with names of files)


def rules() -> dict[str, tuple[str, str]]:
    """Return what a call did wrong and what is right, by the name of the rule, in the order of `ContractRule`."""
    return {name: (what, expected) for name, (what, expected) in read_table("rules.toml")["jitlink-contract"].items()}


def _kind(filename: str) -> int:
    """Return whether frames of a file help to find the code that made a call: `_USER`, `_PACKAGE`, `_SILENT` or `_END`.

    The main thread may be in a function of the standard library already when it hears of its call.
    """
    if "/_pytest/" in filename:
        return _END  # the test, or what it called, stands above
    if filename.startswith("<frozen") or any(part in filename for part in RUNNERS):
        return _SILENT
    if _LIBRARIES in filename:
        return _PACKAGE
    return _SILENT if filename.startswith(_STANDARD) else _USER


def _frames(frame: FrameType, wanted: int) -> list[tuple[CodeType, int]]:
    """Return code and line of the telling frames, innermost first; the last one is the first of the kind `wanted`."""
    frames: list[tuple[CodeType, int]] = []
    for above, line in islice(walk_stack(frame), _DEPTH):
        code = above.f_code
        kind = _kinds.get(code.co_filename)
        if kind is None:
            kind = _kinds[code.co_filename] = _kind(code.co_filename)
        if kind == _END:
            break
        if kind != _SILENT:
            frames.append((code, line))
            if kind == wanted:
                break
    return frames


def _words(code: CodeType, line: int) -> str:
    return f"{code.co_filename}:{line} in {code.co_name}"


class JitLinkContract:
    """The checks of this process. Made by `start`."""

    def __init__(self, library: Any) -> None:
        import ctypes

        class ContractViolation(ctypes.Structure):  # ContractViolation in native/jitlink_contract.h
            _fields_ = (
                *((name, ctypes.c_uint64) for name in ("number", "handle_number", "handle", "created_by")),
                *((name, ctypes.c_uint64) for name in ("destroyed_by", "called_by", "thread", "asked", "actual")),
                *((name, ctypes.c_int32) for name in ("rule", "function", "other", "prevented")),
                ("name", ctypes.c_char * 64),
            )

        self._library, self._found = library, ContractViolation()
        self._text = ctypes.create_string_buffer(_PLACE_SIZE)
        self._numbers = (ctypes.c_uint64 * 16)()
        self._modes = [0]  # of each run in this process that is not over
        self._stacks: dict[int, list[tuple[CodeType, int]]] = {}
        # kept for the life of the process: a pending call may still have its address
        self._teller = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self._hear)
        library.cudalinkContract.argtypes = (ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p)
        library.cudalinkContract.restype = None
        library.cudalinkTakeViolation.argtypes = (ctypes.c_void_p,)
        library.cudalinkContractHandles.restype = ctypes.c_uint64
        library.cudalinkContractViolations.restype = ctypes.c_uint64
        library.cudalinkContractAlive.argtypes = (ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint)
        library.cudalinkPlace.argtypes = (ctypes.c_uint64, ctypes.c_char_p, ctypes.c_size_t)
        library.cudalinkPlace.restype = None
        self._functions = (
            ctypes.cast(ctypes.pythonapi.Py_AddPendingCall, ctypes.c_void_p),
            ctypes.cast(self._teller, ctypes.c_void_p),
        )
        self._address = ctypes.addressof(self._found)
        self.violation_count: Callable[[], int] = library.cudalinkContractViolations  # so far in this process
        self._taken = self.violation_count()

    @property
    def handle_count(self) -> int:
        """Number of handles created so far in this process, which is the number of the newest one."""
        return int(self._library.cudalinkContractHandles())

    def check(self, *, strict: bool = False) -> None:
        """Check every call from now on, until `stop`.

        With `strict`, no new handle gets the address of a destroyed one, so that an old copy is always recognized.
        """
        self._modes.append(2 if strict else 1)
        self._set()

    def stop(self) -> None:
        """Check as before the last `check`; where that was not at all, forget what is known of the handles."""
        self._modes.pop()
        self._set()

    def _set(self) -> None:
        self._library.cudalinkContract(self._modes[-1], threading.main_thread().ident, *self._functions)

    def alive(self, after: int) -> list[str]:
        """Return the handles newer than number `after` that are not destroyed, each with where it was created."""
        count = self._library.cudalinkContractAlive(after, self._numbers, len(self._numbers))
        numbers = sorted(self._numbers[:count])
        return [f"nvJitLink handle {number}{self._where(_CREATED, number, 0, ' created')}" for number in numbers]

    def take(self) -> tuple[Violation, ...]:
        """Return the violations since the last call."""
        if self.violation_count() == self._taken:
            return ()
        violations = []
        while self._library.cudalinkTakeViolation(self._address):
            violations.append(self._violation())
        self._taken = self.violation_count()
        return tuple(violations)

    def _violation(self) -> Violation:
        breach = self._found
        rule, (what, expected) = [*rules().items()][breach.rule]
        call = _FUNCTIONS[breach.function]
        if fact := _FACTS.get(rule):
            name = breach.name.decode("utf-8", "replace")
            what = f"{what}: {fact.format(breach, other=_FUNCTIONS[breach.other], name=name)}"
        answer = "the library answered"
        if rule == "grew":
            answer = f"only {breach.asked} bytes were written"
        elif breach.prevented:
            answer = "the library did not get the call, and the caller got its answer to a NULL handle"
        history = [
            self._where(_CREATED, breach.handle_number, breach.created_by, "The handle was created"),
            self._where(_DESTROYED, breach.handle_number, breach.destroyed_by, "It was destroyed"),
        ]
        frames = self._stacks.get(breach.number << 2 | _VIOLATION, ())
        stack = tuple(_words(code, line) for code, line in reversed(frames))
        native = self._place(breach.called_by)
        if not stack and native:
            native += self._thread(breach.thread)
        which = f"nvJitLink handle {breach.handle_number}" if breach.handle_number else "an unknown nvJitLink handle"
        return Violation(
            check="jitlink-contract",
            number=breach.number,
            handle=breach.handle_number,
            rule=rule,
            what=what,
            text=f"{which}: {call}: {what}; expected {expected}; {answer}",
            call=call,
            native_stack=(native,) if native else (),
            python_stack=stack,
            history=tuple(f"{line}." for line in history if line),
        )

    def _where(self, kind: int, number: int, address: int, verb: str) -> str:
        """Return where something was done to a handle: by Python code if that is known, else the native caller."""
        frames = self._stacks.get(number << 2 | kind)
        users = [frame for frame in frames or () if _kinds[frame[0].co_filename] == _USER]
        place = _words(*(users or frames)[0]) if frames else self._place(address)
        return f"{verb} at {place}" if place else ""

    def _place(self, address: int) -> str:
        self._library.cudalinkPlace(address, self._text, _PLACE_SIZE)
        return str(self._text.value.decode("utf-8", "replace"))

    @staticmethod
    def _thread(ident: int) -> str:
        names = (f"thread {thread.name}" for thread in threading.enumerate() if thread.ident == ident)
        return f", in {next(names, 'a thread that has ended')}"

    def _hear(self, note: int) -> int:
        if len(self._stacks) >= _STACKS:
            self._stacks.pop(next(iter(self._stacks)), None)
        # for a handle, the place in the user's code is enough
        wanted = _NO_KIND if note & 3 == _VIOLATION else _USER
        self._stacks[note] = _frames(sys._getframe(1), wanted)  # noqa: SLF001
        return 0


_contract: JitLinkContract | None = None


def start() -> JitLinkContract | None:
    """Return the checks of this process, not checking yet; None where calls of nvJitLink cannot be seen."""
    global _contract  # noqa: PLW0603 (one for the process, as the library is)
    if _contract is None and (library := jitlink_calls.start()) is not None:
        _contract = JitLinkContract(library)
    return _contract
