"""Talking to the emulated driver that this process has: events, faults, violations."""

from __future__ import annotations

import ctypes
import json
import sys
import threading
import traceback
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..versions import CudaVersion
from .faults import Fault, code_of, symbol_of

__all__ = ["Driver", "Injected", "Violation", "attach"]

#: Bytes of one event (native/core.c).
_EVENT_SIZE = 1024
_HOOK = ctypes.CFUNCTYPE(None, ctypes.c_char_p)


#: Code that runs every test and says nothing about one.
_RUNNERS = ("/_pytest/", "/pluggy/", "/xdist/", "/execnet/", "/pytest_cudalink/", "/runpy.py", "/contextlib.py")


def _tells(filename: str) -> bool:
    """Whether a frame of this file helps to find who made a violation."""
    return not filename.startswith("<frozen") and not any(part in filename for part in _RUNNERS)


@dataclass(frozen=True)
class Violation:
    """The driver was given memory that did not live as long as the contract says.

    Attributes
    ----------
    number : int
        Counts from 1 in this process.
    state : int
        The CUlinkState, in the order of their creation, from 1.
    option : str
        Which of its options, such as ``"CU_JIT_ERROR_LOG_BUFFER"``; ``"optionValues"`` for the array itself.
    what, expected, found : str
        What was noticed, and by what.
    call : str
        The driver function at whose entry it was noticed.
    native_stack : tuple of str
        Innermost first.
    python_stack : tuple of str
        Outermost first; empty if no Python code was running.
    """

    number: int
    state: int
    option: str
    what: str
    expected: str
    found: str
    call: str
    native_stack: tuple[str, ...]
    python_stack: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"link state {self.state}: {self.option}: {self.what}, noticed by {self.call}; "
            f"expected {self.expected}, found {self.found}"
        )

    @property
    def long_repr(self) -> str:
        """Several lines, with the stacks and what to do."""
        lines = [str(self)]
        lines += ["called from:", *(f"  {line}" for line in self.python_stack)] if self.python_stack else []
        lines += ["native frames:", *(f"  {line}" for line in self.native_stack)] if self.native_stack else []
        lines.append(
            "The option values and log buffers given to cuLinkCreate must live until cuLinkDestroy "
            "(CUDA Driver API, cuLinkCreate)."
        )
        return "\n".join(lines)


class Injected(NamedTuple):
    """A fault that waits for its call.

    Attributes
    ----------
    number : int
        In the order in which they were made, from 1; those of ``CUDALINK_EMULATOR_FAULTS`` come first.
    function : str
        Symbol of the driver function.
    """

    number: int
    function: str


class Driver:
    """The emulated driver of this process. Made by `attach`."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._read = library.cudalinkEventRead
        self._read.argtypes = [ctypes.c_uint64, ctypes.c_char_p, ctypes.c_size_t]
        library.cudalinkEventCount.restype = ctypes.c_uint64
        library.cudalinkViolationCount.restype = ctypes.c_uint64
        library.cudalinkStateCount.restype = ctypes.c_uint64
        library.cudalinkInject.argtypes = [ctypes.c_char_p, ctypes.c_uint, ctypes.c_int, ctypes.c_uint]
        library.cudalinkInject.restype = ctypes.c_uint
        library.cudalinkFaultMet.argtypes = [ctypes.c_uint, ctypes.c_int]
        self._lock = threading.Lock()
        self._violations: list[Violation] = []
        self._counted_before = self._count
        self._noted = 0
        self._hook: Any = None

    @property
    def version(self) -> CudaVersion:
        """What cuDriverGetVersion answers."""
        return CudaVersion.from_driver(self._library.cudalinkEmulatorVersion())

    @property
    def state_count(self) -> int:
        """Link states that were ever created; they are numbered from 1."""
        return int(self._library.cudalinkStateCount())

    @property
    def live_states(self) -> int:
        """Link states that were created and not destroyed."""
        return int(self._library.cudalinkLiveStates())

    def event_count(self) -> int:
        """How many events there were in this process."""
        return int(self._library.cudalinkEventCount())

    def events(self, start: int = 0) -> list[dict[str, Any]]:
        """The events from number `start` on, oldest first; the last 16,384 are kept.

        Each is what one call left: ``n``, ``pid``, ``thread``, ``call``, ``result``, and the arguments that matter.
        """
        text = ctypes.create_string_buffer(_EVENT_SIZE)
        return [
            json.loads(text.value)
            for number in range(start, self.event_count())
            if self._read(number, text, _EVENT_SIZE) >= 0
        ]

    def inject(self, function: str, code: int | str = 0, *, nth: int = 1, delay: float = 0.0) -> Injected:
        """Make a coming call of a driver function fail, or wait.

        Parameters
        ----------
        function : str
            The name in cuda.h, for which programs call the newest form that the driver has, or a symbol of an older
            form with its number, such as ``"cuCtxCreate_v2"``.
        code : int or str
            CUresult to answer, by number or name; 0 lets the call through, after the delay.
        nth : int
            Which call from now on, 1 for the next; 0 for every one.
        delay : float
            Seconds to wait first.

        Returns
        -------
        Injected
            For `take_back`.

        Raises
        ------
        ValueError
            If no such function is exported, or a number is none that it can be.
        RuntimeError
            If 64 faults wait already.
        """
        fault = Fault(symbol_of(function, self.version), code_of(code), nth, delay)
        number = self._library.cudalinkInject(fault.function.encode(), nth, fault.code, fault.milliseconds)
        if not number:
            msg = "there are 64 injected faults already; clear them first"
            raise RuntimeError(msg)
        return Injected(number, fault.function)

    def met(self, number: int) -> bool:
        """Whether some call of this process met the fault of a number; so was one that is no longer there."""
        return bool(self._library.cudalinkFaultMet(number, 0))

    def take_back(self, injected: Injected) -> bool:
        """Take back what is left of a fault, and leave all others; whether some call of this process met it."""
        return bool(self._library.cudalinkFaultMet(injected.number, 1))

    def lose_device(self, code: int | str = 46) -> int:
        """Let every function that needs the device answer `code`, by default CUDA_ERROR_DEVICE_UNAVAILABLE.

        Parameters
        ----------
        code : int or str
            CUresult to answer, by number or name; 0 brings the device back.

        Returns
        -------
        int
            What they answered before for that reason; 0 if the device was not lost.

        Raises
        ------
        ValueError
            If no driver answers with it.
        """
        return int(self._library.cudalinkLoseDevice(code_of(code)))

    def clear(self) -> None:
        """Take back every fault, those of the run too, and a lost device."""
        self._library.cudalinkClearFaults()

    def watch(self) -> None:
        """Note violations with the Python stack of the call that made them, until `unwatch`."""
        if self._hook is None:
            self._counted_before = self._count - self._noted
            self._hook = _HOOK(self._notice)
            self._library.cudalinkSetViolationHook(self._hook)

    def unwatch(self) -> None:
        """Stop noting; called before the interpreter ends, because nothing may call into it then."""
        if self._hook is not None:
            self._library.cudalinkSetViolationHook(None)
            self._hook = None

    @property
    def violations(self) -> tuple[Violation, ...]:
        """Those noted since `watch`."""
        with self._lock:
            return tuple(self._violations)

    @property
    def _count(self) -> int:
        return int(self._library.cudalinkViolationCount())

    @property
    def lost_violations(self) -> int:
        """Number of violations that the driver counted since `watch` and that could not be noted."""
        with self._lock:
            return self._count - self._counted_before - self._noted

    def forget(self, violations: tuple[Violation, ...]) -> None:
        """Take some off the list: they were expected."""
        with self._lock:
            self._violations = [one for one in self._violations if one not in violations]

    def _notice(self, event: bytes) -> None:
        facts = json.loads(event)
        frames = traceback.extract_stack(sys._getframe(1)) if sys._getframe().f_back else []  # noqa: SLF001
        noticed = Violation(
            facts["violation"],
            facts["state"],
            facts["option"],
            facts["what"],
            facts["expected"],
            facts["found"],
            facts["call"],
            tuple(facts["stack"]),
            tuple(f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames if _tells(frame.filename)),
        )
        with self._lock:
            self._violations.append(noticed)
            self._noted += 1


def attach(library: ctypes.CDLL) -> Driver | None:
    """The control of a driver library; None if that is a real driver."""
    return Driver(library) if hasattr(library, "cudalinkEmulatorVersion") else None
