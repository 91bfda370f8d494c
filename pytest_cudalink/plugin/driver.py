"""One run's driver: which one the process gets, and whose memory died too early during which test."""

from __future__ import annotations

import gc
import os
from bisect import bisect_left
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from ..report.wording import counted
from .results import fail
from .settings import OF_EMULATION, OPTIONS, Option, Setting, check

if TYPE_CHECKING:
    from ..emulator import Emulation
    from ..emulator.control import Driver, Violation
    from .settings import Settings

__all__ = ["Lifetimes", "RunFaults", "apply", "asked", "lifetimes", "run_faults"]

_SECTION: Final = "cudalink lifetimes"


@dataclass(eq=False)
class Lifetimes:
    """A plugin object: violations of a run, each with the test during which it was made.

    Attributes
    ----------
    driver : Driver
        The emulated driver of this process.
    mode : str
        ``"report"``, ``"fail"`` or ``"punish"``.
    told : callable
        Told of each, with the test; None where it was made outside of tests.
    """

    driver: Driver
    mode: str
    told: Callable[[Violation, str | None], None] = lambda _one, _nodeid: None
    _starts: list[tuple[int, str]] = field(default_factory=list)
    _alive: int = 0
    _of_teardown: tuple[Violation, ...] = ()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note that link states from now on belong to this test, and violations so far to none."""
        self.collect(None)
        self._starts.append((self.driver.state_count, nodeid))
        self._alive = self.driver.live_states

    def maker(self, violation: Violation) -> str | None:
        """The test that created the link state of a violation."""
        at = bisect_left(self._starts, (violation.state, ""))
        return self._starts[at - 1][1] if at else None

    def describe(self, violation: Violation, nodeid: str | None) -> str:
        """The violation in several lines, with the test that created the state if that was another one."""
        maker = self.maker(violation)
        note = "" if maker in (nodeid, None) else f"\nThe link state was created by {maker}."
        return violation.long_repr + note

    def collect(self, nodeid: str | None) -> tuple[Violation, ...]:
        """What was noticed since the last time."""
        new = self.driver.violations
        if new:
            self.driver.forget(new)
        for one in new:
            self.told(one, nodeid)
        return new

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        """Destroy what the test leaves behind, while its report is still to come."""
        try:
            return (yield)
        finally:
            # collecting all garbage takes longer than most tests: only for one that left states
            if self.driver.live_states > self._alive:
                # the values of fixtures would die with the next test only
                getattr(item, "funcargs", {}).clear()
                gc.collect()  # a linker in a cycle is destroyed by the test that made it
            self._of_teardown = self.collect(item.nodeid)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Show violations with their test, and fail it, whatever else was made of it: a skip or xfail hides nothing."""
        new, self._of_teardown = self._of_teardown + self.collect(item.nodeid), ()
        report = yield
        if not new:
            return report
        text = "\n\n".join(self.describe(one, item.nodeid) for one in new)
        if self.mode == "report":
            report.sections.append((_SECTION, text))
            return report
        msg = f"cudalink: {counted(len(new), 'lifetime violation')} during this test's {call.when}:\n{text}"
        try:
            pytest.fail(msg, pytrace=False)
        except pytest.fail.Exception:
            fail(report, _SECTION, text, item.repr_failure(pytest.ExceptionInfo.from_current()))
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """What no test shows, before the session is told what belongs to none."""
        if self.driver.live_states:
            gc.collect()
        self.collect(None)


@dataclass(eq=False)
class RunFaults:
    """A plugin object: which faults of the whole run no call has met.

    Attributes
    ----------
    driver : Driver
        The emulated driver of this process.
    faults : tuple of str
        In the order in which the driver read them, without a lost device.
    met : set of int
        Indices of those that some process of this run has met.
    """

    driver: Driver
    faults: tuple[str, ...]
    met: set[int] = field(default_factory=set)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A worker hands over what was met in it; each counts for itself."""
        self.met |= {at for at in range(len(self.faults)) if self.driver.met(at + 1)}
        given: Any = getattr(session.config, "workeroutput", None)
        if given is not None:
            given["cudalink_faults_met"] = list(self.met)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A worker of xdist has ended; one that crashed hands nothing over."""
        self.met.update((getattr(node, "workeroutput", None) or {}).get("cudalink_faults_met", ()))

    def lines(self) -> list[str]:
        """For the summary: the run did not see what it was to see."""
        return [
            f"the fault {fault} of the run was met by no call in pytest's own processes"
            for at, fault in enumerate(self.faults)
            if at not in self.met
        ]


def toolkit_version() -> str | None:
    """CUDA release of the toolkit's wheels, such as ``"13.0"``: nvJitLink's, else NVRTC's."""
    from .. import probes

    version = probes.nvjitlink_wheel() or probes.wheel_version("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")
    return ".".join(version.split(".")[:2]) if version else None


def apply(settings: Settings) -> None:
    """Give the process the driver that the settings ask for, before anything can open another.

    Raises
    ------
    pytest.UsageError
        If it cannot be: another libcuda is here already, the native libraries are not built, nothing tells the version.
    """
    from .. import emulator
    from ..process import preload

    wanted = settings.driver.value
    if wanted in ("real", "auto") and (present := preload.driver()) is not None:
        if wanted == "auto":
            return
        msg = (
            f"cudalink: --cudalink-driver is {settings.driver}: this process has the emulated driver of CUDA "
            f"{present.version}, from its environment; start it without `cudalink driver run`, or ask for auto"
        )
        raise pytest.UsageError(msg)
    if settings.keeps_driver:
        return
    try:
        if wanted == "absent":
            preload.absent_driver()
            return
        if wanted == "auto":
            if preload.loaded_file("libcuda.so.1") or preload.driver_exists():
                return
            wanted = toolkit_version() or ""
            if not wanted:
                return  # no toolkit whose version could be taken; what needs a driver is skipped, and says so
        preload.emulate_driver(_plan(settings, wanted))
    except (emulator.EmulatorError, preload.LoadedTooLateError) as error:
        msg = f"cudalink: --cudalink-driver is {settings.driver}: {error}"
        raise pytest.UsageError(msg) from error


def _plan(settings: Settings, version: str) -> Emulation:
    """The driver of a version that the settings ask for; a refused value is blamed on the setting that has it."""
    from .. import emulator

    choices = asked(settings)
    for option in OPTIONS:
        if option.name in choices:
            check(option, choices[option.name])
    events = choices["events"].value
    try:
        return emulator.plan(
            version,
            arch=choices["arch"].value,
            devices=emulator.number_of_devices(choices["devices"].value),
            lifetime=settings.lifetime.value,
            events=Path(events).absolute() if events else None,
            faults=choices["faults"].value,
        )
    except emulator.EmulatorError as error:
        if error.parameter not in choices:
            raise
        msg = f"cudalink: --cudalink-{error.parameter} is {choices[error.parameter]}: {error}"
        raise pytest.UsageError(msg) from error


def asked(settings: Settings | None) -> dict[str, Setting]:
    """What an emulated driver shall be beside its version, by parameter of `emulator.plan`.

    Where nobody chose a value, what the environment tells the native library already.

    Parameters
    ----------
    settings : Settings or None
        None for a driver that was there before the run, which heeds none of them.
    """
    return {
        option.name: _asked(option, getattr(settings, option.name, Setting(option.default, "default")))
        for option in OPTIONS
        if option.name in OF_EMULATION
    }


def _asked(option: Option, setting: Setting) -> Setting:
    variable = f"CUDALINK_EMULATOR_{option.name.upper()}"
    given = os.environ.get(variable) if setting.source == "default" else None
    return Setting(given, f"environment {variable}") if given else setting


def lifetimes(settings: Settings) -> Lifetimes | None:
    """The watch of this run; None without an emulated driver, or when it is off."""
    from ..process import preload

    if settings.lifetime.value == "off" or preload.emulated() is None:
        return None
    driver = preload.driver()
    if driver is None:
        return None
    driver.watch()
    return Lifetimes(driver, settings.lifetime.value)


def run_faults() -> RunFaults | None:
    """The faults of this run; None without an emulated driver, or where nothing shall fail."""
    from ..emulator import faults
    from ..process import preload

    emulation, driver = preload.emulated(), preload.driver()
    if emulation is None or driver is None:
        return None
    try:
        planned = faults.parse(emulation.faults, emulation.version)
    except ValueError:
        return None  # what nobody checked before: the native library has said so
    texts = tuple(faults.text_of((one,)) for one in planned if one.function != "lost")
    return RunFaults(driver, texts) if texts else None
