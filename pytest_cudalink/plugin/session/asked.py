"""What a run was asked for: each part says how much of it happened, and the run fails for what did not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from ...report.asked_for import AskedFor, judged, left_out, merged, unmet
from .. import pytest_private
from ..parts import FAULT_SWEEP, FAULTS, HAND_OVER, ISOLATION, RECORD_FILE, REQUIRED, SCHEDULES, Key
from . import blocked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..run import Run

#: The parts that a run is asked for; each has a method ``asked`` that returns its entries.
_PARTS: Final[tuple[Key[Any], ...]] = (REQUIRED, FAULTS, ISOLATION, FAULT_SWEEP, SCHEDULES, HAND_OVER)
#: Those of which a controller of xdist has none, and which its workers hand over.
_OF_WORKERS: Final[tuple[Key[Any], ...]] = (ISOLATION,)


class Account:
    """A plugin object of the process that adds up, and of each worker; made by the first part that is asked for.

    `entries`: one for each kind; complete at the end of the session.
    `unmet`: why the run fails.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._of_workers: list[AskedFor] = []
        self.entries: list[AskedFor] = []
        self.unmet: list[str] = []

    def _of(self, keys: Iterable[Key[Any]]) -> Iterator[AskedFor]:
        for key in keys:
            if (part := self._run.get(key)) is not None:
                yield from part.asked()

    def as_json(self) -> list[Any]:
        """Return the entries that only a worker has, for its controller."""
        return [list(entry) for entry in self._of(_OF_WORKERS)]

    def add(self, given: Iterable[Any]) -> None:
        """Add what `as_json` returned in a worker."""
        self._of_workers += [AskedFor(*entry) for entry in given]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Judge the run before pytest writes its JUnit file, whose suite gets what is missing as a property.

        A run that ended early, or that had no test, misses nothing.
        """
        run, option = self._run, session.config.option
        if run.reports_elsewhere or option.collectonly or option.setuponly:
            return
        found = [*blocked.asked(session.config), *self._of(_PARTS), *self._of_workers]
        allows = run.settings.require.value == "none"
        self.entries = [judged(entry, allows=allows) for entry in merged(found)]
        if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            self.unmet = [*filter(None, map(unmet, self.entries))]
        if (file := run.get(RECORD_FILE)) is not None:
            file.write_asked(self.entries)
        if run.settings.properties.value == "on":
            for sentence in self.unmet:
                pytest_private.add_suite_property(session.config, "cudalink.require", sentence)

    def lines(self) -> list[str]:
        """Return what did not happen, in lines of the summary."""
        return [line for entry in self.entries for line in left_out(entry)]
