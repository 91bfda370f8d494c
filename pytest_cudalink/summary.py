"""What the run says of itself: lines at its head, one section at its end."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .recording import Totals
    from .settings import Settings
    from .targets.steering import Steering

__all__ = ["forced_line", "section"]


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


def section(reporter: pytest.TerminalReporter, totals: Totals) -> None:
    """The section at the end; nothing when there is nothing to say, one line for each kind of thing otherwise."""
    if reporter.verbosity < 0:
        return
    lines = _lines(totals, verbose=reporter.verbosity > 0)
    if not lines:
        return
    reporter.section("cudalink")
    for line in lines:
        reporter.line(line)


def _lines(totals: Totals, *, verbose: bool) -> list[str]:
    lines = []
    by_target: dict[str, Counter[str]] = {}
    for key, count in sorted(totals.links.items()):
        target, _, backend = key.rpartition("/")
        by_target.setdefault(target, Counter())[backend] += count
    for target, counts in by_target.items():
        shares = ", ".join(f"{count} on {_NAMES.get(backend, backend)}" for backend, count in sorted(counts.items()))
        lines.append(f"{target}: {_count(sum(counts.values()), 'link')} ({shares})")
    if totals.violations:
        lines.append(_count(totals.violations, "lifetime violation"))
    documented = Counter((requirement, raises) for _, requirement, raises in totals.documented)
    for (requirement, raises), count in sorted(documented.items()):
        lines.append(f"{_count(count, 'test')} asserted the failure documented without {requirement}: {raises}")
        if verbose:
            lines += [f"  {nodeid}" for nodeid, *rest in totals.documented if tuple(rest) == (requirement, raises)]
    for missing, count in sorted(totals.missing.items()):
        lines.append(f"{_count(count, 'test')} would run with {missing}")
    return lines


_NAMES = {"nvjitlink": "nvJitLink", "driver": "the driver", "unknown": "none, refused before a choice"}


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
