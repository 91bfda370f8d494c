"""The checks of rules that a program breaks: each violation is shown with the test during which it happened.

Those of an emulated driver are its lifetimes, deadlocks, and accesses that nothing orders; another is that of lost
events. nvJitLink's contract is checked without one.
"""

from __future__ import annotations

import gc
import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from ...base.finding import Finding, Severity, Violation
from ...base.words import counted
from ...loader.jitlink import jitlink_calls, jitlink_contract
from ..conditions import run_driver
from ..records import LEDGER
from ..records.ledger import VIOLATIONS
from ..run import Run
from . import DESCENDANTS
from .check import Check, Phase

if TYPE_CHECKING:
    import pytest


def last_look(run: Run) -> bool:
    """Report the violations of a run since the end of its session; return whether they fail it.

    A process that reports elsewhere has handed over to the process above it.
    """
    if run.reports_elsewhere:
        return False
    fails = False
    for kind in (Lifetimes, Deadlocks, Order, JitlinkContract):
        check: ViolationCheck | None = run.get(kind)
        if check is not None and (violations := check.violations):
            check.consume(violations)
            fails |= run.part(DESCENDANTS).say(violations, fails=check.mode != "report")
    if (below := run.get(DESCENDANTS)) is not None and run.settings.lifetime.value != "off":
        fails |= below.last_look()
    return fails


class ViolationCheck(Check):
    """A check whose source notes violations; a subclass says which. `mode`: the value of its setting."""

    name: ClassVar[str]  # as `Violation.check`
    title: ClassVar[str]  # title of the section
    handle: ClassVar[str] = ""  # what a test creates and another may break; empty where a violation has no such maker

    def __init__(self, run: Run, mode: str) -> None:
        super().__init__(run)
        self.mode = mode
        self._starts: list[tuple[int, str]] = []
        self._new: list[Violation] = []
        self._waiting: list[Violation] = []
        self._severity: Severity = "note" if mode == "report" else "error"

    # -- the source

    def take(self) -> tuple[Violation, ...]:
        """Return the violations since the last call, where the source keeps none."""
        return ()

    @property
    def violations(self) -> tuple[Violation, ...]:
        """The violations that were not consumed."""
        self._waiting += self.take()
        return tuple(self._waiting)

    def consume(self, violations: tuple[Violation, ...]) -> None:
        """Remove violations, because they were expected or reported."""
        self._waiting = [violation for violation in self._waiting if violation not in violations]

    @property
    def handle_count(self) -> int:
        """Number of handles that were created so far."""
        return 0

    # -- the check

    def maker(self, violation: Violation) -> str | None:
        """Return the test that created the handle of a violation, or that started its process."""
        if violation.process:
            return violation.test or None
        at = bisect_left(self._starts, (violation.handle, ""))
        return self._starts[at - 1][1] if at else None

    def belongs_to(self, nodeid: str | None, violation: Violation) -> bool:  # noqa: ARG002 (for those that override it)
        """Whether a violation that was noted during a test, or outside of tests, was made there."""
        return True

    def collect(self, nodeid: str | None) -> None:
        """Report the violations since the last call, for a test or for none."""
        if not (new := self.violations):
            return
        self.consume(new)
        hook, config = self._run.config.hook, self._run.config
        for violation in new:
            test = nodeid if self.belongs_to(nodeid, violation) else None
            hook.pytest_cudalink_violation(config=config, violation=violation, nodeid=test, maker=self.maker(violation))
            if test is None:
                self._reporter.show_outside([self._seen_outside(self._described(violation, None))])
            else:
                self._new.append(violation)

    def _described(self, violation: Violation, nodeid: str | None) -> str:
        """Return a violation in several lines, with the test that created the handle if that is another one."""
        maker = self.maker(violation)
        if maker in (nodeid, None):
            return violation.long_repr
        made = "process was started" if violation.process else f"{self.handle} was created"
        return f"{violation.long_repr}\nThe {made} by {maker}."

    def _seen_outside(self, text: str) -> Finding:
        return Finding(self._severity, text, kind=self.title)

    def between(self) -> None:
        self.collect(None)

    def begin(self, nodeid: str) -> None:
        """Note that handles from now on belong to this test."""
        self._new.clear()
        if self.handle:
            self._starts.append((self.handle_count, nodeid))

    def look(self, phase: Phase) -> None:
        self.collect(phase.nodeid)

    def sections(self, phase: Phase) -> Iterable[Finding]:
        return self._sections(phase.nodeid, f"during this test's {phase.when}") if self._new else ()

    def _sections(self, nodeid: str, when: str) -> Iterator[Finding]:
        new, self._new = self._new, []
        if new:
            text = "\n\n".join(self._described(violation, nodeid) for violation in new)
            number = counted(len(new), *VIOLATIONS[self.name][:2])
            yield Finding(self._severity, f"cudalink: {number} {when}:", evidence=(text,), kind=self.title)


class DriverCheck(ViolationCheck):
    """A check whose source is the emulated driver."""

    has_signs = True

    def __init__(self, run: Run, mode: str) -> None:
        assert run.emulated is not None  # (`lifecycle` has looked)
        super().__init__(run, mode)
        self.driver = run.emulated

    @property
    def violations(self) -> tuple[Violation, ...]:
        violations = self.driver.violations
        return violations and tuple(violation for violation in violations if violation.check == self.name)

    def consume(self, violations: tuple[Violation, ...]) -> None:
        self.driver.consume(violations)


# -- of an emulated driver


class Deadlocks(DriverCheck):
    """Fails each test in which all threads wait in the driver, which gives them up."""

    name, title = "deadlock", "cudalink deadlock"

    def __init__(self, run: Run) -> None:
        super().__init__(run, "fail")
        if run.is_worker:
            self.driver.find_messenger()


class Order(DriverCheck):
    """Reports each pair of accesses to memory that no stream, event or wait orders."""

    name, title = "order", "cudalink order"

    def __init__(self, run: Run) -> None:
        super().__init__(run, run.settings.order.value)
        self.driver.check_order(on=True)
        run.config.add_cleanup(partial(self.driver.check_order, on=False))

    def begin(self, nodeid: str) -> None:
        """Name a pair again that an earlier test had."""
        self.driver.check_order(on=True)
        super().begin(nodeid)


def lose_events(run: Run, why: str) -> None:
    """Add the problem that events of a process are missing in the event file; the run shows it once."""
    file = f"cudalink_events is {run.settings.events}"
    if run_driver.inherited(run.config):
        file = f"CUDALINK_EMULATOR_EVENTS is {os.environ.get('CUDALINK_EMULATOR_EVENTS')}"
    run.part(LEDGER).outside.unwritten.append(
        f"the events of the emulated driver cannot be written: {file}: {why}; calls are missing in that file"
    )


class EventFile(Check):
    """The check, at the end, whether the driver of this process wrote every event."""

    def finish(self) -> None:
        if self._run.emulated is not None and (why := self._run.emulated.event_file_error):
            lose_events(self._run, why)


#: Bytes of a test's name from which on a note may have it cut.
_CUT: Final = 600


class Lifetimes(DriverCheck):
    """Reports the violations of a run on an emulated driver, in this process and in those below it."""

    name, title, handle = "lifetimes", "cudalink lifetimes", "link state"

    def __init__(self, run: Run) -> None:
        super().__init__(run, run.settings.lifetime.value)
        self._alive = 0
        #: Whether processes that name no test belong to the test, as its own process does.
        self._starts_all = False
        self._below = run.part(DESCENDANTS)

    @property
    def violations(self) -> tuple[Violation, ...]:
        return super().violations + self._below.violations()

    def consume(self, violations: tuple[Violation, ...]) -> None:
        super().consume(violations)
        self._below.consume(violations)

    @property
    def handle_count(self) -> int:
        return self.driver.state_count

    def belongs_to(self, nodeid: str | None, violation: Violation) -> bool:
        test = violation.test
        if not violation.process or (self._starts_all and not test):
            return True
        return nodeid is not None and (test == nodeid or (len(test.encode()) > _CUT and nodeid.startswith(test)))

    def begin(self, nodeid: str) -> None:
        self._alive = self.driver.live_states
        super().begin(nodeid)

    def leaves(self) -> bool:
        return self.driver.live_states > self._alive

    def add_late(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """Show violations after the last report of the process of a test, and fail the test."""
        self._starts_all = True  # this process runs no test itself
        self.collect(item.nodeid)
        self._starts_all = False
        if self._new and hasattr(report, "cudalink"):
            counts = report.cudalink["violations"]
            counts[self.name] = counts.get(self.name, 0) + len(self._new)
        self._reporter.show(item, report, self._sections(item.nodeid, "after this test's last report"))

    def finish(self) -> Iterator[Finding]:
        """Report what no test shows; fail the run if a violation was lost on the way.

        The driver counts by itself, so that an error in the Python code that it calls hides nothing.
        """
        if self.driver.live_states:
            gc.collect()
        self.collect(None)
        if self._run.reports_elsewhere:
            self._below.hand_over()  # before the results are: what comes later goes to the process that takes them
        if lost := self.driver.lost_violations:
            text = (
                f"{counted(lost, 'lifetime violation')} could not be shown: the driver counted more than the plugin "
                "received; the output on stderr says why. Run with -o cudalink_events=FILE and look there"
            )
            yield Finding("error", text, kind=self.title)


# -- nvJitLink


def watch_nvjitlink(run: Run) -> None:
    """Let every call be checked from now on, if run and system allow it; `check_nvjitlink` makes the check."""
    mode = run.settings.jitlink_contract.value
    if mode != "off" and (contract := jitlink_contract.start()) is not None:
        contract.take()  # what another run in this process has left
        contract.check(strict=mode == "strict")
        run.config.add_cleanup(contract.stop)


def check_nvjitlink(run: Run) -> None:
    """Report the violations since `watch_nvjitlink`."""
    if run.settings.jitlink_contract.value != "off" and jitlink_contract.start() is not None:
        run.part(JitlinkContract)


class JitlinkContract(ViolationCheck):
    """Reports the violations of a run in a process where they can be seen."""

    name, title, handle, has_signs = "jitlink-contract", "cudalink nvJitLink contract", "handle", True

    def __init__(self, run: Run) -> None:
        contract = jitlink_contract.start()
        assert contract is not None  # (`check_nvjitlink` has looked)
        super().__init__(run, run.settings.jitlink_contract.value)
        self._contract = contract
        self._notes: list[str] = []
        self._before = contract.handle_count
        self._reporter.add_signs(jitlink_calls.counter())

    def take(self) -> tuple[Violation, ...]:
        return self._contract.take()

    @property
    def handle_count(self) -> int:
        return self._contract.handle_count

    def _seen_outside(self, text: str) -> Finding:
        if self.mode == "report":
            return Finding("warning", f"cudalink: outside of tests: {text}", kind=self.title)
        return super()._seen_outside(text)

    def begin(self, nodeid: str) -> None:
        super().begin(nodeid)
        self._before = self._starts[-1][0]

    def _alive(self) -> list[str]:
        return self._contract.alive(self._before) if self.handle_count != self._before else []

    def leaves(self) -> bool:
        return bool(self._alive())

    def look(self, phase: Phase) -> None:
        super().look(phase)
        # what had to be destroyed has been: see `leaves`
        if phase.when == "teardown" and (handles := self._alive()):
            self._notes = [f"{handle} and not destroyed" for handle in handles]
            self._run.part(LEDGER).test.undestroyed = len(handles)

    def sections(self, phase: Phase) -> Iterable[Finding]:
        if not self._notes:
            return super().sections(phase)
        notes, self._notes = self._notes, []
        return [Finding("note", "\n".join(notes), kind=f"{self.title}, notes"), *super().sections(phase)]
