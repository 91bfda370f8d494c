"""Known-bad combinations in the report: with the failures of a cell, and nowhere else."""

import pytest

from pytest_cudalink.report import html, text
from pytest_cudalink.report.merge import merge
from pytest_cudalink.report.views import sections

from .samples import write


def version_found(name: str) -> dict:
    return {"requested": None, "found": name, "source": "metadata", "kind": "real"}


def known(report) -> list[tuple]:
    return [row for section in sections(report) if section.id == "known" for row in section.rows]


def test_a_failing_cell_names_the_entry(tmp_path) -> None:
    """Thread and advice next to the number of failures; a cell that passes has none."""
    bad = {"cuda-core": version_found("1.0.0"), "cuda-bindings": version_found("13.0.3")}
    write(tmp_path, "failing", {"a": "failed", "b": "error", "c": "passed"}, versions=bad)
    write(tmp_path, "passing", {"a": "passed"}, versions=bad)
    report = merge([tmp_path])
    rows = [row for row in known(report) if "bindings" in str(row[2])]
    assert [(row[:3], row[4]) for row in rows] == [
        (("failing", 2, "cuda-core 1.0.0 with cuda-bindings 13.0"), "NVIDIA/cuda-python#2063, NVIDIA/cuda-python#2064")
    ]
    assert {row[0] for row in known(report)} == {"failing"}
    for form in (text.plain(report), text.markdown(report), html.render(report)):
        assert "cuDevSmResourceSplit" in form


@pytest.mark.parametrize(("driver", "names"), [("13.0", 1), ("12.9", 0), ("none", 0)])
def test_the_driver_decides(tmp_path, driver, names) -> None:
    """An entry for drivers is named where the recorded driver meets it, and not where there is none."""
    write(tmp_path, "cell", {"a": "failed"}, driver=driver, versions={"numba": version_found("0.61.2")})
    assert len(known(merge([tmp_path]))) == names
