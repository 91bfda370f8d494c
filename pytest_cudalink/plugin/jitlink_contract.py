"""nvJitLink's contract in a run: shows each violation with the test that made it, and fails that test."""

from __future__ import annotations

import gc
import warnings
from bisect import bisect_left
from collections.abc import Generator
from typing import TYPE_CHECKING, Final

import pytest

from .parts import JITLINK_CONTRACT, LEDGER

if TYPE_CHECKING:
    from ..process.jitlink_contract import ContractViolation
    from .run import Run

__all__ = ["JitLinkContractChecks", "of", "start"]

_SECTION: Final = "cudalink nvJitLink contract"


def of(run: Run) -> JitLinkContractChecks | None:
    """Return the checks of a run; None where they are off, or no native code has been loaded."""
    return run.get(JITLINK_CONTRACT)


def start(run: Run) -> None:
    """Check nvJitLink's contract from now on, if the run wants that and this system can."""
    if run.settings.jitlink_contract.value == "off":
        return
    from ..process import jitlink_contract

    if jitlink_contract.start() is not None:
        run.part(JITLINK_CONTRACT)


class JitLinkContractChecks:
    """A plugin object that reports the violations of a run, each with the test that made it.

    Parameters
    ----------
    run : Run
        One in a process where the checks are possible.

    Attributes
    ----------
    mode : str
        ``"warn"``, ``"fail"`` or ``"strict"``.
    """

    def __init__(self, run: Run) -> None:
        from ..process import jitlink_contract

        contract = jitlink_contract.start()
        assert contract is not None  # (`start` has looked)
        self._run, self._contract = run, contract
        self.mode = run.settings.jitlink_contract.value
        self._waiting: list[ContractViolation] = []
        self._notes: list[str] = []
        self._starts: list[tuple[int, str]] = []
        self._before = contract.handle_count
        contract.take()  # what another run in this process has left
        contract.check(strict=self.mode == "strict")
        run.config.add_cleanup(contract.stop)
        run.follow()

    def maker(self, violation: ContractViolation) -> str | None:
        """Return the test that created the handle of a violation."""
        at = bisect_left(self._starts, (violation.state, ""))
        return self._starts[at - 1][1] if at and violation.state else None

    @property
    def violations(self) -> tuple[ContractViolation, ...]:
        """The violations that were not reported yet."""
        self._waiting += self._contract.take()
        return tuple(self._waiting)

    def consume(self) -> tuple[ContractViolation, ...]:
        """Return the violations that were not reported yet; they fail no test."""
        found = self.violations
        self._waiting.clear()
        return found

    def collect(self, nodeid: str | None) -> tuple[ContractViolation, ...]:
        """Report the violations since the last call, for a test or for none, and return them."""
        new = self.consume()
        if new:
            self._run.part(LEDGER)
        hook, config = self._run.config.hook, self._run.config
        for one in new:
            hook.pytest_cudalink_violation(config=config, violation=one, nodeid=nodeid, maker=self.maker(one))
            if nodeid is None:
                self._report_outside(one)
        return new

    def _report_outside(self, violation: ContractViolation) -> None:
        from . import ledger

        text = ledger.describe(violation, self.maker(violation), None)
        if self.mode == "warn":
            warnings.warn(pytest.PytestWarning(f"cudalink: outside of tests: {text}"), stacklevel=1)
        else:
            ledger.of(self._run).outside.problems.append(text)

    @pytest.hookimpl
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note that handles from now on belong to this test, and violations so far to none."""
        self.collect(None)
        self._notes.clear()
        self._before = self._contract.handle_count
        self._starts.append((self._before, nodeid))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        """Note the handles that the test leaves behind; what collects garbage may still destroy them."""
        try:
            return (yield)
        finally:
            if self._contract.alive(self._before):
                getattr(item, "funcargs", {}).clear()  # the values of fixtures would live until the next test
                gc.collect()
                self._note_left(self._contract.alive(self._before))

    def _note_left(self, handles: list[str]) -> None:
        from . import ledger

        self._notes += [f"{one} and not destroyed" for one in handles]
        if handles:
            ledger.of(self._run).test.undestroyed = len(handles)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Show violations with their test, and fail it, whatever its outcome: a skip or xfail hides nothing."""
        new = self.collect(item.nodeid)
        notes, self._notes = list(dict.fromkeys(self._notes)), []
        report = yield
        if notes:
            report.sections.append((f"{_SECTION}, notes", "\n".join(notes)))
        if not new:
            return report
        from ..plurals import counted
        from . import ledger
        from .facts import fail_with

        text = "\n\n".join(ledger.describe(one, self.maker(one), item.nodeid) for one in new)
        if self.mode == "warn":
            report.sections.append((_SECTION, text))
            return report
        count = f"{counted(len(new), 'violation')} of nvJitLink's contract"
        msg = f"cudalink: {count} during this test's {call.when}:\n{text}"
        fail_with(report, item, _SECTION, text, msg)
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Report what no test shows, before the ledger is closed."""
        self.collect(None)
