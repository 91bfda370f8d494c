"""The pytest plugin, by the name that its entry point has; `hooks` is what pytest calls."""

from .. import own_imports

with own_imports():
    from .hooks import *  # noqa: F403 (the hooks)


def __dir__() -> list[str]:
    """Return the names of the hooks: pytest and pluggy look at each name, for a hook or a fixture."""
    return [name for name in globals() if name.startswith("pytest_")]
