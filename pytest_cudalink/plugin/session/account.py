"""What a run was asked for, and which parts are off: it fails for what did not happen, or not as often as asked."""

from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from typing import Any, Final

import pytest

from ...compat.settings_table import label
from ...report.asked_for import AskedFor, judged, left_out, merged, unmet
from .. import pytest_private
from ..conditions.run_driver import A_DRIVER, FACTS
from ..isolation import ISOLATION
from ..items import PLAN
from ..records import LEDGER, RECORD_FILE
from ..records.ledger import is_unsupported
from ..run import Run
from ..settings import Setting, Settings
from ..watch.check import Check, Phase

#: What is off without a part, and the values of the settings that ask for nothing of it.
_CHECKS: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "lifetimes": ("lifetime checks are off", {"lifetime": "off"}),
    "deadlocks": ("deadlocks in the emulated driver fail no test", {}),
    "order": ("the order of accesses is not checked", {"order": "off"}),
    "no-wait": ("calls that wait fail no test that forbids it", {}),
    "jitlink-contract": ("checks of nvJitLink's contract are off", {"jitlink_contract": "off"}),
    "sticky": ("checks of the contexts after each test are off", {"sticky": "off"}),
    "require": ("nothing is required of the run", {"require": "none"}),
    "provenance": ("checks of where CUDA libraries come from are off", {"provenance": "any"}),
    "mismatches": ("links on another backend than the forced one fail nothing", {"backend": "auto"}),
    "native-links": ("links of native code are not counted", {"unsteered": "allow"}),
    "loaded-modules": ("modules that no seen link made are not counted", {}),
    "causes": ("causes of failures, such as refused calls, are not shown", {"unsupported": "fail"}),
    "faults": ("faults that were not triggered are not shown", {"faults": ""}),
    "event-file": ("events that are missing in the file of events fail nothing", {"events": ""}),
    "record-file": ("no records are written", {"report": ""}),
    "results": ("no records are written", {"report": ""}),
}


def without_blocked(config: pytest.Config, settings: Settings, *, isolated: bool) -> Settings:
    """Turn off, in the settings, what is blocked; return them.

    `isolated`: whether another process waits for this one.
    Raises pytest.UsageError if a part is blocked that a setting asks for, or that cannot be.
    """
    for name, plugin in config.pluginmanager.list_name_plugin():
        part = name.removeprefix("cudalink-")
        if plugin is None and part != name and part not in _CHECKS:
            raise pytest.UsageError(
                f"cudalink: -p no:{name} names no part that can be blocked; expected {', '.join(_CHECKS)}, or turn off "
                "the whole plugin with -p no:cudalink"
            )
    for part in _blocked(config):
        _, idle = _CHECKS[part]
        for name, setting in settings.items():
            if setting.value == idle.get(name, setting.value):
                continue
            if isolated and name == "events":  # from the process that waits, for the last calls before a crash
                continue
            if setting.source != "default":
                raise pytest.UsageError(
                    f"cudalink: {label(name)} is {setting}, and -p no:cudalink-{part} blocks the part that does it; "
                    "leave one of the two out"
                )
            setattr(settings, name, Setting(idle[name], f"-p no:cudalink-{part}"))
    return settings


def blocked_lines(config: pytest.Config) -> list[str]:
    """Return what is off, a line for each part."""
    return [f"{_CHECKS[part][0]}: -p no:cudalink-{part}" for part in _blocked(config)]


def _blocked(config: pytest.Config) -> list[str]:
    return [part for part in _CHECKS if config.pluginmanager.is_blocked(f"cudalink-{part}")]


class Account:
    """A plugin object of the process that adds up, and of each worker; made where anything was asked for.

    `entries`: one for each kind; complete at the end of the session.
    `unmet`: why the run fails.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._of_workers: list[AskedFor] = []
        self.entries: list[AskedFor] = []
        self.unmet: list[str] = []

    def as_json(self) -> list[Any]:
        """Return the entries that only a worker has, for its controller."""
        isolated = self._run.get(ISOLATION)
        return [list(entry) for entry in isolated.asked_for()] if isolated is not None else []

    def add(self, entries: Iterable[Any]) -> None:
        """Add what `as_json` returned in a worker."""
        self._of_workers += [AskedFor(*entry) for entry in entries]

    def end(self, session: pytest.Session) -> None:
        """Judge the run before pytest writes its JUnit file, whose suite gets what is missing as a property.

        A run that ended early, or that had no test, misses nothing.
        """
        run, option = self._run, session.config.option
        if run.reports_elsewhere or option.collectonly or option.setuponly:
            return
        off = dict.fromkeys(blocked_lines(session.config), 1)  # which the user who blocks it allows
        entries = [
            *([AskedFor("checks", len(off), 0, allowed=off)] if off else []),
            *(entry for part in run.asked_for() for entry in part.asked_for()),
            *self._of_workers,
        ]
        allows = run.settings.require.value == "none"
        self.entries = [judged(entry, allows=allows) for entry in merged(entries)]
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


#: On the last report of a test that asked for the driver: whether it ran on one.
_ANSWER: Final = "cudalink_on_driver"


class Require(Check):
    """The check of every process; counts the tests that asked for the driver, by whether they ran on one."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._wanted = run.settings.required
        self._skipped = False
        self._answers: Counter[str | None] = Counter()  # None: of the other reports

    def _asks(self, item: pytest.Item) -> bool:
        plan, settings = item.stash.get(PLAN, None), self._run.settings
        backend = plan.backend if plan is not None else None
        if backend == "driver" or (backend is None and settings.backend.value == "driver"):
            return True
        if "driver" not in self._wanted:
            return False
        needs = plan is not None and any(requirement.name in FACTS for requirement in plan.requirements)
        return needs or settings.driver.value not in ("auto", "absent")

    @cached_property
    def _has_driver(self) -> bool:
        from ...probes import elsewhere

        return elsewhere.driver().exists

    def sections(self, phase: Phase) -> None:
        """Note on the last report of a test that asked for the driver whether it ran on one."""
        report = phase.report
        if phase.when == "setup":
            self._skipped = False
        # a test that is expected to fail has run, and so has one that was skipped for a call that was refused
        if report.skipped and not hasattr(report, "wasxfail") and not is_unsupported(report):
            self._skipped = True
        if phase.when == "teardown" and self._asks(phase.item):
            answer = "skipped" if self._skipped else "ran" if self._has_driver else "found no driver"
            setattr(report, _ANSWER, answer)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the test, wherever it ran."""
        self._answers[getattr(report, _ANSWER, None)] += 1

    def asked_for(self) -> list[AskedFor]:
        """Return how many tests ran on the driver that they asked for, and how many links were made."""
        book, ran, entries = self._run.part(LEDGER), self._answers["ran"], []
        if "driver" in self._wanted:
            left = {why: self._answers[why] for why in ("skipped", "found no driver") if self._answers[why]}
            if not ran and not left:
                left = {"no test asked for a CUDA driver": 1}
            entries.append(_unless_some(AskedFor("driver", ran + sum(left.values()), ran, left)))
        elif "auto" in self._wanted:
            # a module that could not be collected without a driver has no tests
            without = book.totals.missing[A_DRIVER] + book.outside.missing[A_DRIVER]
            skipped = self._answers["skipped"] or without
            left = {"skipped": skipped} if skipped else {}
            entries.append(_unless_some(AskedFor("driver", ran + skipped, ran, left)))
        if "links" in self._wanted:
            links = book.totals.links.total() + book.outside.links.total()
            entries.append(AskedFor("links", links or 1, links, {} if links else {"no target linked anything": 1}))
        return entries


def _unless_some(entry: AskedFor) -> AskedFor:
    """Return an entry that allows what is left out, such as skipped tests, if some of it happened."""
    return entry._replace(left={}, allowed=entry.left) if entry.happened else entry
