"""How checks decide: real checks, reporter and ledger on hooks that are called by hand, without a nested pytest."""

import gc
import os
import weakref
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock, call

import pytest

from pytest_cudalink.base.finding import Finding, RerunFinding, Violation
from pytest_cudalink.emulator import notes
from pytest_cudalink.guardrails import items
from pytest_cudalink.loader.jitlink import jitlink_contract as jitlink_native
from pytest_cudalink.plugin import pytest_private
from pytest_cudalink.plugin.conditions import unsteered
from pytest_cudalink.plugin.items import MarkerPlan
from pytest_cudalink.plugin.records import LEDGER, ledger
from pytest_cudalink.plugin.records.ledger import Outside, Totals
from pytest_cudalink.plugin.run import Run
from pytest_cudalink.plugin.session.account import Account, Require
from pytest_cudalink.plugin.settings import Setting
from pytest_cudalink.plugin.watch import (
    DEADLOCKS,
    DESCENDANTS,
    JITLINK_CONTRACT,
    LIFETIMES,
    MISMATCHES,
    ORDER,
    REPORTER,
    native_links,
    violation_checks,
)
from pytest_cudalink.plugin.watch.backends import UnsteeredLinkWarning
from pytest_cudalink.plugin.watch.causes import Causes
from pytest_cudalink.plugin.watch.check import Check
from pytest_cudalink.plugin.watch.native_links import NativeLinks
from pytest_cudalink.plugin.watch.no_wait import NoWait
from pytest_cudalink.plugin.watch.sticky import Sticky
from pytest_cudalink.plugin.watch.violation_checks import (
    DriverCheck,
    JitlinkContract,
    ViolationCheck,
    check_nvjitlink,
    last_look,
    watch_nvjitlink,
)
from pytest_cudalink.probes import elsewhere as in_another_process
from pytest_cudalink.probes.elsewhere import ForeignAnswer
from pytest_cudalink.report.asked_for import AskedFor
from pytest_cudalink.report.records import FindingRecord
from pytest_cudalink.versions import CudaVersion
from tests.plugin.by_hand import PHASES, Config, Item, begun, reported

# -- facts


def facts(**values) -> ledger.Facts:
    made = ledger.Facts()
    vars(made).update(values)
    return made


def test_the_facts_of_a_test() -> None:
    """Each becomes a property where there is something to say, and plain values for another process."""
    seen = ledger.Facts()
    plain = {"links": {}, "unsteered": {}, "violations": {}, "verdicts": [], "unsupported": {}, "undestroyed": 0}
    plain |= {"documented": None, "missing": None, "refused": [], "passed_over": [], "cause": None, "sticky": None}
    assert (seen.properties(), seen.as_json()) == ([], plain)
    calls = (("cuA", "no"), ("cuB", ""))
    seen.refuse(cause := Finding("error", "x", why="y", kind="skew", evidence=calls, suggestion=("z",)))
    seen.refuse(Finding("error", "later"))
    assert seen.refused == [{"function": "cuA", "note": "no"}, {"function": "cuB", "note": ""}]
    seen.links.update({"b/driver": 2, "a/none": 1})
    seen.unsteered["cupy"] += 1
    seen.violations.update({"jitlink-contract": 2, "lifetimes": 0})
    seen.documented = {"requirement": "arch>=90", "raises": "ValueError"}
    seen.missing, seen.sticky = "a GPU", {"code": 700, "error": "CUDA_ERROR_ILLEGAL_ADDRESS"}
    assert seen.properties() == [
        ("cudalink.links", "a/none=1 b/driver=2"),
        ("cudalink.unsteered", "cupy=1"),
        ("cudalink.jitlink_contract", "2"),
        ("cudalink.documented", "arch>=90: ValueError"),
        ("cudalink.missing", "a GPU"),
        ("cudalink.sticky", "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("cudalink.refused", "cuA cuB"),
        ("cudalink.cause", "error  x\nwhy    y\nfix    z"),
    ]
    plain = seen.as_json()
    written = {"kind": "skew", "what": "x", "why": "y", "suggestion": ["z"]}
    assert (plain["cause"], plain["links"], type(plain["links"])) == (written, {"a/none": 1, "b/driver": 2}, dict)
    seen.refuse(Finding("error", "last", evidence=(("cuC", ""),)))
    assert (seen.cause, seen.refused) == (cause, [{"function": "cuC", "note": ""}])


# -- links of native code


@pytest.mark.parametrize("begins_late", [True, False])
@pytest.mark.parametrize("loaded", [True, False])
@pytest.mark.parametrize("watches", [True, False])
def test_a_linker_that_is_not_watched(monkeypatch, begins_late: bool, loaded: bool, watches: bool) -> None:
    """It is said of a process that has one, and of each that was loaded unnoticed, with the test."""
    run, said, native, files = begun(), [], Mock(), ["/x/libc.so", *["/libnvJitLink.so.13"] * loaded]
    native.start.return_value, native.look.return_value = watches, ((), True, True, False)
    monkeypatch.setattr(native_links, "jitlink_calls", native)
    monkeypatch.setattr("pytest_cudalink.loader.loads.mapped_files", lambda: files)
    run.begins_late, run.nodeid = begins_late, "A" if watches else None

    def tell(config: Config, target: str, reason: str) -> None:
        said.append((config is run.config, target, reason.partition(",")[0].partition(";")[0]))

    run.config.pluginmanager.register(SimpleNamespace(pytest_cudalink_unsupported=tell))
    check = native_links.NativeLinks(run)
    assert (check.between(), native.counter.called, check.finish()) == (None, True, None)
    known = (
        ("it was loaded before a test asked for pytest-cudalink", begins_late and loaded),
        ("it was loaded during A" if watches else "it was loaded outside of tests", True),
        ("this system does not let its functions be redirected", True),
        ("the plugin's native part is missing or not for this system", loaded and not watches),
    )
    assert said == [(True, "libnvJitLink", reason) for reason, holds in known if holds]


def test_modules_that_no_seen_link_made(monkeypatch) -> None:
    """Less the links that the driver does not count itself, and what another process than this one has counted."""
    run = begun()
    run._emulated = driver = SimpleNamespace(unlinked_images=3)
    check = native_links.LoadedModules(run)
    for backend in ("driver", "nvjitlink", "nvjitlink"):
        check.pytest_cudalink_link(SimpleNamespace(backend=backend))
        check.pytest_cudalink_unsteered(SimpleNamespace(backend=backend))
    check.pytest_collection_finish()
    counted = run.part(LEDGER).outside
    for images, unlinked in ((7, 0), (8, 1), (6, 1)):
        driver.unlinked_images = images
        assert (check.finish(), counted.unlinked_modules) == (None, unlinked)
    monkeypatch.setattr(Run, "is_isolated", True)
    check.pytest_collection_finish()
    driver.unlinked_images = 7
    check.finish()
    assert counted.unlinked_modules == 2


# -- the reporter


class Saw(Check):
    """Shows what a test prepared, and notes what it was asked."""

    def __init__(self, run: Run, **findings: Finding) -> None:
        super().__init__(run)
        self.seen, self.asked, self.left = findings, [], False

    def _show(self, where: str) -> list[Finding]:
        self.asked.append(where)
        return [self.seen.pop(where)] if where in self.seen else []

    def between(self) -> list[Finding]:
        return self._show("between")

    def begin(self, nodeid: str) -> None:
        self.asked.append(nodeid)

    def leaves(self) -> bool:
        return self.left

    def look(self, phase) -> None:
        self.asked.append(phase.error)

    def sections(self, phase) -> list[Finding]:
        return self._show(phase.when)

    def end(self, _session) -> list[Finding]:
        return self._show("end")

    def finish(self) -> list[Finding]:
        return self._show("finish")

    def lines(self) -> list[str]:
        return ["a line"]


def watched(**findings: Finding) -> tuple[Run, Saw]:
    """A run with a check that sees something, and with one that never does."""
    run = begun()
    check = Saw(run, **findings)
    for part in (check, Check(run)):
        run.config.pluginmanager.register(part)
    return run, check


def test_when_checks_are_asked() -> None:
    """Between tests, as a test begins, before and after the report of a phase, after the last test and at the end."""
    run, check = watched()
    idle, phase_methods = Check(run), ("between", "begin", "leaves", "look", "sections")
    assert [idle.between(), idle.leaves(), idle.sections(Mock()), idle.finish()] == [None, False, None, None]
    assert (idle.end(Mock()), run.part(REPORTER).lines()) == (None, ["a line"])
    vars(idle).update((name, in_vain := Mock()) for name in phase_methods)  # its class has none of its own
    run.config.pluginmanager.register(idle)
    assert run.config.hook.pytest_runtest_logstart(nodeid="A", location=("f.py", 0, "A")) == []
    error = ValueError()
    assert [reported(run, when, error=error if when == "call" else None).when for when in PHASES] == [*PHASES]
    run.part(REPORTER).end(Mock())
    run.part(REPORTER).finish()
    assert check.asked == ["between", "A", None, "setup", error, "call", None, "teardown", "end", "between", "finish"]
    assert not in_vain.called
    assert not run.part(LEDGER).outside


def test_a_check_with_signs_is_asked_where_one_changes() -> None:
    """And where a test fails; each time until the end of the next test, which may be the same one again."""
    run, always = watched()
    check, signs = type("Quiet", (Saw,), {"has_signs": True})(run), [0, 0]
    run.config.pluginmanager.register(check)
    run.part(REPORTER).add_signs(lambda: signs[0], lambda: signs[1])

    def asked(at: str = "", sign: int = 0, **failure: object) -> list[int]:
        numbers = []
        for when in ("start", *PHASES):
            check.asked.clear()
            signs[sign] += when == at and not failure
            if when == "start":
                run.config.hook.pytest_runtest_logstart(nodeid="A", location=("f.py", 0, "A"))
            else:
                reported(run, when, **(failure if when == at else {}))
            numbers.append(len(check.asked))
        return numbers

    every, none = [2, 2, 2, 2], [1, 0, 0, 0]
    assert [asked() for _ in range(4)] == [every, every, none, none]  # before the first test, all has changed
    assert [asked("start"), asked(), asked()] == [every, every, none]
    assert [asked("call", 1), asked("teardown"), asked(), asked()] == [[1, 0, 2, 2], every, every, none]
    assert [asked("teardown"), asked(), asked()] == [[1, 0, 0, 2], every, none]
    assert [asked("setup", error=ValueError()), asked(), asked()] == [[1, 2, 2, 2], every, none]
    assert [asked("call", outcome="failed"), asked(), asked()] == [[1, 0, 1, 2], every, none]
    assert len(always.asked) == 20 * 8
    watching = (Causes, NativeLinks, DriverCheck, JitlinkContract, Sticky, NoWait)
    assert [each.has_signs for each in watching] == [True, True, True, True, False, False]


@pytest.mark.parametrize("left", [False, True])
def test_what_a_test_leaves_is_destroyed(left: bool) -> None:
    """Only where a check says that there is something: collecting all garbage takes long."""
    run, check = watched()
    check.left = left
    run.config.pluginmanager.register(Saw(run))  # nothing is left as far as another check knows
    item, garbage = Item(), Item()
    item.funcargs = {"garbage": garbage}
    garbage.itself, gone = garbage, weakref.ref(garbage)
    del garbage
    gc.disable()
    for when, destroyed in (("setup", False), ("call", False), ("teardown", left)):
        reported(run, when, item)
        assert (item.funcargs == {}, gone() is None) == (destroyed, destroyed)
    gc.enable()


@pytest.mark.parametrize(
    ("finding", "strict", "outcome", "longrepr"),
    [
        (Finding("error", "text", kind="T"), False, "failed", "text"),
        (Finding("error", "message", evidence=("text",), kind="T"), False, "failed", "message\ntext"),
        (Finding("warning", "text", kind="T"), False, "passed", None),
        (Finding("warning", "message", evidence=("text",), kind="T"), True, "failed", "text"),
        (Finding("note", "text", kind="T"), False, "passed", None),
        (Finding("unknown", "message", evidence=["text"], kind="T"), False, "skipped", ("f.py", 5, "Skipped: message")),
    ],
)
def test_verdicts_of_a_test(finding: Finding, strict: bool, outcome: str, longrepr: object) -> None:
    """A verdict fails the test, warns, is shown alone, or skips; what has failed already gets a section."""
    run, check = watched(call=finding, setup=finding)
    check.category = UnsteeredLinkWarning if strict else check.category
    item = Item(line=4)
    item.strict = strict
    report = reported(run, "call", item, wasxfail="reason")
    assert (report.outcome, report.longrepr) == (outcome, longrepr)
    assert report.sections == ([("T", "text")] if finding.severity in ("note", "unknown") else [])
    assert hasattr(report, "wasxfail") is (outcome != "failed")
    assert ledger.is_unsupported(report) is (finding.severity == "unknown")
    assert item.warnings == ([(pytest.PytestWarning, "text")] if finding.severity == "warning" and not strict else [])
    if outcome == "failed":
        report = reported(run, "setup", item, outcome="failed")
        assert (report.longrepr, report.sections) == (None, [("T", "text")])


def test_how_a_report_fails() -> None:
    """The text is shown where there is nothing else to show, as of a process that ends after the last phase."""
    report = pytest.TestReport("A", ("f.py", 0, "A"), {}, "passed", None, "teardown")
    ledger.fail(report, "T", "text")
    assert (report.outcome, report.longrepr) == ("failed", "text")


def test_what_a_check_shows_is_safe() -> None:
    """No title, text or message reaches a terminal with its escape sequences; a test without a line is in the first."""
    run, _ = watched(call=Finding("unknown", "why\x1b[1m", evidence=("text\x1b[1m",), kind="T\x1b[1m"))
    report = reported(run, "call")
    assert report.sections == [("T\\x1b[1m", "text\\x1b[1m")]
    assert report.longrepr == ("f.py", 1, "Skipped: why\\x1b[1m")


@pytest.mark.parametrize(
    ("finding", "strict", "notes", "problems", "warning"),
    [
        (Finding("error", "text", evidence=("more",), kind="T"), False, [], ["text"], []),
        (Finding("note", "text", kind="T"), False, ["text"], [], []),
        (Finding("warning", "text", kind="T"), False, [], [], [(pytest.PytestWarning, "text", 2)]),
        (Finding("warning", "text", kind="T"), True, [], ["text"], []),
    ],
)
@pytest.mark.parametrize("where", ["between", "end", "finish"])
def test_verdicts_outside_of_tests(where, finding: Finding, strict: bool, notes, problems, warning) -> None:
    """What was seen outside of tests fails the run, is shown, or is a warning."""
    run, check = watched(**{where: finding})
    check.category = UnsteeredLinkWarning if strict else check.category
    run.config.strict = strict
    run.part(REPORTER).end(Mock())
    run.part(REPORTER).finish()
    outside = run.part(LEDGER).outside
    assert (outside.notes, outside.problems, run.config.warnings) == (notes, problems, warning)


def test_what_reruns_have_shown() -> None:
    """It is kept by its category for the summary, with the command that repeats it, and recorded with its test."""
    shown = {"category": "fault", "repeat": "pytest a", "kind": "leak"}
    finding = RerunFinding("error", "x", place="A", evidence=("y",), operations=({"number": 1},), **shown)
    run, check = watched()
    check.end = lambda _: [finding]
    run.part(REPORTER).end(Mock())
    run.config.pluginmanager.register(file := Mock(), "cudalink-record-file")
    run.part(REPORTER).end(Mock())
    assert run.part(LEDGER).outside.reruns == [("fault", "x\n  repeat: pytest a\ny")] * 2
    assert file.write.call_args_list == [call(FindingRecord, finding, nodeid="A")]


# -- violations


class Source(ViolationCheck):
    """A check of what a test puts into it."""

    name, title, handle = "lifetimes", "T", "link state"
    handle_count = 0

    def __init__(self, run: Run, mode: str) -> None:
        super().__init__(run, mode)
        self.pending, self.strangers = [], []

    @property
    def violations(self) -> tuple[Violation, ...]:
        return tuple(self.pending)

    def consume(self, violations: tuple[Violation, ...]) -> None:
        self.pending = [violation for violation in self.pending if violation not in violations]

    def belongs_to(self, nodeid: str | None, violation: Violation) -> bool:
        return violation not in self.strangers and super().belongs_to(nodeid, violation)


def violation(number: int, handle: int = 0, **more: str) -> Violation:
    """A violation of the check."""
    return Violation("lifetimes", number, handle, "rule", "what", f"text {number}", "cuLinkDestroy", (), **more)


def test_a_check_of_the_driver_takes_its_own_violations() -> None:
    """The driver has those of every check, and forgets those that were taken; none has a handle of an earlier test."""

    class OfOrder(DriverCheck):
        name, title = "order", "T"

    own, taken, run = violation(2)._replace(check="order"), [], begun()
    driver = SimpleNamespace(violations=(violation(1), own), consume=taken.append)
    run._emulated = driver
    check = OfOrder(run, "fail")
    assert (check.driver, check.mode, check.violations, check.handle_count) == (driver, "fail", (own,), 0)
    check.consume((own,))
    assert taken == [(own,)]
    run.config.pluginmanager.register(check)
    assert reported(run, "call").longrepr.endswith("during this test's call:\ntext 2")
    run._emulated = None
    with pytest.raises(AssertionError):
        OfOrder(run, "fail")


def test_a_violation_in_lines() -> None:
    """Its process, where it was called from, what was done before, and the advice: what is known of these."""
    known = violation(1)._replace(
        process="child", python_stack=("a.py:1",), native_stack=("f", "g"), history=("created",), advice="Keep it."
    )
    lines = ["child: text 1", "called from:", "  a.py:1", "created", "native frames:", "  f", "  g", "Keep it."]
    assert known.long_repr.splitlines() == lines
    assert violation(1) == Violation(
        "lifetimes", 1, 0, "rule", "what", "text 1", "cuLinkDestroy", (), (), (), *[""] * 4
    )
    assert violation(1).long_repr == str(violation(1)) == "text 1"


@pytest.mark.parametrize("mode", ["report", "fail"])
def test_violations_of_a_test(mode: str) -> None:
    """Each is passed to the hook and shown with its test, and with the test that made the handle if that is another."""
    run = begun()
    check, told = Source(run, mode), []

    def tell(config: Config, violation: Violation, nodeid: str | None, maker: str | None) -> None:
        told.append((config is run.config, violation.number, nodeid, maker))

    def shown(when: str, *pending: Violation) -> str:
        check.pending = [*pending]
        report = reported(run, when)
        if mode == "report":
            return "".join(text for _, text in report.sections)
        return (report.longrepr or "").partition(f" during this test's {when}:\n")[2]

    run.config.pluginmanager.register(check)
    run.config.pluginmanager.register(SimpleNamespace(pytest_cudalink_violation=tell))
    check.pending = [violation(0)]
    run.config.hook.pytest_runtest_logstart(nodeid="0", location=("f.py", 0, "0"))
    outside = run.part(LEDGER).outside
    assert (outside.notes, outside.problems) == ((["text 0"], []) if mode == "report" else ([], ["text 0"]))
    assert outside.violations == {"lifetimes": 1}
    assert check._seen_outside("x").kind == check.title
    check.handle_count = 2
    run.config.hook.pytest_runtest_logstart(nodeid="A", location=("f.py", 0, "A"))
    assert shown("setup") == ""
    check.strangers = [violation(3, 1)]
    assert shown("call", violation(1, 3), violation(2, 2), *check.strangers) == (
        "text 1\n\ntext 2\nThe link state was created by 0."
    )
    assert (outside.notes or outside.problems)[1:] == ["text 3\nThe link state was created by 0."]
    of_processes = violation(4, 1, process="child", test="B"), violation(5, 1, process="child")
    assert shown("teardown", *of_processes) == "child: text 4\nThe process was started by B.\n\nchild: text 5"
    made = [(0, None, None), (1, "A", "A"), (2, "A", "0"), (3, None, "0"), (4, "A", "B"), (5, "A", None)]
    assert told == [(True, *violation) for violation in made]


def test_violations_that_no_report_shows() -> None:
    """They do not fail the next test; where there are none, nothing is counted."""
    run = begun()
    check = Source(run, "fail")
    run.config.pluginmanager.register(check)
    check.collect("A")
    assert not run.part(LEDGER).outside
    check.pending = [violation(1)]
    check.collect("A")
    check.begin("B")
    assert check.between() is None
    assert (check.mode, reported(run, "call").outcome) == ("fail", "passed")
    check.pending = [violation(2), violation(3)]
    assert reported(run, "call").longrepr == (
        "cudalink: 2 lifetime violations during this test's call:\ntext 2\n\ntext 3"
    )


# -- checks of an emulated driver and of nvJitLink


@pytest.fixture
def driver() -> Mock:
    """An emulated driver that has noted nothing."""
    return Mock(violations=(), state_count=0, live_states=0, lost_violations=0)


@pytest.fixture
def below() -> Mock:
    """The processes below this one, which have noted nothing."""
    return Mock(spec=["violations", "consume", "hand_over", "last_look", "say"], **{"violations.return_value": ()})


def on_driver(driver: Mock, below: Mock | None = None, **settings: str) -> Run:
    run = begun(**settings)
    run._emulated = driver
    if below is not None:
        run.config.pluginmanager.register(below, "cudalink-descendants")
    return run


@pytest.mark.parametrize(("worker", "calls"), [(False, []), (True, ["find_messenger"])])
def test_deadlocks(driver: Mock, worker: bool, calls: list[str]) -> None:
    """A worker of xdist reports to its controller."""
    run = on_driver(driver)
    if worker:
        run.config.workerinput = {}
    check = run.part(DEADLOCKS)
    for cleanup in run.config.cleanups:
        cleanup()
    assert [name for name, _, _ in driver.method_calls] == calls
    assert (check.name, check.title, check.mode) == ("deadlock", "cudalink deadlock", "fail")


def test_order(driver: Mock) -> None:
    """A pair that an earlier test had is named again; in the end the driver checks no more."""
    run = on_driver(driver, order="report")
    check = run.part(ORDER)
    assert (check.name, check.title, check.mode) == ("order", "cudalink order", "report")
    assert driver.mock_calls == [call.check_order(on=True)]
    check.begin("A")
    assert driver.mock_calls[1:] == [call.check_order(on=True)]
    assert check.maker(violation(1, 1)) is None
    run.config.cleanups[-1]()
    assert driver.mock_calls[2:] == [call.check_order(on=False)]
    driver.violations = (violation(1)._replace(check="order"),)
    check.collect("A")
    driver.violations = ()
    check.begin("B")
    assert reported(run, "call").sections == []


@pytest.mark.parametrize(("mode", "fails"), [("report", False), ("fail", True), ("strict", True)])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_lifetimes(driver: Mock, below: Mock, mode: str, fails: bool, elsewhere: bool) -> None:
    """Violations of this process and of those below it; what is lost fails the run."""
    run = on_driver(driver, below, lifetime=mode)
    run.task = object() if elsewhere else None
    check = run.part(LIFETIMES)
    assert (check.name, check.title, check.mode) == ("lifetimes", "cudalink lifetimes", mode)
    assert driver.mock_calls == []
    driver.live_states, driver.state_count = 1, 5
    assert check.leaves() is True
    driver.live_states = 2
    check.begin("A")
    assert (check.handle, check.handle_count, check.leaves()) == ("link state", 5, False)
    assert check.maker(violation(1, 6)) == "A"
    driver.live_states = 3
    assert check.leaves() is True
    own, lower = violation(1), violation(2, process="child")
    driver.violations, below.violations.return_value = (own, own._replace(check="order")), (lower,)
    assert check.violations == (own, lower)
    check.consume((own,))
    assert (driver.consume.call_args, below.consume.call_args) == (call((own,)), call((own,)))
    driver.violations, below.violations.return_value = (own,), ()
    driver.reset_mock()
    assert list(check.finish()) == []
    assert driver.mock_calls == [call.consume((own,))]
    assert below.hand_over.called is elsewhere
    outside = run.part(LEDGER).outside
    assert (outside.problems, outside.notes) == ((["text 1"], []) if fails else ([], ["text 1"]))
    driver.violations, driver.lost_violations = (), 2
    (lost,) = check.finish()
    assert (lost.kind, lost.severity) == ("cudalink lifetimes", "error")
    assert lost.what == (
        "2 lifetime violations could not be shown: the driver counted more than the plugin received; the output on "
        "stderr says why. Run with -o cudalink_events=FILE and look there"
    )


@pytest.mark.parametrize("living", [0, 1])
def test_garbage_at_the_end_of_a_run(driver: Mock, below: Mock, living: int, monkeypatch) -> None:
    """It is collected where the driver still has links, whose violations come then."""
    collected = []
    monkeypatch.setattr(gc, "collect", lambda: collected.append(1))
    check = on_driver(driver, below, lifetime="fail").part(LIFETIMES)
    driver.live_states = living
    assert list(check.finish()) == []
    assert len(collected) == living


LONG = "B" * 601


@pytest.mark.parametrize(
    ("nodeid", "more", "belongs"),
    [
        ("A", {}, True),
        (None, {}, True),
        ("A", {"process": "child", "test": "A"}, True),
        ("A", {"process": "child", "test": "B"}, False),
        ("A", {"process": "child"}, False),
        (None, {"process": "child"}, False),
        (None, {"process": "child", "test": LONG}, False),
        (f"{LONG}::test", {"process": "child", "test": LONG}, True),
        (f"{LONG}::test", {"process": "child", "test": LONG[1:]}, False),
        (f"{LONG}::test", {"process": "child", "test": f"{LONG}::other"}, False),
    ],
)
def test_whose_violation_it_is(driver: Mock, below: Mock, nodeid: str | None, more, belongs: bool) -> None:
    """That of a process below is its test's, whose name may be cut."""
    check = on_driver(driver, below, lifetime="fail").part(LIFETIMES)
    assert check.belongs_to(nodeid, violation(1, **more)) is belongs


def test_violations_after_the_last_report(driver: Mock, below: Mock) -> None:
    """Those of the process of an isolated test fail it, and count in its facts."""
    run = on_driver(driver, below, lifetime="fail")
    check = run.part(LIFETIMES)
    report = pytest.TestReport("A", ("f.py", 0, "A"), {}, "passed", None, "teardown")
    report.cudalink = {"violations": {}}
    check.add_late(Item(), report)
    assert (report.outcome, report.cudalink) == ("passed", {"violations": {}})
    del report.cudalink
    below.violations.return_value = (violation(1, process="child"), violation(2, process="child", test="B"))
    check.add_late(Item(), report)
    assert run.part(LEDGER).outside.problems == ["child: text 2\nThe process was started by B."]
    below.violations.return_value = below.violations.return_value[:1]
    assert report.longrepr == "cudalink: 1 lifetime violation after this test's last report:\nchild: text 1"
    for before, after in (({}, 1), ({"lifetimes": 2}, 3)):
        report = pytest.TestReport("A", ("f.py", 0, "A"), {}, "failed", "E", "teardown")
        report.cudalink = {"violations": before}
        check.add_late(Item(), report)
        assert (report.cudalink, report.longrepr) == ({"violations": {"lifetimes": after}}, "E")
    assert check.belongs_to("A", violation(1, process="child")) is False


@pytest.mark.parametrize("mode", ["report", "fail", "strict"])
@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("ends", ["hands over", "ends"])
def test_who_takes_the_violations(driver: Mock, monkeypatch, mode: str, elsewhere: bool, ends: str) -> None:
    """The plugin, from before a check is there until the run ends or its results are handed over; then the driver."""
    own = Mock(above="above" if elsewhere else "", path="own", at_exit=[])
    monkeypatch.setattr(notes, "own", lambda _, apart: own)
    monkeypatch.setattr(os, "environ", {})
    run = on_driver(driver, lifetime=mode)
    run.task = object() if elsewhere else None
    below = run.part(DESCENDANTS)
    assert driver.mock_calls == [call.start_watching(), call.own_notes("own", own.above)]
    driver.reset_mock()
    if ends == "hands over":
        below.hand_over()
        assert os.environ == {notes.VARIABLE: own.above or "own"}
    for cleanup in run.config.cleanups:
        cleanup()
    assert os.environ == {}
    handed = [call.own_notes("above", "above")] if elsewhere and ends == "hands over" else []
    stops = [call.stop_watching(), call.end_notes(quiet=elsewhere, fails=mode != "report")]
    assert driver.mock_calls == handed + stops


def test_a_copy_begins_without_notes(driver: Mock, monkeypatch, capsys) -> None:
    """What the process that was forked has noted, that process shows.

    What comes after the end is said here, although there is a process above, and fails where violations do.
    """
    own = Mock(above="above", path="own", at_exit=[], **{"take.return_value": [{"violation": 2}]})
    own.take_counted.return_value = [{"violation": 1}, {"call": "cuA"}]
    monkeypatch.setattr(notes, "own", lambda _, apart: own)
    monkeypatch.setattr(os, "environ", {})
    driver.violations = (violation(1),)
    below = on_driver(driver, lifetime="fail").part(DESCENDANTS)
    assert len(below.violations()) == 1
    own.take_counted.return_value = []
    below.forked()
    assert (below.violations(), below.refusals()) == ((), [])
    assert driver.consume.call_args == call((violation(1),))
    assert (below.path, below.count()) == ("own", own.count.return_value)
    below._run.settings.lifetime = Setting("report", "ini")
    assert (below.last_look(), driver.fail_at_exit.called) == (False, False)
    below._run.settings.lifetime = Setting("fail", "ini")
    own.at_exit[0]([{"violation": 3}])
    assert driver.fail_at_exit.called
    said = capsys.readouterr().err.splitlines()
    assert [line.startswith(f"cudalink: process {os.getpid()} (") for line in said] == [True, True]
    assert ["so the exit code is not 0" in line for line in said] == [False, True]


def test_the_last_look(driver: Mock, below: Mock) -> None:
    """What each check and the processes below have noted since the session ended is said, and may fail the run."""
    run = on_driver(driver, lifetime="fail", order="report")
    assert last_look(run) is False
    run.config.pluginmanager.register(below, "cudalink-descendants")
    below.last_look.return_value = below.say.return_value = False
    assert last_look(run) is False
    below.last_look.return_value = True
    assert last_look(run) is True
    below.last_look.return_value = False
    run.part(LIFETIMES)
    run.part(DEADLOCKS)
    run.part(ORDER)
    late = tuple(violation(at)._replace(check=name) for at, name in enumerate(("order", "deadlock", "lifetimes")))
    driver.violations = late
    assert last_look(run) is False
    said = [call.say((late[at],), fails=fails) for at, fails in ((2, True), (1, True), (0, False))]
    assert [call for call in below.mock_calls if call[0] == "say"] == said
    assert driver.consume.mock_calls == [call((late[at],)) for at in (2, 1, 0)]
    below.say.side_effect = lambda _, fails: fails
    assert last_look(run) is True
    below.reset_mock()
    run.task = object()
    assert last_look(run) is False
    assert below.mock_calls == []
    run.task, run.settings.lifetime, driver.violations = None, Setting("off", "ini"), ()
    assert last_look(run) is False
    assert not below.last_look.called


@pytest.fixture
def contract(monkeypatch) -> Mock:
    """The native part that checks the calls of nvJitLink: three handles so far, and none that lives."""
    made = Mock(handle_count=3, **{"take.return_value": [], "alive.return_value": ()})
    monkeypatch.setattr(jitlink_native, "start", lambda: made)
    return made


@pytest.mark.parametrize("mode", ["off", "report", "fail", "strict"])
@pytest.mark.parametrize("possible", [False, True])
def test_where_the_contract_is_checked(contract: Mock, mode: str, possible: bool, monkeypatch) -> None:
    """Where the run wants that, and this system can."""
    if not possible:
        monkeypatch.setattr(jitlink_native, "start", lambda: None)
    run = begun(jitlink_contract=mode)
    watch_nvjitlink(run)
    check_nvjitlink(run)
    check = run.get(JITLINK_CONTRACT)
    assert (check is not None) is (possible and mode != "off")
    if not possible:
        with pytest.raises(AssertionError):
            run.part(JITLINK_CONTRACT)
    if check is not None:
        assert (check.name, check.handle, check.mode) == ("jitlink-contract", "handle", mode)
        assert contract.mock_calls == [call.take(), call.check(strict=mode == "strict")]
        assert run.config.cleanups[-1] == contract.stop
    else:
        assert contract.mock_calls == []


def test_events_that_an_inherited_driver_loses(monkeypatch) -> None:
    """The file has the name that the run was started with."""
    run = begun(events="")
    monkeypatch.setattr(violation_checks.run_driver, "inherited", lambda config: config is run.config)
    monkeypatch.setenv("CUDALINK_EMULATOR_EVENTS", "/dev/full")
    violation_checks.lose_events(run, "it is full")
    said = "CUDALINK_EMULATOR_EVENTS is /dev/full: it is full; calls are missing in that file"
    assert run.part(LEDGER).outside.unwritten == [f"the events of the emulated driver cannot be written: {said}"]


@pytest.mark.parametrize("mode", ["report", "fail"])
def test_the_contract_of_nvjitlink(contract: Mock, mode: str) -> None:
    """What broke it is shown with its test; outside of tests it is a warning, or fails the run."""
    run = begun(jitlink_contract=mode)
    check_nvjitlink(run)
    check = run.part(JITLINK_CONTRACT)
    broken = violation(1)._replace(check="jitlink-contract")
    contract.take.side_effect = [[broken, violation(2)], [], [broken], [], [broken], []]
    assert check.violations == (broken, violation(2))
    check.consume((broken,))
    assert check.violations == (violation(2),)
    check.consume((violation(2),))
    check.between()
    outside = check._seen_outside("x")
    assert (outside.severity, outside.kind) == ("warning" if mode == "report" else "error", check.title)
    said = (pytest.PytestWarning, "cudalink: outside of tests: text 1", 2)
    assert run.config.warnings == ([said] if mode == "report" else [])
    assert run.part(LEDGER).outside.problems == ([] if mode == "report" else ["text 1"])
    assert check.violations == ()
    report = reported(run, "call")
    text = "cudalink: 1 violation of nvJitLink's contract during this test's call:\ntext 1"
    shown = [("cudalink nvJitLink contract", "text 1")] if mode == "report" else []
    assert (report.longrepr, report.sections) == (None if mode == "report" else text, shown)


def test_handles_that_a_test_leaves(contract: Mock) -> None:
    """They are destroyed if they can be; what is left then is noted, and fails nothing."""
    run = begun(jitlink_contract="fail")
    check_nvjitlink(run)
    check = run.part(JITLINK_CONTRACT)
    contract.handle_count = 7
    assert (check.leaves(), contract.alive.call_args) == (False, call(3))
    check.begin("A")
    assert (check.leaves(), contract.alive.call_count, check.handle_count) == (False, 1, 7)  # there is no new one
    assert check.maker(violation(1, 8)) == "A"
    contract.handle_count = 9
    assert (check.leaves(), contract.alive.call_args) == (False, call(7))
    contract.alive.return_value = ("one was created", "two was created")
    assert check.leaves() is True
    notes = "one was created and not destroyed\ntwo was created and not destroyed"
    for when, sections in (("call", []), ("teardown", [("cudalink nvJitLink contract, notes", notes)])):
        report = reported(run, when)
        assert (report.outcome, report.sections) == ("passed", sections)
    assert report.cudalink["undestroyed"] == 2


# -- what a run counts


def test_the_sums_of_a_run() -> None:
    """Those outside of tests, of every process, and of the tests."""
    outside, totals = Outside(), Totals()
    assert (outside.unlinked_modules, bool(outside)) == (0, False)
    outside.violations["order"] = outside.missing["a GPU"] = outside.unlinked_modules = 2
    outside.problems, outside.notes, outside.of_processes = ["p"], ["n"], ["two majors"]
    outside.reruns = [("fault", "text")]
    assert outside
    outside.unwritten = ["u"]
    outside.links["a/driver"] = outside.unsteered["x"] = 1
    outside.verdicts, outside.unsupported = [{"status": "compatible"}], {"t": "why"}
    totals.add_outside(outside.as_json())
    totals.add_outside(outside.as_json(), "[A] ")
    seen = facts(undestroyed=2, documented={"requirement": "r", "raises": "E"}, missing="a GPU")
    seen.refused = [{"function": name, "note": ""} for name in ("cuB", "cuA", "cuB")]
    seen.violations["order"], seen.links["a/driver"] = 3, 4
    seen.sticky = {"code": 700, "error": "E"}
    totals.add("A", seen.as_json(), "gw0")
    other = ledger.Facts()
    other.passed_over = ["cuC"]
    totals.add("B", other.as_json())
    assert totals.as_json() == {
        "violations": {"order": 4},
        "missing": {"a GPU": 5},
        "problems": ["p", "[A] p"],
        "unwritten": ["u", "u"],
        "notes": ["n", "[A] n"],
        "reruns": [("fault", "text")] * 2,
        "unlinked_modules": 4,
        "of_processes": ["two majors"] * 2,
        "links": {"a/driver": 6},
        "unsteered": {"x": 2},
        "verdicts": [{"status": "compatible"}] * 2,
        "unsupported": {"t": "why"},
        "violations_of_tests": {"order": {"A": 3}},
        "undestroyed": {"A": 2},
        "documented": [("A", "r", "E")],
        "refused": {"A": ["cuA", "cuB"]},
        "passed_over": {"B": ["cuC"]},
        "sticky": [{"nodeid": "A", "worker": "gw0", "code": 700, "error": "E", "after": 0}],
        "_after_sticky": {"A"},
    }


def test_tests_after_an_error_that_stays() -> None:
    """They count once, for the last such error of their worker; an attempt of the test itself does not."""
    totals = Totals()
    for nodeid, worker in (("A", "gw0"), ("B", "gw1"), ("C", "gw0")):
        totals.add(nodeid, facts(sticky={"code": 1, "error": "E"}).as_json(), worker)
        for after in ("A", "B", "C", f"after {nodeid}", f"after {nodeid}", f"more after {nodeid}"):
            totals.count_after_sticky(after, worker)
    totals.count_after_sticky("D", "gw2")
    assert [sticky["after"] for sticky in totals.sticky] == [4, 2, 2]


def test_a_lost_record_is_one_problem() -> None:
    """However many processes say it, and whatever they put before it."""
    totals = Totals()
    totals.problems = ["other", "[gw0] third"]
    for prefix in ("", "gw0: "):
        totals.add_outside({**Outside().as_json(), "problems": ["other"], "unwritten": ["the record: full"]}, prefix)
    assert totals.failing == ["other", "[gw0] third", "gw0: other", "the record: full"]


def test_what_a_ledger_counts() -> None:
    """Each thing once, for the test that runs or outside of tests; a violation for its own."""
    run = begun()
    book, hook, config = run.part(LEDGER), run.config.hook, run.config
    made = items.Item("dynamic-libs", "nvrtc", "/x", "site-packages", "ctk", CudaVersion(13, 0), "cuda.h")
    verdict = items.Verdict("note", "m", otherwise="o", why="w", evidence=("i", made), kind="r")
    link = SimpleNamespace(via="x", backend="nvjitlink", forced=None)
    for nodeid in (None, "A"):
        if nodeid:
            hook.pytest_runtest_logstart(nodeid=nodeid, location=("f.py", 0, "A"))
        hook.pytest_cudalink_link(config=config, event=SimpleNamespace(target="a", backend="driver"))
        hook.pytest_cudalink_unsteered(config=config, link=link, nodeid=nodeid)
        hook.pytest_cudalink_unsupported(config=config, target="t", reason="why")
        hook.pytest_cudalink_verdict(config=config, verdict=verdict, nodeid=nodeid)
        hook.pytest_cudalink_violation(config=config, violation=violation(1), nodeid=nodeid, maker=None)
        here = book.test if nodeid else book.outside
        assert (here.links, here.unsteered) == ({"a/driver": 1}, {"x/nvjitlink/free": 1})
        assert (here.unsupported, here.violations) == ({"t": "why"}, {"lifetimes": 1})
        counted = {"severity": "note", "kind": "r", "what": "m", "why": "w", "fix": "", "otherwise": "o"}
        evidence = {"evidence": ["i", str(made)], "releases": [[13, 0]]}
        assert here.verdicts == [{"nodeid": nodeid, **counted, **evidence}]
    hook.pytest_cudalink_violation(config=config, violation=violation(1), nodeid=None, maker=None)
    assert book.outside.violations == {"lifetimes": 2}
    for begins_or_ends in (hook.pytest_runtest_logfinish, hook.pytest_runtest_logstart):
        before = book.test
        begins_or_ends(nodeid="A", location=("f.py", 0, "A"))
        assert book.test is not before


@pytest.mark.parametrize(("properties", "elsewhere"), [("on", False), ("off", False), ("on", True)])
def test_the_facts_on_a_report(properties: str, elsewhere: bool) -> None:
    """The last one has them, and as properties where these are on; the process that adds up reads them."""
    run = begun(properties=properties)
    run.task = object() if elsewhere else None
    book, seen = run.part(LEDGER), []
    early = pytest.hookimpl(tryfirst=True)(lambda report: seen.append(hasattr(report, "cudalink")))
    run.config.pluginmanager.register(SimpleNamespace(pytest_runtest_logreport=early))
    assert not hasattr(reported(run, "teardown"), "cudalink")
    book.test.links["a/driver"] += 1
    assert not hasattr(reported(run, "call"), "cudalink")
    report = reported(run, "teardown", user_properties=[("cudalink.missing", "by the test")])
    assert report.cudalink["links"] == {"a/driver": 1}
    book.test.missing = "a GPU"
    book.put_on(report)
    links = [("cudalink.links", "a/driver=1")] if properties == "on" else []
    assert report.user_properties == [("cudalink.missing", "by the test"), *links]
    assert book.totals.links == ({} if elsewhere else {"a/driver": 1})
    late = pytest.TestReport("B", ("f.py", 0, "B"), {}, "passed", None, "teardown")
    run.config.hook.pytest_runtest_logreport(report=late)
    assert late.cudalink["missing"] == "a GPU"
    other = pytest.TestReport("C", ("f.py", 0, "C"), {}, "passed", None, "teardown")
    other.cudalink = facts(missing="another").as_json()
    run.config.hook.pytest_runtest_logreport(report=other)
    assert book.totals.missing == ({} if elsewhere else {"a GPU": 1, "another": 1})
    assert seen == [False, False, False, False, True]


def test_attempts_that_a_ledger_adds_up() -> None:
    """A refused call of an earlier attempt is forgotten with the next; a test after a sticky error counts."""
    run = begun()
    book = run.part(LEDGER)
    book.totals.refused = {"A": ["cuA"]}
    book.totals.add("B", facts(sticky={"code": 1, "error": "E"}).as_json(), "gw1")
    for when, left in (("call", {"A": ["cuA"]}), ("teardown", {})):
        report = pytest.TestReport("A", ("f.py", 0, "A"), {}, "passed", None, when)
        report.worker_id = "gw1"
        run.config.hook.pytest_runtest_logreport(report=report)
        assert (book.totals.refused, book.totals.sticky[0]["after"]) == (left, int(when == "teardown"))
    report.cudalink = facts(sticky={"code": 2, "error": "E"}).as_json()
    run.config.hook.pytest_runtest_logreport(report=report)
    assert [sticky["worker"] for sticky in book.totals.sticky] == ["gw1", "gw1"]


# -- links that no target steers


def test_links_that_nothing_steers() -> None:
    """Each way is counted by itself; the summary has a line for each module, in order."""
    ways = {"free": (None, True), "as-forced": ("nvjitlink", True), "not-as-forced": ("driver", False)}
    for how, (forced, follows) in ways.items():
        link = SimpleNamespace(via="x.y", backend="nvjitlink", forced=forced, follows=follows)
        assert unsteered.key(link) == f"x.y/nvjitlink/{how}"
    links = {"z/nvjitlink/free": 1, "a/b/nvjitlink/not-as-forced": 2}
    links |= dict.fromkeys(("a/b/driver/as-forced", "c/driver/as-forced"), 1)
    assert unsteered.lines(links) == [
        "3 links in your code were not steered (a/b): 1 on the driver (as forced), 2 on nvJitLink (not as forced)",
        "1 link in your code was not steered (c): 1 on the driver (as forced)",
        "1 link in your code (z): 1 on nvJitLink",
    ]


def test_a_link_on_another_backend() -> None:
    """The problem says what linked where, what was forced by whom, and what to do."""
    for where, who in (("f.py:1", "f.py:1"), ("", "code at an unknown place")):
        link = SimpleNamespace(where=where, backend="nvjitlink", call="c", via="v")
        assert unsteered.problem(link, SimpleNamespace(backend="driver", source="S")) == (
            f"cudalink: forced to driver by S, but {who} linked on nvJitLink: c of v, which no target steers. Write a "
            "target for the library that makes this call (see the page Targets of the documentation), link through one "
            "that has a target, or accept such links with --cudalink-unsteered=allow"
        )
    assert unsteered.shortened("/a/b/f.py:1", Path("/a")) == "b/f.py:1"
    assert unsteered.shortened("/ab/f.py:1", Path("/a")) == "/ab/f.py:1"


# -- links that were forced in vain


def test_problems_of_links() -> None:
    """Each is shown once, with how often it occurred: with its test, as the run's, or not where an error says it."""
    run = begun()
    links = run.part(MISMATCHES)
    links.add("of collecting")
    links.add("outside")
    links.add("outside")
    for failed, text in ((False, "E outside"), (True, "E of collecting")):
        run.config.hook.pytest_collectreport(report=SimpleNamespace(failed=failed, longreprtext=text))
    run.nodeid = "A"
    for text, more in (("a", {}), ("a", {}), ("b", {"once": True}), ("b", {"once": True}), ("w", {"warn": True})):
        links.add(text, **more)
    item = Item()
    report = reported(run, "call", item)
    assert (report.longrepr, item.warnings) == ("a (2 times)\nb", [(UnsteeredLinkWarning, "w")])
    links.add("a")
    assert reported(run, "call", outcome="failed").sections == [("cudalink forced backend", "a")]
    links.add("a")
    links.add("c")
    report = pytest.TestReport("A", ("f.py", 0, "A"), {}, "failed", "E a", "call")
    assert [seen.what for seen in links.sections(SimpleNamespace(report=report))] == ["c"]
    report = reported(run, "call")
    assert (report.outcome, report.sections) == ("passed", [])
    links.add("a")
    assert reported(run, "call", outcome="skipped", longrepr=("f.py", 1, "Skipped: a")).longrepr == "a"
    links.add("of a")
    links.add("w", warn=True)
    run.part(REPORTER).finish()
    assert run.part(LEDGER).outside.problems == ["of a", "outside (2 times)"]
    assert run.config.warnings == [(UnsteeredLinkWarning, "w", 2)]


def test_a_process_that_repeats_collecting() -> None:
    """The process that waits for it has seen the same."""
    for isolated, collected, pending in ((False, False, {"a": 1}), (True, False, {}), (True, True, {"a": 1})):
        run = begun()
        run.task, run.collected, run.nodeid = object() if isolated else None, collected, "A"
        run.part(MISMATCHES).add("a")
        assert run.part(MISMATCHES).pending == pending


# -- what a run requires

DRIVER, NVJITLINK, NOTHING = MarkerPlan(backend="driver"), MarkerPlan(backend="nvjitlink"), MarkerPlan()
TOOLKIT = MarkerPlan(requirements=(SimpleNamespace(name="toolkit"),))
SKIPPED = {"outcome": "skipped"}
GPU = MarkerPlan(requirements=(*TOOLKIT.requirements, SimpleNamespace(name="gpu")))


@pytest.mark.parametrize(
    ("plan", "settings", "asks"),
    [
        (None, {"driver": "real"}, False),
        (None, {"backend": "driver"}, True),
        (NOTHING, {"backend": "driver"}, True),
        (DRIVER, {}, True),
        (NVJITLINK, {"backend": "driver"}, False),
        (GPU, {}, False),
        (GPU, {"require": "links,driver"}, True),
        (TOOLKIT, {"require": "driver"}, False),
        (None, {"require": "driver"}, False),
        (None, {"require": "driver", "driver": "absent"}, False),
        (None, {"require": "driver", "driver": "real"}, True),
    ],
)
def test_who_asks_for_the_driver(plan: MarkerPlan | None, settings: dict[str, str], asks: bool, monkeypatch) -> None:
    """A forced driver does; so do facts of a driver, and a driver that was chosen, where the run requires it."""
    monkeypatch.setattr(in_another_process, "driver", lambda: ForeignAnswer(exists=True))
    run = begun(**settings)
    run.part(Require)
    reports = [reported(run, when, Item(plan)) for when in PHASES]
    assert [getattr(report, "cudalink_on_driver", None) for report in reports] == [None, None, "ran" if asks else None]


@pytest.mark.parametrize(
    ("phases", "driver", "answer"),
    [
        ([("teardown", {})], True, "ran"),
        ([("setup", SKIPPED), ("teardown", {})], True, "skipped"),
        ([("call", SKIPPED), ("teardown", {})], True, "skipped"),
        ([("call", SKIPPED), ("setup", {}), ("teardown", {})], True, "ran"),
        ([("call", {**SKIPPED, "wasxfail": ""}), ("teardown", {})], True, "ran"),
        ([("call", {**SKIPPED, "cudalink_unsupported": True}), ("teardown", {})], True, "ran"),
        ([("teardown", {})], False, "found no driver"),
    ],
)
def test_whether_a_test_ran_on_the_driver(phases, driver: bool, answer: str, monkeypatch) -> None:
    """A skip means no, but not one that stands for a failure; the driver is looked for once."""
    looked = Mock(return_value=ForeignAnswer(exists=driver))
    monkeypatch.setattr(in_another_process, "driver", looked)
    run = begun(backend="driver")
    run.part(Require)
    for _ in range(2):
        report = [reported(run, when, **more) for when, more in phases][-1]
        assert report.cudalink_on_driver == answer
    assert looked.call_count == (answer != "skipped")


NEITHER = {"skipped": 1, "found no driver": 1}
NO_LINK = "The run fails because no link was made (1: no target linked anything); --cudalink-require=none allows that."
TWO_OF_THREE = (
    "The run fails because 1 of 3 faults of --cudalink-faults were triggered in pytest's own processes (1: a; 1: b); "
    "--cudalink-require=none allows that."
)


def ask(run: Run, answers: dict[str, int], links: int = 0, missing: int = 0) -> None:
    """Let tests be reported that ran on a driver or did not, some that asked for none, and what the ledger has."""
    for answer, number in {"": 3, **answers}.items():
        for _ in range(number):
            report = pytest.TestReport("A", ("f.py", 0, "A"), {}, "passed", None, "teardown")
            if answer:
                report.cudalink_on_driver = answer
            run.config.hook.pytest_runtest_logreport(report=report)
    book = run.part(LEDGER)
    book.outside.links.update(["a/driver"] * (links // 2))
    book.totals.links.update(["a/driver"] * (links - links // 2))
    book.totals.missing["a CUDA driver"] = missing
    book.outside.missing["a CUDA driver"] = int(bool(missing))


@pytest.mark.parametrize(
    ("require", "values", "required"),
    [
        ("none", {"answers": {"skipped": 1}}, []),
        ("auto", {"answers": {}}, [AskedFor("driver", 0, 0)]),
        ("auto", {"answers": {"skipped": 2}, "missing": 4}, [AskedFor("driver", 2, 0, {"skipped": 2})]),
        ("auto", {"answers": {"found no driver": 1}, "missing": 4}, [AskedFor("driver", 5, 0, {"skipped": 5})]),
        ("auto", {"answers": {"skipped": 2, "ran": 1}}, [AskedFor("driver", 3, 1, {}, {"skipped": 2})]),
        ("driver", {"answers": {"ran": 1, "skipped": 2}}, [AskedFor("driver", 3, 1, {}, {"skipped": 2})]),
        ("driver", {"answers": NEITHER}, [AskedFor("driver", 2, 0, NEITHER)]),
        ("driver", {"answers": {}}, [AskedFor("driver", 1, 0, {"no test asked for a CUDA driver": 1})]),
        ("links", {"answers": {"skipped": 1}}, [AskedFor("links", 1, 0, {"no target linked anything": 1})]),
        ("driver,links", {"answers": {"ran": 2}, "links": 3}, [AskedFor("driver", 2, 2), AskedFor("links", 3, 3)]),
    ],
)
def test_what_a_run_asks_for(require: str, values, required: list[AskedFor]) -> None:
    """How many tests ran on the driver that they asked for, how many links were made, and what allows the rest."""
    run = begun(require=require)
    part = run.part(Require)
    ask(run, **values)
    assert part.asked_for() == required


@pytest.mark.parametrize("properties", ["on", "off"])
def test_what_a_run_misses(properties: str, monkeypatch) -> None:
    """Whatever was asked for has its sentence, which a JUnit report gets where properties are on."""
    added = []
    monkeypatch.setattr(pytest_private, "add_suite_property", lambda *given: added.append(given))
    run = begun(require="links", properties=properties)
    run.part(Require)
    ask(run, {})
    faults = AskedFor("faults", 3, 1, {"a": 1, "b": 1})
    run.config.pluginmanager.register(SimpleNamespace(asked_for=lambda: [faults]), "cudalink-faults")
    run.config.pluginmanager.register(SimpleNamespace(write_asked=(written := []).append), "cudalink-record-file")
    end(run)
    assert (written, run.part(Account).as_json()) == ([run.part(Account).entries], [])
    assert {*run.part(Account).unmet} == {NO_LINK, TWO_OF_THREE}
    assert {value for _, _, value in added} == ({NO_LINK, TWO_OF_THREE} if properties == "on" else set())
    assert {given[:2] for given in added} <= {(run.config, "cudalink.require")}


def end(run: Run, status: pytest.ExitCode = pytest.ExitCode.OK) -> None:
    """End the session."""
    session = SimpleNamespace(config=run.config, exitstatus=status)
    run.part(Account).end(session)


@pytest.mark.parametrize(
    ("change", "judged"),
    [
        (lambda _: pytest.ExitCode.OK, True),
        (lambda _: pytest.ExitCode.TESTS_FAILED, True),
        (lambda _: pytest.ExitCode.INTERRUPTED, False),
        (lambda _: pytest.ExitCode.NO_TESTS_COLLECTED, False),
        (lambda run: setattr(run.config.option, "collectonly", True), False),
        (lambda run: setattr(run.config.option, "setuponly", True), False),
        (lambda run: setattr(run, "task", object()), False),
    ],
)
def test_runs_that_miss_nothing(change, judged: bool) -> None:
    """A run that ended early or had no test, and a process that runs tests for another."""
    run = begun(require="links")
    run.part(Require)
    end(run, change(run) or pytest.ExitCode.OK)
    assert bool(run.part(Account).unmet) is judged
