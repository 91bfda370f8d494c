"""The guard rails of one test run: installed for its length, or made for one test."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, cast

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..guardrails import CompatibilityGuardRails, Routing, Verdict
    from ..guardrails.guard import Mode
    from .run import Session
    from .settings import Settings

__all__ = ["early", "for_one_test", "start"]

#: What `early` installed, and the verdicts that nobody could be told yet.
_EARLY = pytest.StashKey[tuple["Routing", list["Verdict"]]]()


def for_one_test(run: Session) -> CompatibilityGuardRails:
    """A guard whose verdicts are kept; its mode is that of the run, best_effort where that is off."""
    chosen = run.settings.guard_rails.value
    return _guard("best_effort" if chosen == "off" else chosen, run.judged)


def early(config: pytest.Config, chosen: Settings) -> None:
    """Route cuda.pathfinder before any conftest is imported; `start` takes over when there is a session to be told."""
    if chosen.report.value:
        # the record's own question is no look-up of the suite; it is answered once
        from .. import probes

        with suppress(OSError):
            probes.nvjitlink()
    verdicts: list[Verdict] = []
    config.stash[_EARLY] = _install(config, _guard(chosen.guard_rails.value, verdicts.append)), verdicts


def start(run: Session) -> tuple[str, ...]:
    """Route cuda.pathfinder through a guard until the run ends; returns who calls it directly all the same.

    A run inside of a run gives the outer one its guard back. What was routed early stays as it is.
    """
    if _EARLY not in run.config.stash:
        return _install(run.config, for_one_test(run)).not_routed
    routing, verdicts = run.config.stash[_EARLY]
    for verdict in verdicts:
        run.judged(verdict)
    routing.guard.on_verdict = run.judged
    return routing.not_routed


def _guard(mode: str, told: Callable[[Verdict], object]) -> CompatibilityGuardRails:
    from ..guardrails import CompatibilityGuardRails

    return CompatibilityGuardRails(mode=cast("Mode", mode), on_verdict=told)


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
