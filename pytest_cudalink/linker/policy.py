"""The policy of a `Linker` that names none; this module is the one owner of what a run sets."""

import os

from ..compat.names import DEFAULT_POLICY
from .dispatch import policy_named

_policy: str | None = None


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
