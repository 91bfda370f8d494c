"""What both checks of violations do: show each violation with the test during which it happened, and fail that test."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, ClassVar

from ...base.finding import Finding, Severity, Violation
from ...base.words import counted
from ..parts import DEADLOCKS, DESCENDANTS, JITLINK_CONTRACT, LIFETIMES, ORDER
from ..records.facts import VIOLATIONS
from .check import Check, Phase

if TYPE_CHECKING:
    from ..run import Run


def last_look(run: Run) -> bool:
    """Say the violations of a run since the end of its session; return whether they fail it.

    A process that reports elsewhere has handed over to the process above it.
    """
    if run.reports_elsewhere:
        return False
    fails = False
    checks: tuple[ViolationCheck | None, ...] = (
        *(run.get(LIFETIMES), run.get(DEADLOCKS), run.get(ORDER), run.get(JITLINK_CONTRACT)),
    )
    for check in checks:
        if check is not None and (found := check.violations):
            check.consume(found)
            fails |= run.part(DESCENDANTS).say(found, fails=check.mode != "report")
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
        self._severity: Severity = "note" if mode == "report" else "error"

    # -- the source

    @property
    def violations(self) -> tuple[Violation, ...]:
        """The violations that were not consumed."""
        raise NotImplementedError

    def consume(self, violations: tuple[Violation, ...]) -> None:
        """Remove violations, because they were expected or reported."""
        raise NotImplementedError

    @property
    def handle_count(self) -> int:
        """Number of handles that were created so far."""
        return 0

    # -- the check

    def maker(self, violation: Violation) -> str | None:
        """Return the test that created the handle of a violation, or that started its process."""
        if violation.process:
            return violation.test or None
        at = bisect_left(self._starts, (violation.handle, "")) if self.handle else 0
        return self._starts[at - 1][1] if at else None

    def belongs_to(self, nodeid: str | None, violation: Violation) -> bool:  # noqa: ARG002 (for those that override it)
        """Whether a violation that was noted during a test, or outside of tests, was made there."""
        return True

    def collect(self, nodeid: str | None) -> None:
        """Report the violations since the last call, for a test or for none."""
        new = self.violations
        if not new:
            return
        self.consume(new)
        hook, config = self._run.config.hook, self._run.config
        for one in new:
            test = nodeid if self.belongs_to(nodeid, one) else None
            hook.pytest_cudalink_violation(config=config, violation=one, nodeid=test, maker=self.maker(one))
            if test is None:
                self._reporter.show_outside([self._seen_outside(self._described(one, None))])
            else:
                self._new.append(one)

    def _described(self, violation: Violation, nodeid: str | None) -> str:
        """Return a violation in several lines, with the test that created the handle if that is another one."""
        maker = self.maker(violation)
        if maker in (nodeid, None):
            return violation.long_repr
        made = "process was started" if violation.process else f"{self.handle} was created"
        return f"{violation.long_repr}\nThe {made} by {maker}."

    def _seen_outside(self, text: str) -> Finding:
        return Finding(self._severity, text, kind=self.title)

    def between(self) -> tuple[()]:
        self.collect(None)
        return ()

    def begin(self, nodeid: str) -> None:
        """Note that handles from now on belong to this test."""
        self._new.clear()
        self._starts.append((self.handle_count, nodeid))

    def look(self, phase: Phase) -> None:
        self.collect(phase.nodeid)

    def sections(self, phase: Phase) -> Iterable[Finding]:
        return self._sections(phase.nodeid, f"during this test's {phase.when}") if self._new else ()

    def _sections(self, nodeid: str, when: str) -> Iterator[Finding]:
        new, self._new = self._new, []
        if new:
            text = "\n\n".join(self._described(one, nodeid) for one in new)
            number = counted(len(new), *VIOLATIONS[self.name][:2])
            yield Finding(self._severity, text, why=f"cudalink: {number} {when}:\n{text}", kind=self.title)


class DriverCheck(ViolationCheck):
    """A check whose source is the emulated driver."""

    def __init__(self, run: Run, mode: str) -> None:
        assert run.emulated is not None  # (`lifecycle` has looked)
        super().__init__(run, mode)
        self.driver = run.emulated

    @property
    def violations(self) -> tuple[Violation, ...]:
        found = self.driver.violations
        return tuple(one for one in found if one.check == self.name) if found else ()

    def consume(self, violations: tuple[Violation, ...]) -> None:
        self.driver.consume(violations)
