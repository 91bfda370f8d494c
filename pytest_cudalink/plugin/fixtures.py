"""The fixtures. Each imports what it needs when it is used, so that a suite that uses none pays nothing."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn

import pytest

if TYPE_CHECKING:
    from ..audit import Audit
    from ..audit.device_code import DeviceCode
    from ..base.finding import Violation
    from ..emulator import Emulation
    from ..emulator.control import DriverControl, Injected
    from ..guardrails import CompatibilityGuardRails
    from ..linker import Linker, LinkerOptions, ObjectCode
    from ..linker.dispatch import Case
    from ..versions import CudaVersion
    from .run import Run
    from .settings import Settings
    from .watch.violation_checks import ViolationCheck

#: The fixtures; each asks for the plugin if a test uses it.
NAMES: Final = frozenset(
    (
        *("audit_wheel", "cudalink", "cudalink_backend", "device_code", "dispatch_case", "driver_lifetimes"),
        *("emulated_driver", "fake_versions", "force_backend", "guard_rails", "linker_factory", "no_wait"),
        "nvjitlink_contract",
    )
)


def __dir__() -> list[str]:
    """Return what pytest has to look at."""
    return [*NAMES]


# plain classes: every start of pytest would pay for the methods that dataclasses generate


class Cudalink(SimpleNamespace):
    """Facts of the run, and the switches of the other fixtures."""

    settings: Settings  # every setting with its source
    force_backend: Callable[[Literal["driver", "nvjitlink"] | None], None]  # as the fixture of that name
    fake_versions: Callable[..., object]  # as the fixture of that name

    @property
    def driver(self) -> CudaVersion | None:
        """CUDA version of the driver, real or faked; None when unknown."""
        from .. import probes

        return probes.driver_version_elsewhere()

    @property
    def nvjitlink(self) -> CudaVersion | None:
        """Version of a usable nvJitLink, real or faked; None without one."""
        from .. import probes

        return probes.nvjitlink_version()

    @property
    def device_arch(self) -> str | None:
        """``"sm_90"`` of the current device, of the first one before this process has used the driver; or None."""
        from .. import probes
        from ..loader import contexts
        from .records.facts import device_arch

        return probes.device_arch() if contexts.is_used() else device_arch()


class EmulatedDriver:
    """Value of the fixture ``emulated_driver``."""

    control: DriverControl  # everything that can be asked of it
    emulation: Emulation  # what it was made from
    start: int  # number of the first event that belongs to this test

    def __init__(self, control: DriverControl, emulation: Emulation, start: int = 0) -> None:
        self.control, self.emulation, self.start = control, emulation, start
        self._made: list[Injected] = []
        self._before = len(control.injected)
        self._lost_before = control.lost

    @property
    def version(self) -> CudaVersion:
        """CUDA version, as cuDriverGetVersion answers it."""
        return self.control.version

    @property
    def arch(self) -> str:
        """Architecture of its devices."""
        return self.emulation.arch

    @property
    def violations(self) -> tuple[Violation, ...]:
        """Lifetime violations so far in this phase of the test."""
        return self.control.violations

    def events(self, call: str | None = None) -> list[dict[str, Any]]:
        """Events since this test asked for the driver, oldest first; only those of one function if it is named.

        ``control.events()`` has those of the whole process.

        `call`: a function, named as for `inject`.
        Raises ValueError if no such function is exported.
        """
        events = self.control.events(self.start)
        if call is None:
            return events
        from ..emulator.faults import symbol_of

        symbol = symbol_of(call, self.version)
        return [event for event in events if event.get("call") == symbol and "result" in event]

    def inject(self, function: str, code: int | str = 0, *, nth: int = 1, delay: float = 0.0) -> None:
        """As `pytest_cudalink.emulator.control.DriverControl.inject`, for the rest of this test."""
        self._made.append(self.control.inject(function, code, nth=nth, delay=delay))

    def lose_device(self, code: int | str = 46) -> None:
        """As `pytest_cudalink.emulator.control.DriverControl.lose_device`, for the rest of this test."""
        self.control.lose_device(code)

    def end_error(self) -> None:
        """End an error that stays, such as an injected 700, after which the test would fail; see the page on them."""
        self.control.end_error()

    def remove_faults(self) -> list[str]:
        """Remove the faults of this test, not those of the run; return the functions whose fault no call triggered."""
        self.control.lose_device(self._lost_before)
        from ..emulator.control import Injected

        made = {fault.number: fault for fault in self._made}
        faults = [made.get(number, Injected(number, "")) for number in self.control.injected[self._before :]]
        waiting = [fault.function for fault in faults if not self.control.remove_fault(fault)]
        return sorted(set(filter(None, waiting)))


class BrokenRules:
    """Value of the fixtures ``driver_lifetimes`` and ``nvjitlink_contract``."""

    def __init__(self, run: Run, check: ViolationCheck) -> None:
        self._run, self._check = run, check

    @property
    def violations(self) -> tuple[Violation, ...]:
        """Violations so far in this phase of the test; unreachable objects are destroyed first."""
        gc.collect()
        with self._run.lock:
            return self._check.violations

    def expect(self) -> tuple[Violation, ...]:
        """Return the violations so far, and consume them: they fail no test."""
        with self._run.lock:
            violations = self.violations
            self._check.consume(violations)
            return violations


def _run_of(config: pytest.Config) -> Run:
    """Return the run; a fixture that a test gets by ``request.getfixturevalue`` can be the first to ask for it."""
    from .session import lifecycle

    return lifecycle.activate(config, in_test=True)


@pytest.fixture
def audit_wheel() -> Callable[[str | Path], Audit]:
    """Audit a wheel, folder or library: ``audit_wheel("dist/x.whl").check("12", "13", "none")``.

    ``check`` fails the test with a line for each reason, and ``check(bundles=False)`` also for CUDA libraries inside;
    see `pytest_cudalink.audit.Audit`.
    """
    from ..audit import audit

    return audit


@pytest.fixture
def device_code() -> Callable[[str | Path], DeviceCode]:
    """Audit the device code of a wheel: ``device_code("dist/x.whl").check(archs=["L4"], drivers=">=525")``.

    ``check`` fails the test with a line for each group of images that a driver refuses; see
    `pytest_cudalink.audit.device_code.DeviceCode`.
    """
    from ..audit.device_code import device_code as audit

    return audit


@pytest.fixture
def force_backend(pytestconfig: pytest.Config) -> Iterator[Callable[[Literal["driver", "nvjitlink"] | None], None]]:
    """Force the backend of every target for the rest of this test: ``force_backend("driver")``.

    None lets each library decide, also under ``--force-backend``.
    """
    from ..targets import Choice
    from .watch import backends

    steering = backends.steering(_run_of(pytestconfig))
    before = steering.choice

    def force(backend: Literal["driver", "nvjitlink"] | None) -> None:
        if backend not in ("driver", "nvjitlink", None):
            raise ValueError(f"force_backend({backend!r}): expected 'driver', 'nvjitlink' or None")
        steering.force(Choice(backend, "the fixture force_backend"))

    try:
        yield force
        steering.force(before)
    except BaseException:  # such as Ctrl-C or a timeout while it is given back
        steering.force(before)
        steering.refresh()
        raise


@pytest.fixture
def cudalink_backend(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> str | None:
    """The backend that is forced for this test: ``"driver"``, ``"nvjitlink"``, or None where each library decides."""
    from .watch import backends

    return getattr(request, "param", backends.steering(_run_of(pytestconfig)).choice.backend)


@pytest.fixture
def fake_versions() -> Iterator[Callable[..., object]]:
    """Fake the version probes for the rest of this test: ``fake_versions(driver="12.9", nvjitlink="13.0")``.

    None makes a driver unknown and an nvJitLink absent; what is left out stays as it is.
    See `pytest_cudalink.probes.fake`.
    """
    from .. import probes

    before = probes.fakes()

    def fake(**versions: Any) -> object:
        faked = probes.with_fakes(**versions)
        probes.replace_fakes(faked)
        return faked

    try:
        yield fake
        probes.replace_fakes(before)
    except BaseException:
        probes.replace_fakes(before)
        raise


@pytest.fixture
def linker_factory() -> Iterator[Callable[..., Linker]]:
    """Make linkers that are closed when the test ends; takes what `pytest_cudalink.linker.Linker` takes."""
    from ..linker import Linker

    with ExitStack() as stack:

        def make(*object_codes: ObjectCode, options: LinkerOptions | None = None, **keywords: Any) -> Linker:
            return stack.enter_context(Linker(*object_codes, options=options, **keywords))

        yield make


@pytest.fixture
def dispatch_case(request: pytest.FixtureRequest) -> Case:
    """One concrete case of the dispatch table; a test that asks for it runs once for each.

    ``dispatch_case.check(my_choose_backend)`` compares your own implementation with it. The table is strict-major, or
    that of ``@pytest.mark.cudalink(policy=...)``.
    """
    case: Case = request.param
    return case


def _skip(config: pytest.Config, needed: str, installed: str, remedy: str = "") -> NoReturn:
    """Skip the test with the marker's words; the summary counts it with the marker's skips."""
    from .records import LEDGER

    _run_of(config).part(LEDGER).test.missing = needed
    pytest.skip(f"cudalink: needs {needed} (found {installed}){remedy and f'; {remedy}'}")


def _skip_unemulated(config: pytest.Config) -> NoReturn:
    from .conditions.run_driver import remedy
    from .records.facts import Environment

    driver = Environment()["driver"]
    present = f"{driver.value}, {driver.kind}" if driver.value else str(driver)
    _skip(config, "an emulated driver", present, remedy(config, _run_of(config).settings))


@pytest.fixture
def emulated_driver(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> Iterator[EmulatedDriver]:
    """The emulated driver: version, arch, events, inject, violations. Faults are removed when the test ends.

    A fault that no call triggered is a `pytest.PytestWarning`: the test did not see what it should see.
    A test that asks for it is skipped where there is a real driver or none; run with ``--cudalink-driver=VERSION``.
    """
    from ..emulator import preload

    driver, emulation = preload.emulated_driver(), preload.emulation()
    if driver is None or emulation is None:
        _skip_unemulated(pytestconfig)
    given = EmulatedDriver(driver, emulation, driver.event_count())
    try:
        yield given
        untriggered = given.remove_faults()
    except BaseException:
        given.remove_faults()
        raise
    for function in untriggered:
        msg = f"cudalink: the fault injected into {function} was never triggered in this test"
        request.node.warn(pytest.PytestWarning(msg))


@pytest.fixture
def nvjitlink_contract(pytestconfig: pytest.Config) -> BrokenRules:
    """Violations of nvJitLink's contract in this test; ``expect()`` consumes those that the test makes on purpose."""
    from .watch import JITLINK_CONTRACT
    from .watch.violation_checks import check_nvjitlink

    run = _run_of(pytestconfig)
    check_nvjitlink(run)
    check = run.get(JITLINK_CONTRACT)
    if check is None:
        setting = run.settings.jitlink_contract
        reason = f"--cudalink-checks=nvjitlink={setting}" if setting.value == "off" else "not possible on this system"
        _skip(pytestconfig, "checks of nvJitLink's contract", reason)
    return BrokenRules(run, check)


@pytest.fixture
def driver_lifetimes(pytestconfig: pytest.Config) -> BrokenRules:
    """Lifetime violations so far in this test; ``expect()`` consumes those that the test makes on purpose."""
    from .watch import LIFETIMES

    run = _run_of(pytestconfig)
    check = run.get(LIFETIMES)
    if check is None:
        from ..emulator import preload

        if preload.emulation() is None:
            _skip_unemulated(pytestconfig)
        _skip(pytestconfig, "lifetime checks", f"--cudalink-checks=lifetimes={run.settings.lifetime}")
    return BrokenRules(run, check)


@pytest.fixture
def no_wait(pytestconfig: pytest.Config) -> Callable[..., AbstractContextManager[None]]:
    """Let no driver call wait for unfinished work in a block: ``with no_wait():``; the test fails if one does.

    ``no_wait(allow=["cuMemFree"])`` allows functions by their names in cuda.h. ``streams=[stream]`` names streams of
    the test: on a real GPU, a call that waits for one of them alone is not seen otherwise. The marker's ``no_wait`` is
    for the whole body of a test.
    """
    from .watch import NO_WAIT

    check = _run_of(pytestconfig).part(NO_WAIT)

    def forbid(*, allow: Sequence[str] = (), streams: Sequence[object] = ()) -> AbstractContextManager[None]:
        from ..emulator.no_wait import allowed_symbols

        return check.forbidden(allowed_symbols(allow), [_handle(stream) for stream in streams])

    return forbid


def _handle(stream: Any) -> int:
    """Return the handle of a stream: a number, or an object with `__cuda_stream__`."""
    given = stream.__cuda_stream__()[1] if hasattr(stream, "__cuda_stream__") else stream
    return int(getattr(given, "value", given) or 0)


@pytest.fixture
def guard_rails(pytestconfig: pytest.Config) -> CompatibilityGuardRails:
    """A guard for this test alone, in the mode of ``--cudalink-guard-rails``: what it looks up must fit together.

    Where the mode is off, the guard takes best_effort. See `pytest_cudalink.guardrails.CompatibilityGuardRails`.
    """
    from .watch import guard

    return guard.for_one_test(_run_of(pytestconfig))


@pytest.fixture
def cudalink(
    pytestconfig: pytest.Config,
    force_backend: Callable[[Literal["driver", "nvjitlink"] | None], None],
    fake_versions: Callable[..., object],
) -> Cudalink:
    """Facts of the run: settings, driver, nvJitLink, device; and the switches ``force_backend``, ``fake_versions``."""
    settings = _run_of(pytestconfig).settings
    return Cudalink(settings=settings, force_backend=force_backend, fake_versions=fake_versions)
