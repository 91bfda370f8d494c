"""How a test ends that has a plan or lacks a driver: its hooks are called by hand, without a nested pytest."""

import sys
import unittest
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from pytest_cudalink.environment.requirements import EnvironmentFact, Raises, parse
from pytest_cudalink.plugin.conditions import run_driver
from pytest_cudalink.plugin.items import MarkerPlan
from pytest_cudalink.plugin.items.marked_tests import DocumentedFailureError, MarkedTests
from pytest_cudalink.plugin.records import LEDGER, facts
from pytest_cudalink.plugin.run import RUN, Run
from pytest_cudalink.plugin.settings import Setting
from pytest_cudalink.plugin.watch import backends
from pytest_cudalink.probes.libcuda import DriverNotFoundError
from pytest_cudalink.targets import Choice
from tests.plugin.by_hand import Item, begun

NEEDED = tuple(parse({"ctk": ">=13", "driver": ">=13"}))
DOCUMENTED = MarkerPlan(requirements=NEEDED, otherwise=Raises(ValueError, match="x"))
FOUND = "ctk >= 13 (found none) and driver >= 13 (found 12.9)"
MUST = f"cudalink: needs {FOUND}; without it this test must fail with ValueError matching 'x', but it "
NO_DRIVER = "cudalink: needs a CUDA driver (found none, and the driver backend is forced); REMEDY"
SKIP, EXIT = pytest.skip.Exception("why"), pytest.exit.Exception("enough")


class Steered(SimpleNamespace):
    """What a run forces; keeps all that was forced."""

    def force(self, choice: Choice) -> Choice:
        before, self.choice = self.choice, choice
        self.forced.append(choice)
        return before


@pytest.fixture
def run(monkeypatch) -> Run:
    """A run whose driver is of CUDA 12.9, without a toolkit, that forces no backend."""
    run = begun(backend="driver")
    run.settings.backend = Setting("driver", "ini")
    run.config.stash[RUN] = run
    run.steered = Steered(choice=Choice("auto", "default"), forced=[])
    monkeypatch.setattr(backends, "steering", lambda _: run.steered)
    monkeypatch.setattr(run_driver, "remedy", lambda *_: "REMEDY")
    run.known = {"driver": EnvironmentFact("12.9"), "ctk": EnvironmentFact(None)}
    monkeypatch.setattr(facts, "Environment", lambda: run.known)
    run.part(MarkedTests)
    return run


def item_of(run: Run, plan: MarkerPlan | None) -> Item:
    """A test with a plan."""
    item = Item(plan)
    item.config, item.marks = run.config, []
    item.add_marker = lambda mark, append: item.marks.append((mark, append))
    return item


def end(run: Run, item: pytest.Item, when: str, error: BaseException | None = None) -> BaseException | None:
    """Run a phase that raises an error or none; gives what pytest sees."""

    def body() -> None:
        if error is not None:
            raise error

    inner = SimpleNamespace(**{f"pytest_runtest_{when}": body})
    run.config.pluginmanager.register(inner)
    try:
        getattr(run.config.hook, f"pytest_runtest_{when}")(item=item, nextitem=None)
    except BaseException as seen:  # noqa: BLE001 (an exit, too)
        return seen
    finally:
        run.config.pluginmanager.unregister(inner)
    return None


def reported(run: Run, report: object) -> object:
    """Let pytest make that report; gives the hooks."""
    make = pytest.hookimpl(trylast=True)(lambda: report)
    run.config.pluginmanager.unregister(name="makes")
    run.config.pluginmanager.register(
        SimpleNamespace(pytest_make_collect_report=make, pytest_runtest_makereport=make), "makes"
    )
    return run.config.hook


class Forbidding:
    """The check of waits: keeps when a body began and ended that may not wait, and what is allowed in it."""

    def __init__(self) -> None:
        self.seen = []

    @contextmanager
    def forbidden(self, allowed: frozenset[str]) -> Iterator[None]:
        self.seen.append(sorted(allowed))
        try:
            yield
        finally:
            self.seen.append("end")


@pytest.mark.parametrize("error", [None, ValueError("x"), SKIP])
@pytest.mark.parametrize("allowed", [None, frozenset(), frozenset({"cuMemFree"})])
def test_no_wait(run, allowed: frozenset[str] | None, error: BaseException | None) -> None:
    """Waits are forbidden in the body of a test whose plan says so, however it ends, and in none of its fixtures."""
    check, item = Forbidding(), item_of(run, MarkerPlan(no_wait=allowed))
    run.config.pluginmanager.register(check, "cudalink-no-wait")
    assert end(run, item, "setup") is None
    assert check.seen == []
    assert end(run, item, "call", error) is error
    expected = [] if allowed is None else [sorted(allowed), "end"]
    assert check.seen == expected
    assert end(run, item, "teardown") is None
    assert check.seen == expected


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("x"), None),
        (ValueError("y"), "failed with ValueError: y"),
        (TypeError("x"), "failed with TypeError: x"),
        (pytest.fail.Exception("x"), "failed with Failed: x"),
        (None, "passed"),
        *(
            (error, error)
            for error in (SKIP, EXIT, KeyboardInterrupt(), unittest.SkipTest("x"), pytest.xfail.Exception("x"))
        ),
    ],
)
@pytest.mark.parametrize("kept", [False, True])
def test_documented_failures(run, error, said, kept: bool) -> None:
    """A test fails as its marker documents, or it has failed; what is no failure stays; unittest keeps its errors."""
    item = item_of(run, DOCUMENTED)
    assert end(run, item, "setup") is None
    item._excinfo = [SimpleNamespace(value=error)] if kept and error else []
    seen = end(run, item, "call", None if kept else error)
    assert end(run, item, "teardown") is None
    if isinstance(said, str):
        assert (type(seen), str(seen)) == (DocumentedFailureError, MUST + said)
        assert seen.__cause__ is error
    else:
        assert seen is said
    expected = {"requirement": "ctk >= 13 and driver >= 13", "raises": "ValueError matching 'x'"}
    assert run.part(LEDGER).test.documented == (expected if said is None else None)


@pytest.mark.parametrize("error", [ValueError("x"), ValueError("y"), SKIP, EXIT])
def test_a_fixture_that_fails_as_documented(run, error) -> None:
    """The test is asserted then, and does not run; it may be run again."""
    item = item_of(run, DOCUMENTED)
    fits = str(error) == "x"
    assert end(run, item, "setup", error) is (None if fits else error)
    assert hasattr(item, "runtest") is (run.part(LEDGER).test.documented is not None) is fits
    if fits:
        assert item.runtest() is None
        assert end(run, item, "call") is None
    assert end(run, item, "teardown") is None
    assert not hasattr(item, "runtest")


def test_a_test_that_is_run_again(run) -> None:
    """What its marker needs may be there then."""
    item = item_of(run, DOCUMENTED)
    assert end(run, item, "setup") is None
    run.known = dict.fromkeys(run.known, EnvironmentFact("13.0"))
    assert end(run, item, "setup") is None
    assert end(run, item, "call", error := ValueError("x")) is error


@pytest.mark.parametrize("when", ["setup", "call"])
def test_a_documented_failure_lets_go(run, when: str) -> None:
    """Neither its frames nor what pytest keeps for its debugger hold what the test used."""
    names, kept = ("last_type", "last_value", "last_traceback", "last_exc"), []

    def fails() -> None:
        held, error = Steered(), ValueError("x")
        kept.extend([weakref.ref(held), error])
        raise error

    vars(sys).update(dict.fromkeys(names))
    item = item_of(run, DOCUMENTED)
    assert when == "setup" or end(run, item, "setup") is None
    run.config.pluginmanager.register(SimpleNamespace(**{f"pytest_runtest_{when}": fails}))
    getattr(run.config.hook, f"pytest_runtest_{when}")(item=item)
    assert kept[0]() is None
    assert not {*names} & vars(sys).keys()


def test_requirements_that_do_not_hold(run) -> None:
    """They skip the test, or let it fail, with the same reason; what holds is not said."""
    some = MarkerPlan(requirements=(*NEEDED, *parse({"driver": ">=12"})))
    skipped = end(run, item_of(run, some), "setup")
    assert (type(skipped), str(skipped)) == (pytest.skip.Exception, f"cudalink: needs {FOUND}")
    assert skipped._use_item_location
    assert run.part(LEDGER).test.missing == "ctk >= 13 and driver >= 13"
    item = item_of(run, some._replace(otherwise="xfail"))
    assert end(run, item, "setup") is None
    ((mark, append),) = item.marks
    assert (mark.name, mark.kwargs, append) == ("xfail", {"reason": str(skipped), "strict": False}, False)
    assert end(run, item, "call", error := ValueError("x")) is error
    for plan in (None, MarkerPlan(), MarkerPlan(requirements=tuple(parse({"driver": ">=12"})))):
        item = item_of(run, plan)
        assert [end(run, item, when) for when in ("setup", "call", "teardown")] == [None] * 3
        assert (item.marks, end(run, item, "setup", error)) == ([], error)
    assert run.steered.forced == []


@pytest.mark.parametrize(("by_option", "source"), [(False, "the marker cudalink"), (True, "--force-backend, from ini")])
def test_the_backend_of_a_test(run, by_option: bool, source: str) -> None:
    """It is forced before the fixtures, and what was forced before is again after them."""
    item = item_of(run, MarkerPlan(backend="driver", by_option=by_option))
    assert end(run, item, "setup") is None
    assert run.steered.choice == Choice("driver", source)
    assert end(run, item, "teardown", error := ValueError()) is error
    assert end(run, item, "teardown") is None
    assert run.steered.forced == [Choice("driver", source), Choice("auto", "default")]


@pytest.mark.parametrize("backend", ["driver", "nvjitlink"])
def test_a_marker_that_came_too_late(run, backend: str, monkeypatch) -> None:
    """No driver can be emulated for a marker once a library has looked for one."""
    monkeypatch.setattr(run_driver, "came_too_late", lambda config: config is run.config)
    seen = end(run, item_of(run, MarkerPlan(backend=backend)), "setup")
    assert str(seen) == (NO_DRIVER if backend == "driver" else "None")


@pytest.mark.parametrize("when", ["setup", "call", "teardown"])
@pytest.mark.parametrize(
    ("backend", "error"),
    [("driver", DriverNotFoundError("no")), ("driver", RuntimeError("no")), ("auto", DriverNotFoundError("no"))],
)
def test_a_driver_that_is_missing(run, when: str, backend: str, error) -> None:
    """Its error is a skip where the driver is forced, also one that unittest keeps, and one of collecting."""
    run.steered.choice = Choice(backend, "option")
    skips = backend == "driver" and isinstance(error, DriverNotFoundError)
    seen = end(run, item_of(run, None), when, error)
    assert (type(seen), str(seen)) == ((pytest.skip.Exception, NO_DRIVER) if skips else (type(error), "no"))
    assert seen is error or (seen._use_item_location and seen.__cause__ is error)
    assert run.part(LEDGER).test.missing == ("a CUDA driver" if skips else None)

    def fails() -> None:
        raise error

    call = pytest.CallInfo.from_call(fails, when)
    excinfo = call.excinfo
    reported(run, SimpleNamespace()).pytest_runtest_makereport(item=item_of(run, None), call=call)
    assert (str(call.excinfo.value), call.excinfo is excinfo) == ((NO_DRIVER, False) if skips else ("no", True))
    for path, line in ((excinfo.traceback[-1].path, fails.__code__.co_firstlineno + 1), ("/x", 0)):
        report = SimpleNamespace(outcome="failed", longrepr="E", call=pytest.CallInfo.from_call(fails, "collect"))
        collector = SimpleNamespace(config=run.config, path=path)
        assert reported(run, report).pytest_make_collect_report(collector=collector) is report
        left = ("skipped", (str(path), line, f"Skipped: {NO_DRIVER}"), False) if skips else ("failed", "E", True)
        assert (report.outcome, report.longrepr, hasattr(report, "call")) == left
    assert run.part(LEDGER).outside.missing == ({"a CUDA driver": 2} if skips else {})


def test_reports_without_an_error(run) -> None:
    """They stay as they are; pytest makes some without a call."""
    call = pytest.CallInfo.from_call(lambda: None, "call")
    for report in (SimpleNamespace(), SimpleNamespace(call=call)):
        hook = reported(run, report)
        assert hook.pytest_runtest_makereport(item=item_of(run, None), call=call) is report
        assert hook.pytest_make_collect_report(collector=SimpleNamespace(config=run.config)) is report
    assert call.excinfo is None
