"""`LinkState`: one handle of a linking library, and the lock that keeps it alive while a thread uses it."""

import ctypes
import os
import threading
import weakref
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from ..errors import LinkError


class LinkState(ABC):
    """One handle of a linking library, used by one thread at a time.

    A library that destroys a handle in the middle of a link ends the process. Therefore `close` waits until the thread
    at work has finished, whether another thread, garbage collection or the end of the interpreter calls it.

    Ctrl-C, or a timeout, raises an exception as a call of the library returns, and then Python loses the result.
    Therefore the library writes a handle into memory that exists before, and what is undone can be undone again: after
    an exception `close` begins once more, and does what is left.

    `lock`: held during every call to the library. The same thread may take it again: garbage collection can close a
    linker at any point.
    `error_log`, `info_log`: the logs as they were last read.
    """

    name: ClassVar[str]  # the backend, "driver" or "nvjitlink"
    library: ClassVar[str]  # the library as messages call it
    #: The linker; None if the state belongs to none, and after `close`.
    owner: weakref.ref[Any] | None = None

    def __init__(self) -> None:
        #: The handle, where the library writes it.
        self._cell = ctypes.c_void_p()
        self.lock = threading.RLock()
        self.process = os.getpid()
        self.error_log = self.info_log = ""
        #: Whether a call may have written to the logs since they were read.
        self._logs_grew = True

    @property
    def handle(self) -> int:
        """The address of the library's object; 0 if closed."""
        return self._cell.value or 0

    def add(self, kind: str, code: bytes, name: str) -> None:
        """Add one input; the library keeps no reference to it.

        Raises LinkError if the library refuses the input.
        Raises RuntimeError if the handle is closed.
        """
        with self.lock:
            if not self.handle:
                raise self._closed("add an input")
            self._logs_grew = True
            # a file name may have bytes that are not UTF-8; the libraries only repeat the name in their logs
            self._add(kind, code, name.encode("utf-8", "replace"))

    def complete(self, target: str) -> bytes:
        """Link, and return the ``"cubin"``, ``"ptx"`` or ``"ltoir"``; raises as `add` does."""
        with self.lock:
            if not self.handle:
                raise self._closed("link")
            self._logs_grew = True
            return self._complete(target)

    def read_logs(self) -> None:
        """Copy both logs into the attributes; does nothing if closed."""
        with self.lock:
            if self._logs_grew and self.handle:
                self._read_logs()
                self._logs_grew = False

    def close(self) -> None:
        """Keep the logs and release everything else, after any thread at work; may be called again."""
        try:
            self._close()
        except BaseException:
            self._close()
            raise

    def __del__(self) -> None:
        """Close what an exception took from its linker before that knew it."""
        if "_cell" in self.__dict__ and self.handle:  # (an exception may have come before `__init__`)
            self.close()

    def _close(self) -> None:
        if os.getpid() == self.process:
            with self.lock:
                self._finish()
            return
        # a forked child has only the thread that forked: a lock that another thread held stays held, and the handle is
        # in the middle of a call and cannot be destroyed
        if self.lock.acquire(blocking=False):
            try:
                self._finish()
            finally:
                self.lock.release()

    def _finish(self) -> None:
        if self._logs_grew:
            self.read_logs()
        self._release()

    def _link_error(
        self, summary: str, call: str, code: int | None = None, code_name: str = "", hint: str = ""
    ) -> LinkError:
        """Return the error of a call of the library, with the logs as they were last read."""
        return LinkError(
            summary,
            backend=self.name,
            call=call,
            code=code,
            code_name=code_name,
            error_log=self.error_log,
            info_log=self.info_log,
            hint=hint,
        )

    def _false_success(self, call: str, finding: str) -> LinkError:
        """Return the error of a call that reported success and failed all the same."""
        return self._link_error(f"{self.library}: {call} reported success, but {finding}", call, 0)

    def _refuse_logged_errors(self, call: str) -> None:
        """Raise LinkError if the library reported success and logged an error, as of an undefined symbol."""
        if "error   :" in self.error_log:
            raise self._false_success(call, "its log has errors")

    @staticmethod
    def _closed(name: str) -> RuntimeError:
        return RuntimeError(f"cannot {name}: the linker is closed")

    @abstractmethod
    def _add(self, kind: str, code: bytes, name: bytes) -> None: ...

    @abstractmethod
    def _complete(self, target: str) -> bytes: ...

    @abstractmethod
    def _read_logs(self) -> None:
        """Copy both logs of an open handle."""

    @abstractmethod
    def _release(self) -> None:
        """Destroy the handle and release the memory behind it; also without a handle, and after an interrupted call."""
