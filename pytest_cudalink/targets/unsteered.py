"""Links that no target steers: code that calls a linker itself.

Each seam that sees such a link makes an `UnsteeredLink` and hands it to `report`. A seam first asks `is_covered`: a
link that a target makes is reported by the `Watch` of the target, and one that an outer seam sees is reported there.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from ..loader.imports import start_postponed
from ..loader.jitlink import jitlink_calls
from .base import outcome


class _Thread(threading.local):
    """What one thread does. No context variable: free-threaded Python hands those down to new threads.

    `covered`: whether a target or a seam is linking in this thread, and reports the link itself.
    """

    covered = False


_thread: Final = _Thread()
#: Called with each link, the last one first, until one returns True: `Steering.report_unsteered` of the active run.
listeners: Final[list[Callable[[UnsteeredLink], bool]]] = []
#: Packages whose frames are not the user's code.
_NOT_THE_USERS: Final = ("pytest_cudalink", "cuda", "ctypes", "contextlib", "numba", "numba_cuda")


@dataclass(frozen=True)
class UnsteeredLink:
    """One link, finished or refused, that no target steers."""

    via: str  # the module or library that linked: "cuda.bindings.nvjitlink", "libnvJitLink in libcccl.c.parallel.so"
    call: str  # the function that completed the link: "nvJitLinkComplete", "cuLinkComplete"
    where: str = ""  # file and line of the code that called it: "helper.py:12"; empty where that is unknown
    backend: str = "unknown"  # "driver" or "nvjitlink"; "unknown" where that cannot be seen
    result: str = "ok"  # "ok", or the error's type and code
    nodeid: str | None = None  # the test; None outside tests. The run sets it.
    # the backend that the run, or the test, forced at that moment; None if it forced none. The run sets it.
    forced: str | None = None

    @property
    def follows(self) -> bool:
        """Whether the link ran as forced, as far as that can be seen, or nothing was forced."""
        return self.forced is None or self.backend in (self.forced, "unknown")

    def __str__(self) -> str:
        """Return the call and the code that made it: ``"cuLinkComplete of cuda.bindings.driver, in helper.py:12"``."""
        return f"{self.call} of {self.via}" + (f", in {self.where}" if self.where else "")


def report(link: UnsteeredLink) -> None:
    """Count a link for the active run, which may fail the current test for it; does nothing outside a run.

    Never raises into the code that linked. Call it once for each link, from the thread that linked.
    """
    start_postponed()
    for listener in reversed(listeners):
        if listener(link):
            return


def is_covered() -> bool:
    """Whether the link that this thread is making is reported elsewhere: by a target, or by an outer seam."""
    return _thread.covered


@contextmanager
def covered() -> Iterator[None]:
    """Leave out the links that are made inside the block: the code around it reports them."""
    before = _thread.covered
    try:
        _cover(on=True)  # inside: an interrupt must not leave it set, and hide every later link
        yield
        _cover(on=before)
    except BaseException:
        _cover(on=before)  # (again, if an exception kept the line above from doing so)
        raise


def _cover(*, on: bool) -> None:
    _thread.covered = on
    jitlink_calls.cover(on=on)


@contextmanager
def seen(via: str, call: str, backend: str, *, refusals: type[BaseException] = Exception) -> Iterator[None]:
    """Report the link that the block makes, unless the block raises another error than a refusal of the linker.

    `via`, `call`, `backend`: as in `UnsteeredLink`.
    `refusals`: the errors with which the linker refuses a link.
    """
    result = "ok"
    try:
        with covered():
            yield
    except BaseException as error:
        result = outcome(error) if isinstance(error, refusals) else ""
        raise
    finally:
        if result:
            report(UnsteeredLink(via, call, caller(), backend, result))


def caller() -> str:
    """Return file and line of the nearest frame that is not the plugin's, NVIDIA's or numba's, or an empty text."""
    frame = sys._getframe(1)  # noqa: SLF001
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package not in _NOT_THE_USERS and not frame.f_code.co_filename.startswith("<frozen"):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""
