"""The guard rails of one test run: installed for its length, their verdicts kept by test, recorded and summed up."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from .guardrails import CompatibilityGuardRails, Verdict
    from .guardrails.guard import Mode
    from .settings import Setting

__all__ = ["Guarding", "lines", "start"]

_SHOWN = 20


@dataclass
class Guarding:
    """The verdicts of a run.

    Attributes
    ----------
    mode : Setting
        With its source.
    events : list of dict
        Each verdict as the record file has it: ``nodeid``, ``status``, ``rule``, ``message``, ``fix``, ``items``.
    not_routed : tuple of str
        Who calls cuda.pathfinder directly all the same.
    recorder : callable or None
        Gets the keywords of each event when it happens.
    """

    mode: Setting
    events: list[dict[str, Any]] = field(default_factory=list)
    not_routed: tuple[str, ...] = ()
    recorder: Callable[..., object] | None = None

    def hear(self, verdict: Verdict) -> None:
        """Keep a verdict under the test that runs, and hand it to the recorder."""
        # pytest sets it for each phase: "path::test (call)"
        nodeid = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0] or None
        event = {"nodeid": nodeid, **asdict(verdict)}
        event["items"] = list(event["items"])
        event.pop("otherwise")
        self.events.append(event)
        if self.recorder is not None:
            self.recorder(**event)

    @contextmanager
    def guard(self) -> Iterator[CompatibilityGuardRails]:
        """A guard for one test, whose verdicts are kept; its mode is that of the run, best_effort where that is off."""
        from .guardrails import CompatibilityGuardRails

        mode = "best_effort" if self.mode.value == "off" else self.mode.value
        yield CompatibilityGuardRails(mode=cast("Mode", mode), on_verdict=self.hear)


def start(config: pytest.Config, mode: Setting) -> Guarding:
    """Route cuda.pathfinder through a guard until the run ends; does nothing in the mode ``off``.

    A run inside of a run leaves the outer one's guard as it found it.
    """
    run = Guarding(mode)
    if mode.value == "off":
        return run
    from . import guardrails

    before = guardrails.installed()
    guard = guardrails.CompatibilityGuardRails(mode=cast("Mode", mode.value), on_verdict=run.hear)
    run.not_routed = guardrails.install(guard).not_routed

    def restore() -> None:
        if before is None:
            guardrails.uninstall()
        else:
            guardrails.install(before.guard)

    config.add_cleanup(restore)
    return run


def lines(run: Guarding) -> list[str]:
    """What the summary says: how many verdicts of which kind, and each different one that is not "compatible"."""
    if run.mode.value == "off" and not run.events:
        return []
    counts = Counter(event["status"] for event in run.events)
    words = ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in sorted(counts.items()))
    found = [f"mode {run.mode}: {words or 'nothing was looked up'}"]
    by_message: dict[str, list[dict[str, Any]]] = {}
    for event in run.events:
        if event["status"] != "compatible":
            by_message.setdefault(event["message"], []).append(event)
    for message, events in list(by_message.items())[:_SHOWN]:
        event = events[0]
        tests = sorted({one["nodeid"] or "outside of tests" for one in events})
        more = f" and {len(tests) - 1} more" if len(tests) > 1 else ""
        found.append(f"{event['status'].replace('_', ' ')} ({event['rule']}): {message}")
        found += [f"    {item}" for item in event["items"]]
        found += [f"    fix: {event['fix']}"] if event["fix"] else []
        found.append(f"    in {tests[0]}{more}")
    if len(by_message) > _SHOWN:
        found.append(f"and {len(by_message) - _SHOWN} more")
    return [*found, *(f"calls cuda.pathfinder directly: {who}" for who in run.not_routed)]
