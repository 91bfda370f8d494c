"""Schedules: each test runs again under many seeds, by which its queued work happens late, in any order that may be."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from ...base.finding import RerunFinding
from ...base.words import counted
from ...emulator.control import ScheduledWork, UnpromisedWait
from ...report.asked_for import AskedFor
from ..isolation.processes import key
from ..run import Run
from ..settings import ScheduleRequest, Setting, parse_schedules
from .reruns import ProcessNotes, RerunTotals, RunsAgain, command, show
from .schedule_rules import ScheduleFailure, by_kind, shrink

if TYPE_CHECKING:
    import pytest


#: Most places of a test at which it fails that are looked into.
_SHRUNK: Final = 3
#: Seconds after which that search ends.
_SEARCH: Final = 60.0
#: Schedules of a test that may hang: each takes as long as the deadline.
_HANGS: Final = 2
_HUNG: Final = f"after {_HANGS} that did not end; --cudalink-processes=deadline=SECONDS waits for less long"
#: Why a test runs under no schedule, and need not.
_NOTHING: Final = "nothing that they queue can be late"
#: Operations of a run that left no list of them: a crash, for which the clean run may have had fewer.
_SPARE: Final = 32


def choose_seed(run: Run) -> None:
    """Choose the seed of the run where the user has chosen none: before the header, and for all workers of xdist."""
    value, source = run.settings.schedules
    asked = parse_schedules(value) if value else None
    if asked is not None and asked.seed is None:
        asked = asked._replace(seed=SystemRandom().randrange(1, 10**9))
        run.settings.schedules = Setting(str(asked), source)


class _TrialRequest(NamedTuple):
    """The arguments of `trial.under_schedule`."""

    seed: int
    displaced: Sequence[int] | None
    promised: bool
    full_traceback: bool = False
    left_out: Sequence[int] | None = ()


@dataclass
class ScheduleTotals(RerunTotals):
    """What the schedules of one test, or of several, found."""

    failures: list[ScheduleFailure] = field(default_factory=list)
    known: set[int] = field(default_factory=set)  # numbers of the operations of all tests


class Schedules(RunsAgain[ScheduleTotals]):
    """Runs each test under schedules after it ran, and adds up the failures."""

    name, does = "schedule", "--cudalink-schedules delays what an emulated driver does"

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._option: ScheduleRequest = parse_schedules(run.settings.schedules.value)
        self.notes = ProcessNotes(run, Path(self._folder or self._copies.folder), ".schedules", ScheduleTotals)
        self.totals = ScheduleTotals()

    # -- the runs

    def again(self, item: pytest.Item, totals: ScheduleTotals) -> None:
        """Run a test under schedules."""
        promised = self._option.promised
        clean = self._trial(item, _TrialRequest(0, (), promised))
        if clean is None or clean.kind or clean.outcome != "passed":
            why = self._copies.why_not if clean is None else f"{clean.outcome} in a separate process"
            left = totals.skipped if self.passed else totals.spared
            left[clean.detail if clean is not None and not clean.outcome else why] = 1
            return
        if not clean.works:
            totals.spared[_NOTHING] = 1
            return
        totals.known = {work.number for work in clean.works}
        asked = [
            _TrialRequest(seed, self._option.displaced, promised, left_out=None if promised else ())
            for seed in self._option.seeds
        ]
        trials: dict[int, _Trial] = {}
        hangs = 0
        for number, trial in self._trials(item, asked, clean):
            trials[number] = trial
            hangs += trial.kind == "hang"
            if hangs == _HANGS:
                break
        if lost := len(asked) - len(trials):
            totals.lost[_HUNG if hangs == _HANGS else self._copies.why_not] = lost
        totals.tests, totals.runs = 1, len(trials)
        failing = [(asked[number].seed, trial) for number, trial in sorted(trials.items()) if trial.kind]
        alike: dict[tuple[str, str], tuple[int, _Trial]] = {}
        for seed, trial in failing:
            alike.setdefault((trial.kind, trial.detail if trial.kind == "violation" else trial.place), (seed, trial))
        for seed, trial in [*alike.values()][:_SHRUNK]:
            totals.failures.append(replace(self._failure(item, seed, trial, clean), number=len(failing)))
        show(item, f"{counted(len(trials), 'schedule')}, {len(failing)} failing", verbosity=1)

    def _failure(self, item: pytest.Item, seed: int, trial: _Trial, clean: _Trial) -> ScheduleFailure:
        """Return the failure under a seed, with few displaced operations."""
        promised = self._option.promised

        def fails(
            displaced: Sequence[int], left_out: Sequence[int] | None, *, full_traceback: bool = False
        ) -> _Trial | None:
            again = self._trial(item, _TrialRequest(seed, displaced, promised, full_traceback, left_out), clean)
            return again if again is not None and again.kind == trial.kind else None

        # a crash leaves no list of what was displaced
        displaced = trial.late or self._option.displaced or tuple(range(1, len(clean.works) + _SPARE))
        # what fails where all calls wait relies on none of them
        left_out: Sequence[int] | None = None if promised and fails(displaced, ()) is None else ()
        seen = fails(displaced, left_out, full_traceback=True)
        if seen is None:
            return _failure(item, seed, trial, clean, repeats=False)
        until = time.monotonic() + _SEARCH

        def spent() -> bool:
            return time.monotonic() > until

        displaced, least = shrink(displaced, lambda tried: fails(tried, left_out) is not None, spent)
        waits: tuple[UnpromisedWait, ...] = ()
        if left_out is None:
            passed = [wait.number for wait in seen.waits if wait.pending] or [wait.number for wait in clean.waits]
            left_out, _ = shrink(passed, lambda tried: fails(displaced, tried) is not None, spent)
            known = {wait.number: wait for wait in (*clean.waits, *seen.waits)}
            waits = tuple(known[number] for number in left_out)
        seen = fails(displaced, left_out, full_traceback=True) or seen
        return _failure(item, seed, seen, clean, displaced=displaced, least=least, waits=waits)

    def _trial(self, item: pytest.Item, request: _TrialRequest, clean: _Trial | None = None) -> _Trial | None:
        """Run a test once under a schedule; None where no process can."""
        trials = [*self._trials(item, [request], clean)]  # to its end: a process whose answers are not read is ended
        return trials[0][1] if trials else None

    def _trials(
        self, item: pytest.Item, requests: Sequence[_TrialRequest], clean: _Trial | None
    ) -> Iterator[tuple[int, _Trial]]:
        """Run a test once under each schedule, of which it yields the number."""
        for number, end, result in self._copies(
            item, [{"how": "under_schedule", **request._asdict()} for request in requests]
        ):
            trial = msgspec.convert(result or {}, _Trial)
            kind, detail = "", ""
            if end.stopped:
                kind, detail = "hang", f"the process {end}"
            elif end.exitcode != 0 or result is None:
                kind, detail = "crash", f"the process {end if end.exitcode != 0 else 'ended before the test did'}"
            elif clean is not None and (new := Counter(trial.violations) - Counter(clean.violations)):
                kind, detail = "violation", next(iter(new))
            elif trial.outcome == "failed":
                kind, detail = "failed", trial.message.splitlines()[0]
            yield number, replace(trial, kind=kind, detail=detail)

    # -- what they found

    def end(self, _session: pytest.Session) -> Iterator[RerunFinding]:
        """Yield each failure, the worst kinds first."""
        root = str(self._run.config.rootpath)
        for failure in by_kind(self.totals.failures if not self._run.is_worker else ()):
            first, *lines = failure.lines(root, self._option.number)
            yield RerunFinding(
                "error",
                first,
                evidence=tuple(lines),
                place=failure.nodeid,
                kind=failure.kind,
                category=self.name,
                repeat=command(self._run, f"--cudalink-schedules={failure.request}", failure.place),
                operations=tuple(failure.operations(root)),
            )

    def asked_for(self) -> list[AskedFor]:
        """Return how many of the tests ran under schedules, and how many of the schedules."""
        totals = self.totals
        lost = dict(totals.lost)
        if not (totals.tests or totals.skipped) and _NOTHING in totals.spared:
            lost["no test queues what can be late"] = 1
        displaced = set(self._option.displaced or ())
        if totals.tests and displaced and displaced.isdisjoint(totals.known):
            lost[f"no test has one of the operations {self._option.wanted}"] = 1
        return [totals.asked_for("schedules"), AskedFor("delays", totals.runs + sum(lost.values()), totals.runs, lost)]

    def lines(self) -> list[str]:
        number = counted(len(self.totals.failures), "failure")
        return [f"schedules: {self.totals} from seed {self._option.seed}, {number}"]


def _failure(item: pytest.Item, seed: int, trial: _Trial, clean: _Trial, **how: Any) -> ScheduleFailure:
    """Return what was seen; a process that died leaves no list of its operations."""
    works = trial.works or tuple(work._replace(submitted=0, started=0, ended=0, call="") for work in clean.works)
    kind = "unpromised" if how.get("waits") else trial.kind
    return ScheduleFailure(item.nodeid, kind, trial.detail, seed, works=works, text=trial.text, place=key(item), **how)


@dataclass(frozen=True)
class _Trial:
    """One run of a test under a schedule, as `trial.under_schedule` returns it, and what failed."""

    outcome: str = ""  # as `SweptTrial` has it
    message: str = ""  # the first line of what it raised
    text: str = ""  # its failure; empty unless that was asked for
    place: str = ""  # file and line that raised
    violations: tuple[str, ...] = ()
    works: tuple[ScheduledWork, ...] = ()
    waits: tuple[UnpromisedWait, ...] = ()
    kind: str = ""  # one of `KINDS`; empty for none
    detail: str = ""  # what was seen, in a line

    @property
    def late(self) -> tuple[int, ...]:
        """The numbers of the operations that were displaced."""
        return tuple(work.number for work in self.works if work.displaced)
