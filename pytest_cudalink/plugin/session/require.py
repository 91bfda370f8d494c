"""What must have happened in a run, or it fails: ``--cudalink-require``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import pytest

from ...plurals import counted
from .. import pytest_private
from ..conditions.run_driver import A_DRIVER, FACTS
from ..items.plan import PLAN
from ..parts import FAULTS, LEDGER
from ..records.facts import is_unsupported
from ..watch.check import Check, Phase

if TYPE_CHECKING:
    from ..run import Run

#: On the last report of a test that asked for the driver: whether it ran on one.
_ANSWER: Final = "cudalink_on_driver"


class Required(Check):
    """The check of every process; counts the tests that asked for the driver, by whether they ran on one.

    `unmet`: why the run fails; complete at the end of the session.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._wanted = run.settings.required
        self._skipped = False
        self._driver: bool | None = None
        self._answers: Counter[str] = Counter()
        self.unmet: list[str] = []
        run.part(LEDGER)

    def _asks(self, item: pytest.Item) -> bool:
        plan, settings = item.stash.get(PLAN, None), self._run.settings
        backend = plan.backend if plan is not None else None
        if backend == "driver" or (backend is None and settings.backend.value == "driver"):
            return True
        if "driver" not in self._wanted:
            return False
        needs = plan is not None and any(one.name in FACTS for one in plan.requirements)
        return needs or settings.driver.value not in ("auto", "absent")

    def _has_driver(self) -> bool:
        if self._driver is None:
            from ...probes import libcuda

            try:
                self._driver = bool(libcuda.library())
            except (libcuda.DriverNotFoundError, OSError):
                self._driver = False
        return self._driver

    def sections(self, phase: Phase) -> tuple[()]:
        """Note on the last report of a test that asked for the driver whether it ran on one."""
        report = phase.report
        if phase.when == "setup":
            self._skipped = False
        # a test that is expected to fail has run, and so has one that was skipped for a call that was refused
        if report.skipped and not hasattr(report, "wasxfail") and not is_unsupported(report):
            self._skipped = True
        if phase.when == "teardown" and self._asks(phase.item):
            answer = "skipped" if self._skipped else "ran" if self._has_driver() else "found no driver"
            setattr(report, _ANSWER, answer)
        return ()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the test, wherever it ran."""
        answer: str | None = getattr(report, _ANSWER, None)
        if answer is not None:
            self._answers[answer] += 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Judge the run before pytest writes its JUnit file, whose suite gets what is missing as a property.

        A run that ended early, or that had no test, misses nothing.
        """
        run, option = self._run, session.config.option
        if run.reports_elsewhere or option.collectonly or option.setuponly:
            return
        if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            book = run.part(LEDGER)
            links = book.totals.links.total() + book.outside.links.total()
            self._judge(links, book.totals.missing[A_DRIVER] + book.outside.missing[A_DRIVER])
        if run.settings.properties.value == "on":
            for sentence in self.unmet:
                pytest_private.add_suite_property(session.config, "cudalink.require", sentence)

    def _judge(self, links: int, without_driver: int) -> None:
        """Find what is missing, once all reports are counted.

        `without_driver`: number of tests and modules that were skipped because they need a driver.
        """
        ran, source = self._answers["ran"], f"--cudalink-require is {self._run.settings.require}"
        # a module that could not be collected without a driver has no tests
        skipped = self._answers["skipped"] or without_driver
        if "auto" in self._wanted and skipped and not ran:
            self.unmet.append(
                f"The run fails because no test ran on the driver that was asked for ({skipped} skipped); "
                "--cudalink-require=none allows that."
            )
        if "driver" in self._wanted and not ran:
            asked = self._answers.total()
            found = f"{counted(asked, 'test')} asked for one" if asked else "no test asked for one"
            self.unmet.append(f"The run fails because no test ran on a CUDA driver ({found}); {source}.")
        if "links" in self._wanted and not links:
            self.unmet.append(f"The run fails because nothing was linked; {source}.")
        if "faults" in self._wanted and self._run.settings.faults.value:
            planned = self._run.get(FAULTS)
            if planned is None:
                self.unmet.append(f"The run fails because no emulated driver got --cudalink-faults; {source}.")
                return
            planned.look()
            if never := len(planned.lines()):
                what = f"{counted(never, 'fault')} {'was' if never == 1 else 'were'} never triggered"
                self.unmet.append(f"The run fails because {what}; {source}.")
