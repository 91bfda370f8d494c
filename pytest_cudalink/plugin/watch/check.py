"""What the checks of a run have in common, and the reporter that asks them and shows what they have seen."""

import gc
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from ...base.finding import Finding, RerunFinding
from ...base.safe_text import block, line
from ..records import LEDGER, RECORD_FILE
from ..records.ledger import fail_with, skip_unsupported
from ..run import MakesReport, Run, RunPart


def _safe(finding: Finding) -> Finding:
    """Return what is safe to show: a check has texts of processes, libraries and kernels."""
    return replace(finding, kind=line(finding.kind), what=block(finding.what))


def section_of(finding: Finding) -> tuple[str, str]:
    """Return title and text of the section that shows a finding: its evidence, or else what it is."""
    return finding.kind, block("\n".join(finding.evidence)) or finding.what


class Phase:
    """A phase of a test that has ended. `when`: ``"setup"``, ``"call"`` or ``"teardown"``."""

    report: pytest.TestReport  # there when `Check.sections` is called, with what earlier checks have shown

    def __init__(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        self.item, self.nodeid, self.when, self._call = item, item.nodeid, call.when, call

    @property
    def error(self) -> BaseException | None:
        """What was raised; of a test of unittest's known only when `report` is there."""
        return self._call.excinfo.value if self._call.excinfo is not None else None


class Check(RunPart):
    """A part of a run that watches something; `Reporter` calls the methods in this order, as far as a check has them.

    Of a `Finding`, `kind` is the title of its section, and `evidence` the text there, by default `what`, which is the
    reason of a skip and the first line of a failure. An error fails the test, or the run outside of tests; a warning
    does where the run turns warnings into errors; a note fails nothing. An unknown skips the test, which failed.
    """

    category: type[Warning] = pytest.PytestWarning  # of its warnings
    #: Whether a passing test about which the signs say nothing leaves nothing to see: see `Reporter.add_signs`.
    has_signs = False

    def __init__(self, run: Run) -> None:
        self._run, self._reporter = run, run.part(Reporter)

    def between(self) -> Iterable[Finding] | None:
        """Return what was seen since the last phase, outside of tests: asked before each test."""

    def begin(self, nodeid: str) -> None:
        """Prepare for a test that begins."""

    def leaves(self) -> bool:
        """Whether a test that was torn down leaves objects that should be destroyed before its report is made."""
        return False

    def look(self, phase: Phase) -> None:
        """Look at a phase before its report is made."""

    def sections(self, _phase: Phase) -> Iterable[Finding] | None:
        """Return what was seen in a phase."""

    def end(self, _session: pytest.Session) -> Iterable[Finding] | None:
        """Return findings after the last test: before the account judges, and before pytest writes its JUnit file."""

    def finish(self) -> Iterable[Finding] | None:
        """Return findings that belong to no test, as the session ends: asked after `between`."""

    def lines(self) -> Iterable[str]:
        """Return the lines of the summary on the whole, besides the findings."""
        return ()


class Reporter(RunPart):
    """A plugin object, there with the first check: shows what the checks see, in the order of their registration.

    Its wrappers are the outermost, so that no outcome of a test hides what was seen: neither a skip nor an xfail.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._checks: list[Check] = []
        #: By method: the checks that have their own, so that a phase asks no check in vain; and those without signs.
        self._all: dict[str, list[Check]] = {name: [] for name in ("between", "begin", "leaves", "look", "sections")}
        self._without: dict[str, list[Check]] = {name: [] for name in self._all}
        self._signs: list[Callable[[], object]] = []
        self._seen: list[object] = []  # what the signs said at the end of the last test
        self._awake = 0  # for how many tests, with the current one, checks with signs are asked

    def pytest_plugin_registered(self, plugin: object) -> None:
        """Take up a check; one that ``-p no:`` blocks is never registered."""
        if isinstance(plugin, Check):
            self._checks.append(plugin)
            for name, checks in self._all.items():
                if getattr(type(plugin), name) is not getattr(Check, name):
                    checks.append(plugin)
                    if not plugin.has_signs:
                        self._without[name].append(plugin)

    def add_signs(self, *signs: Callable[[], object]) -> None:
        """Call these functions, too: each returns something else as soon as a check that has signs can see something.

        Such a check is asked during a test in which a sign changes or a phase fails, and during the test after it.
        """
        self._signs += signs

    def _read(self, *, failed: bool) -> list[object]:
        """Return what the signs say."""
        now = [sign() for sign in self._signs]
        self._awake = 2 if failed or not now or now != self._seen else self._awake
        self._asked = self._all if self._awake else self._without
        return now

    def between(self, checks: Iterable[Check] | None = None) -> None:
        """Show what was seen since the last phase, outside of tests, by all checks or by some."""
        for check in self._all["between"] if checks is None else checks:
            if findings := check.between():  # asked before each test
                self.show_outside(findings, check.category)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._read(failed=False)
        self.between(self._asked["between"])
        for check in self._all["begin"]:
            check.begin(nodeid)

    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> MakesReport:
        phase, ends, now = Phase(item, call), call.when == "teardown", self._read(failed=call.excinfo is not None)
        try:
            # destroy what the test leaves behind: collecting all garbage takes longer than most tests
            if ends and any(check.leaves() for check in self._asked["leaves"]):
                getattr(item, "funcargs", {}).clear()  # the values of fixtures would live until the next test
                gc.collect()
            for check in self._asked["look"]:
                check.look(phase)
        except pytest.fail.Exception:  # a limit of time, as of pytest-timeout, which would end the run here
            if isinstance(phase.error, (type(None), pytest.skip.Exception, pytest.xfail.Exception)):
                call.excinfo = pytest.ExceptionInfo.from_current()
        phase.report = report = yield
        if not report.passed:
            self._awake, self._asked = 2, self._all
        for check in self._asked["sections"]:
            if findings := check.sections(phase):
                self.show(item, report, findings, check.category)
        if ends:
            self._seen, self._awake = now, self._awake - (self._awake > 0)
            self._run.part(LEDGER).put_on(report)
        return report

    def show(
        self,
        item: pytest.Item,
        report: pytest.TestReport,
        findings: Iterable[Finding],
        category: type[Warning] = pytest.PytestWarning,
    ) -> None:
        """Show what was seen under the report of a test, and let it count."""
        for finding in map(_safe, findings):
            title, text = section = section_of(finding)
            match finding.severity:
                case "error":
                    fail_with(report, item, title, text, f"{finding.what}\n{text}" if finding.evidence else "")
                case "warning":
                    try:
                        item.warn(category(text))
                    except category:
                        fail_with(report, item, title, text)
                case "note":
                    report.sections.append(section)
                case "unknown":
                    report.sections.append(section)
                    path, number, _ = item.reportinfo()
                    skip_unsupported(report, (str(path), (number or 0) + 1, f"Skipped: {finding.what}"))

    def show_outside(self, findings: Iterable[Finding] | None, category: type[Warning] = pytest.PytestWarning) -> None:
        """Keep what was seen outside of tests, or in reruns of them, for the summary, or warn of it."""
        for finding in map(_safe, findings or ()):
            outside = self._run.part(LEDGER).outside
            if isinstance(finding, RerunFinding):
                text = "\n".join([finding.what, f"  repeat: {finding.repeat}", *finding.evidence])
                outside.reruns.append((finding.category, text))
                if (file := self._run.get(RECORD_FILE)) is not None:
                    from ...report.records import FindingRecord

                    file.write(FindingRecord, finding, nodeid=finding.place)
            elif finding.severity == "note":
                outside.notes.append(finding.what)
            elif finding.severity == "error":
                outside.problems.append(finding.what)
            else:
                try:
                    self._run.config.issue_config_time_warning(category(finding.what), stacklevel=2)
                except category:
                    outside.problems.append(finding.what)

    def end(self, session: pytest.Session) -> None:
        """Show what is known after the last test."""
        for check in self._checks:
            self.show_outside(check.end(session), check.category)

    def lines(self) -> list[str]:
        """Return the lines of the summary on what was watched."""
        return [text for check in self._checks for text in check.lines()]

    def finish(self) -> None:
        """Show what no test shows.

        Not a hook: another plugin's `pytest_sessionfinish` can be what a check sees first, too late for pytest to call
        this.
        """
        self.between()
        for check in self._checks:  # one that has been made just now is asked, too
            self.show_outside(check.finish(), check.category)
