"""A project that adopts the matrix: from the built wheel, in an environment of its own, as its people would."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
import yaml

from pytest_cudalink import cli, toolchains
from pytest_cudalink.matrix import init, load_cells
from pytest_cudalink.matrix.ci import CELLS_VARIABLE
from pytest_cudalink.report.merge import merge
from pytest_cudalink.versions import CudaVersion

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
#: What is asked of the package index, and its answers.
INDEX = {"cuda-core": "cuda-core==1.2.0", "cuda-core<1.2.0": "cuda-core==1.1.0"}


def run(*command: str, cwd: Path, code: int | None = 0, **env: str) -> str:
    """Run a program; what it wrote."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("CUDALINK_", "PYTEST_", "NOX"))}
    kept = {"CUDALINK_CACHE": os.environ["CUDALINK_CACHE"]} if "CUDALINK_CACHE" in os.environ else {}
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(command, cwd=cwd, env={**clean, **kept, **env}, check=False, **streams)
    assert code is None or done.returncode == code, done.stdout
    return done.stdout


@pytest.fixture(scope="session")
def site(wheel, once) -> dict[str, str]:
    """The environment variables of a user who installed the wheel, in a fresh environment, and nothing else."""
    uv = str(Path(sys.executable).with_name("uv"))

    def install(folder: Path) -> None:
        run(uv, "venv", "-q", "--clear", "--python", sys.executable, str(folder), cwd=folder)
        package = f"pytest-cudalink[nox,report,tox] @ {wheel.as_uri()}"
        run(uv, "pip", "install", "-q", "--python", str(folder / "bin" / "python"), package, cwd=folder)

    folder = once("site", install)
    printed = run(str(folder / "bin" / "python"), "-c", "import pytest_cudalink; print(pytest_cudalink)", cwd=folder)
    assert str(folder) in printed
    path = f"{folder / 'bin'}:/usr/local/bin:/usr/bin:/bin"
    return {"PATH": path, "CUDALINK_REQUIREMENT": str(wheel), "VIRTUAL_ENV": str(folder)}


@pytest.fixture(scope="session")
def runners() -> dict[str, str]:
    """The environment variables with which nox and tox of this environment are found; nothing is installed."""
    programs = Path(sys.executable).parent
    if not (programs / "nox").exists() or not (programs / "tox").exists():
        pytest.skip("needs nox and tox: pip install nox tox")
    return {"PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin"}


@pytest.fixture
def project(tmp_path, monkeypatch, capsys) -> Path:
    """The project of the tutorial, which has adopted nox and GitHub; the current folder. `nox -s stranger` goes on."""
    folder = tmp_path / "scale"
    shutil.copytree(DOCS / "tutorials" / "project", folder, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    monkeypatch.chdir(folder)
    monkeypatch.setattr(init, "newest", INDEX.__getitem__)
    assert cli.main(["init", "--runner", "nox", "--ci", "github"]) == 0
    assert "write   matrices/cells.toml" in capsys.readouterr().out
    return folder


@pytest.fixture
def planned(tmp_path):
    """Lay out a project, each file with its text, and return the change of each file by its name."""

    def plan(files: dict[str, str], *words: str) -> dict[str, init.Change]:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(text.encode())
        return {change.path.name: change for change in init.plan_changes(tmp_path, *words)}

    return plan


@pytest.fixture
def first_cells(planned):
    """Lay out a project, the files that are only named empty, and return the cells.toml that is written for it."""

    def cells(pyproject: str, files=()) -> str:
        return planned({"pyproject.toml": pyproject, **dict.fromkeys(files, "")})["cells.toml"].content

    return cells


def test_cells_of_the_tutorial(project, capsys) -> None:
    """What is written has the cells that the page shows, which skip what needs a GPU; its exclusion leaves two out."""
    assert cli.main(["matrix", "check"]) == 0
    assert "11 cells, no errors\n" in capsys.readouterr().out
    cells = project / "matrices" / "cells.toml"
    environments = [cell.environment("r") for cell in load_cells(cells)]
    assert {e.get("CUDALINK_UNSUPPORTED") for e in environments if e.get("CUDALINK_DRIVER")} == {"skip"}
    cells.write_text(cells.read_text() + (project / "exclude.toml").read_text())
    assert len(load_cells(cells)) == 9


def test_init_keeps_what_is_there(project, capsys) -> None:
    """A second init writes nothing; a file that differs is left, with exit code 1; --dry-run writes nothing at all."""
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}

    def said(*words: str, code: int = 0) -> str:
        assert cli.main(["init", *words]) == code
        return capsys.readouterr().out

    lines = said("--runner", "nox", "--ci", "github").splitlines()
    assert {line.split()[0] for line in lines if not line.startswith("next")} == {"keep"}
    cells = project / "matrices" / "cells.toml"
    cells.write_text(cells.read_text() + "# mine\n")
    assert "leave   matrices/cells.toml" in said("--ci", "none", code=1)
    assert "-# mine" in said("--dry-run")
    assert cells.read_text().endswith("# mine\n")
    assert "replace matrices/cells.toml" in said("--force")
    assert {path: path.read_bytes() for path in project.rglob("*") if path.is_file()} == before


def outcome(folder: Path) -> dict[str, tuple]:
    """What the records of a project say, without times and paths."""
    return {
        cell.name: (cell.outcomes, cell.axes, cell.links, {name: v["found"] for name, v in cell.versions.items()})
        for cell in merge([folder / ".cudalink"]).cells
    }


def test_tox_and_nox_list_the_same(project, runners) -> None:
    assert cli.main(["init", "--runner", "tox", "--ci", "none"]) == 0
    nox = dict(re.findall(r"^[-*] (\S+)(?: \[.*?\])? -> (.*)$", run("nox", "-l", cwd=project, **runners), re.MULTILINE))
    del nox["report"]
    # the command that the written file names
    (command,) = re.findall(r"^# `(tox .*?)` lists", (project / "tox.toml").read_text(), re.MULTILINE)
    tox = dict(re.findall(r"^(\S+)\s+-> (.*)$", run(*command.split(), cwd=project, **runners), re.MULTILINE))
    del tox["py"]  # what tox has without a configuration
    assert nox == tox == {cell.name: cell.description for cell in load_cells(project / "matrices" / "cells.toml")}


@pytest.mark.weekly
@pytest.mark.slow
def test_tox_and_nox_give_the_same(project, site, tmp_path) -> None:
    """Same tags, and same results in environments made by either."""
    other = tmp_path / "other"
    shutil.copytree(project, other)
    tagged = dict(re.findall(r"^[-*] (\S+) \[(.*?)\]", run("nox", "-l", cwd=project, **site), re.MULTILINE))
    skewed = re.findall(r"^(ctk-\S+)", run("tox", "l", "-m", "skew", cwd=other, **site), re.MULTILINE)
    assert set(skewed) == {name for name, tags in tagged.items() if "skew" in tags.split(",")}
    cell = "ctk-13.0-driver-12.9"
    assert "CUDA_ERROR_UNSUPPORTED_PTX_VERSION" in run("nox", "-s", cell, cwd=project, code=1, **site)
    run("tox", "r", "-q", "-e", cell, cwd=other, code=None, **site)
    assert outcome(project) == outcome(other)
    assert [*outcome(other)] == [cell]


@pytest.mark.weekly
@pytest.mark.slow
def test_the_report_comes_whatever_happens(site, tmp_path) -> None:
    """A cell that collects nothing, or cannot be made, does not keep nox from the report, which names both."""
    (tmp_path / "matrices").mkdir()
    (tmp_path / "matrices" / "cells.toml").write_text(
        '[defaults]\ninstall = "none"\n[cells.good]\ntests = ["test_good.py"]\n[cells.bad]\ntests = ["test_bad.py"]\n'
        '[cells.unmade]\ngroups = ["nope"]\n[cells.future]\npython = "3.99"\n'
    )
    (tmp_path / "noxfile.py").write_text("from pytest_cudalink.matrix.nox import sessions\n\nsessions()\n")
    (tmp_path / "pyproject.toml").write_text("[dependency-groups]\ntest = []\n")
    (tmp_path / "test_good.py").write_text("def test(): pass\n")
    (tmp_path / "test_bad.py").write_text("import nothing_of_this_name\n")
    (tmp_path / ".cudalink").mkdir()
    # nox and the plugin of the site; uv makes the environments of the cells in a tenth of pip's time
    site = site | {"PATH": f"{site['PATH']}:{Path(sys.executable).parent}", "NOX_DEFAULT_VENV_BACKEND": "uv"}

    def nox(*words: str, **env: str) -> str:
        for cell in ("unmade", "future"):
            stale = tmp_path / ".cudalink" / f"{cell}.jsonl"
            stale.write_text(f'{{"event": "run", "time": 1, "schema": 1, "cell": "{cell}"}}\n')
            os.utime(stale, (1, 1))
        said = run("nox", *words, cwd=tmp_path, code=1, CI="1", **site, **env)
        assert re.search(
            r"future\s+no records: no Python 3\.99 here; install it, as with `uv python install 3\.99`", said
        )
        return said

    said = nox("-s", "report")
    assert re.search(r"bad\s+pytest ended with exit code 2", said)
    assert re.search(r"unmade\s+no records", said)
    assert "lacks a dependency group of the cell unmade; expected nope" in said
    assert "incomplete: 3" in said
    (tmp_path / "few.toml").write_text('[defaults]\ninstall = "none"\n[cells.future]\npython = "3.99"\n')
    nox("--session=report", CUDALINK_CELLS="few.toml")
    nox(NOXSESSION="report", CUDALINK_CELLS="few.toml")
    allowed = "--allow-missing=unmade,fut*"
    said = run("nox", "-R", "-s", "report", "--", allowed, cwd=tmp_path, code=1, **site)
    assert "incomplete: 1" in said
    assert "--allow-missing=future (allowed)" in " ".join(said.split())
    run("nox", "-R", "-s", "report", "--", "--fail-on", "none", "--save", "all.json", cwd=tmp_path, **site)
    assert [cell.name for cell in merge([tmp_path / "all.json"]).cells] == ["good", "bad"]
    assert "was not successful" not in said
    assert "Traceback" not in run("nox", "-R", "-s", "unmade", cwd=tmp_path, code=1, **site)


@pytest.mark.parametrize("runner", init.RUNNERS)
def test_github_workflow(runner, tmp_path) -> None:
    """Others can call it, it runs each cell by name, and its records always come; test_workflows evaluates it."""
    (change,) = [change for change in init.plan_changes(tmp_path, runner, "github") if change.path.suffix == ".yml"]
    workflow = yaml.safe_load(change.content)
    assert "defaults" not in workflow  # only in a folder
    assert "workflow_call" in workflow[True]  # YAML 1.1 reads "on" as true
    test, report = (workflow["jobs"][name] for name in ("test", "report"))
    # an older plugin, which does not say whether there is anything to run, runs the cells
    assert all("needs.cells.outputs.any != 'false'" in job["if"] for job in (test, report))
    assert any(
        step.get("run", "").endswith({"nox": " nox", "tox": " tox run"}[runner])
        and step["env"] == {CELLS_VARIABLE[runner]: "${{ matrix.cell }}"}
        for step in test["steps"]
    )
    upload = test["steps"][-1]
    assert (upload["if"], upload["with"]["path"]) == ("always()", ".cudalink")
    assert "always()" in report["if"]
    run_lines = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    # the plugin is one requirement in every job, and the environment of the cells names it, too
    assert workflow["env"]["CUDALINK_REQUIREMENT"] == "${{ vars.CUDALINK_REQUIREMENT || 'pytest-cudalink' }}"
    assert [line for line in run_lines if '"$CUDALINK_REQUIREMENT"' not in line] == []
    assert {job["timeout-minutes"] <= 60 for job in workflow["jobs"].values()} == {True}


@pytest.mark.parametrize(("requires", "python"), [(">=3.13", "3.13"), ("<3.12", "3.11"), (">=3.9", "3.12")])
def test_a_written_workflow_takes_a_python_that_the_project_allows(requires, python, planned) -> None:
    """Also in the jobs that run no cell; a Python of another release stands nowhere."""
    changes = planned({"pyproject.toml": f'[project]\nname = "p"\nrequires-python = "{requires}"\n'}, "nox")
    assert set(re.findall(r"\b3\.\d+\b", changes["cudalink.yml"].content)) == {python}


def test_cells_that_init_writes_are_chosen(planned, monkeypatch, tmp_path, capsys) -> None:
    """No cell has the tag of the night, which the workflow leaves out; a run for that tag alone is still refused."""
    monkeypatch.chdir(tmp_path)
    Path("cells.toml").write_text(planned({}, "nox")["cells.toml"].content, encoding="utf-8")
    assert cli.main(["matrix", "github", "--file", "cells.toml", "--tags", "!nightly,!gpu"]) == 0
    assert "ctk-13.0" in capsys.readouterr().out
    assert cli.main(["matrix", "github", "--file", "cells.toml", "--tags", "nightly"]) == 2
    assert "no cell of cells.toml has the tags 'nightly'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("present", "words", "actions"),
    [
        ((), (), {"noxfile.py": "write", "cudalink.yml": "write"}),
        ((), ("tox",), {"tox.toml": "write", "cudalink.yml": "write"}),
        ((), ("nox", "none"), {"noxfile.py": "write"}),
        (("pyproject.toml",), ("tox", "none"), {"tox.toml": "write"}),
        (("tox.ini", "noxfile.py"), (), {"noxfile.py": "append", "cudalink.yml": "write"}),
        (("tox.ini",), (), {"tox.ini": "keep", "cudalink.yml": "write"}),
        (("tox.toml", ".github/x"), (), {"tox.toml": "keep", "cudalink.yml": "write"}),
    ],
)
def test_what_a_project_has_decides(planned, present, words, actions) -> None:
    """The runner, unless it is named; what is there is kept or added to."""
    changes = planned(dict.fromkeys(present, ""), *words)
    written = {"cells.toml": "write", ".gitignore": "write"}
    assert {name: change.action for name, change in changes.items()} == actions | written
    paths = {str(change.path) for change in changes.values()}
    assert paths <= {*actions, ".github/workflows/cudalink.yml", "matrices/cells.toml", ".gitignore"}
    assert planned({"matrices/cells.toml": ""}, *words)["cells.toml"].action == "replace"


GUARDED = """\
# The cells of matrices/cells.toml; where pytest-cudalink is not installed, nox has the sessions above alone.
try:
    from pytest_cudalink.matrix.nox import sessions as cudalink_sessions
except ModuleNotFoundError:
    pass
else:
    cudalink_sessions("matrices/cells.toml"{})
"""
NOXFILE = "`nox -l` lists the cells where the plugin is installed together with nox: pip install 'pytest-cudalink[nox]'"
REQUIRES = 'requires = ["pytest-cudalink[tox]"]'
ADVICE = "put this into {}, or add to what is there:\n{}"


@pytest.mark.parametrize(
    ("name", "before", "content", "advice"),
    [
        ("tox.ini", "[tox]\nenv_list = py\n", None, "[tox]\nrequires = pytest-cudalink[tox]"),
        ("tox.ini", "[testenv]\ndeps = pytest-cudalink\n", None, "[tox]\nrequires = pytest-cudalink[tox]"),
        ("tox.ini", "[tox]\nrequires = pytest-cudalink[tox]\n", None, ""),
        ("tox.toml", "", None, REQUIRES),
        ("tox.toml", 'requires = [\n"tox", "pytest_cudalink[tox]"]\n', None, ""),
        ("pyproject.toml", '[tool.tox]\nenv_list = ["py"]\n', None, f"[tool.tox]\n{REQUIRES}"),
        (".gitignore", "*.pyc", "*.pyc\n.nox/\n.tox/\n.cudalink/\n", ""),
        (".gitignore", "*.pyc\r\n.tox/\r\n", "*.pyc\r\n.tox/\r\n.nox/\r\n.cudalink/\r\n", ""),
        (".gitignore", "", ".nox/\n.tox/\n.cudalink/\n", ""),
        (".gitignore", ".cudalink/\n.nox/\n.tox/\n", None, ""),
        ("noxfile.py", "import nox\n\n", "import nox\n\n" + GUARDED.format(""), NOXFILE),
        ("noxfile.py", "from pytest_cudalink.matrix.nox import sessions\n", None, ""),
    ],
)
def test_init_in_projects_of_other_shapes(planned, name, before, content, advice) -> None:
    """What configures the project's own runs gets advice, lists are appended to, and line ends stay as they are."""
    change = planned({name: before})[name]
    assert change.action == ("keep" if content is None else "append")
    assert change.content == (before if content is None else content)
    assert change.advice == (ADVICE.format(name, advice) if advice and advice != NOXFILE else advice)


@pytest.mark.parametrize(
    ("session", "taken"),
    [
        ("@nox.session\ndef report(session): ...\n", True),
        ('@session(python="3.12", name="report")\ndef make(session): ...\n', True),
        ('@nox.session(name="other")\ndef report(session): ...\n', False),
        ("@nox.session(name=NAME)\ndef report(session): ...\n", True),
        ("@fixture\ndef report(session): ...\n", False),
        ("def report(session): ...\n", False),
        ("def report(:\n", False),
        ('# /// script\n# dependencies = ["nox"]\n# ///\n', False),
    ],
)
def test_init_beside_a_session_report(planned, session, taken) -> None:
    """The session that merges the records gets another name, and the user hears it."""
    change = planned({"noxfile.py": f"import nox\n{session}"})["noxfile.py"]
    given = ', report="cudalink-report"' if taken else ""
    assert change.content.endswith(GUARDED.format(given))
    assert ("`nox -s cudalink-report` runs the cells" in change.advice) is taken
    script = "\nits script block names what `uv run noxfile.py` installs" in change.advice
    assert script is session.startswith("# ///")


def test_a_noxfile_without_the_plugin(runners, planned, tmp_path) -> None:
    """Contributors who have nox alone keep their sessions; what follows `nox.main()` at the end counts, too."""
    noxfile = "import nox\n\n@nox.session\ndef lint(session): ...\n\nif __name__ == '__main__':\n    nox.main()\n"
    changes = planned({"noxfile.py": noxfile})
    planned({str(changes[name].path): changes[name].content for name in ("noxfile.py", "cells.toml")})
    assert "ctk-13.0" in run("nox", "-l", cwd=tmp_path, **runners)
    (tmp_path / "pytest_cudalink.py").write_text("raise ModuleNotFoundError")
    said = run("nox", "-l", cwd=tmp_path, **runners, PYTHONPATH=str(tmp_path))
    assert "* lint" in said
    assert "ctk-13.0" not in said


@pytest.mark.parametrize(
    ("noxfile", "groups", "more", "unknown"),
    [
        ("import os, nox.command\nfrom packaging import tags\nfrom . import nothing\nfrom .a import b\n", "", "", ""),
        ("from nox_poetry import session\n", 'test = ["Nox.Poetry>=1,<2"]', "--with 'Nox.Poetry<2,>=1' ", ""),
        ("import nox_poetry\nimport helper\nimport tools.of_ours\n", "", "", "nox_poetry"),
        ("try:\n    import yaml\nexcept ImportError: ...\ndef f(): import yaml\n", "", "", ""),
        ('# /// script\r\n# dependencies = ["nox", "pyyaml"]\r\n# ///\r\nimport yaml\n', "", "--with pyyaml ", ""),
        ("# /// script\n# dependencies = 1\n# ///\nimport yaml\n", "", "", "yaml"),
        ("# /// script\n# [\n# ///\n", "", "", ""),
        ("import (", "", "", ""),
    ],
)
def test_the_workflow_installs_what_the_noxfile_imports(planned, noxfile, groups, more, unknown) -> None:
    files = {"pyproject.toml": f"[dependency-groups]\n{groups}\n", "noxfile.py": noxfile}
    files |= {"helper.py": "", "tools/x": ""}
    change = planned(files)["cudalink.yml"]
    assert f'- run: uvx --with "$CUDALINK_REQUIREMENT" {more}nox\n' in change.content
    advice = f"noxfile.py imports {unknown}: put --with and the package that has it before `nox` in the job test"
    assert change.advice == (advice if unknown else "")
    tox = planned(files, "tox")["cudalink.yml"]
    assert (" --with tox-uv tox run\n" in tox.content, tox.advice) == (True, "")


def git(folder: Path, *words: str) -> None:
    """Run git without the settings of the machine."""
    run("git", "-c", "user.name=a", "-c", "user.email=a@b", *words, cwd=folder, GIT_CONFIG_GLOBAL="/dev/null")


@pytest.mark.parametrize(
    ("branches", "head", "expected"),
    [
        (["topic"], "", "main"),
        (["master"], None, "master"),
        (["topic", "master"], "", "master"),
        (["master", "main"], "", "main"),
        (["main"], "dev/1.x", '"dev/1.x"'),
    ],
)
def test_the_workflow_runs_on_the_default_branch(planned, tmp_path, branches, head, expected) -> None:
    """The one of the remote as the clone found it, whatever is checked out; else the usual one that is or will be."""
    git(tmp_path, "init", "-q", "-b", branches[0])
    if head is not None:
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", "a")
    for name in branches[1:]:
        git(tmp_path, "branch", name)
    if head:
        git(tmp_path, "update-ref", f"refs/remotes/origin/{head}", "HEAD")
        git(tmp_path, "symbolic-ref", "refs/remotes/origin/HEAD", f"refs/remotes/origin/{head}")
    assert f"    branches: [{expected}]\n" in planned({})["cudalink.yml"].content


def test_the_workflow_brings_submodules(tmp_path) -> None:
    """The job that builds the project needs them."""
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitmodules").touch()
    for root in (tmp_path, tmp_path / "part"):
        root.mkdir(exist_ok=True)
        (change,) = (change for change in init.plan_changes(root) if change.path.suffix == ".yml")
        jobs = yaml.safe_load(change.content)["jobs"]
        asked = {name: job["steps"][0]["with"].get("submodules") for name, job in jobs.items()}
        assert asked == {"cells": None, "test": "recursive", "report": None}


def test_a_project_in_a_folder_of_its_repository(tmp_path, monkeypatch, capsys) -> None:
    """GitHub reads workflows at the top alone: there it is written, and runs in the folder of the project."""
    git(tmp_path, "init", "-q")
    root = tmp_path / "python" / "part"
    root.mkdir(parents=True)
    monkeypatch.chdir(root)
    assert cli.main(["init"]) == 0
    assert "write   ../../.github/workflows/cudalink-python-part.yml\n" in capsys.readouterr().out
    workflow = yaml.safe_load((tmp_path / ".github" / "workflows" / "cudalink-python-part.yml").read_text())
    assert workflow["defaults"] == {"run": {"working-directory": "python/part"}}
    assert workflow["name"] == "cudalink python/part"  # the group of what may run at a time has it, too
    steps = [step["with"] for job in workflow["jobs"].values() for step in job["steps"] if "with" in step]
    outside = [value for step in steps for key in ("path", "cache-dependency-glob") if (value := step.get(key))]
    assert set(outside) == {
        *("~/.cache/pytest-cudalink", "python/part/matrices/cells.toml"),
        *("python/part/.cudalink", "python/part/cudalink.html"),
    }
    assert [step["key"].count("hashFiles('python/part/matrices/cells.toml')") for step in steps if "key" in step] == [1]
    assert (root / "matrices" / "cells.toml").exists()
    (tmp_path / "a b").mkdir()
    monkeypatch.chdir(tmp_path / "a b")
    assert cli.main(["init"]) == 2
    assert "the folder of the project in its repository is 'a b'; expected letters" in capsys.readouterr().err
    assert cli.main(["init", "--ci", "none"]) == 0


SUITS = "the CUDA runtime does not run on the emulated driver, so that cells skip the tests that call it"
TEST_GROUP = '[project]\nname = "p"\n[dependency-groups]\ntest = ["cupy-cuda13x", "torch>=2"]\n'


@pytest.mark.parametrize(
    ("files", "notes"),
    [
        ({"pyproject.toml": '[project]\nname = "p"\ndependencies = ["cuda-core", "torchlike"]\n'}, []),
        (
            {"pyproject.toml": TEST_GROUP},
            ["cupy-cuda13x (group test) calls the CUDA runtime", "torch (group test) calls the CUDA runtime"],
        ),
        ({"pyproject.toml": '[project]\nname = "Warp_Lang"\n'}, ["Warp_Lang (the project itself) calls the CUDA"]),
        (
            {
                "cpp/CMakeLists.txt": "project(a\n  VERSION 1\n  LANGUAGES CXX CUDA)\n",
                "docs/CMakeLists.txt": "enable_language(CUDA)",
                "setup.py": "",
            },
            ["cpp/CMakeLists.txt builds for the CUDA runtime: each cell with the project needs nvcc"],
        ),
        ({"tests/CMakeLists.txt": "enable_language(CUDA)", "setup.py": ""}, []),
        ({"CMakeLists.txt": "project(a LANGUAGES CXX)\nfind_package(CUDAToolkit)\n", "setup.py": ""}, []),
    ],
)
def test_init_says_first_what_cells_will_skip(planned, tmp_path, monkeypatch, capsys, files, notes) -> None:
    """A project on the CUDA runtime hears it before anything is written, by its requirements and its build files."""
    planned(files)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["init", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    said = [line for line in lines if line.startswith("note: ")]
    assert lines[: len(said)] == said
    assert len(said) == len(notes) + bool(notes)
    assert all(line.startswith(f"note: {note}") for line, note in zip(said, [*notes, SUITS], strict=False))


def test_init_looks_into_compiled_parts(tmp_path, monkeypatch, capsys) -> None:
    """One that contains the CUDA runtime is named by its path: of a build in the project, or as installed."""
    folder = Path(distribution("cuda-bindings").locate_file("cuda/bindings/_bindings"))
    monkeypatch.chdir(tmp_path)
    for file in folder.glob("cy*.so"):
        shutil.copy(file, tmp_path) if file.name.startswith(("cyruntime.", "cydriver.")) else None
    assert cli.main(["init", "--dry-run"]) == 0
    (first, *_) = capsys.readouterr().out.splitlines()
    assert first.startswith(f"note: {tmp_path}/cyruntime.")
    assert first.endswith(".so calls the CUDA runtime")
    for file in tmp_path.glob("*.so"):
        file.unlink()
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "cuda_bindings"\n')
    assert cli.main(["init", "--dry-run"]) == 0
    (first, *_) = capsys.readouterr().out.splitlines()
    assert first.startswith(f"note: {folder}/cyruntime")


def test_init_above_the_projects(planned, tmp_path, monkeypatch, capsys) -> None:
    """A folder that is not a project names those below it, and installs none; a setup.py alone makes it one."""
    below = [f"{folder}/pyproject.toml" for folder in ("python/b", "python/a", "third_party/c")]
    files = {"pyproject.toml": "[tool.ruff]\n", **dict.fromkeys(below, '[project]\nname = "p"\n')}
    assert '\ninstall = "none"\n' in planned(files)["cells.toml"].content
    monkeypatch.chdir(tmp_path)
    assert cli.main(["init", "--dry-run"]) == 0
    note = "note: this folder is not a project, and these are: python/a, python/b; run `cudalink init` there"
    assert capsys.readouterr().out.splitlines()[0] == note
    assert '\ninstall = "none"\n' not in planned({"setup.py": ""})["cells.toml"].content
    assert cli.main(["init", "--dry-run"]) == 0
    assert "note:" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("pytest_of_tests", "told"),
    [
        *((requirement, True) for requirement in ("pytest==7.3.2", "pytest<8", "pytest===x")),
        *((requirement, False) for requirement in ("pytest~=8.0", "pytest==8.4", "pytest==9.1.*", "pytest")),
    ],
)
def test_init_says_that_no_cell_can_be_installed(tmp_path, pytest_of_tests: str, told: bool) -> None:
    """The tests of such a project require an older pytest than the plugin does."""
    project = f'[project]\nname = "own"\noptional-dependencies.test = ["{pytest_of_tests}"]\n'
    (tmp_path / "pyproject.toml").write_text(project)
    assert init.older_pytest(tmp_path) == (f"{pytest_of_tests} (extra test)" if told else "")
    required = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    assert f"pytest>={init.OLDEST_PYTEST}" in required


OLDEST = "# the oldest release of each direct requirement of the project; each needs a lower bound"
ALONE = "# here alone, as elsewhere a toolkit of the system or a package of the tests stands in for it"
OF_CORE = '[project]\nname = "a.b-c"\ndependencies = ["numpy>=1", "cuda_core>=1"]'
WITHOUT_BOUNDS = (
    '[project]\nname = "a"\ndependencies = ["numpy<2", "cuda-core", "scipy~=1.0,!=1.2", "x; os_name==\'nt\'"]'
)


@pytest.mark.parametrize(
    ("pyproject", "files", "answers", "expected", "absent"),
    [
        ('[build-system]\nrequires = ["x"]', ["test/x"], {}, ['tests = ["test"]'], ['install = "none"']),
        (
            *(OF_CORE, ["test/x", "tests/x", "a_b_c.py"], INDEX),
            [
                *("[cells.oldest]", "[cells.bare]", 'imports = ["a_b_c"]', 'tests = ["tests"]', OLDEST, ALONE),
                *("[cells.cuda-core-previous]", 'packages = { cuda-core = "1.1.0" }'),
            ],
            ["# [cells.bare]"],
        ),
        (*(WITHOUT_BOUNDS, [], {"cuda-core": None}),
         ["# [cells.oldest]", "# [cells.cuda-core-previous]", f"{OLDEST}; without one: numpy, cuda-core"], []),
        (*('[project]\nname = "a"\ndependencies = ["cuda-core>1"]', [], INDEX | {"cuda-core<1.2.0": ""}),
         ["[cells.oldest]", "# [cells.cuda-core-previous]"], []),
        ('[project]\nname = "a"\ndependencies = []', ["a.py"], {}, ["# [cells.oldest]", "[cells.bare]"], []),
        # its own modules need no other requirement
        ('[project]\nname = "cupy"\n', ["cupy.py"], {}, ["[cells.bare]"], []),
    ],
)  # fmt: skip
def test_the_first_cells(first_cells, monkeypatch, pyproject, files, answers, expected, absent) -> None:
    """Those that the project can pass; the others are comments, with the reason where there is one."""
    monkeypatch.setattr(init, "newest", answers.__getitem__)
    written = first_cells(pyproject, files).splitlines()
    assert [line for line in expected if line not in written] == []
    assert [line for line in absent if line in written] == []
    assert f'[cells."ctk-13.0-nvjitlink-{max(toolchains.releases())}"]' in written


def test_the_first_cells_without_a_project(planned, monkeypatch) -> None:
    """What needs one is a comment; toolkit and driver are of CUDA 13, so nvJitLink is, too, beside a later major."""
    monkeypatch.setattr(toolchains, "releases", lambda: [CudaVersion(13, 0), CudaVersion(13, 4), CudaVersion(14, 0)])
    written = planned({})["cells.toml"].content.splitlines()
    expected = ['install = "none"', "tests = []", "# [cells.oldest]", "# [cells.bare]", '# imports = ["mylib"]', OLDEST]
    expected += ["# [cells.cuda-core-previous]", '# packages = { cuda-core = "1.0.0" }', ALONE]
    assert [line for line in [*expected, '[cells."ctk-13.0-nvjitlink-13.4"]'] if line not in written] == []
    assert "[cells.bare]" not in written


GROUPS, EXTRAS = "[dependency-groups]\n", "[project.optional-dependencies]\n"
TESTS_OF_CUDA = 'test = ["a"]\ntest-cu12 = []\ntest_cu13 = [{include-group = "test"}]\ntest-sysctk12 = []\n'
BRINGS_CUDA = 'test = ["pytest"]\ntests-cuda12x = []\ncu13 = ["a"]\ntests-cuda13x = ["p[cu13]"]'


@pytest.mark.parametrize(
    ("tables", "groups", "extras"),
    [
        (f"{GROUPS}dev = []", '"dev"', ""),
        (f"{GROUPS}dev = []\nTests = []", '"Tests"', ""),
        (f"{GROUPS}lint = []\ncu12 = []\ncu13 = []", '"cu{major}"', ""),
        # nothing could be installed into the cells of the other release
        (f"{GROUPS}lint = []\ncu12 = []", "", ""),
        (f"{GROUPS}lint = []\ncu13 = []", "", ""),
        (f"{GROUPS}{TESTS_OF_CUDA}{EXTRAS}cu12 = []\ncu13 = []", '"test-cu{major}"', '"cu{major}"'),
        (f"{EXTRAS}{BRINGS_CUDA}", "", '"test", "tests-cuda{major}x"'),
        (f"{EXTRAS}testsuite = []\ndocs = []", "", '"testsuite"'),
        (f"{EXTRAS}cu12 = []\ncu13 = []\ntest = []", "", '"test", "cu{major}"'),
        (f"dependencies = ['pytest']\n{EXTRAS}docs = []\nci = ['Pytest>=4', 'pandas']", "", '"ci"'),
        (f"{EXTRAS}cuda13x = []", "", '"cuda{major}x"'),
        (f"{EXTRAS}test-cu13 = []\ncu13 = []", "", '"test-cu{major}", "cu{major}"'),
    ],
)
def test_init_takes_groups_and_extras(first_cells, tables, groups, extras) -> None:
    """The one of tests by its usual names, the likeliest first, and that of CUDA as each cell fills it in."""
    assert f"\ngroups = [{groups}]\nextras = [{extras}]\n" in first_cells(f'[project]\nname = "p"\n{tables}\n')


def test_init_warns_of_the_extra_of_another_release(tmp_path, monkeypatch, capsys) -> None:
    """A requirement that fits one half of the cells is named when they are written, with what to do."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "p"\ndependencies = ["numba-cuda[cu12]"]\n')
    assert cli.main(["init", "--dry-run"]) == 0
    assert "warning" not in capsys.readouterr().out
    assert cli.main(["init"]) == 0
    *_, warning, last = capsys.readouterr().out.splitlines()
    assert warning.startswith("matrices/cells.toml: warning: ctk-13.0, ctk-13.2, ctk-13.0-nvjitlink-")
    assert "move it into extras 'cu12' and 'cu13' of the project" in warning
    assert last == "next: cudalink matrix list"


FORGETS = "cuda.core, and no requirement brings cuda-b"


@pytest.mark.parametrize(
    ("files", "requires", "needs"),
    [
        ({"my_lib.py": "from cuda.core import Device"}, ["cuda-core"], FORGETS),
        ({"my_lib.py": "from cuda.core import Device"}, ["cuda-core[cu13]"], ""),
        ({"my_lib.py": "from cuda import core"}, ["cuda-core", "cuda-bindings"], ""),
        ({"my_lib.py": "import cupy as cp"}, ["cupy-cuda13x"], ""),
        ({"my_lib.py": "import cupy as cp"}, [], "cupy, and no requirement brings cupy"),
        ({"my_lib.py": "try:\n  import cupy\nexcept ImportError: ...\ndef f():\n  import cuda"}, [], ""),
        ({"src/my_lib/__init__.py": "from .a import b", "src/my_lib/a.py": "import os, cuda.core"}, [], "cuda.core"),
        (
            {
                "my_lib/__init__.py": "from my_lib import a",
                "my_lib/a/__init__.py": "from ..b import c",
                "my_lib/b.py": "from .d import e",
                "my_lib/d.py": "import cuda",
            },
            [],
            "cuda",
        ),
        ({"my_lib/__init__.py": "from . import b", "my_lib/b.py": "import my_lib\nimport cudaq"}, [], ""),
        ({"my_lib.py": "def"}, [], ""),
        ({"my_lib.py": "import cuda.core.experimental"}, [], FORGETS),
        ({"my_lib.py": "import helper", "helper.py": "import cuda"}, [], ""),
    ],
)
def test_the_bare_cell_is_for_projects_that_can_pass_it(planned, files, requires, needs) -> None:
    """A wheel whose import needs what no requirement brings cannot pass: the cell is a comment, with the reason."""
    pyproject = f'[project]\nname = "my-lib"\ndependencies = {requires}\n'
    written = planned({"pyproject.toml": pyproject} | files)["cells.toml"].content
    assert ("\n[cells.bare]\n" in written) is not bool(needs)
    assert ("# Not yet for this project: its import needs " in written) is bool(needs)
    assert f"its import needs {needs}" in written or not needs


def test_a_module_is_read_once_however_often_another_imports_it(planned, tmp_path) -> None:
    planned({"my_lib/__init__.py": "from .a import b\nfrom .a import c\n", "my_lib/a.py": "import cuda\n"})
    assert [*init._imports(tmp_path, "my_lib")] == ["cuda"]


@pytest.mark.parametrize(
    ("name", "files", "module"),
    [
        ("my-lib", ["src/my_lib/__init__.py", "other/__init__.py"], "my_lib"),
        ("My.Lib", ["my_lib.py"], "my_lib"),
        ("cuda-cccl", ["cuda/cccl/__init__.py"], "cuda.cccl"),
        ("my-own-lib", ["src/my/own_lib.py"], "my.own_lib"),
        ("quack-kernels", [f"{name}/__init__.py" for name in ("quack", "tests", "docs", "quack/a")], "quack?"),
        ("warp-lang", ["src/warp/__init__.py", "__init__.py"], "warp?"),
        ("my-lib", ["a/__init__.py", "a/b/__init__.py", "tests/__init__.py", "b/c.py"], "a?"),
        ("nvmath-python", ["builder/__init__.py", "nvmath/__init__.py"], "nvmath?"),
        ("my-lib", ["a/__init__.py", "b/__init__.py"], "my_lib?"),
        ("my-lib", [], "my_lib?"),
    ],
)
def test_the_import_of_the_bare_cell_is_there(first_cells, name, files, module) -> None:
    """What is called as the project is, as its code is laid out; anything else is a guess, and so a comment."""
    written, certain = first_cells(f'[project]\nname = "{name}"\n', files), module.rstrip("?")
    assert (f'\n[cells.bare]\nkind = "bare"\nimports = ["{certain}"]\n' in written) is (certain == module)
    assert (f"nothing here is named {name.replace('-', '_')}; {certain!r} is a guess" in written) is (certain != module)


POETRY = """
[tool.poetry.group.test.dependencies]
pytest = "^8.4"
mock = "*"
scikit-optimize = "0.10.2"
nox-poetry = { version = "~1.0.3", extras = ["a", "b"] }
ours = { path = "../ours" }
either = "^1 || ^2"

[tool.pytest]
required_plugins = ['nox_poetry']
"""
OF_POETRY = ["pytest<9,>=8.4", "mock", "scikit-optimize==0.10.2", "nox-poetry[a,b]<1.1,>=1.0.3"]
REQUIRED = "[pytest]\nrequired_plugins = pytest-mock>=3 %s pytest-mock\n"
OF_XDIST = '[tool.pytest]\naddopts = ["-n2"]\n[dependency-groups]\ndev = ["pytest_xdist"]'


@pytest.mark.parametrize(
    ("files", "packages", "reasons"),
    [
        ({"pyproject.toml": POETRY}, OF_POETRY, ["packages: what poetry's group 'test' requires"]),
        ({"pyproject.toml": POETRY.partition("[tool.pytest]")[0] + "[dependency-groups]\ntest = []\n"}, [], []),
        ({"pyproject.toml": '[tool.poetry.dev-dependencies]\npytest = ">=8.4,<10"\n'}, ["pytest<10,>=8.4"], ["'dev'"]),
        ({"pyproject.toml": "[tool.pytest.ini_options]\naddopts = '--cov=a --cov-report=\"b c\" -n2 --covers'\n"},
         ["pytest-cov", "pytest-xdist"],
         ["pytest-cov: pytest's addopts has --cov\n", "pytest-xdist: pytest's addopts has -n2\n"]),
        ({"pyproject.toml": OF_XDIST}, [], []),
        ({"pytest.ini": REQUIRED, "setup.cfg": "[tool:pytest]\naddopts=-n2"}, ["pytest-mock>=3"],
         ["pytest-mock>=3: pytest's required_plugins names it\n"]),
        ({"setup.cfg": "[tool:pytest]\naddopts = --reruns 2\n"}, ["pytest-rerunfailures"], ["addopts has --reruns"]),
        ({"tox.ini": "[pytest]\naddopts = '\n", "setup.cfg": "not an ini file"}, [], []),
        ({"ci/pytest.ini": "[pytest]\naddopts = -n2\n"}, ["pytest-xdist"], []),
    ],
)  # fmt: skip
def test_what_the_tests_need_besides(planned, tmp_path, files, packages, reasons) -> None:
    """Poetry's group of the tests in words of other installers, and the plugins that pytest's settings ask for."""
    written = planned(files)["cells.toml"].content
    planned({"cells.toml": written})
    (cell,) = [cell for cell in load_cells(tmp_path / "cells.toml") if cell.name == "ctk-13.0"]
    assert [reason for reason in reasons if reason not in written] == []
    assert list(cell.packages[-len(packages) :] if packages else []) == packages
    assert tomllib.loads(written)["defaults"]["packages"] == packages
    # a run in which tests are skipped covers less than the project wants of all
    covered = "--cov" in str(files)
    assert (cell.values.env.get("PYTEST_ADDOPTS") == "--no-cov") is covered
    assert ("coverage is not measured here" in written) is covered


OF_UNIT = '[tool.pytest.ini_options]\ntestpaths = "unit"\n'
STRICT = "[tool.pytest.ini_options]\nxfail_strict = true\n"


@pytest.mark.parametrize(
    ("files", "settings", "expected", "perhaps"),
    [
        (["tests/a.py", "a/tests/test_a.py"], "", ["tests"], ""),
        (["testing/python/a/b_test.py", "docs/tests/test_a.py", ".nox/a/tests/test_b.py"], "", ["testing"], ""),
        # what is inside a package may have to be called by the package's name
        (["a/b/c/d/e/tests/test_a.py"], "", [], ""),
        (["a/b/tests/driver/test_a.py", "a/b/tests/nvm/test_b.py"], "", [], "perhaps the tests: a/b/tests"),
        (["a/tests/test_a.py", "a/tests/data.py", "b/tests/test_b.py"], "", [], "perhaps the tests: a/tests, b/tests"),
        (["a/tests/data.py", "a/latest/test_b.py"], "", [], ""),
        (["tests/a.py"], OF_UNIT, [], ""),
        (["a/b/tests/test_a.py", "testing/pytest.ini"], "", ["-c", "testing/pytest.ini"], ""),
        (["a/tests/test_a.py", "ci/pytest.ini", "b/pytest.ini"], "", [], "perhaps the tests: a/tests"),
        (["tests/a.py", "b/pytest.ini"], STRICT, ["tests"], ""),
        (["test-requirements.txt", "requirements.txt"], "", [], "from files of requirements: test-requirements.txt\n"),
        ([f"requirements/{name}.txt" for name in ("dev", "docs")] + ["tests-requirements.txt"], "", [],
         "requirements/dev.txt, tests-"),
    ],
)  # fmt: skip
def test_where_the_tests_are(first_cells, files, settings, expected, perhaps) -> None:
    """At the top, or as pytest's settings say it; what is further below is a guess, and so a comment."""
    written = first_cells(settings, files)
    assert tomllib.loads(written)["defaults"]["tests"] == expected
    assert perhaps in written
    assert bool(perhaps) is ("\n# perhaps " in written)


def test_init_names_what_the_tests_import_and_nothing_requires(first_cells, planned, tmp_path) -> None:
    """Neither what a requirement's name holds, nor the project's modules, nor what one function alone imports."""
    source = "import os, numpy, pynvml, zmq, scipy.io, own, helpers, attr\nfrom yaml import load\n"
    source += "def late():\n    import pandas\n"
    planned({"own.py": "import requests\n", "tests/test_own.py": source})
    (tmp_path / "tests" / "helpers.py").write_bytes(b"# coding: latin-1\n# \xe9\nimport matplotlib\n")
    planned({"tests/test_old.py": "print 'python 2'\nimport nose\n"})
    written = first_cells(
        '[project]\nname = "own"\nversion = "1"\ndependencies = ["pyyaml", "nvidia-ml-py"]\n'
        'optional-dependencies = { test = ["NumPy"], plot = ["Matplotlib>=3"] }\n'
    )
    names = "attr, matplotlib (extra plot), scipy, zmq"
    assert f"\n# the tests import {names}, which the project and these do not name\n" in written


def test_init_quotes_the_session_of_the_tests(planned) -> None:
    """What a noxfile installs for them stands above what the cells install."""
    noxfile = (
        "@nox.session\ndef lint(session):\n    session.install('ruff')\n"
        "@nox.session\ndef tests(session):\n    if a():\n        session.install('-e', '.[deep]')\n"
        "    session.install('-r', 'test.txt', NAME, *MORE)\n    session.run('pytest')\n"
        "@nox.session\ndef test(session):\n    session.run('pytest')\n"
    )
    written = planned({"noxfile.py": noxfile})["cells.toml"].content
    assert "\n# the session tests of noxfile.py installs: -e .[deep] -r test.txt\npackages = []\n" in written
    assert "ruff" not in written


@pytest.mark.parametrize(
    ("tools", "cmake", "release"),
    [
        ("", "project(a LANGUAGES CXX CUDA)", "lib-a"),
        ("[tool.rapids-build-backend]\n", "", "lib-a-cu{major}"),
        ("", "project(a LANGUAGES CXX)", ""),
    ],
)
def test_a_project_that_builds_for_cuda(planned, tools, cmake, release) -> None:
    """The file says how to test a release instead of building it in each cell."""
    files = {"pyproject.toml": f'[project]\nname = "lib-a"\n{tools}', "CMakeLists.txt": cmake}
    written = planned(files)["cells.toml"].content
    line = f'# to test a release, without a build: install = "none" and packages = ["{release}"]\n'
    assert (line in written) is ("to test a release" in written) is bool(release)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("pyproject.toml", b"[", "pyproject.toml: not TOML"),
        ("noxfile.py", b"# \xe9\n", "noxfile.py: not UTF-8"),
        ("pyproject.toml", b'[project]\nrequires-python = "<3.11"\n', "is '<3.11'; expected a range with"),
        ("pyproject.toml", b'[project]\nrequires-python = "3.12"\n', "pyproject.toml: Invalid specifier: '3.12'"),
        ("matrices", b"", "matrices"),
    ],
)
def test_init_says_which_file_is_wrong(tmp_path, monkeypatch, capsys, name, content, words) -> None:
    """A file that cannot be read or written is named, in one line."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(content)
    assert cli.main(["init", "--ci", "github"]) == 2
    assert words in capsys.readouterr().err
