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
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**clean, **kept, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
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
    return {
        "PATH": f"{folder / 'bin'}:/usr/local/bin:/usr/bin:/bin",
        "CUDALINK_REQUIREMENT": str(wheel),
        "VIRTUAL_ENV": str(folder),
    }


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


def test_cells_of_the_tutorial(project, capsys) -> None:
    """What is written has the cells that the page shows; the page's exclusion leaves two out."""
    assert cli.main(["matrix", "check"]) == 0
    assert "11 cells, no errors\n" in capsys.readouterr().out
    cells = project / "matrices" / "cells.toml"
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
def test_a_written_workflow_takes_a_python_that_the_project_allows(requires, python, tmp_path) -> None:
    """Also in the jobs that run no cell; a Python of another release stands nowhere."""
    (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "p"\nrequires-python = "{requires}"\n')
    changes = {change.path.name: change for change in init.plan_changes(tmp_path, "nox")}
    assert set(re.findall(r"\b3\.\d+\b", changes["cudalink.yml"].content)) == {python}


def test_cells_that_init_writes_are_chosen(tmp_path, monkeypatch, capsys) -> None:
    """No cell has the tag of the night, which the workflow leaves out; a run for that tag alone is still refused."""
    changes = {change.path.name: change.content for change in init.plan_changes(tmp_path, "nox")}
    monkeypatch.chdir(tmp_path)
    Path("cells.toml").write_text(changes["cells.toml"], encoding="utf-8")
    assert cli.main(["matrix", "github", "--file", "cells.toml", "--tags", "!nightly,!gpu"]) == 0
    assert "ctk-13.0" in capsys.readouterr().out
    assert cli.main(["matrix", "github", "--file", "cells.toml", "--tags", "nightly"]) == 2
    assert "no cell of cells.toml has the tags 'nightly'" in capsys.readouterr().err


OF_NOX, OF_TOX = {"noxfile.py": "write"}, {"tox.toml": "write"}
OF_GITHUB = {".github/workflows/cudalink.yml": "write"}


@pytest.mark.parametrize(
    ("present", "words", "actions"),
    [
        ((), (), OF_NOX | OF_GITHUB),
        ((), ("tox",), OF_TOX | OF_GITHUB),
        ((), ("nox", "none"), OF_NOX),
        (("pyproject.toml",), ("tox", "none"), OF_TOX),
        (("pyproject.toml", "noxfile.py"), (), {"noxfile.py": "append"} | OF_GITHUB),
        (("tox.ini", "noxfile.py"), (), {"noxfile.py": "append"} | OF_GITHUB),
        (("tox.ini",), (), {"tox.ini": "keep"} | OF_GITHUB),
        (("tox.toml", ".github"), (), {"tox.toml": "keep"} | OF_GITHUB),
    ],
)
def test_what_a_project_has_decides(tmp_path, present, words, actions) -> None:
    """The runner, unless it is named; what is there is kept or added to."""
    for name in present:
        (tmp_path / name).mkdir() if name == ".github" else (tmp_path / name).touch()
    changes = {str(change.path): change.action for change in init.plan_changes(tmp_path, *words)}
    assert changes == actions | {"matrices/cells.toml": "write", ".gitignore": "write"}
    (tmp_path / "matrices").mkdir()
    (tmp_path / "matrices" / "cells.toml").touch()
    assert init.plan_changes(tmp_path, *words)[0].action == "replace"


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
def test_init_in_projects_of_other_shapes(tmp_path, name, before, content, advice) -> None:
    """What configures the project's own runs gets advice, lists are appended to, and line ends stay as they are."""
    (tmp_path / name).write_bytes(before.encode())
    (change,) = (change for change in init.plan_changes(tmp_path, ci="none") if str(change.path) == name)
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
def test_init_beside_a_session_report(tmp_path, session, taken) -> None:
    """The session that merges the records gets another name, and the user hears it."""
    (tmp_path / "noxfile.py").write_text(f"import nox\n{session}", encoding="utf-8")
    (change,) = (change for change in init.plan_changes(tmp_path, ci="none") if str(change.path) == "noxfile.py")
    given = ', report="cudalink-report"' if taken else ""
    assert change.content.endswith(GUARDED.format(given))
    assert ("`nox -s cudalink-report` runs the cells" in change.advice) is taken
    assert ("\nits script block names what `uv run noxfile.py` installs" in change.advice) is session.startswith(
        "# ///"
    )


def test_a_noxfile_without_the_plugin(runners, tmp_path) -> None:
    """Contributors who have nox alone keep their sessions; what follows `nox.main()` at the end counts, too."""
    noxfile = tmp_path / "noxfile.py"
    noxfile.write_text(
        "import nox\n\n@nox.session\ndef lint(session): ...\n\nif __name__ == '__main__':\n    nox.main()\n"
    )
    for change in init.plan_changes(tmp_path, ci="none"):
        if change.path.name in ("noxfile.py", "cells.toml"):
            (tmp_path / change.path).parent.mkdir(exist_ok=True)
            (tmp_path / change.path).write_text(change.content)
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
def test_the_workflow_installs_what_the_noxfile_imports(tmp_path, noxfile, groups, more, unknown) -> None:
    """."""
    (tmp_path / "pyproject.toml").write_text(f"[dependency-groups]\n{groups}\n")
    (tmp_path / "noxfile.py").write_text(noxfile)
    (tmp_path / "helper.py").touch()
    (tmp_path / "tools").mkdir()
    (change,) = (change for change in init.plan_changes(tmp_path) if change.path.suffix == ".yml")
    assert f'- run: uvx --with "$CUDALINK_REQUIREMENT" {more}nox\n' in change.content
    advice = f"noxfile.py imports {unknown}: put --with and the package that has it before `nox` in the job test"
    assert change.advice == (advice if unknown else "")
    (tox,) = (change for change in init.plan_changes(tmp_path, "tox") if change.path.suffix == ".yml")
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
def test_the_workflow_runs_on_the_default_branch(tmp_path, branches, head, expected) -> None:
    """The one of the remote as the clone found it, whatever is checked out; else the usual one that is or will be."""
    git(tmp_path, "init", "-q", "-b", branches[0])
    if head is not None:
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", "a")
    for name in branches[1:]:
        git(tmp_path, "branch", name)
    if head:
        git(tmp_path, "update-ref", f"refs/remotes/origin/{head}", "HEAD")
        git(tmp_path, "symbolic-ref", "refs/remotes/origin/HEAD", f"refs/remotes/origin/{head}")
    (change,) = (change for change in init.plan_changes(tmp_path) if change.path.suffix == ".yml")
    assert f"    branches: [{expected}]\n" in change.content


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


SUITS = "note: the CUDA runtime does not run on the emulated driver, so that cells skip the tests that call it"


@pytest.mark.parametrize(
    ("files", "notes"),
    [
        ({"pyproject.toml": '[project]\nname = "p"\ndependencies = ["cuda-core", "torchlike"]\n'}, []),
        (
            {"pyproject.toml": '[project]\nname = "p"\n[dependency-groups]\ntest = ["cupy-cuda13x", "torch>=2"]\n'},
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
def test_init_says_first_what_cells_will_skip(tmp_path, monkeypatch, capsys, files, notes) -> None:
    """A project on the CUDA runtime hears it before anything is written, by its requirements and its build files."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["init", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    said = [line for line in lines if line.startswith("note: ")]
    assert lines[: len(said)] == said
    assert len(said) == len(notes) + bool(notes)
    assert all(line.startswith(f"note: {note}") for line, note in zip(said, [*notes, SUITS[6:]], strict=False))


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


def test_init_above_the_projects(tmp_path, monkeypatch, capsys) -> None:
    """A folder that is not a project names those below it."""
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\n")
    for name in ("python/b", "python/a", "third_party/c"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "pyproject.toml").write_text('[project]\nname = "p"\n')
    monkeypatch.chdir(tmp_path)
    assert cli.main(["init", "--dry-run"]) == 0
    note = "note: this folder is not a project, and these are: python/a, python/b; run `cudalink init` there"
    assert capsys.readouterr().out.splitlines()[0] == note
    (tmp_path / "setup.py").touch()
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
    (tmp_path / "pyproject.toml").write_text(
        f'[project]\nname = "own"\nversion = "1"\noptional-dependencies.test = ["{pytest_of_tests}"]\n'
    )
    assert init.older_pytest(tmp_path) == (f"{pytest_of_tests} (extra test)" if told else "")
    required = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    assert f"pytest>={init.OLDEST_PYTEST}" in required


OLDEST = "# the oldest release of each direct requirement of the project; each needs a lower bound"
ALONE = "# here alone, as elsewhere a toolkit of the system or a package of the tests stands in for it"


@pytest.mark.parametrize(
    ("pyproject", "folders", "answers", "expected", "absent"),
    [
        (
            None,
            (),
            {},
            [
                *('install = "none"', "tests = []", "# [cells.oldest]", "# [cells.bare]", '# imports = ["mylib"]'),
                *("# [cells.cuda-core-previous]", '# packages = { cuda-core = "1.0.0" }', OLDEST, ALONE),
            ],
            ["[cells.bare]"],
        ),
        ('[build-system]\nrequires = ["x"]', ("test",), {}, ['tests = ["test"]'], ['install = "none"']),
        (
            '[project]\nname = "a.b-c"\ndependencies = ["numpy>=1", "cuda_core>=1"]',
            ("test", "tests", "a_b_c.py"),
            INDEX,
            [
                *("[cells.oldest]", "[cells.bare]", 'imports = ["a_b_c"]', 'tests = ["tests"]', OLDEST, ALONE),
                *("[cells.cuda-core-previous]", 'packages = { cuda-core = "1.1.0" }'),
            ],
            ["# [cells.bare]"],
        ),
        (
            '[project]\nname = "a"\ndependencies = ["numpy<2", "cuda-core", "scipy~=1.0,!=1.2", "x; os_name==\'nt\'"]',
            (),
            {"cuda-core": None},
            ["# [cells.oldest]", "# [cells.cuda-core-previous]", f"{OLDEST}; without one: numpy, cuda-core"],
            [],
        ),
        (
            '[project]\nname = "a"\ndependencies = ["cuda-core>1"]',
            (),
            INDEX | {"cuda-core<1.2.0": ""},
            ["[cells.oldest]", "# [cells.cuda-core-previous]"],
            [],
        ),
        ('[project]\nname = "a"\ndependencies = []', ("a.py",), {}, ["# [cells.oldest]", "[cells.bare]"], []),
    ],
)
def test_the_first_cells(tmp_path, monkeypatch, pyproject, folders, answers, expected, absent) -> None:
    """Those that the project can pass; the others are comments, with the reason where there is one."""
    monkeypatch.setattr(init, "newest", answers.__getitem__)
    if pyproject:
        (tmp_path / "pyproject.toml").write_text(pyproject)
    for name in folders:
        (tmp_path / name).touch() if name.endswith(".py") else (tmp_path / name).mkdir()
    written = init.plan_changes(tmp_path)[0].content.splitlines()
    assert [line for line in expected if line not in written] == []
    assert [line for line in absent if line in written] == []
    (newest, *_) = (line for line in written if line.startswith('[cells."ctk-13.0-nvjitlink-'))
    assert newest == f'[cells."ctk-13.0-nvjitlink-{max(toolchains.releases())}"]'


def test_the_first_cells_beside_a_later_major(tmp_path, monkeypatch) -> None:
    """Their toolkit and driver are of CUDA 13, so their nvJitLink is, too."""
    monkeypatch.setattr(toolchains, "releases", lambda: [CudaVersion(13, 0), CudaVersion(13, 4), CudaVersion(14, 0)])
    assert '[cells."ctk-13.0-nvjitlink-13.4"]' in init.plan_changes(tmp_path)[0].content


@pytest.mark.parametrize(
    ("tables", "lines"),
    [
        ("[dependency-groups]\ndev = []", ['groups = ["dev"]', "extras = []"]),
        ("[dependency-groups]\ndev = []\nTests = []", ['groups = ["Tests"]', "extras = []"]),
        ("[dependency-groups]\nlint = []\ncu12 = []\ncu13 = []", ['groups = ["cu{major}"]', "extras = []"]),
        # nothing could be installed into the cells of the other release
        ("[dependency-groups]\nlint = []\ncu12 = []", ["groups = []", "extras = []"]),
        ("[dependency-groups]\nlint = []\ncu13 = []", ["groups = []", "extras = []"]),
        (
            (
                '[dependency-groups]\ntest = ["a"]\ntest-cu12 = []\ntest_cu13 = [{include-group = "test"}]\n'
                "test-sysctk12 = []\n[project.optional-dependencies]\ncu12 = []\ncu13 = []\n"
            ),
            ['groups = ["test-cu{major}"]', 'extras = ["cu{major}"]'],
        ),
        (
            (
                '[project.optional-dependencies]\ntest = ["pytest"]\ntests-cuda12x = []\ncu13 = ["a"]\n'
                'tests-cuda13x = ["p[cu13]"]\n'
            ),
            ["groups = []", 'extras = ["test", "tests-cuda{major}x"]'],
        ),
        ("[project.optional-dependencies]\ntestsuite = []\ndocs = []", ["groups = []", 'extras = ["testsuite"]']),
        (
            "[project.optional-dependencies]\ncu12 = []\ncu13 = []\ntest = []",
            ["groups = []", 'extras = ["test", "cu{major}"]'],
        ),
        (
            "dependencies = ['pytest']\n[project.optional-dependencies]\ndocs = []\nci = ['Pytest>=4', 'pandas']",
            ["groups = []", 'extras = ["ci"]'],
        ),
        ("[project.optional-dependencies]\ncuda13x = []", ["groups = []", 'extras = ["cuda{major}x"]']),
        (
            "[project.optional-dependencies]\ntest-cu13 = []\ncu13 = []",
            ["groups = []", 'extras = ["test-cu{major}", "cu{major}"]'],
        ),
    ],
)
def test_init_takes_groups_and_extras(tmp_path, tables, lines) -> None:
    """The one of tests by its usual names, the likeliest first, and that of CUDA as each cell fills it in."""
    (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "p"\n{tables}\n')
    written = init.plan_changes(tmp_path)[0].content
    assert [line for line in written.splitlines() if line.startswith(("groups", "extras"))] == lines


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


@pytest.mark.parametrize(
    ("files", "requires", "needs"),
    [
        ({"my_lib.py": "from cuda.core import Device"}, ["cuda-core"], "cuda.core, and no requirement brings cuda-b"),
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
                "my_lib/b.py": "import cuda",
            },
            [],
            "cuda",
        ),
        ({"my_lib/__init__.py": "from . import b", "my_lib/b.py": "import my_lib\nimport cudaq"}, [], ""),
        ({"my_lib.py": "def"}, [], ""),
        ({"my_lib.py": "import cuda.core.experimental"}, [], "cuda.core, and no requirement brings cuda-b"),
        ({"my_lib.py": "import helper", "helper.py": "import cuda"}, [], ""),
        (
            {"my_lib/__init__.py": "from . import a", "my_lib/a.py": "from .b import c", "my_lib/b.py": "import cuda"},
            [],
            "cuda",
        ),
    ],
)
def test_the_bare_cell_is_for_projects_that_can_pass_it(tmp_path, files, requires, needs) -> None:
    """A wheel whose import needs what no requirement brings cannot pass: the cell is a comment, with the reason."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "my-lib"\ndependencies = {requires}\n')
    written = init.plan_changes(tmp_path)[0].content
    assert ("\n[cells.bare]\n" in written) is not bool(needs)
    assert ("# Not yet for this project: its import needs " in written) is bool(needs)
    assert f"its import needs {needs}" in written or not needs


def test_a_module_is_read_once_however_often_another_imports_it(tmp_path) -> None:
    (tmp_path / "my_lib").mkdir()
    (tmp_path / "my_lib/__init__.py").write_text("from .a import b\nfrom .a import c\n")
    (tmp_path / "my_lib/a.py").write_text("import cuda\n")
    assert [*init._imports(tmp_path, "my_lib")] == ["cuda"]


@pytest.mark.parametrize(
    ("name", "files", "module"),
    [
        ("my-lib", ["src/my_lib/__init__.py", "other/__init__.py"], "my_lib"),
        ("My.Lib", ["my_lib.py"], "my_lib"),
        ("cuda-cccl", ["cuda/cccl/__init__.py"], "cuda.cccl"),
        ("my-own-lib", ["src/my/own_lib.py"], "my.own_lib"),
        (
            "quack-kernels",
            ["quack/__init__.py", "tests/__init__.py", "docs/__init__.py", "quack/a/__init__.py"],
            "quack?",
        ),
        ("warp-lang", ["src/warp/__init__.py", "__init__.py"], "warp?"),
        ("my-lib", ["a/__init__.py", "a/b/__init__.py", "tests/__init__.py", "b/c.py"], "a?"),
        ("nvmath-python", ["builder/__init__.py", "nvmath/__init__.py"], "nvmath?"),
        ("my-lib", ["a/__init__.py", "b/__init__.py"], "my_lib?"),
        ("my-lib", [], "my_lib?"),
    ],
)
def test_the_import_of_the_bare_cell_is_there(tmp_path, name, files, module) -> None:
    """What is called as the project is, as its code is laid out; anything else is a guess, and so a comment."""
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "{name}"\n')
    written = init.plan_changes(tmp_path)[0].content
    certain = module.rstrip("?")
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
"""
OF_POETRY = ["pytest<9,>=8.4", "mock", "scikit-optimize==0.10.2", "nox-poetry[a,b]<1.1,>=1.0.3"]


@pytest.mark.parametrize(
    ("files", "packages", "reasons"),
    [
        ({"pyproject.toml": POETRY}, OF_POETRY, ["packages: what poetry's group 'test' requires"]),
        (
            {"pyproject.toml": f"{POETRY}\n[tool.pytest]\nrequired_plugins = ['nox_poetry']\n"},
            OF_POETRY,
            ["packages: what poetry's group 'test' requires"],
        ),
        ({"pyproject.toml": f"{POETRY}\n[dependency-groups]\ntest = []\n"}, [], []),
        ({"pyproject.toml": '[tool.poetry.dev-dependencies]\npytest = ">=8.4,<10"\n'}, ["pytest<10,>=8.4"], ["'dev'"]),
        (
            {"pyproject.toml": "[tool.pytest.ini_options]\naddopts = '--cov=a --cov-report=\"b c\" -n2 --covers'\n"},
            ["pytest-cov", "pytest-xdist"],
            ["pytest-cov: pytest's addopts has --cov\n", "pytest-xdist: pytest's addopts has -n2\n"],
        ),
        ({"pyproject.toml": '[tool.pytest]\naddopts = ["-n2"]\n[dependency-groups]\ndev = ["pytest_xdist"]'}, [], []),
        (
            {
                "pytest.ini": "[pytest]\nrequired_plugins = pytest-mock>=3 %s pytest-mock\n",
                "setup.cfg": "[tool:pytest]\naddopts=-n2",
            },
            ["pytest-mock>=3"],
            ["pytest-mock>=3: pytest's required_plugins names it\n"],
        ),
        ({"setup.cfg": "[tool:pytest]\naddopts = --reruns 2\n"}, ["pytest-rerunfailures"], ["addopts has --reruns"]),
        ({"tox.ini": "[pytest]\naddopts = '\n", "setup.cfg": "not an ini file"}, [], []),
        ({"ci/pytest.ini": "[pytest]\naddopts = -n2\n"}, ["pytest-xdist"], []),
    ],
)
def test_what_the_tests_need_besides(tmp_path, files, packages, reasons) -> None:
    """Poetry's group of the tests in words of other installers, and the plugins that pytest's settings ask for."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "cells.toml").write_text(written := init.plan_changes(tmp_path)[0].content)
    (cell,) = [cell for cell in load_cells(tmp_path / "cells.toml") if cell.name == "ctk-13.0"]
    assert [reason for reason in reasons if reason not in written] == []
    assert list(cell.packages[-len(packages) :] if packages else []) == packages
    assert tomllib.loads(written)["defaults"]["packages"] == packages
    # a run in which tests are skipped covers less than the project wants of all
    covered = "--cov" in str(files)
    assert (cell.values.env.get("PYTEST_ADDOPTS") == "--no-cov") is covered
    assert ("coverage is not measured here" in written) is covered


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
        (["tests/a.py"], '[tool.pytest.ini_options]\ntestpaths = "unit"\n', [], ""),
        (["a/b/tests/test_a.py", "testing/pytest.ini"], "", ["-c", "testing/pytest.ini"], ""),
        (["a/tests/test_a.py", "ci/pytest.ini", "b/pytest.ini"], "", [], "perhaps the tests: a/tests"),
        (["tests/a.py", "b/pytest.ini"], "[tool.pytest.ini_options]\nxfail_strict = true\n", ["tests"], ""),
        (["test-requirements.txt", "requirements.txt"], "", [], "from files of requirements: test-requirements.txt\n"),
        (
            ["requirements/dev.txt", "requirements/docs.txt", "tests-requirements.txt"],
            "",
            [],
            "requirements/dev.txt, tests-",
        ),
    ],
)
def test_where_the_tests_are(tmp_path, files, settings, expected, perhaps) -> None:
    """At the top, or as pytest's settings say it; what is further below is a guess, and so a comment."""
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    (tmp_path / "pyproject.toml").write_text(settings)
    written = init.plan_changes(tmp_path)[0].content
    assert tomllib.loads(written)["defaults"]["tests"] == expected
    assert perhaps in written
    assert bool(perhaps) is ("\n# perhaps " in written)


def test_init_names_what_the_tests_import_and_nothing_requires(tmp_path) -> None:
    """Neither what a requirement's name holds, nor the project's modules, nor what one function alone imports."""
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "own"\nversion = "1"\ndependencies = ["pyyaml", "nvidia-ml-py"]\n'
        'optional-dependencies = { test = ["NumPy"], plot = ["Matplotlib>=3"] }\n'
    )
    (tmp_path / "tests").mkdir()
    (tmp_path / "own.py").write_text("import requests\n")
    source = "import os, numpy, pynvml, zmq, scipy.io, own, helpers, attr\nfrom yaml import load\n"
    source += "def late():\n    import pandas\n"
    (tmp_path / "tests" / "test_own.py").write_text(source)
    (tmp_path / "tests" / "helpers.py").write_bytes(b"# coding: latin-1\n# \xe9\nimport matplotlib\n")
    (tmp_path / "tests" / "test_old.py").write_text("print 'python 2'\nimport nose\n")
    written = init.plan_changes(tmp_path)[0].content
    assert (
        "\n# the tests import attr, matplotlib (extra plot), scipy, zmq, which the project and these do not name\n"
        in written
    )


def test_init_quotes_the_session_of_the_tests(tmp_path) -> None:
    """What a noxfile installs for them stands above what the cells install."""
    (tmp_path / "noxfile.py").write_text(
        "@nox.session\ndef lint(session):\n    session.install('ruff')\n"
        "@nox.session\ndef tests(session):\n    if a():\n        session.install('-e', '.[deep]')\n"
        "    session.install('-r', 'test.txt', NAME, *MORE)\n    session.run('pytest')\n"
        "@nox.session\ndef test(session):\n    session.run('pytest')\n"
    )
    written = init.plan_changes(tmp_path)[0].content
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
def test_a_project_that_builds_for_cuda(tmp_path, tools, cmake, release) -> None:
    """The file says how to test a release instead of building it in each cell."""
    (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "lib-a"\n{tools}')
    (tmp_path / "CMakeLists.txt").write_text(cmake)
    written = init.plan_changes(tmp_path)[0].content
    line = f'# to test a release, without a build: install = "none" and packages = ["{release}"]\n'
    assert (line in written) is bool(release)
    assert ("to test a release" in written) is bool(release)


def test_a_project_with_setup_py_alone(tmp_path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\n")
    assert '\ninstall = "none"\n' in init.plan_changes(tmp_path)[0].content
    (tmp_path / "setup.py").touch()
    assert '\ninstall = "none"\n' not in init.plan_changes(tmp_path)[0].content


def test_a_project_of_the_name_of_a_cuda_module(tmp_path) -> None:
    """Its own modules need no other requirement."""
    (tmp_path / "cupy.py").write_text("import cupy._core\n")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "cupy"\n')
    assert "\n[cells.bare]\n" in init.plan_changes(tmp_path)[0].content


def test_cells_skip_what_needs_a_gpu(project) -> None:
    """A test that launches a kernel is skipped in the cells that init writes."""
    environments = [cell.environment("r") for cell in load_cells(project / "matrices" / "cells.toml")]
    assert {e.get("CUDALINK_UNSUPPORTED") for e in environments if e.get("CUDALINK_DRIVER")} == {"skip"}


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("pyproject.toml", b"[", "pyproject.toml: not TOML"),
        ("noxfile.py", b"# \xe9\n", "noxfile.py: not UTF-8"),
        (
            "pyproject.toml",
            b'[project]\nrequires-python = "<3.11"\n',
            "requires-python is '<3.11'; expected a range with",
        ),
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


def test_recipes_of_the_page(tmp_path) -> None:
    """Every file of cells that the documentation shows is a good one."""
    blocks = re.findall(
        r"^```toml\n(.*?)^```", (DOCS / "reference" / "matrix.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    assert len(blocks) == 4
    for number, block in enumerate(blocks):
        file = tmp_path / f"{number}.toml"
        file.write_text(block, encoding="utf-8")
        assert load_cells(file)
