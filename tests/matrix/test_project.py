"""What a project requires, and the warnings where that does not fit the toolkits of its cells."""

import re
from pathlib import Path

import pytest

from pytest_cudalink import cli
from pytest_cudalink.matrix import load_cells
from pytest_cudalink.matrix.project import Project, major_of_extra, pytest_settings, requirements, warnings

PROJECT = """
[project]
name = "my.lib"
version = "1"
dependencies = ["numpy", "not a requirement"]
[project.optional-dependencies]
test = ["My_Lib[cu13]", "pytest"]
cu12 = ["cuda-core[cu12]"]
cu13 = ["cuda-core[cu13]", "my-lib[test]"]
[dependency-groups]
Dev = ["ruff", { include-group = "more" }, { other = 1 }]
more = ["mypy", { include-group = "dev" }]
"""


OLD = (
    "{} is for CUDA 12, and the toolkit is CUDA 13, so that an old release of {} may be installed, without that extra; "
)
MOVE = "move it into {0} 'cu12' and 'cu13' of the project, and give the cells {0} = ['cu{{major}}']"
OTHER = "extras = ['cu12'] is for CUDA 12, and the toolkit is CUDA 13; write 'cu{major}', which each cell fills in"
LACKS = "the project has no {} 'test', so that nothing {}; add it to [{}] of pyproject.toml, or leave it out of `{}`"


@pytest.fixture
def warned(tmp_path):
    """The warnings about a file of cells, with a project."""

    def go(text: str, project: str = PROJECT) -> list[str]:
        (tmp_path / "cells.toml").write_text(text)
        (tmp_path / "pyproject.toml").write_text(project)
        return warnings(load_cells(tmp_path / "cells.toml"), tmp_path)

    return go


def test_extras_and_groups_bring_others(warned, tmp_path) -> None:
    """An extra may require others of the project, and a group include others, also in a circle; case does not count."""
    text = '[cells.a]\nextras = ["test"]\ngroups = ["dev"]\npackages = ["scipy"]'
    assert warned(text) == []
    (cell,) = load_cells(tmp_path / "cells.toml")
    rows = [(str(need.requirement), need.where) for need in requirements(cell, Project.read(tmp_path))]
    assert rows == [
        ("numpy", "dependencies"),
        ("pytest", "extra test"),
        ("cuda-core[cu13]", "extra cu13"),
        ("ruff", "group dev"),
        ("mypy", "group more"),
        ("scipy", "packages"),
    ]
    (tmp_path / "cells.toml").write_text(text + '\ninstall = "none"')
    (cell,) = load_cells(tmp_path / "cells.toml")
    assert [n.where for n in requirements(cell, Project.read(tmp_path))] == ["group dev", "group more", "packages"]


def test_a_project_as_far_as_its_file_says_it(tmp_path) -> None:
    assert Project.read(tmp_path) == Project()
    file = tmp_path / "pyproject.toml"
    file.write_text("[tool.x]\n[other]\n")
    project = Project.read(tmp_path)
    assert (project.name, project.requires_python) == ("", "")
    assert ([*project.tables], [*project.tools]) == (["tool", "other"], ["x"])
    file.write_text('[project]\nname = "p"\nrequires-python = ">=3.11"\n')
    project = Project.read(tmp_path)
    assert (project.name, project.requires_python, project.tools) == ("p", ">=3.11", ())


def test_a_project_of_poetry_before_its_release_2(tmp_path) -> None:
    """All of it is in poetry's own tables; with a table `project` they only add to that."""
    text = (
        '[tool.poetry]\nname = "p"\n[tool.poetry.extras]\ncuda = ["cupy"]\n[tool.poetry.dependencies]\n'
        'python = "^3.10"\nnumpy = "^0.2.3"\ncupy = { version = "*", optional = true }\nzero = "^0"\n'
        'one = "~1"\nstar = "1.2.*"\nlocal = { path = "x" }\nbroken = "a b"\ntwo = "^1 || ^2"\n"not a name" = "1"\n'
        'tilde = "!=1.2.5, ~ 1.2.3"\nboth = "~1.2"\nzeros = "^0.0"\nmore = { version = "*", extras = ["b", "a"] }\n'
        '[tool.poetry.dev-dependencies]\npytest = "8"\n'
        '[tool.poetry.group.docs.dependencies]\nsphinx = { version = ">7", optional = true }\n'
    )
    (tmp_path / "pyproject.toml").write_text(text)
    project = Project.read(tmp_path)
    assert (project.name, project.requires_python, [*project.extras]) == ("p", ">=3.10,<4", ["cuda"])
    assert [str(dependency) for dependency in project.dependencies] == [
        *("numpy<0.3,>=0.2.3", "zero<1,>=0", "one<2,>=1", "star==1.2.*", "tilde!=1.2.5,<1.3,>=1.2.3"),
        *("both<1.3,>=1.2", "zeros<0.1,>=0.0", "more[a,b]"),
    ]
    assert {name: [*map(str, group)] for name, group in project.poetry_groups.items()} == {
        "docs": ["sphinx>7"],
        "dev": ["pytest==8"],
    }
    (tmp_path / "pyproject.toml").write_text(f'{text}[project]\nname = "q"\n')
    project = Project.read(tmp_path)
    assert (project.name, project.requires_python, project.dependencies, project.extras) == ("q", "", [], {})


NEEDS = "[options]\ninstall_requires =\n  x>1\n  y\n"
CFG = f"[metadata]\nname = a%b\n{NEEDS}[options.extras_require]\ntest =\n  pytest\n  a\ncu12 = x\n"
SETUP = """from setuptools import setup
NEED = ['pytest']
A = B = []
x.y = []
f(name='f')
def main():
    setup(name='b', extras_require={'test': NEED, 'dev': f(), **MORE, 'docs': ['sphinx'], 'a': A})
main()
quit(1)
"""
SUMS = """N = ['x>1', 'y']
setup(name='e', install_requires=N, extras_require=dict(dev=N + ['b'], x=f() + N, y=N * 2, **MORE))
"""
OF_MODULE = "setuptools.setup(name=NAME, extras_require={'a': []})"
DYNAMIC = '[project]\nname = "d"\ndynamic = ["dependencies", "optional-dependencies"]\n'
SETUP_TEST = "setup(name='e', extras_require={'test': []})"


@pytest.mark.parametrize(
    ("files", "name", "extras"),
    [
        ({"setup.cfg": CFG}, "a%b", {"test": ["", "pytest", "a"], "cu12": ["x"]}),
        ({"setup.py": SETUP}, "b", {"test": ["pytest"], "dev": None, "docs": ["sphinx"], "a": None}),
        ({"setup.py": OF_MODULE, "setup.cfg": "[metadata]\nname=c"}, "c", {"a": []}),
        ({"setup.py": SUMS}, "e", {"dev": ["x>1", "y", "b"], "x": None, "y": None}),
        ({"setup.py": "setup(", "setup.cfg": "not an ini file"}, "", {}),
        ({"setup.py": "setup(name=3)", "pyproject.toml": "[tool.poetry]\ndependencies.python = '>=3 || 2'"}, "", {}),
        ({"pyproject.toml": "[project]\nversion = '1'"}, "", {}),
        ({"pyproject.toml": DYNAMIC, "setup.cfg": NEEDS, "setup.py": SETUP_TEST}, "d", {"test": []}),
        ({"pyproject.toml": '[project]\nname = "d"\n', "setup.py": SETUP_TEST}, "d", {}),
    ],
)
def test_a_project_of_setuptools(tmp_path, files, name, extras) -> None:
    """Name and extras are read from its own files, of which none is run."""
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    project = Project.read(tmp_path)
    assert (project.name, project.requires_python, project.extras) == (name, "", extras)
    given = [word for text in files.values() for word in ("x>1", "y") if f"{word}\n" in text or f"'{word}'" in text]
    assert [*map(str, project.dependencies)] == given


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"pytest.ini": "", "tox.ini": "[pytest]\naddopts = -x\n"}, {}),
        ({".pytest.ini": "[pytest]\naddopts = -k 'a b'\n"}, {"addopts": ["-k", "a b"]}),
        ({"pyproject.toml": '[tool.pytest.ini_options]\naddopts = "-q -x"\nx = [1]\n', "tox.ini": "[pytest]\na=b\n"},
         {"addopts": ["-q", "-x"], "x": ["1"]}),
        ({"pyproject.toml": '[tool.pytest]\naddopts = ["-q"]\n'}, {"addopts": ["-q"]}),
        ({"pyproject.toml": "", "tox.ini": "[x]\n", "setup.cfg": "[tool:pytest]\na = it's\nb = 1\n"},
         {"a": [], "b": ["1"]}),
        ({"tox.ini": "[x]\n"}, {}),
    ],
)  # fmt: skip
def test_settings_of_pytest(tmp_path, files, expected) -> None:
    """The first file with some counts, as for pytest, and a pytest.ini without any; words are those of a shell."""
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    assert pytest_settings(tmp_path) == expected


def test_extras_come_in_the_order_of_their_names(tmp_path, warned) -> None:
    """So that an environment is the same in every run."""
    names = "abcdefgh"
    extras = "".join(f'{name} = ["of-{name}"]\n' for name in names)
    project = f'[project]\nname = "p"\n[project.optional-dependencies]\nall = ["p[{",".join(names[::-1])}]"]\n{extras}'
    warned('[cells.a]\nextras = ["all"]\n', project)
    (cell,) = load_cells(tmp_path / "cells.toml")
    assert [need.where for need in requirements(cell, Project.read(tmp_path))] == [f"extra {name}" for name in names]


def test_the_extras_of_a_requirement_are_named_in_order(warned) -> None:
    """So that the output is the same in every run."""
    names = ["ctk-12", "cu-12", "cu12", "cu12x", "cuda-12", "cuda12", "cuda12x"]
    said = warned(f'[cells.a]\nctk = "13.0"\npackages = ["x[{",".join(names)}]"]')
    assert [re.search(r"x\[([^]]+)\] ", line)[1] for line in said] == names


@pytest.mark.parametrize(
    ("name", "major"),
    [("cu12", 12), ("CUDA13", 13), ("ctk-12", 12), ("cuda_12x", 12), ("cu", None), ("cu13-local", None)],
)
def test_extras_of_a_release(name, major) -> None:
    """Their names say it in the ways that published packages have."""
    assert major_of_extra(name) == major


def test_each_cell_has_the_extra_of_its_toolkit(warned) -> None:
    """Where ``{major}`` is filled in, in extras, groups and packages, every cell fits; a bare cell has none of them."""
    axes = (
        '[defaults]\nextras = ["cu{major}"]\ngroups = ["cu{major}"]\npackages = ["numba-cuda[cu{major}]>=0.30"]\n'
        '[axes.a]\nctk = ["12.9", "13.0", "latest"]\n[cells.b]\nkind = "bare"\nimports = ["b"]\n'
    )
    assert warned(axes, PROJECT + "cu12 = []\ncu13 = []\n") == []


OF_GROUP = OLD.format("jax[cuda12] (group t of pyproject.toml)", "jax") + MOVE.format("groups")
OF_PACKAGES = OLD.format("a[cu12] (packages)", "a") + "write 'a[cu{major}]', which each cell fills in"
LACKS_EXTRA = LACKS.format("extra", "is installed for it", "project.optional-dependencies", "extras")
LACKS_GROUP = LACKS.format("dependency group", "can be installed", "dependency-groups", "groups")


def of_dependencies(package: str, extra: str) -> str:
    """The warning of an extra in the dependencies of the project."""
    return OLD.format(f"{package}[{extra}] (dependencies of pyproject.toml)", package) + MOVE.format("extras")


@pytest.mark.parametrize(
    ("cells", "project", "expected"),
    [
        ("", 'dependencies = ["numba-cuda[cu12]>=0.1"]', of_dependencies("numba-cuda", "cu12")),
        ('groups = ["t"]', '[dependency-groups]\nt = ["jax[cuda12]"]', OF_GROUP),
        ('packages = ["a[cu12]"]', "", OF_PACKAGES),
        ('extras = ["cu12"]', "optional-dependencies = { cu12 = [] }", OTHER),
        ('groups = ["cu12"]', "[dependency-groups]\ncu12 = []", OTHER.replace("extras", "groups")),
        ('extras = ["test"]', "", LACKS_EXTRA),
        ('groups = ["test"]', "", LACKS_GROUP),
        ("", "dependencies = [\"a[cu12]; python_version < '3'\"]", ""),
        ("", "dependencies = [\"a[cu12]; extra == 'x'\"]", ""),
        ("", "dependencies = [\"a[cu12]; python_version > '3' and extra == ''\"]", of_dependencies("a", "cu12")),
        ("", 'dependencies = ["a[cu13,fast]"]', ""),
        ('extras = ["cu13"]', 'dynamic = ["optional-dependencies"]', ""),
        ('extras = ["test"]\ninstall = "none"', "", ""),
    ],
)
def test_warnings(warned, cells, project, expected) -> None:
    """The cell, what does not fit, why that matters and what to write; nothing where all fits."""
    said = warned(f'[cells.a]\nctk = "13.0"\n{cells}', f'[project]\nname = "p"\nversion = "1"\n{project}\n')
    assert said == ([f"a: {expected}"] if expected else [])
    # a file that has settings of tools only: its cells may install something else
    assert warned('[cells.a]\nextras = ["test"]', "[tool.x]\n") == []


def test_the_command_warns(tmp_path, monkeypatch, capsys) -> None:
    """`cudalink matrix check` names the cells that a warning is about, and ends with 0."""
    monkeypatch.chdir(tmp_path)
    Path("pyproject.toml").write_text('[project]\nname = "p"\nversion = "1"\ndependencies = ["numba-cuda[cu12]"]\n')
    Path("cells.toml").write_text('[axes.a]\nctk = ["12.9", "13.0", "13.1", "13.2", "13.3", "13.4"]\n')
    assert cli.main(["matrix", "check", "--file", "cells.toml"]) == 0
    warning, last = capsys.readouterr().out.splitlines()
    assert warning.startswith("cells.toml: warning: ctk-13.0, ctk-13.1, ctk-13.2 and 2 more: numba-cuda[cu12] (")
    assert last == "cells.toml: 6 cells, no errors, 1 warning"
    Path("pyproject.toml").write_text("")
    assert cli.main(["matrix", "check", "--file", "cells.toml"]) == 0
    assert capsys.readouterr().out == "cells.toml: 6 cells, no errors\n"


@pytest.mark.parametrize(("content", "fault"), [(b"[", "not TOML: "), (b"# \xe9", "not UTF-8: ")])
def test_a_project_that_cannot_be_read(content, fault, tmp_path, monkeypatch, capsys) -> None:
    """The check names the file, and has no traceback."""
    (tmp_path / "pyproject.toml").write_bytes(content)
    (tmp_path / "cells.toml").write_text("[cells.a]\n")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["matrix", "check", "--file", "cells.toml"]) == 1
    assert capsys.readouterr().err.startswith(f"pyproject.toml: {fault}")
