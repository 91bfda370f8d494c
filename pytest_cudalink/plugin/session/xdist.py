"""Everything that xdist's controller and its workers hand over to each other; registered only with xdist."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from ...report.asked_for import AskedFor
from .. import pytest_private
from ..conditions import FAULTS
from ..hook_order import register
from ..hostile import RERUNS
from ..records import LEDGER
from ..run import Key, Run, part_name, run_of
from ..settings import Setting, Settings
from ..start import from_controller, is_active
from ..watch import DESCENDANTS
from .account import Account

_REFUSED: Final = "cudalink_refused"
#: On the report of a setup: the worker that ran it has begun its run.
_ACTIVE: Final = "cudalink_active"
#: Parts of which the controller has one that adds up those of its workers.
_ADDED_UP: Final[tuple[Key[Any] | type, ...]] = (Account, FAULTS, *RERUNS)


def settings_of_controller(config: pytest.Config) -> tuple[Settings, Mapping[str, str]] | None:
    """Return the settings of the run and the variables withheld from the environment; None but in a worker."""
    given = from_controller(config)
    if "settings" not in given:
        return None
    return Settings(**{name: Setting(*pair) for name, pair in given["settings"].items()}), given["withheld"]


def refuse_markers(run: Run, error: pytest.UsageError) -> None:
    """Let the controller refuse the markers that are wrong: raised in a worker, the error would name no test."""
    _output(run.config)[_REFUSED] = str(error)


def configure_node(node: Any, activate: Callable[[pytest.Config], object]) -> None:
    """Hand a worker that is about to start what it cannot find out by itself.

    Where nothing has asked for the plugin so far, a marker in a worker can be the first; then `activate` begins it.
    """
    config: pytest.Config = node.config
    run = run_of(config) if is_active(config) else None
    given: dict[str, Any] = {"arguments": [str(argument) for argument in config.invocation_params.args]}
    if run is not None:
        path = None
        emulates = sys.platform == "linux" and run.settings.driver.value not in ("real", "absent")
        if emulates and run.settings.lifetime.value != "off":
            path = run.part(DESCENDANTS).path  # here: a driver for markers is emulated by the workers alone
        given |= {
            "notes": path,
            "settings": {name: tuple(setting) for name, setting in run.settings.items()},
            "withheld": run.withheld,
        }
        given |= {part.name: str(part.notes.folder) for key in RERUNS if (part := run.get(key)) is not None}
    elif not config.pluginmanager.hasplugin("cudalink-listener"):
        register(config, _Listener(config, activate), "listener")
    node.workerinput["cudalink"] = given


class _Listener:
    """A plugin object of a controller for which nothing has asked; activates the plugin once a worker asks."""

    def __init__(self, config: pytest.Config, activate: Callable[[pytest.Config], object]) -> None:
        self._config, self._activate = config, activate

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Activate the plugin at the first report of a worker that did: that of a setup, which no part has to count."""
        if hasattr(report, _ACTIVE):
            self._end()

    def pytest_testnodedown(self, node: Any) -> None:
        """Activate the plugin for what a worker hands over that ran no test."""
        if {"cudalink", _REFUSED} & (getattr(node, "workeroutput", None) or {}).keys():
            self._end().pytest_testnodedown(node)

    def _end(self) -> HandOver:
        self._config.pluginmanager.unregister(self)
        self._activate(self._config)
        return run_of(self._config).part(HandOver)


def _output(config: pytest.Config) -> dict[str, Any]:
    output: dict[str, Any] = config.workeroutput  # type: ignore[attr-defined]
    return output


class HandOver:
    """A plugin object of the controller and of each worker."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._down: set[str] = set()
        self._lost: set[str] = set()  # workers that died while no test ran

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """In a worker, let the controller know that something has asked for the plugin."""
        if self._run.is_worker and report.when == "setup":
            setattr(report, _ACTIVE, True)

    def end(self, _session: pytest.Session) -> None:
        """In a worker, hand over what belongs to no test."""
        if not self._run.is_worker:
            return
        _output(self._run.config)["cudalink"] = {
            "outside": self._run.part(LEDGER).outside.as_json(),
            "late_header": self._run.late_header,
            "late_facts": self._run.late_facts,
            "new_processes": dict(self._run.new_processes),
            "parts": {part_name(key): part.as_json() for key in _ADDED_UP if (part := self._run.get(key)) is not None},
        }

    def pytest_testnodedown(self, node: Any) -> None:
        """Take what a worker handed over when it ended; one that crashed has only noted some of it.

        Raises pytest.UsageError if it refused markers.
        """
        from ..conditions import faults

        if node.gateway.id in self._down:  # xdist says it twice of a worker that was interrupted, as by pytest.exit
            return
        self._down.add(node.gateway.id)
        output = getattr(node, "workeroutput", None) or {}
        if refused := output.get(_REFUSED):
            raise pytest.UsageError(refused)
        given = output.get("cudalink")
        if given is None:
            faults.lose(self._run)
            self._lost.add(node.gateway.id)
            for key in RERUNS:
                if (part := self._run.get(key)) is not None:
                    part.add_notes(node.gateway.id)
            return
        self._run.late_header = self._run.late_header or given["late_header"]
        self._run.new_processes.update(given["new_processes"])
        if given["late_facts"] and not self._run.late_facts:
            from ..records.results import add_properties

            self._run.late_facts = given["late_facts"]
            add_properties(self._run.config, self._run.late_facts)
        self._run.part(LEDGER).totals.add_outside(given["outside"])
        for kind in _ADDED_UP:
            if (name := part_name(kind)) in given["parts"]:
                self._run.part(kind).add(given["parts"][name])

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, report: pytest.TestReport) -> None:
        """Let the test that a worker died in show that."""
        self._lost.discard(pytest_private.worker_of(report) or "")

    def asked_for(self) -> list[AskedFor]:
        """Return how many workers reported what they have seen, if any did not."""
        if not self._lost:
            return []
        left = {f"{name} died while no test ran": 1 for name in sorted(self._lost)}
        return [AskedFor("workers", len(self._down), len(self._down) - len(left), left)]
