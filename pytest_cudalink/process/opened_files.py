"""The files that Python code of this process opens, and the programs that it starts.

An audit hook in C passes on the few events that matter (`native/opened_files.c`). What code below Python opens, and
what a program reads that it starts, is not seen.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, Final

from . import loads

__all__ = ["OpenedFiles", "is_possible"]

#: What the hook uses of the interpreter, in the order in which C expects it.
_FUNCTIONS: Final = (
    "PySys_AddAuditHook",
    "PyObject_CallFunction",
    "Py_DecRef",
    "PyErr_ExceptionMatches",
    "PyErr_Clear",
    "PyInterpreterState_Get",
    "PyExc_Exception",
)
#: Code that starts programs for its callers, by the end of its file.
_STARTERS: Final = (f"{os.sep}subprocess.py", f"{os.sep}multiprocessing{os.sep}popen_fork.py")
#: Code whose programs read nothing for a test, or record what they read themselves, by a part of its file.
_OWN: Final = (
    *(f"pytest_cudalink/plugin/{name}.py" for name in ("children", "isolated", "pytest_private")),
    *("pytest_cudalink/report/checkout.py", "pytest_cudalink/process/preload.py"),
    *("/execnet/", "/ctypes/util.py", "/platform.py"),
)
#: Modules whose import shows that processes can be started without an event.
_WITHOUT_EVENT: Final = ("multiprocessing.popen_spawn_posix", "multiprocessing.popen_forkserver")

#: Those that hear of what this process opens, the last one first.
_listeners: list[OpenedFiles] = []


def is_possible() -> bool:
    """Whether this process can be watched: on Linux, where the native part was built."""
    return loads.library() is not None


class OpenedFiles:
    """The files that are opened from now on until `close`.

    Parameters
    ----------
    label : callable
        Returns the current test, or None.

    Attributes
    ----------
    files : dict of str to (str or None)
        Absolute paths, each with the label that was current when it was first opened.
    """

    def __init__(self, label: Callable[[], str | None]) -> None:
        self._label = label
        self.files: dict[str, str | None] = {}
        self._programs: dict[str, None] = {}
        _listeners.insert(0, self)
        if len(_listeners) == 1:
            _hear(_note)

    @property
    def programs(self) -> list[str]:
        """The names of the programs that tests started; ``"fork"`` for a copy of this process."""
        return [*self._programs, *(name for name in _WITHOUT_EVENT if name in sys.modules)]

    @property
    def is_incomplete(self) -> bool:
        """Whether an event was lost."""
        return bool(loads.library().cudalinkHasLostEvents())

    def add(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Add what an audit event names."""
        if event != "open":
            if not _is_own(sys._getframe(2)):  # noqa: SLF001 (inspect.stack reads the files of all frames)
                self._programs.setdefault(_program(event, arguments))
            return
        path = arguments[0]
        if isinstance(path, int) or path is None:
            return
        path = os.fsdecode(path)
        if not path.startswith(os.sep):
            path = os.path.join(os.getcwd(), path)  # noqa: PTH109, PTH118 (called for each file)
        self.files.setdefault(path, self._label())

    def close(self) -> None:
        """Stop listening; may be called again."""
        if self in _listeners:
            _listeners.remove(self)
            if not _listeners:
                _hear(None)


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    for one in _listeners:
        one.add(event, arguments)


def _hear(function: Callable[..., object] | None) -> None:
    """Let the hook call a function, or none."""
    import ctypes

    found = (ctypes.c_void_p * len(_FUNCTIONS))(
        *(ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p) for name in _FUNCTIONS)
    )
    if function is not None:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(function))  # C may call it when this module is gone
    callable_ = ctypes.c_void_p(id(function) if function is not None else None)
    loads.library().cudalinkHearEvents(ctypes.byref(found), callable_)


def _program(event: str, arguments: tuple[Any, ...]) -> str:
    """Return the name of what an event starts."""
    if event.startswith("os.fork"):
        return "fork"
    first = arguments[0]
    if event == "subprocess.Popen" and first is None:
        first = arguments[1]
        first = first[0] if isinstance(first, list | tuple) and first else first
    try:
        return os.fsdecode(first).split()[0].rpartition(os.sep)[2]
    except (TypeError, IndexError):
        return "unknown"


def _is_own(frame: Any) -> bool:
    """Whether the code that starts a program is the plugin's or xdist's, for which nothing is to be recorded."""
    while frame is not None and frame.f_code.co_filename.endswith(_STARTERS):
        frame = frame.f_back
    return frame is not None and any(part in frame.f_code.co_filename for part in _OWN)
