"""Variables of the environment that look like settings of the plugin and that no part reads: a typing error, mostly."""

from __future__ import annotations

import os

import pytest

from .. import run
from ..settings import OPTIONS

__all__ = ["unread", "warn"]


def unread() -> list[str]:
    """Return a sentence for each variable that no part reads."""
    given = [name for name in os.environ if name.startswith("CUDALINK_")]
    if not given:
        return []
    from ...compat.variables import unread_variables

    return unread_variables(given, {option.env for option in OPTIONS})


def warn(config: pytest.Config) -> None:
    """Warn of each variable that no part reads; an error as that of `run.warn`."""
    for sentence in unread():
        run.warn(config, f"cudalink: {sentence}")
