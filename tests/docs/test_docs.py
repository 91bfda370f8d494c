"""The documentation: every example is a file that runs, and every command that it shows works."""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from pytest_cudalink.base import finding
from pytest_cudalink.base.tables import read_table
from pytest_cudalink.compat.settings_table import OPTIONS, known_variables
from pytest_cudalink.emulator import control
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
    none, needed = done.stdout.splitlines()
    assert none == "no libnvJitLink.so.12 of CUDA 12 exports __nvJitLinkGetErrorLog_13_1"
    assert needed.startswith("nvidia-nvjitlink>=13.1")
    wheels = ("nvidia-nvjitlink=13.0.88", "nvidia-cuda-runtime=13.1.80")
    assert "cuda-python#1691" in python(str(EXAMPLES / "known_bad.py"), *wheels, cwd=tmp_path).stdout


def test_guard_rails_example(toolkit, tmp_path) -> None:
    """The guard rails accept this environment, item by item."""
    done = python(str(EXAMPLES / "guard_rails.py"), cwd=tmp_path)
    assert done.stdout.splitlines() == [f"nvrtc library CUDA {toolkit}", f"cudart headers CUDA {toolkit}"], done.stderr


def test_inspect_example(tmp_path) -> None:
    """The inspection example names what it is given, and what is wrong with it."""
    sample = ROOT / "tests" / "data" / "artifacts" / "13.0" / "main.cubin"
    (tmp_path / "cut.cubin").write_bytes(sample.read_bytes()[:999])
    done = python(str(EXAMPLES / "inspect_artifact.py"), str(sample), "cut.cubin", cwd=tmp_path)
    expected = ["main.cubin: cubin for sm_90, made by CUDA 13.0", "  kernels: apply_transform"]
    assert done.stdout.splitlines()[:3] == [*expected, "  undefined: user_transform"]
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


def test_only_plugin_knows_pytest(script) -> None:
    """The contract that keeps pytest out names every folder and module besides plugin/."""
    floors = script("docs/_ext", "cudalink_floors")
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = (c for c in config["tool"]["importlinter"]["contracts"] if c["type"] == "forbidden")
    named = {name.removeprefix("pytest_cudalink.") for name in contract["source_modules"]}
    assert named == set().union(*floors.contract("floors")) - {"plugin"}


@pytest.fixture
def reference(script) -> ModuleType:
    """The module that describes commands, variables, fixtures and hooks."""
    return script("docs/_ext", "cudalink_reference", "sphinx")


def test_every_variable_is_described(reference) -> None:
    """Two tables have every variable that is not for the tests of the project alone, with a meaning.

    One page alone names the internal ones: they may change without a word.
    """
    tests, internal = set(read_table("variables.toml")["tests"]), reference.internal_variables()
    assert (reference.variables() | internal).keys() == known_variables() - tests
    assert all((reference.variables() | internal).values())
    texts = {page.name: page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md")}
    assert {page for page, text in texts.items() if any(name in text for name in internal)} <= {"architecture.md"}


def test_every_fixture_and_hook_is_described(reference, pytester) -> None:
    """The page has the fixtures that pytest lists, and every hook."""
    done = python("-m", "pytest", "-p", "cudalink", "--fixtures", "-q", cwd=pytester.path)
    listed = set(re.findall(r"^(\w+)(?: \[\w+ scope\])? -- .*pytest_cudalink", done.stdout, re.MULTILINE))
    assert listed
    assert reference.fixture_functions().keys() == listed
    (hooks_list,) = reference.hooks_list()
    hooks = [name for name in vars(hookspecs) if name.startswith("pytest_cudalink_")]
    assert all(f"{name}(" in hooks_list.astext() for name in hooks)


def test_pages_have_the_lists_that_are_made() -> None:
    """The reference calls each directive that writes a list of commands, options, keys, fixtures or hooks."""
    lists = {"reference/cli": "commands command-line", "reference/options": "settings-table variables-table"}
    lists |= {"reference/matrix": "cell-keys", "reference/plugin": "fixtures-list hooks-list marker-text"}
    lists |= {"architecture": "internal-variables-table"}
    for page, names in lists.items():
        text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
        assert [name for name in names.split() if f"```{{{name}}}\n" not in text] == [], page


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
    """Each option of pytest that a page names is one of the settings; variables are called as entries of ini are."""
    assert all(option.env.lower() in ("", option.ini) for option in OPTIONS)
    flags = {option.flag for option in OPTIONS}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert set(re.findall(r"--(?:cudalink-[\w-]+\w|force-backend)", text)) <= flags, page
