"""A fault sweep: each test runs again and again in forked processes, and another call of the driver fails each time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest

from ...emulator import faults
from ...plurals import counted
from ...report import fault_sweep
from ...report.fault_sweep import Call, FailedCall, SweepTotals, SweptTrial, Way
from ..parts import COPIES, LEDGER
from ..settings import COMPILER, LINKER
from .copies import RunsAgain, show
from .repeat import command, place_of

if TYPE_CHECKING:
    from ..records.process_end import ProcessEnd
    from ..run import Run

#: Codes with which calls fail where their documentation lists them, the likeliest first: no memory, a wrong argument.
_LIKELY: Final = (2, 1)
#: Those of NVRTC: no memory, a program that does not compile.
_LIKELY_OF_COMPILER: Final = (1, 6)
#: How every call fails that needs the device, once that is lost.
_LOST: Final = (46, "device")
#: How a function of nvJitLink fails: any may, whatever its input is.
_LINKER_ERROR: Final = (6, "NVJITLINK_ERROR_INTERNAL", "ERROR_INTERNAL")


class FaultSweep(RunsAgain):
    """A plugin object that sweeps each test after it ran, and adds up the findings.

    `run`: in a controller of xdist, one that only adds up.
    `failing`: the findings that fail the run, each with the command that repeats it.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._notes = _Notes(run)
        option, *self._others = self._notes.option.split("+")
        self._single, self._functions, self._ways = _read(option)
        # a finding is repeated whatever machine made its run
        self._budget, self._part = (0, (1, 1)) if self._single else _budget(run.settings.fault_budget.value)
        self._baseline = run.settings.fault_baseline.value
        self._baseline_file = run.config.invocation_params.dir / self._baseline
        self._known = self._read_baseline()
        self._copies = run.part(COPIES)
        self._interrupted = False
        self.totals = SweepTotals()
        self.failing: list[str] = []

    def _read_baseline(self) -> list[str] | None:
        """Return the lines of the baseline; None where there is none yet."""
        if not self._baseline or not self._baseline_file.exists():
            return None
        try:
            return fault_sweep.read_baseline(self._baseline_file.read_text(encoding="utf-8"))
        except ValueError as error:
            msg = f"cudalink: cudalink_fault_baseline={self._baseline} cannot be read: {error}"
            raise pytest.UsageError(msg) from None

    # -- the runs

    def again(self, item: pytest.Item) -> None:
        """Sweep a test, unless the interrupted run did."""
        found = self._notes.done.get(item.nodeid)
        if found is None:
            found = self._sweep(item)
            self._notes.add(item.nodeid, found)
            if found.runs:
                number = counted(len(fault_sweep.merged(found.findings)), "finding")
                show(item, f"{counted(found.runs, 'run')} with a fault, {number}", verbosity=0)
        self.totals.add(found)

    def _sweep(self, item: pytest.Item) -> SweepTotals:
        (_, clean, stacks), *_ = [*self._trials(item, [None]), (0, None, [])]
        if clean is None or clean.outcome != "passed":
            ended = "" if clean is None else clean.outcome or clean.end
            reason = self._copies.refusal if clean is None else f"{ended} in a process of its own"
            return SweepTotals(unswept={reason: 1})
        root = str(item.config.rootpath)
        calls = [
            Call(function, fault_sweep.site_of(stack or (), root))
            for function, stack in zip(clean.calls, stacks, strict=True)
        ]
        functions = self._functions
        if functions and self._others:
            functions = [*functions, *(call.function for call in calls if _library_of(call.function) in self._others)]
        closed = {number for number, stack in enumerate(stacks, 1) if stack is None}
        chosen, left = fault_sweep.plan(
            calls, self._ways, functions=functions, closed=closed, budget=self._budget, part=self._part
        )
        if self._single:
            chosen, left = [fault for fault in chosen if fault.number == self._single], 0
        trials = {number: trial for number, trial, _ in self._trials(item, chosen)}
        found = [
            finding
            for number, fault in enumerate(chosen)
            if number in trials
            for finding in fault_sweep.judge(clean, trials[number], fault, item.nodeid, place_of(item))
        ]
        return SweepTotals(tests=1, runs=len(trials), left=left, findings=found)

    def _trials(
        self, item: pytest.Item, chosen: Sequence[FailedCall | None]
    ) -> Iterator[tuple[int, SweptTrial, list[list[str] | None]]]:
        """Run a test once for each fault, None for none; yield the number of each that ended, its run, and stacks."""
        asked = []
        seen = set()
        for fault in chosen:
            place = (fault.call, fault.way) if fault is not None else None
            asked.append(
                {
                    "how": "under_fault",
                    "number": fault.number if fault is not None else 0,
                    "code": fault.way.code if fault is not None else 0,
                    "stays": fault.way.stays if fault is not None else "alone",
                    # what an error leaves for later tests depends on the place that met it: once for each is enough
                    "again": place not in seen,
                    "others": self._others,
                }
            )
            seen.add(place)
        for number, end, found in self._copies(item, asked):
            yield number, *_trial_of(found, end)

    # -- what they found

    def as_json(self) -> Any:
        """Return everything for the process that adds up."""
        return msgspec.to_builtins(self.totals)

    def add(self, given: Mapping[str, Any]) -> None:
        """Add what `as_json` returned in another process."""
        self.totals.add(msgspec.convert(given, SweepTotals))

    def add_notes(self, worker: str) -> None:
        """Add what a worker of xdist has noted in this run before it died."""
        for nodeid, found in self._notes.of(f"{worker}.jsonl").items():
            if nodeid not in self._notes.done:
                self.totals.add(found)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Fail the run for each finding that the baseline does not know; write a baseline where there is none."""
        if self._run.is_worker:
            return
        self._interrupted = bool(
            session.shouldstop
            or session.shouldfail
            or exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        )
        if not self._interrupted:
            self._notes.clear()
        self._run.part(LEDGER)  # the run looks there for what fails it
        if self._baseline and self._known is None and self._is_whole:
            lines = fault_sweep.baseline_lines(self.totals.findings)
            head = "# Known findings of --cudalink-fault-sweep: KIND FUNCTION PLACE. Remove what is mended.\n"
            self._baseline_file.write_text(head + "".join(f"{line}\n" for line in lines), encoding="utf-8")
            self._known = lines
        for finding, number in fault_sweep.new_findings(self.totals.findings, self._known or ()):
            more = f" (and in {counted(number - 1, 'other run')})" if number > 1 else ""
            fault = "+".join([str(finding.fault), *self._others])  # their calls have numbers, too
            repeat = command(self._run, f"--cudalink-fault-sweep={fault}", finding.place)
            self.failing.append(f"{finding}{more}\n  repeat: {repeat}")
            self._copies.record(
                nodeid=finding.nodeid, category="fault", kind=finding.kind, text=f"{finding}{more}", repeat=repeat
            )

    @property
    def _is_whole(self) -> bool:
        """Whether this run makes all runs of its tests, so that what it did not find is not there."""
        return not (self._single or self._interrupted or self._part[1] > 1)

    def lines(self) -> list[str]:
        """Return the lines of the summary."""
        known, totals = self._known or [], self.totals
        found = [
            f"fault sweep: {counted(totals.runs, 'run')} of {counted(totals.tests, 'test')}, "
            f"{counted(len(fault_sweep.merged(totals.findings)), 'finding')}"
            + (f", {counted(len(known), 'line')} in {self._baseline}" if self._known is not None else "")
        ]
        if self._interrupted and self._notes.kept:
            found.append("the sweep was interrupted; go on with --cudalink-fault-sweep=resume")
            found.append(f"  resume: {command(self._run, '--cudalink-fault-sweep=resume')}")
        if totals.left:
            found.append(
                f"cudalink_fault_budget={self._budget} left out {counted(totals.left, 'run')}; raise it to fail more "
                "calls"
            )
        found += [f"{counted(number, 'test')} not swept: {why}" for why, number in totals.unswept.items()]
        for line in fault_sweep.gone(totals.findings, known) if self._is_whole else ():
            found.append(f"not found any more in these tests, and can leave {self._baseline}: {line}")
        return [*found, *self.failing]


class _Notes:
    """What was swept, in pytest's cache, so that an interrupted sweep can go on.

    `option`: the value of the option; that of the interrupted sweep for one that goes on.
    `done`: what an interrupted sweep has found, by test.
    `kept`: whether there are notes.
    Raises pytest.UsageError if no sweep was interrupted that could go on.
    """

    def __init__(self, run: Run) -> None:
        self.option = run.settings.fault_sweep.value
        self.done: dict[str, SweepTotals] = {}
        repeats = self.option[:1].isdigit()
        known: pytest.Cache | None = None if repeats else getattr(run.config, "cache", None)
        self._folder: Path | None = None
        with suppress(OSError):
            self._folder = known.mkdir("cudalink-fault-sweep") if known is not None else None
        self._file = f"{run.worker or 'main'}.jsonl"
        if self.option == "resume":
            self._read()
        elif not run.is_worker:
            self.clear()
            self._write("option", "w", self.option)

    @property
    def kept(self) -> bool:
        return self._folder is not None

    def _read(self) -> None:
        option = self._folder / "option" if self._folder is not None else None
        if self._folder is None or option is None or not option.exists():
            msg = (
                "cudalink: --cudalink-fault-sweep=resume finds no sweep in pytest's cache that was interrupted; begin "
                "one with --cudalink-fault-sweep"
            )
            raise pytest.UsageError(msg)
        self.option = option.read_text(encoding="utf-8")
        for file in self._folder.glob("*.jsonl"):
            self.done |= self.of(file.name)

    def of(self, name: str) -> dict[str, SweepTotals]:
        """Return what a process has noted in its file, by test."""
        noted = {}
        file = self._folder / name if self._folder is not None else None
        for line in file.read_text(encoding="utf-8").splitlines() if file is not None and file.exists() else ():
            with suppress(ValueError):  # the end of the process cut the last one
                nodeid, found = json.loads(line)
                noted[nodeid] = msgspec.convert(found, SweepTotals)
        return noted

    def add(self, nodeid: str, found: SweepTotals) -> None:
        """Note what was found in a test."""
        self._write(self._file, "a", json.dumps([nodeid, msgspec.to_builtins(found)]) + "\n")

    def _write(self, name: str, mode: str, text: str) -> None:
        if self._folder is not None:
            with suppress(OSError), (self._folder / name).open(mode, encoding="utf-8") as file:
                file.write(text)

    def clear(self) -> None:
        """Forget everything."""
        for file in self._folder.iterdir() if self._folder is not None else ():
            with suppress(OSError):
                file.unlink()


def _budget(value: str) -> tuple[int, tuple[int, int]]:
    """Read the variable: the most runs of a test, the number of this machine, and of all."""
    runs, _, part = value.partition(":")
    machine, _, machines = (part or "1/1").partition("/")
    return int(runs), (int(machine), int(machines))


def _read(value: str) -> tuple[int, list[str], Callable[[str], list[Way]]]:
    """Read the option: the number of the only call, 0 for all; the functions, none for all; how a function fails."""
    first, *rest = value.split(":")
    if first.isdigit():
        code, stays = int(rest[0]), rest[1] if len(rest) > 1 else "alone"
        return int(first), [], lambda function: [_way(function, code, stays)]
    if value == "all":
        return 0, [], _listed
    return 0, [] if value == "likely" else [name.strip() for name in value.split(",")], _likely


def _likely(function: str) -> list[Way]:
    """Return the likeliest ways in which a function fails."""
    return [*(_way(function, code) for code in _likely_codes(function)), *_lost(function)]


def _listed(function: str) -> list[Way]:
    """Return all ways: each code that the documentation lists, alone and for each later call of the function too."""
    known = faults.listed_codes(function)
    codes = _likely_codes(function) if known is None else known
    return [
        *(_way(function, code) for code in codes),
        *_lost(function),
        *(_way(function, code, "function") for code in codes),
    ]


def _library_of(function: str) -> str:
    """Return the library of a function as the option has it; empty for the driver."""
    return LINKER if function.startswith("nvJitLink") else COMPILER if function.startswith("nvrtc") else ""


def _likely_codes(function: str) -> Sequence[int]:
    library = _library_of(function)
    likely = _LIKELY_OF_COMPILER if library == COMPILER else _LIKELY
    known = (_LINKER_ERROR[0],) if library == LINKER else faults.listed_codes(function)
    return likely if known is None else [code for code in likely if code in known] or known[:1]


def _lost(function: str) -> list[Way]:
    """Return how a call fails once the device is lost: those that have no device do not."""
    return [] if _library_of(function) else [_way(function, *_LOST)]


@cache
def _way(function: str, code: int, stays: str = "alone") -> Way:
    library = _library_of(function)
    if library == LINKER:
        return Way(*_LINKER_ERROR, stays)
    if library == COMPILER:
        name = faults.nvrtc_errors().get(code, "unknown nvrtcResult")
        words = name.removeprefix("NVRTC_ERROR_").replace("_", " ")
        return Way(code, name, words if " " in words else name, stays)  # many a message has a single word by chance
    return Way(code, faults.name_of(code), faults.words_of(code), stays)


def _trial_of(found: Mapping[str, Any] | None, end: ProcessEnd) -> tuple[SweptTrial, list[list[str] | None]]:
    """Return the run of a process from what it has written, and how it ended."""
    if found is None or end.exitcode is None or end.stopped:
        return SweptTrial(end=str(end), hung=bool(end.stopped)), []
    return msgspec.convert(found, SweptTrial), found["stacks"]
