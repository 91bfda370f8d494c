"""The tests that asked for a driver, and the links: what ``--cudalink-require`` names."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import pytest

from ...report.asked_for import AskedFor
from ..conditions.run_driver import A_DRIVER, FACTS
from ..items import PLAN
from ..parts import ASKED, LEDGER
from ..records.facts import is_unsupported
from ..watch.check import Check, Phase

if TYPE_CHECKING:
    from ..run import Run

#: On the last report of a test that asked for the driver: whether it ran on one.
_ANSWER: Final = "cudalink_on_driver"


class Required(Check):
    """The check of every process; counts the tests that asked for the driver, by whether they ran on one."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._wanted = run.settings.required
        self._skipped = False
        self._driver: bool | None = None
        self._answers: Counter[str | None] = Counter()  # None: of the other reports
        run.part(ASKED)

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
            from ...environment.facts import driver_exists

            self._driver = driver_exists()
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
        self._answers[getattr(report, _ANSWER, None)] += 1

    def asked(self) -> list[AskedFor]:
        """Return how many tests ran on the driver that they asked for, and how many links were made."""
        book, ran, found = self._run.part(LEDGER), self._answers["ran"], []
        if "driver" in self._wanted:
            left = {why: self._answers[why] for why in ("skipped", "found no driver") if self._answers[why]}
            if not ran and not left:
                left = {"no test asked for a CUDA driver": 1}
            found.append(_unless_some(AskedFor("driver", ran + sum(left.values()), ran, left)))
        elif "auto" in self._wanted:
            # a module that could not be collected without a driver has no tests
            without = book.totals.missing[A_DRIVER] + book.outside.missing[A_DRIVER]
            skipped = self._answers["skipped"] or without
            left = {"skipped": skipped} if skipped else {}
            found.append(_unless_some(AskedFor("driver", ran + skipped, ran, left)))
        if "links" in self._wanted:
            links = book.totals.links.total() + book.outside.links.total()
            found.append(AskedFor("links", links or 1, links, {} if links else {"no target linked anything": 1}))
        return found


def _unless_some(entry: AskedFor) -> AskedFor:
    """Return an entry that allows what is left out, such as skipped tests, if some of it happened."""
    return entry._replace(left={}, allowed=entry.left) if entry.happened else entry
