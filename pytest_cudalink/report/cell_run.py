"""The results of one cell: its tests by outcome, the versions, links and crashes of its runs, and how they ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from ..base.finding import Finding
from ..base.words import counted
from ..compat.known_bad import KnownBad, known_bad
from ..compat.releases import DRIVER_RELEASES
from ..versions import CudaVersion
from . import records
from .origin import Origin
from .wording import cause_of

#: pytest's exit codes (pytest.ExitCode) after which every selected test has run; a record may lack it.
WHOLE: Final = (None, 0, 1)
_CODES: Final[Mapping[int | None, str]] = {
    2: "it was interrupted, or a file could not be collected",
    3: "an internal error",
    4: "it was called with wrong arguments",
    5: "no tests were collected, or all were deselected",
    6: "more warnings than --max-warnings allows",
}


@dataclass
class Lines:
    """What the lines of one run add up to."""

    ends: list[records.EndRecord] = field(default_factory=list)
    collected: list[records.CollectedRecord] = field(default_factory=list)
    started: Counter[str] = field(default_factory=Counter)  # number of events "start" by test
    ended: Counter[str] = field(default_factory=Counter)  # number of events "test" by test
    outcomes: Counter[str] = field(default_factory=Counter)  # number of events "test" by outcome


def doubts(lines: Lines, fine: Collection[str], *, explained: bool) -> list[str]:
    """Return what is wrong with a run that ended, a sentence each; nothing for one whose end agrees with its lines.

    `fine`: the tests that neither failed nor crashed, without the files that are skipped as a whole.
    `explained`: whether the record shows why pytest ended with exit code 1.
    """
    codes = [end.exitstatus for end in lines.ends]
    if len(codes) > 1:
        words = " and ".join("unknown" if code is None else str(code) for code in codes)
        return [f"the record has {len(codes)} ends, with exit codes {words}; expected one run in a file"]
    if not codes or codes[0] not in WHOLE:
        return []
    sentences = []
    if codes[0] == 1 and not explained:
        why = "and no test failed: a plugin failed the run, as a limit of coverage does"
        sentences.append(f"pytest ended with exit code 1, {why}")
    if codes[0] == 0 and not lines.ended:
        sentences.append("pytest ended with exit code 0, and no test ran")
    return [*sentences, *_of_tests(lines, fine)]


def _of_tests(lines: Lines, fine: Collection[str]) -> Iterator[str]:
    """Yield what is wrong with the tests of a run whose end says that all of them ran."""
    cut = [test for test, number in lines.started.items() if number > lines.ended[test]]
    if cut:
        yield f"{counted(len(cut), 'test')} began without a result: {_some(cut)}"
    counts = lines.ends[0].counts
    if counts is None:  # another program wrote the record
        return
    if +Counter(counts) != lines.outcomes:
        yield f"the end counts {_totals(counts)}; the record has {_totals(lines.outcomes)}"
    if len(lines.collected) > 1:
        yield f"the record has {len(lines.collected)} events 'collected'; expected one run in a file"
    known = {test for event in lines.collected for test in event.nodeids}
    strange = [test for test in lines.ended if test in fine and test not in known]
    if strange:
        yield f"{counted(len(strange), 'test')} ran, but did not belong to the collected ones: {_some(strange)}"


def _some(tests: Sequence[str]) -> str:
    return ", ".join(tests[:_MOST_NAMED]) + (", …" if len(tests) > _MOST_NAMED else "")


def _totals(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {outcome}" for outcome, number in sorted(counts.items()) if number) or "no tests"


#: The outcomes, the worst first: the letter of each, so that nothing depends on colour alone, its name and its meaning.
_OUTCOMES: Final = (
    ("C", "crashed", "crashed"),
    ("E", "error", "error"),
    ("F", "failed", "failed"),
    ("X", "xpassed", "passed unexpectedly"),
    ("D", "documented", "failed as documented"),
    ("x", "xfailed", "failed as expected"),
    ("U", "unsupported", "needs a GPU"),
    ("S", "skipped", "skipped"),
    ("P", "passed", "passed"),
)
#: The letter of each outcome, and the meaning of each letter. A documented failure is a pass.
LETTERS: Final = {outcome: letter for letter, outcome, _ in _OUTCOMES}
NAMES: Final = {letter: meaning for letter, _, meaning in _OUTCOMES}
NOT_RUN: Final = "."
BAD: Final = frozenset("FEC")
SKIPPED: Final = frozenset("SU")
GOOD: Final = frozenset("PxXD")

#: Versions that are axes in every cell.
_OF_TOOLKIT: Final = ("ctk", "driver", "nvjitlink")
#: The cause of a skip whose record names a refused call and no cause.
_ONLY_A_GPU: Final = "only a driver with a GPU does what this test asks for"
_A_CELL: Final = "run the test in a cell with a GPU"
#: How many faults of its files a cell names, and how many tests a sentence.
_MOST_NAMED: Final = 3


@dataclass(frozen=True)
class Detail:
    """The explanation of a result other than a plain pass."""

    reason: str = ""  # of a skip or an expected failure, the requirement of a documented one, or a failure's first line
    text: str = ""  # the failure in full
    cause: records.CauseRecord | None = None  # why the test failed, or needs a GPU, where that is known


class UnsteeredLinks(Struct):
    """The links of one place in the code that no target steers; the fields but `number` are those of the records."""

    via: str = ""
    call: str = ""
    where: str = ""
    backend: str = "unknown"
    forced: str | None = None
    number: Annotated[int, Meta(ge=1, lt=2**53)] = 1


#: Letter and file of one of several records that have a test.
Pair = Annotated[list[str], Meta(min_length=2, max_length=2)]
#: The fields of an event "library" that distinguish the libraries of a cell.
_OF_LIBRARY: Final = ("name", "soname", "real_path", "place", "owner", "version", "for_whom")


def library_key(library: records.LibraryRecord) -> tuple[str, ...]:
    """Return what distinguishes a library of a cell from its others: many processes load the same."""
    return tuple(getattr(library, name) for name in _OF_LIBRARY)


@dataclass
class CellRun:
    """The merged records of one cell."""

    name: str
    files: list[str] = field(default_factory=list)  # the record files
    # the values that distinguish this cell from others: ctk, driver, nvjitlink, backend, python, arch, and what its run
    # added, such as the versions of packages
    axes: dict[str, str] = field(default_factory=dict)
    # as in the records: `{name: {"requested": …, "found": …, "source": …, "kind": …}}`
    versions: dict[str, records.VersionRecord] = field(default_factory=dict)
    hidden: str = ""  # what the cell hides, and how, in words
    python: str = ""
    platform: str = ""
    finished: bool = False  # whether the run finished
    truncated: bool = False  # whether the last line of a file was cut
    # whether a record has a format that this version does not read: nothing is known of its tests, and `finished` is
    # True as far as it depends on that record
    unread: bool = False
    exitstatus: records.ExitCode | None = None
    duration: records.Seconds = 0.0
    outcomes: dict[str, str] = field(default_factory=dict)  # letter of each test, see `LETTERS`
    durations: dict[str, records.Seconds] = field(default_factory=dict)  # seconds of each test
    details: dict[str, Detail] = field(default_factory=dict)  # of each test that did not simply pass
    links: dict[str, records.Count] = field(default_factory=dict)  # number of links by `wording.backend_keys`
    # links that no target steers, by place; `links` does not count them
    unsteered: list[UnsteeredLinks] = field(default_factory=list)
    # at least so many modules that an emulated driver loaded were made by no link that was seen
    unlinked_modules: records.Count = 0
    # as in the records, the first event of each file, release and purpose, see `library_key`
    libraries: list[records.LibraryRecord] = field(default_factory=list)
    violations: list[records.ViolationRecord] = field(default_factory=list)  # as in the records
    verdicts: list[records.VerdictRecord] = field(default_factory=list)
    sticky: list[records.StickyRecord] = field(default_factory=list)
    findings: list[records.FindingRecord] = field(default_factory=list)
    asked: list[records.AskedRecord] = field(default_factory=list)
    # as in the records, and one for each test that began and has no result
    crashes: list[records.CrashRecord] = field(default_factory=list)
    reruns: records.Count = 0
    problems: list[str] = field(default_factory=list)  # why the run failed although no test shows it
    # tests that were collected and have no result: lost in a crash, or not run because the run stopped early
    without_result: list[str] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)  # what is wrong with the files: file, line and key
    # tests whose outcomes differ between the records of the cell, with letter and file of each record
    differing: dict[str, list[Pair]] = field(default_factory=dict)
    repeated: records.Count = 0  # number of tests that several records of the cell have, with one outcome
    origins: list[Origin] = field(default_factory=list)  # the origin of each of its runs, see `origin.merged`

    @property
    def lost(self) -> list[str]:
        """The tests that were not run because a process died."""
        return self.without_result if self.crashes or not self.finished else []

    @property
    def counts(self) -> Counter[str]:
        """Number of tests by letter."""
        return Counter(self.outcomes.values())

    @property
    def causes(self) -> dict[str, Finding]:
        """Why tests fail, as far as that is known, and why tests that were skipped need a GPU."""
        by_test: dict[str, Finding] = {}
        for test, letter in self.outcomes.items():
            if letter not in BAD and letter != "U":
                continue
            detail = self.details.get(test, Detail())
            if detail.cause is not None:
                by_test[test] = cause_of(detail.cause)
            elif letter == "U":
                lack = Finding("error", detail.reason, why=_ONLY_A_GPU, kind="not_emulated", suggestion=(_A_CELL,))
                by_test[test] = lack
        return by_test

    @property
    def is_explained(self) -> bool:
        """Whether a test, a crash or a finding shows why pytest ended with an error."""
        return any((self.crashes, self.findings, self.failing_violations, self.failing_tests))

    @property
    def failing_tests(self) -> set[str]:
        """The tests that failed or crashed."""
        return {test for test, letter in self.outcomes.items() if letter in BAD}

    @property
    def failing_violations(self) -> list[records.ViolationRecord]:
        """The violations that were not allowed, whatever became of their tests: one that ran again may have passed."""
        return [violation for violation in self.violations if not violation.allowed]

    @property
    def crashed(self) -> int:
        """Number of crashed tests, and of crashes that no test's result shows: outside tests, or of one run again."""
        shown = {test for test, letter in self.outcomes.items() if letter == "C"}
        return len(shown) + sum(crash.nodeid not in shown for crash in self.crashes)

    @property
    def not_steered(self) -> int:
        """Number of links that no target steers, where a backend was forced."""
        return sum(links.number for links in self.unsteered if links.forced is not None)

    @property
    def fault(self) -> str:
        """Why the run is incomplete; empty if pytest finished, and its records are sound."""
        named = self.damage[:_MOST_NAMED]
        if len(self.damage) > _MOST_NAMED:
            named.append(f"and {counted(len(self.damage) - _MOST_NAMED, 'other fault')} of the records")
        unreadable = named and not (self.outcomes or self.finished)
        return "; ".join(named if unreadable else filter(None, [self._unfinished, *named]))

    @property
    def _unfinished(self) -> str:
        """Why pytest did not run every test; empty if it did."""
        if not self.finished:
            cut = ", and the file is cut" if self.truncated else ""
            lost = f", {len(self.lost)} lost" if self.lost else ""
            return f"the run did not finish ({counted(len(self.outcomes), 'test')} recorded{lost}){cut}"
        left = counted(len(self.without_result), "test")
        what = f"{left} lost in a crash" if self.lost else f"{left} not run"
        if self.exitstatus in WHOLE:
            early = [f"the run stopped early: {what}"] if self.without_result else []
        else:
            meaning = _CODES.get(self.exitstatus, "a plugin or pytest.exit chose it")
            early = [f"pytest ended with exit code {self.exitstatus}: {meaning}", *[what] * bool(self.without_result)]
        return "; ".join([*early, *self.problems])

    @property
    def mismatches(self) -> list[tuple[str, str, str]]:
        """Name, requested and found, of each version that is not the requested one."""
        result = []
        for name, version in sorted(self.versions.items()):
            requested, present = version.get("resolved") or version.get("requested"), version.get("found")
            if name in self.axes and name not in _OF_TOOLKIT:  # a package whose version the cell chose
                if requested is not None and not _is_asked_for(present, requested):
                    shown = version.get("requested")
                    wanted = requested if shown == requested else f"{shown}, {requested}"
                    result.append((name, wanted, str(present or "none")))
                continue
            if requested is None or requested in ("auto", "latest"):
                continue
            if requested == "real":
                if present is None or version.get("kind") not in ("real", "", None):
                    result.append((name, "real", " ".join(filter(None, (present, version.get("kind"))))))
            elif requested in ("absent", "none"):
                if present is not None and version.get("kind") != "absent":
                    result.append((name, str(requested), str(present)))
            elif present is None or not f"{present}.".startswith(f"{requested}."):
                result.append((name, str(requested), str(present or "none")))
        return result

    @property
    def known_bad(self) -> list[KnownBad]:
        """The known-bad combinations that the versions of the cell meet, if its architecture and driver are known."""
        versions = {name: present for name, version in self.versions.items() if (present := version.get("found"))}
        arch, release = self.axes.get("arch"), None
        with suppress(ValueError):  # the release that the driver's CUDA version first came with
            release = DRIVER_RELEASES.get(CudaVersion.parse(versions.pop("driver", "")))
        return [
            entry
            for entry in known_bad(versions, arch=arch, driver=release)
            if not entry.open_conditions(arch=arch, driver=release, kinds=entry.kinds)
        ]

    def joined(self, later: CellRun) -> CellRun:
        """Return this run joined with a later one of the same cell; where a test ran twice, the later result counts."""
        statuses = [run.exitstatus for run in (self, later) if run.exitstatus is not None]
        details = {test: detail for test, detail in self.details.items() if test not in later.outcomes}
        done = self.outcomes.keys() | later.outcomes.keys()
        without = dict.fromkeys([*self.without_result, *later.without_result])
        values = {name: _together(mine, getattr(later, name)) for name, mine in vars(self).items()}
        return replace(
            CellRun(**values),
            hidden=later.hidden or self.hidden,
            finished=self.finished and later.finished,
            exitstatus=max(statuses, key=lambda code: (code not in WHOLE, code), default=None),
            details={**details, **later.details},
            links=dict(Counter(self.links) + Counter(later.links)),
            libraries=list({library_key(library): library for library in (*later.libraries, *self.libraries)}.values()),
            without_result=[test for test in without if test not in done],
            origins=list(dict.fromkeys([*self.origins, *later.origins])),
        )


def _together(mine: Any, theirs: Any) -> Any:
    """Return what two runs of a cell have together; the later value of what does not add up."""
    if isinstance(mine, dict | bool):
        return mine | theirs
    return mine + theirs if isinstance(mine, list | float | int) and theirs is not None else theirs


def _is_asked_for(version: str | None, requested: str) -> bool:
    """Return whether the version of a package is one that a cell asks for: a version, a specifier, or a word."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion

    if version is None:
        return False
    if requested in ("latest", "lowest"):
        return True
    try:
        wanted = SpecifierSet(requested if requested[:1] in "<>=!~" else f"=={requested}", prereleases=True)
        return wanted.contains(version)
    except InvalidSpecifier:
        return version == requested
    except InvalidVersion:  # packaging before 26 raises
        return False
