"""The CUDA libraries that the processes of a run load: which files, in which test, and whether they may be there."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from ... import own_imports
from ...base.finding import Finding
from ...base.tables import grouped
from ...loader.jitlink import jitlink_calls
from ..records import LEDGER
from ..run import MakesCollectReport, Run
from .check import Check, Phase

if TYPE_CHECKING:
    from ...guardrails.provenance import Library
    from ...loader.loads import LoadedObject, Opening
    from ...targets import LinkEvent, UnsteeredLink

_SECTION: Final = "cudalink provenance"
#: Beginnings of the name of every CUDA library, and of a few others: their table is read when one of these is loaded.
_CANDIDATE: Final = tuple(
    f"lib{name}" for name in ("accinj64", "checkpoint", "cu", "nccl", "npp", "nv", "pcsamplingutil")
)
#: The plugin's own libraries; the emulated driver has the name of the real one.
_OURS: Final = "libcudalink-"
_NUMBERED: Final = r"(?P<name>lib[\w-]+?)(?:-[0-9a-f]{6,})?\.so\.(?P<number>\d+)"


def start(run: Run) -> None:
    """Watch what is loaded as soon as this process can have native code."""
    run.config.add_cleanup(jitlink_calls.postpone_until_native_code(lambda: run.part(Provenance)))


class Loaded(NamedTuple):
    """A CUDA library, and when a process of the run loaded it."""

    library: Library
    nodeid: str | None  # the test; None outside tests
    during: str  # "setup", "call" or "teardown" of the test; otherwise such as "collection of tests/test_a.py"

    @property
    def when(self) -> str:
        """When it was loaded, in words."""
        return f"in the {self.during} of {self.nodeid}" if self.nodeid else self.during


class _Candidate(NamedTuple):
    """An object that may be a CUDA library, with what is known only now."""

    loaded: LoadedObject
    among: Sequence[LoadedObject]
    openings: Sequence[Opening]
    nodeid: str | None
    during: str


class Provenance(Check):
    """There once a process can have native code: looks at what was loaded, at the end of each phase."""

    has_signs = True

    def __init__(self, run: Run) -> None:
        from ...loader import loads

        super().__init__(run)
        self._loads = loads
        self._counter = loads.counter()
        self._count = 0
        self._seen: set[str] = set()
        self._candidates: list[_Candidate] = []
        self._loaded: list[Loaded] = []
        #: What this plugin alone has opened so far: nothing is wrong with it until the tests use it, too.
        self._probed: list[tuple[LoadedObject, Library]] = []
        #: What has linked with nvJitLink: cuda.pathfinder remembers the library, and does not open it again.
        self._linked_by = ""
        self._openings: list[Opening] = []
        self._pending: list[str] = []
        #: By test and phase, for a test that is run again: its libraries stay in the process.
        self._found_before: dict[tuple[str, str], list[str]] = {}
        run.config.add_cleanup(loads.watch_openings(self._openings.append))
        self._reporter.add_signs(
            self._counter, lambda: (self._probed or self._pending or self._found_before) and object()
        )

    # in a worker of xdist the settings are known later than the first libraries

    @property
    def _expected(self) -> str:
        return self._run.settings.provenance.value

    @property
    def _waits(self) -> bool:
        """Whether only two majors are of interest, which the names show: there is no expectation and no record file."""
        return self._expected == "any" and not self._run.settings.report.value

    # -- looking

    def take(self, nodeid: str | None, during: str) -> None:
        """Note what was loaded since the last look."""
        count = self._counter()
        if count == self._count and not self._probed:
            return
        new, self._count = self._new() if count != self._count else [], count
        openings = tuple(self._openings)
        self._openings.clear()
        self._take_up(new, openings, nodeid, during)
        for loaded in new:
            names = (loaded.path.rpartition("/")[2], loaded.soname)
            if any(name.startswith(_CANDIDATE) and not name.startswith(_OURS) for name in names):
                self._candidates.append(_Candidate(loaded, new, openings, nodeid, during))
        if self._candidates and not self._waits:
            self._judge()

    def _new(self) -> list[LoadedObject]:
        new = [loaded for loaded in self._loads.loaded_objects() if loaded.path not in self._seen]
        self._seen.update(loaded.path for loaded in new)
        return new

    def _take_up(
        self, new: Sequence[LoadedObject], openings: Sequence[Opening], nodeid: str | None, during: str
    ) -> None:
        """Report a library that only this plugin has opened as soon as other code uses it, too."""
        for probed, library in list(self._probed):
            from ...guardrails.provenance import used_by

            linked_by = self._linked_by if library.name == "libnvJitLink" else ""
            if user := used_by(probed, new, openings) or linked_by:
                self._probed.remove((probed, library))
                self._report(Loaded(replace(library, for_whom=user, is_probed=False), nodeid, during))

    def _judge(self) -> None:
        """Describe the candidates, report those that are CUDA libraries, and note what is wrong with them."""
        taken, self._candidates = self._candidates, []
        with own_imports():
            from ...guardrails import provenance

            described = [provenance.describe(*candidate[:3]) for candidate in taken]
        for library, (loaded, *_, nodeid, during) in zip(described, taken, strict=True):
            if library is None:
                continue
            if library.is_probed:
                self._probed.append((loaded, library))
            self._report(Loaded(library, nodeid, during))

    def _report(self, loaded: Loaded) -> None:
        """Call the hook for a library, and check it."""
        library, before = loaded.library, list(self._loaded)
        if not library.is_probed:
            self._loaded.append(loaded)
        # the process that waits for this one has collected the same, and a controller runs no test
        if self._run.is_controller or (self._run.is_isolated and loaded.nodeid is None):
            return
        self._run.config.hook.pytest_cudalink_library(
            config=self._run.config, library=library, nodeid=loaded.nodeid, during=loaded.during
        )
        if not library.is_probed:
            self._check(loaded, before)

    def _check(self, loaded: Loaded, before: Sequence[Loaded]) -> None:
        """Note that a library is from elsewhere, or does not belong into one process with another."""
        from ...guardrails import provenance

        if self._asked_for(loaded.library):
            return
        copies = [(other.library, other.when) for other in before if not self._asked_for(other.library)]
        asked = str(self._run.settings.provenance)
        for text in provenance.faults((loaded.library, loaded.when), copies, self._expected, asked):
            if self._expected == "any":
                self._run.part(LEDGER).outside.of_processes.append(text)
            else:
                self._add(text, loaded.nodeid, f"\n  it was loaded {loaded.when}")

    def _asked_for(self, library: Library) -> bool:
        """Whether the run itself has loaded a library, because ``--cudalink-nvjitlink`` names its release."""
        release = self._run.settings.nvjitlink.value not in ("auto", "absent")
        return release and library.place == "toolchains" and library.name == "libnvJitLink"

    def _add(self, text: str, nodeid: str | None, when: str = "") -> None:
        """Fail the current test, or outside of tests the run, whose text has a further line."""
        if nodeid is None:
            self._reporter.show_outside([Finding("error", f"{text}{when}", kind=_SECTION)])
        else:
            self._pending.append(text)

    # -- the plugin's hooks

    def pytest_cudalink_link(self, event: LinkEvent) -> None:
        """Note inputs made by another major than that of the nvJitLink that links them; a driver takes older ones."""
        if event.backend != "nvjitlink":
            return
        self._linked_by = self._linked_by or event.target
        if self._expected == "any" or self._run.is_repeated:
            return
        from ...guardrails import provenance

        for given in event.inputs:
            if provenance.mixed_majors(given.producer, event.nvjitlink):
                self._add(
                    f"{event.target} linked {given.kind} {given.name or 'without a name'} of CUDA {given.producer} "
                    f"with nvJitLink {event.nvjitlink}: producer and linker are of different majors\n"
                    "  Take the compiler and nvJitLink from one major of the toolkit",
                    event.nodeid,
                )

    def pytest_cudalink_unsteered(self, link: UnsteeredLink) -> None:
        """Note that code below Python, or without a target, uses nvJitLink."""
        if link.backend == "nvjitlink":
            self._linked_by = self._linked_by or link.via

    # -- pytest's hooks

    def pytest_collection(self) -> Generator[None, object, object]:
        """Look at what conftests and plugins have loaded, and at what is loaded until the tests are known."""
        if self._expected != "any" and self._loads.library() is None:
            self._add(
                f"--cudalink-provenance is {self._run.settings.provenance}: the plugin's native part is missing or not "
                "for this system, so the libraries of a process cannot be listed; install pytest-cudalink from its "
                "wheel",
                None,
            )
        self.take(None, "before collection")
        result = yield
        self.take(None, "at the end of collection")
        return result

    def pytest_make_collect_report(self, collector: pytest.Collector) -> MakesCollectReport:
        """Look at what a module has loaded, even if it cannot be imported."""
        try:
            return (yield)
        finally:
            self.take(None, f"during the collection of {collector.nodeid or 'the tests'}")

    # -- the check

    def between(self) -> None:
        self.take(None, "between tests")

    def look(self, phase: Phase) -> None:
        self.take(phase.nodeid, phase.when)

    def sections(self, phase: Phase) -> Sequence[Finding]:
        """Fail a phase for what is noted, also for what an earlier run of the same test noted in it."""
        if not (self._pending or self._found_before):
            return ()
        pending, self._pending = self._pending, []
        place = (phase.nodeid, phase.when)
        texts = list(dict.fromkeys([*self._found_before.get(place, ()), *pending]))
        if not texts:
            return ()
        self._found_before[place] = texts
        from ...base.safe_text import block

        return [Finding("error", block("\n".join(f"cudalink: {text}" for text in texts)), kind=_SECTION)]

    def end(self, _session: pytest.Session) -> None:
        """Take what was loaded since the last test."""
        self.take(None, "after the last test")

    def finish(self) -> None:
        """Find two majors of a library where nothing more was asked."""
        if self._waits and _has_two_majors([candidate.loaded for candidate in self._candidates]):
            self._judge()


def _has_two_majors(objects: Sequence[LoadedObject]) -> bool:
    """Whether two objects may be of one library and of different majors, by their names."""
    names = (re.match(_NUMBERED, each.soname) or re.match(_NUMBERED, each.path.rpartition("/")[2]) for each in objects)
    majors = grouped((match["name"], match["number"]) for match in names if match is not None)
    return any(len(set(numbers)) > 1 for numbers in majors.values())
