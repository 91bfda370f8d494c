"""The guard rails of a run: installed for its length, or made for one test."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, cast

import pytest

from . import ledger

if TYPE_CHECKING:
    from ..guardrails import CompatibilityGuardRails, Routing, Verdict
    from ..guardrails.guard import Mode
    from .run import Run
    from .settings import Settings

__all__ = ["for_one_test", "load", "start"]

#: What `load` installed, and the verdicts made before the session existed; `start` delivers them.
_EARLY = pytest.StashKey[tuple["Routing", list["Verdict"]]]()


def for_one_test(run: Run) -> CompatibilityGuardRails:
    """Return a guard whose verdicts are kept; its mode is that of the run, or best_effort where that is off."""
    chosen = run.settings.guard_rails.value
    return _guard("best_effort" if chosen == "off" else chosen, lambda verdict: _report(run, verdict))


def load(config: pytest.Config, settings: Settings) -> None:
    """Route cuda.pathfinder through a guard before any conftest is imported."""
    if settings.report.value:
        # the record's own question is not a look-up of the suite; it is answered once
        from .. import probes

        with suppress(OSError):
            probes.nvjitlink()
    verdicts: list[Verdict] = []
    config.stash[_EARLY] = _install(config, _guard(settings.guard_rails.value, verdicts.append)), verdicts


def start(run: Run) -> tuple[str, ...]:
    """Route cuda.pathfinder through a guard until the run ends; what `load` routed stays as it is.

    A run inside a run gives the outer one its guard back.

    Returns
    -------
    tuple of str
        The callers that still call cuda.pathfinder directly.
    """
    if _EARLY not in run.config.stash:
        return _install(run.config, for_one_test(run)).not_routed
    routing, verdicts = run.config.stash[_EARLY]
    for verdict in verdicts:
        _report(run, verdict)
    routing.guard.on_verdict = lambda verdict: _report(run, verdict)
    return routing.not_routed


def _report(run: Run, verdict: Verdict) -> None:
    ledger.of(run)
    run.config.hook.pytest_cudalink_verdict(config=run.config, verdict=verdict, nodeid=run.nodeid)


def _guard(mode: str, on_verdict: Callable[[Verdict], object]) -> CompatibilityGuardRails:
    from ..guardrails import CompatibilityGuardRails

    return CompatibilityGuardRails(mode=cast("Mode", mode), on_verdict=on_verdict)


def _install(config: pytest.Config, guard: CompatibilityGuardRails) -> Routing:
    from .. import guardrails

    before = guardrails.installed()
    routing = guardrails.install(guard)

    def restore() -> None:
        if before is None:
            guardrails.uninstall()
        else:
            guardrails.install(before.guard)

    config.add_cleanup(restore)
    return routing
