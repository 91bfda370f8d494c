"""The link worker: a program of ours that holds one libnvJitLink, so that a library which crashes costs an error.

The emulated driver links through it in C (``native/client.h``); `WorkerLink` is the same client for Python.
"""

import ctypes
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from ...compat import names

_LIB = Path(__file__).parent / "lib"
#: The environment variable with the seconds that one call may take.
TIMEOUT: Final = "CUDALINK_LINK_TIMEOUT"

# WorkerOutcome of native/client.h
_ANSWERED, _NOT_STARTED, _NO_LIBRARY, _DIED, _LATE, _FATAL, _NO_MEMORY, _KILLED = range(8)


class WorkerError(RuntimeError):
    """There is no link worker: it is not built, cannot be started, or cannot open the library."""


class _Answer(ctypes.Structure):
    """WorkerAnswer of native/client.h."""

    _fields_ = (
        *((name, ctypes.c_int) for name in ("outcome", "code", "fetch_code", "signal", "opening")),
        *((name, ctypes.c_char_p) for name in ("error", "info", "printed", "problem")),
        ("image", ctypes.c_void_p),
        ("image_size", ctypes.c_size_t),
    )


class WorkerAnswer(NamedTuple):
    """What one call in the worker resulted in."""

    code: int  # NvJitLink's result; meaningless after an end
    fetch_code: int  # the result of the functions that fetch an image; -1 if they were not called or are missing
    opening: bool  # whether `code` is that of nvJitLinkCreate
    end: str  # how the library ended the worker, such as "ended with signal 11 (SIGSEGV)"; empty if it answered
    signal: int  # the signal of that end, if it was one
    hung: bool  # whether the limit was reached
    error_log: str  # its new text
    info_log: str  # its new text
    printed: str  # what the library printed
    image: bytes | None


def program() -> Path:
    """Return the path of the program, whether it is there or not."""
    return _LIB / "cudalink-link-worker"


def timeout() -> int:
    """Return the seconds that one call may take: those of ``CUDALINK_LINK_TIMEOUT``, else 60.

    Raises ValueError if the variable has another value than a number of seconds, 1 to 86400.
    """
    value = os.environ.get(TIMEOUT, "")
    if not value:
        return names.LIMIT_LINK_TIMEOUT
    if not (value.isascii() and value.isdecimal() and 1 <= int(value) <= names.LIMIT_LINK_SECONDS):
        raise ValueError(f"{TIMEOUT} is {value!r}; expected 1 to {names.LIMIT_LINK_SECONDS} (seconds)")
    return int(value)


@cache
def load_client() -> Any:
    """Load the client; the first link does, if it is not loaded yet. Raises WorkerError if it was not built."""
    path = _LIB / "libcudalink-worker.so"
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        msg = f"the link worker is not built: {error}; install pytest-cudalink with pip on Linux"
        raise WorkerError(msg) from error
    text, answer = ctypes.c_char_p, ctypes.POINTER(_Answer)
    for name, parameters in {
        "lw_open": (ctypes.c_void_p, text, text, ctypes.c_uint, ctypes.POINTER(text), ctypes.c_uint, answer),
        "lw_add": (ctypes.c_void_p, ctypes.c_int, text, ctypes.c_size_t, text, answer),
        "lw_complete": (ctypes.c_void_p, ctypes.c_uint, answer),
        "lw_close": (ctypes.c_void_p, answer),
        "lw_free_answer": (answer,),
    }.items():
        function = getattr(library, name)
        function.argtypes, function.restype = parameters, None
    return library


def _text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "replace")


class WorkerLink:
    """One link in a worker, used by one thread at a time; `answer` is that of nvJitLinkCreate.

    `library`: path of the libnvJitLink.
    `options`: as nvJitLink spells them.
    Raises WorkerError if no worker can be started, or if it cannot open the library; `add` and `complete` raise it too.
    Raises ValueError if ``CUDALINK_LINK_TIMEOUT`` is invalid.
    """

    _cell: ctypes.c_void_p

    def __new__(cls, *_: object) -> Self:
        """Give the link memory into which the client writes it: an exception loses what a call returns."""
        self = super().__new__(cls)
        self._cell = ctypes.c_void_p()
        return self

    def __init__(self, library: str, options: Sequence[str]) -> None:
        self._client = load_client()
        self._library = library
        texts = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        names = os.fsencode(program()), os.fsencode(library)
        self.answer = self._ask(self._client.lw_open, ctypes.byref(self._cell), *names, len(options), texts, timeout())

    def __del__(self) -> None:
        if self.handle:
            self.close()

    @property
    def handle(self) -> int:
        """Address of the client's object; 0 if it is closed, or if nvJitLink refused the options."""
        return self._cell.value or 0

    def add(self, kind: int, code: bytes, name: bytes) -> WorkerAnswer:
        """Add one input of an nvJitLinkInputType."""
        return self._ask(self._client.lw_add, self._cell, kind, code, len(code), name)

    def complete(self, target: int) -> WorkerAnswer:
        """Link, and fetch the cubin (0), the PTX (1) or the LTO-IR (2); only `close` may follow."""
        return self._ask(self._client.lw_complete, self._cell, target)

    def close(self) -> None:
        """Release the link; may be called again."""
        if self.handle:
            self._ask(self._client.lw_close, ctypes.byref(self._cell))

    def _ask(self, function: Callable[..., None], *arguments: object) -> WorkerAnswer:
        """Call a function of the client, copy its answer and free the client's."""
        answer, free = _Answer(), self._client.lw_free_answer
        where = ctypes.byref(answer)
        try:
            function(*arguments, where)
            copied = self._copied(answer)
            free(where)
        except BaseException:
            free(where)  # (again: a second time it has nothing to do)
            raise
        return copied

    def _copied(self, answer: _Answer) -> WorkerAnswer:
        problem = _text(answer.problem)
        if answer.outcome == _NO_MEMORY:
            raise MemoryError
        if answer.outcome == _NOT_STARTED:
            msg = f"the link worker {program()} cannot be started: {problem}; install pytest-cudalink again"
            raise WorkerError(msg)
        if answer.outcome == _NO_LIBRARY:
            raise WorkerError(f"the link worker cannot open {self._library}: {problem}")
        return WorkerAnswer(
            code=answer.code,
            fetch_code=answer.fetch_code,
            opening=bool(answer.opening),
            end=problem if answer.outcome in (_DIED, _LATE, _FATAL, _KILLED) else "",
            signal=answer.signal,
            hung=answer.outcome == _LATE,
            error_log=_text(answer.error),
            info_log=_text(answer.info),
            printed=_text(answer.printed),
            image=ctypes.string_at(answer.image, answer.image_size) if answer.image else None,
        )
