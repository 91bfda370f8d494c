"""The life of a run, in the order of pytest's hooks: it begins when something asks, and decides which parts there are.

This module is a plugin of pytest from then on.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Generator, Iterable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import pytest

from ... import own_imports
from ...base.safe_text import line
from ...base.words import listed
from ...compat.settings_table import OPTIONS, unread_variables
from ...loader.jitlink import jitlink_calls
from .. import conditions, hostile, isolation, marker, pytest_private, records, settings, watch
from ..conditions import run_driver
from ..hook_order import register
from ..run import Key, Run, RunPart, is_on_emulated_driver, run_of, task_of
from ..start import RUN, is_active, warn
from ..watch import backends, provenance
from . import account

if TYPE_CHECKING:
    from ..items.marked_tests import MarkedTests
    from ..records.ledger import Totals
    from .xdist import HandOver

_HAND_OVER: Final[Key[HandOver]] = Key("session.xdist:HandOver")
_MARKED_TESTS: Final[Key[MarkedTests]] = Key("items.marked_tests:MarkedTests")
#: Files of which one exists where a real driver can have a device: Linux, WSL, Jetson.
_DEVICE_FILES: Final = (
    "/dev/nvidiactl",
    "/proc/driver/nvidia/version",
    "/dev/dxg",
    "/dev/nvhost-gpu",
    "/dev/nvgpu/igpu0/ctrl",
)


# -- before collection


def begin(config: pytest.Config, options: argparse.Namespace, *, late: bool = False, in_test: bool = False) -> None:
    """Begin a run, for which something asks: resolve its settings, give the process its driver, and follow pytest.

    Before conftests if possible: a conftest can import CUDA. This module becomes a plugin of pytest, which calls
    `pytest_configure` at once where that time has passed.

    `options`: the command line as far as it is known.
    `late`: whether the session has begun.
    `in_test`: whether a test runs.
    """
    task = task_of(config)
    if task is not None:
        # before the driver is loaded: its events go where the process that waits for this one looks for them
        options.cudalink_events = task.events
        # without what plugins that are here already have added once more
        sys.path[:] = task.start["path"]
        settings.restore({**dict.fromkeys(os.environ), **task.start["environment"]})
    run = Run(config, account.without_blocked(config, settings.resolve(config, options), isolated=task is not None))
    run.begins_late, run.collected = late, in_test
    if in_test:  # a library that the test imports has asked
        run.nodeid = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0] or None
    run.unread_variables = _unread_variables()  # before the run sets its own
    config.stash[RUN] = run
    run.part(records.LEDGER)
    provenance.start(run)  # before a conftest opens a library
    _load_libraries(run)
    # before this process can have native code that links
    config.add_cleanup(jitlink_calls.postpone_until_native_code(partial(_watch_nvjitlink, run)))
    if run.settings.guard_rails.value != "off":
        run.part(watch.GUARD)  # waits for cuda.pathfinder before any conftest is imported
    # pytester has taken this module out of sys.modules if a run inside a test was the first to ask
    register(config, import_module(__name__), "lifecycle")


def _unread_variables() -> list[str]:
    known = {option.env for option in OPTIONS}
    given = [name for name in os.environ if name.startswith("CUDALINK_") and name not in known]
    if not given:
        return []
    return unread_variables(given)


def activate(config: pytest.Config, *, in_test: bool = False) -> Run:
    """Return the run; begin it now if its tests, or a worker of xdist, are the first to ask."""
    if not is_active(config):
        begin(config, config.option, late=True, in_test=in_test)
        run = run_of(config)
        _start_session(run)
        if (libraries := run.get(watch.PROVENANCE)) is not None:
            libraries.take(None, "before anything asked for pytest-cudalink")
    return run_of(config)


def command_line(config: pytest.Config) -> None:
    """Make a process that was started for another one's tests run these alone."""
    task = task_of(config)
    if task is not None:
        from ..isolation import child as isolated

        register(config, isolated.Child(config, task), "isolated")


def pytest_configure(config: pytest.Config) -> None:
    """Force what the settings say, before anything is collected; undone when the run ends."""
    run = run_of(config)
    run.withheld = settings.withhold()
    config.add_cleanup(partial(os.environ.update, run.withheld))
    with own_imports():
        _start(run)


def _start(run: Run) -> None:
    config = run.config
    _start_xdist(run)
    if run.settings.schedules.value and not run.reports_elsewhere:
        from ..hostile import schedules

        schedules.choose_seed(run)
    if not run.reports_elsewhere:
        for sentence in run.unread_variables:
            warn(config, f"cudalink: {sentence}")
    _start_driver(run)
    backends.start(run)
    run.configured = True  # a worker of xdist has the settings of its controller now
    if run.get(watch.NATIVE_LINKS) is not None:
        from ..watch.violation_checks import check_nvjitlink

        check_nvjitlink(run)
    if run.settings.forces_driver:
        run.part(_MARKED_TESTS)
    _warn_of_ignored(run, late=False)


def _warn_of_ignored(run: Run, *, late: bool) -> None:
    """Warn once of options of an emulated driver in a run without one: before collection, if none can come late."""
    options = run.settings.of_emulation
    if not options or run.reports_elsewhere:
        return
    if run_driver.may_come_late(run.settings) is late:
        run_driver.warn_of_ignored(run.config, options)


def _load_libraries(run: Run) -> None:
    run.config.add_cleanup(settings.share(run.settings))
    if is_on_emulated_driver() or run.settings.driver.value == "real" or not run.settings.keeps_driver:
        run_driver.load(run.config, run.settings)
        _serve_runtime(run)  # before a conftest takes single functions out of the module
    if run.settings.nvjitlink.value != "auto":
        from ..conditions import nvjitlink

        undo = nvjitlink.apply(run.settings)
        if undo is not None:
            run.config.add_cleanup(undo)


def _serve_runtime(run: Run) -> None:
    if run.emulated is not None:
        from ...emulator import runtime

        run.part(watch.DESCENDANTS)
        if run.settings.order.value != "off":
            run.emulated.check_order(on=True)
        run.config.add_cleanup(runtime.serve(run.emulated))


def _start_xdist(run: Run) -> None:
    if not run.config.hook.pytest_configure_node.has_spec():  # xdist is not loaded
        return
    from . import xdist

    run.part(_HAND_OVER)
    given = xdist.settings_of_controller(run.config)
    if given is not None:
        run.settings, withheld = given
        run.withheld = {**run.withheld, **withheld}


def _watch_nvjitlink(run: Run) -> None:
    """Count the links of native code, explain what nvJitLink refuses, and check its contract."""
    if run.is_isolated and run.settings.fault_sweep.value:
        from ...emulator import faults

        jitlink_calls.watch_nvrtc(faults.nvrtc_functions())  # a sweep may let its calls fail
    run.part(watch.NATIVE_LINKS)
    run.part(watch.CAUSES)
    from ..watch import violation_checks

    violation_checks.watch_nvjitlink(run)
    if run.configured:
        violation_checks.check_nvjitlink(run)


def _start_driver(run: Run) -> None:
    """Watch what an emulated driver refuses, the memory that it is given, and the faults of the run."""
    emulation = run.emulation
    if emulation is None:
        return
    run.part(watch.CAUSES).watch()
    run.part(watch.LOADED_MODULES)
    if run.settings.lifetime.value != "off":
        run.part(watch.LIFETIMES)  # after the causes, so that a violation fails a test that these skip
    run.part(watch.DEADLOCKS)
    if run.settings.order.value != "off":
        run.part(watch.ORDER)
    if emulation.faults:
        run.part(conditions.FAULTS)
    if emulation.events:
        run.part(watch.EVENT_FILE)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Open the record file, give the suite its properties, and install the guard rails."""
    with own_imports():
        _start_session(run_of(session.config))


def _start_session(run: Run) -> None:
    config = run.config
    run.part(Ends)
    if run.settings.report.value:
        file = run.part(records.RECORD_FILE)
        if not run.reports_elsewhere:
            run.part(records.RESULTS)
            file.write_run()
    if account.blocked_lines(config):
        run.part(account.Account)
    _start_requirements(run)
    for key, setting in zip(hostile.RERUNS, (run.settings.fault_sweep, run.settings.schedules), strict=True):
        if setting.value and not run.is_isolated:
            run.part(key)  # in a controller of xdist, it adds up what the workers found
    if run.settings.properties.value == "on" and pytest_private.writes_junit(config):
        from ..records.results import add_properties, environment_facts

        add_properties(config, environment_facts())
    if run.settings.guard_rails.value != "off":  # last: what was looked up before goes into the record file
        run.part(watch.GUARD).start()


def _start_requirements(run: Run) -> None:
    """Count what a run must have done, where it requires anything and this process can tell."""
    words = run.settings.required
    # by default a marker can be the first to ask for the driver, which a controller does not see
    if words - {"auto"} or (words and (run.settings.forces_driver or run.is_controller)):
        run.part(account.Require)
    faults = run.settings.faults
    if faults.value and faults.source not in ("default", "ini"):  # the ini file has them for emulated drivers alone
        run.part(conditions.FAULTS)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Return the header's lines."""
    with own_imports():
        from .header import lines

        return [line(text) for text in lines(run_of(config))]


# -- after collection


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Check the markers of the collected tests, and wrap the phases of tests if one of them has a plan."""
    run = run_of(config)
    try:
        planned = marker.check(items)
    except pytest.UsageError as error:
        _refuse(run, error)
        items.clear()
        return
    if planned:
        run.part(_MARKED_TESTS)
    plans = marker.plans(items) if planned else []
    if any(plan.no_wait is not None for plan in plans):
        run.part(watch.NO_WAIT)
    run.collected = True
    # a worker of xdist that dies is replaced by xdist
    shared = run.settings.tests.value == "restarted" and not run.is_worker
    isolated = run.settings.tests.value == "isolated" or any(plan.isolate for plan in plans)
    if (isolated or shared) and not run.is_isolated:
        run.part(isolation.ISOLATION)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Emulate a driver for the selected tests whose marker forces the driver backend, where there is none."""
    run = run_of(session.config)
    _select(session, run)
    _guard_contexts(session, run)
    if not session.config.option.collectonly:
        _warn_of_ignored(run, late=True)


def _guard_contexts(session: pytest.Session, run: Run) -> None:
    """Ask the contexts after each test, in a process of several tests that has or can have a driver with a device."""
    alone = run.task is not None and run.task.mode == "alone"
    if run.settings.sticky.value == "off" or alone or run.is_controller or session.config.option.collectonly:
        return
    if run.emulated is not None or any(map(os.path.exists, _DEVICE_FILES)):
        run.part(watch.STICKY).start(session, lambda: run.part(isolation.ISOLATION).take_over(session))


def _select(session: pytest.Session, run: Run) -> None:
    if run.settings.backend.value == "each" and run.worker in (None, "gw0") and not run.is_isolated:
        try:
            marker.warn_if_none_runs_on_each(session, str(run.settings.backend))
        except pytest.UsageError as error:
            _refuse(run, error)
    if session.config.option.collectonly:
        return
    if not any(plan.backend == "driver" for plan in marker.plans(session.items)):
        return
    if run.settings.required:
        run.part(account.Require)

    try:
        loaded = run_driver.load_late(session.config, run.settings)
    except pytest.UsageError as error:
        _refuse(run, error)
        session.items.clear()
        return
    if loaded:
        _serve_runtime(run)
        _start_driver(run)
        from .header import driver_lines

        run.late_header = driver_lines(run)
        if run.settings.properties.value == "on" and getattr(session.config.option, "xmlpath", None):
            from ..records.results import add_properties, environment_facts

            run.late_facts = {name: fact for name, fact in environment_facts().items() if name in run_driver.FACTS}
            add_properties(run.config, run.late_facts)
        if (file := run.get(records.RECORD_FILE)) is not None:
            file.write_found()


def _refuse(run: Run, error: pytest.UsageError) -> None:
    """Raise the error; a worker of xdist passes it to its controller, which would wait for ever for the tests."""
    if not run.is_worker:
        raise error
    from .xdist import refuse_markers

    refuse_markers(run, error)


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    """Return the header's lines on a driver that the run has got for its markers; all lines, if they come late."""
    run = run_of(config)
    if config.option.verbose < 0:
        return []
    return [*(pytest_report_header(config) if run.begins_late else ()), *run.late_header]


# here, because a part that is registered within the loop has no wrapper around it
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """End the processes that wait for tests before plugins such as pytest-cov read the files that these leave."""
    try:
        return (yield)
    finally:
        if (servers := run_of(session.config).get(isolation.SERVERS)) is not None:
            servers.end()


class Ends(RunPart):
    """A plugin object that ends the parts in order, each if the run has made it."""

    # before pytest writes its JUnit file; then the account judges, by what these found, whether all that was asked for
    # has happened
    _FIRST = (conditions.FAULTS, watch.REPORTER)
    # after the sums, see `pytest_sessionfinish` of this module
    _LAST = (records.RESULTS, records.RECORD_FILE, _HAND_OVER)

    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        self._end(self._FIRST, session)
        if next(self._run.asked_for(), None) is not None:
            self._run.part(account.Account)
        self._end((account.Account,), session)
        result = yield
        self._end(self._LAST, session)
        return result

    def _end(self, keys: Iterable[Key[Any] | type[Any]], session: pytest.Session) -> None:
        for key in keys:
            if (part := self._run.get(key)) is not None:
                part.end(session)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Add what belongs to no test, and fail the run for it; a worker of xdist leaves that to its controller."""
    run = run_of(session.config)
    if (reporter := run.get(watch.REPORTER)) is not None:
        reporter.finish()
    if run.is_controller and not run.late_header:  # a marker in its workers can be the first to need them
        _warn_of_ignored(run, late=True)
    if run.is_worker:
        return
    book = run.part(records.LEDGER)
    book.totals.add_outside(book.outside.as_json())
    asked = run.get(account.Account)
    run.failing = [*book.totals.failing, *(asked.unmet if asked is not None else ())]
    if session.exitstatus == pytest.ExitCode.OK:
        run.failing += _run_again(run, book.totals)
    if (run.failing or book.totals.reruns) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _run_again(run: Run, totals: Totals) -> list[str]:
    """Return why a run fails in which no test fails and a rule was broken: by tests that passed when run again."""
    every = totals.violations_of_tests.items()
    broken = dict.fromkeys(test for check, tests in every if not run.settings.allows(check) for test in +tests)
    if not broken:
        return []
    why = f"violations in {listed([*broken])}, which passed when run again"
    return [f"The run fails because of {why}: a rule that is broken in some runs is broken"]


def last_look(config: pytest.Config, code: int | pytest.ExitCode | None) -> int | pytest.ExitCode | None:
    """Return the exit code of a run that has ended: 1 instead of 0 if a violation came after `pytest_sessionfinish`."""
    run, why = run_of(config), ""
    if run.get(watch.REPORTER) is not None or run.get(watch.DESCENDANTS) is not None:
        from ..watch import violation_checks

        if violation_checks.last_look(run) and code == pytest.ExitCode.OK:
            code, why = pytest.ExitCode.TESTS_FAILED, "a rule was broken after the end of the session"
    shows = any(getattr(config.option, name, False) for name in ("showfixtures", "show_fixtures_per_test"))
    if run.failing and shows and code == pytest.ExitCode.OK:
        code = pytest.ExitCode.TESTS_FAILED  # pytest returns 0 whatever the session has
    file, results = run.get(records.RECORD_FILE), run.get(records.RESULTS)
    if file is not None and file.last_look() and code == pytest.ExitCode.OK:
        code = pytest.ExitCode.TESTS_FAILED
    if results is not None and code is not None:
        results.last_look(int(code), why)
    return code


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the summary of a run in which something happened."""
    run = run_of(terminalreporter.config)
    happened = (run.part(records.LEDGER).totals, run.new_processes, run.settings.guard_rails.value != "off")
    if run.is_controller or any(happened) or run.get(account.Account) is not None:
        from . import summary

        guard = run.get(watch.GUARD)
        summary.show(terminalreporter, run, guard.not_routed if guard is not None else ())
