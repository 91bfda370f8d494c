"""The files of the project that a run touched, for its record: ``cudalink matrix select`` reads them."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

import pytest

from ..report.checkout import checkout_root
from . import record_file

if TYPE_CHECKING:
    from pathlib import Path

    from .run import Run

__all__ = ["Touched", "start"]

#: Arguments of pytest from the environment: what they leave out, the record does not know.
_OPTIONS: Final = "PYTEST_ADDOPTS"


def start(run: Run) -> None:
    """Watch what is opened from now on, in a run of a cell with a record file and a checkout.

    A run that is not of a cell does not pay for it: the interpreter calls the hook for each `id()`, too.
    """
    if not os.environ.get("CUDALINK_CELL"):
        return
    if not run.settings.report.value or run.get("touched") is not None or run.config.option.collectonly:
        return
    root = checkout_root(run.config.rootpath)
    if root is None:
        return
    from ..process import opened_files

    if opened_files.is_possible():
        run.part_with("touched", Touched(run, root))


class Touched:
    """A plugin object that writes which files of the project this process touched, once its tests have run.

    Parameters
    ----------
    run : Run
    root : Path
        The root of the checkout.
    """

    def __init__(self, run: Run, root: Path) -> None:
        from ..process.opened_files import OpenedFiles

        self._run, self._root = run, root
        self._opened = OpenedFiles(lambda: run.nodeid)
        #: What the process that waits for this one touches, too.
        self._known: frozenset[str] = frozenset()
        run.config.add_cleanup(self._opened.close)

    def _paths(self) -> dict[str, str | None]:
        """Return the files that were touched, each with the test that opened it first, or None."""
        found = dict(self._opened.files)
        for module in list(sys.modules.values()):
            # not getattr: a lazy module would be loaded for it
            try:
                file = object.__getattribute__(module, "__dict__").get("__file__")
            except AttributeError:
                continue
            if isinstance(file, str):
                found.setdefault(file, None)
        return found

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        if self._run.is_isolated:
            self._known = frozenset(self._paths())

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Write the files, before the end of the run is written."""
        file = record_file.of(self._run)
        if file is None:
            return
        from ..process import loads
        from ..report.sources import Sources

        paths = {path: test for path, test in self._paths().items() if path not in self._known}
        if not self._run.is_isolated:
            paths |= {one.path: None for one in loads.loaded_objects() if one.path not in paths}
        sources = Sources(self._root, self._run.config.rootpath)
        files: dict[str, list[str]] = {}
        for path, test in paths.items():
            for name in sources.names(path):
                files.setdefault(test or "", []).append(name)
        programs = self._opened.programs
        if self._run.is_isolated and not (files or programs or sources.unknown):
            return
        file.writer.write(
            "touched",
            worker=self._run.worker,
            files={test: sorted(set(names)) for test, names in files.items()},
            unknown=sorted(sources.unknown),
            programs=programs,
            lost=self._opened.is_incomplete,
            options=os.environ.get(_OPTIONS, ""),
        )
