"""The fixtures. Each imports what it needs when it is used, so that a suite that uses none pays nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import pytest

from . import session
from .settings import Settings

if TYPE_CHECKING:
    from .linker import Linker, LinkerOptions, ObjectCode
    from .linker.dispatch import Case
    from .versions import CudaVersion

__all__ = [
    "Cudalink",
    "FakeVersions",
    "LinkerFactory",
    "cudalink",
    "dispatch_case",
    "fake_versions",
    "force_backend",
    "linker_factory",
]


class FakeVersions(Protocol):
    """Type of the fixture ``fake_versions``."""

    def __call__(
        self, *, driver: str | tuple[int, int] | None = ..., nvjitlink: str | tuple[int, int] | None = ...
    ) -> object: ...


class LinkerFactory(Protocol):
    """Type of the fixture ``linker_factory``."""

    def __call__(self, *object_codes: ObjectCode, options: LinkerOptions | None = ..., **keywords: Any) -> Linker: ...


@dataclass(frozen=True)
class Cudalink:
    """Facts of the run, and the switches of the other fixtures.

    Attributes
    ----------
    settings : Settings
        Every setting with its source.
    force_backend : callable
        As the fixture of that name.
    fake_versions : callable
        As the fixture of that name.
    """

    settings: Settings
    force_backend: Callable[[Literal["driver", "nvjitlink"] | None], None]
    fake_versions: FakeVersions

    @property
    def driver(self) -> CudaVersion | None:
        """CUDA version of the driver, real or faked; None when unknown."""
        from . import probes

        return probes.driver_version()

    @property
    def nvjitlink(self) -> CudaVersion | None:
        """Version of a usable nvJitLink, real or faked; None when there is none."""
        from . import probes

        return probes.nvjitlink_version()

    @property
    def device_arch(self) -> str | None:
        """``"sm_90"`` of the current device, or None."""
        from . import probes

        return probes.device_arch()


@pytest.fixture
def force_backend() -> Iterator[Callable[[Literal["driver", "nvjitlink"] | None], None]]:
    """Force the backend of every bundled linker for the rest of this test: ``force_backend("driver")``.

    None lets the policy decide, also under ``--force-backend``.
    """
    from .linker import forcing

    before = forcing.forced()

    def force(backend: Literal["driver", "nvjitlink"] | None) -> None:
        if backend not in ("driver", "nvjitlink", None):
            msg = f"force_backend({backend!r}): expected 'driver', 'nvjitlink' or None"
            raise ValueError(msg)
        forcing.set_forced(forcing.Forced(backend, "the fixture force_backend") if backend else None)

    yield force
    forcing.set_forced(before)


@pytest.fixture
def fake_versions() -> Iterator[FakeVersions]:
    """Fake the version probes for the rest of this test: ``fake_versions(driver="12.9", nvjitlink="13.0")``.

    None makes a driver unknown and an nvJitLink absent; what is left out stays as it is.
    See `pytest_cudalink.probes.fake`.
    """
    from . import probes

    with ExitStack() as stack:
        yield lambda **versions: stack.enter_context(probes.fake(**versions))


@pytest.fixture
def linker_factory() -> Iterator[LinkerFactory]:
    """Make linkers that are closed when the test ends; takes what `pytest_cudalink.linker.Linker` takes."""
    from .linker import Linker

    with ExitStack() as stack:

        def make(*object_codes: ObjectCode, options: LinkerOptions | None = None, **keywords: Any) -> Linker:
            return stack.enter_context(Linker(*object_codes, options=options, **keywords))

        yield make


@pytest.fixture
def dispatch_case(request: pytest.FixtureRequest) -> Case:
    """One concrete case of the dispatch table; a test that asks for it runs once for each.

    ``dispatch_case.check(my_choose_backend)`` holds your own implementation against it. The table is strict-major, or
    that of ``@pytest.mark.cudalink(policy=...)``.
    """
    case: Case = request.param
    return case


@pytest.fixture
def cudalink(
    pytestconfig: pytest.Config,
    force_backend: Callable[[Literal["driver", "nvjitlink"] | None], None],
    fake_versions: FakeVersions,
) -> Cudalink:
    """Facts of the run: settings, driver, nvJitLink, device; and the switches ``force_backend``, ``fake_versions``."""
    return Cudalink(session.of(pytestconfig).settings, force_backend, fake_versions)
