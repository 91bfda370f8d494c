"""What a run was asked for: how often it happened of how often it was due, and whether the run fails for it. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from ..base.words import either

#: The setting that allows everything that was left out.
ALLOWS: Final = "--cudalink-require=none"
_UNKNOWN: Final = "for a reason that is not known"


class _Words(NamedTuple):
    """Words in both numbers, as `words.either` takes them."""

    name: str
    done: str  # behind "no test" or "2 of 3 tests"
    not_done: str  # empty where the reason says it


#: What a run can be asked for, with its words.
KINDS: Final = {
    "driver": _Words("test|tests", "ran on the driver that was asked for", "not run on it"),
    "links": _Words("link|links", "was made|were made", "not made"),
    "faults": _Words(
        "fault of --cudalink-faults|faults of --cudalink-faults",
        "was triggered in pytest's own processes|were triggered in pytest's own processes",
        "not triggered",
    ),
    "isolation": _Words("isolated test|isolated tests", "ran in a second process", "run in this process"),
    "fault sweep": _Words("test|tests", "was swept|were swept", "not swept"),
    "calls": _Words("run with a fault|runs with a fault", "was made|were made", "left out"),
    "resume": _Words(
        "test of the interrupted sweep|tests of the interrupted sweep",
        "was among those of this run|were among those of this run",
        "not among those of this run",
    ),
    "baseline": _Words("baseline|baselines", "was written|were written", "not written"),
    "schedules": _Words("test|tests", "ran under schedules", "not run under schedules"),
    "delays": _Words("run under a schedule|runs under a schedule", "was made|were made", "left out"),
    "workers": _Words(
        "worker of pytest-xdist|workers of pytest-xdist",
        "reported what it has seen|reported what they have seen",
        "lost",
    ),
    "checks": _Words("part|parts", "is on|are on", ""),
}


class AskedFor(NamedTuple):
    """One thing that a run was asked for."""

    what: str  # one of `KINDS`
    due: int  # how often it was due
    happened: int  # how often it happened
    left: Mapping[str, int] = {}  # how often it did not, by the reason
    allowed: Mapping[str, int] = {}  # how often it did not and need not, by what allows that


def merged(entries: Iterable[AskedFor]) -> list[AskedFor]:
    """Return one entry for each kind, in the order of `KINDS`: several processes do a part each."""
    by_kind: dict[str, AskedFor] = {}
    for entry in entries:
        known = by_kind.get(entry.what, AskedFor(entry.what, 0, 0))
        due, happened = known.due + entry.due, known.happened + entry.happened
        left, allowed = _sums([known.left, entry.left]), _sums([known.allowed, entry.allowed])
        by_kind[entry.what] = AskedFor(entry.what, due, happened, left, allowed)
    return [by_kind[what] for what in KINDS if what in by_kind]


def _sums(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    return dict(sum(map(Counter, counts), Counter()))


def judged(entry: AskedFor, *, allows: bool) -> AskedFor:
    """Return an entry in which everything that did not happen has its reason.

    `allows`: whether the user allows whatever was left out.
    """
    unknown = entry.due - entry.happened - sum(entry.left.values()) - sum(entry.allowed.values())
    left = {**entry.left, **({_UNKNOWN: unknown} if unknown > 0 else {})}
    if allows:
        return entry._replace(left={}, allowed=_sums([entry.allowed, left]))
    return entry._replace(left=left)


def unmet(entry: AskedFor) -> str:
    """Return why a run fails for an entry; empty if everything happened that was due, or was allowed not to."""
    if not entry.left:
        return ""
    words = KINDS[entry.what]
    if entry.happened:
        what = f"{entry.happened} of {entry.due} {either(entry.due, words.name)} {either(2, words.done)}"
    else:
        what = f"no {either(1, words.name)} {either(1, words.done)}"
    reasons = "; ".join(f"{number}: {reason}" for reason, number in entry.left.items())
    return f"The run fails because {what} ({reasons}); {ALLOWS} allows that."


def is_worth_a_look(subject: str, due: int, happened: int) -> bool:
    """Whether a report shows an entry: what it is about runs apart from the tests, or not all of it happened."""
    return due > happened or subject in ("fault sweep", "calls", "schedules", "delays", "resume")


def left_out(entry: AskedFor) -> Iterator[str]:
    """Yield what did not happen, a line for each reason."""
    words = KINDS[entry.what]
    for reason, number in _sums([entry.left, entry.allowed]).items():
        yield f"{number} {either(number, words.name)} {words.not_done}: {reason}" if words.not_done else reason
