"""The record file of ``--cudalink-report``: one line for each event of a run."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ...base.finding import Violation
from ...base.safe_text import block
from ...base.tables import grouped
from ...loader import last_words
from ...report import Writer, origin, records
from ...report.wording import verdict_record
from .. import pytest_private
from ..run import Run, RunPart
from ..settings import Setting
from .facts import Environment
from .ledger import Ledger

if TYPE_CHECKING:
    from ...guardrails import Verdict
    from ...guardrails.provenance import Library
    from ...report.asked_for import AskedFor
    from ...report.records import ArchRecord, VersionRecord
    from ...targets import LinkEvent, UnsteeredLink


class RecordFile(RunPart):
    """A plugin object that writes what the plugin's hooks report; every process of a run appends to the one file.

    Raises pytest.UsageError if the file cannot be written.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._attempts: dict[str, int] = {}
        self._note_test: Callable[[str | None], None] = lambda _nodeid: None
        self._has_collected = False
        self._lost = ""
        self._is_said = False  # whether the summary has what is lost
        self._earlier: set[str] | None = None  # the tests of the earlier run whose record the file still has
        self._earlier_size = 0
        setting = run.settings.report
        path = run.config.invocation_params.dir / setting.value
        try:
            truncate = not run.reports_elsewhere
            self.writer: Writer = Writer(path, truncate=truncate, keeps=self._keeps, on_error=self._lose)
        except BlockingIOError as error:
            raise pytest.UsageError(
                f"cudalink: --cudalink-report is {setting}, and another run has not finished its record there; "
                "expected a file for each run; name another file, or wait for that run"
            ) from error
        except OSError as error:
            msg = f"cudalink: --cudalink-report is {setting}; it cannot be written: {error}"
            raise pytest.UsageError(msg) from error
        run.config.add_cleanup(self.writer.close)
        if not run.is_isolated:  # the process that waits for it sees how it ends
            self._watch()

    def _keeps(self, path: Path) -> bool:
        """Return whether the file has the record of an earlier run that this one must not lose; note its tests.

        A cell begins without a record: one that is there is of another run of pytest in the cell.
        """
        self._earlier = records.tests_to_keep(path, green="CUDALINK_CELL" in os.environ)
        self._earlier_size = path.stat().st_size
        return self._earlier is not None

    def drop_earlier(self, tests: Collection[str]) -> None:
        """Drop the record of an earlier run from the file, once this one has run all of its tests."""
        if self._earlier is not None and self._earlier <= set(tests):
            self.writer.drop_before(self._earlier_size)

    def _watch(self) -> None:
        """Let a fatal signal write its event."""
        run = self._run
        run.config.add_cleanup(
            last_words.watch(self.writer.path, run.worker, pytest_private.faulthandler_file(run.config))
        )
        self._note_driver()
        self._note_test = last_words.current_test

    def _note_driver(self) -> None:
        """Let a fatal signal read the last calls of the emulated driver, where there is one."""
        if (present := self._run.emulated) is not None:
            last_words.emulated_driver(present.signal_functions)

    def write_run(self) -> None:
        """Write the first line, which describes the run."""
        run, settings, cell = self._run, self._run.settings, self._run.cell
        self.writer.write(
            origin.run_record(
                run.config.rootpath,
                python=platform.python_version(),
                pytest=pytest.__version__,
                argv=[str(argument) for argument in run.config.invocation_params.args],
                settings={
                    name: {"value": setting.value, "source": setting.source} for name, setting in settings.items()
                },
                arch=_arch(run),  # before the versions: the process that answers it tells that of the driver, too
                versions=_versions(run),
                facts=dict(run.hook_facts),
                axes=dict(cell.axes) if cell else {},
                hidden=cell.hidden if cell else "",
            )
        )

    def write_asked(self, entries: Iterable[AskedFor]) -> None:
        """Write what the run was asked for, and how much of it happened."""
        for entry in entries:
            self.writer.write(records.AskedRecord(**entry._asdict()))

    def write_found(self) -> None:
        """Write what there is now that a driver was emulated for markers; a fatal signal reads its last calls, too."""
        run = self._run
        if run.is_isolated:  # the process that waits for it has emulated the same
            return
        self.writer.write(records.FoundRecord(worker=run.worker, arch=_arch(run), versions=_versions(run)))
        self._note_driver()

    def _lose(self, error: OSError) -> None:
        """Note that the rest of this process is not recorded; the run goes on, and fails for it at its end."""
        if not self._lost:
            self._lost = (
                f"the record cannot be written: --cudalink-report is {self._run.settings.report}: "
                f"{error.strerror or error}; what followed is not recorded, so that a report counts this run "
                "as incomplete"
            )
            self._run.part(Ledger).outside.unwritten.append(self._lost)

    def end(self, session: pytest.Session) -> None:
        """Fail the run too if an event that is written after the sums is the one that is lost."""
        if self._lost and not self._run.reports_elsewhere:
            self._is_said = True
            self._run.part(Ledger).totals.unwritten.append(self._lost)
            if session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def last_look(self) -> bool:
        """Write to stderr that the end of the run is what was lost, after the summary; return whether that is so."""
        if not self._lost or self._is_said or self._run.reports_elsewhere:
            return False
        sys.stderr.write(f"{block(self._lost)}\n")
        return True

    def write(self, kind: Any, event: object, **more: Any) -> None:
        """Write a record of what happened here, whose other fields have the names of its attributes."""
        values = {name: getattr(event, name) for name in kind.__struct_fields__ if hasattr(event, name)}
        if "worker" in kind.__struct_fields__:
            values["worker"] = self._run.worker
        self.writer.write(kind(**{**values, **more}))

    # -- the plugin's hooks

    def pytest_cudalink_link(self, event: LinkEvent) -> None:
        if not self._run.is_repeated:
            inputs = [{"kind": item.kind, "name": item.name, "producer": item.producer} for item in event.inputs]
            versions = {"driver": event.driver, "nvjitlink": event.nvjitlink}
            self.write(records.LinkRecord, event, inputs=inputs, versions=versions)

    def pytest_cudalink_unsteered(self, link: UnsteeredLink, nodeid: str | None) -> None:
        if not self._run.is_repeated:
            self.write(records.UnsteeredRecord, link, nodeid=nodeid)

    def pytest_cudalink_library(self, library: Library, nodeid: str | None, during: str) -> None:
        self.write(records.LibraryRecord, library, nodeid=nodeid, during=during)

    def pytest_cudalink_verdict(self, verdict: Verdict, nodeid: str | None) -> None:
        if not self._run.is_repeated:
            self.writer.write(records.VerdictRecord(nodeid=nodeid, **verdict_record(verdict)))

    def pytest_cudalink_violation(self, violation: Violation, nodeid: str | None) -> None:
        if self._run.is_isolated and nodeid is None:
            return
        self.writer.write(self._violation(violation, nodeid))

    def add_late(self, violations: Iterable[Violation]) -> None:
        """Append violations since the end of the session, when the file has been closed; to a regular file only."""
        if self.writer.path.is_file():
            with suppress(OSError), Writer(self.writer.path) as writer:
                for violation in violations:
                    writer.write(self._violation(violation, None))

    def _violation(self, violation: Violation, nodeid: str | None) -> records.ViolationRecord:
        values = {**violation._asdict(), "text": str(violation), "allowed": self._run.settings.allows(violation.check)}
        return records.ViolationRecord(nodeid=nodeid, **values)

    # -- pytest's hooks

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if not self._run.reports_elsewhere and not self._run.is_controller:
            self._write_collected([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._write_collected(ids)

    def _write_collected(self, nodeids: list[str]) -> None:
        """Write once which tests were collected, unless none of them is to run."""
        if self._has_collected or self._run.config.option.collectonly:
            return
        self._has_collected = True
        tests = grouped((file, name) for file, _, name in (nodeid.partition("::") for nodeid in nodeids))
        self.writer.write(records.CollectedRecord(tests=tests))

    def pytest_runtest_logfinish(self) -> None:
        self._note_test(None)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        run = self._run
        if not run.is_controller:
            self._note_test(nodeid)
        if not run.is_controller and not run.is_isolated:
            attempt = self._attempts[nodeid] = self._attempts.get(nodeid, 0) + 1
            self.writer.write(records.StartRecord(nodeid=nodeid, worker=run.worker, attempt=attempt))


def _requested(setting: Setting | None) -> str | None:
    return setting.value if setting is not None and setting.source != "default" else None


def _versions(run: Run) -> dict[str, VersionRecord]:
    """Return each version that was asked for and that there is, with its source."""
    environment = Environment()
    requested = {"driver": run.settings.driver, "nvjitlink": run.settings.nvjitlink}
    versions: dict[str, VersionRecord] = {}
    for name in environment:
        if name not in ("arch", "gpu"):
            fact, asked = environment[name], _requested(requested.get(name))
            versions[name] = {"requested": asked, "found": fact.value, "source": fact.source, "kind": fact.kind}
    return {**versions, **(run.cell.versions if run.cell else {})}


def _arch(run: Run) -> ArchRecord:
    """Return the architecture that was asked for and that of the device."""
    return {"requested": _requested(run.settings.device), "found": Environment()["arch"].value}
