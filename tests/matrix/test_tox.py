"""The environments of tox for cells: their settings besides the project's, and what is said of one that fails."""

import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

pytest.importorskip("tox")

from tox.provision import provision
from tox.report import HandledError
from tox.run import setup_state
from tox.tox_env.errors import Fail

from pytest_cudalink import toolchains
from pytest_cudalink.matrix import CellsError, load_cells
from pytest_cudalink.matrix import tox as ours

CELLS = """[cells.a]
tags = ["t"]
python = "3.12"
extras = ["b", "c"]
groups = ["test"]
packages = ["numpy"]
resolution = "lowest"
tests = ["tests"]
[cells.bare]
kind = "bare"
imports = ["m"]
packages = { m = "1" }
[cells.hides]
install = "none"
hidden = ["/opt/cuda*"]
[cells.first]
gpu = true
install = "wheel"
[cells.second]
gpu = true
"""
PASSED_ON = {"CUDALINK_*", "UV_*", "PIP_*", "XDG_CACHE_HOME", "HOME", "CUDA_VISIBLE_DEVICES", "GITHUB_*"}


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A project with cells; nothing is known of earlier ones."""
    for name in ("CUDALINK_CELLS", "CUDALINK_REQUIREMENT", "TOXENV"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(ours._Project, "root", None)
    monkeypatch.setattr(ours._Project, "resolved", set())
    monkeypatch.setattr(ours._Project, "began", set())
    monkeypatch.setattr(ours.runner, "newest", lambda *_: "")
    ours._read.cache_clear()
    (tmp_path / "matrices").mkdir()
    (tmp_path / "matrices" / "cells.toml").write_text(CELLS)
    return tmp_path


@pytest.fixture
def said(monkeypatch) -> list[str]:
    """What is logged; tox takes the handlers of pytest away."""
    words: list[str] = []
    log = SimpleNamespace(**dict.fromkeys(["debug", "warning"], lambda text, *values: words.append(text % values)))
    monkeypatch.setattr(ours, "_LOG", log)
    return words


@pytest.fixture
def read(project):
    """Read the environments of the project with a configuration of tox: the settings of each, by name."""

    def settings(configuration: str, *arguments: str, name: str = "tox.ini"):
        (project / name).write_text(configuration)
        state = setup_state(["config", "-c", str(project / name), *arguments])
        provision(state)
        return {name: state.envs[name].conf for name in state.envs.iter(only_active=False)}

    return settings


def test_settings_of_each_cell(read, project, said) -> None:
    """How it is installed and run; cells on a GPU run one after another, and what is no cell's stays."""
    environments = read("[tox]\nenv_list = own\n[testenv:own]\ncommands = x\n", "--", "-x")
    assert set(environments) == {"own", "a", "bare", "hides", "first", "second"}
    assert environments["own"]["commands"][0].args == ["x"]
    commands = {name: [command.args for command in conf["commands"]] for name, conf in environments.items()}
    assert commands == {
        "own": [["x"]],
        "a": [["pytest", "tests", "-x"]],
        "bare": [[sys.executable, "-m", "pytest_cudalink.cli.bare_cell"]],
        "hides": [["python", "-m", "pytest_cudalink.matrix", "pytest", "-x"]],
        "first": [["pytest", "-x"]],
        "second": [["pytest", "-x"]],
    }
    cells = {cell.name: cell for cell in load_cells(project / "matrices" / "cells.toml")}
    for name, cell in cells.items():
        assert environments[name]["description"] == cell.description
        assert environments[name]["labels"] == set(cell.tags)
        assert set(environments[name]["pass_env"]) >= PASSED_ON
        variables = ours.runner.environment(cell, project)
        assert {variable: environments[name]["set_env"].load(variable) for variable in variables} == variables
    pins = f"-r {project / '.cudalink' / 'a.requirements.txt'}"
    assert environments["a"]["deps"].lines() == ["pytest-cudalink", "numpy", pins]
    assert environments["hides"]["deps"].lines() == ["pytest-cudalink"]
    assert environments["bare"]["deps"].lines() == []
    packages = {"a": "editable", "bare": "wheel", "hides": "skip", "first": "wheel", "second": "editable"}
    assert {name: environments[name]["package"] for name in cells} == packages
    assert environments["a"]["extras"] == {"b", "c"}
    assert environments["a"]["dependency_groups"] == {"test"}
    assert environments["a"]["base_python"] == ["python3.12"]
    assert environments["bare"]["base_python"] != ["pythonNone"]
    assert [name for name in cells if sys.executable in environments[name]["allowlist_externals"]] == ["bare"]
    assert [(name, environments[name]["depends"].envs) for name in cells if environments[name]["depends"].envs] == [
        ("second", ["first"])
    ]
    assert not said


OWN = {
    "tox.ini": """
[testenv]
commands = make
description = all
labels = all
deps = -r{tox_root}/r.txt
set_env =
  CUDALINK_CELL = x
  P = {tox_root}/src
[testenv:a]
description = mine
deps = mine
set_env =
  CUDALINK_CELL = y
[testenv:hides]
labels = mine
""",
    "tox.toml": """
[env_run_base]
commands = [["make"]]
description = "all"
labels = ["all"]
deps = ["-r{tox_root}/r.txt"]
set_env = { CUDALINK_CELL = "x", P = "{tox_root}/src" }
[env.a]
description = "mine"
deps = ["mine"]
set_env = { CUDALINK_CELL = "y" }
[env.hides]
labels = ["mine"]
""",
}


@pytest.mark.parametrize("name", OWN)
def test_settings_of_the_project_come_first(read, project, said, name) -> None:
    """Those of one environment in any case; of those that all share, how tests run, and requirements of both."""
    environments = read(OWN[name], name=name)
    a, hides = environments["a"], environments["hides"]
    assert [command.args for command in (*a["commands"], *hides["commands"])] == [["make"]] * 2
    assert (a["description"], hides["description"]) == ("mine", "no toolkit, without /opt/cuda*")
    assert (a["deps"].lines(), hides["deps"].lines()) == (["mine"], [f"-r {project}/r.txt", "pytest-cudalink"])
    assert (a["set_env"].load("CUDALINK_CELL"), hides["set_env"].load("CUDALINK_CELL")) == ("y", "hides")
    assert a["set_env"].load("CUDALINK_REPORT").endswith("a.jsonl")
    assert hides["set_env"].load("P") == f"{project}/src"
    assert (a["labels"], hides["labels"]) == ({"t"}, {"mine"})
    own, shared = ("testenv:a", "testenv") if name == "tox.ini" else ("env.a", "env_run_base")
    assert f"cudalink: description of a is the project's own, from {own}" in said
    assert f"cudalink: commands of hides is the project's own, from {shared}" in said


def test_a_project_without_cells(read, project, monkeypatch, said) -> None:
    """There are no environments of ours; a file with a mistake ends tox with its words."""
    file = project / "matrices" / "cells.toml"
    file.write_text("[cell]")
    with pytest.raises(HandledError, match=r"cells.toml:1: cell: unknown key; did you mean 'cells'\?"):
        read("[tox]\nenv_list = own\n")
    file.unlink()
    assert set(read("[tox]\nenv_list = own\n")) == {"own"}
    assert said == [f"cudalink: no environments, because there is no {file}"]
    monkeypatch.chdir(project)
    monkeypatch.setattr(ours._Project, "root", None)
    ours._read.cache_clear()
    file.write_text(CELLS)
    assert len(list(ours.tox_extend_envs())) == 5


@pytest.fixture
def environment(project):
    """Make an environment of tox by its name."""
    ours._Project.root = project
    return lambda name: SimpleNamespace(name=name, core={"tox_root": project})


def test_versions_are_chosen_once(environment, project, monkeypatch, said) -> None:
    """Before the first installation; what does not fit is a warning, and a failure is that of the environment."""
    chosen: list[object] = []

    def choose(cell, root, warn) -> None:
        warn(f"of {cell.name}")
        chosen.append((cell.name, root))

    monkeypatch.setattr(ours.runner, "choose_versions", choose)
    for name in ("a", "a", "own"):
        ours.tox_on_install(environment(name))
    assert (chosen, said) == ([("a", project)], ["of a"])
    for name, error in (("second", CellsError(["no such version"])), ("first", OSError("no such version"))):
        monkeypatch.setattr(ours.runner, "choose_versions", mock.Mock(side_effect=error))
        with pytest.raises(Fail, match="no such version"):
            ours.tox_on_install(environment(name))


def test_toolchains_are_fetched(environment, project, monkeypatch, said) -> None:
    """When the commands begin, which the note says until something better is known."""
    monkeypatch.setattr(ours.runner, "prepare", lambda cell, root, say: say(f"{cell.name} {root}"))
    for name in ("a", "own"):
        ours.tox_before_run_commands(environment(name))
    assert (said, ours._Project.began) == ([f"a {project}"], {"a"})
    assert ours.runner.notes([project]) == {"a": "its run began, and nothing says how it ended"}
    for error in (toolchains.ToolchainError("no network"), OSError("no network")):
        monkeypatch.setattr(ours.runner, "prepare", mock.Mock(side_effect=error))
        with pytest.raises(Fail, match="no network"):
            ours.tox_before_run_commands(environment("a"))


@pytest.mark.parametrize(
    ("name", "outcomes", "concluded", "note"),
    [
        ("a", [("python -m pytest", 0, "out", "err")], (0, "out\nerr"), ""),
        ("a", [("pytest", 1, "out", "")], (1, "out\n"), ""),
        ("a", [("pytest", 0, "", "0"), ("pytest", 2, "", "2"), ("make x y pytest", 3, "", "3")], (2, "\n2"), ""),
        ("a", [("make", -6, "", ""), ("make", 0, "", "")], None, "its commands was killed by SIGABRT"),
        ("a", [("pytest", 1, "", "1"), ("make", 0, "", "")], (1, "\n1"), ""),
        ("a", [("make x y pytest", 0, "", "0"), ("make", -6, "", "")], None, "its commands was killed by SIGABRT"),
        ("a", [("pytest", None, "", "")], None, ""),
        ("a", [], None, ""),
        ("own", [("pytest", 1, "", "")], None, ""),
    ],
)
def test_how_the_commands_ended(environment, project, monkeypatch, name, outcomes, concluded, note) -> None:
    """The first run of pytest that failed counts, else the last; only the note says how other commands ended."""
    calls: list[object] = []

    def conclude(cell, root, *ended) -> str:
        calls.append(ended)
        return "died" if ended[0] == 2 else ""

    monkeypatch.setattr(ours.runner, "conclude", conclude)
    ended = [
        SimpleNamespace(request=SimpleNamespace(cmd=words.split()), exit_code=code, out=out, err=err)
        for words, code, out, err in outcomes
    ]
    with pytest.raises(Fail, match="died") if concluded and concluded[0] == 2 else nullcontext():
        ours.tox_after_run_commands(environment(name), ended)
    assert calls == ([concluded] if concluded else [])
    assert ours.runner.notes([project]) == ({name: note} if note else {})


class OfPython(SimpleNamespace):
    """An environment of tox with a Python, whose packages lie in its folder ``site``."""

    def env_site_package_dir(self) -> Path:
        return self.core["tox_root"] / "site"


NOT_MADE = "its environment could not be made; `tox -e {}` shows why"


@pytest.mark.parametrize(
    ("name", "installed", "failed", "notes"),
    [
        ("a", "other-1.dist-info", True, "the plugin cannot be installed into the cell a: 'pytest-cudalink' is not f"),
        ("a", "pytest_cudalink-1.dist-info", True, NOT_MADE.format("a")),
        ("a", None, True, NOT_MADE.format("a")),
        ("bare", "other-1.dist-info", True, NOT_MADE.format("bare")),
        ("a", "pytest_cudalink-1.dist-info", False, None),
        ("own", None, True, None),
        ("began", None, True, None),
    ],
)
def test_an_environment_that_is_not_made(
    environment, project, monkeypatch, said, name, installed, failed, notes
) -> None:
    """The note says so, or how to name another build of the plugin; what an earlier run left is gone."""
    monkeypatch.setattr(ours, "Python", OfPython)
    monkeypatch.setattr(ours._Project, "began", {"hides"})
    if installed:
        (project / "site" / installed).mkdir(parents=True)
    left = project / ".cudalink" / f"{name}.jsonl"
    left.parent.mkdir()
    if failed:
        left.touch()
    tox_env = OfPython(**vars(environment("hides" if name == "began" else name)))
    with suppress(SystemExit):
        try:
            if failed:
                sys.exit(1)
        finally:  # as in tox, the error is the one that is handled
            ours.tox_env_teardown(tox_env)
    noted = ours.runner.notes([project])
    assert list(noted) == ([name] if notes else [])
    assert noted.get(name, "").startswith(notes or "")
    assert left.exists() is (failed and notes is None)
    plugin = notes is not None and notes.startswith("the plugin")
    assert said == ([noted[name]] if plugin else [])
    ours.tox_env_teardown(environment(name))  # without a Python
