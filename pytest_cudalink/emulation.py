"""One run's driver: which one the process gets, and whose memory died too early during which test."""

from __future__ import annotations

import gc
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .emulator.control import Driver, Violation
    from .settings import Settings

__all__ = ["Lifetimes", "apply", "lifetimes"]


@dataclass
class Lifetimes:
    """Violations of a run, as the tests end.

    Attributes
    ----------
    driver : Driver
        The emulated driver of this process.
    mode : str
        ``"report"``, ``"fail"`` or ``"punish"``.
    found : list
        What was noticed, with the test during which it was.
    told : callable
        Told of each.
    """

    driver: Driver
    mode: str
    found: list[tuple[str | None, Violation]] = field(default_factory=list)
    told: Callable[[Violation], None] = lambda _: None
    _starts: list[tuple[int, str]] = field(default_factory=list)

    def begin(self, nodeid: str) -> None:
        """Note that link states from now on belong to this test."""
        self._starts.append((self.driver.state_count, nodeid))

    def maker(self, violation: Violation) -> str | None:
        """The test that created the link state of a violation."""
        at = bisect_left(self._starts, (violation.state, ""))
        return self._starts[at - 1][1] if at else None

    def describe(self, violation: Violation, nodeid: str | None) -> str:
        """The violation in several lines, with the test that created the state if that was another one."""
        maker = self.maker(violation)
        note = "" if maker in (nodeid, None) else f"\nThe link state was created by {maker}."
        return violation.long_repr + note

    def collect(self, nodeid: str | None) -> list[Violation]:
        """What was noticed since the last time."""
        if self.driver.live_states:
            gc.collect()  # a linker in a cycle is destroyed by the test that made it
        new = list(self.driver.violations)
        self.driver.forget(tuple(new))
        self.found += [(nodeid, one) for one in new]
        for one in new:
            self.told(one)
        return new

    def _text(self, violations: list[Violation], nodeid: str | None) -> str:
        return "\n\n".join(self.describe(one, nodeid) for one in violations)

    @contextmanager
    def phase(self, item: pytest.Item, when: str) -> Iterator[None]:
        """One phase of a test: what is noticed in it is shown with the test, and fails it if the mode says so."""
        failed = True
        if when == "setup":
            self.begin(item.nodeid)
        try:
            yield
            failed = False
        finally:
            if when == "teardown" and self.driver.live_states:
                # the values of fixtures would die with the next test only
                getattr(item, "funcargs", {}).clear()
            if new := self.collect(item.nodeid):
                item.add_report_section(when, "cudalink lifetimes", self._text(new, item.nodeid))
            if new and not failed and self.mode != "report":
                plural = "s" if len(new) > 1 else ""
                msg = f"cudalink: {len(new)} lifetime violation{plural} during this test's {when}:\n"
                msg += self._text(new, item.nodeid)
                pytest.fail(msg, pytrace=False)


def toolkit_version() -> str | None:
    """CUDA release of the toolkit's wheels, such as ``"13.0"``: nvJitLink's, else NVRTC's."""
    for name in ("nvidia-nvjitlink", "nvidia-nvjitlink-cu12", "nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"):
        try:
            return ".".join(metadata.version(name).split(".")[:2])
        except metadata.PackageNotFoundError:
            continue
    return None


def apply(settings: Settings) -> None:
    """Give the process the driver that the settings ask for, before anything can open another.

    Raises
    ------
    pytest.UsageError
        If it cannot be: another libcuda is here already, the native libraries are not built, nothing tells the version.
    """
    wanted = settings.driver.value
    if wanted == "real" or (wanted == "auto" and settings.backend.value not in ("driver", "each")):
        return
    from . import emulator, preload

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
        events = Path(settings.events.value).absolute() if settings.events.value else None
        preload.emulate_driver(
            emulator.plan(wanted, arch=settings.arch.value, lifetime=settings.lifetime.value, events=events)
        )
    except (emulator.EmulatorError, preload.LoadedTooLateError) as error:
        msg = f"cudalink: --cudalink-driver is {settings.driver}: {error}"
        raise pytest.UsageError(msg) from error


def lifetimes(settings: Settings) -> Lifetimes | None:
    """The watch of this run; None without an emulated driver, or when it is off."""
    from . import preload

    if settings.lifetime.value == "off" or preload.emulated() is None:
        return None
    driver = preload.driver()
    if driver is None:
        return None
    driver.watch()
    return Lifetimes(driver, settings.lifetime.value)
