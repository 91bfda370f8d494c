"""One run of pytest as every part of the plugin sees it: a leaf that imports no part."""

from __future__ import annotations

import json
import os
import re
import threading
from collections import Counter
from collections.abc import Generator, Iterator
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar, cast

import pytest

from .. import own_imports
from .hook_order import register
from .start import RUN, START, Start, from_controller

if TYPE_CHECKING:
    from ..emulator import Emulation
    from ..emulator.control import DriverControl
    from ..matrix.cell_facts import CellFacts
    from .settings import Settings


#: How a child runs the tests that it is asked for: each in a copy of itself, all in itself, or one, with which it ends.
Mode = Literal["copies", "shared", "alone"]


class Task(SimpleNamespace):  # no NamedTuple: every start of pytest would pay for what is generated
    """What a child is for: the content of the file that ``CUDALINK_ISOLATED`` names, as JSON."""

    mode: Mode
    paths: list[str]  # tests, or files of them; empty for those of the command line
    pipes: list[int]  # descriptors of requests and replies
    reports: str  # file that the reports go to
    events: str  # file that the events of the emulated driver go to
    worker: str | None  # the xdist worker that waits
    options: dict[str, Any]  # values of options, by their ``dest``
    start: dict[str, Any]  # attributes of the `Start` of the process that waits, and "arguments" for pytest


T = TypeVar("T")
#: What wrappers of two hooks of pytest return.
MakesReport = Generator[None, pytest.TestReport, pytest.TestReport]
MakesCollectReport = Generator[None, pytest.CollectReport, pytest.CollectReport]


class Key(Generic[T]):
    """The key of a part of type `T`, as ``pytest.StashKey`` is that of a value: a room has those of its parts.

    `place`: ``"room.module:Class"``, which is imported when a run first uses the part; the class takes the run.
    """

    __slots__ = ("name", "place")

    def __init__(self, place: str) -> None:
        self.place, self.name = place, part_name(place.partition(":")[2])


class RunPart:
    """What most parts inherit, as each is registered: pytest takes what ``dir`` names for a fixture or a hook.

    It looks at each name, and so does pluggy: a run with an emulated driver gave a fiftieth of its time to those of ten
    parts.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name.startswith("pytest_")]


def part_name(part: str | type | Key[Any]) -> str:
    """Return the name of a part, which pytest has as ``cudalink-NAME``: ``"no-wait"`` of the class ``NoWait``."""
    if not isinstance(part, (str, type)):  # a key, perhaps of the copy of this module that a run inside a test imported
        return part.name
    return re.sub("(?<=[a-z])(?=[A-Z])", "-", part if isinstance(part, str) else part.__name__).lower()


# one lock, so that a forked child begins with a free one: a thread that the child lacks may hold its parent's
_locks: Final[dict[str, threading.RLock]] = {}

if hasattr(os, "register_at_fork"):
    # not a function of this module, which would keep all that pytest has imported until the very end of the process
    os.register_at_fork(after_in_child=_locks.clear)


class Run:
    """One run: its settings, its current test, which process this is, and the parts of the plugin that it uses."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self.config, self.settings = config, settings
        self.task = task_of(config)  # what this process was started for
        self.start = config.stash.setdefault(START, Start.now())
        self.nodeid: str | None = None  # the current test; the ledger keeps it
        self.configured = False  # whether pytest has configured itself, and the settings are those of the whole run
        self.collected = False  # whether collection is over
        self.failing: list[str] = []  # why the run fails although no test shows it; complete at the end of the session
        self.begins_late = False  # whether a test, and nothing before, has asked: the header comes after collection
        # lines on a driver that was emulated after the header was shown, and its facts for a JUnit report, in words; in
        # a controller, those of its workers
        self.late_header: list[str] = []
        self.late_facts: dict[str, str] = {}
        # number of isolated tests that had a new process each, by the reason why no process that had collected could
        # run them; in a controller, those of its workers
        self.new_processes: Counter[str] = Counter()
        self.unread_variables: list[str] = []  # sentences on variables that no part reads: typing errors, mostly
        self.withheld: dict[str, str] = {}  # what the environment lacks while the run lasts, see `settings.withhold`
        self._emulated: DriverControl | None = None

    def part(self, key: Key[T] | type[T]) -> T:
        """Return a part of the plugin; the first call imports it, makes it and registers it with pytest.

        `key`: its class within its own room, where keys would be a circle of imports.
        """
        part = self.get(key)
        if part is not None:
            return part
        with self.lock:
            part = self.get(key)
            if part is None:  # no other thread has made it meanwhile
                make: Any = key
                if not isinstance(key, type):
                    from ..loader.imports import held_starts

                    module, _, name = key.place.partition(":")
                    with own_imports(), held_starts():
                        make = getattr(import_module(f"{__package__}.{module}"), name)
                part = make(self)
                register(self.config, part, part_name(key))
            return part

    def get(self, key: Key[T] | type[T]) -> T | None:
        """Return a part of the plugin, or None if this run has not made it."""
        part: T | None = self.config.pluginmanager.getplugin(f"cudalink-{part_name(key)}")
        return part

    def asked_for(self) -> Iterator[Any]:
        """Yield the parts that say, by a method of this name, how much of what was asked for has happened."""
        for name, part in self.config.pluginmanager.list_name_plugin():
            if name.startswith("cudalink-") and hasattr(part, "asked_for"):
                yield part

    @property
    def lock(self) -> threading.RLock:
        """The lock to hold while a part is made, or counts: a test may link in several threads.

        No hook is called under it, and nothing of CUDA imported, because other threads may wait for it meanwhile.
        """
        return _locks.setdefault("", threading.RLock())

    @property
    def emulated(self) -> DriverControl | None:
        """Control of the emulated driver of this process; None without one."""
        if self._emulated is None and is_on_emulated_driver():
            from ..emulator import preload

            self._emulated = preload.emulated_driver()
        return self._emulated

    @property
    def emulation(self) -> Emulation | None:
        """What the emulated driver of this process was made from; None without one."""
        if self.emulated is None:
            return None
        from ..emulator import preload

        return preload.emulation()

    @property
    def worker(self) -> str | None:
        """Name of the xdist worker that this process is, or works for; None without xdist."""
        if self.task is not None:
            return self.task.worker
        given: Any = getattr(self.config, "workerinput", None)
        return given["workerid"] if given else None

    @property
    def is_worker(self) -> bool:
        """Whether this process is a worker of xdist."""
        return hasattr(self.config, "workerinput")

    @property
    def is_controller(self) -> bool:
        """Whether workers of xdist run the tests."""
        return self.config.pluginmanager.hasplugin("dsession")

    @property
    def is_isolated(self) -> bool:
        """Whether this process was started to run tests for another."""
        return self.task is not None

    @property
    def reports_elsewhere(self) -> bool:
        """Whether another process collects the results of this one's tests."""
        return self.is_worker or self.is_isolated

    @property
    def is_repeated(self) -> bool:
        """Whether the process that waits for this one has seen the same: it has collected, too."""
        return self.is_isolated and self.nodeid is None

    @property
    def arguments(self) -> list[str]:
        """The command line of pytest; in a worker of xdist that of its controller."""
        given = from_controller(self.config)
        return given["arguments"] if given else [str(argument) for argument in self.config.invocation_params.args]

    @cached_property
    def cell(self) -> CellFacts | None:
        """Facts of the cell of the matrix that the run belongs to; None without one, which imports nothing."""
        if not {"CUDALINK_CELL", "CUDALINK_CELL_KEYS"} & os.environ.keys():
            return None
        from .. import probes
        from ..matrix.cell_facts import cell_facts

        # where the record lies, next to what the runner noted, is withheld from other processes
        return cell_facts(probes.wheel_version, {**os.environ, **self.withheld})

    @cached_property
    def hook_facts(self) -> dict[str, object]:
        """Facts that other projects add to header and records through ``pytest_cudalink_facts``; asked once."""
        added: dict[str, object] = {}
        for facts in reversed(self.config.hook.pytest_cudalink_facts(config=self.config)):
            added.update(facts or {})
        return added


_TASK: Final = pytest.StashKey[Task]()


def run_of(config: pytest.Config) -> Run:
    """Return the run of a configuration, for which something has asked."""
    return cast("Run", config.stash[RUN])


def is_on_emulated_driver() -> bool:
    """Whether this process was started on an emulated driver, as `cudalink driver run` does."""
    return "CUDALINK_EMULATOR_VERSION" in os.environ


def task_of(config: pytest.Config) -> Task | None:
    """Return what this process was started for; None in a process that no other one asks for tests.

    The variable is removed from the environment, so that child processes do not inherit the task.
    """
    given = os.environ.pop("CUDALINK_ISOLATED", None)
    if given is not None:
        config.stash[_TASK] = Task(**json.loads(Path(given).read_text(encoding="utf-8")))
    return config.stash.get(_TASK, None)
