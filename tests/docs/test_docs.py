"""The documentation: every example is a file that runs, and every command that it shows works."""

import argparse
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from pytest_cudalink import cli
from pytest_cudalink.base import finding
from pytest_cudalink.base.tables import read_table
from pytest_cudalink.compat.settings_table import OPTIONS, known_variables
from pytest_cudalink.emulator import control
from pytest_cudalink.matrix.keys import KEYS
from pytest_cudalink.plugin import fixtures, hookspecs
from pytest_cudalink.report import records

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
EXAMPLES = DOCS / "examples"
PAGES = [
    *(path for path in DOCS.rglob("*.md") if "_build" not in path.parts),
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, cwd=cwd)


def test_examples_are_files() -> None:
    """No page has Python of its own; test_readme.py runs the README's. Every example file is shown by a page."""
    assert not [page.name for page in PAGES if page.name != "README.md" and blocks(page, "python")]
    shown = {
        name
        for page in PAGES
        for name in re.findall(r"literalinclude\} (?:\.\./)+examples/(\S+)", page.read_text(encoding="utf-8"))
    }
    examples = {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.py")}
    # whole projects, and the generated sections of findings
    examples = {name for name in examples if not name.startswith(("stubs-", "findings/"))}
    assert {name for name in shown if name.endswith(".py")} == examples
    assert [name for name in shown if not (EXAMPLES / name).is_file()] == []


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("test_*.py")))
def test_example_tests_pass(name: str, toolkit, pytester, run_pytest) -> None:
    """Every example test passes with nothing but the plugin."""
    shutil.copy(EXAMPLES / name, pytester.path)
    result = run_pytest("-q", name)
    assert result.ret == 0
    assert "passed" in result.stdout.str()


def test_own_target_example(toolkit, pytester, run_pytest) -> None:
    """The project with a target of its own passes on both backends, and header and summary name it."""
    shutil.copytree(EXAMPLES / "own_target", pytester.path, dirs_exist_ok=True)
    result = run_pytest(f"--cudalink-driver={toolkit}", "--force-backend=each")
    assert result.ret == 0
    assert "cudalink: jitlib: 1.0, from this folder" in result.stdout.str()
    assert "jitlib: 3 links (2 on the driver, 1 on nvJitLink)" in result.stdout.str()


def test_examples_of_compatibility(tmp_path) -> None:
    """They print the requirement that a symbol needs, and what is known of two wheels together."""
    done = python(str(EXAMPLES / "first_release.py"), "libnvJitLink", "__nvJitLinkGetErrorLog_13_1", cwd=tmp_path)
    assert (done.returncode, done.stdout.splitlines()) == (
        0,
        ["no libnvJitLink.so.12 of CUDA 12 exports __nvJitLinkGetErrorLog_13_1", done.stdout.splitlines()[-1]],
    )
    assert done.stdout.splitlines()[-1].startswith("nvidia-nvjitlink>=13.1")
    wheels = ("nvidia-nvjitlink=13.0.88", "nvidia-cuda-runtime=13.1.80")
    done = python(str(EXAMPLES / "known_bad.py"), *wheels, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "cuda-python#1691" in done.stdout


def test_guard_rails_example(toolkit, tmp_path) -> None:
    """The guard rails accept this environment, item by item."""
    done = python(str(EXAMPLES / "guard_rails.py"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"nvrtc library CUDA {toolkit}", f"cudart headers CUDA {toolkit}"]


def test_inspect_example(tmp_path) -> None:
    """The inspection example names what it is given, and what is wrong with it."""
    sample = ROOT / "tests" / "data" / "artifacts" / "13.0" / "main.cubin"
    (tmp_path / "cut.cubin").write_bytes(sample.read_bytes()[:999])
    done = python(str(EXAMPLES / "inspect_artifact.py"), str(sample), "cut.cubin", cwd=tmp_path)
    assert done.stdout.splitlines()[:3] == [
        "main.cubin: cubin for sm_90, made by CUDA 13.0",
        "  kernels: apply_transform",
        "  undefined: user_transform",
    ]
    assert "  problem: damaged cubin: " in done.stdout


def commands() -> list[str]:
    """What the pages tell people to type and show no output of, without what installs packages or runs sessions."""
    shown = [block for page in PAGES for block in blocks(page, "console") if not re.match(r"(\(\S+\) )?\$ ", block)]
    return sorted({line for block in shown for line in block.splitlines() if line.split()[0] in ("cudalink", "pytest")})


@pytest.mark.parametrize("command", commands())
def test_commands_work(command: str, toolkit, pytester, run_pytest) -> None:
    """Every command of ours that a page shows does what the page says."""
    shutil.copy(EXAMPLES / "link" / "test_link.py", pytester.path)
    program, *words = shlex.split(command)
    if program == "pytest":
        # no call of these tests triggers the faults of two functions, and the run is red for that
        assert run_pytest(*words).ret == int("cuLinkAddData" in command)
    else:
        done = python("-m", "pytest_cudalink.cli", *words, cwd=pytester.path)
        assert done.returncode == 0, done.stdout + done.stderr


def test_sessions_named_in_the_pages_exist() -> None:
    """Every session that a page names is defined."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    commands = [re.split(r" --(?: |$)", words)[0] for words in re.findall(r"nox -s ([a-z0-9._ -]+)", text)]
    named = {word for words in commands for word in words.split()}
    listed = subprocess.run([sys.executable, "-m", "nox", "-l"], capture_output=True, text=True, check=True, cwd=ROOT)
    defined = set(re.findall(r"^[*-] ([^\s(]+)", listed.stdout, re.MULTILINE))
    assert named
    assert named <= defined


@pytest.fixture
def floors(script) -> ModuleType:
    """The module that makes the tables of floors."""
    return script("docs/_ext", "cudalink_floors")


def test_architecture_shows_every_floor(floors) -> None:
    """The page has each table that is made, and each part in them says what it does."""
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    made = floors.blocks()
    assert re.findall(r"{generated} cudalink_floors (\w+)", page) == list(made)
    for table in made.values():
        rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
        assert rows
        assert [row for row in rows if len(row) != 3 or not row[2].endswith(".")] == []


def test_only_plugin_knows_pytest(floors) -> None:
    """The contract that keeps pytest out names every folder and module besides plugin/."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = (c for c in config["tool"]["importlinter"]["contracts"] if c["type"] == "forbidden")
    named = {name.removeprefix("pytest_cudalink.") for name in contract["source_modules"]}
    assert named == set().union(*floors.contract("floors")) - {"plugin"}


@pytest.fixture
def reference(script) -> ModuleType:
    """The module that describes commands, variables, fixtures and hooks."""
    return script("docs/_ext", "cudalink_reference", "sphinx")


def page_has(page: str, directive: str) -> bool:
    """Whether a page of the reference calls a directive."""
    return f"```{{{directive}}}" in (DOCS / "reference" / f"{page}.md").read_text(encoding="utf-8")


def help_of(*words: str) -> str:
    """What a command prints with ``--help``, in one line."""
    done = python("-m", "pytest_cudalink.cli", *words, "--help", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


def test_every_command_is_described(reference) -> None:
    """The page on the command line has each subcommand and each option, with a meaning."""
    assert page_has("cli", "command-line")
    assert page_has("cli", "commands")
    described = {" ".join(form.astext().split()) for form in reference.command_line()}
    text = "\n".join(described)
    names = set()

    def visit(parser: argparse.ArgumentParser) -> None:
        names.add(parser.prog)
        assert parser.prog in text
        for action in reference.arguments(parser):
            meaning = reference.meaning(parser, action)
            assert meaning or not action.option_strings, f"{parser.prog}: {reference.spelled(action)} has no help"
            assert not meaning or reference.spelled(action) in text
        for child in reference.children(parser).values():
            visit(child)

    for parser in reference.command_parsers().values():
        visit(parser)
    assert {f"cudalink {name}" for name in cli.COMMANDS} <= names
    assert {"cudalink matrix list", "cudalink toolchain add", "cudalink driver run"} <= names
    assert all(line in help_of() for line in cli.COMMANDS.values())


def test_every_variable_is_described(reference) -> None:
    """Two tables have every variable that is not for the tests of the project alone, with a meaning."""
    assert page_has("options", "variables-table")
    assert page_has("options", "settings-table")
    assert "```{internal-variables-table}\n" in (DOCS / "architecture.md").read_text(encoding="utf-8")
    tests = set(read_table("variables.toml")["tests"])
    assert reference.variables().keys() | reference.internal_variables().keys() == known_variables() - tests
    for described, drawn in (
        (reference.variables(), reference.variables_table()),
        (reference.internal_variables(), reference.internal_variables_table()),
    ):
        assert all(described.values())
        assert all(name in drawn[0].astext() for name in described)


def test_no_page_for_users_names_an_internal_variable(reference) -> None:
    """They may change without a word; a page that names one would be a promise."""
    internal = reference.internal_variables()
    for page in DOCS.rglob("*.md"):
        named = [name for name in internal if name in page.read_text(encoding="utf-8")]
        assert page.name == "architecture.md" or not named, page


def test_every_fixture_and_hook_is_described(reference, pytester) -> None:
    """The page has the fixtures that pytest lists, every hook, and the marker."""
    assert all(page_has("plugin", name) for name in ("fixtures-list", "hooks-list", "marker-text"))
    done = python("-m", "pytest", "-p", "cudalink", "--fixtures", "-q", cwd=pytester.path)
    listed = set(re.findall(r"^(\w+)(?: \[\w+ scope\])? -- .*pytest_cudalink", done.stdout, re.MULTILINE))
    assert listed
    assert reference.fixture_functions().keys() == listed
    (fixtures_list,), (hooks_list,) = reference.fixtures_list(), reference.hooks_list()
    assert all(name in fixtures_list.astext() for name in listed)
    hooks = [name for name in vars(hookspecs) if name.startswith("pytest_cudalink_")]
    assert all(f"{name}(" in hooks_list.astext() for name in hooks)


@pytest.fixture
def tables(script) -> ModuleType:
    """The module that draws tables."""
    return script("docs/_ext", "cudalink_tables", "sphinx")


def test_every_key_of_a_cell_is_described(tables) -> None:
    """The page on the matrix has each key of the schema, with a meaning."""
    assert page_has("matrix", "cell-keys")
    (table,) = tables.cell_keys()
    rows = {row[0].astext(): row[1].astext() for row in table.findall(tables.nodes.row)}
    assert rows.keys() - {"key"} == KEYS.keys()
    assert all(rows.values())


def test_pictures_are_used_and_made() -> None:
    """A page or the README shows each picture, and a session makes it: `screenshots`, or `bench` for figures."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    sessions = "".join((ROOT / name).read_text(encoding="utf-8") for name in ("noxfile.py", "tools/sessions.toml"))
    for path in (DOCS / "images").iterdir():
        assert f"images/{path.name}" in text, f"{path.name} is shown by no page"
        makers = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "tests" / "report").glob("*.py")) + sessions
        assert path.name in makers or f"{path.stem}.svg" in makers, f"{path.name} is made by no session"


def test_settings_table(tables) -> None:
    """The table has each setting's flag as it is typed, its meaning and its values; the page tells its ini entry."""
    (table,) = tables.settings_table()
    rows = {row[0].astext(): row for row in table.findall(tables.nodes.row)}
    for option in OPTIONS:
        names = [name for name in (option.flag or option.ini, option.env) if name]
        row = rows[", ".join(names)]
        assert [literal.astext() for literal in row[0].findall(tables.nodes.literal)] == names
        assert row[1].astext()
        assert option.help == row[3].astext()
        assert option.env.lower() in ("", option.ini)


def test_reference_has_what_tests_hold() -> None:
    """`Raises`, what the fixtures give, and every kind of event in the records are described on a page."""
    pages = "\n".join((DOCS / "reference" / name).read_text(encoding="utf-8") for name in ("api.md", "records.md"))
    described = set(re.findall(r"\w+", " ".join(re.findall(r"(?:auto\w+::|:members:) (.+)", pages))))
    given = {fixtures.Cudalink, fixtures.EmulatedDriver, fixtures.BrokenRules, control.DriverControl, finding.Violation}
    public = [value for name, value in vars(records).items() if not name.startswith("_") and isinstance(value, type)]
    kinds = [kind for kind in public if kind.__module__ == records.__name__ and kind is not records.Event]
    assert {"Raises", *(kind.__name__ for kind in (*given, *kinds))} - described == set()


@pytest.mark.parametrize("page", sorted((DOCS / "explanation").glob("*.md")), ids=lambda page: page.stem)
def test_tests_that_are_named_exist(page: Path) -> None:
    """Each file of the tests that an explanation names is there, and one of these files has each function it names."""
    text = page.read_text(encoding="utf-8")
    files = {ROOT / name for name in re.findall(r"`(?:pytest )?(tests/[\w/]+\.py)", text)}
    assert [path for path in files if not path.is_file()] == []
    code = "\n".join(path.read_text(encoding="utf-8") for path in files)
    assert [name for name in re.findall(r"`(test_\w+)`", text) if f"def {name}(" not in code] == []


def test_options_that_are_named_exist() -> None:
    """Each option of pytest that a page names is one of the settings."""
    flags = {option.flag for option in OPTIONS}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert set(re.findall(r"--(?:cudalink-[\w-]+\w|force-backend)", text)) <= flags, page
