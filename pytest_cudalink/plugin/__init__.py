"""The pytest plugin, by the name that its entry point has; `hooks` is what pytest calls.

Pytest loads by itself what it imports by name, at ten times the cost: nothing but this module and `own_imports`.
"""

from .own_imports import own_imports

with own_imports():
    from .hooks import *  # noqa: F403 (the hooks)


def __dir__() -> list[str]:
    """Return the names of the hooks: pytest and pluggy look at each name, for a hook or a fixture."""
    return [name for name in globals() if name.startswith("pytest_")]
