"""Records that are damaged, unreadable or repeated: their cell is incomplete and named, and the others are reported."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from pytest_cudalink import cli
from pytest_cudalink.report.merge import merge
from pytest_cudalink.report.records import RecordError

from .samples import write
from .test_merge import END, RUN, lines, result


def reported(capsys, *arguments: object) -> tuple[int, str, str]:
    """The exit code of ``cudalink report``, what it prints and its errors."""
    code = cli.main(["report", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


# -- several records of one cell


def test_two_runs_that_differ_fail(tmp_path, capsys) -> None:
    """A test that failed in one record of a cell and passed in a later one is named with both; the exit code is 1."""
    first = lines(tmp_path / "1.jsonl", RUN, result("x", "failed"), result("y"), {**END, "exitstatus": 1})
    second = lines(tmp_path / "2.jsonl", {**RUN, "time": 6.0}, result("x"), result("y"), END)
    code, out, err = reported(capsys, tmp_path)
    assert code == 1
    assert "1 passed" not in out
    assert "cudalink report: repeats: 1 (records of one cell have different outcomes for a test)" in err
    assert f"  c: x: failed in {first}; passed in {second}\n" in err
    page = {form: tmp_path / form for form in ("html", "markdown")}
    code, out, err = reported(capsys, tmp_path, *(f"--{form}={path}" for form, path in page.items()), "-q")
    assert (code, out) == (1, "")
    for path in page.values():
        assert "Several records of one cell" in path.read_text()
    assert reported(capsys, tmp_path, "-q", "--fail-on=failed,crashed,incomplete")[0] == 0


def test_several_records_that_are_fine(tmp_path, capsys) -> None:
    """Whole runs that agree are mentioned; shards, attempts that a plugin repeats, and a file named twice are not."""
    for number in (1, 2):
        lines(tmp_path / "agree" / f"{number}.jsonl", {**RUN, "time": number}, result("x"), result("y"), END)
    code, out, err = reported(capsys, tmp_path / "agree")
    assert (code, err) == (0, "")
    assert re.search(r"c +2 tests +same outcome in every record", out)
    flaky = result("x", "rerun", attempt=1)
    file = lines(tmp_path / "shards" / "1.jsonl", RUN, flaky, result("x", attempt=2), END)
    lines(tmp_path / "shards" / "2.jsonl", RUN, result("y"), END)
    code, out, err = reported(capsys, tmp_path / "shards", file, file)
    assert (code, err) == (0, "")
    assert "Several records" not in out
    (cell,) = merge([file.parent, file, file]).cells
    assert (len(cell.files), cell.repeated) == (2, 0)


def test_repeats_in_a_saved_report(tmp_path, capsys) -> None:
    lines(tmp_path / "r" / "1.jsonl", RUN, result("x", "failed"), END)
    lines(tmp_path / "r" / "2.jsonl", RUN, result("x"), END)
    saved = tmp_path / "s.json"
    assert reported(capsys, tmp_path / "r", "-q", "--save", saved)[0] == 1
    third = lines(tmp_path / "3.jsonl", {**RUN, "cell": "d"}, result("x"), END)
    for more in ((), (third,)):
        assert "repeats: 1" in reported(capsys, saved, *more, "-q")[2]


# -- damaged files


def damaged(tmp_path: Path, content: bytes) -> Path:
    """A damaged file ``bad.jsonl`` next to the sound cell ``c``."""
    lines(tmp_path / "good.jsonl", RUN, result("x"), END)
    file = tmp_path / "bad.jsonl"
    file.write_bytes(content)
    return file


def line(**event: object) -> bytes:
    return json.dumps(event).encode() + b"\n"


BAD = line(**{**RUN, "cell": "bad"})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", " is empty"),
        (b"\n", " has no event 'run'; expected a file that --cudalink-report wrote"),
        (line(**result("x")) + b'{"eve', " has no event 'run'; expected a file that --cudalink-report wrote"),
        (line(event="end", time=1), " has no event 'run'; expected a file that --cudalink-report wrote"),
        (b"no\n" + BAD + line(**END), ": line 1 is not an event"),
        (b'{"a": 1}\n', ": line 1 is not an event"),
        (b"\x7fELF\x00\x01\xff\n\x00\n", ": line 1 is not an event"),
        (line(event="start", time=1.0, nodeid="x") + BAD + line(**END), ": events before line 2, the event 'run', are"),
        (line(**result("x")) + BAD + line(**END), ": events before line 2, the event 'run', are not read"),
        (BAD + b'{"cell": "other"\n' + line(**END), ": line 2 is not an event"),
        (BAD + b"no\n" + line(**END), ": line 2 is not an event"),
        (BAD + b"[" * 50_000 + b"\n" + line(**END), ": line 2 is not an event"),
        (BAD + b"1" * 5000 + b"\n" + line(**END), ": line 2 is not an event"),
        (BAD + line(**END) + b"rest", ": line 3 is not an event"),
        (BAD + line(event="start", time=1, nodeid="x")[:-1] + line(**result("x", "failed")) + line(**END),
         ": line 2 is not an event"),
        (BAD + line(event="tezt") + line(**END), ": line 2: event is 'tezt', which is unknown; install a newer"),
        (BAD + line(event=["test"]) + line(**END), ": line 2: event is ['test'], which is unknown"),
        (line(event="run", schema=1, cell="bad") + line(**END),
         ": line 1: run.time is missing; expected seconds since"),
        *(
            (BAD + line(event="end", time=time) + line(**END), ": line 2 is not a valid event 'end': Expected `float`")
            for time in (None, [], "5", True, -1, 1e300, float("nan"))
        ),
        *(
            (
                BAD + line(**{**event, **change}) + line(**END),
                f": line 2 is not a valid event '{event['event']}': {why}",
            )
            for event, change, why in (
                ({"event": "test"}, {}, "Object missing required field `nodeid`"),
                (result("x"), {"nodeid": {}}, "Expected `str`, got `object` - at `$.nodeid`"),
                (result("x"), {"nodeid": None}, "Expected `str`, got `null` - at `$.nodeid`"),
                (result("x"), {"outcome": "well"}, "Invalid enum value 'well' - at `$.outcome`"),
                (result("x"), {"outcome": "\ud800"}, "'utf-8' codec can't encode"),
                (result("x"), {"outcome": ["passed"]}, "Expected `str`, got `array` - at `$.outcome`"),
                (result("x"), {"duration": 10**400}, ""),  # the words are those of the release of msgspec
                (result("x"), {"links": 2**60}, "Expected `int` <= "),
                (result("x"), {"backends": {"x": 0}}, "Expected `int` >= 1"),
                (result("x"), {"documented": {"requirement": "r"}}, "Object missing required field `raises`"),
                (result("x"), {"subtests": [7]}, "Expected `object`, got `int` - at `$.subtests[0]`"),
                ({"event": "verdict"}, {"evidence": [7]}, "Expected `str`, got `int` - at `$.evidence[0]`"),
                ({"event": "crash"}, {"last_events": 7}, "Expected `array`, got `int` - at `$.last_events`"),
                (END, {"exitstatus": "0"}, "Expected `int | null`, got `str` - at `$.exitstatus`"),
            )
        ),
        (BAD + line(event="start", time=1.0, nodeid=7), ": line 2 is not a valid event 'start': Expected `str`"),
        (line(**{**RUN, "cell": ["bad"]}) + line(**END), ": line 1 is not a valid event 'run': Expected `str | null`"),
        (line(**{**RUN, "cell": "bad", "versions": {"ctk": "13"}}), ": line 1 is not a valid event 'run': Expected"),
        (line(**{**RUN, "cell": "bad", "versions": {"ctk": {}}}), ": line 1 is not a valid event 'run': Object"),
    ],
)  # fmt: skip
def test_a_damaged_record(content, said, tmp_path, capsys) -> None:
    """Its cell is incomplete with file, line and key; the other cell is reported, and the exit code is 1."""
    file = damaged(tmp_path, content)
    report = merge([tmp_path])
    bad, good = report.cells
    assert (bad.name, good.name, good.outcomes, good.fault) == ("bad", "c", {"x": "P"}, "")
    assert bad.damage[0].startswith(f"{file}{said}")
    assert f"{file}{said}" in bad.fault
    code, out, err = reported(capsys, tmp_path)
    assert code == 1
    assert "2 cells" in out
    assert "Incomplete cells" in out
    assert "cudalink report: damaged: 1" in err
    assert "cudalink report: incomplete: 1" in err
    assert said.strip().split(";")[0][:40] in " ".join(err.split())


def test_what_a_damaged_line_said_is_not_claimed(tmp_path) -> None:
    """A test whose result cannot be read is neither green nor red: its cell is incomplete, and says how many lack."""
    collected = line(event="collected", time=5.2, tests={"t.py": ["a", "b"]})
    damaged(tmp_path, BAD + collected + line(**result("t.py::a")) + line(**result("t.py::b", "well")) + line(**END))
    cell = merge([tmp_path]).cells[0]
    assert (cell.outcomes, cell.without_result) == ({"t.py::a": "P"}, ["t.py::b"])
    assert re.search("1 test not run; .*: line 4 is not a valid event 'test'", cell.fault)


def test_very_many_faults_and_a_very_long_line(tmp_path, monkeypatch) -> None:
    """A hundred faults are kept; behind a long line the rest of the file is not read, and the fault says so."""
    assert len(merge([damaged(tmp_path, BAD + b"x\n" * 105)]).cells[0].damage) == 100
    monkeypatch.setattr(sys.modules[merge.__module__], "_LONGEST", 500)
    file = damaged(tmp_path, BAD + b" " * 600 + b"\n" + line(**END))
    cell = merge([tmp_path]).cells[0]
    assert cell.damage == [f"{file}: line 2 is longer than 500 bytes; the rest is not read"]
    assert not cell.finished


def test_folders_and_links_in_the_place_of_records(tmp_path, capsys) -> None:
    """A folder, a dangling link and a file of another kind are named; the rest is reported."""
    damaged(tmp_path, b"").unlink()
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "dangling.jsonl").symlink_to(tmp_path / "nothing")
    report = merge([tmp_path])
    assert {cell.name: cell.fault for cell in report.cells} == {
        "c": "",
        "dangling": f"{tmp_path / 'dangling.jsonl'} cannot be read: No such file or directory",
        "folder": f"{tmp_path / 'folder.jsonl'} cannot be read: Is a directory",
    }
    assert reported(capsys, tmp_path, "-q")[0] == 1


def test_a_folder_that_cannot_be_listed(tmp_path, monkeypatch) -> None:
    """It is named, whichever user runs this; root may list every folder."""
    lines(tmp_path / "good.jsonl", RUN, result("x"), END)
    closed = tmp_path / "closed"
    closed.mkdir()
    scandir = os.scandir

    def refuse(path: str) -> object:
        if Path(path) == closed:
            raise PermissionError(13, "Permission denied", str(closed))
        return scandir(path)

    monkeypatch.setattr("os.scandir", refuse)
    report = merge([tmp_path])
    assert [cell.name for cell in report.cells] == ["c"]
    assert report.damaged == {str(closed): "the folder cannot be read: Permission denied"}
    assert merge([closed]).damaged == report.damaged
    saved = tmp_path / "saved.json"
    saved.write_text(report.as_json(), encoding="utf-8")
    assert merge([saved]).damaged == report.damaged


@pytest.mark.parametrize(
    ("error", "words"), [(PermissionError(13, "Permission denied"), "Permission denied"), (OSError("odd"), "odd")]
)
def test_a_saved_report_that_cannot_be_read(error, words, tmp_path, monkeypatch) -> None:
    lines(tmp_path / "good.jsonl", RUN, result("x"), END)
    saved = tmp_path / "saved.json"
    saved.touch()

    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("pytest_cudalink.report.matrix_report.read_bounded", refuse)
    report = merge([saved, tmp_path])
    assert [cell.name for cell in report.cells] == ["c"]
    assert report.damaged == {str(saved): f"{saved} cannot be read: {words}"}


def test_a_path_that_no_file_can_have() -> None:
    with pytest.raises(RecordError, match="embedded null .*; expected a folder"):
        merge(["a\0b"])


@pytest.mark.parametrize("rest", [b"no\n", b'{"ev'], ids=["damaged", "cut"])
def test_a_damaged_record_without_an_end_claims_no_crash(rest, tmp_path) -> None:
    """The end may have been in the part that is lost."""
    damaged(tmp_path, BAD + line(**result("x")) + rest)
    assert merge([tmp_path]).cells[0].crashes == []


def test_a_damaged_older_report_is_no_success(tmp_path, capsys) -> None:
    """What an older report lacks cannot be compared: the exit code is 1, and the file is named."""
    lines(tmp_path / "new" / "c.jsonl", RUN, result("x"), END)
    old = tmp_path / "old.json"
    old.write_text("{")
    code, out, err = reported(capsys, tmp_path / "new", "--against", old)
    assert code == 1
    assert "1 incomplete cell" in out
    assert f"{old}: not a saved report" in err
    lines(tmp_path / "old" / "c.jsonl", RUN, END).write_bytes(b"")
    code, _, err = reported(capsys, tmp_path / "new", "--against", tmp_path / "old")
    assert code == 1
    assert "c.jsonl is empty" in err
    assert reported(capsys, tmp_path / "new", "--against", tmp_path / "none")[0] == 2


def test_a_damaged_cell_that_the_file_of_cells_lacks(tmp_path, capsys) -> None:
    """It may be a known cell whose name is lost: it is not left out in silence."""
    damaged(tmp_path, b"")
    cells = tmp_path / "cells.toml"
    cells.write_text('[cells.c]\nctk = "13.0"\n', encoding="utf-8")
    code, _, err = reported(capsys, tmp_path, "--cells", cells)
    assert code == 1
    assert "bad.jsonl is empty" in err


@pytest.mark.slow
def test_in_several_processes(tmp_path) -> None:
    """Faults travel from the processes that read, also with text that is not valid Unicode."""
    files = [write(tmp_path, f"c{number}", {"a\ud800": "strange"}) for number in range(9)]
    every = merge([tmp_path]).cells
    assert every == [cell for file in files for cell in merge([file]).cells]
    assert all(len(cell.damage) == 1 for cell in every)
