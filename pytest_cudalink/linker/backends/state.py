"""What both backends share: one handle of a library, and the lock that keeps it alive while a thread is at work."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["LinkState"]


class LinkState(ABC):
    """One handle of a linking library, used by one thread at a time.

    A library that is told to destroy a handle in the middle of a link ends the process. Therefore whoever closes, be it
    another thread, garbage collection or the end of the interpreter, waits until the thread at work is done.

    Attributes
    ----------
    lock : threading.RLock
        Held in every call to the library. The same thread may take it again: a collection of garbage can close a linker
        at any point.
    error_log, info_log : str
        As they were last read.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.process = os.getpid()
        self.error_log = self.info_log = ""

    @property
    @abstractmethod
    def handle(self) -> int:
        """Address of the library's object; 0 when closed."""

    def add(self, kind: str, code: bytes, name: str) -> None:
        """Add one input; the library keeps no reference to it.

        Raises
        ------
        LinkError
            If the library refuses it.
        RuntimeError
            If it is closed.
        """
        with self._at_work("add an input"):
            # a file name may have bytes that are no text; the libraries only repeat the name in their logs
            self._add(kind, code, name.encode("utf-8", "replace"))

    def complete(self, target: str) -> bytes:
        """Link, and fetch ``"cubin"``, ``"ptx"`` or ``"ltoir"``; raises as `add` does."""
        with self._at_work("link"):
            return self._complete(target)

    def read_logs(self) -> None:
        """Copy both logs; does nothing once closed."""
        with self.lock:
            if self.handle:
                self._read_logs()

    def close(self) -> None:
        """Keep the logs and release everything else, as soon as no thread is at work; may be called again."""
        # a forked child has no thread but its own: a lock that another one held stays held, and the handle under it
        # is in no state that could be destroyed
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
        """Copy both logs of a handle that is there."""

    @abstractmethod
    def _release(self) -> None:
        """Destroy the handle and release what it pointed to; also when there is none, or not yet."""
