"""One test run: its settings, what it forces on the linker, and what it says of itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest

from . import settings
from .settings import Settings

if TYPE_CHECKING:
    from .emulation import Lifetimes
    from .guarding import Guarding
    from .linker.dispatch import BackendName
    from .versions import CudaVersion

__all__ = [
    "MISSING_DRIVER",
    "Session",
    "header",
    "leave_worker",
    "missing_driver_skips",
    "of",
    "phase",
    "preload",
    "start",
    "summary",
    "worker_left",
]

MISSING_DRIVER = "cudalink: needs a CUDA driver (libcuda.so.1), found none, and the driver backend is forced"


@dataclass
class Session:
    """What the plugin keeps for the length of a run."""

    settings: Settings
    lifetimes: Lifetimes | None = None
    guarding: Guarding | None = None


_KEY = pytest.StashKey[Session]()
_PRELOADED = pytest.StashKey[bool]()


def of(config: pytest.Config) -> Session:
    """The session of a configured run."""
    return config.stash[_KEY]


def start(config: pytest.Config) -> None:
    """Resolve the settings and force what they say, before anything is collected; undone when the run ends."""
    run = Session(settings.resolve(config))
    config.stash[_KEY] = run
    _start_driver(config, run)
    _start_guard_rails(config, run)
    backend, policy = run.settings.backend, run.settings.policy
    if backend.value == "auto" and policy.source == "default":
        return  # nothing to force; the linker is not even imported
    from .linker import forcing

    undo = ExitStack()
    config.add_cleanup(undo.close)
    if backend.value != "auto":
        forced = forcing.Forced(cast("BackendName", backend.value), f"--force-backend, from {backend.source}")
        undo.callback(forcing.set_forced, forcing.set_forced(forced))
    if policy.source != "default":
        undo.callback(forcing.set_default_policy, forcing.set_default_policy(policy.value))


def preload(early_config: pytest.Config) -> None:
    """Give the process its driver before any conftest can import CUDA; in xdist's workers too."""
    chosen = settings.resolve(early_config, early_config.known_args_namespace)
    early_config.stash[_PRELOADED] = True
    _apply_driver(early_config, chosen)


def _apply_driver(config: pytest.Config, chosen: Settings) -> None:
    if chosen.driver.value == "real" or (chosen.driver.value == "auto" and chosen.backend.value != "driver"):
        return
    from . import emulation

    before = dict(os.environ)
    emulation.apply(chosen)
    changed = {name: before.get(name) for name, value in os.environ.items() if before.get(name) != value}
    config.add_cleanup(partial(_restore, changed))


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
    if "pytest_cudalink.preload" not in sys.modules:
        return
    from . import emulation

    run.lifetimes = emulation.lifetimes(run.settings)
    if run.lifetimes is not None:
        config.add_cleanup(run.lifetimes.driver.unwatch)


def _start_guard_rails(config: pytest.Config, run: Session) -> None:
    if run.settings.guard_rails.value == "off":
        return  # not even imported; the fixture makes up for it
    from . import guarding

    run.guarding = guarding.start(config, run.settings.guard_rails)


_VERDICTS = "cudalink_verdicts"


def leave_worker(config: pytest.Config) -> None:
    """In a worker of xdist: send what the controller shall sum up."""
    run = of(config)
    if run.guarding is not None and hasattr(config, "workeroutput"):
        config.workeroutput[_VERDICTS] = run.guarding.events


def worker_left(config: pytest.Config, output: dict[str, Any]) -> None:
    """In the controller of xdist: take over what a worker sent."""
    run = of(config)
    if run.guarding is not None:
        run.guarding.events += output.get(_VERDICTS, ())


@contextmanager
def phase(item: pytest.Item, when: str) -> Iterator[None]:
    """One phase of a test."""
    lifetimes = of(item.config).lifetimes
    with missing_driver_skips(item.config):
        if lifetimes is None:
            yield
        else:
            with lifetimes.phase(item, when):
                yield


def summary(reporter: pytest.TerminalReporter) -> None:
    """At the end: violations that no test shows any more, and the verdicts of the guard rails."""
    run = of(reporter.config)
    if run.lifetimes is not None:
        _lifetimes_summary(reporter, run.lifetimes)
    if run.guarding is not None:
        from . import guarding

        if lines := guarding.lines(run.guarding):
            reporter.section("cudalink guard rails")
            for line in lines:
                reporter.line(line)


def _lifetimes_summary(reporter: pytest.TerminalReporter, lifetimes: Lifetimes) -> None:
    late = lifetimes.collect(None)
    tests = sorted({nodeid for nodeid, _ in lifetimes.found if nodeid})
    if not late and not tests:
        return
    reporter.section("cudalink lifetimes")
    for nodeid in tests:
        count = sum(name == nodeid for name, _ in lifetimes.found)
        reporter.line(f"{nodeid}: {count} violation{'s' if count > 1 else ''}")
    for one in late:
        reporter.line(f"after the last test: {one}")


def header(config: pytest.Config) -> list[str]:
    """One line: the backend and policy with their sources, and what the machine has."""
    from . import probes

    chosen = of(config).settings
    driver = probes.driver_version()
    parts = [
        f"backend {chosen.backend}",
        f"policy {chosen.policy}",
        _nvjitlink(probes.nvjitlink_wheel()),
        _driver(chosen, driver),
        *([f"guard rails {chosen.guard_rails}"] if chosen.guard_rails.value != "off" else []),
    ]
    return [f"cudalink: {', '.join(parts)}"]


def _driver(chosen: Settings, version: CudaVersion | None) -> str:
    emulation = sys.modules["pytest_cudalink.preload"].emulated() if "pytest_cudalink.preload" in sys.modules else None
    source = "" if chosen.driver.source == "default" else f", from {chosen.driver.source}"
    if emulation is not None:
        missing = f"; {emulation.missing}" if emulation.missing else ""
        return f"driver CUDA {version} (emulated, {emulation.arch}, release {emulation.release}{source}{missing})"
    if chosen.driver.value == "absent":
        return f"no driver (absent{source})"
    return f"driver CUDA {version}" if version else "no driver"


def _nvjitlink(wheel: str | None) -> str:
    from .probes import FIRST_USABLE_NVJITLINK
    from .versions import CudaVersion

    if wheel is None:
        return "no nvJitLink wheel"
    usable = CudaVersion.parse(wheel) >= FIRST_USABLE_NVJITLINK
    return f"nvJitLink {wheel}" + ("" if usable else f" (unusable: {FIRST_USABLE_NVJITLINK} or newer is needed)")


@contextmanager
def missing_driver_skips(config: pytest.Config) -> Iterator[None]:
    """Under ``--force-backend=driver``, what needs a driver is skipped where there is none, always with one reason."""
    try:
        yield
    except RuntimeError as error:
        api = sys.modules.get("pytest_cudalink._libcuda")
        if (
            api is None
            or not isinstance(error, api.DriverNotFoundError)
            or of(config).settings.backend.value != "driver"
        ):
            raise
        raise pytest.skip.Exception(MISSING_DRIVER, _use_item_location=True) from error
