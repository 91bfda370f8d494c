"""The process-wide choices that a `Linker` falls back on: a forced backend and a default policy; and who watches it.

This is the one owner of that state. The pytest plugin sets it before collection; a fixture changes it for one test.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from .dispatch import DEFAULT_POLICY, BackendName, policy_named

__all__ = [
    "Forced",
    "Watched",
    "default_policy",
    "forced",
    "forced_backend",
    "set_default_policy",
    "set_forced",
    "set_watcher",
    "watched",
]


@dataclass(frozen=True)
class Forced:
    """A backend that every `Linker` without one of its own takes, and who says so."""

    backend: BackendName
    source: str


class Watched(Protocol):
    """What watches one linker: it is told the backend and of each step, and may have its own word on what is forced."""

    forced: Forced | None
    backend: str

    def step(self, *, last: bool = False) -> AbstractContextManager[None]: ...
    def chose_itself(self, source: str) -> None: ...


#: Makes a watch for a linker of these inputs: (kind, name, bytes) each.
Watcher = Callable[[Sequence[tuple[str, str, bytes]]], Watched | None]

_watcher: Watcher | None = None
_forced: Forced | None = None
_policy: str | None = None


def forced() -> Forced | None:
    """What is forced at present."""
    return _forced


def set_forced(value: Forced | None) -> Forced | None:
    """Force a backend, or stop to; returns what was forced before."""
    global _forced
    previous, _forced = _forced, value
    return previous


@contextmanager
def forced_backend(backend: BackendName, source: str) -> Iterator[None]:
    """Force a backend inside the ``with`` block, in the whole process."""
    previous = set_forced(Forced(backend, source))
    try:
        yield
    finally:
        set_forced(previous)


def default_policy() -> str:
    """The policy of a `Linker` that names none: the plugin's, else ``CUDALINK_POLICY``, else strict-major."""
    if _policy is not None:
        return _policy
    name = os.environ.get("CUDALINK_POLICY") or DEFAULT_POLICY
    return policy_named(name).name


def set_default_policy(name: str | None) -> str | None:
    """Set the policy that counts before the environment's; returns the previous one."""
    global _policy
    previous, _policy = _policy, policy_named(name).name if name is not None else None
    return previous


def set_watcher(value: Watcher | None) -> None:
    """Have every linker watched from now on."""
    global _watcher  # noqa: PLW0603 (this module owns that state)
    _watcher = value


def watched(inputs: Sequence[tuple[str, str, bytes]]) -> Watched | None:
    """A watch for one linker; None when nobody watches."""
    return _watcher(inputs) if _watcher is not None else None
