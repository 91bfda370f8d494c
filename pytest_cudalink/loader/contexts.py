"""The contexts of this process: whether an error or work without an end has made them unusable.

Nothing here loads a driver, or calls a real one that the program has not used: then there is nothing to ask.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import ctypes

#: Errors of kernels after which every context of the process answers the same, by code. 700, 715, 716 and 719 were
#: recorded on an H100; for the others cuda.h says that the process must end.
STICKY_ERRORS: Final = frozenset({700, 702, 710, 714, 715, 716, 717, 718, 719})
#: The answer of contexts whose work did not end in time.
HANGS: Final = -1

_DRIVER: Final = "libcuda.so.1"
#: The beginnings of the device files of a driver: of Linux, WSL and Jetson.
_DEVICES: Final = ("/dev/nvidia", "/dev/dxg", "/dev/nvhost", "/dev/nvgpu", "/dev/nvmap")
_NOT_READY: Final = 600
_DISABLE_TIMING: Final = 2  # CU_EVENT_DISABLE_TIMING
#: Seconds between two questions to a context that still works.
_LOOK: Final = 0.01


def _first_answer(question: Callable[..., Any], deadline: float, *arguments: object) -> int:
    """Return the first answer that is not `_NOT_READY`; `HANGS` where none comes within `deadline` seconds."""
    until = time.monotonic() + deadline
    while (code := int(question(*arguments))) == _NOT_READY:
        if time.monotonic() >= until:
            return HANGS
        time.sleep(_LOOK)
    return code


class RealContexts:
    """The contexts on a real driver: the current one, and the primary contexts that something has made active.

    The answer to a question about the null stream is not enough: a kernel may still run in another stream, and its
    error comes later. From CUDA 12.5 on an event records all work of a context, and is asked until the deadline: 13 µs
    where nothing runs (H100, driver 580). For an older driver, and for other contexts than the current one, a thread
    synchronizes, and this one waits for it: 60 to 80 µs.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        import ctypes

        self._library, self._byref = library, ctypes.byref
        self._pointer, self._int = ctypes.c_void_p, ctypes.c_int
        for name in ("cuCtxSetCurrent", "cuStreamQuery", "cuEventQuery", "cuEventDestroy_v2"):
            getattr(library, name).argtypes = [ctypes.c_void_p]
        self._record = getattr(library, "cuCtxRecordEvent", None)
        if self._record is not None:
            self._record.argtypes = [ctypes.c_void_p, ctypes.c_void_p]

    def ask(self, deadline: float) -> int:
        """Return a code of `STICKY_ERRORS`, `HANGS` if work has not ended within `deadline` seconds, or 0."""
        current = self._pointer()
        if self._library.cuCtxGetCurrent(self._byref(current)):
            return 0  # the driver is not initialized
        if current.value is not None:
            code = int(self._library.cuStreamQuery(None))
            if code in STICKY_ERRORS:
                return code
        retained, code = self._retain(current.value)
        contexts = [context for context in (current.value, *retained.values()) if context is not None]
        if code == 0 and contexts:
            answer = self._wait(deadline, contexts[0]) if contexts == [current.value] else None
            code = self._synchronize(contexts, deadline) if answer is None else answer
        if code != HANGS:
            for device in retained:
                self._library.cuDevicePrimaryCtxRelease_v2(device)
        return code

    def _retain(self, current: int | None) -> tuple[dict[int, int | None], int]:
        """Retain the active primary contexts; return those that are not current by device, and a sticky error or 0."""
        library, byref = self._library, self._byref
        count, flags, active = self._int(), self._int(), self._int()
        retained: dict[int, int | None] = {}
        if library.cuDeviceGetCount(byref(count)):
            return retained, 0
        for device in range(count.value):
            if library.cuDevicePrimaryCtxGetState(device, byref(flags), byref(active)) or not active.value:
                continue
            context = self._pointer()
            code = int(library.cuDevicePrimaryCtxRetain(byref(context), device))
            if code in STICKY_ERRORS:
                return retained, code
            if code == 0:
                retained[device] = context.value if context.value != current else None
        return retained, 0

    def _wait(self, deadline: float, current: int) -> int | None:
        """Return the answer of an event for all work of the current context; None where the driver records none."""
        event = self._pointer()
        if self._record is None or self._library.cuEventCreate(self._byref(event), _DISABLE_TIMING):
            return None
        if self._record(current, event):
            self._library.cuEventDestroy_v2(event)
            return None
        code = _first_answer(self._library.cuEventQuery, deadline, event)
        if code != HANGS:
            self._library.cuEventDestroy_v2(event)
        return code if code in STICKY_ERRORS or code == HANGS else 0

    def _synchronize(self, contexts: list[int], deadline: float) -> int:
        import _thread

        library, codes = self._library, []
        waits = _thread.allocate_lock()
        waits.acquire()

        def synchronize() -> None:
            try:
                for context in contexts:
                    library.cuCtxSetCurrent(context)
                    codes.append(int(library.cuCtxSynchronize()))
            finally:
                waits.release()

        _thread.start_new_thread(synchronize, ())
        if not waits.acquire(timeout=deadline):
            return HANGS
        return next((code for code in codes if code in STICKY_ERRORS), 0)


def is_used() -> bool:
    """Whether this process has initialized a real driver, which keeps a device file open from then on; without a call.

    NVML, while it is in use, keeps one open, too.
    """
    try:
        descriptors = os.listdir("/proc/self/fd")  # noqa: PTH208 (asked after each test)
    except OSError:
        return False
    for descriptor in descriptors:
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{descriptor}").startswith(_DEVICES):  # noqa: PTH115
                return True
    return False


def is_loaded() -> bool:
    """Whether this process has loaded a driver."""
    if sys.platform != "linux":
        return False
    # without ctypes, which a run without CUDA may never need
    import _ctypes

    try:
        _ctypes.dlopen(_DRIVER, os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError:
        return False
    return True


def question() -> Callable[[float], int] | None:
    """Return what asks the contexts of the driver of this process, as `RealContexts.ask`; None if it has loaded none.

    A real driver that is not used yet has none. An emulated one answers without an event, and meets no injected fault.
    """
    if not is_loaded():
        return None
    import ctypes

    library = ctypes.CDLL(_DRIVER)
    if hasattr(library, "cudalinkAbsentDriver"):
        return None
    if hasattr(library, "cudalinkContextState"):
        return partial(_first_answer, library.cudalinkContextState)
    return RealContexts(library).ask if is_used() else None
