"""`cudalink matrix select` on a small project: what pytest records, and that a fault never hides in a cell left out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_cudalink import cli
from pytest_cudalink.matrix import load_cells

CELLS = """
[select]
ignore = ["docs/**"]
[defaults]
[cells.one]
tests = ["tests/test_one.py"]
[cells.two]
tests = ["tests/test_two.py"]
[cells.both]
tests = ["tests"]
"""
FILES = {
    "matrices/cells.toml": CELLS,
    "pyproject.toml": '[project]\nname = "small"\nversion = "1"\n',
    ".gitignore": ".cudalink/\n__pycache__/\n.pytest_cache/\n",
    "docs/page.md": "text\n",
    "pkg/__init__.py": "",
    "pkg/shared.py": "ZERO = 0\n",
    "pkg/first.py": "from .shared import ZERO\n\ndef one():\n    return ZERO + 1\n",
    "pkg/second.py": "from pathlib import Path\n\ndef two():\n"
    "    return int((Path(__file__).parent / 'two.txt').read_text())\n",
    "pkg/two.txt": "2\n",
    "tests/conftest.py": "import sys\nfrom pathlib import Path\nsys.path.insert(0, str(Path(__file__).parents[1]))\n",
    "tests/test_one.py": "def test_one():\n    from pkg.first import one\n    assert one() == 1\n",
    "tests/test_two.py": "from pkg.second import two\n\ndef test_two():\n    assert two() == 2\n",
}
#: A fault in each file that tests depend on, and the cells that notice it.
FAULTS = {
    "pkg/shared.py": ("ZERO = 0", "ZERO = 5"),
    "pkg/first.py": ("+ 1", "+ 2"),
    "pkg/second.py": ("int(", "-int("),
    "pkg/two.txt": ("2", "3"),
    "tests/test_one.py": ("== 1", "== 7"),
    "tests/test_two.py": ("== 2", "== 7"),
    "tests/conftest.py": ("import sys", "import nothing_of_this_name"),
    "docs/page.md": ("text", "other"),
}


def git(root: Path, *arguments: str) -> str:
    """Run git in a checkout."""
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *who, *arguments], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout


def environment() -> dict[str, str]:
    """The environment of a run that sees neither this run nor a CI; only the plugins that matter load, in less time."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("CUDALINK_", "GITHUB_", "CI"))}
    return kept | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "pytest_cudalink.plugin,xdist.plugin"}


def record(root: Path, name: str, *options: str) -> int:
    """Run the tests of a cell as a runner does; returns pytest's exit code."""
    cell = next(one for one in load_cells(root / "matrices" / "cells.toml") if one.name == name)
    command = [sys.executable, "-B", "-m", "pytest", *cell.tests, "-q", *options]
    variables = environment() | cell.environment(root / ".cudalink")
    return subprocess.run(command, cwd=root, env=variables, capture_output=True, check=False).returncode


def failing_cells(root: Path) -> set[str]:
    """The cells one and two, as far as their tests fail; no records are written."""
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=no", "-rfE", "tests"]
    variables = environment() | {"PYTEST_PLUGINS": ""}
    done = subprocess.run(command, cwd=root, env=variables, capture_output=True, text=True, check=False)
    if not done.returncode:
        return set()
    # without a conftest no test begins
    return {name for name in ("one", "two") if f" tests/test_{name}.py" in done.stdout} or {"one", "two"}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Path:
    """A committed project whose cells have run."""
    root = tmp_path_factory.mktemp("small")
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "begin")
    for name, options in (("one", ()), ("two", ("-n", "2")), ("both", ("--cudalink-isolate",))):
        assert record(root, name, *options) == 0
    return root


@pytest.fixture
def project(recorded, monkeypatch) -> Path:
    """The project without changes, as the working folder."""
    git(recorded, "checkout", "-q", "--force", "master" if "master" in git(recorded, "branch") else "main")
    git(recorded, "clean", "-qfd")
    monkeypatch.chdir(recorded)
    return recorded


def selected(capsys, *options: str) -> dict[str, dict]:
    """The rows of `cudalink matrix select --json` by cell."""
    assert cli.main(["matrix", "select", "--since", "HEAD", "--json", *options]) == 0
    return {row["name"]: row for row in json.loads(capsys.readouterr().out)["cells"]}


def touched(root: Path, name: str) -> dict[str, str]:
    """The files of a record, with the test that was first."""
    lines = [json.loads(line) for line in (root / ".cudalink" / f"{name}.jsonl").read_text().splitlines()]
    events = [one for one in lines if one["event"] == "touched"]
    assert not any(one["lost"] or one["unknown"] for one in events)
    return {file: test for one in events for test, files in one["files"].items() for file in files}


def test_what_a_record_names(recorded) -> None:
    """Modules, conftests, data files, of the process itself, of xdist's workers, and of isolated tests."""
    common = {"pkg/__init__.py", "tests/conftest.py", "pyproject.toml"}
    assert set(touched(recorded, "one")) == {*common, "pkg/shared.py", "pkg/first.py", "tests/test_one.py"}
    assert set(touched(recorded, "two")) >= {*common, "pkg/second.py", "pkg/two.txt", "tests/test_two.py"}
    assert set(touched(recorded, "both")) >= {"pkg/first.py", "pkg/shared.py", "pkg/two.txt", "tests/test_one.py"}
    assert touched(recorded, "one")["pkg/first.py"] == "tests/test_one.py::test_one"
    assert touched(recorded, "two")["pkg/two.txt"] == "tests/test_two.py::test_two"


@pytest.mark.parametrize("cell", ["", "one"])
def test_only_runs_of_cells_listen(cell, tmp_path) -> None:
    """A run of no cell loads none of the code that listens, and its record says nothing of files."""
    git(tmp_path, "init", "-q")
    (tmp_path / "test_it.py").write_text(
        f"import sys\ndef test():\n    assert ('pytest_cudalink.process.opened_files' in sys.modules) is {bool(cell)}\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "--cudalink-report=run.jsonl"]
    subprocess.run(command, cwd=tmp_path, env=environment() | {"CUDALINK_CELL": cell}, check=True, capture_output=True)
    assert ('"touched"' in (tmp_path / "run.jsonl").read_text()) is bool(cell)


def test_isolated_cell_is_not_proof_of_another_run(project, capsys) -> None:
    """The option --cudalink-isolate is none that is known to leave tests as they are."""
    row = selected(capsys)["both"]
    assert row["needed"]
    assert "other arguments: tests -q --cudalink-isolate" in row["reasons"][0]["text"]


@pytest.mark.parametrize("file", FAULTS)
def test_a_fault_fails_only_selected_cells(file, project, capsys) -> None:
    """Every cell that fails for a changed file was selected, and the reason names the file."""
    old, new = FAULTS[file]
    text = (project / file).read_text()
    assert old in text
    (project / file).write_text(text.replace(old, new))
    found = selected(capsys)
    failing = failing_cells(project)
    chosen = {name for name in ("one", "two") if found[name]["needed"]}
    assert failing == chosen
    assert all(file in [reason["file"] for reason in found[name]["reasons"]] for name in ("one", "two"))


@pytest.mark.parametrize("state", ["untracked", "staged", "committed"])
def test_a_new_file_selects_all(state, project, capsys) -> None:
    """No record can know a new file, whatever git knows of it."""
    (project / "pkg" / "third.py").write_text("")
    if state != "untracked":
        git(project, "add", "-A")
    if state == "committed":
        git(project, "checkout", "-q", "-b", "other")
        git(project, "commit", "-qm", "more")
    try:
        assert all(row["needed"] for row in selected(capsys).values())
    finally:
        git(project, "checkout", "-q", "--force", "--detach")
        git(project, "reset", "-q", "--hard", "HEAD~1" if state == "committed" else "HEAD")
        git(project, "branch", "-D", "other") if state == "committed" else None


def test_what_it_prints(project, capsys, monkeypatch) -> None:
    """Names for a runner, one line for each cell, and every reason."""
    (project / "pkg" / "first.py").write_text("def one():\n    return 1\n")
    assert cli.main(["matrix", "select", "--since", "HEAD", "--names", "--tags", "!gpu"]) == 0
    assert capsys.readouterr().out == "one\nboth\n"
    assert cli.main(["matrix", "select", "--since", "HEAD", "--explain"]) == 0
    text = capsys.readouterr().out
    assert "run       one   pkg/first.py changed; tests/test_one.py::test_one touched it first\n" in text
    assert "left out  two   nothing that it touched has changed; record of " in text
    assert "pkg/first.py changed; only both, one touched it" in text
    assert cli.main(["matrix", "github", "--since", "HEAD"]) == 0
    assert [row["cell"] for row in json.loads(capsys.readouterr().out)["include"]] == ["one", "both"]
    assert cli.main(["matrix", "list", "--since", "HEAD", "--shard", "1/2"]) == 0
    first = capsys.readouterr().out
    assert cli.main(["matrix", "list", "--since", "HEAD", "--shard", "2/2"]) == 0
    assert sorted(line.split()[0] for line in (first + capsys.readouterr().out).splitlines()) == ["both", "one"]


def test_nothing_to_run(project, capsys, monkeypatch, tmp_path) -> None:
    """An empty matrix is said to GitHub in a second output, because GitHub fails a job without a matrix."""
    output = tmp_path / "output"
    monkeypatch.setenv("GITHUB_OUTPUT", str(output))
    monkeypatch.setenv("CUDALINK_CELLS", "matrices/cells.toml")
    (project / ".cudalink" / "both.jsonl").rename(tmp_path / "both.jsonl")
    try:
        assert cli.main(["matrix", "github", "--since", "HEAD", "--shard", "2/2"]) == 0
    finally:
        (tmp_path / "both.jsonl").rename(project / ".cudalink" / "both.jsonl")
    assert json.loads(capsys.readouterr().out) == {"include": []}
    assert output.read_text() == 'matrix={"include":[]}\nany=false\n'


def test_report_of_a_selection(project, capsys, tmp_path) -> None:
    """A report names cells that were left out as missing, unless it is given their older records or may do without."""
    new = tmp_path / "new"
    new.mkdir()
    (new / "one.jsonl").write_bytes((project / ".cudalink" / "one.jsonl").read_bytes())
    cells = ["--cells", "matrices/cells.toml"]
    assert cli.main(["report", str(new), *cells]) == 1
    assert "incomplete: 2" in capsys.readouterr().err
    assert cli.main(["report", str(new), *cells, "--allow-missing", "two,both"]) == 0
    assert "2 cells did not run, which is allowed" in " ".join(capsys.readouterr().out.split())
    assert cli.main(["report", str(new), ".cudalink", *cells]) == 0
    assert "in 3 cells" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--since", "nothing"], "the revision is 'nothing'; expected a commit"),
    ],
)
def test_wrong_arguments(options, words, project, capsys) -> None:
    """A revision that does not exist is named."""
    assert cli.main(["matrix", "select", *options]) == 2
    assert words in capsys.readouterr().err


def test_without_a_checkout(tmp_path, capsys, monkeypatch) -> None:
    """Outside of git nothing can be selected."""
    (tmp_path / "cells.toml").write_text("[cells.one]\n")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert cli.main(["matrix", "select", "--since", "HEAD", "--file", str(tmp_path / "cells.toml")]) == 2
    assert "is not in a checkout of git" in capsys.readouterr().err


def test_groups_of_jobs(project, capsys) -> None:
    """Cells share jobs where there are more than jobs may be."""
    assert cli.main(["matrix", "github", "--jobs", "2"]) == 0
    rows = json.loads(capsys.readouterr().out)["include"]
    assert len(rows) <= 2
    assert sorted(",".join(row["cell"] for row in rows).split(",")) == ["both", "one", "two"]
    assert cli.main(["matrix", "github", "--jobs", "0"]) == 1


def test_cache_keys(project, capsys) -> None:
    """A key is that of the cell's packages, and changes with the project's requirements."""
    assert cli.main(["matrix", "cache-key", "one", "--json"]) == 0
    (before,) = json.loads(capsys.readouterr().out)
    (project / "pyproject.toml").write_text('[project]\nname = "small"\nversion = "1"\ndependencies = ["numpy"]\n')
    assert cli.main(["matrix", "cache-key", "one"]) == 0
    after = capsys.readouterr().out
    assert before["name"] == "wheels"
    assert after.startswith("wheels=wheels-none-")
    assert before["key"] not in after
