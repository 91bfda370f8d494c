"""A fault sweep: each test runs again and again in forked processes, and another call of the driver fails each time."""

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec
import pytest

from ...base import regular_files
from ...base.finding import RerunFinding
from ...base.regular_files import read_bounded
from ...base.words import counted
from ...emulator import faults
from ...report.asked_for import AskedFor
from ..isolation.processes import key
from ..run import Run
from ..settings import COMPILER, LINKER, check_sweep
from . import sweep_plan
from .reruns import ProcessNotes, RunsAgain, command, show
from .sweep_plan import Call, FailedCall, FailureMode, SweepFailure, SweepTotals, SweptTrial

#: Codes with which calls fail where their documentation lists them, the likeliest first: no memory, a wrong argument.
_LIKELY: Final = (2, 1)
#: Those of NVRTC: no memory, a program that does not compile.
_LIKELY_OF_COMPILER: Final = (1, 6)
#: How every call fails that needs the device, once that is lost.
_LOST: Final = (46, "device")
#: How a function of nvJitLink fails: any may, whatever its input is.
_LINKER_ERROR: Final = (6, "NVJITLINK_ERROR_INTERNAL", "ERROR_INTERNAL")
#: Bytes of a baseline, and of the option of an interrupted sweep.
_LONGEST: Final = 256 << 20
#: No call fails.
_NO_FAULT: Final = FailedCall(0, Call("", ""), FailureMode(0, "", ""))
#: Ends the name of a process's notes.
_SUFFIX: Final = ".jsonl"


class Baseline:
    """The file of findings that do not fail the run; only the process that adds up reads and writes it.

    `known`: its lines; None without a baseline, and where there is none yet.
    `written`: the line of the summary on a baseline that was written.
    `unwritten`: why it could not be written.
    Raises pytest.UsageError if it cannot be read, or written where there is none.
    """

    def __init__(self, run: Run) -> None:
        setting = run.settings.fault_baseline
        self.name = setting.value
        self.known: list[str] | None = None
        self.written = self.unwritten = ""
        ini = run.config.inipath
        folder = ini.parent if ini is not None and setting.source == "ini" else run.config.invocation_params.dir
        self._file = folder / setting.value
        self._label = f"cudalink: cudalink_fault_baseline is {setting}"
        if setting.value and not run.reports_elsewhere:
            self.known = self._read()

    def _read(self) -> list[str] | None:
        try:
            return sweep_plan.read_baseline(read_bounded(self._file, _LONGEST).decode("utf-8"))
        except FileNotFoundError:
            self._check_folder()
            return None
        except ValueError as error:
            raise pytest.UsageError(f"{self._label}; {self._file} cannot be read: {error}") from None
        except OSError as error:
            msg = f"{self._label}; {self._file} cannot be read: {error.strerror}; expected a text file, or none yet"
            raise pytest.UsageError(msg) from None

    def _check_folder(self) -> None:
        """Refuse a place where no baseline can be written, before the tests run for it."""
        folder = self._file.parent
        why = "is not there" if not folder.is_dir() else "" if os.access(folder, os.W_OK | os.X_OK) else "is read-only"
        if why:
            msg = f"{self._label}; {self._file} cannot be written: the folder {why}; correct the folder or the path"
            raise pytest.UsageError(msg)

    @property
    def missing(self) -> bool:
        """Whether there is none yet, in the process that would write it."""
        return bool(self.name) and self.known is None

    def write(self, failures: Sequence[SweepFailure]) -> None:
        """Write the failures, which are known from the next run on."""
        lines = sweep_plan.baseline_lines(failures)
        head = "# Known findings of --cudalink-fault-sweep: KIND FUNCTION PLACE. Remove what is mended.\n"
        try:
            regular_files.write_whole(self._file, head + "".join(f"{line}\n" for line in lines))
        except OSError as error:
            self.unwritten = f"{self._file}: {error.strerror or error}"
        else:
            known = ": they fail this run, and no later one" if lines else ""
            self.written = f"there was no baseline; wrote {self._file} with {counted(len(lines), 'line')}{known}"


class SweepNotes(ProcessNotes[SweepTotals]):
    """What was swept, in pytest's cache, so that an interrupted sweep can go on.

    Without a cache, the notes are in a temporary folder, for the findings of a worker of xdist that dies.

    `folder`: that of the controller in a worker; empty in every other process.
    `scratch`: the temporary folder.
    `option`: the value of the option; that of the interrupted sweep for one that goes on.
    `damaged`: number of notes that cannot be read.
    `kept`: whether an interrupted sweep can go on.
    Raises pytest.UsageError if no sweep was interrupted that could go on.
    """

    def __init__(self, run: Run, *, folder: str, scratch: str) -> None:
        super().__init__(run, Path(folder or scratch), _SUFFIX, SweepTotals)
        self.option = run.settings.fault_sweep.value
        self.damaged, self.kept = 0, False
        known: pytest.Cache | None = None if self.option[:1].isdigit() else getattr(run.config, "cache", None)
        if not folder and known is not None:
            with suppress(OSError):
                self.folder, self.kept = known.mkdir("cudalink-fault-sweep"), True
        if self.option == "resume":
            self._resume()
        elif not folder:
            self.clear()
            if self.kept:
                try:
                    regular_files.write_whole(self.folder / "option", f"{self.option}\n")
                except OSError:
                    self.kept = False

    def _resume(self) -> None:
        """Take the option of the interrupted sweep, and what it has found.

        Raises pytest.UsageError if there is none, or its option is damaged; what it has found stays there.
        """
        file = self.folder / "option"
        try:
            text = read_bounded(file, _LONGEST).decode("utf-8")
        except FileNotFoundError:
            raise pytest.UsageError(
                "cudalink: --cudalink-fault-sweep=resume finds no sweep in pytest's cache that was interrupted; begin "
                "one with --cudalink-fault-sweep"
            ) from None
        except (OSError, ValueError) as error:
            raise self._unreadable(file, str(error)) from None
        self.option = text.removesuffix("\n")
        try:
            if self.option in ("", "resume") or text == self.option:
                raise self._unreadable(file, f"it is cut: {text!r}")
            check_sweep(self.option)
        except ValueError as error:
            raise self._unreadable(file, f"it has {self.option!r}; {error}") from None
        for noted in sorted(self.folder.glob(f"*{_SUFFIX}")):
            done, damaged = self.of(noted.name.removesuffix(_SUFFIX))
            self.done |= done
            self.damaged += damaged

    @staticmethod
    def _unreadable(file: Path, why: str) -> pytest.UsageError:
        msg = (
            f"cudalink: --cudalink-fault-sweep=resume cannot read the value of the interrupted sweep, {file}: {why}; "
            "write that value into the file, as a line, to keep what was swept, or begin with --cudalink-fault-sweep"
        )
        return pytest.UsageError(msg)

    def forget(self, taken: Collection[str]) -> None:
        """Forget everything, unless there is a test that this run has not taken over."""
        if self.done.keys() <= set(taken):
            self.clear()

    def clear(self) -> None:
        """Remove the notes."""
        with suppress(OSError):
            for file in self.folder.glob("*"):
                if file.name == "option" or file.suffix == _SUFFIX:
                    with suppress(OSError):
                        file.unlink()


class FaultSweep(RunsAgain[SweepTotals]):
    """Sweeps each test after it ran, and adds up the findings."""

    name, does = "fault", "--cudalink-fault-sweep lets calls of an emulated driver fail"

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._baseline = Baseline(run)
        self.notes: SweepNotes = SweepNotes(run, folder=self._folder, scratch=self._copies.folder)
        option, *self._others = self.notes.option.split("+")
        self._single, self._functions, self._modes = _read(option)
        # a finding is repeated whatever machine made its run
        self._budget, self._part = _budget("0" if self._single else run.settings.fault_budget.value)
        self._taken: set[str] = set()
        self._interrupted = False
        self.totals = SweepTotals()

    # -- an interrupted sweep that goes on

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._take_over([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._take_over(ids)

    def _take_over(self, nodeids: Collection[str]) -> None:
        """Take what the interrupted sweep has found in tests of this run; once, in the process that adds up."""
        if self._run.is_worker:
            return
        for nodeid in self.notes.done.keys() & set(nodeids) - self._taken:
            self._taken.add(nodeid)
            self.totals.add(self.notes.done[nodeid])

    # -- the runs

    def again(self, item: pytest.Item, totals: SweepTotals) -> None:
        """Sweep a test."""
        totals.add(self._sweep(item))
        if totals.runs:
            number = counted(len(sweep_plan.merged(totals.failures)), "finding")
            show(item, f"{counted(totals.runs, 'run')} with a fault, {number}", verbosity=0)

    def _sweep(self, item: pytest.Item) -> SweepTotals:
        clean = dict(self._trials(item, [_NO_FAULT])).get(0)
        if clean is None or clean.outcome != "passed":
            ended = "" if clean is None else clean.outcome or clean.end
            reason = self._copies.why_not if clean is None else f"{ended} in a separate process"
            return SweepTotals(skipped={reason: 1}) if self.passed else SweepTotals(spared={reason: 1})
        root = str(item.config.rootpath)
        calls = [
            Call(function, sweep_plan.site_of(stack or (), root))
            for function, stack in zip(clean.calls, clean.stacks, strict=True)
        ]
        functions = self._functions
        if functions and self._others:
            functions = [*functions, *(call.function for call in calls if _library_of(call.function) in self._others)]
        closed = {number for number, stack in enumerate(clean.stacks, 1) if stack is None}
        if self._single:
            closed = set(range(1, len(calls) + 1)) - {self._single} | closed
        chosen, over, elsewhere, repeats = sweep_plan.plan(
            calls,
            self._modes,
            stacks=[stack or () for stack in clean.stacks],
            functions=functions,
            closed=closed,
            budget=self._budget,
            part=self._part,
        )
        trials = dict(self._trials(item, chosen))
        made = [fault for number, fault in enumerate(chosen) if number in trials]
        judged = (
            sweep_plan.judge(clean, trial, chosen[number], item.nodeid, key(item))
            for number, trial in sorted(trials.items())
        )
        lost = [fault for number, fault in enumerate(chosen) if number not in trials]
        unlisted = 0 if self._single else clean.unlisted
        return SweepTotals(
            tests=1,
            runs=len(made),
            planned=len(chosen) + len(over) + len(elsewhere) + len(repeats) + unlisted,
            left=len(over),
            elsewhere=len(elsewhere),
            repeats=len(repeats),
            lost={self._copies.why_not: len(lost), f"a sweep knows the first {len(calls)} calls of a test": unlisted},
            called={fault.call.function for fault in (*chosen, *over, *elsewhere)},
            tried={sweep_plan.baseline_place(fault.call) for fault in made},
            partly={sweep_plan.baseline_place(fault.call) for fault in (*lost, *over, *elsewhere, *repeats)},
            failures=[*chain.from_iterable(judged)],
        )

    def _trials(self, item: pytest.Item, chosen: Sequence[FailedCall]) -> Iterator[tuple[int, SweptTrial]]:
        """Run a test once for each fault; yield the number of each that ended, and its run."""
        asked, places = [], set()
        for fault in chosen:
            # what an error leaves for later tests depends on the place that met it: once for each is enough
            how = {"how": "under_fault", "again": (fault.call, fault.mode) not in places, "others": self._others}
            asked.append({**how, "number": fault.number, "code": fault.mode.code, "stays": fault.mode.stays})
            places.add((fault.call, fault.mode))
        for number, end, result in self._copies(item, asked):
            if result is None or end.exitcode is None or end.stopped:
                yield number, SweptTrial(end=str(end), hung=bool(end.stopped))
            else:
                yield number, msgspec.convert(result, SweptTrial)

    # -- what they found

    def end(self, session: pytest.Session) -> Iterator[RerunFinding]:
        """Yield each finding that the baseline does not know; write a baseline where there is none."""
        if self._run.is_worker:
            return
        self._interrupted = bool(
            session.shouldstop
            or session.shouldfail
            or session.exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        )
        if not self._interrupted:
            self.notes.forget(self._taken)
        if self._baseline.missing and self._is_whole:
            self._baseline.write(self.totals.failures)
        for failure, number in sweep_plan.new_failures(self.totals.failures, self._baseline.known or ()):
            more = f" (and in {counted(number - 1, 'other run')})" if number > 1 else ""
            fault = "+".join([str(failure.fault), *self._others])  # their calls have numbers, too
            repeat = command(self._run, f"--cudalink-fault-sweep={fault}", failure.place)
            what, kind, test = f"{failure}{more}", failure.kind, failure.nodeid
            yield RerunFinding("error", what, kind=kind, place=test, category=self.name, repeat=repeat)

    @property
    def _is_whole(self) -> bool:
        """Whether this run makes all runs of its tests, so that what it did not find is not there."""
        return not (self._single or self._interrupted or self._part[1] > 1)

    def asked_for(self) -> list[AskedFor]:
        """Return how much of the sweep happened: its tests and runs, the sweep that goes on, and the baseline."""
        totals = self.totals
        allowed = {
            f"cudalink_fault_budget={self._budget}; raise it to fail more calls": totals.left,
            f"{sweep_plan.REPEATS} calls by the same lines fail; cudalink_fault_budget=0 fails all": totals.repeats,
            f"{self._part[0]}/{self._part[1]} of cudalink_fault_budget leaves them to the others": totals.elsewhere,
        }
        lost, uncalled = dict(totals.lost), self._uncalled
        (allowed if totals.planned else lost).update(dict.fromkeys(uncalled, 1))
        allowed = {why: number for why, number in allowed.items() if number}
        calls = AskedFor("calls", totals.planned + len(uncalled), totals.runs, lost, allowed)
        entries = [totals.asked_for("fault sweep"), calls]
        if self.notes.done:
            gone = len(self.notes.done) - len(self._taken)
            left = {"select them again, or begin with --cudalink-fault-sweep": gone} if gone else {}
            entries.append(AskedFor("resume", len(self.notes.done), len(self._taken), left))
        if self._baseline.unwritten:
            entries.append(AskedFor("baseline", 1, 0, {self._baseline.unwritten: 1}))
        elif self._baseline.missing and self._part[1] > 1:
            part = f"each of the {self._part[1]} machines finds a part; write it without :K/N"
            entries.append(AskedFor("baseline", 1, 0, allowed={part: 1}))
        return entries

    @property
    def _uncalled(self) -> list[str]:
        """The parts of the option's value that no test of the run called, although some were swept."""
        totals = self.totals
        if not totals.tests:
            return []
        if self._single:
            return [] if totals.planned else [f"no test makes a call {self._single} that can fail"]
        names = {name for function in totals.called for name in sweep_plan.names_of(function)}
        libraries = {_library_of(function) for function in totals.called}
        missing = [name for name in self._functions if name not in names]
        missing += [library for library in self._others if library not in libraries]
        texts = [f"no test calls {name}" for name in missing]
        return texts if texts or totals.planned else ["no test makes a call that can fail"]

    def lines(self) -> list[str]:
        totals, baseline = self.totals, self._baseline
        known = f", {counted(len(baseline.known), 'line')} in {baseline.name}" if baseline.known is not None else ""
        number = counted(len(sweep_plan.merged(totals.failures)), "finding")
        texts = [f"fault sweep: {totals}, {number}{known}"]
        texts += filter(None, [baseline.written])
        if self._interrupted and self.notes.kept:
            texts.append("the sweep was interrupted; go on with --cudalink-fault-sweep=resume")
            texts.append(f"  resume: {command(self._run, '--cudalink-fault-sweep=resume')}")
        elif self._interrupted and not self._single:
            texts.append("the sweep was interrupted, and what it has found could not be kept in pytest's cache")
        if self.notes.damaged:
            notes = counted(self.notes.damaged, "note")
            texts.append(f"{notes} of the interrupted sweep cannot be read; their tests were swept again")
        if self._is_whole:
            gone = sweep_plan.gone(totals.failures, baseline.known or (), totals.tried - totals.partly)
            texts += [f"not found any more in these tests, and can leave {baseline.name}: {line}" for line in gone]
        return texts


def _budget(value: str) -> tuple[int, tuple[int, int]]:
    """Read the variable: the most runs of a test, the number of this machine, and of all."""
    runs, _, part = value.partition(":")
    machine, _, machines = (part or "1/1").partition("/")
    return int(runs), (int(machine), int(machines))


def _read(value: str) -> tuple[int, list[str], Callable[[str], list[FailureMode]]]:
    """Read the option: the number of the only call, 0 for all; the functions, none for all; how a function fails."""
    first, *rest = value.split(":")
    if first.isdigit():
        code, stays = int(rest[0]), rest[1] if len(rest) > 1 else "alone"
        return int(first), [], lambda function: [_mode(function, code, stays)]
    if value == "all":
        return 0, [], _listed
    return 0, [] if value == "likely" else [name.strip() for name in value.split(",")], _likely


def _likely(function: str) -> list[FailureMode]:
    """Return the likeliest ways in which a function fails."""
    return [*(_mode(function, code) for code in _likely_codes(function)), *_lost(function)]


def _listed(function: str) -> list[FailureMode]:
    """Return all ways: each code that the documentation lists, alone and for each later call of the function too."""
    known = faults.listed_codes(function)
    codes = _likely_codes(function) if known is None else known
    return [
        *(_mode(function, code) for code in codes),
        *_lost(function),
        *(_mode(function, code, "function") for code in codes),
    ]


def _library_of(function: str) -> str:
    """Return the library of a function as the option has it; empty for the driver."""
    return LINKER if function.startswith("nvJitLink") else COMPILER if function.startswith("nvrtc") else ""


def _likely_codes(function: str) -> Sequence[int]:
    library = _library_of(function)
    likely = _LIKELY_OF_COMPILER if library == COMPILER else _LIKELY
    known = (_LINKER_ERROR[0],) if library == LINKER else faults.listed_codes(function)
    return likely if known is None else [code for code in likely if code in known] or known[:1]


def _lost(function: str) -> list[FailureMode]:
    """Return how a call fails once the device is lost: those that have no device do not."""
    return [] if _library_of(function) else [_mode(function, *_LOST)]


@cache
def _mode(function: str, code: int, stays: str = "alone") -> FailureMode:
    library = _library_of(function)
    if library == LINKER:
        return FailureMode(*_LINKER_ERROR, stays)
    if library == COMPILER:
        name = faults.nvrtc_errors().get(code, "unknown nvrtcResult")
        words = name.removeprefix("NVRTC_ERROR_").replace("_", " ")
        # many a message has a single word by chance
        return FailureMode(code, name, words if " " in words else name, stays)
    return FailureMode(code, faults.name_of(code), faults.words_of(code), stays)
