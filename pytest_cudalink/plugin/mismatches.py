"""Fails what linked on another backend than the forced one."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from . import ledger
from .facts import fail

if TYPE_CHECKING:
    from ..targets import ForcedBackendError
    from .run import Run

__all__ = ["Mismatches"]


class Mismatches:
    """A plugin object, there once a target linked otherwise than it was forced: no test passes over that.

    The error may be caught by the code that linked, expected by the test, or raised where no test runs; the next report
    of a phase fails with it then, or the run.

    Attributes
    ----------
    pending : list of ForcedBackendError
        Those that no report has shown.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.pending: list[ForcedBackendError] = []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        text = "\n".join(map(str, self.pending))
        self.pending = []
        if text:
            fail(report, "cudalink forced backend", text)
        return report

    def session_finish(self) -> None:
        """Fail the run for those that no report will show.

        Not a hook: another plugin's `pytest_sessionfinish` can be what linked first, too late for pytest to call this.
        """
        ledger.of(self._run).outside.problems += map(str, self.pending)
