"""The versions that a cell chooses: uv resolves them from a folder of empty wheels, and every runner installs them."""

import json
import zipfile
from pathlib import Path

import pytest

from pytest_cudalink.matrix import CellsError, hiding, load_cells, runner
from pytest_cudalink.matrix.cell_facts import CellFacts, cell_facts
from pytest_cudalink.report import read
from pytest_cudalink.report.cell_run import CellRun

WHEELS = {"one": ("1.0", "1.1", "2.0"), "two": ("0.1", "0.2")}


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A project that requires both packages, and an index with some releases of each."""
    index = tmp_path / "index"
    index.mkdir()
    for name, versions in WHEELS.items():
        for version in versions:
            with zipfile.ZipFile(index / f"{name}-{version}-py3-none-any.whl", "w") as file:
                info = f"{name}-{version}.dist-info"
                file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
                file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
                file.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_FIND_LINKS", str(index))
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "p"\nversion = "1"\ndependencies = ["one>=1.1", "two"]\n'
        '[project.optional-dependencies]\nlate = ["two>=0.2"]\n[dependency-groups]\ntest = ["two>=0.1"]\n'
    )
    return tmp_path


def chosen(project: Path, text: str) -> tuple[list[str], list[str]]:
    """The arguments of the installer that are about versions, and the requirements in the file that they name."""
    file = project / "cells.toml"
    file.write_text(f"[cells.a]\n{text}\n")
    (cell,) = load_cells(file)
    runner.resolve(cell, project)
    written = runner.chosen_file(cell, project)
    return runner.constraints(cell, project), written.read_text().split() if written.exists() else []


@pytest.mark.parametrize(
    ("text", "pins"),
    [
        ('packages = { one = "lowest", two = "latest" }', ["one==1.1"]),
        ('groups = ["test"]\npackages = { two = "lowest" }', ["two==0.1"]),
        ('resolution = "lowest-direct"\nextras = ["late"]', ["one==1.1", "two==0.2"]),
        ('resolution = "lowest"\npackages = { one = "latest" }', ["one==2.0", "two==0.1"]),
        ('resolution = "lowest-direct"\ninstall = "none"\npackages = { one = ">1" }', ["one==1.1"]),
    ],
)
def test_the_oldest_versions_are_those_that_the_project_allows(project, text, pins) -> None:
    """Of one package, or of all that the project requires itself; `test_runner` has what uv is asked."""
    arguments, pinned = chosen(project, text)
    assert arguments == ["-r", str(project / ".cudalink" / "a.requirements.txt")]
    assert pinned == pins


def test_versions_that_do_not_exist(project) -> None:
    with pytest.raises(CellsError, match=r"(?s)cannot be resolved by uv: .*one==7"):
        chosen(project, 'resolution = "lowest-direct"\npackages = { one = "7" }')


@pytest.mark.parametrize(("keys", "older"), [("", {"one": "2.0"}), ('packages = ["one<2"]', {}),
                                             ("groups = ['test']\ninstall = 'none'", {"one": "2.0"})])  # fmt: skip
def test_a_package_that_is_older_because_of_the_toolkit(project, keys, older) -> None:
    """The release that there would be without it is noted for the run; nothing is where the cell limits the version."""
    (project / "pyproject.toml").write_text(
        '[project]\nname = "p"\nversion = "1"\ndependencies = ["two", "one"]\n'
        '[dependency-groups]\ntest = [{ include-group = "more" }]\nmore = ["one>=1.0"]\n'
    )
    file = project / "cells.toml"  # its toolkit holds `one` back, beside two==0.2
    file.write_text(f"[toolkits.'13.0']\npackages = ['two==0.2']\n[cells.a]\nctk = '13.0'\n{keys}\n")
    (cell,) = load_cells(file)
    runner.note_newer(cell, project)
    facts = cell_facts({"one": "1.1", "two": "0.2"}.get, runner.environment(cell, project))
    assert facts.older == older
    requested = [(name, f"{newer}, as without the toolkit", "1.1") for name, newer in older.items()]
    assert CellRun("a", versions=dict(facts.versions)).mismatches == requested


def test_a_run_says_what_was_noted(pytester, run_pytest, monkeypatch) -> None:
    """The header and the record have it, also the version that a word stood for; other processes get no record."""
    keys = {"packages": {"pluggy": "lowest"}}
    monkeypatch.setenv("CUDALINK_CELL", "a")
    monkeypatch.setenv("CUDALINK_CELL_KEYS", json.dumps(keys))
    monkeypatch.setenv("CUDALINK_REPORT", str(pytester.path / "a.jsonl"))
    (pytester.path / "a.newer.txt").write_text("packaging==9999.1\npytest==8.0\nnot-installed==1.0\n")
    (pytester.path / "a.requirements.txt").write_text("pluggy==0.1\n")
    pytester.makepyfile("import os\ndef test(): assert 'CUDALINK_REPORT' not in os.environ")
    result = run_pytest("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "cudalink: cell: pluggy * (requested lowest)",
            "cudalink: packaging * is older than 9999.1, the release without this cell's toolkit: *",
        ]
    )
    versions = read(pytester.path / "a.jsonl").run.versions
    assert versions["packaging"]["requested"] == "9999.1, as without the toolkit"
    assert versions["pluggy"]["resolved"] == "0.1"


KEYS = {
    "axes": {"ctk": "13.0", "one": "2.0"},
    "packages": {"one": "2.0", "two": "lowest", "three": "1.*", "four": "lowest", "gone": "1"},
}
INSTALLED = {"one": "2.0", "two": "0.1", "three": "1.5", "four": "4", "old": "1.0", "same": "2.0", "odd": "x"}
NOTHING = hiding.Hidden("nothing")


@pytest.fixture
def noted(tmp_path) -> dict[str, str]:
    """The environment of a cell, with what its installation noted next to the record."""
    (tmp_path / "a.requirements.txt").write_text("two==0.1\nthree==1.5\n")
    (tmp_path / "a.newer.txt").write_text("old==1.1\nsame==2.0\nodd==3\nthree==9\nabsent==1\n")
    keys = json.dumps(KEYS | {"hidden": ["/opt/cuda*"]})
    return {"CUDALINK_CELL": "a", "CUDALINK_REPORT": str(tmp_path / "a.jsonl"), "CUDALINK_CELL_KEYS": keys}


def test_facts_of_a_cell(noted) -> None:
    """Which versions were asked for, chosen and found, and which are older than without the toolkit."""
    facts = cell_facts(INSTALLED.get, noted, NOTHING)

    def version(name: str, requested: str, **more: str) -> dict[str, str | None]:
        version = INSTALLED.get(name)
        kind = "real" if version else "absent"
        return {"requested": requested, "found": version, "source": f"metadata of {name}", "kind": kind, **more}

    axes = {"ctk": "13.0", "one": "2.0", "two": "0.1", "three": "1.5", "four": "4", "gone": "none"}
    assert facts.axes == axes | {"hidden": "nothing to hide"}
    assert facts.versions == {
        "one": version("one", "2.0"),
        "two": version("two", "lowest", resolved="0.1"),
        "three": version("three", "1.*"),
        "four": version("four", "lowest"),
        "gone": version("gone", "1"),
        "old": version("old", "1.1, as without the toolkit"),
    }
    plain = cell_facts(INSTALLED.get, noted | {"CUDALINK_CELL_KEYS": json.dumps(KEYS)}, NOTHING)
    assert plain == CellFacts(axes, facts.versions, older={"old": "1.1"})
    cell, hidden, older = facts.lines
    asked = "three 1.5 (requested 1.*), four 4 (requested lowest), gone none (requested 1)"
    assert (cell, hidden) == (f"cell: ctk 13.0, one 2.0, two 0.1, {asked}", str(NOTHING))
    assert older == (
        "old 1.0 is older than 1.1, the release without this cell's toolkit: a requirement does not fit the toolkit; "
        "`cudalink matrix check` names extras of another CUDA release"
    )


UNSEEN = "not hidden: pytest was not started as the runners of the matrix start it"
HIDES = {"CUDALINK_CELL_KEYS": '{"hidden": ["/x"]}'}


@pytest.mark.parametrize(
    ("environment", "hidden", "lines"),
    [
        (HIDES, "not hidden", [UNSEEN]),
        (HIDES | {"CUDALINK_HIDDEN": ""}, "not hidden", [UNSEEN]),
        (HIDES | {"CUDALINK_HIDDEN": NOTHING.as_json()}, "nothing to hide", [str(NOTHING)]),
        (HIDES | {"CUDALINK_HIDDEN": "[]"}, None, []),
        ({"CUDALINK_CELL_KEYS": "{", "CUDALINK_HIDDEN": NOTHING.as_json()}, None, []),
        ({"CUDALINK_CELL_KEYS": '{"no": "key"}'}, None, []),
        ({"CUDALINK_HIDDEN": NOTHING.as_json(), "CUDALINK_CELL": "a"}, None, []),
    ],
)
def test_facts_of_what_is_hidden(environment, hidden, lines) -> None:
    """A run that was started without its runner says so; variables that were written by hand are no cell's."""
    facts = cell_facts(INSTALLED.get, environment)
    assert (facts.axes.get("hidden"), facts.lines) == (hidden, lines)
