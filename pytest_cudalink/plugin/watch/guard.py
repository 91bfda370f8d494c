"""The guard rails of a run: installed for its length, or made for one test."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

import pytest

from ...loader.imports import postpone
from ..run import Run
from ..settings import Settings

if TYPE_CHECKING:
    from ...guardrails import CompatibilityGuardRails, Routing, Verdict
    from ...guardrails.guard import Mode


class _GuardOfRun:
    """The guard of a run, which routes cuda.pathfinder from its import on; a run that looks nothing up pays nothing.

    `routing`: None as long as nothing has imported cuda.pathfinder.
    """

    def __init__(self, config: pytest.Config, mode: str) -> None:
        self._config, self._mode = config, mode
        self._run: Run | None = None
        #: Verdicts made before the session existed.
        self._early: list[Verdict] = []
        self.routing: Routing | None = None
        config.add_cleanup(postpone(self._install, until=("cuda.pathfinder",)))

    def report_to(self, run: Run) -> None:
        """Report verdicts to the session that has begun, first those from before it."""
        self._run = run
        for verdict in self._early:
            _report(run, verdict)

    def _install(self) -> None:
        from ...guardrails import routing

        before = routing.present()
        self.routing = routing.route(_guard(self._mode, self._judged))

        def restore() -> None:
            if before is None:
                routing.unroute()
            else:
                routing.route(before.guard)

        self._config.add_cleanup(restore)

    def _judged(self, verdict: Verdict) -> None:
        if self._run is None:
            self._early.append(verdict)
        else:
            _report(self._run, verdict)


_OF_RUN: Final = pytest.StashKey[_GuardOfRun]()


def for_one_test(run: Run) -> CompatibilityGuardRails:
    """Return a guard whose verdicts are kept; its mode is that of the run, or best_effort where that is off."""
    chosen = run.settings.guard_rails.value
    return _guard("best_effort" if chosen == "off" else chosen, lambda verdict: _report(run, verdict))


def load(config: pytest.Config, settings: Settings) -> None:
    """Let a guard wait for cuda.pathfinder before any conftest is imported."""
    config.stash[_OF_RUN] = _GuardOfRun(config, settings.guard_rails.value)


def start(run: Run) -> None:
    """Report the verdicts of the run's guard from now on; makes the guard where `load` could not.

    A run inside a run gives the outer one its guard back when it ends.
    """
    config = run.config
    if _OF_RUN not in config.stash:
        config.stash[_OF_RUN] = _GuardOfRun(config, run.settings.guard_rails.value)
    config.stash[_OF_RUN].report_to(run)


def not_routed(config: pytest.Config) -> tuple[str, ...]:
    """Return the callers that still call cuda.pathfinder directly."""
    installed = config.stash.get(_OF_RUN, None)
    return installed.routing.not_routed if installed is not None and installed.routing is not None else ()


def _report(run: Run, verdict: Verdict) -> None:
    run.config.hook.pytest_cudalink_verdict(config=run.config, verdict=verdict, nodeid=run.nodeid)


def _guard(mode: str, on_verdict: Callable[[Verdict], object]) -> CompatibilityGuardRails:
    from ...guardrails import CompatibilityGuardRails

    guard = CompatibilityGuardRails(mode=cast("Mode", mode), on_verdict=on_verdict)
    guard.ask_elsewhere()
    return guard
