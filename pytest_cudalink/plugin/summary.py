"""What the run says of itself: lines at its head, one section at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from ..report.wording import by_cause, counted, linked_on, status

if TYPE_CHECKING:
    from ..targets.steering import Steering
    from .driver import RunFaults
    from .results import Totals
    from .settings import Settings

__all__ = ["forced_line", "guard_rails_section", "section"]

_SHOWN = 20


def forced_line(settings: Settings, steering: Steering) -> str:
    """Which targets are forced, of those that are installed."""
    names = []
    for target in steering.targets.values():
        version = target.version()
        if (version is None and target.distribution is not None) or not (
            steering.only is None or target.name in steering.only
        ):
            continue
        names.append(target.name if target.name == "bundled" or version is None else f"{target.name} {version}")
    how = "each backend in turn" if settings.backend.value == "each" else settings.backend.value
    narrowed = f" (--cudalink-target from {settings.target.source})" if steering.only is not None else ""
    return f"cudalink: forced to {how}: {', '.join(names) or 'no target that is installed'}{narrowed}"


def section(reporter: pytest.TerminalReporter, totals: Totals, lifetime: str, faults: RunFaults | None) -> None:
    """The section at the end; nothing when there is nothing to say, one line for each kind of thing otherwise."""
    lines = []
    if reporter.verbosity >= 0:
        lines = _lines(totals, lifetime, verbose=reporter.verbosity > 0)
        lines += faults.lines() if faults is not None else []
    if failing := totals.failing(lifetime):
        lines += [f"outside of tests: {text}" for text in failing]
        lines.append("The run fails for what was made outside of tests.")
    if not lines:
        return
    reporter.section("cudalink")
    for line in lines:
        reporter.line(line)


def _lines(totals: Totals, lifetime: str, *, verbose: bool) -> list[str]:
    lines = []
    by_target: dict[str, Counter[str]] = {}
    for key, count in sorted(totals.links.items()):
        target, _, backend = key.rpartition("/")
        by_target.setdefault(target, Counter())[backend] += count
    for target, counts in by_target.items():
        shares = ", ".join(f"{count} {linked_on(backend)}" for backend, count in sorted(counts.items()))
        lines.append(f"{target}: {counted(sum(counts.values()), 'link')} ({shares})")
    lines += [f"{target} is not watched: {why}" for target, why in sorted(totals.left_alone.items())]
    outside = totals.violations_outside
    if violations := totals.violations.total() + len(outside):
        lines.append(counted(violations, "lifetime violation"))
        lines += [f"  {nodeid}: {count}" for nodeid, count in sorted(totals.violations.items())]
        if lifetime == "report":
            lines += [f"  outside of tests: {text}" for text in outside]
    documented = Counter((requirement, raises) for _, requirement, raises in totals.documented)
    for (requirement, raises), count in sorted(documented.items()):
        lines.append(f"{counted(count, 'test')} asserted the failure documented without {requirement}: {raises}")
        if verbose:
            lines += [f"  {nodeid}" for nodeid, *rest in totals.documented if tuple(rest) == (requirement, raises)]
    for missing, count in sorted(totals.missing.items()):
        lines.append(f"{counted(count, 'test')} would run with {missing}")
    return lines


def guard_rails_section(
    reporter: pytest.TerminalReporter, settings: Settings, totals: Totals, not_routed: Sequence[str]
) -> None:
    """How many verdicts of the guard rails of which kind, and each different one that is not "compatible"."""
    if reporter.verbosity < 0 or (settings.guard_rails.value == "off" and not totals.verdicts):
        return
    reporter.section("cudalink guard rails")
    counts = Counter(map(status, totals.verdicts))
    words = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    reporter.line(f"mode {settings.guard_rails}: {words or 'nothing was looked up'}")
    causes = by_cause(totals.verdicts)
    for verdicts in causes[:_SHOWN]:
        first = verdicts[0]
        tests = sorted({f"in {verdict['nodeid']}" if verdict["nodeid"] else "outside of tests" for verdict in verdicts})
        more = f" and {counted(len(tests) - 1, 'other')}" if len(tests) > 1 else ""
        reporter.line(f"{status(first)} ({first['rule']}): {first['message']}")
        for item in first["items"]:
            reporter.line(f"    {item}")
        if first["fix"]:
            reporter.line(f"    fix: {first['fix']}")
        if first.get("otherwise"):
            reporter.line(f"    {'or' if first['fix'] else 'fix'}: {first['otherwise']}")
        reporter.line(f"    {tests[0]}{more}")
    if len(causes) > _SHOWN:
        reporter.line(f"and {len(causes) - _SHOWN} more")
    for who in not_routed:
        reporter.line(f"calls cuda.pathfinder directly: {who}")
