"""One test run: its settings, what it forces, what it gathers, and what it says of itself."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

import pytest

from ..process.imports import STEERED, postpone
from . import settings
from .settings import Settings

if TYPE_CHECKING:
    from ..emulator import Emulation
    from ..emulator.control import Violation
    from ..guardrails import Verdict
    from ..report import Writer
    from ..targets import Choice, ForcedBackendError, LinkEvent, LinkInput, Target
    from ..targets.choice import Backend
    from ..targets.steering import Steering
    from ..versions import CudaVersion
    from . import results as recording
    from .driver import Lifetimes, RunFaults
    from .isolation import Task

__all__ = [
    "MISSING_DRIVER",
    "Session",
    "collected",
    "command_line",
    "finished",
    "header",
    "missing_driver_skips",
    "node_down",
    "node_up",
    "of",
    "preload",
    "skip_collecting",
    "skip_missing_driver",
    "start",
    "started",
    "terminal_summary",
]

_A_DRIVER = "a CUDA driver"
MISSING_DRIVER = "cudalink: needs a CUDA driver (found none, and the driver backend is forced)"


class Session:
    """What the plugin keeps for the length of a run; most of it is made when it is first wanted.

    Attributes
    ----------
    running : bool
        Whether collection is over.
    nodeid : str or None
        The test of the moment.
    facts : recording.Facts or None
        What its present attempt did; None as long as it did nothing of ours.
    writer : Writer or None
        Of ``--cudalink-report``.
    not_routed : tuple of str
        Who calls cuda.pathfinder beside the guard rails that are installed.
    task : isolation.Task or None
        The one test that this process was started for.
    withheld : dict of str to str
        Variables of this run that are not in the environment while it lasts, see `settings.withhold`.
    """

    def __init__(self, config: pytest.Config, chosen: Settings) -> None:
        self.config = config
        self.settings = chosen
        self.lifetimes: Lifetimes | None = None
        self.faults: RunFaults | None = None
        self.not_routed: tuple[str, ...] = ()
        self.running = False
        self.nodeid: str | None = None
        self.facts: recording.Facts | None = None
        self.writer: Writer | None = None
        self.added: dict[str, object] | None = None
        self.task = _task(config)
        self.withheld: dict[str, str] = {}

    @cached_property
    def totals(self) -> recording.Totals:
        """What the summary shows."""
        from .results import Totals

        return Totals()

    @cached_property
    def outside(self) -> recording.Totals:
        """What belongs to no test."""
        from .results import Totals

        return Totals()

    @cached_property
    def steering(self) -> Steering:
        """The targets, steered from the first time that somebody asks."""
        self.follow()
        steering = _steering(self)
        steering.start(_choice(self.settings))
        self.config.add_cleanup(steering.stop)
        return steering

    def follow(self) -> None:
        """From now on, know which test is running; a run in which nobody asks does not pay for it."""
        plugins = self.config.pluginmanager
        if not plugins.hasplugin("cudalink-moment"):
            plugins.register(Moment(self), "cudalink-moment")
            # a library that a test imports calls for this in the middle of that test
            if self.running:
                self.nodeid = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0] or None

    @property
    def worker(self) -> str | None:
        """The xdist worker that this process is."""
        if self.task is not None:
            return self.task.worker
        given: Any = getattr(self.config, "workerinput", None)
        return given["workerid"] if given else None

    @property
    def is_controller(self) -> bool:
        """Whether other processes run the tests."""
        return self.config.pluginmanager.hasplugin("dsession")

    @property
    def is_isolated(self) -> bool:
        """Whether this process was started to run one test."""
        return self.task is not None

    @property
    def reports_elsewhere(self) -> bool:
        """Whether another process gathers what the tests of this one come to."""
        return hasattr(self.config, "workerinput") or self.is_isolated

    @property
    def arguments(self) -> list[str]:
        """The command line of pytest; in a worker of xdist that of its controller."""
        given = _from_controller(self.config)
        return given["arguments"] if given else [str(argument) for argument in self.config.invocation_params.args]

    def of_test(self) -> recording.Facts:
        """The facts of the present attempt, to be added to."""
        if self.facts is None:
            from .results import Facts

            self.facts = Facts()
            self.follow()  # the next test has facts of its own
            self.wake()
        return self.facts

    def of_moment(self) -> recording.Facts | recording.Totals:
        """The facts of the present attempt, or of what belongs to no test."""
        return self.of_test() if self.nodeid is not None else self.outside

    def wake(self) -> None:
        """From now on, put facts on reports, and read them: a run in which nothing happens does not pay for it."""
        from . import results as recording

        plugins = self.config.pluginmanager
        if not plugins.hasplugin("cudalink-reporter"):
            plugins.register(recording.Reporter(self), "cudalink-reporter")
        if not self.reports_elsewhere and not plugins.hasplugin("cudalink-results"):
            plugins.register(recording.Results(self.totals, self.writer), "cudalink-results")

    def record(self, event: str, **content: Any) -> None:
        """Write an event to the record file, with the test of the moment; nothing without ``--cudalink-report``."""
        content = {"nodeid": self.nodeid, **content}
        if (writer := self._writer_for(content["nodeid"])) is not None:
            writer.write(event, **content)

    def _writer_for(self, nodeid: str | None) -> Writer | None:
        """What an isolated process does while it collects, the other process has done and noted already."""
        return None if self.is_isolated and nodeid is None else self.writer

    def linked(self, event: LinkEvent) -> None:
        """Take note of a link."""
        self.of_moment().links[f"{event.target}/{event.backend}"] += 1
        if (writer := self._writer_for(self.nodeid)) is not None:
            from .results import write_link

            write_link(writer, event, self.worker)
        self.config.hook.pytest_cudalink_link(config=self.config, event=event)

    def violated(self, violation: Violation, nodeid: str | None) -> None:
        """Take note of a broken lifetime rule, for a test or for none."""
        self.follow()
        if nodeid is not None:
            self.of_test().violations += 1
        elif self.lifetimes is not None:
            self.outside.violations_outside.append(self.lifetimes.describe(violation, None))
        self.record("violation", nodeid=nodeid, text=str(violation), **vars(violation))

    def judged(self, verdict: Verdict) -> None:
        """Take note of a verdict of the guard rails."""
        names = ("status", "rule", "message", "fix", "otherwise")
        content = {**{name: getattr(verdict, name) for name in names}, "items": list(verdict.items)}
        self.of_moment().verdicts.append({"nodeid": self.nodeid, **content})
        self.record("verdict", **content)

    def left_alone(self, target: str, why: str) -> None:
        """Take note of a target that cannot be steered."""
        self.of_moment().left_alone[target] = why

    def mismatched(self, error: ForcedBackendError) -> None:
        """Fail the test in which a target linked otherwise than it was forced, also where it catches the error."""
        from .runtest import Mismatches

        plugins = self.config.pluginmanager
        if not plugins.hasplugin("cudalink-mismatches"):
            plugins.register(Mismatches(), "cudalink-mismatches")
        cast("Mismatches", plugins.getplugin("cudalink-mismatches")).pending.append(error)

    def decide(self, target: str, choice: Choice, inputs: tuple[LinkInput, ...] | None) -> Choice:
        """Let hooks veto or change a choice."""
        hook = self.config.hook.pytest_cudalink_decide
        if not hook.get_hookimpls():
            return choice
        answer: Choice | None = hook(config=self.config, target=target, choice=choice, inputs=inputs)
        return choice if answer is None else answer

    def hook_facts(self) -> Mapping[str, object]:
        """What hooks add to header and records, asked once."""
        if self.added is None:
            self.added = {}
            for facts in reversed(self.config.hook.pytest_cudalink_facts(config=self.config)):
                self.added.update(facts or {})
        return self.added


_KEY = pytest.StashKey[Session]()
_PRELOADED = pytest.StashKey["Settings"]()
_INHERITED = pytest.StashKey[bool]()
_TASK = pytest.StashKey["Task"]()


def of(config: pytest.Config) -> Session:
    """The session of a configured run."""
    return config.stash[_KEY]


class Moment:
    """A plugin object: knows which test is running."""

    def __init__(self, run: Session) -> None:
        self._run = run
        self._attempts: dict[str, int] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        run = self._run
        run.nodeid, run.facts = nodeid, None
        if run.writer is not None and not run.is_controller and not run.is_isolated:
            attempt = self._attempts[nodeid] = self._attempts.get(nodeid, 0) + 1
            run.writer.write("start", nodeid=nodeid, worker=run.worker, attempt=attempt)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self) -> None:
        self._run.nodeid = self._run.facts = None


def _task(config: pytest.Config) -> Task | None:
    """The test that this process was started for; out of the environment, as no child of it is for the same."""
    given = os.environ.pop("CUDALINK_ISOLATED", None)
    if given is not None:
        from .isolation import Task

        config.stash[_TASK] = Task(**json.loads(given))
    return config.stash.get(_TASK, None)


def start(config: pytest.Config) -> None:
    """Resolve the settings and force what they say, before anything is collected; undone when the run ends."""
    os.environ.update(_from_controller(config).get("environment", {}))
    chosen = settings.resolve(config)
    if (early := config.stash.get(_PRELOADED, None)) is not None:
        # the driver that was loaded has written these into the environment, for children
        chosen = chosen._replace(lifetime=early.lifetime, events=early.events)
    run = Session(config, chosen)
    config.stash[_KEY] = run
    run.withheld = settings.withhold()
    config.add_cleanup(partial(os.environ.update, run.withheld))
    _start_driver(config, run)
    _start_steering(config, run)
    policy = run.settings.policy
    if policy.source != "default":
        from ..linker import forcing

        undo = ExitStack()
        undo.callback(forcing.set_default_policy, forcing.set_default_policy(policy.value))
        config.add_cleanup(undo.close)
    if run.settings.forces_driver:
        _watch_phases(config)


def _choice(chosen: Settings) -> Choice:
    from ..targets import Choice

    backend = chosen.backend
    if backend.value not in ("driver", "nvjitlink"):
        return Choice(None, backend.source)
    return Choice(cast("Backend", backend.value), f"--force-backend, from {backend.source}")


def _start_steering(config: pytest.Config, run: Session) -> None:
    """Steer at once if the run asks for something; otherwise when a library is imported, or the bundled one links."""
    from_default = run.settings.backend.source == run.settings.target.source == "default"
    if not from_default or config.hook.pytest_cudalink_targets.get_hookimpls():
        run.steering  # noqa: B018 (asking for it starts it)
        return
    config.add_cleanup(postpone(lambda: run.steering, until=STEERED))


def _steering(run: Session) -> Steering:
    from ..targets.base import registered
    from ..targets.bindings import SEAMS
    from ..targets.bundled import Bundled
    from ..targets.cuda_core import CudaCore
    from ..targets.numba_cuda import NumbaCuda
    from ..targets.steering import Steering

    targets: dict[str, Target] = {target.name: target for target in (Bundled(), CudaCore(), NumbaCuda())}
    for added in reversed(run.config.hook.pytest_cudalink_targets(config=run.config)):
        try:
            targets.update({target.name: target for target in registered(added)})
        except TypeError as error:
            msg = f"cudalink: the hook pytest_cudalink_targets: {error}"
            raise pytest.UsageError(msg) from error
    return Steering(
        list(targets.values()),
        only=_only(run.settings, list(targets)),
        decide=run.decide,
        seams=SEAMS,
        on_link=run.linked,
        on_unsupported=run.left_alone,
        on_mismatch=run.mismatched,
        nodeid=lambda: run.nodeid,
    )


def _only(chosen: Settings, known: Sequence[str]) -> frozenset[str] | None:
    """The targets that may be forced; None for all."""
    value = chosen.target.value
    if value == "all":
        return None
    names = [name.strip() for name in value.split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        wrong = ", ".join(map(repr, unknown)) or "nothing"
        msg = (
            f"cudalink: --cudalink-target is {value!r} (from {chosen.target.source}); {wrong} is no target, expected "
            f"all or some of {', '.join(known)}"
        )
        raise pytest.UsageError(msg)
    return frozenset(names)


def _watch_phases(config: pytest.Config) -> None:
    """Wrap the phases of tests, in runs that have a reason to."""
    if not config.pluginmanager.hasplugin("cudalink-phases"):
        from .runtest import Phases

        config.pluginmanager.register(Phases(), "cudalink-phases")


def started(config: pytest.Config) -> None:
    """The session begins: open the record file, give the suite its properties, and put up the guard rails."""
    run = of(config)
    gathers = not run.reports_elsewhere
    if run.settings.report.value:
        from . import results as recording

        run.follow()
        run.writer = recording.open_writer(run, first=gathers)
        config.add_cleanup(run.writer.close)
        if gathers:
            recording.write_run(run, run.writer, run.hook_facts())
    if run.writer is not None or (gathers and run.is_controller):
        run.wake()
    if gathers and run.settings.properties.value == "on" and getattr(config.option, "xmlpath", None):
        from .results import add_suite_properties

        add_suite_properties(config)
    if run.settings.guard_rails.value != "off":  # last: what was looked up before goes into the record file
        from . import guard as guarding

        run.follow()
        run.not_routed = guarding.start(run)


def collected(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests are collected: check their markers, and wrap their phases if one of them has something to do."""
    from . import marker as markers

    try:
        planned = markers.check(items)
    except pytest.UsageError as error:
        given: Any = getattr(config, "workeroutput", None)
        if given is None:
            raise
        # raised in a worker, it would be an internal error that names nothing: the controller raises it
        given["cudalink_refused"] = str(error)
        items.clear()
        return
    if planned:
        _watch_phases(config)
    run = of(config)
    run.running = True
    isolated = run.settings.isolate.value == "yes" or (
        planned and any(item.stash[markers.PLAN].isolate for item in items if markers.PLAN in item.stash)
    )
    if isolated and not run.is_isolated and not config.pluginmanager.hasplugin("cudalink-isolation"):
        from .isolation import Isolation

        config.pluginmanager.register(Isolation(run), "cudalink-isolation")


def finished(session: pytest.Session) -> None:
    """The session ends: what belongs to no test is handed over by a worker, and added by the others."""
    config = session.config
    run = of(config)
    mismatches: Any = config.pluginmanager.getplugin("cudalink-mismatches")
    if mismatches is not None:
        run.outside.mismatches += map(str, mismatches.pending)
    given: Any = getattr(config, "workeroutput", None)
    if given is not None:
        given["cudalink"] = run.outside.outside()
    elif "outside" in vars(run):
        run.totals.add_outside(run.outside.outside())
    failing = "totals" in vars(run) and run.totals.failing(run.settings.lifetime.value)
    if failing and given is None and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def node_up(node: Any) -> None:
    """A worker of xdist is about to start: hand over what it cannot find out by itself."""
    run = of(node.config)
    node.workerinput["cudalink"] = {"arguments": run.arguments, "environment": run.withheld}


def _from_controller(config: pytest.Config) -> dict[str, Any]:
    given: dict[str, Any] = getattr(config, "workerinput", {}).get("cudalink", {})
    return given


def node_down(node: Any) -> None:
    """A worker of xdist has ended; one that crashed hands nothing over.

    Raises
    ------
    pytest.UsageError
        If it refused markers.
    """
    output = getattr(node, "workeroutput", None) or {}
    if refused := output.get("cudalink_refused"):
        raise pytest.UsageError(refused)
    of(node.config).totals.add_outside(output.get("cudalink", {}), f"[{node.gateway.id}] ")


def preload(early_config: pytest.Config) -> None:
    """Give the process its driver before any conftest can import CUDA; in xdist's workers too."""
    task = _task(early_config)
    if task is not None:
        # before the driver is loaded: its events go where the process that waits for this one looks for them
        early_config.known_args_namespace.cudalink_events = task.events
    chosen = settings.resolve(early_config, early_config.known_args_namespace)
    early_config.stash[_PRELOADED] = chosen
    _apply_driver(early_config, chosen)
    _apply_nvjitlink(early_config, chosen)
    if chosen.guard_rails.value != "off":
        from . import guard as guarding

        guarding.early(early_config, chosen)


def command_line(config: pytest.Config) -> None:
    """The command line is read: a process that was started for one test keeps to it."""
    task = _task(config)
    if task is not None:
        from . import isolation

        isolation.join(config, task)


def _apply_driver(config: pytest.Config, chosen: Settings) -> None:
    if chosen.keeps_driver and not _inherits_driver():
        return
    from . import driver as emulation

    config.stash[_INHERITED] = chosen.driver.value == "auto" and _inherits_driver()
    before = dict(os.environ)
    emulation.apply(chosen)
    changed = {name: before.get(name) for name, value in os.environ.items() if before.get(name) != value}
    config.add_cleanup(partial(_restore, changed))


def _inherits_driver() -> bool:
    """Whether this process was started on an emulated driver, as `cudalink driver run` does."""
    return "CUDALINK_EMULATOR_VERSION" in os.environ


def _apply_nvjitlink(config: pytest.Config, chosen: Settings) -> None:
    if chosen.nvjitlink.value == "auto":
        return
    from . import nvjitlink

    undo = nvjitlink.apply(chosen)
    if undo is not None:
        config.add_cleanup(undo)


def _restore(variables: dict[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _start_driver(config: pytest.Config, run: Session) -> None:
    """Load the driver if a conftest brought the plugin, too late for `preload`; watch its memory."""
    if _PRELOADED not in config.stash:
        _apply_driver(config, run.settings)
        _apply_nvjitlink(config, run.settings)
    if "pytest_cudalink.process.preload" not in sys.modules and not _inherits_driver():
        return
    from . import driver as emulation

    run.lifetimes = emulation.lifetimes(run.settings)
    if run.lifetimes is not None:
        run.lifetimes.told = run.violated
        config.pluginmanager.register(run.lifetimes, "cudalink-lifetimes")
        config.add_cleanup(run.lifetimes.driver.unwatch)
    run.faults = emulation.run_faults()
    if run.faults is not None:
        config.pluginmanager.register(run.faults, "cudalink-faults")


def terminal_summary(reporter: pytest.TerminalReporter) -> None:
    """At the end: what was linked and skipped."""
    run = of(reporter.config)
    guarded = run.settings.guard_rails.value != "off"
    if guarded or "totals" in vars(run) or run.faults is not None:
        from . import summary

        # what is met in the process of an isolated test is not known here
        isolated = reporter.config.pluginmanager.hasplugin("cudalink-isolation")
        summary.section(reporter, run.totals, run.settings.lifetime.value, None if isolated else run.faults)
        summary.guard_rails_section(reporter, run.settings, run.totals, run.not_routed)


def header(config: pytest.Config) -> list[str]:
    """The backend and policy with their sources, what the machine has, what is forced, and what hooks add."""
    from .. import probes

    run = of(config)
    chosen = run.settings
    fakes = probes.fakes()
    parts = [
        f"backend {chosen.backend}",
        f"policy {chosen.policy}",
        _faked("nvJitLink", "nvjitlink") if fakes.fakes_nvjitlink else _nvjitlink(chosen, probes.nvjitlink_wheel()),
        _faked("driver CUDA", "driver")
        if fakes.fakes_driver
        else _driver(chosen, probes.driver_version(), inherited=config.stash.get(_INHERITED, False)),
        *([f"guard rails {chosen.guard_rails}"] if chosen.guard_rails.value != "off" else []),
    ]
    forced = _forced_lines(run)
    return [
        f"cudalink: {', '.join(parts)}",
        *forced,
        *_emulation_lines(config, chosen),
        *(f"cudalink: {name}: {value}" for name, value in run.hook_facts().items()),
    ]


def _faked(shown: str, name: str) -> str:
    from ..environment.facts import Environment

    found = Environment()[name]
    return f"{shown} {found.value or 'none'} ({found.kind} by {found.source})"


def _emulation() -> Emulation | None:
    return (
        sys.modules["pytest_cudalink.process.preload"].emulated()
        if "pytest_cudalink.process.preload" in sys.modules
        else None
    )


def _emulation_lines(config: pytest.Config, chosen: Settings) -> list[str]:
    """What an emulated driver is beside its version, and what was asked of one to no effect; without defaults."""
    emulated, inherited = _emulation() is not None, config.stash.get(_INHERITED, False)
    lines = []
    if emulated:
        from . import driver as emulation

        heard = {**emulation.asked(None if inherited else chosen), "lifetime": chosen.lifetime}
        defaults = {option.name: option.default for option in settings.OPTIONS}
        words = [f"{name} {setting}" for name, setting in heard.items() if setting.value != defaults[name]]
        lines += [f"cudalink: emulated driver: {', '.join(words)}"] if words else []
    if inherited or not emulated:
        options = ((name, getattr(chosen, name)) for name in settings.OF_EMULATION)
        words = [f"{name} {setting}" for name, setting in options if setting.source != "default"]
        why = "the emulated driver is that of the environment" if inherited else "no driver is emulated"
        lines += [f"cudalink: without effect, as {why}: {', '.join(words)}"] if words else []
    return lines


def _driver(chosen: Settings, version: CudaVersion | None, *, inherited: bool) -> str:
    emulation = _emulation()
    source = "" if chosen.driver.source == "default" else f", from {chosen.driver.source}"
    if emulation is not None:
        if chosen.driver.value == "auto":
            source = ", from the environment" if inherited else ", of the toolkit's version"
        missing = f"; {emulation.missing}" if emulation.missing else ""
        return f"driver CUDA {version} (emulated, {emulation.arch}, release {emulation.release}{source}{missing})"
    if chosen.driver.value == "absent":
        return f"no driver (absent{source})"
    return f"driver CUDA {version}" if version else "no driver"


def _forced_lines(run: Session) -> list[str]:
    if run.settings.backend.value == "auto":
        return []
    from .summary import forced_line

    return [forced_line(run.settings, run.steering)]


def _nvjitlink(chosen: Settings, wheel: str | None) -> str:
    from ..probes import FIRST_USABLE_NVJITLINK
    from ..versions import CudaVersion

    if chosen.nvjitlink.value == "absent":
        return f"no nvJitLink (absent, from {chosen.nvjitlink.source})"
    if chosen.nvjitlink.value != "auto":
        return f"nvJitLink {chosen.nvjitlink.value} (preloaded, from {chosen.nvjitlink.source})"
    if wheel is None:
        return "no nvJitLink wheel"
    usable = CudaVersion.parse(wheel) >= FIRST_USABLE_NVJITLINK
    return f"nvJitLink {wheel}" + ("" if usable else f" (unusable: {FIRST_USABLE_NVJITLINK} or newer is needed)")


@contextmanager
def missing_driver_skips(config: pytest.Config) -> Iterator[None]:
    """Where the driver is forced and there is none, what needs it is skipped, always with one reason."""
    try:
        yield
    except RuntimeError as error:
        if not _misses_forced_driver(config, error):
            raise
        of(config).of_test().missing = _A_DRIVER
        raise pytest.skip.Exception(MISSING_DRIVER, _use_item_location=True) from error


def _misses_forced_driver(config: pytest.Config, error: BaseException) -> bool:
    api = sys.modules.get("pytest_cudalink.probes.libcuda")
    missing = api is not None and isinstance(error, api.DriverNotFoundError)
    return missing and of(config).steering.choice.backend == "driver"


def skip_missing_driver(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """The same for an error that `missing_driver_skips` did not see: unittest keeps it until the report is made."""
    excinfo = call.excinfo
    if excinfo is None:
        return

    def again() -> None:
        with missing_driver_skips(item.config):
            raise excinfo.value

    if _misses_forced_driver(item.config, excinfo.value):
        call.excinfo = pytest.CallInfo.from_call(again, call.when).excinfo


def skip_collecting(collector: pytest.Collector, report: pytest.CollectReport) -> None:
    """The same for what cannot be collected without a driver: its tests are skipped, all at once."""
    call: pytest.CallInfo[None] | None = getattr(report, "call", None)
    excinfo = call.excinfo if call is not None else None
    if excinfo is None or not _misses_forced_driver(collector.config, excinfo.value):
        return
    line = next((entry.lineno + 1 for entry in excinfo.traceback if entry.path == collector.path), 0)
    report.outcome, report.longrepr = "skipped", (str(collector.path), line, f"Skipped: {MISSING_DRIVER}")
    of(collector.config).outside.missing[_A_DRIVER] += 1
    del report.call  # pytest's own, by which it would offer the error to a debugger
