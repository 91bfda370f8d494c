"""Records that are damaged, unreadable or repeated: their cell is incomplete and named, and the others are reported."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pytest_cudalink import cli
from pytest_cudalink.report.matrix_report import MatrixReport
from pytest_cudalink.report.merge import merge
from pytest_cudalink.report.records import EVENTS, RecordError

from .samples import write
from .test_merge import END, LINK, RUN, UNSTEERED, lines, result


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


def test_two_runs_that_agree_are_fine(tmp_path, capsys) -> None:
    """Whole runs with the same outcomes are no finding, and the report mentions them."""
    for number in (1, 2):
        lines(tmp_path / f"{number}.jsonl", {**RUN, "time": number}, result("x"), result("y"), END)
    code, out, err = reported(capsys, tmp_path)
    assert (code, err) == (0, "")
    assert re.search(r"c +2 tests +same outcome in every record", out)


def test_shards_and_attempts_are_no_repeats(tmp_path, capsys) -> None:
    """Shards have no test in common; an attempt that pytest-rerunfailures repeats is in one record."""
    flaky = result("x", "rerun", attempt=1)
    lines(tmp_path / "1.jsonl", RUN, flaky, result("x", attempt=2), END)
    lines(tmp_path / "2.jsonl", RUN, result("y"), END)
    code, out, err = reported(capsys, tmp_path)
    assert (code, err) == (0, "")
    assert "Several records" not in out


def test_a_file_that_is_named_twice_counts_once(tmp_path) -> None:
    """A folder and a file in it are not two records."""
    file = lines(tmp_path / "1.jsonl", RUN, result("x", "failed"), END)
    (cell,) = merge([tmp_path, file, file]).cells
    assert (cell.files, cell.repeated) == ([str(file)], 0)


def test_repeats_in_a_saved_report(tmp_path, capsys) -> None:
    """A saved report keeps them, and is itself a record."""
    lines(tmp_path / "r" / "1.jsonl", RUN, result("x", "failed"), END)
    lines(tmp_path / "r" / "2.jsonl", RUN, result("x"), END)
    saved = tmp_path / "s.json"
    assert reported(capsys, tmp_path / "r", "-q", "--save", saved)[0] == 1
    assert "repeats: 1" in reported(capsys, saved, "-q")[2]
    third = lines(tmp_path / "3.jsonl", {**RUN, "cell": "d"}, result("x"), END)
    assert "repeats: 1" in reported(capsys, saved, third, "-q")[2]


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
        (b"\n\n", " has no event 'run'; expected a file that --cudalink-report wrote"),
        (line(**result("x")) + b'{"eve', " has no event 'run'; expected a file that --cudalink-report wrote"),
        (b"no\n" + BAD + line(**END), ": line 1 is not an event"),
        (line(event="start", time=1.0, nodeid="x") + BAD + line(**END), ": events before line 2, the event 'run', are"),
        (line(**result("x")) + BAD + line(**END), ": events before line 2, the event 'run', are not read"),
        (BAD + b'{"cell": "other"\n' + line(**END), ": line 2 is not an event"),
        (BAD + b"no\n" + line(event="start", time=1.0, nodeid="x"), ": line 2 is not an event"),
        (BAD + line(event="start", time=1.0, nodeid=7), ": line 2: start.nodeid is 7; expected a text"),
        (b"\x7fELF\x00\x01\xff\n\x00\n", ": line 1 is not an event"),
        (line(event="end", time=1), " has no event 'run'; expected a file that --cudalink-report wrote"),
        (b'{"a": 1}\n', " has no event 'run'; expected a file that --cudalink-report wrote"),
        (
            line(event="run", schema=1, cell="bad") + line(**END),
            ": line 1: run.time is missing; expected seconds since",
        ),
        (line(event="run", time=float("nan"), schema=1, cell="bad"), ": line 1: run.time is nan; expected seconds"),
        *(
            (
                BAD + line(event=kind, time=time) + line(**END),
                f": line 2: {kind}.time is {shown}; expected seconds since",
            )
            for kind in EVENTS
            if kind != "run"
            for time, shown in (([], "a list"), ("5", "'5'"), (True, "True"), (-1, "-1"), (1e300, "1e+300"))
        ),
        (BAD + line(**{**result("x"), "time": []}) + line(**END), ": line 2: test.time is a list; expected seconds"),
        (line(**{**RUN, "cell": ["bad"]}) + line(**END), ": line 1: run.cell is a list; expected a text"),
        (line(**{**RUN, "cell": "bad", "versions": 7}), ": line 1: run.versions is 7; expected an object"),
        (line(**{**RUN, "cell": "bad", "versions": {"ctk": "13"}}), ": line 1: run.versions.ctk is '13'; expected an"),
        (line(**{**RUN, "cell": "bad", "argv": "-x"}), ": line 1: run.argv is '-x'; expected a list"),
        (line(**{**RUN, "cell": "bad", "arch": []}), ": line 1: run.arch is a list; expected an object"),
        (BAD + b"no\n" + line(**END), ": line 2 is not an event"),
        (BAD + b"[" * 50_000 + b"\n" + line(**END), ": line 2 is not an event"),
        (BAD + b"1" * 5000 + b"\n" + line(**END), ": line 2 is not an event"),
        (BAD + line(event="test") + line(**END), ": line 2: test.nodeid is missing"),
        (BAD + line(event="test", nodeid={}, outcome="passed") + line(**END), ": line 2: test.nodeid is an object"),
        (BAD + line(**result({})) + line(**END), ": line 2: test.nodeid is an object; expected a text"),
        (BAD + line(**result("x", None)) + line(**END), ": line 2: test.outcome is missing; expected one of passed, "),
        (BAD + line(**result("x", "well")) + line(**END), ": line 2: test.outcome is 'well'; expected one of passed"),
        (
            BAD + line(**result("x", ["passed"])) + line(**END),
            ": line 2: test.outcome is a list; expected one of passed",
        ),
        (BAD + line(**result("x", duration=float("nan"))) + line(**END), ": line 2: test.duration is nan; expected"),
        (BAD + line(**result("x", duration=True)) + line(**END), ": line 2: test.duration is True; expected a number"),
        (BAD + line(**result("x", reason=["a"])) + line(**END), ": line 2: test.reason is a list; expected a text"),
        (BAD + line(**{**result("x"), "time": 1e300}) + line(**END), ": line 2: test.time is 1e+300; expected seconds"),
        (BAD + line(**result("x", duration=-1)) + line(**END), ": line 2: test.duration is -1; expected 0 or more"),
        (BAD + line(**result("x", duration=10**400)) + line(**END), ": line 2: test.duration is 1000"),
        (BAD + line(**result("x", longrepr=["a"])) + line(**END), ": line 2: test.longrepr is a list; expected a text"),
        (BAD + line(**result("x", documented="yes")) + line(**END), ": line 2: test.documented is 'yes'; expected an"),
        (BAD + line(**result("x", subtests="yes")) + line(**END), ": line 2: test.subtests is 'yes'; expected a list"),
        (
            BAD + line(**result("x", backends="yes")) + line(**END),
            ": line 2: test.backends is 'yes'; expected an",
        ),
        (BAD + line(event="link", backend=7) + line(**END), ": line 2: link.backend is 7; expected a text"),
        (BAD + line(**{**LINK, "result": 7}) + line(**END), ": line 2: link.result is 7; expected a text"),
        (BAD + line(**{**LINK, "time": 1e300}) + line(**END), ": line 2: link.time is 1e+300; expected seconds"),
        (BAD + line(**{**UNSTEERED, "time": 1e300}) + line(**END), ": line 2: unsteered.time is 1e+300; expected"),
        (BAD + line(event="crash", last_events=7) + line(**END), ": line 2: crash.last_events is 7; expected a list"),
        (BAD + line(event="verdict", items=[7]) + line(**END), ": line 2: verdict.items[0] is 7; expected a text"),
        (BAD + line(event="violation", text=7) + line(**END), ": line 2: violation.text is 7; expected a text"),
        (BAD + line(**{**END, "exitstatus": "0"}), ": line 2: end.exitstatus is '0'; expected a whole number"),
        (BAD + line(event="tezt") + line(**END), ": line 2: event is 'tezt', which is unknown; install a newer"),
        (BAD + line(event=["test"]) + line(**END), ": line 2: event is a list, which is unknown"),
        (BAD + line(**END) + b"rest", ": line 3 is not an event"),
        (
            BAD + line(event="violation", history=[[[]]]) + line(**END),
            ": line 2: violation.history[0] is a list; expected a",
        ),
        (
            BAD + line(event="start", time=1, nodeid="x")[:-1] + line(**result("x", "failed")) + line(**END),
            ": line 2 is not an event",
        ),
    ],
)
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


def test_a_test_with_an_unknown_outcome_is_shown(tmp_path, capsys) -> None:
    """It is a result of its own in every form."""
    damaged(tmp_path, BAD + line(**result("t.py::x", "well", reason="why")) + line(**END))
    code, out, _ = reported(capsys, tmp_path, "--html", tmp_path / "h")
    assert code == 1
    assert "1 unknown outcome," in out
    assert "unknown outcome" in (tmp_path / "h").read_text()


def test_a_test_without_a_name_is_named_for_its_line(tmp_path) -> None:
    damaged(tmp_path, BAD + line(event="test", outcome="failed") + line(**END))
    assert merge([tmp_path]).cells[0].outcomes == {"(the test of line 2)": "F"}


def test_a_very_long_line(tmp_path, monkeypatch) -> None:
    """The rest of the file is not read, and the fault says so."""
    monkeypatch.setattr(sys.modules[merge.__module__], "_LONGEST", 500)
    file = damaged(tmp_path, BAD + b" " * 600 + b"\n" + line(**END))
    cell = merge([tmp_path]).cells[0]
    assert cell.damage == [f"{file}: line 2 is longer than 500 bytes; the rest is not read"]
    assert not cell.finished


def test_very_many_faults_are_counted(tmp_path) -> None:
    """A few are named."""
    file = damaged(tmp_path, BAD + b"x\n" * 5 + line(**END))
    fault = merge([tmp_path]).cells[0].fault
    assert fault == "; ".join(
        [*(f"{file}: line {number} is not an event" for number in (2, 3, 4)), "and 2 other faults of the records"]
    )
    file.write_bytes(BAD + b"x\n" * 105)
    assert len(merge([file]).cells[0].damage) == 100


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


def test_files_and_folders_without_permission() -> None:
    """As a user who may not read them: the file's cell and the folder are named, and the exit code is 1."""
    with tempfile.TemporaryDirectory() as scratch:  # pytest's own folders are closed to other users
        Path(scratch).chmod(0o755)
        _without_permission(Path(scratch, "r"))


def _without_permission(folder: Path) -> None:
    damaged_file = folder / "bad.jsonl"
    lines(folder / "good.jsonl", RUN, result("x"), END).chmod(0o644)
    lines(damaged_file, RUN, END).chmod(0)
    folder.chmod(0o755)  # under any umask
    (folder / "closed").mkdir(mode=0)
    program = (
        "import os, sys\n"
        "from pytest_cudalink import cli\n"
        f"cli.main(['report', {str(folder / 'good.jsonl')!r}])\n"  # everything is imported while it can be read
        "os.getuid() or os.seteuid(65534)\n"
        f"sys.exit(cli.main(['report', {str(folder)!r}, '--fail-on=damaged']))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert f"{damaged_file} cannot be read: Permission denied" in done.stderr
    assert "the folder cannot be read: Permission denied" in done.stderr
    assert "2 cells, 1 test, 1 passed" in done.stdout


def test_a_folder_that_cannot_be_listed(tmp_path, monkeypatch) -> None:
    """It is named, whoever runs this; root may list every folder."""
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


@pytest.mark.parametrize(
    ("error", "words"), [(PermissionError(13, "Permission denied"), "Permission denied"), (OSError("odd"), "odd")]
)
def test_a_saved_report_that_cannot_be_read(error, words, tmp_path, monkeypatch) -> None:
    """It is named, and the records are reported."""
    lines(tmp_path / "good.jsonl", RUN, result("x"), END)
    saved = tmp_path / "saved.json"
    saved.touch()

    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("pytest_cudalink.report.matrix_report.read_bounded", refuse)
    report = merge([saved, tmp_path])
    assert [cell.name for cell in report.cells] == ["c"]
    assert report.damaged == {str(saved): f"{saved} cannot be read: {words}"}


def test_the_damaged_files_of_a_saved_report(tmp_path) -> None:
    """They are named again where the saved report is a record."""
    (tmp_path / "saved.json").write_text(MatrixReport([], damaged={"x.json": "is empty"}).as_json())
    assert merge([tmp_path / "saved.json"]).damaged == {"x.json": "is empty"}


def test_a_path_that_no_file_can_have() -> None:
    with pytest.raises(RecordError, match="embedded null .*; expected a folder"):
        merge(["a\0b"])


def test_a_start_without_a_name_is_no_test(tmp_path) -> None:
    """Nothing crashed that has a name, and the damage explains the missing end."""
    damaged(tmp_path, BAD + line(event="start", time=1.0, nodeid=7))
    cell = merge([tmp_path]).cells[0]
    assert (cell.outcomes, cell.crashes, len(cell.damage)) == ({}, [], 1)


@pytest.mark.parametrize("rest", [b"no\n", b'{"ev'], ids=["damaged", "cut"])
def test_a_damaged_record_without_an_end_claims_no_crash(rest, tmp_path) -> None:
    """The end may have been in the part that is lost."""
    damaged(tmp_path, BAD + line(**result("x")) + rest)
    assert merge([tmp_path]).cells[0].crashes == []


def test_a_wrong_time_of_a_run_is_named_once(tmp_path) -> None:
    damaged(tmp_path, line(**{**RUN, "cell": "bad", "time": -1}) + line(**END))
    assert len(merge([tmp_path]).cells[0].damage) == 1


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
