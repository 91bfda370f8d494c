"""The guard rails of one test run: installed for its length, or made for one test."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from .guardrails import CompatibilityGuardRails
    from .guardrails.guard import Mode
    from .session import Session

__all__ = ["for_one_test", "start"]


def for_one_test(run: Session) -> CompatibilityGuardRails:
    """A guard whose verdicts are kept; its mode is that of the run, best_effort where that is off."""
    from .guardrails import CompatibilityGuardRails

    chosen = run.settings.guard_rails.value
    mode = "best_effort" if chosen == "off" else chosen
    return CompatibilityGuardRails(mode=cast("Mode", mode), on_verdict=run.judged)


def start(run: Session) -> tuple[str, ...]:
    """Route cuda.pathfinder through a guard until the run ends; returns who calls it directly all the same.

    A run inside of a run gives the outer one its guard back.
    """
    from . import guardrails

    before = guardrails.installed()
    routing = guardrails.install(for_one_test(run))

    def restore() -> None:
        if before is None:
            guardrails.uninstall()
        else:
            guardrails.install(before.guard)

    run.config.add_cleanup(restore)
    return routing.not_routed
