"""The results of a cell and of all cells, without files."""

import json
from dataclasses import replace

import pytest

from pytest_cudalink.report import views
from pytest_cudalink.report.cell_run import CellRun, Detail, UnsteeredLinks
from pytest_cudalink.report.matrix_report import MatrixReport, _saved_cell
from pytest_cudalink.report.records import CrashRecord, FindingRecord, RecordError, ViolationRecord
from pytest_cudalink.report.wording import cause_of

from .samples import LAUNCH, SKEW


def cell(name: str, outcomes: dict[str, str], **others) -> CellRun:
    """A cell whose run finished."""
    return CellRun(name, outcomes=outcomes, **{"finished": True, "exitstatus": 0, **others})


def test_faults() -> None:
    """Why a run is incomplete, in words; green and red runs are whole, and so is one whose exit status is not known."""
    assert [cell("c", {}, exitstatus=status).fault for status in (None, 0, 1)] == [""] * 3
    unfinished = cell("c", {"a": "P", "b": "P"}, finished=False, exitstatus=None)
    assert unfinished.fault == "the run did not finish (2 tests recorded)"
    unfinished.truncated = True
    assert unfinished.fault == "the run did not finish (2 tests recorded), and the file is cut"
    ends = {2: "it was interrupted, or a file could not be collected", 3: "an internal error"}
    ends |= {4: "it was called with wrong arguments", 5: "no tests were collected, or all were deselected"}
    ends |= {6: "more warnings than --max-warnings allows"}
    ends |= dict.fromkeys((99, -9), "a plugin or pytest.exit chose it")
    for status, why in ends.items():
        assert cell("c", {}, exitstatus=status).fault == f"pytest ended with exit code {status}: {why}"
    damaged = cell("c", {}, exitstatus=3, damage=["c.jsonl:2 is cut"])
    assert damaged.fault == "pytest ended with exit code 3: an internal error; c.jsonl:2 is cut"
    assert CellRun("c", damage=["c.jsonl:2 is cut"]).fault == "c.jsonl:2 is cut"
    stopped = cell("c", {}, exitstatus=99, without_result=["a"])
    assert stopped.fault == "pytest ended with exit code 99: a plugin or pytest.exit chose it; 1 test not run"
    both = cell("c", {}, without_result=["a"], problems=["too few links"])
    assert both.fault == "the run stopped early: 1 test not run; too few links"
    both.crashes = [CrashRecord()]
    assert both.fault == "the run stopped early: 1 test lost in a crash; too few links"
    assert cell("c", {}, damage=["a", "b", "c"]).fault == "a; b; c"
    assert cell("c", {}, damage=[*"abcde"]).fault == "a; b; c; and 2 other faults of the records"


@pytest.mark.parametrize(
    ("requested", "present", "kind", "mismatch"),
    [
        (None, "13.0", "real", None),
        ("auto", "13.0", "real", None),
        ("latest", None, "absent", None),
        *(("real", "13.0", kind, None) for kind in ("real", None, "")),
        ("real", "13.0", "emulated", ("v", "real", "13.0 emulated")),
        ("real", None, "absent", ("v", "real", "absent")),
        ("real", None, "real", ("v", "real", "real")),
        ("absent", None, "absent", None),
        ("absent", "13.0", "absent", None),
        ("absent", None, "real", None),
        ("absent", "13.0", "real", ("v", "absent", "13.0")),
        ("none", "13.0", "real", ("v", "none", "13.0")),
        ("none", None, "real", None),
        *((asked, "13.0.2", "real", None) for asked in ("13.0.2", "13.0", "13")),
        ("13.1", "13.10", "real", ("v", "13.1", "13.10")),
        ("13.0", "13.2", "real", ("v", "13.0", "13.2")),
        ("13.0", None, "absent", ("v", "13.0", "none")),
    ],
)
def test_mismatches(requested, present, kind, mismatch) -> None:
    """A version that is not the requested one is found; a prefix of whole parts is the same version."""
    version = {"requested": requested, "found": present, "source": "", "kind": kind}
    assert cell("c", {}, versions={"v": version}).mismatches == ([mismatch] if mismatch else [])


@pytest.mark.parametrize(
    ("requested", "resolved", "present", "mismatch"),
    [
        ("13.0.*", None, "13.0.3", None),
        ("13.0.*", None, "13.1.0", ("p", "13.0.*", "13.1.0")),
        ("1.0.0", None, "1.0.0", None),
        ("1.0.0", None, "1.0.0.post1", ("p", "1.0.0", "1.0.0.post1")),
        (">=1,<2", None, "1.5rc1", None),
        (">=1,<2", None, "2.0", ("p", ">=1,<2", "2.0")),
        ("latest", None, "7", None),
        ("latest", None, None, ("p", "latest", "none")),
        ("lowest", None, "7", None),
        ("lowest", "1.2", "1.2", None),
        ("lowest", "1.2", "1.3", ("p", "lowest, 1.2", "1.3")),
        ("1.0.0", None, "not a version", ("p", "1.0.0", "not a version")),
        (None, None, "7", None),
        ("<2", None, "1.5", None),
        ("a word", None, "a word", None),
        ("a word", None, "another", ("p", "a word", "another")),
    ],
)
def test_mismatches_of_packages(requested, resolved, present, mismatch) -> None:
    """A package that a cell asks for in one version and has in another is found, by the rules of requirements."""
    version = {"requested": requested, "found": present, "source": "", "kind": "real"}
    version |= {"resolved": resolved} if resolved else {}
    mixed = cell("c", {}, versions={"p": version}, axes={"p": str(present)})
    assert mixed.mismatches == ([mismatch] if mismatch else [])
    part = {"requested": "13.0", "found": "13.0.2", "source": "", "kind": "real"}  # of the toolkit, though an axis too
    assert cell("c", {}, versions={"ctk": part}, axes={"ctk": "13.0"}).mismatches == []


@pytest.mark.parametrize("axes", [{"arch": "sm_120"}, {"arch": "sm_90"}, {}], ids=["its", "another", "unknown"])
def test_a_known_bad_combination_of_one_architecture(axes) -> None:
    """It is named on that architecture only; a version without a value meets nothing."""
    linker, compiler = {"found": "12.8.93"}, {"found": "13.0.88"}
    versions = {"nvidia-nvjitlink-cu12": linker, "nvidia-cuda-nvrtc": compiler, "numba": {}}
    known = cell("c", {"t": "F"}, versions=versions, axes=axes).known_bad
    assert [entry.arch for entry in known if entry.arch] == (
        [("sm_100", "sm_100f", "sm_120")] if axes == {"arch": "sm_120"} else []
    )


@pytest.mark.parametrize(("driver", "number"), [("13.0", 1), ("12.9", 0), (None, 0)])
def test_a_known_bad_combination_of_a_driver(driver, number) -> None:
    """It is named where the recorded driver meets it, with failures alone; `tests.report.forms` has its words."""
    versions = {"numba": {"found": "0.61.2"}, "driver": {"found": driver}}
    report = MatrixReport([cell(letter, {"t": letter}, versions=versions) for letter in "FP"])
    named = [row[0] for section in views.sections(report) if section.id == "known" for row in section.rows]
    assert named == ["F"] * number


def test_what_joined_runs_keep() -> None:
    """Lists and numbers of both add up, and one unread record is enough."""
    values = {"violations": 1, "verdicts": 1, "sticky": 1, "crashes": 1, "findings": 1, "problems": 1}
    values |= {"damage": 1, "unsteered": 1}
    first = cell("c", {}, **{name: [f"{name} 1"] for name in values}, repeated=2, differing={"a": []})
    second = cell("c", {}, **{name: [f"{name} 2"] for name in values}, repeated=1, differing={"b": []})
    joined = first.joined(second)
    assert {name: getattr(joined, name) for name in values} == {name: [f"{name} 1", f"{name} 2"] for name in values}
    assert (joined.repeated, joined.differing, joined.hidden, joined.unread) == (3, {"a": [], "b": []}, "", False)
    of_later = {"python": "3.13", "platform": "linux", "details": {"t": Detail("why")}}
    marked = cell("c", {}, hidden="/opt", unread=True, **of_later)
    assert {name: getattr(first.joined(marked), name) for name in of_later} == of_later
    for either in (first.joined(marked), marked.joined(first)):
        assert (either.hidden, either.unread) == ("/opt", True)
    linked = cell("c", {"t": "."}, links={"driver": 2}, origins=["a"])
    again = marked.joined(linked).joined(linked)  # the test passed, so that there is nothing to say of it
    assert (again.details, again.links, again.origins) == ({}, {"driver": 4}, ["a"])
    assert marked.joined(first).details == marked.details  # of a test that the later run leaves out
    cut = cell("c", {}, finished=False)
    assert [cell.finished for cell in (first.joined(cut), cut.joined(first), joined)] == [False, False, True]
    assert CellRun("c").joined(CellRun("c")).exitstatus is None
    assert CellRun("c").joined(CellRun("c", exitstatus=1)).exitstatus == 1
    killed, failed = CellRun("c", exitstatus=-9), CellRun("c", exitstatus=1)  # a failed test does not hide a signal
    assert killed.joined(failed).exitstatus == failed.joined(killed).exitstatus == -9


def test_a_package_that_no_cell_has() -> None:
    """It is no column; one that a cell asked for is, and so are toolkit, driver and nvJitLink."""
    absent, asked = {"requested": None, "found": None}, {"requested": "1.0", "found": None}
    first = cell("a", {}, versions={**dict.fromkeys(("numba", "cupy", "driver", "nvjitlink"), absent), "warp": asked})
    second = cell("b", {}, versions={"numba": absent, "cupy": {"requested": None, "found": "13"}, "ctk": absent})
    report = MatrixReport([first, second])
    assert report.version_names == ["ctk", "cupy", "driver", "nvjitlink", "warp"]
    shown = {section.id: section for section in views.sections(report)}["versions"].rows
    expected = {"a": ("cupy", "driver", "nvjitlink", "warp"), "b": ("ctk", "cupy")}
    assert [row[:2] for row in shown] == [
        (name, version) for name, versions in expected.items() for version in versions
    ]


def test_tests_are_sorted_by_file_only() -> None:
    """Within a file they stay in the order in which they ran, also those that only a later cell ran."""
    report = MatrixReport([cell("c", {"b.py::z": "P", "a.py::y": "P"}), cell("d", {"b.py::x": "P", "b.py::z": "P"})])
    assert report.tests == ["a.py::y", "b.py::z", "b.py::x"]
    assert report.grid == ["P.", "PP", ".P"]


def test_a_file_that_only_some_cells_could_collect() -> None:
    """It passed where its tests ran, and did not run elsewhere; its error stays, whatever else of it ran there."""
    outcomes = [{"a.py": "E"}, {"a.py::t": "P"}, {"b.py::t": "P"}, {"a.py": "S"}]
    report = MatrixReport([cell(str(number), letters) for number, letters in enumerate(outcomes)])
    assert dict(zip(report.tests, report.grid, strict=True)) == {"a.py": "EP.S", "a.py::t": ".P..", "b.py::t": "..P."}
    report = MatrixReport([cell("c", {"a.py": "E", "a.py::x": "P"}), cell("d", {"a.py::x": "P"})])
    assert dict(zip(report.tests, report.grid, strict=True)) == {"a.py": "EP", "a.py::x": "PP"}


def test_which_failures_are_partial() -> None:
    """A failure is partial if the test passes in another cell, documented and expected failures included."""
    rows = {"FP": "some", "FD": "some", "Fx": "some", "FX": "some", "F.": "every", "FS": "every", "CE": "every"}
    rows |= {"P.": "", "SS": "skipped", "S.": "skipped", "SP": "", "xx": "", "DS": "", "??": "", "SU": "skipped"}
    cells = [
        cell(name, {f"t::{row}": row[number] for row in rows if row[number] != "."}, axes={"ctk": name})
        for number, name in enumerate("ab")
    ]
    report = MatrixReport(cells)
    where = {test.test: "some" for test in report.partial}
    where |= dict.fromkeys(report.failing_everywhere, "every")
    where |= {test: "skipped" for test, _ in report.skipped_everywhere}
    assert where == {f"t::{row}": word for row, word in rows.items() if word}
    assert {(test.cells, test.explanation) for test in report.partial} == {(("a",), "ctk a")}


def test_failures_of_one_cause_are_one_group() -> None:
    """Whatever test and cell they are in, and whatever artifact each names; the most results come first.

    A cause of another kind or with another reason is another group.
    """
    every = [("a", "x", "p"), ("b", "x", "p"), ("a", "y", "p"), ("a", "", "q"), ("a", "", "q"), ("a", "", "r")]
    causes = [{"kind": kind, "why": why, "what": what, "suggestion": []} for kind, why, what in every]
    details = {str(number): Detail(cause=cause) for number, cause in enumerate(causes)}
    groups = MatrixReport([cell("c", dict.fromkeys(details, "F"), details=details)]).groups
    assert [group.tests for group in groups] == [("3", "4"), ("0",), ("1",), ("2",), ("5",)]
    other = {**SKEW, "what": "of another file"}
    newer = {**SKEW, "why": "a driver of CUDA 12.8 reads PTX up to ISA 8.7"}
    of_skew = {"t": Detail(cause=SKEW), "v": Detail(cause=SKEW), "u": Detail(cause=other)}
    first = cell("a", {"t": "F", "u": "F", "v": "P"}, details=dict.fromkeys("tu", Detail(cause=newer)))
    second = cell("b", {"t": "F", "u": "E", "v": "F"}, details=of_skew)
    report = MatrixReport([first, second, cell("c", {"t": "P", "u": "P", "v": "P", "w": "F"})])
    assert [(group.cause, group.others, group.tests, group.cells) for group in report.groups] == [
        (cause_of(SKEW), 1, ("t", "u", "v"), ("b",)),
        (cause_of(newer), 0, ("t", "u"), ("a",)),
    ]
    shown = {section.id: section for section in views.sections(report)}["causes"].blocks
    assert [block.lines[0] for block in shown] == [f"error  {SKEW['what']} (and 1 other)", f"error  {SKEW['what']}"]
    assert report.unexplained == {"w"}
    assert [test.test for test in report.partial] == ["t", "u", "v"]


def test_the_explanation_of_a_group() -> None:
    outcomes = [{"t": "F", "u": "F", "v": "F", "w": "P"}, {"t": "P", "u": "P", "v": "F", "w": "F"}]
    for tests, words in (("tu", "ctk 0"), ("tv", ""), ("v", ""), ("tw", "")):
        details = {test: Detail(cause=SKEW) for test in tests}
        cells = [cell(str(n), letters, axes={"ctk": str(n)}, details=details) for n, letters in enumerate(outcomes)]
        assert [group.explanation for group in MatrixReport(cells).groups] == [words]


def test_a_test_that_needs_a_gpu_says_nothing_of_versions() -> None:
    """A refused call is no failure of this toolkit or driver: it is neither partial nor everywhere."""
    refused = {"t": Detail(cause=LAUNCH)}
    cells = [
        cell("a", {"t": "F", "u": "U", "v": "P"}, details=refused, axes={"ctk": "1"}),
        cell("b", {"t": "F", "u": "S", "v": "P"}, axes={"ctk": "2"}),
        cell("gpu", {"t": "P", "u": "P", "v": "P"}, axes={"ctk": "3"}),
    ]
    report = MatrixReport(cells)
    assert report.judged == ["UFP", "USP", "PPP"]
    assert [(test.test, test.cells, test.explanation) for test in report.partial] == [("t", ("b",), "ctk 2")]
    assert (report.failing_without_gpu, report.share) == ([], (3, 0))
    alone = MatrixReport(cells[:1])
    assert (alone.failing_everywhere, alone.failing_without_gpu, alone.share) == ([], ["t"], (1, 2))
    assert cells[0].causes == {"t": cause_of(LAUNCH), "u": replace(cells[0].causes["u"], kind="not_emulated", what="")}
    skips = MatrixReport([cell("a", {"s": "S", "u": "U"}), cell("b", {"s": "S", "u": "S"})])
    assert skips.share == (0, 1)


def test_a_skip_that_has_only_a_reason() -> None:
    """A record without a cause says what was refused; skips and failures are distinguished from other skips."""
    reason = "cudalink: needs a real driver: cuLaunchKernel is not emulated"
    skipped = cell("a", {"t": "U", "u": "S"}, details={"t": Detail(reason), "u": Detail(reason, cause=LAUNCH)})
    why = "only a driver with a GPU does what this test asks for"
    fix = ["run the test in a cell with a GPU"]
    record = {"kind": "not_emulated", "what": reason, "why": why, "suggestion": fix}
    assert skipped.causes == {"t": cause_of(record)}


def test_reasons_of_what_is_skipped_everywhere() -> None:
    """Equal reasons are named once; a test that is skipped in each way never ran."""
    cells = [cell(n, {"a::t": "S"}, details={"a::t": Detail(why)}) for n, why in (("a", "x"), ("b", "y"), ("c", "x"))]
    assert MatrixReport([*cells, cell("d", {})]).skipped_everywhere == [("a::t", ("x", "y"))]
    report = MatrixReport([cell("a", {"t": "S"}), cell("b", {"t": "U"}), cell("c", {})])
    assert report.skipped_everywhere == [("t", ())]


def test_not_run() -> None:
    """Tests of files that a cell ran too; of all files where the run is incomplete."""
    whole = {"a.py::x": "P", "a.py::y": "P", "b.py::z": "P"}
    cells = [cell("whole", whole), cell("part", {"a.py::x": "P"}), cell("cut", {"a.py::x": "P"}, finished=False)]
    assert MatrixReport(cells).not_run == {"part": ["a.py::y"], "cut": ["a.py::y", "b.py::z"]}


def test_sums_and_slowest() -> None:
    """Counts and links of all cells are added; the slowest tests come first."""
    a = cell("a", {"x": "P", "y": "F"}, links={"driver": 1}, durations={"x": 1.0, "y": 3.0})
    b = cell("b", {"x": "P"}, links={"driver": 2, "none": 1}, durations={"x": 2.0})
    report = MatrixReport([a, b])
    assert (report.counts, report.links) == ({"P": 2, "F": 1}, {"driver": 3, "none": 1})
    assert report.slowest == [(3.0, "y", "a"), (2.0, "x", "b"), (1.0, "x", "a")]
    many = cell("c", {}, durations={str(number): float(number) for number in range(20)})
    assert len(MatrixReport([many]).slowest) == 10


def test_request_does_not_replace_what_the_records_say() -> None:
    """A version that a run asked for stays, and one that a record lacks is added; one that it does not know is not."""
    asked = {"ctk": None, "driver": "13.0", "nvjitlink": None}
    versions = {name: {"requested": version, "found": "13.0"} for name, version in asked.items()}
    report = MatrixReport([cell("a", {}, versions=versions), cell("c", {}, versions={"driver": {"found": "13.0"}})])
    every = ("ctk", "driver", "nvjitlink", "cupy")
    report.request({"a": dict.fromkeys(every, "13.2"), "c": dict.fromkeys(every, "12.9")})
    assert [version["requested"] for version in versions.values()] == ["13.2", "13.0", "13.2"]
    assert report.cells[1].versions == {"driver": {"found": "13.0", "requested": "12.9"}}
    report.request({"b": {"ctk": "12.9"}})
    assert versions["ctk"]["requested"] == "13.2"


@pytest.mark.parametrize("change", [{"schema": 0}, {"schema": 2}, {"format": "other"}, {"format": []}])
def test_a_saved_report_of_another_version(change, tmp_path) -> None:
    file = tmp_path / "r.json"
    detail, reasons = Detail("why", "how", SKEW), {"gone": "no Python"}
    file.write_text(MatrixReport([cell("a", {"t": "F"}, details={"t": detail})], ["gone"], reasons=reasons).as_json())
    again = MatrixReport.load(file)
    assert (again.cells[0].details, again.missing, again.reasons) == ({"t": detail}, ["gone"], reasons)
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(RecordError, match=r"r\.json: not a saved report of this version of pytest-cudalink"):
        MatrixReport.load(file)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"outcomes": ["t"]}, " is not a valid cell: Expected `object`, got `array` - at `$.outcomes`"),
        ({"outcomes": {"t": "FF"}}, ".outcomes.t is 'FF'; expected one of CDEFPSUXx"),
        ({"outcomes": {"t": 7}}, " is not a valid cell: Expected `str`, got `int` - at `$.outcomes[...]`"),
        ({"details": {"t": "why"}}, " is not a valid cell: Expected `object`, got `str` - at `$.details[...]`"),
        ({"duration": "9"}, " is not a valid cell: Expected `float`, got `str` - at `$.duration`"),
        ({"differing": {"t": [["F"]]}}, " is not a valid cell: Expected `array` of length "),
        ({"weather": "rain"}, ".weather is unknown; install a newer pytest-cudalink"),
        ({"links": {"driver": -(2**70)}}, " is not a valid cell: Expected `int` >= 0 - at `$.links[...]`"),
    ],
)
def test_a_saved_cell_with_a_wrong_value(change, said, tmp_path) -> None:
    file = tmp_path / "r.json"
    cells = [cell("a", {"t": "F"}, details={"t": Detail("why")}), cell("b", {"t": "P"})]
    content = json.loads(MatrixReport(cells).as_json())
    content["cells"][0].update(change)
    file.write_text(json.dumps(content))
    first, second = MatrixReport.load(file).cells
    assert (first.name, first.outcomes, len(first.damage)) == ("a", {}, 1)
    assert first.damage[0].startswith(f"{file}: cells[0]{said}")
    assert said in first.fault
    assert (second.outcomes, second.fault) == ({"t": "P"}, "")


def test_a_saved_cell_that_lacks_its_results(tmp_path) -> None:
    """Without a name it is named for its place; without results it is incomplete."""
    file, content = tmp_path / "r.json", json.loads(MatrixReport([], damaged={"x": "y"}).as_json())
    unnamed = {"name": "", "outcomes": {}, "details": {}, "finished": True}
    cells = [{"finished": True}, "no cell", {"name": "c", "finished": True}, {"name": 5}, unnamed]
    file.write_text(json.dumps({**content, "cells": cells, "missing": ["gone"]}))
    report = MatrixReport.load(file)
    first, second, third, *others = report.cells
    assert (first.name, first.finished, first.unread) == (f"{file}: cells[0]", True, True)
    assert [(c.name, c.unread) for c in others] == [(f"{file}: cells[3]", True), (f"{file}: cells[4]", False)]
    assert first.damage == [f"{file}: cells[0] is not a valid cell: Object missing required field `name`"]
    assert second.damage == [f"{file}: cells[1] is not a valid cell: Expected `object`, got `str`"]
    assert third.damage == [f"{file}: cells[2].{name} is missing" for name in ("outcomes", "details")]
    assert (third.name, third.outcomes, report.missing, report.damaged) == ("c", {}, ["gone"], {"x": "y"})


def test_crashes_and_what_they_lose() -> None:
    """Crashed tests count, and crashes that no test's result shows; tests are lost in a crash, or without an end."""
    crashes = [CrashRecord(nodeid=test) for test in ("a", "b", None)]
    cell = CellRun("c", finished=True, outcomes={"a": "P", "b": "C", "d": "C"}, crashes=crashes, without_result=["e"])
    assert (cell.crashed, cell.lost) == (4, ["e"])
    cell.crashes = []
    assert (cell.crashed, cell.lost) == (2, [])
    cell.finished = False
    assert cell.lost == ["e"]


@pytest.mark.parametrize(
    ("outcomes", "others", "explained"),
    [
        ("", {}, False),
        ("PS", {}, False),
        ("PF", {}, True),
        ("P", {"crashes": [CrashRecord()]}, True),
        ("P", {"findings": [FindingRecord()]}, True),
        ("P", {"violations": [ViolationRecord()]}, True),
        ("P", {"violations": [ViolationRecord(allowed=True)]}, False),
    ],
)
def test_what_shows_why_a_run_is_red(outcomes, others, explained) -> None:
    """A bad result does, and so does each fault that can be behind green tests, unless it was allowed."""
    assert cell("c", dict(zip(outcomes, outcomes, strict=True)), **others).is_explained is explained


def test_why_a_cell_is_missing_and_what_is_wrong_with_files() -> None:
    """All cells that are dropped are named; the damage of one is kept, as it may be of the file, misnamed."""
    dropped = MatrixReport([cell("a", {}, damage=["first", "second"]), cell("b", {}), cell("c", {})])
    assert dropped.keep(["c", "d"]) == ["a", "b"]
    assert ([cell.name for cell in dropped.cells], dropped.damaged) == (["c"], {"a": "first"})
    report = MatrixReport([CellRun("c", damage=["first", "second"]), CellRun("d")], ["x", "y"], {"f": "is empty"})
    report.reasons, report.allowed = {"x": "no Python"}, {"y"}
    assert [report.why_missing(name) for name in ("x", "y")] == ["no records: no Python", "no records (allowed)"]
    assert report.faults_of_files == {"f": "is empty", "c": "first"}


def test_what_a_saved_place_has(tmp_path) -> None:
    """Every key is read; one that a saved report lacks has a value that can be shown; no result, no details."""
    details = {"t": {}, "gone": {"reason": "why"}}
    saved = _saved_cell({"name": "a", "finished": True, "outcomes": {"t": "F"}, "details": details}, "x")
    assert (saved.details, saved.damage) == ({"t": Detail()}, [])
    file = tmp_path / "saved.json"
    place = UnsteeredLinks("v", "c", "w", "driver", "nvjitlink", 3)
    file.write_text(MatrixReport([CellRun("c", unsteered=[place, {}], differing={"t": [["F", "x"]]})]).as_json())
    (cell,) = MatrixReport.load(file).cells
    assert cell.unsteered == [place, UnsteeredLinks("", "", "", "unknown", None, 1)]
    assert cell.differing == {"t": [["F", "x"]]}
