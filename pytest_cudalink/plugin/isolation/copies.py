"""Copies of a process that has collected: each runs one test once more, under a condition of its own."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from . import processes

if TYPE_CHECKING:
    from ..records.process_end import ProcessEnd
    from ..run import Run

__all__ = ["Copies"]


class Copies:
    """A plugin object that runs tests again, of which pytest sees no report.

    Parameters
    ----------
    run : Run
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._paths: list[str] = []
        self._scratch = tempfile.TemporaryDirectory(prefix="cudalink-copies-", ignore_cleanup_errors=True)
        self._server: processes.ServerProcess | None = None
        self._servers = 0

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._paths = list(dict.fromkeys(str(item.path) for item in session.items))

    def __call__(self, item: pytest.Item, asked: Mapping[str, Any]) -> tuple[ProcessEnd | None, dict[str, Any] | None]:
        """Run a test once in a process of its own.

        Parameters
        ----------
        item : pytest.Item
        asked : mapping
            The name of a function of `trial` as ``how``, and its arguments after the driver.

        Returns
        -------
        ProcessEnd or None
            How the process ended; None where there is no such process, see `refusal`.
        dict or None
            What the function returned; None if the process ended before.
        """
        deadline = int(self._run.settings.sticky_deadline.value)
        with tempfile.TemporaryDirectory(dir=self._scratch.name) as folder:
            server = self._asked()
            end = None if server.refusal else server(item, None, Path(folder), {"deadline": deadline, **asked})
            return end, _found(Path(folder) / "reports")

    @property
    def refusal(self) -> str:
        """Why no process can run the tests; empty if one can."""
        return self._server.refusal if self._server is not None else ""

    def _asked(self) -> processes.ServerProcess:
        """Return the process that has collected; another one if the last one died."""
        if self._server is None or not (self._server.alive or self._server.refusal):
            self._end_server()
            self._servers += 1
            folder = Path(self._scratch.name) / f"server-{self._servers}"
            folder.mkdir()
            self._server = processes.ServerProcess(self._run, folder, self._paths, forks=True)
        return self._server

    def _end_server(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        try:
            return (yield)
        finally:
            self._end_server()
            self._scratch.cleanup()


def _found(file: Path) -> dict[str, Any] | None:
    """Return what a process has written of its run."""
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        try:
            given: dict[str, Any] | None = json.loads(line).get("trial")
        except ValueError:
            break
        if given is not None:
            return given
    return None
