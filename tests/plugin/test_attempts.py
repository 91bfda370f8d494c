"""What the reports of a run become in its record: the real collector of results, without a nested pytest."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import MethodType, SimpleNamespace

import execnet
import pytest

from pytest_cudalink.environment.requirements import EnvironmentFact
from pytest_cudalink.plugin import pytest_private
from pytest_cudalink.plugin.records import LEDGER, RESULTS, results
from pytest_cudalink.plugin.records.record_file import RecordFile
from pytest_cudalink.plugin.run import Run
from pytest_cudalink.report.records import CrashRecord, EndRecord, StickyRecord, TestRecord
from tests.plugin.by_hand import begun


class Longrepr(SimpleNamespace):
    """A failure as pytest keeps one that it can show."""

    text = "def test():\n>   assert 0\nE   assert 0"

    def __str__(self) -> str:
        return self.text


class Records:
    """A record file that keeps what is written; `path` is what a crashed process may have written."""

    def __init__(self, path: Path) -> None:
        self.path, self.written = path, []
        path.touch()

    def write(self, record: object) -> None:
        self.written.append(record)

    def of(self, kind: type) -> list:
        return [record for record in self.written if isinstance(record, kind)]


@pytest.fixture
def records(tmp_path) -> Records:
    """The record file."""
    return Records(tmp_path / "run.jsonl")


@pytest.fixture
def run(records) -> Run:
    """A run that collects results, and whose ledger reads no report."""
    run = begun()
    file = SimpleNamespace(_run=run, writer=records, drop_earlier=lambda _tests: None)
    file.write = MethodType(RecordFile.write, file)
    run.config.pluginmanager.register(file, "cudalink-record-file")
    run.part(RESULTS)
    run.config.pluginmanager.unregister(name="cudalink-ledger")
    return run


def log(run: Run, when: str, outcome: str = "passed", longrepr: object = None, nodeid: str = "A", **more) -> None:
    """Let a report arrive."""
    report = pytest.TestReport(nodeid, ("f.py", 0, "A"), {}, outcome, longrepr, when, duration=0.5)
    vars(report).update(more)
    run.config.hook.pytest_runtest_logreport(report=report)


def finish(run: Run, status: int = 0) -> None:
    """End the session."""
    run.part(RESULTS).end(SimpleNamespace(exitstatus=status))
    for cleanup in run.config.cleanups:
        cleanup()


# -- phases

PASSES = ("passed", None, {})
SKIPS = ("skipped", ("f.py", 1, "Skipped: why"), {})
FAILS = ("failed", Longrepr(), {})
XFAILS = ("skipped", Longrepr(reprcrash=SimpleNamespace(message="no")), {"wasxfail": "reason: known"})
TEXT = Longrepr.text


@pytest.mark.parametrize(
    ("phases", "expected"),
    [
        ([PASSES, PASSES, PASSES], ("passed", "", "")),
        ([PASSES, FAILS, PASSES], ("failed", "def test():", TEXT)),
        ([FAILS, PASSES], ("error", "def test():", TEXT)),
        ([PASSES, PASSES, FAILS], ("error", "def test():", TEXT)),
        ([PASSES, FAILS, ("failed", "second", {})], ("failed", "def test():", TEXT)),
        ([("failed", "first", {}), ("failed", "second", {})], ("error", "first", "first")),
        ([PASSES, ("failed", "", {}), PASSES], ("failed", "", "")),
        ([PASSES, ("failed", Longrepr(reprcrash=SimpleNamespace(message="\n it is\nno")), {}), PASSES], (
            "failed", "it is", TEXT,
        )),
        ([SKIPS, PASSES], ("skipped", "why", "")),
        ([("skipped", "of another plugin", {}), PASSES], ("skipped", "", "")),
        ([PASSES, SKIPS, FAILS, PASSES], ("failed", "def test():", TEXT)),  # a plugin reports two calls
        ([SKIPS, FAILS], ("error", "def test():", TEXT)),
        ([SKIPS, ("skipped", ("f.py", 1, "Skipped: later"), {})], ("skipped", "why", "")),
        ([PASSES, XFAILS, PASSES], ("xfailed", "known", "")),
        ([PASSES, XFAILS, FAILS], ("error", "def test():", TEXT)),
        ([PASSES, ("passed", None, {"wasxfail": "known"}), PASSES], ("xpassed", "known", "")),
        ([PASSES, ("passed", None, {"wasxfail": ""}), PASSES], ("xpassed", "", "")),
        ([PASSES, ("failed", "[XPASS(strict)] known", {"wasxfail": "known"}), PASSES], (
            "failed", "[XPASS(strict)] known", "[XPASS(strict)] known",
        )),
        ([PASSES, ("skipped", ("f.py", 1, "Skipped: no"), {"cudalink_unsupported": True}), PASSES], (
            "unsupported", "no", "",
        )),
        ([PASSES, ("failed", "died", {"cudalink_crashed": True}), FAILS], ("crashed", "died", "died")),
        ([PASSES, FAILS, ("failed", "died", {"cudalink_crashed": True})], ("crashed", "def test():", TEXT)),
        ([PASSES, ("rerun", "again", {}), PASSES], ("rerun", "again", "again")),
        ([PASSES, ("rerun", "again", {}), ("failed", "second", {})], ("rerun", "again", "again")),
        ([PASSES, FAILS, ("rerun", "again", {})], ("rerun", "def test():", TEXT)),
        ([PASSES, ("of another plugin", None, {}), PASSES], ("of another plugin", "", "")),
    ],
)  # fmt: skip
def test_the_outcome_of_an_attempt(run, records, phases, expected) -> None:
    """The first failure counts, else the first skip, unless the test is run again or its process died."""
    names = ["setup", *["call"] * (len(phases) - 2), "teardown"]
    for when, (outcome, longrepr, more) in zip(names, phases, strict=True):
        assert records.written == []
        log(run, when, outcome, longrepr, **more)
    (record,) = records.written
    assert (record.outcome, record.reason, record.longrepr) == expected
    assert (record.nodeid, record.worker, record.attempt) == ("A", None, 1)
    assert record.duration == len(phases) / 2


def test_a_long_failure(run, records) -> None:
    """What is cut is counted, so that a record stays readable."""
    cut = "x" * 3950
    log(run, "setup", "failed", f"{cut}yz")
    log(run, "teardown")
    collected(run, f"{cut}y")
    test, file = records.written
    assert test.longrepr == test.reason == f"{cut}… (2 more characters)"
    assert file.longrepr == file.reason == f"{cut}… (1 more character)"


# -- subtests


def part(run: Run, outcome: str, **more) -> None:
    """Let the report of a subtest arrive."""
    context = SimpleNamespace(msg="part", kwargs={"i": 1})
    log(run, "call", outcome, more.pop("longrepr", None), nodeid="A", context=context, **more)


UNSUPPORTED = {"longrepr": ("f.py", 1, "Skipped: no"), "cudalink_unsupported": True}


@pytest.mark.parametrize(
    ("subtests", "call", "expected"),
    [
        ([("passed", {})], PASSES, ("passed", "")),
        ([("passed", {}), ("failed", {})], PASSES, ("failed", "1 of 2 subtests failed")),
        ([("failed", {})], PASSES, ("failed", "1 of 1 subtest failed")),
        ([("failed", {})], SKIPS, ("failed", "1 of 1 subtest failed")),
        ([("failed", {})], FAILS, ("failed", "def test():")),
        ([("failed", {})], ("rerun", "again", {}), ("rerun", "again")),
        ([("failed", {})], ("failed", "died", {"cudalink_crashed": True}), ("crashed", "died")),
        ([("skipped", UNSUPPORTED), ("passed", {})], PASSES, ("unsupported", "no")),
        ([("skipped", UNSUPPORTED)], SKIPS, ("skipped", "why")),
        ([("skipped", UNSUPPORTED), ("failed", {})], PASSES, ("failed", "1 of 2 subtests failed")),
    ],
)
def test_subtests(run, records, subtests, call, expected) -> None:
    """A test fails with a subtest, and does not count as passed where a subtest was not supported."""
    log(run, "setup")
    for outcome, more in subtests:
        part(run, outcome, **more)
    log(run, "call", call[0], call[1], **call[2])
    log(run, "teardown")
    (record,) = records.written
    assert (record.outcome, record.reason) == expected
    names = ["unsupported" if more else outcome for outcome, more in subtests]
    assert record.subtests == [{"description": "part i=1", "outcome": name} for name in names]
    assert record.duration == 1.5


def test_a_subtest_that_failed_before_its_tear_down(run, records) -> None:
    """An error of the tear-down keeps its own words."""
    part(run, "failed")
    log(run, "teardown", "failed", "broken")
    assert [(record.outcome, record.reason) for record in records.written] == [("error", "broken")]


# -- attempts


def test_attempts_and_workers(run, records) -> None:
    """Attempts are counted for each worker and test; a plugin may tear an attempt down late or never."""
    log(run, "setup", node=SimpleNamespace(gateway=SimpleNamespace(id="gw1")))
    log(run, "call", "rerun", "again", worker_id="gw1")
    log(run, "setup", worker_id="gw1")
    log(run, "setup", worker_id="gw0")
    log(run, "setup", worker_id="gw1", nodeid="B")
    for name, nodeid in (("gw1", "A"), ("gw1", "B"), ("gw0", "A")):
        log(run, "teardown", worker_id=name, nodeid=nodeid)
    assert [(record.worker, record.nodeid, record.attempt, record.outcome) for record in records.written] == [
        ("gw1", "A", 1, "rerun"),
        ("gw1", "A", 2, "passed"),
        ("gw1", "B", 1, "passed"),
        ("gw0", "A", 1, "passed"),
    ]


def test_the_facts_of_an_attempt(run, records) -> None:
    """They are those of its last report; violations and links are summed."""
    plain = {"cause": {"kind": "skew"}, "documented": {"requirement": "a", "raises": "b"}, "missing": "a GPU"}
    facts = {
        "links": {"a/driver": 2, "b/driver": 1, "a/nvjitlink": 4},
        "violations": {"lifetimes": 1, "order": 2},
        "unsteered": {"x": 3, "y": 2},
        "refused": [{"function": "cuA", "note": ""}],
        **plain,
    }
    log(run, "setup", cudalink=facts)
    log(run, "teardown", cudalink=facts)
    log(run, "teardown", cudalink=None)
    log(run, "teardown")
    full, *empty = records.written
    assert (full.backends, full.links, full.violations) == ({"driver": 3, "nvjitlink": 4}, 7, 3)
    assert (full.unsteered, full.refused) == (5, facts["refused"])
    assert {name: getattr(full, name) for name in plain} == plain
    for attempt, record in enumerate(empty, 2):
        assert record == TestRecord(nodeid="A", attempt=attempt, outcome="passed", duration=0.5)


# -- files that are not collected


def collected(run: Run, longrepr: object, outcome: str = "failed", **more) -> None:
    """Let the report of a file arrive."""
    report = pytest.CollectReport("f.py", outcome, longrepr, [])
    vars(report).update(more)
    run.config.hook.pytest_collectreport(report=report)


def test_files_that_are_not_collected(run, records) -> None:
    """Each stands in the record like a test of its name, with the last line of its error or the reason of the skip."""
    collected(run, None, "passed")
    collected(run, "line\nE   ImportError: no  \n\n", cudalink_cause={"kind": "skew"})
    collected(run, "")
    collected(run, ("f.py", 1, "Skipped: why"), "skipped")
    common = {"nodeid": "f.py", "worker": None}
    assert records.written == [
        TestRecord(
            **common,
            outcome="error",
            reason="ImportError: no",
            longrepr="line\nE   ImportError: no",
            cause={"kind": "skew"},
        ),
        TestRecord(**common, attempt=2, outcome="error"),
        TestRecord(**common, attempt=3, outcome="skipped", reason="why"),
    ]
    finish(run)
    assert records.of(EndRecord)[0].counts == {"error": 2, "skipped": 1}


# -- the end


def test_the_end_of_a_run(run, records, monkeypatch) -> None:
    """It is written once, with the exit status that other plugins left; interrupted tests have no result."""
    log(run, "setup")
    log(run, "setup", nodeid="B")
    log(run, "call", "rerun", "again", nodeid="B", worker_id="gw0")
    run.failing.append("why")
    book = run.part(LEDGER)
    book.totals.sticky.append({"nodeid": "B", "worker": "gw0", "code": 700, "error": "E", "after": 2})
    book.totals.unlinked_modules = 3
    finish(run, 7)
    test, sticky, end = records.written[:3]
    assert (test.nodeid, test.worker, test.outcome) == ("B", "gw0", "rerun")
    assert sticky == StickyRecord(nodeid="B", worker="gw0", code=700, error="E", after=2)
    assert (end.exitstatus, end.counts, end.failing, end.unlinked_modules) == (7, {"rerun": 1}, ["why"], 3)
    assert 0 < end.duration < time.perf_counter()
    assert records.of(EndRecord) == [end]


def test_a_run_that_ends_before_its_session(run, records) -> None:
    """It has an end, too, and is no crash."""
    for cleanup in run.config.cleanups:
        cleanup()
    (end,) = records.written
    assert end == EndRecord(exitstatus=pytest.ExitCode.INTERNAL_ERROR, duration=end.duration, counts={})
    assert type(end.exitstatus) is int


@pytest.mark.parametrize(
    ("status", "fails", "code"), [(0, False, 0), (0, True, 3), (1, True, 3), (2, True, 2), (7, True, 7)]
)
def test_a_plugin_that_fails_after_the_session(run, records, status: int, fails: bool, code: int) -> None:
    """It ends pytest with an internal error, unless the session had ended early, which says more."""
    if fails:
        try:
            int("no number")
        except ValueError:
            finish(run, status)
    else:
        finish(run, status)
    assert [end.exitstatus for end in records.of(EndRecord)] == [code]


def test_a_run_without_calls_of_tests(run, records) -> None:
    """It fails nothing and says why it proves nothing; its tests replace those of an earlier run."""
    dropped: list[set[str]] = []
    run.config.pluginmanager.get_plugin("cudalink-record-file").drop_earlier = dropped.append
    run.config.option.setuponly = True
    log(run, "setup")
    log(run, "teardown")
    finish(run)
    (end,) = records.of(EndRecord)
    assert [line[:11] for line in end.failing] == ["no test ran"]
    assert dropped == [{"A"}]


@pytest.mark.parametrize(
    ("status", "calls", "written"),
    [
        (None, [("last_look", 1, "why"), ("fail_late", "why")], []),
        (0, [("last_look", 0, "why")], []),
        (0, [("last_look", 5, "why"), ("last_look", 5, "again"), ("fail_late", "why")], [(5, ["why"])]),
        (0, [("last_look", 5, "")], [(5, [])]),
        (0, [("fail_late", "why"), ("fail_late", "again")], [(1, ["why"])]),
        (7, [("fail_late", "why")], []),
    ],
)
def test_an_exit_code_that_changes_after_the_end(run, records, status, calls, written) -> None:
    """It is written once, with its reason; a failure that comes late changes only an exit code of 0."""
    if status is not None:
        finish(run, status)
    for name, *given in calls:
        getattr(run.part(RESULTS), name)(*given)
    lines = [json.loads(line) for line in records.path.read_text().splitlines()]
    assert [(line["exitcode"], line.get("output", [])) for line in lines if "exitcode" in line] == written


# -- workers that die


HOW = {"gw0": "os.kill(os.getpid(), 9)", "gw1": "os._exit(3)", "gw2": "os._exit(4)"}


@pytest.fixture(scope="module")
def died() -> Iterator[dict[str, SimpleNamespace]]:
    """Workers of xdist as its controller knows them after their end: real gateways, by name."""
    group, workers = execnet.Group(), {}
    for name, how in HOW.items():
        gateway = group.makegateway(f"popen//id={name}")
        channel = gateway.remote_exec(f"import os; channel.send(os.getpid()); channel.receive(); {how}")
        workers[name] = SimpleNamespace(gateway=gateway, workerinfo={"pid": channel.receive()})
        channel.send("now")
    yield workers
    group.terminate(timeout=1)


def test_workers_that_die(run, records, died, tmp_path, monkeypatch) -> None:
    """Each is recorded once, with its end and the last calls of its driver: with its test, else after all tests."""
    pid = died["gw0"].workerinfo["pid"]
    events = [json.dumps({"pid": of, "n": n}, separators=(",", ":")) for n, of in enumerate((pid, 1, pid))]
    (tmp_path / "events.jsonl").write_text("".join(f"{event}\n" for event in events))
    monkeypatch.setenv("CUDALINK_EMULATOR_EVENTS", str(tmp_path / "events.jsonl"))
    unknown, sound = (
        SimpleNamespace(gateway=SimpleNamespace(id=name), workerinfo={"pid": 7}) for name in ("gw3", "gw4")
    )
    for node in (died["gw0"], died["gw1"]):
        log(run, "setup", node=node)
    for node, error in ((sound, None), *((node, "Not properly terminated") for node in (*died.values(), unknown))):
        run.part(RESULTS).pytest_testnodedown(node, error)
    for node in (died["gw0"], died["gw1"], unknown):
        log(run, "???", "failed", "worker crashed", node=node)
    finish(run)
    of_tests = [(test.worker, test.outcome, test.reason) for test in records.of(TestRecord)]
    assert of_tests == [(name, "crashed", "worker crashed") for name in ("gw0", "gw1", "gw3")]
    assert records.of(CrashRecord) == [
        CrashRecord(nodeid="A", worker="gw0", signal="SIGKILL", last_events=[events[0], events[2]]),
        CrashRecord(nodeid="A", worker="gw1", exitcode=3),
        CrashRecord(nodeid="A", worker="gw3"),
        CrashRecord(worker="gw2", exitcode=4),
    ]


def test_a_crash_that_is_told_already(run, records, died, monkeypatch) -> None:
    """A signal let the process write how it ended; a report without a worker, or events, is recorded as it is."""
    monkeypatch.delenv("CUDALINK_EMULATOR_EVENTS", raising=False)
    written = {"event": "crash", "nodeid": "A", "worker": "gw0"}
    records.path.write_text(f"{json.dumps(written)}\n")
    log(run, "???", "failed", "died", node=died["gw0"])
    assert records.of(CrashRecord) == []
    log(run, "???", "failed", "died", nodeid="B")
    assert records.of(CrashRecord) == [CrashRecord(nodeid="B")]
    finish(run)
    assert len(records.of(CrashRecord)) == 1


# -- JUnit


def test_properties_of_the_suite(run, monkeypatch) -> None:
    """A JUnit report has what was found, with its source; what was not found is left out."""
    known = {"driver": EnvironmentFact("13.0", "emulated", "S"), "ctk": EnvironmentFact(None, source="T")}
    known["nvjitlink"] = EnvironmentFact("12.9", source="N")
    added = []
    monkeypatch.setattr(results, "Environment", lambda: known)
    monkeypatch.setattr(pytest_private, "add_suite_property", lambda config, *given: added.append(given))
    results.add_properties(run.config, results.environment_facts())
    assert added == [("cudalink.driver", f"{known['driver']} (S)"), ("cudalink.nvjitlink", f"{known['nvjitlink']} (N)")]
