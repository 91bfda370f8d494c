"""What the runs of a report were of: read from records, joined, merged, saved."""

import json

import pytest

from pytest_cudalink.report import records
from pytest_cudalink.report.html import facts
from pytest_cudalink.report.matrix_report import MatrixReport
from pytest_cudalink.report.merge import merge
from pytest_cudalink.report.origin import Origin

from .test_merge import END, RUN, lines, result

SHA = "0123456789abcdef0123456789abcdef01234567"


def write(folder, cell, began, **content):
    """A record with an origin, that began at a time."""
    run, test, end = ({**r, "time": began} for r in ({**RUN, "cell": cell, **content}, result("t.py::a"), END))
    return lines(folder / f"{cell}.jsonl", run, test, end)


def test_a_report_has_the_origin_of_its_cells_and_keeps_it(tmp_path):
    of = Origin("solver", SHA, "main", "https://host/1", dirty=False).record()
    write(tmp_path, "a", 60.0, origin=of)
    write(tmp_path, "b", 30.0, origin={**of, "branch": "topic"})
    report = merge([tmp_path])
    (tmp_path / "saved.json").write_text(report.as_json())
    saved = MatrixReport.load(tmp_path / "saved.json")
    expected = Origin("solver", SHA, None, "https://host/1", "1970-01-01T00:00:30Z", False)
    assert report.origin == saved.origin == expected
    assert report.origins_differ == saved.origins_differ == ("branch",)
    assert not saved.cells[0].damage


def test_shards_of_a_cell_that_are_of_different_commits_are_seen(tmp_path):
    of = Origin("solver", SHA).record()
    (tmp_path / "one").mkdir()
    write(tmp_path, "a", 60.0, origin=of)
    write(tmp_path / "one", "a", 30.0, origin={**of, "commit": SHA[::-1]})
    report = merge([tmp_path])
    assert len(report.cells) == 1
    assert report.origins_differ == ("commit",)


def test_a_record_without_an_origin_is_sound(tmp_path):
    """Records that an older version wrote have no origin, and neither have the reports that it saved."""
    write(tmp_path, "a", 60.0)
    report = merge([tmp_path])
    content = json.loads(report.as_json())
    for cell in content["cells"]:
        del cell["origins"]
    (tmp_path / "old.json").write_text(json.dumps(content))
    old = MatrixReport.load(tmp_path / "old.json")
    assert report.cells[0].fault == old.cells[0].fault == ""
    assert report.origin == Origin(started="1970-01-01T00:01:00Z")
    assert old.origin == Origin()
    assert records.read(tmp_path / "a.jsonl").run.origin is None
    assert merge([write(tmp_path, "b", 0.0)]).origin == Origin()


CI = "https://h/o/r/actions/runs/7"
DIFFERS = "not the same in every cell"


OF_COMMIT = ("commit", SHA[:10], f"https://h/o/r/commit/{SHA}", "with uncommitted changes")
WHOLE = [("project", "p", "", ""), OF_COMMIT, ("branch", "b", "", ""), ("date", "2026-11-22 17:20 UTC", "", "")]


@pytest.mark.parametrize(
    ("of", "differ", "shown"),
    [
        (Origin(), (), []),
        (Origin(), ("project", "ci_url"), [("project", "", "", DIFFERS), ("CI", "", "", DIFFERS)]),
        (Origin(commit=SHA, dirty=True), ("commit",), [("commit", SHA[:10], "", DIFFERS)]),
        (Origin("p", SHA, "b", CI, "2026-11-22T17:20:05Z", True), (), [*WHOLE, ("CI", "this run", CI, "")]),
        (Origin(started="soon"), (), [("date", "soon", "", "")]),
        (Origin(commit="<b>", ci_url=CI), (), [("commit", "<b>", "", ""), ("CI", "this run", CI, "")]),
        *(
            (
                Origin(commit=SHA, ci_url=f"https://h/o/r/-/{job}"),
                (),
                [
                    ("commit", SHA[:10], f"https://h/o/r/-/commit/{SHA}", ""),
                    ("CI", "this run", f"https://h/o/r/-/{job}", ""),
                ],
            )
            for job in ("pipelines/5", "jobs/5")
        ),
    ],
)
def test_the_head_of_the_page(of, differ, shown):
    assert [tuple(fact.values()) for fact in facts(of, differ)] == shown


def test_an_address_in_a_saved_report_is_one_of_the_web(tmp_path):
    write(tmp_path, "a", 60.0, origin=Origin("solver", ci_url="https://host/1").record())
    text = merge([tmp_path]).as_json()
    (tmp_path / "saved.json").write_text(text.replace("https://host/1", "javascript:1"))
    assert MatrixReport.load(tmp_path / "saved.json").cells[0].origins[0].ci_url is None


def test_an_origin_of_wrong_types_is_damage(tmp_path):
    write(tmp_path, "a", 60.0, origin={"project": 1, "commit": None, "branch": None, "ci_url": None, "dirty": None})
    cell = merge([tmp_path]).cells[0]
    why = "Expected `str | null`, got `int` - at `$.origin.project`"
    assert (cell.damage, cell.origins) == ([f"{tmp_path}/a.jsonl: line 1 is not a valid event 'run': {why}"], [])
