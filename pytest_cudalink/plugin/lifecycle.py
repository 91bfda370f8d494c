"""The life of a run, in the order of pytest's hooks; which decides which parts a run gets."""

from __future__ import annotations

import os
from functools import partial
from typing import Any, Final

import pytest

from ..process import jitlink_calls
from . import backends, blocked, marker, provenance, settings, variables
from .parts import (
    CAUSES,
    EVENT_FILE,
    FAULTS,
    HAND_OVER,
    ISOLATION,
    LEDGER,
    LIFETIMES,
    LOADED_MODULES,
    MARKED_TESTS,
    MISMATCHES,
    NATIVE_LINKS,
    RECORD_FILE,
    REQUIRED,
    RESULTS,
    STICKY_GUARD,
)
from .run import RUN, Run, is_on_emulated_driver, run_of, task_of

__all__ = [
    "collected",
    "command_line",
    "configure",
    "header",
    "interact",
    "last_look",
    "late_header",
    "load",
    "selected",
    "session_finish",
    "session_start",
    "terminal_summary",
]

#: Files of which one exists where a real driver can have a device: Linux, WSL, Jetson.
_DEVICE_FILES: Final = (
    "/dev/nvidiactl",
    "/proc/driver/nvidia/version",
    "/dev/dxg",
    "/dev/nvhost-gpu",
    "/dev/nvgpu/igpu0/ctrl",
)


# -- before collection


def load(config: pytest.Config) -> None:
    """Resolve the settings, and give the process its driver before any conftest can import CUDA; workers too."""
    task = task_of(config)
    if task is not None:
        # before the driver is loaded: its events go where the process that waits for this one looks for them
        config.known_args_namespace.cudalink_events = task.events
    found = settings.resolve(config, config.known_args_namespace)
    run = Run(config, blocked.apply(config, found, isolated=task is not None))
    config.stash[RUN] = run
    provenance.start(run)  # before a conftest opens a library
    _load_libraries(run)
    if run.settings.guard_rails.value != "off":
        from . import guard

        guard.load(config, run.settings)


def command_line(config: pytest.Config) -> None:
    """Restrict a process that was started for one test to that test."""
    task = task_of(config)
    if task is not None:
        from . import isolated

        isolated.restrict(config, task)
        child = isolated.Server if task.pipes else isolated.Child
        config.pluginmanager.register(child(config, task), "cudalink-isolated")


def configure(config: pytest.Config) -> None:
    """Force what the settings say, before anything is collected; undone when the run ends."""
    marker.register(config)
    if RUN not in config.stash:  # a conftest brought the plugin, too late for `load`
        config.stash[RUN] = Run(config, blocked.apply(config, settings.resolve(config), isolated=False))
        provenance.start(run_of(config))
        _load_libraries(run_of(config))
    run = run_of(config)
    run.withheld = settings.withhold()
    config.add_cleanup(partial(os.environ.update, run.withheld))
    _start_xdist(run)
    if not run.reports_elsewhere:
        variables.warn(config)
    _start_driver(run)
    backends.start(run)
    # before this process can have native code that links
    run.config.add_cleanup(jitlink_calls.postpone_until_native_code(partial(_watch_nvjitlink, run)))
    if run.settings.forces_driver:
        run.part(MARKED_TESTS)
    _warn_of_ignored(run, late=False)


def _warn_of_ignored(run: Run, *, late: bool) -> None:
    """Warn once of options of an emulated driver in a run without one: before collection, if none can come late."""
    options = run.settings.of_emulation
    if not options or run.reports_elsewhere:
        return
    from . import driver

    if driver.may_come_late(run.settings) is late:
        driver.warn_of_ignored(run.config, options)


def _load_libraries(run: Run) -> None:
    run.config.add_cleanup(settings.share(run.settings))
    if is_on_emulated_driver() or run.settings.driver.value == "real" or not run.settings.keeps_driver:
        from . import driver

        driver.load(run.config, run.settings)
        _serve_runtime(run)  # before a conftest takes single functions out of the module
    if run.settings.nvjitlink.value != "auto":
        from . import nvjitlink

        undo = nvjitlink.apply(run.settings)
        if undo is not None:
            run.config.add_cleanup(undo)


def _serve_runtime(run: Run) -> None:
    if run.emulated is not None:
        from ..process import cuda_runtime
        from . import descendants

        descendants.start(run, run.emulated)
        run.config.add_cleanup(cuda_runtime.serve(run.emulated))


def _start_xdist(run: Run) -> None:
    hook: Any = getattr(run.config.hook, "pytest_configure_node", None)
    if hook is None or not hook.has_spec():  # xdist is not loaded
        return
    from . import xdist

    run.part(HAND_OVER)
    given = xdist.settings_of_controller(run.config)
    if given is not None:
        run.settings, withheld = given
        run.withheld = {**run.withheld, **withheld}


def _watch_nvjitlink(run: Run) -> None:
    """Count the links of native code, explain what nvJitLink refuses, and check its contract."""
    run.part(NATIVE_LINKS)
    run.part(CAUSES)
    if run.settings.jitlink_contract.value != "off":
        from . import jitlink_contract

        jitlink_contract.start(run)


def _start_driver(run: Run) -> None:
    """Watch what an emulated driver refuses, the memory that it is given, and the faults of the run."""
    emulation = run.emulation
    if emulation is None:
        return
    run.part(CAUSES).watch()
    run.part(LOADED_MODULES)
    if run.settings.lifetime.value != "off":
        run.part(LIFETIMES)  # after the causes, so that a violation fails a test that these skip
    if emulation.faults:
        run.part(FAULTS)
    if emulation.events:
        run.part(EVENT_FILE)


def session_start(config: pytest.Config) -> None:
    """Open the record file, give the suite its properties, and install the guard rails."""
    run = run_of(config)
    adds_up = not run.reports_elsewhere
    if run.settings.report.value:
        file = run.part(RECORD_FILE)
        if adds_up:
            run.part(RESULTS)
            file.write_run()
    if adds_up and run.is_controller:
        run.part(LEDGER)
    _start_requirements(run)
    if adds_up and run.settings.properties.value == "on" and getattr(config.option, "xmlpath", None):
        from .results import add_suite_properties

        add_suite_properties(config)
    if run.settings.guard_rails.value != "off":  # last: what was looked up before goes into the record file
        from . import guard

        run.follow()
        guard.start(run)


def _start_requirements(run: Run) -> None:
    """Count what a run must have done, where it requires anything and this process can tell."""
    words = run.settings.required
    # by default a marker can be the first to ask for the driver, which a controller does not see
    if words - {"auto"} or (words and (run.settings.forces_driver or run.is_controller)):
        run.part(REQUIRED)


def header(config: pytest.Config) -> list[str]:
    """Return the header's lines."""
    from ..report.safe_text import line
    from .header import lines

    return [line(one) for one in lines(run_of(config))]


# -- after collection


def collected(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Check the markers of the collected tests, and wrap the phases of tests if one of them has a plan."""
    run = run_of(config)
    try:
        planned = marker.check(items)
    except pytest.UsageError as error:
        _refuse(run, error)
        items.clear()
        return
    if planned:
        run.part(MARKED_TESTS)
        # a plan can be the first to steer, before pytest says which test that is for
        run.follow()
    run.collected = True
    # a worker of xdist that dies is replaced by xdist
    shared = run.settings.rerun_after_crash.value == "yes" and not run.is_worker
    isolated = run.settings.isolate.value == "yes" or (planned and marker.isolates(items))
    if (isolated or shared) and not run.is_isolated:
        run.part(ISOLATION)


def selected(session: pytest.Session) -> None:
    """Emulate a driver for the selected tests whose marker forces the driver backend, where there is none."""
    run = run_of(session.config)
    _select(session, run)
    _guard_contexts(session, run)
    if not session.config.option.collectonly:
        _warn_of_ignored(run, late=True)


def _guard_contexts(session: pytest.Session, run: Run) -> None:
    """Ask the contexts after each test, in a process of several tests that has or can have a driver with a device."""
    alone = run.task is not None and not run.task.pipes
    if run.settings.sticky.value == "off" or alone or run.is_controller or session.config.option.collectonly:
        return
    if run.emulated is not None or any(map(os.path.exists, _DEVICE_FILES)):
        run.part(STICKY_GUARD).start(session)


def _select(session: pytest.Session, run: Run) -> None:
    if run.settings.backend.value == "each" and run.worker in (None, "gw0") and not run.is_isolated:
        try:
            marker.warn_if_none_runs_on_each(session, str(run.settings.backend))
        except pytest.UsageError as error:
            _refuse(run, error)
    if run.get(MARKED_TESTS) is None or session.config.option.collectonly or not marker.forces_driver(session.items):
        return
    from . import driver

    if run.settings.required:
        run.part(REQUIRED)

    try:
        loaded = driver.load_late(session.config, run.settings)
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
            from .results import add_late_properties, facts_of_driver

            run.late_facts = facts_of_driver()
            add_late_properties(run)
        if (file := run.get(RECORD_FILE)) is not None:
            file.write_found()


def _refuse(run: Run, error: pytest.UsageError) -> None:
    """Raise the error; a worker of xdist passes it to its controller, which would wait for ever for the tests."""
    if not run.is_worker:
        raise error
    from .xdist import refuse_markers

    refuse_markers(run, error)


def late_header(config: pytest.Config) -> list[str]:
    """Return the header's lines on a driver that the run has got for its markers."""
    return run_of(config).late_header if config.option.verbose >= 0 else []


def interact(config: pytest.Config, error: BaseException, report: pytest.CollectReport) -> None:
    """Explain why a file cannot be collected, if it has loaded what can explain that."""
    causes = run_of(config).get(CAUSES)
    if causes is not None:
        causes.collected(report, error)


def session_finish(session: pytest.Session) -> None:
    """Add what belongs to no test, and fail the run for it; a worker of xdist leaves that to its controller."""
    run = run_of(session.config)
    if (mismatches := run.get(MISMATCHES)) is not None:
        mismatches.session_finish()
    if run.is_controller and not run.late_header:  # a marker in its workers can be the first to need them
        _warn_of_ignored(run, late=True)
    book = run.get(LEDGER)
    if book is None or run.is_worker:
        return
    book.totals.add_outside(book.outside.as_json())
    required = run.get(REQUIRED)
    run.failing = [*book.totals.problems, *(required.unmet if required is not None else ())]
    if (run.failing or book.totals.failing(run.settings.lifetime.value)) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def last_look(config: pytest.Config, code: int | pytest.ExitCode | None) -> int | pytest.ExitCode | None:
    """Return the exit code of a run that has ended: 1 instead of 0 if a violation came after `session_finish`."""
    run = config.stash.get(RUN, None)
    if run is not None and (run.emulated is not None or run.is_controller):
        from . import lifetimes

        if lifetimes.last_look(run) and code == pytest.ExitCode.OK:
            return pytest.ExitCode.TESTS_FAILED
    return code


def terminal_summary(reporter: pytest.TerminalReporter) -> None:
    """Show the summary of a run in which something happened."""
    run = run_of(reporter.config)
    guarded = run.settings.guard_rails.value != "off"
    off = blocked.lines(run.config)
    if guarded or off or run.get(LEDGER) is not None or run.get(FAULTS) is not None:
        from . import guard, summary

        summary.show(reporter, run, guard.not_routed(reporter.config))
