"""Processes that tests start on an emulated driver: their lifetime violations, and the calls that it refused them."""

import os
import sys
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from ...base.finding import Violation
from ...base.safe_text import line
from ...emulator import notes
from ..records import RECORD_FILE, RESULTS
from ..run import Run, RunPart
from ..settings import restore
from ..start import from_controller

#: Characters of a command line that a line shows.
_COMMAND: Final = 160
#: Violations after the end of the session that are shown; the record has all of them.
_SAID: Final = 10


class Descendants(RunPart):
    """The notes of the processes that this one has started, and of those that they have started.

    The driver hands the violations of this process to the plugin from now on: a conftest can break a rule while it is
    imported, before there is a check.

    `run`: without an emulated driver, only processes to which `path` is passed leave notes.
    """

    def __init__(self, run: Run) -> None:
        self._run, self._driver = run, run.emulated
        self._violations: list[Violation] = []
        self._refused: list[tuple[str, dict[str, Any]]] = []
        before = os.environ.get(notes.VARIABLE)
        if self._driver is not None:
            self._driver.start_watching()
            run.config.add_cleanup(self._stop)
        self._watches = self._driver is not None
        self._own(from_controller(run.config).get("notes"))
        run.config.add_cleanup(partial(restore, {notes.VARIABLE: before}))

    def _own(self, above: str | None) -> None:
        # what an isolated or repeated test takes of a device, the process that waits for it may have taken, too
        self._notes = notes.own(above, apart=self._run.is_isolated)
        self._notes.at_exit.append(self._end)
        if self._driver is not None:
            os.environ[notes.VARIABLE] = self._notes.path
            self._driver.own_notes(self._notes.path, self._notes.above)

    @property
    def path(self) -> str:
        """The file in which processes below this one leave notes."""
        return self._notes.path

    def count(self) -> bytes:
        """Return the number of notes so far, as their file has it."""
        return self._notes.count()

    def forked(self) -> None:
        """Make this process, a copy of the one that made this object, the one that notes are for.

        What has been noted so far is that process's.
        """
        self._violations, self._refused = [], []
        if self._driver is not None:
            self._driver.consume(self._driver.violations)
        self._own(self._notes.above)

    def drop(self) -> None:
        """Remove the file of a copy that ends and hands over nothing."""
        self._notes.end()

    def hand_over(self) -> None:
        """Let what comes from now on go to the process above, if there is one."""
        if self._notes.above and self._driver is not None:
            os.environ[notes.VARIABLE] = self._notes.above
            self._driver.own_notes(self._notes.above, self._notes.above)
        self._stop()

    def _stop(self) -> None:
        """Let the driver itself report what happens from now on."""
        if self._watches and self._driver is not None:
            self._watches = False
            self._driver.stop_watching()
            self._driver.end_notes(quiet=self._run.reports_elsewhere, fails=self._fails)

    @property
    def _fails(self) -> bool:
        """Whether a violation fails the run; without the check of lifetimes, it is a deadlock."""
        return self._run.settings.lifetime.value != "report"

    def _sort(self, lines: Iterable[dict[str, Any]]) -> None:
        for note in lines:
            from ...emulator.control import violation_of

            noted = violation_of(note)
            if noted.number:
                self._violations.append(noted)
            else:
                self._refused.append((noted.test, {**note, "process": noted.process}))

    def violations(self, *, last: bool = False) -> tuple[Violation, ...]:
        """Return the violations that were not consumed; a last look takes also notes that a dead process left."""
        if noted := self._notes.take() if last else self._notes.take_counted():
            self._sort(noted)
        return tuple(self._violations)

    def consume(self, violations: Iterable[Violation]) -> None:
        """Remove violations from the list, because they were expected or reported."""
        gone = set(map(id, violations))
        self._violations = [violation for violation in self._violations if id(violation) not in gone]

    def refusals(self, nodeid: str = "") -> list[dict[str, Any]]:
        """Return the calls refused since the last call, in processes that a test has started, as their drivers note it.

        `nodeid`: the test; empty for processes that were started outside of tests.
        """
        if noted := self._notes.take_counted():
            self._sort(noted)
        if not self._refused:  # as in nearly every phase of a test
            return []
        refused, self._refused = self._refused, []
        return [note for test, note in refused if test == nodeid]

    def _end(self, lines: list[dict[str, Any]]) -> None:
        """Do what is left when this process ends: fail it, or pass the notes on to the process that fails for them."""
        if self._run.reports_elsewhere and self._notes.above:
            notes.pass_on(self._notes.above, lines)
            return
        self._sort(lines)
        if self.say(self._violations, fails=self._fails) and self._driver is not None:
            self._driver.fail_at_exit()
            if (results := self._run.get(RESULTS)) is not None:
                results.fail_late("a rule was broken when the process ended")

    def last_look(self) -> bool:
        """Report violations of processes below since the end of the session; return whether they fail the run."""
        violations = self.violations(last=True)
        self.consume(violations)
        return self.say(violations, fails=self._fails)

    def say(self, violations: Iterable[Violation], *, fails: bool) -> bool:
        """Write violations after the end of the session to stderr and the record; return whether they fail the run."""
        shown = list(violations)
        here = f"process {os.getpid()} ({' '.join(sys.orig_argv)[:_COMMAND]}): "
        for violation in shown[:_SAID]:
            where = "" if violation.process else here
            consequence = ", so the exit code is not 0" if fails else ""
            said = line(
                f"cudalink: {where}{violation}. This came after pytest's last report{consequence}. {violation.fix}"
            )
            sys.stderr.write(f"{said}\n")
        if shown[_SAID:]:
            sys.stderr.write(f"cudalink: {len(shown) - _SAID} more after pytest's last report\n")
        if shown and (file := self._run.get(RECORD_FILE)) is not None:
            file.add_late(shown)
        return bool(shown) and fails
