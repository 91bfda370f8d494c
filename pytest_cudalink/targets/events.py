"""One link, as hooks and records receive it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..base.laziness import cached_property


@dataclass(frozen=True)
class LinkInput:
    """One input of a link."""

    kind: str  # "ptx", "ltoir", "cubin", "fatbin", "object" or "library"
    name: str = ""
    code: bytes | None = field(default=None, repr=False)  # None when the library read a file itself

    @cached_property
    def producer(self) -> str | None:
        """The CUDA release that made the bytes, as `pytest_cudalink.artifacts` reads it, on first use."""
        if self.code is None:
            return None
        from .. import artifacts

        found = artifacts.inspect(self.code)
        return None if found.producer is None else str(found.producer)


@dataclass(frozen=True)
class LinkEvent:
    """One link, finished or refused."""

    target: str  # the library that linked
    backend: str  # "driver" or "nvjitlink"; "unknown" if the link failed before its backend was known
    inputs: tuple[LinkInput, ...]
    duration: float  # seconds, from the construction of the linker to the image
    error: BaseException | None = None  # the error with which the link failed
    nodeid: str | None = None  # the test; None outside tests
    forced: str | None = None  # who forced the backend; None if the library chose
    _driver: Callable[[], str | None] = field(default=lambda: None, repr=False)
    _nvjitlink: Callable[[], str | None] = field(default=lambda: None, repr=False)

    @cached_property
    def driver(self) -> str | None:
        """The CUDA version of the driver, read on first use."""
        return self._driver()

    @cached_property
    def nvjitlink(self) -> str | None:
        """The version of nvJitLink, read on first use."""
        return self._nvjitlink()

    @property
    def result(self) -> str:
        """``"ok"``, or the error's type and code: ``"LinkError: NVJITLINK_ERROR_PTX_COMPILE"``."""
        return "ok" if self.error is None else outcome(self.error)

    @property
    def message(self) -> str:
        """The first line of the error, at most 300 characters."""
        return "" if self.error is None else (str(self.error).strip().splitlines() or [""])[0][:300]


def outcome(error: BaseException) -> str:
    """Return an error's type, and its code where it has one."""
    kind = type(error).__name__
    code = getattr(error, "code_name", "") or _code_in(str(error))
    return f"{kind}: {code}" if code else kind


def _code_in(text: str) -> str:
    """Return the code with which an error of cuda-bindings or cuda.core begins, or an empty text."""
    word = text.strip().partition(" ")[0].rstrip(":")
    return word if word.startswith(("CUDA_ERROR_", "ERROR_", "NVJITLINK_ERROR_")) else ""
