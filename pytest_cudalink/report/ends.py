"""Compares how a run ended with what its lines say: a verdict believes both. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ..base.plurals import counted
from .records import CollectedRecord, EndRecord

#: pytest's exit codes (pytest.ExitCode) after which every selected test has run; a record may lack it.
WHOLE: Final = (None, 0, 1)
_CODES: Final = {
    2: "it was interrupted, or a file could not be collected",
    3: "an internal error",
    4: "it was called with wrong arguments",
    5: "no tests were collected, or all were deselected",
    6: "more warnings than --max-warnings allows",
}
#: How many tests a sentence names.
_NAMED: Final = 3


@dataclass
class Lines:
    """What the lines of one run add up to."""

    ends: list[EndRecord] = field(default_factory=list)
    collected: list[CollectedRecord] = field(default_factory=list)
    started: Counter[str] = field(default_factory=Counter)  # number of events "start" by test
    ended: Counter[str] = field(default_factory=Counter)  # number of events "test" by test
    outcomes: Counter[str] = field(default_factory=Counter)  # number of events "test" by outcome


def exit_in_words(code: int) -> str:
    """Return an exit code after which tests can be missing, with its meaning."""
    return f"pytest ended with exit code {code}: {_CODES.get(code, 'a plugin or pytest.exit chose it')}"


def doubts(lines: Lines, fine: Collection[str], *, explained: bool) -> list[str]:
    """Return what is wrong with a run that ended, a sentence each; nothing for one whose end agrees with its lines.

    `fine`: the tests that neither failed nor crashed, without the files that are skipped as a whole.
    `explained`: whether the record shows why pytest ended with exit code 1.
    """
    codes = [end.exitstatus for end in lines.ends]
    if len(codes) > 1:
        words = " and ".join("unknown" if code is None else str(code) for code in codes)
        return [f"the record has {len(codes)} ends, with exit codes {words}; expected one run in a file"]
    if not codes or codes[0] not in WHOLE:
        return []
    return [*_of_exit(codes[0], lines, explained=explained), *_of_tests(lines, fine)]


def _of_exit(code: int | None, lines: Lines, *, explained: bool) -> Iterator[str]:
    if code == 1 and not explained:
        yield "pytest ended with exit code 1, and no test failed: a plugin failed the run, as a limit of coverage does"
    if code == 0 and not lines.ended:
        yield "pytest ended with exit code 0, and no test ran"


def _of_tests(lines: Lines, fine: Collection[str]) -> Iterator[str]:
    """Yield what is wrong with the tests of a run whose end says that all of them ran."""
    cut = [test for test, number in lines.started.items() if number > lines.ended[test]]
    if cut:
        yield f"{counted(len(cut), 'test')} began without a result: {_some(cut)}"
    counts = lines.ends[0].counts
    if counts is None:  # another program wrote the record
        return
    if +Counter(counts) != lines.outcomes:
        yield f"the end counts {_totals(counts)}; the record has {_totals(lines.outcomes)}"
    if len(lines.collected) > 1:
        yield f"the record has {len(lines.collected)} events 'collected'; expected one run in a file"
    known = {test for one in lines.collected for test in one.nodeids}
    strange = [test for test in lines.ended if test in fine and test not in known]
    if strange:
        yield f"{counted(len(strange), 'test')} ran, but did not belong to the collected ones: {_some(strange)}"


def _some(tests: Sequence[str]) -> str:
    return ", ".join(tests[:_NAMED]) + (", …" if len(tests) > _NAMED else "")


def _totals(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {outcome}" for outcome, number in sorted(counts.items()) if number) or "no tests"
