"""A matrix on many machines: shards by the seconds of records, and cells that share a job."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cudalink import cli
from pytest_cudalink.matrix import Cell
from pytest_cudalink.matrix.ci import parse_shard, read_durations, spread
from pytest_cudalink.report.records import EndRecord, RunRecord, TestRecord, Writer


@given(
    count=st.integers(1, 12), seconds=st.dictionaries(st.integers(0, 60), st.floats(0, 1e4)), total=st.integers(0, 60)
)
def test_shards_are_disjoint_and_whole(count, seconds, total) -> None:
    """Every cell is in one shard; shards are the same every time; none is longer than the mean and the longest cell."""
    cells = [Cell(f"cell-{number}", {}, ()) for number in range(total)]
    cost = {f"cell-{number}": value for number, value in seconds.items()}
    shards = spread(cells, count, cost)
    assert sorted(cell.name for shard in shards for cell in shard) == sorted(cell.name for cell in cells)
    assert shards == spread(list(reversed(cells))[::-1], count, dict(reversed(cost.items())))
    if cost and total:
        usual = sum(cost.values()) / len(cost)
        each = {cell.name: max(cost.get(cell.name, usual), 0.001) for cell in cells}
        most = max(sum(each[cell.name] for cell in shard) for shard in shards)
        assert most <= sum(each.values()) / count + max(each.values()) + 1e-6


@pytest.mark.parametrize("text", ["", "0/3", "4/3", "3", "a/b", "1/0", "-1/3", "1/3 "])
def test_wrong_shard(text) -> None:
    """A shard that cannot be is refused with what one looks like."""
    with pytest.raises(ValueError, match="such as 3/10"):
        parse_shard(text)
    assert parse_shard("3/10") == (3, 10)


def record(path: Path, cell: str, *seconds: float | None) -> Path:
    """Write a record of runs of a cell, one after the other; a run without seconds does not finish."""
    with Writer(path) as writer:
        for second in seconds:
            writer.write(RunRecord(cell=cell))
            writer.write(TestRecord(nodeid="test_a.py::test", outcome="passed"))
            if second is not None:
                writer.write(EndRecord(exitstatus=0, duration=second))
    return path


def test_durations(tmp_path) -> None:
    """Each cell has the seconds of its newest run; a run that did not finish and a damaged record say nothing.

    The name of a file counts where the record has no cell.
    """
    record(tmp_path / "old" / "a.jsonl", "a", 5.0)
    folder = tmp_path / "new"
    record(folder / "deeper" / "a.jsonl", "a", 7.0, 3.0)
    record(folder / "unfinished.jsonl", "b", 7.0, None)
    record(folder / "c.jsonl", "", 2.0)
    file = record(tmp_path / "d.jsonl", "d", 4.0)
    (folder / "damaged.jsonl").write_bytes(b'{"event": "run", "time": "never"}\n{"event": "end"\n')
    (folder / "notes.txt").write_text("no record")
    (folder / "empty.jsonl").touch()
    record(folder / "other.json", "other", 6.0)
    record(folder / "x.jsonl", "e", 6.0)
    damaged = record(folder / "f.jsonl", "f", 5.0)
    damaged.write_bytes(damaged.read_bytes().replace(b"\n", b"\ndamaged\n", 1))
    assert read_durations([tmp_path / "old"]) == {"a": 5.0}
    assert read_durations([folder, tmp_path / "old", file]) == {"a": 3.0, "c": 2.0, "d": 4.0, "e": 6.0, "f": 5.0}


def test_durations_of_runs_that_began_together(tmp_path) -> None:
    """The last name counts, in whichever order the folder lists the files."""
    for name, seconds in (("a1", 1.0), ("a2", 2.0), ("b2", 2.0), ("b1", 1.0)):
        file = record(tmp_path / f"{name}.jsonl", name[0], seconds)
        file.write_bytes(re.sub(rb'"time": [\d.]+', b'"time": 7.0', file.read_bytes()))
    assert read_durations([tmp_path]) == {"a": 2.0, "b": 2.0}


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A project of three cells, the first of which took as long as the others together, as the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CUDALINK_CELLS", raising=False)
    (tmp_path / "matrices").mkdir()
    (tmp_path / "matrices" / "cells.toml").write_text("[cells.one]\n[cells.two]\n[cells.three]\n")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "small"\nversion = "1"\n')
    for cell, seconds in (("one", 20.0), ("two", 10.0), ("three", 10.0)):
        record(tmp_path / ".cudalink" / f"{cell}.jsonl", cell, seconds)
    return tmp_path


def listed(capsys, *options: str) -> list[str]:
    """The cells that `cudalink matrix list` prints."""
    assert cli.main(["matrix", "list", *options]) == 0
    return [line.split()[0] for line in capsys.readouterr().out.splitlines()]


def test_shards_are_even_by_the_records(project, capsys) -> None:
    """The records of .cudalink count, or those that are named; cells without any count as equal."""
    assert listed(capsys, "--shard", "1/2") == ["one"]
    assert listed(capsys, "--shard", "2/2") == ["two", "three"]
    (project / "none").mkdir()
    assert listed(capsys, "--shard", "1/2", "--records", "none") == ["one", "two"]


def test_a_shard_without_cells(project, capsys, monkeypatch) -> None:
    """GitHub fails a job without a matrix, so a second output says that it is empty."""
    monkeypatch.setenv("GITHUB_OUTPUT", str(project / "output"))
    assert cli.main(["matrix", "github", "--shard", "4/4"]) == 0
    assert json.loads(capsys.readouterr().out) == {"include": []}
    assert (project / "output").read_text() == 'matrix={"include":[]}\nany=false\n'


def test_groups_of_jobs(project, capsys) -> None:
    """Cells share jobs where there are more than jobs may be, evenly by their seconds."""
    assert cli.main(["matrix", "github", "--jobs", "2"]) == 0
    rows = json.loads(capsys.readouterr().out)["include"]
    assert sorted(row["cell"] for row in rows) == ["one", "two,three"]
    assert cli.main(["matrix", "github", "--jobs", "0"]) == 1
