"""Reruns one test in forked copies of a process that has collected, each under another condition."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from ..parts import SERVERS
from . import processes

if TYPE_CHECKING:
    from ...base.process_end import ProcessEnd
    from ..run import Run

#: Conditions that a process is asked for with one line.
_PART: Final = 200


class Copies:
    """A plugin object that runs tests again, of which pytest sees no report."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._paths: list[str] = []
        self._servers = run.part(SERVERS)
        self._server: processes.ServerProcess | None = None  # the last one that was asked
        given: Any = getattr(run.config, "workerinput", None)
        workers = given["workercount"] if given else 1
        self._at_once = max(1, len(os.sched_getaffinity(0)) // workers)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._paths = list(dict.fromkeys(str(item.path) for item in session.items))

    def __call__(
        self, item: pytest.Item, asked: Sequence[Mapping[str, Any]]
    ) -> Iterator[tuple[int, ProcessEnd, dict[str, Any] | None]]:
        """Run a test under several conditions, each in a separate process, as many at once as there are cores.

        `asked`: for each condition the name of a function of `trial` as ``how``, and its arguments after the driver.
        Yields the number of the condition, from 0, in the order in which they end. One that no process could run does
        not come, see `why_not`.
        Yields how its process ended.
        Yields what the function returned; None if the process ended before.
        """
        deadline = int(self._run.settings.sticky_deadline.value)
        for start in range(0, len(asked), _PART):
            # the events of a copy have no reader: a file of all would be as long as there are runs and calls
            server = self._servers.get(self._paths, processes.ServerProcess.close, forks=True, events=False)
            self._server = server
            if not server.alive:
                return
            with tempfile.TemporaryDirectory(dir=self.folder) as made:
                folder, part = Path(made), asked[start : start + _PART]
                for number, end in server.trials(item, folder, part, deadline=deadline, at_once=self._at_once):
                    yield start + number, end, _read_trial(folder / f"reports-{number}")

    @property
    def folder(self) -> str:
        """The temporary folder, which is removed after the last test."""
        return str(self._servers.folder)

    @property
    def why_not(self) -> str:
        """Why no process could run what it was asked for last."""
        return (self._server and self._server.refusal) or "the process that runs the tests again ended"


def _read_trial(file: Path) -> dict[str, Any] | None:
    """Return what a process has written of its run."""
    for text in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        try:
            given: dict[str, Any] | None = json.loads(text).get("trial")
        except ValueError:
            break
        if given is not None:
            return given
    return None
