"""The process-wide choices that a `Linker` falls back on, as a person sets them: a forced backend and a default policy.

This module is the one owner of that state. What a run forces is `pytest_cudalink.targets.steering`'s.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ..compat.names import DEFAULT_POLICY
from ..targets.base import Backend, BackendChoice, Bundled
from ..targets.steering import current
from .dispatch import policy_named

_forced: BackendChoice | None = None
_policy: str | None = None


def forced() -> BackendChoice | None:
    """Return the backend that a `Linker` without the argument takes: the one set here, else the run's; None if free."""
    if _forced is not None:
        return _forced
    run = current()
    choice = run.wanted(Bundled.name) if run else None
    return choice if choice is not None and choice.backend is not None else None


def set_by_hand() -> BackendChoice | None:
    """Return the backend that `forced_backend` has set, or None."""
    return _forced


@contextmanager
def forced_backend(backend: Backend, source: str) -> Iterator[None]:
    """Force a backend inside the ``with`` block, in the whole process."""
    global _forced  # noqa: PLW0603 (one for the process)
    previous = _forced
    try:
        _forced = BackendChoice(backend, source)
        yield
        _forced = previous
    except BaseException:
        _forced = previous  # (again, if an exception kept the line above from doing so)
        raise


def default_policy() -> str:
    """Return the policy of a `Linker` that names none: the plugin's, else ``CUDALINK_POLICY``, else strict-major."""
    if _policy is not None:
        return _policy
    name = os.environ.get("CUDALINK_POLICY")
    return policy_named(name).name if name else DEFAULT_POLICY


def set_default_policy(name: str | None) -> str | None:
    """Set the policy that takes precedence over the environment's; returns the previous one."""
    global _policy
    previous, _policy = _policy, policy_named(name).name if name is not None else None
    return previous
