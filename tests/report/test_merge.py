"""Record files in, one run for each cell out."""

import json
import re
import sys
from pathlib import Path
from typing import Self

import pytest

from pytest_cudalink.report.cell_run import CellRun, Detail
from pytest_cudalink.report.matrix_report import MatrixReport, Plan
from pytest_cudalink.report.merge import joined, merge
from pytest_cudalink.report.origin import Origin
from pytest_cudalink.report.records import CrashRecord, RecordError
from pytest_cudalink.report.wording import call_in_words

RUN = {"event": "run", "time": 5.0, "schema": 1, "run": "0" * 32, "cell": "c"}
END = {"event": "end", "time": 9.0, "exitstatus": 0, "duration": 2.5}


def lines(file: Path, *events: dict) -> Path:
    """A record file with these events between a run and its end."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{json.dumps(event)}\n" for event in events), encoding="utf-8")
    return file


def result(nodeid: str = "t.py::t", outcome: str = "passed", **others: object) -> dict:
    """A test's event."""
    return {"event": "test", "time": 6.0, "nodeid": nodeid, "attempt": 1, "outcome": outcome, **others}


def cell_of(file: Path) -> CellRun:
    (cell,) = merge([file]).cells
    return cell


T = "t.py::t"
RERUN = result(outcome="rerun", reason="flaky")
DOCUMENTED = {"requirement": "driver >= 13.2", "raises": "222"}
NO_ARCH = {"requested": None, "found": None}
LETTERS = {"passed": "P", "failed": "F", "error": "E", "skipped": "S", "xfailed": "x", "xpassed": "X", "crashed": "C"}


def version(release: str | None) -> dict:
    return {"requested": None, "found": release, "source": "a wheel", "kind": "real"}


def link(backend: str, outcome: str = "ok") -> dict:
    return {"event": "link", "backend": backend, "result": outcome}


LONG = Detail("", "x" * 4000 + "… (1,000 more characters)"), Detail("x" * 1000 + "… (1 more character)")
SET = {name: {"value": name[0], "source": "x"} for name in ("backend", "policy", "report")}
OF_A_CELL = {"axes": {"cuda-core": "1.0.0", "kind": "bare"}, "hidden": "by a mount namespace: /opt"}
FOUND = {"event": "found", "versions": {"driver": version("13.0.1")}, "arch": {**NO_ARCH, "found": "sm_90"}}
LINKS = [link("driver"), link("driver", "X"), link("nvjitlink"), link("unknown", "Y"), {"event": "link"}]
ENDED = {"event": "exit", "exitcode": 1, "output": ["a", "b"]}


@pytest.mark.parametrize(
    ("events", "values"),
    [
        *(  # every outcome has a letter; only a pass has no details
            (
                [result(outcome=outcome, reason="why", longrepr="how", duration=2), END],
                {"outcomes": {T: letter}, "details": {} if letter == "P" else {T: Detail("why", "how")}},
            )
            for outcome, letter in LETTERS.items()
        ),
        ([result(duration=2), END], {"durations": {T: 2.0}}),
        # a test that fails as documented has a letter of its own; one whose tear-down then errors is an error
        ([result(documented=DOCUMENTED, reason="other"), END],
         {"outcomes": {T: "D"}, "details": {T: Detail("driver >= 13.2 not met: 222")}}),
        *(
            ([result(outcome=outcome, documented=DOCUMENTED), END], {"outcomes": {T: LETTERS[outcome]}})
            for outcome in ("error", "failed", "crashed", "skipped")
        ),
        # a rerun is counted and is not a result; a pass removes what an earlier attempt said
        ([RERUN, RERUN, result(outcome="failed", reason="flaky"), result(), END],
         {"reruns": 2, "outcomes": {T: "P"}, "details": {}}),
        ([RERUN, result("u", "failed"), END], {"reruns": 1, "outcomes": {"u": "F"}, "details": {"u": Detail()}}),
        # texts of other tools may be longer than ours
        ([result(outcome="failed", longrepr="x" * 5000), result("u", "failed", reason="x" * 1001), END],
         {"details": dict(zip((T, "u"), LONG, strict=True))}),
        # a link that failed is counted twice; one that was refused before a choice has no backend to fail on
        ([*LINKS, END], {"links": {"driver": 2, "driver failed": 1, "nvjitlink": 1, "none": 2}}),
        # what a run was set to is an axis, and so is its Python
        ([{**RUN, "settings": SET, "python": "3.12.1"}, END],
         {"axes": {"backend": "b", "policy": "p", "python": "3.12"}, "python": "3.12.1"}),
        # what a cell chose besides settings is an axis of it, and what it hid is kept
        ([{**RUN, **OF_A_CELL}, END], OF_A_CELL),
        # versions are axes as major and minor; what a run has none of is "none", but for an architecture
        *(
            ([{**RUN, "versions": {name: version(number)}, "arch": NO_ARCH}, END], {"axes": {name: axis}})
            for name in ("ctk", "driver", "nvjitlink")
            for number, axis in (("13.0.88", "13.0"), (None, "none"))
        ),
        ([FOUND, END], {"axes": {"driver": "13.0", "arch": "sm_90"}}),
        # a record without an end is a crash, also where every test that began has a result
        ([result()], {"crashes": [CrashRecord()]}),
        ([{"event": "start", "nodeid": "t", "worker": None, "attempt": 1}], {"crashes": [CrashRecord(nodeid="t")]}),
        # the end names why a run failed without a failing test
        ([result(), {**END, "exitstatus": 1, "failing": ["too few links"]}],
         {"problems": ["too few links"], "fault": "too few links"}),
        # the end of the process is a problem, with what it wrote, and explains an exit code
        ([result(), END, {"event": "exit", "exitcode": -9}], {"problems": ["the process was killed by SIGKILL"]}),
        ([result(), {**END, "exitstatus": 1}, ENDED], {"problems": ["the process ended with exit code 1: a | b"]}),
    ],
)  # fmt: skip
def test_what_a_cell_has_of_its_events(events, values, tmp_path) -> None:
    """The comments say what of each."""
    cell = cell_of(lines(tmp_path / "c.jsonl", *([] if "schema" in events[0] else [RUN]), *events))
    assert {name: getattr(cell, name) for name in values} == values
    assert not cell.damage


def test_why_a_cell_of_a_saved_report_is_missing(tmp_path) -> None:
    saved = MatrixReport([], ["a", "b"], reasons={"a": "no Python", "b": "no toolkit"})
    (tmp_path / "r.json").write_text(saved.as_json())
    report = merge([tmp_path / "r.json"], reasons={"b": "no disk"})
    why = {name: report.why_missing(name) for name in report.missing}
    assert why == {"b": "no records: no disk", "a": "no records: no Python"}


def test_keys_that_a_record_lacks(tmp_path) -> None:
    """Node ID and outcome are enough."""
    failed = {"event": "test", "nodeid": "t.py::t", "outcome": "failed"}
    cell = cell_of(lines(tmp_path / "x.jsonl", {"event": "run", "time": 5, "schema": 1}, failed, {"event": "end"}))
    of_test = {"outcomes": {T: "F"}, "durations": {T: 0.0}, "details": {T: Detail()}}
    started = Origin(started="1970-01-01T00:00:05Z")
    assert cell == CellRun("x", [str(tmp_path / "x.jsonl")], finished=True, origins=[started], **of_test)


def test_a_run_without_an_end(tmp_path) -> None:
    """A test that began and has no result crashed; a crash that was written down is not counted twice."""
    starts = [{"event": "start", "time": 5.5, "nodeid": name} for name in ("a", "b", "c")]
    crash = {"event": "crash", "time": 6.0, "nodeid": "b", "signal": "SIGSEGV"}
    cell = cell_of(lines(tmp_path / "c.jsonl", RUN, *starts, result("a"), crash))
    assert cell.outcomes == {"a": "P", "b": "C", "c": "C"}
    reason = "the process ended while this test ran"
    assert {test: detail.reason for test, detail in cell.details.items()} == {"b": f"{reason}, by SIGSEGV", "c": reason}
    assert "ended by SIGSEGV" in cell.details["b"].text
    assert all("--cudalink-processes=isolated" in detail.text for detail in cell.details.values())
    assert all(len(detail.text.splitlines()) == 2 for detail in cell.details.values()), "a title without lines"
    assert [(crash.nodeid, crash.signal) for crash in cell.crashes] == [("b", "SIGSEGV"), ("c", None)]
    assert not cell.finished
    assert not cell.truncated
    ended = cell_of(lines(tmp_path / "e.jsonl", RUN, *starts, result("a"), END))
    assert (ended.outcomes, ended.crashes) == ({"a": "P"}, [])


def test_lost_tests(tmp_path) -> None:
    """What was collected and has no result is lost after a crash, and not run where the run was stopped."""
    collected = {"event": "collected", "time": 5.2, "tests": {"t.py": ["a", "b", "c"], "whole.txt": [""]}}
    start = {"event": "start", "time": 5.5, "nodeid": "t.py::b"}
    cell = cell_of(lines(tmp_path / "c.jsonl", RUN, collected, result("t.py::a"), start, {**start, "nodeid": ""}))
    assert cell.lost == cell.without_result == ["t.py::c", "whole.txt"]
    assert cell.fault == "the run did not finish (2 tests recorded, 2 lost)"
    stopped = cell_of(lines(tmp_path / "d.jsonl", RUN, collected, result("t.py::a"), END))
    assert (stopped.lost, stopped.without_result) == ([], ["t.py::b", "t.py::c", "whole.txt"])
    assert stopped.fault == "the run stopped early: 3 tests not run"
    later = cell_of(lines(tmp_path / "e.jsonl", RUN, result("t.py::b"), result("t.py::c"), result("whole.txt"), END))
    assert not stopped.joined(later).fault
    half = cell_of(lines(tmp_path / "f.jsonl", RUN, collected, result("t.py::b"), END))
    assert stopped.joined(half).without_result == ["t.py::c", "whole.txt"]


def loaded(**values: str) -> dict:
    """The event of a loaded library."""
    texts = dict.fromkeys(("soname", "path", "real_path", "owner", "version", "witness", "for_whom", "during"), "")
    return {**texts, "event": "library", "time": 5.5, "nodeid": None, "worker": None, "place": "wheels", **values}


def test_libraries_of_a_cell_and_its_shards(tmp_path) -> None:
    """Each is kept once, whichever process, run or shard loaded it again; another file or owner is another library."""
    cudart, other = loaded(name="libcudart", real_path="/a"), loaded(name="libcudart", real_path="/b")
    nvrtc = loaded(name="libnvrtc", real_path="/a")
    one_shard = cell_of(lines(tmp_path / "a.jsonl", RUN, cudart, other, {**cudart, "nodeid": "t.py::t"}, END))
    both = [("libcudart", "/a", None), ("libcudart", "/b", None)]
    assert [(library.name, library.real_path, library.nodeid) for library in one_shard.libraries] == both
    later = cell_of(lines(tmp_path / "b.jsonl", RUN, nvrtc, {**cudart, "nodeid": "t.py::later"}, END))
    joined = {(library.name, library.real_path, library.nodeid) for library in one_shard.joined(later).libraries}
    assert (joined, len(one_shard.joined(later).libraries)) == ({*both, ("libnvrtc", "/a", None)}, 3)


@pytest.mark.parametrize(
    ("events", "cut", "seconds"),
    [
        ([RUN, {**result(), "time": 7.5}], "", 2.5),
        ([RUN, result(), {"event": "start", "time": 8.25, "nodeid": "x"}], "", 3.25),
        ([RUN, {**result(), "time": 7.5}, {"event": "link"}], "", 2.5),
        ([RUN, {**result(), "time": 7.5}], '{"event": "test", "time": 9', 2.5),
        ([RUN, {**result(), "time": 4.0}], "", 0.0),
        ([{**RUN, "time": None}, {**result(), "time": 7.5}], "", 0.0),
        ([{**result(), "time": 7.5}], "", 0.0),
        ([RUN, {**result(), "time": 7.5}, END], "", 2.5),
        ([RUN, {**result(), "time": 7.5}, {**RUN, "time": 20.0}, {**result(), "time": 21.0}, END], "", 5.0),
        ([RUN, {**result(), "time": 7.5}, {**RUN, "time": 20.0}, {**result(), "time": 21.0}], "", 3.5),
    ],
)
def test_a_run_without_an_end_took_until_its_last_event(events, cut, seconds, tmp_path) -> None:
    """Each run of a file for itself; a line that is cut may lack digits of its time, and an end knows better."""
    file = lines(tmp_path / "c.jsonl", *events)
    file.write_text(file.read_text() + cut)
    assert cell_of(file).duration == seconds


def test_several_runs_in_one_file(tmp_path) -> None:
    """Each is a record, with its own cell: files may be appended to one another."""
    start = {"event": "start", "time": 5.5, "nodeid": "cut"}
    events = (RUN, start, result("cut"), END, {**RUN, "cell": "d"}, result("new"))
    first, second = merge([lines(tmp_path / "c.jsonl", *events)]).cells
    assert (first.name, first.outcomes, first.finished, first.fault) == ("c", {"cut": "P"}, True, "")
    assert (second.name, second.outcomes, second.finished, second.damage) == ("d", {"new": "P"}, False, [])


@pytest.mark.parametrize("schema", [0, 2, None, "1", True, [1]])
def test_a_format_of_another_version(schema, tmp_path) -> None:
    """The line is named, and what to do; nothing is read of that run, and the other cells are reported."""
    lines(tmp_path / "b.jsonl", {**RUN, "schema": schema}, result(), END)
    lines(tmp_path / "d.jsonl", {**RUN, "cell": "d"}, result(), END)
    newer, sound = merge([tmp_path]).cells
    words = f"line 1: run.schema is {schema!r}; this version reads formats up to 1; install a newer pytest-cudalink"
    assert (newer.name, newer.outcomes, newer.fault) == ("c", {}, f"{tmp_path / 'b.jsonl'}: {words}")
    assert (sound.name, sound.outcomes, sound.fault) == ("d", {"t.py::t": "P"}, "")
    for end, said in (((END,), ""), ((), "the run did not finish (1 test recorded); ")):  # of another shard
        (cell,) = merge([tmp_path / "b.jsonl", lines(tmp_path / "2.jsonl", RUN, result(), *end)]).cells
        assert cell.fault == f"{said}{cell.damage[0]}"


@pytest.mark.parametrize("end", [(END,), ()])
def test_nothing_is_claimed_of_events_that_are_not_read(end, tmp_path) -> None:
    """A run of a newer format has no crash, no lost test and no axis, and explains nothing."""
    versions = {"ctk": version("13.0")}
    events = ({"event": "start", "time": 5.5, "nodeid": "t.py::t"}, {"event": "start", "time": [], "nodeid": "t.py::u"})
    lines(tmp_path / "b.jsonl", {**RUN, "schema": 99, "cell": "b", "versions": versions}, *events, *end)
    for name, ctk, outcome in (("c", "13.0", "passed"), ("d", "12.9", "failed")):
        one_run = {**RUN, "cell": name, "versions": {"ctk": version(ctk)}}
        lines(tmp_path / f"{name}.jsonl", one_run, result(outcome=outcome), END)
    report = merge([tmp_path])
    newer = report.cells[0]
    assert (newer.name, newer.crashed, newer.crashes, newer.lost) == ("b", 0, [], [])
    assert (newer.axes, newer.outcomes) == ({}, {})
    assert newer.fault == newer.damage[0]
    assert report.not_run == {}
    report.plan = Plan({name: {"ctk": ctk} for name, ctk in (("b", "13.2"), ("c", "13.0"), ("d", "12.9"))})
    assert [test.explanation for test in report.partial] == ["ctk 12.9"]
    assert list(report.plan.lacking(report.cells)) == []
    (tmp_path / "saved.json").write_text(report.as_json())
    assert merge([tmp_path / "saved.json"]).cells == report.cells


def test_empty_lines_are_no_error(tmp_path) -> None:
    """An empty line in the middle is passed over; other text there is named, and the rest is read."""
    file = lines(tmp_path / "c.jsonl", RUN, result(), END)
    file.write_text(file.read_text().replace("\n", "\n\n"))
    assert cell_of(file).outcomes == {"t.py::t": "P"}
    assert not cell_of(file).truncated
    file.write_text(file.read_text().replace("\n\n", "\nx\n"))
    cell = cell_of(file)
    assert cell.damage == [f"{file}: line {number} is not an event" for number in (2, 4, 6)]
    assert (cell.outcomes, cell.truncated, cell.finished) == ({"t.py::t": "P"}, False, True)


def test_a_file_that_was_cut_in_its_first_line(tmp_path) -> None:
    """A process that died at once leaves a cell without tests, named for its file; other text is a fault."""
    file = tmp_path / "c.jsonl"
    file.write_text('{"event": "ru')
    cell = cell_of(file)
    assert (cell.name, cell.truncated, cell.finished, cell.outcomes) == ("c", True, False, {})
    assert cell.fault == "the run did not finish (0 tests recorded), and the file is cut"
    file.write_text('{"event": "ru\n')
    assert cell_of(file).fault == f"{file}: line 1 is not an event"
    file.write_text('{"event": "run", "cell": "ctk-\\u0031", "py')
    assert cell_of(file).name == "ctk-1"
    file.write_text('{"event": "run", "cell": "", "py')
    assert cell_of(file).name == "c"
    file.write_text('{"event": "run", "cell": "ctk-\\u00')
    assert cell_of(file).name == "c"


def test_order_of_the_cells(tmp_path) -> None:
    """Expected cells come first, in their order; then the others by name. A saved report has an order too."""
    for name in "abcd":
        lines(tmp_path / f"{name}.jsonl", {**RUN, "cell": name}, END)

    def names(*paths: Path, expected: tuple[str, ...] = ()) -> tuple[list[str], list[str]]:
        report = merge(paths, expected)
        return [cell.name for cell in report.cells], report.missing

    assert names(tmp_path) == (["a", "b", "c", "d"], [])
    assert names(tmp_path, expected=("d", "gone", "b")) == (["d", "b", "a", "c"], ["gone"])
    (tmp_path / "old.json").write_text(merge([tmp_path / "c.jsonl", tmp_path / "b.jsonl"], ["c", "a"]).as_json())
    assert names(tmp_path / "old.json") == (["c", "b"], ["a"])
    assert names(tmp_path / "old.json", tmp_path) == (["c", "b", "a", "d"], [])
    assert names(tmp_path / "old.json", expected=("b",)) == (["b", "c"], ["a"])


class Pool:
    """Stands for ProcessPoolExecutor: it reads in this process, and remembers how it was asked to."""

    made: list[tuple[int, str, int]]

    def __init__(self, workers: int, context) -> None:
        self.asked = workers, context.get_start_method()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, function, files, chunksize: int):
        self.made.append((*self.asked, chunksize))
        return map(function, files)


@pytest.mark.parametrize(
    ("files", "processors", "pool"),
    [
        (7, 4, None),
        (8, 4, (4, "spawn", 1)),
        (9, 20, (9, "spawn", 1)),
        (8, 1, None),
        (8, None, None),
        (40, 2, (2, "spawn", 5)),
    ],
)
def test_how_many_processes_read(files, processors, pool, tmp_path, monkeypatch) -> None:
    """From eight files on one for each processor; never more than files; each gets its files in a few portions."""
    for number in range(files):
        lines(tmp_path / f"{number}.jsonl", {**RUN, "cell": str(number)}, END)
    module = sys.modules[merge.__module__]
    monkeypatch.setattr(module, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr("os.cpu_count", lambda: processors)
    Pool.made = []
    assert len(merge([tmp_path]).cells) == files
    assert Pool.made == ([] if pool is None else [pool])


UNSTEERED = {"event": "unsteered", "time": 6.5, "nodeid": "t.py::t", "worker": None, "via": "cuda.bindings.nvjitlink"}
UNSTEERED |= {"call": "nvJitLinkComplete", "where": "helper.py:3", "backend": "nvjitlink", "result": "ok"}
UNSTEERED |= {"forced": None}


def test_unsteered_links_are_counted_by_place(tmp_path) -> None:
    """Whatever test made them; those of all records of a cell, and the modules that no seen link made, add up."""
    other = {**UNSTEERED, "where": "", "forced": "driver"}
    lines(tmp_path / "a.jsonl", RUN, UNSTEERED, other, {**UNSTEERED, "nodeid": None}, {**END, "unlinked_modules": 2})
    lines(tmp_path / "b.jsonl", {**RUN, "time": 7.0}, UNSTEERED, {**END, "unlinked_modules": 1})
    (cell,) = merge([tmp_path]).cells
    assert {use.via for use in cell.unsteered} == {"cuda.bindings.nvjitlink"}
    assert [(use.where, use.forced, use.number) for use in cell.unsteered] == [
        ("helper.py:3", None, 2),
        ("", "driver", 1),
        ("helper.py:3", None, 1),
    ]
    assert cell.not_steered == 1  # nothing was forced where the others were made
    assert (cell.unlinked_modules, cell.links, cell.damage) == (3, {}, [])


def test_shards_that_began_together_are_joined_by_name(tmp_path) -> None:
    """Not in the order in which the file system lists them."""
    names = [str(number * 3 % 7) for number in range(7)]  # eight would be read by other processes
    for name in names:
        lines(tmp_path / f"{name}.jsonl", RUN, END)
    (cell,) = merge([tmp_path]).cells
    assert [Path(file).stem for file in cell.files] == sorted(names)
    lines(tmp_path / "6.jsonl", {**RUN, "time": RUN["time"] / 2}, END)
    assert Path(merge([tmp_path]).cells[0].files[0]).stem == "6"  # it began first


def test_without_records(tmp_path) -> None:
    """The error names every place, so that a typing error is seen; where no cell could run, the report says why."""
    places = [tmp_path / "a", tmp_path / "b"]
    for place in places:
        place.mkdir()
    words = f"there are no records (*.jsonl) in {places[0]}, {places[1]}; run the cells first"
    with pytest.raises(RecordError, match=f"^{re.escape(words)}$"):
        merge(places)
    report = merge([tmp_path], reasons={"a": "no Python 3.13 here"})
    assert (report.cells, report.missing, report.reasons) == ([], ["a"], {"a": "no Python 3.13 here"})


@pytest.mark.parametrize("files", [2, pytest.param(9, marks=pytest.mark.slow)])
def test_progress_is_called_for_each_record(files, tmp_path):
    for number in range(files):
        lines(tmp_path / f"c{number}.jsonl", RUN, END)
    seen = []
    merge([tmp_path], progress=lambda *step: seen.append(step))
    assert seen == [(number, files) for number in range(1, files + 1)]


REFUSED, OTHER = '{"call":"cuL","note":"why","unsupported":true}', '{"call":"cuLast"}'


@pytest.mark.parametrize(("events", "after"), [([OTHER, REFUSED], True), ([REFUSED, OTHER], False), ([], False)])
def test_the_story_of_a_crash(tmp_path, events, after) -> None:
    """Calls and frames follow their titles; the reason names a refused call, if it is the last event of the process."""
    crash = {"event": "crash", "time": 6.0, "nodeid": "t", "worker": None, "exitcode": 3, "last_events": events}
    start = {"event": "start", "time": 5.5, "nodeid": "t"}
    for signal, frames in ((None, ["f.py:3"]), ("SIGABRT", [])):
        ended = {**crash, "signal": signal, "frames": frames}
        cell = cell_of(lines(tmp_path / "c.jsonl", RUN, start, ended))
        reason = "the process ended while this test ran" + (f", by {signal}" if signal else "")
        reason += ", after the emulated driver refused cuL: why" if after else ""
        assert (cell.outcomes["t"], cell.details["t"].reason) == ("C", reason)
        calls = ["last calls of the driver:", *(f"  {call_in_words(event)}" for event in events)] if events else []
        assert cell.details["t"].text.splitlines()[1:] == [
            *(*calls, *(["frames:", "  f.py:3"] if frames else [])),
            "Run with --cudalink-processes=isolated or restarted, so that a crash ends one test only.",
        ]


def test_tests_of_several_records() -> None:
    """Those with one outcome are counted; the others have each outcome with its files, or the number of the record."""
    first = CellRun("c", ["a.jsonl", "b.jsonl"], outcomes={"same": "P", "other": "F", "alone": "P"}, repeated=2)
    second, third = CellRun("c", outcomes={"same": "P", "new": "S"}), CellRun("c", outcomes={"same": "P", "other": "P"})
    cell = joined([first, second, third])
    assert cell.outcomes == {"same": "P", "other": "P", "alone": "P", "new": "S"}
    assert cell.differing == {"other": [["F", "a.jsonl, b.jsonl"], ["P", "record 3"]]}
    assert cell.repeated == 3
