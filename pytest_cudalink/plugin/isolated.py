"""The child of an isolated test: collects that test alone, and hands its reports to the process that waits."""

from __future__ import annotations

import json
import os
import warnings
from typing import Any, Final

import pytest

from . import pytest_private
from .run import Task, run_of

__all__ = ["Child", "restrict"]

#: Values in a child for options of pytest and its plugins that select tests, or write files of the whole run.
_NOT_FOR_CHILDREN: Final[dict[str, Any]] = {
    "basetemp": None,
    "log_file": os.devnull,
    "xmlpath": None,
    "pastebin": None,
    "report_log": None,
    "htmlpath": None,
    "json_report": False,
    "lf": False,
    "failedfirst": False,
    "newfirst": False,
    "stepwise": False,
    "stepwise_skip": False,
    "cacheclear": False,
    "keyword": "",
    "markexpr": "",
    "deselect": None,
    "collectonly": False,
    "numprocesses": None,
    "maxfail": 0,
    "dist": "no",
    "tx": [],
    "reruns": None,
    "splits": None,
    "group": None,
    "num_shards": 1,
    "shard_id": 0,
    "usepdb": False,
}


def restrict(config: pytest.Config, task: Task) -> None:
    """Change the options of the child: collect the one test, and write no file of the whole run."""
    for name, value in {**_NOT_FOR_CHILDREN, **task.options}.items():
        if hasattr(config.option, name):
            setattr(config.option, name, value)
    _, separator, rest = task.nodeid.partition("::")
    config.args = [f"{task.path}{separator}{rest}"]


class Child:
    """A plugin object of the child that keeps the one test, and writes its reports and warnings.

    Parameters
    ----------
    config : pytest.Config
    task : Task
    """

    def __init__(self, config: pytest.Config, task: Task) -> None:
        self._config, self._task = config, task
        self._seen_by_both = 0
        self._file = os.open(task.reports, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def _write(self, kind: str, data: Any) -> None:
        os.write(self._file, json.dumps({kind: data}, default=str).encode() + b"\n")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep only the task's test, with the parent run's node ID.

        A node ID depends on the rootdir, which depends on the arguments.
        """
        rest = self._task.nodeid.partition("::")[2]
        items[:] = [item for item in items if item.nodeid.partition("::")[2] == rest]
        for item in items:
            pytest_private.rename(item, self._task.nodeid)

    def pytest_collection_finish(self) -> None:
        """Note which violations the process that waits has seen, too: it has collected the same."""
        book = run_of(self._config).get("ledger")
        self._seen_by_both = len(book.outside.violations) if book is not None else 0

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Hand over what fails the run although the test's reports, already written, do not show it."""
        book = run_of(self._config).get("ledger")
        if book is not None:
            outside = book.outside
            data = {"problems": outside.problems, "violations": outside.violations[self._seen_by_both :]}
            self._write("outside", data)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._write("report", self._config.hook.pytest_report_to_serializable(config=self._config, report=report))

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage, when: str) -> None:
        if when == "runtest":  # the other process has collected, too, and was warned itself
            category = warning_message.category
            self._write(
                "warning",
                {
                    "message": str(warning_message.message),
                    "module": category.__module__,
                    "category": category.__name__,
                    "filename": warning_message.filename,
                    "lineno": warning_message.lineno,
                },
            )

    def pytest_unconfigure(self) -> None:
        os.close(self._file)
