"""How checks decide: real checks, reporter and ledger on hooks that are called by hand, without a nested pytest."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from types import SimpleNamespace

import pytest

from pytest_cudalink.plugin import pytest_private
from pytest_cudalink.plugin.items.plan import MarkerPlan
from pytest_cudalink.plugin.parts import CURRENT_TEST, LEDGER, MISMATCHES, REPORTER, REQUIRED
from pytest_cudalink.plugin.records import facts
from pytest_cudalink.plugin.run import Run
from pytest_cudalink.plugin.watch.check import Check, Seen
from pytest_cudalink.plugin.watch.mismatches import UnsteeredLinkWarning
from pytest_cudalink.plugin.watch.violation_check import DriverCheck, ViolationCheck
from pytest_cudalink.probes import libcuda
from pytest_cudalink.violations import Violation
from tests.plugin.by_hand import PHASES, Config, Item, begun, reported

# -- facts


def test_the_facts_of_a_test() -> None:
    """Each becomes a property where there is something to say, and plain values for another process."""
    seen = facts.Facts()
    plain = {"links": {}, "unsteered": {}, "violations": {}, "verdicts": [], "unsupported": {}, "undestroyed": 0}
    plain |= {"documented": None, "missing": None, "refused": [], "cause": None, "sticky": None}
    assert (seen.properties(), seen.as_json()) == ([], plain)
    seen.refuse([("cuA", "no"), ("cuB", "")], None)
    seen.refuse([], cause := {"what": "x", "why": "y", "fix": ["z"]})
    seen.refuse([], {})
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
    assert (plain["cause"], plain["links"], type(plain["links"])) == (cause, {"a/none": 1, "b/driver": 2}, dict)
    seen.refuse([("cuC", "")], None)
    assert (seen.cause, seen.refused) == (cause, [{"function": "cuC", "note": ""}])


# -- the reporter


class Saw(Check):
    """Shows what it is told to, and notes what it was asked."""

    def __init__(self, run: Run, **seen: Seen) -> None:
        super().__init__(run)
        self.seen, self.asked, self.left = seen, [], False

    def _show(self, where: str) -> list[Seen]:
        self.asked.append(where)
        return [self.seen.pop(where)] if where in self.seen else []

    def between(self) -> list[Seen]:
        return self._show("between")

    def begin(self, nodeid: str) -> None:
        self.asked.append(nodeid)

    def leaves(self) -> bool:
        return self.left

    def look(self, phase) -> None:
        self.asked.append(phase.error)

    def sections(self, phase) -> list[Seen]:
        return self._show(phase.when)

    def finish(self) -> list[Seen]:
        return self._show("finish")


def watched(**seen: Seen) -> tuple[Run, Saw]:
    """A run with a check that sees something, and with one that never does."""
    run = begun()
    check = Saw(run, **seen)
    for one in (check, Check(run)):
        run.config.pluginmanager.register(one)
    return run, check


def test_when_checks_are_asked() -> None:
    """Between tests, as a test begins, before and after the report of a phase, and at the end."""
    run, check = watched()
    assert run.get(CURRENT_TEST) is not None
    assert run.config.hook.pytest_runtest_logstart(nodeid="A", location=("f.py", 0, "A")) == []
    error = ValueError()
    assert [reported(run, when, error=error if when == "call" else None).when for when in PHASES] == [*PHASES]
    run.part(REPORTER).finish()
    assert check.asked == ["between", "A", None, "setup", error, "call", None, "teardown", "between", "finish"]
    assert run.get(LEDGER) is None


@pytest.mark.parametrize("left", [False, True])
def test_what_a_test_leaves_is_destroyed(left: bool) -> None:
    """Only where a check says that there is something: collecting all garbage takes long."""
    run, check = watched()
    check.left = left
    item, garbage = Item(), Item()
    item.funcargs = {"garbage": garbage}
    garbage.itself, gone = garbage, weakref.ref(garbage)
    del garbage
    gc.disable()
    assert run.config.hook.pytest_runtest_teardown(item=item, nextitem=None) == []
    gc.enable()
    assert (item.funcargs == {}, gone() is None) == (left, left)


@pytest.mark.parametrize(
    ("seen", "strict", "outcome", "longrepr"),
    [
        (Seen("T", "text"), False, "failed", "text"),
        (Seen("T", "text", message="message"), False, "failed", "message"),
        (Seen("T", "text", "warn"), False, "passed", None),
        (Seen("T", "text", "warn", "message", UnsteeredLinkWarning), True, "failed", "text"),
        (Seen("T", "text", "report"), False, "passed", None),
        (Seen("T", "text", "skip", "message"), False, "skipped", ("f.py", 5, "Skipped: message")),
    ],
)
def test_verdicts_of_a_test(seen: Seen, strict: bool, outcome: str, longrepr: object) -> None:
    """A verdict fails the test, warns, is shown alone, or skips; what has failed already gets a section."""
    run, _ = watched(call=seen, setup=seen)
    item = Item(line=4)
    item.strict = strict
    report = reported(run, "call", item, wasxfail="reason")
    assert (report.outcome, report.longrepr) == (outcome, longrepr)
    assert report.sections == ([("T", "text")] if seen.verdict in ("report", "skip") else [])
    assert hasattr(report, "wasxfail") is (outcome != "failed")
    assert facts.is_unsupported(report) is (seen.verdict == "skip")
    assert item.warnings == ([(pytest.PytestWarning, "text")] if seen.verdict == "warn" and not strict else [])
    if outcome == "failed":
        report = reported(run, "setup", item, outcome="failed")
        assert (report.longrepr, report.sections) == (None, [("T", "text")])


def test_a_test_without_a_line() -> None:
    """A test that does not know its line is skipped in the first."""
    run, _ = watched(call=Seen("T", "text", "skip", "why"))
    assert reported(run, "call").longrepr == ("f.py", 1, "Skipped: why")


def test_how_a_report_fails() -> None:
    """The text is shown, or what pytest makes of it."""
    report = pytest.TestReport("A", ("f.py", 0, "A"), {}, "passed", None, "call")
    facts.fail(report, "T", "text")
    assert (report.outcome, report.longrepr) == ("failed", "text")


@pytest.mark.parametrize(
    ("seen", "strict", "notes", "problems", "warning"),
    [
        (Seen("T", "text", message="message"), False, [], ["text"], []),
        (Seen("T", "text", "report"), False, ["text"], [], []),
        (Seen("T", "text", "warn"), False, [], [], [(pytest.PytestWarning, "text", 2)]),
        (Seen("T", "text", "warn", "message"), False, [], [], [(pytest.PytestWarning, "message", 2)]),
        (Seen("T", "text", "warn", "message", UnsteeredLinkWarning), True, [], ["text"], []),
    ],
)
@pytest.mark.parametrize("where", ["between", "finish"])
def test_verdicts_outside_of_tests(where, seen: Seen, strict: bool, notes, problems, warning) -> None:
    """What was seen outside of tests fails the run, is shown, or is a warning."""
    run, _ = watched(**{where: seen})
    run.config.strict = strict
    run.part(REPORTER).finish()
    outside = run.part(LEDGER).outside
    assert (outside.notes, outside.problems, run.config.warnings) == (notes, problems, warning)


def test_what_a_check_counts_at_the_end_of_a_test() -> None:
    """It is on the last report of the test, and on no other."""
    run, check = watched()
    check.sections = lambda phase: [run.part(LEDGER).test.links.update(["a/driver"])][:0]
    assert not hasattr(reported(run, "call"), "cudalink")
    assert reported(run, "teardown").cudalink["links"] == {"a/driver": 2}


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
        self.pending = [one for one in self.pending if one not in violations]

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
    """Each is told to the hook and shown with its test, and with the test that made the handle if that is another."""
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
    assert told == [(True, *one) for one in made]


def test_violations_that_no_report_shows() -> None:
    """They do not fail the next test; where there are none, nothing is counted."""
    run = begun()
    check = Source(run, "fail")
    run.config.pluginmanager.register(check)
    check.collect("A")
    assert run.get(LEDGER) is None
    check.pending = [violation(1)]
    check.collect("A")
    check.begin("B")
    assert (check.mode, reported(run, "call").outcome) == ("fail", "passed")
    check.pending = [violation(2), violation(3)]
    assert reported(run, "call").longrepr == (
        "cudalink: 2 lifetime violations during this test's call:\ntext 2\n\ntext 3"
    )


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
    assert [seen.text for seen in links.sections(SimpleNamespace(report=report))] == ["c"]
    report = reported(run, "call")
    assert (report.outcome, report.sections) == ("passed", [])
    links.add("a")
    assert reported(run, "call", outcome="skipped", longrepr=("f.py", 1, "Skipped: a")).longrepr == "a"
    links.add("of a")
    links.add("w", warn=True)
    run.part(REPORTER).finish()
    assert run.part(LEDGER).outside.problems == ["of a", "outside (2 times)"]
    assert run.config.warnings == [(UnsteeredLinkWarning, "w", 2)]


@pytest.mark.parametrize(("isolated", "collected"), [(False, False), (True, False), (True, True)])
def test_a_process_that_repeats_collecting(isolated: bool, collected: bool) -> None:
    """The process that waits for it has seen the same."""
    run = begun()
    run.task, run.collected, run.nodeid = object() if isolated else None, collected, "A"
    run.part(MISMATCHES).add("a")
    assert run.part(MISMATCHES).pending == ({} if isolated and not collected else {"a": 1})


# -- what a run requires

DRIVER, NVJITLINK, NOTHING = MarkerPlan(backend="driver"), MarkerPlan(backend="nvjitlink"), MarkerPlan()
TOOLKIT = MarkerPlan(requirements=(SimpleNamespace(name="toolkit"),))
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
    monkeypatch.setattr(libcuda, "library", object)
    run = begun(**settings)
    run.part(REQUIRED)
    assert run.get(LEDGER) is not None
    reports = [reported(run, when, Item(plan)) for when in PHASES]
    assert [getattr(one, "cudalink_on_driver", None) for one in reports] == [None, None, "ran" if asks else None]


@pytest.mark.parametrize(
    ("phases", "driver", "answer"),
    [
        ([("teardown", {})], object(), "ran"),
        ([("setup", {"outcome": "skipped"}), ("teardown", {})], object(), "skipped"),
        ([("call", {"outcome": "skipped"}), ("teardown", {})], object(), "skipped"),
        ([("call", {"outcome": "skipped"}), ("setup", {}), ("teardown", {})], object(), "ran"),
        ([("call", {"outcome": "skipped", "wasxfail": ""}), ("teardown", {})], object(), "ran"),
        ([("call", {"outcome": "skipped", "cudalink_unsupported": True}), ("teardown", {})], object(), "ran"),
        ([("call", {"wasxfail": ""}), ("teardown", {})], object(), "ran"),
        ([("teardown", {})], libcuda.DriverNotFoundError("no"), "found no driver"),
        ([("teardown", {})], OSError(), "found no driver"),
    ],
)
def test_whether_a_test_ran_on_the_driver(phases, driver: object, answer: str, monkeypatch) -> None:
    """A skip means no, but not one that stands for a failure; the driver is looked for once."""
    looked = []

    def library() -> object:
        looked.append(driver)
        if isinstance(driver, Exception):
            raise driver
        return driver

    monkeypatch.setattr(libcuda, "library", library)
    run = begun(backend="driver")
    run.part(REQUIRED)
    for _ in range(2):
        report = [reported(run, when, **more) for when, more in phases][-1]
        assert report.cudalink_on_driver == answer
    assert len(looked) == (answer != "skipped")


SKIPPED = "The run fails because no test ran on the driver that was asked for ({} skipped); --cudalink-require=none "


@pytest.mark.parametrize(
    ("require", "answers", "counts", "unmet"),
    [
        ("none", {"skipped": 1}, {}, []),
        ("links", {"skipped": 1}, {"links": 1}, []),
        ("auto", {}, {}, []),
        ("auto", {"skipped": 2}, {"missing": 4}, [SKIPPED.format(2) + "allows that."]),
        ("auto", {"found no driver": 1}, {"missing": 4}, [SKIPPED.format(5) + "allows that."]),
        ("auto", {"skipped": 2, "ran": 1}, {}, []),
        ("driver", {"ran": 1}, {}, []),
        ("driver", {"found no driver": 1, "skipped": 1}, {}, [
            "The run fails because no test ran on a CUDA driver (2 tests asked for one); {}."
        ]),
        ("driver", {}, {}, ["The run fails because no test ran on a CUDA driver (no test asked for one); {}."]),
        ("links", {}, {}, ["The run fails because nothing was linked; {}."]),
        ("links", {}, {"links": 1}, []),
        ("faults", {}, {"faults": None}, ["The run fails because no emulated driver got --cudalink-faults; {}."]),
        ("faults", {}, {"faults": []}, []),
        ("faults", {}, {"faults": ["a"]}, ["The run fails because 1 fault was never triggered; {}."]),
        ("faults", {}, {"faults": ["a", "b"]}, ["The run fails because 2 faults were never triggered; {}."]),
        ("faults", {}, {}, []),
        ("links", {}, {"links": 1, "faults": ["a"]}, []),
    ],
)  # fmt: skip
@pytest.mark.parametrize("properties", ["on", "off"])
def test_what_a_run_misses(require, answers, counts, unmet, properties, monkeypatch) -> None:
    """Each word of the option has its sentence, which a JUnit report gets where properties are on."""
    added = []
    monkeypatch.setattr(pytest_private, "add_suite_property", lambda *given: added.append(given))
    run = begun(require=require, properties=properties, faults="x" if "faults" in counts else "")
    required = run.part(REQUIRED)
    log = run.config.hook.pytest_runtest_logreport
    for answer, number in Counter({None: 3, **answers}).items():
        for _ in range(number):
            report = pytest.TestReport("A", ("f.py", 0, "A"), {}, "passed", None, "teardown")
            if answer is not None:
                report.cudalink_on_driver = answer
            log(report=report)
    if (lines := counts.get("faults")) is not None:
        planned = SimpleNamespace(look=lambda: planned.known.extend(lines), known=[], lines=lambda: planned.known)
        run.config.pluginmanager.register(planned, "cudalink-faults")
    book = run.part(LEDGER)
    for part in (book.totals, book.outside):
        part.links.update(["a/driver"] * counts.get("links", 0))
    book.totals.missing["a CUDA driver"] = counts.get("missing", 0)
    book.outside.missing["a CUDA driver"] = "missing" in counts
    end(run)
    source = f"--cudalink-require is {run.settings.require}"
    assert required.unmet == [sentence.format(source) for sentence in unmet]
    assert added == [(run.config, "cudalink.require", one) for one in required.unmet if properties == "on"]


def end(run: Run, status: pytest.ExitCode = pytest.ExitCode.OK) -> None:
    """End the session."""
    session = SimpleNamespace(config=run.config, exitstatus=status)
    run.config.hook.pytest_sessionfinish(session=session, exitstatus=status)


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
    required = run.part(REQUIRED)
    end(run, change(run) or pytest.ExitCode.OK)
    assert bool(required.unmet) is judged
