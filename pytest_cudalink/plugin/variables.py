"""Variables of the environment that look like settings of the plugin and that no part reads: a typing error, mostly."""

from __future__ import annotations

import os

import pytest

from .settings import OPTIONS

__all__ = ["unread", "warn"]


def unread() -> list[str]:
    """Return a sentence for each such variable."""
    given = [name for name in os.environ if name.startswith("CUDALINK_")]
    if not given:
        return []
    from ..compat.variables import unread_variables

    return unread_variables(given, {option.env for option in OPTIONS})


def warn(config: pytest.Config) -> None:
    """Warn of each such variable.

    Raises
    ------
    pytest.UsageError
        If a filter makes an error of the warning: raised where pytest configures itself, it would be a traceback.
    """
    for sentence in unread():
        try:
            config.issue_config_time_warning(pytest.PytestConfigWarning(f"cudalink: {sentence}"), stacklevel=2)
        except pytest.PytestConfigWarning as error:
            raise pytest.UsageError(str(error)) from error
