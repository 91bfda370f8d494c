"""`LinkState`: one handle of a linking library, and the lock that keeps it alive while a thread uses it."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["LinkState"]


class LinkState(ABC):
    """One handle of a linking library, used by one thread at a time.

    A library that destroys a handle in the middle of a link ends the process. Therefore `close` waits until the thread
    at work has finished, whether another thread, garbage collection or the end of the interpreter calls it.

    Attributes
    ----------
    lock : threading.RLock
        Held during every call to the library. The same thread may take it again: garbage collection can close a linker
        at any point.
    error_log, info_log : str
        The logs as they were last read.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.process = os.getpid()
        self.error_log = self.info_log = ""

    @property
    @abstractmethod
    def handle(self) -> int:
        """The address of the library's object; 0 if closed."""

    def add(self, kind: str, code: bytes, name: str) -> None:
        """Add one input; the library keeps no reference to it.

        Raises
        ------
        LinkError
            If the library refuses the input.
        RuntimeError
            If the handle is closed.
        """
        with self._at_work("add an input"):
            # a file name may have bytes that are not UTF-8; the libraries only repeat the name in their logs
            self._add(kind, code, name.encode("utf-8", "replace"))

    def complete(self, target: str) -> bytes:
        """Link, and return the ``"cubin"``, ``"ptx"`` or ``"ltoir"``; raises as `add` does."""
        with self._at_work("link"):
            return self._complete(target)

    def read_logs(self) -> None:
        """Copy both logs into the attributes; does nothing if closed."""
        with self.lock:
            if self.handle:
                self._read_logs()

    def close(self) -> None:
        """Keep the logs and release everything else, after any thread at work; may be called again."""
        # a forked child has only the thread that forked: a lock that another thread held stays held, and the handle is
        # in the middle of a call and cannot be destroyed
        if self.lock.acquire(blocking=os.getpid() == self.process):
            try:
                self.read_logs()
                self._release()
            finally:
                self.lock.release()

    @contextmanager
    def _at_work(self, what: str) -> Iterator[None]:
        with self.lock:
            if not self.handle:
                msg = f"cannot {what}: the linker is closed"
                raise RuntimeError(msg)
            yield

    @abstractmethod
    def _add(self, kind: str, code: bytes, name: bytes) -> None: ...

    @abstractmethod
    def _complete(self, target: str) -> bytes: ...

    @abstractmethod
    def _read_logs(self) -> None:
        """Copy both logs of an open handle."""

    @abstractmethod
    def _release(self) -> None:
        """Destroy the handle and release the memory behind it; must also work without a handle."""
