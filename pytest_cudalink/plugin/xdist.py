"""Everything that xdist's controller and its workers hand over to each other; registered only with xdist."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from . import faults, ledger
from .parts import LEDGER
from .results import add_late_properties
from .run import Run, from_controller
from .settings import Setting, Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["HandOver", "refuse_markers", "settings_of_controller"]

_REFUSED: Final = "cudalink_refused"


def settings_of_controller(config: pytest.Config) -> tuple[Settings, Mapping[str, str]] | None:
    """Return the settings of the run and the variables withheld from the environment; None but in a worker."""
    given = from_controller(config)
    if not given:
        return None
    return Settings(**{name: Setting(*pair) for name, pair in given["settings"].items()}), given["withheld"]


def refuse_markers(run: Run, error: pytest.UsageError) -> None:
    """Let the controller refuse the markers that are wrong: raised in a worker, the error would name no test."""
    _output(run.config)[_REFUSED] = str(error)


def _output(config: pytest.Config) -> dict[str, Any]:
    output: dict[str, Any] = config.workeroutput  # type: ignore[attr-defined]
    return output


class HandOver:
    """A plugin object of the controller and of each worker.

    Parameters
    ----------
    run : Run
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    def pytest_configure_node(self, node: Any) -> None:
        """Hand a worker that is about to start what it cannot find out by itself."""
        run, path = self._run, None
        emulates = sys.platform == "linux" and run.settings.driver.value not in ("real", "absent")
        if emulates and run.settings.lifetime.value != "off":
            from . import descendants

            path = descendants.start(run, None).path  # here: a driver for markers is emulated by the workers alone
        node.workerinput["cudalink"] = {
            "notes": path,
            "arguments": run.arguments,
            "settings": {name: tuple(setting) for name, setting in run.settings.items()},
            "withheld": run.withheld,
        }

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """In a worker, hand over what belongs to no test."""
        if not self._run.is_worker:
            return
        book, planned = self._run.get(LEDGER), faults.of(self._run)
        _output(self._run.config)["cudalink"] = {
            "outside": book.outside.as_json() if book is not None else {},
            "late_header": self._run.late_header,
            "late_facts": self._run.late_facts,
            "new_processes": dict(self._run.new_processes),
            "faults": planned.as_json() if planned is not None else None,
        }

    def pytest_testnodedown(self, node: Any) -> None:
        """Take what a worker handed over when it ended; one that crashed hands nothing over.

        Raises
        ------
        pytest.UsageError
            If it refused markers.
        """
        output = getattr(node, "workeroutput", None) or {}
        if refused := output.get(_REFUSED):
            raise pytest.UsageError(refused)
        given = output.get("cudalink")
        if given is None:
            faults.lose(self._run)
            return
        self._run.late_header = self._run.late_header or given["late_header"]
        self._run.new_processes.update(given["new_processes"])
        if given["late_facts"] and not self._run.late_facts:
            self._run.late_facts = given["late_facts"]
            add_late_properties(self._run)
        ledger.of(self._run).totals.add_outside(given["outside"], f"[{node.gateway.id}] ")
        if given["faults"] is not None:
            faults.take(self._run, given["faults"])
