"""One test run: its settings, what it forces on the linker, and what it says of itself."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import pytest

from . import settings
from .settings import Settings

if TYPE_CHECKING:
    from .linker.dispatch import BackendName

__all__ = ["MISSING_DRIVER", "Session", "header", "missing_driver_skips", "of", "start"]

MISSING_DRIVER = "cudalink: needs a CUDA driver (libcuda.so.1), found none, and the driver backend is forced"


@dataclass
class Session:
    """What the plugin keeps for the length of a run."""

    settings: Settings


_KEY = pytest.StashKey[Session]()


def of(config: pytest.Config) -> Session:
    """The session of a configured run."""
    return config.stash[_KEY]


def start(config: pytest.Config) -> None:
    """Resolve the settings and force what they say, before anything is collected; undone when the run ends."""
    run = Session(settings.resolve(config))
    config.stash[_KEY] = run
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


def header(config: pytest.Config) -> list[str]:
    """One line: the backend and policy with their sources, and what the machine has."""
    from . import probes

    chosen = of(config).settings
    driver = probes.driver_version()
    parts = [
        f"backend {chosen.backend}",
        f"policy {chosen.policy}",
        _nvjitlink(probes.nvjitlink_wheel()),
        f"driver CUDA {driver}" if driver else "no driver",
    ]
    return [f"cudalink: {', '.join(parts)}"]


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
