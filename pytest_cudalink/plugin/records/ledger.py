"""The ledger of a run: adds up what the hooks of `hookspecs` report, as facts of each test and of the run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import pytest

from ...base.finding import Finding, Violation
from ...report.wording import cause_record, explanation, link_key, verdict_record
from .. import pytest_private
from ..run import Run, RunPart

if TYPE_CHECKING:
    from ...guardrails import Verdict
    from ...targets import LinkEvent, UnsteeredLink

#: By check: a violation and several, and the property with the number of those of a test.
VIOLATIONS: Final = {
    "lifetimes": ("lifetime violation", "lifetime violations", "cudalink.violations"),
    "order": ("unordered pair of accesses", "unordered pairs of accesses", "cudalink.order"),
    "wait": ("hidden wait", "hidden waits", "cudalink.waits"),
    "deadlock": ("deadlock", "deadlocks", "cudalink.deadlock"),
    "jitlink-contract": (
        "violation of nvJitLink's contract",
        "violations of nvJitLink's contract",
        "cudalink.jitlink_contract",
    ),
}
#: What other runs of tests have shown, by category: a noun, and how they ran.
RERUNS: Final = {"fault": ("finding", "of the fault sweep"), "schedule": ("failure", "under schedules")}


class Counts:  # no dataclass: every run with an emulated driver would pay for the methods that it generates
    """What is counted in tests and outside of them; travels as plain values that cross a process border."""

    def __init__(self) -> None:
        self.links: Counter[str] = Counter()  # number of links by `target/backend`
        self.unsteered: Counter[str] = Counter()  # number of links that no target steers, by `unsteered.key`
        self.violations: Counter[str] = Counter()  # number of violations by check
        self.verdicts: list[dict[str, Any]] = []  # verdicts of the guard rails
        self.unsupported: dict[str, str] = {}  # targets that cannot be steered, with the reason

    def as_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return {name: dict(value) if isinstance(value, Counter) else value for name, value in vars(self).items()}


class Facts(Counts):
    """What one attempt of a test did; travels on its last report."""

    def __init__(self) -> None:
        super().__init__()
        self.undestroyed = 0  # number of nvJitLink handles that the test left behind
        self.documented: dict[str, str] | None = None  # the failure that the test asserted: `requirement` and `raises`
        self.missing: str | None = None  # the requirement that the skipped test needs
        # calls that the emulated driver refused and because of which the test failed: `function` and `note`
        self.refused: list[dict[str, str]] = []
        self.passed_over: list[str] = []  # functions that the driver refused in phases which did not fail
        self.cause: Finding | None = None  # why the test failed
        # the error with which the test left the contexts of its process: `code` and `error`; code -1 for work that does
        # not end
        self.sticky: dict[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return {**super().as_json(), "cause": self.cause and cause_record(self.cause)}

    def refuse(self, cause: Finding) -> None:
        """Keep why a phase failed: the first cause, and the functions of the last phase in which some were refused."""
        self.cause = self.cause or cause
        self.refused = [{"function": function, "note": note} for function, note in cause.evidence] or self.refused

    def properties(self) -> list[tuple[str, str]]:
        """The facts as properties of a JUnit report, without those that are empty."""
        values = {
            "cudalink.links": _counts(self.links),
            "cudalink.unsteered": _counts(self.unsteered),
            **{name: str(self.violations[check] or "") for check, (*_, name) in VIOLATIONS.items()},
            "cudalink.documented": self.documented and "{requirement}: {raises}".format(**self.documented),
            "cudalink.missing": self.missing,
            "cudalink.sticky": self.sticky and self.sticky["error"],
            "cudalink.refused": " ".join(call["function"] for call in self.refused),
            "cudalink.cause": self.cause and explanation(self.cause),
        }
        return [(name, str(value)) for name, value in values.items() if value]


def _counts(counter: Counter[str]) -> str:
    return " ".join(f"{key}={count}" for key, count in sorted(counter.items()))


#: On the report of a phase that failed because of a refused call and was turned into a skip.
_UNSUPPORTED: Final = "cudalink_unsupported"


def skip_unsupported(report: pytest.TestReport, longrepr: tuple[str, int, str]) -> None:
    """Turn the report of a failure that a refused call caused into one of a skip."""
    report.outcome, report.longrepr = "skipped", longrepr
    setattr(report, _UNSUPPORTED, True)


def is_unsupported(report: pytest.TestReport) -> bool:
    """Whether `skip_unsupported` turned this report into a skip, and no check has failed it since."""
    return report.skipped and hasattr(report, _UNSUPPORTED)


def fail(report: pytest.TestReport, title: str, text: str, longrepr: Any = None) -> None:
    """Turn a report into one of a failure; a report that has failed already gets the text as a section."""
    if report.failed:
        report.sections.append((title, text))
    else:
        report.outcome, report.longrepr = "failed", text if longrepr is None else longrepr
        vars(report).pop("wasxfail", None)


def fail_with(report: pytest.TestReport, item: pytest.Item, title: str, text: str, message: str = "") -> None:
    """Turn a report into one of a failure, shown as pytest shows one; the failure has `message`, or else `text`."""
    try:
        pytest.fail(message or text, pytrace=False)
    except pytest.fail.Exception:
        fail(report, title, text, item.repr_failure(pytest.ExceptionInfo.from_current()))


class Outside(Counts):
    """What belongs to no test of this process."""

    def __init__(self) -> None:
        super().__init__()
        self.missing: Counter[str] = Counter()  # number of modules that were skipped, by what they need
        self.problems: list[str] = []  # why the run fails although no test shows it
        self.unwritten: list[str] = []  # the same for files that the processes of the run have in common
        self.notes: list[str] = []  # what was seen outside of tests and fails nothing
        # what other runs of tests have shown, with its category: the run fails for it
        self.reruns: list[tuple[str, str]] = []
        # number of modules that an emulated driver loaded and that no seen link can have made
        self.unlinked_modules = 0
        # what holds for a whole process and fails no test by itself: two majors of one CUDA library, a refused CUDA
        # runtime
        self.of_processes: list[str] = []

    def __bool__(self) -> bool:
        """Whether anything was counted."""
        return any(vars(self).values())

    def add_outside(self, counts: Mapping[str, Any], prefix: str = "") -> None:
        """Add what `as_json` returned, in this process or in another; problems and notes get the prefix."""
        marked = {name: [f"{prefix}{text}" for text in counts[name]] for name in ("problems", "notes")}
        self._join({**counts, **marked})

    def _join(self, counts: Mapping[str, Any]) -> None:
        """Add to each attribute what another object counted."""
        for name, theirs in counts.items():
            mine = getattr(self, name)
            if isinstance(mine, dict):
                mine.update(theirs)
            else:
                setattr(self, name, mine + theirs)


class Totals(Outside):
    """The sums of a run, over all its processes."""

    def __init__(self) -> None:
        super().__init__()
        # number of violations by check and test
        self.violations_of_tests: dict[str, Counter[str]] = defaultdict(Counter)
        self.undestroyed: Counter[str] = Counter()  # number of nvJitLink handles that were left behind, by test
        # tests that asserted a documented failure: test, requirement, failure
        self.documented: list[tuple[str, str, str]] = []
        # tests whose last attempt failed because the emulated driver refused calls, with the functions
        self.refused: dict[str, list[str]] = {}
        self.passed_over: dict[str, list[str]] = {}  # the same of tests that it refused calls and that went on
        self.sticky: list[dict[str, Any]] = []  # the events "sticky" of the run
        self._after_sticky: set[str] = set()

    def count_after_sticky(self, nodeid: str, worker: str | None) -> None:
        """Count a test that has ended for the last test of its worker, if any, that left the contexts unusable.

        A plugin may run a test several times; that counts once, and for the test that left them not at all.
        """
        for sticky in reversed(self.sticky):
            if sticky["worker"] == worker:
                if nodeid not in self._after_sticky:
                    self._after_sticky.add(nodeid)
                    sticky["after"] += 1
                return

    def add(self, nodeid: str, facts: Mapping[str, Any], worker: str | None = None) -> None:
        """Add the facts of one attempt of a test, which a worker of xdist ran."""
        if sticky := facts["sticky"]:
            self._after_sticky.add(nodeid)
            self.sticky.append({"nodeid": nodeid, "worker": worker, **sticky, "after": 0})
        if documented := facts["documented"]:
            self.documented.append((nodeid, documented["requirement"], documented["raises"]))
        if missing := facts["missing"]:
            self.missing[missing] += 1
        for check, number in facts["violations"].items():
            self.violations_of_tests[check][nodeid] += number
        if undestroyed := facts["undestroyed"]:
            self.undestroyed[nodeid] += undestroyed
        if refused := facts["refused"]:
            self.refused[nodeid] = sorted({str(call["function"]) for call in refused})
        elif passed_over := facts["passed_over"]:
            self.passed_over[nodeid] = passed_over
        self._join({name: facts[name] for name in ("links", "unsteered", "verdicts", "unsupported")})

    @property
    def failing(self) -> list[str]:
        """Why the run fails although no test shows it."""
        return [*dict.fromkeys((*self.problems, *self.unwritten))]


class Ledger(RunPart):
    """A plugin object of every run.

    Implements the plugin's own hooks as any project can. A test's facts go onto its last report, so that they reach the
    process that adds up; there every report is read.

    `totals`: complete at the end of the session, in the process that runs no test for another.
    `outside`: what happened outside of tests, in this process.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._facts: Facts | None = None
        self.totals = Totals()
        self.outside = Outside()

    @property
    def test(self) -> Facts:
        """Mutable facts of the current attempt; created on first use."""
        with self._run.lock:
            if self._facts is None:
                self._facts = Facts()
            return self._facts

    @property
    def here(self) -> Facts | Outside:
        """Where to count what happens now: in the current test's facts, or outside of tests."""
        return self.outside if self._run.nodeid is None else self.test

    # -- the plugin's hooks

    def pytest_cudalink_link(self, event: LinkEvent) -> None:
        with self._run.lock:
            self.here.links[link_key(event.target, event.backend)] += 1

    def pytest_cudalink_unsteered(self, link: UnsteeredLink) -> None:
        from ..conditions.unsteered import key

        with self._run.lock:
            self.here.unsteered[key(link)] += 1

    def pytest_cudalink_unsupported(self, target: str, reason: str) -> None:
        self.here.unsupported[target] = reason

    def pytest_cudalink_verdict(self, verdict: Verdict, nodeid: str | None) -> None:
        releases = [list(item.version) for item in verdict.evidence if getattr(item, "version", None)]
        self.here.verdicts.append({"nodeid": nodeid, **verdict_record(verdict), "releases": releases})

    def pytest_cudalink_violation(self, violation: Violation, nodeid: str | None) -> None:
        (self.outside if nodeid is None else self.test).violations[violation.check] += 1

    # -- pytest's hooks

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._facts, self._run.nodeid = None, nodeid

    def pytest_runtest_logfinish(self) -> None:
        self._facts = self._run.nodeid = None

    def put_on(self, report: pytest.TestReport) -> None:
        """Put the facts of the test onto its last report, once more if something has added some."""
        facts = self._facts
        if facts is not None:
            report.cudalink = facts.as_json()  # type: ignore[attr-defined]
            if self._run.settings.properties.value == "on":
                known = dict(report.user_properties)
                report.user_properties += [pair for pair in facts.properties() if pair[0] not in known]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "teardown":  # the last report of a test has its facts
            return
        if not hasattr(report, "cudalink"):
            self.put_on(report)  # without checks, or by one that came while the report was made
        if self._run.reports_elsewhere:
            return
        worker, nodeid = pytest_private.worker_of(report), report.nodeid
        for of_tests in (self.totals.refused, self.totals.passed_over):
            of_tests.pop(nodeid, None)  # of an earlier attempt
        self.totals.count_after_sticky(nodeid, worker)
        if (facts := getattr(report, "cudalink", None)) is not None:
            self.totals.add(nodeid, facts, worker)
