"""The guard rails of a run: installed for its length, or made for one test."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from ...loader.imports import postpone
from ..run import Run, RunPart

if TYPE_CHECKING:
    from ...guardrails import CompatibilityGuardRails, Verdict
    from ...guardrails.guard import Mode


class Guard(RunPart):
    """The guard of a run, which routes cuda.pathfinder from its import on; a run that looks nothing up pays nothing.

    A run inside a run gives the outer one its guard back when it ends.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._early: list[Verdict] | None = []  # verdicts of before the session; None once it has begun
        self.not_routed: tuple[str, ...] = ()  # the callers that still call cuda.pathfinder directly
        run.config.add_cleanup(postpone(self._install, until=("cuda.pathfinder",)))

    def start(self) -> None:
        """Report verdicts from now on, first those from before the session."""
        early, self._early = self._early or [], None
        for verdict in early:
            _report(self._run, verdict)

    def _install(self) -> None:
        from ...guardrails import routing

        before = routing.present()
        self.not_routed = routing.route(_guard(self._run.settings.guard_rails.value, self._judged)).not_routed

        def restore() -> None:
            if before is None:
                routing.unroute()
            else:
                routing.route(before.guard)

        self._run.config.add_cleanup(restore)

    def _judged(self, verdict: Verdict) -> None:
        if self._early is not None:
            self._early.append(verdict)
        else:
            _report(self._run, verdict)


def for_one_test(run: Run) -> CompatibilityGuardRails:
    """Return a guard whose verdicts are kept; its mode is that of the run, or best_effort where that is off."""
    chosen = run.settings.guard_rails.value
    return _guard("best_effort" if chosen == "off" else chosen, lambda verdict: _report(run, verdict))


def _report(run: Run, verdict: Verdict) -> None:
    run.config.hook.pytest_cudalink_verdict(config=run.config, verdict=verdict, nodeid=run.nodeid)


def _guard(mode: str, on_verdict: Callable[[Verdict], object]) -> CompatibilityGuardRails:
    from ...guardrails import CompatibilityGuardRails

    guard = CompatibilityGuardRails(mode=cast("Mode", mode), on_verdict=on_verdict)
    guard.ask_elsewhere()
    return guard
