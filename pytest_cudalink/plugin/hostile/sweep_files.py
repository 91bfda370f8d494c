"""The files of a fault sweep: the baseline of known findings, and what was swept, for a sweep that is interrupted."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from ...base import regular_files
from ...base.regular_files import read_bounded
from ...base.words import counted
from ..isolation.copies import ProcessNotes
from ..settings import check_sweep
from . import sweep_rules as fault_sweep
from .sweep_rules import SweepFinding, SweepTotals

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ..run import Run

#: Bytes of a baseline, and of the option of an interrupted sweep.
_LONGEST: Final = 256 << 20
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
        self.known: list[str] | None = None if run.reports_elsewhere or not setting.value else []
        self.written = self.unwritten = ""
        ini = run.config.inipath
        folder = ini.parent if ini is not None and setting.source == "ini" else run.config.invocation_params.dir
        self._file = folder / setting.value
        self._label = f"cudalink: cudalink_fault_baseline is {setting}"
        if self.known is not None:
            self.known = self._read()

    def _read(self) -> list[str] | None:
        try:
            return fault_sweep.read_baseline(read_bounded(self._file, _LONGEST).decode("utf-8"))
        except FileNotFoundError:
            self._check_folder()
            return None
        except ValueError as error:
            msg = f"{self._label}; {self._file} cannot be read: {error}"
            raise pytest.UsageError(msg) from None
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

    def write(self, findings: Sequence[SweepFinding]) -> None:
        """Write the findings, which are known from the next run on."""
        lines = fault_sweep.baseline_lines(findings)
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
            self.kept = self.kept and self._keep_option()

    def _keep_option(self) -> bool:
        try:
            regular_files.write_whole(self.folder / "option", f"{self.option}\n")
        except OSError:
            return False
        return True

    def _resume(self) -> None:
        """Take the option of the interrupted sweep, and what it has found.

        Raises pytest.UsageError if there is none, or its option is damaged; what it has found stays there.
        """
        file = self.folder / "option"
        try:
            text = read_bounded(file, _LONGEST).decode("utf-8")
        except FileNotFoundError:
            msg = (
                "cudalink: --cudalink-fault-sweep=resume finds no sweep in pytest's cache that was interrupted; begin "
                "one with --cudalink-fault-sweep"
            )
            raise pytest.UsageError(msg) from None
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
            found, damaged = self.of(noted.name.removesuffix(_SUFFIX))
            self.done |= found
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
