"""What `hooks` needs of every run: how it began, and whether anything has asked."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace
from typing import Any, Final

import pytest


class Start(SimpleNamespace):
    """How this process was started, as far as code in it can tell, for others that must not differ."""

    path: list[str]  # where modules are searched for
    argv: list[str]
    orig_argv: list[str]
    main_name: str | None  # the main module, for ``python -m``
    main_file: str | None  # its file, if it has one
    environment: dict[str, str]

    @classmethod
    def now(cls) -> Start:
        """Return what this process can tell now."""
        main = sys.modules.get("__main__")
        return cls(
            path=[*sys.path],
            argv=[*sys.argv],
            orig_argv=[*sys.orig_argv],
            main_name=getattr(getattr(main, "__spec__", None), "name", None),
            main_file=getattr(main, "__file__", None),
            environment=dict(os.environ),
        )


#: The run, which something has asked for; how its process was started.
RUN: Final[pytest.StashKey[Any]] = pytest.StashKey()
START: Final[pytest.StashKey[Start]] = pytest.StashKey()


def is_active(config: pytest.Config) -> bool:
    """Whether anything has asked for the plugin."""
    return RUN in config.stash


def from_controller(config: pytest.Config) -> dict[str, Any]:
    """Return what xdist's controller handed over to this worker; empty in every other process."""
    given: dict[str, Any] = getattr(config, "workerinput", {}).get("cudalink", {})
    return given


def warn(config: pytest.Config, text: str) -> None:
    """Warn of what a user asked for, where no test runs.

    Raises pytest.UsageError if a filter makes an error of the warning: raised where pytest configures itself, it would
    be a traceback.
    """
    try:
        config.issue_config_time_warning(pytest.PytestConfigWarning(text), stacklevel=3)  # the place of the caller
    except pytest.PytestConfigWarning as error:
        raise pytest.UsageError(str(error)) from error
