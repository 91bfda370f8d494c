"""The audit in the CI of other projects: the action of ``action.yml``, and the hook of ``.pre-commit-hooks.yaml``."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def run_action(folder: Path, inputs: dict[str, str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the shell steps of the action as a runner does: each value comes as a variable, and bash ends at an error."""
    values = {name: entry["default"] for name, entry in ACTION["inputs"].items()} | inputs
    (step,) = (step for step in ACTION["runs"]["steps"] if "run" in step)
    assert step["shell"] == "bash"
    given = {}
    for name, text in step["env"].items():
        match = re.fullmatch(r"\$\{\{ inputs\.(\w+) \}\}", text)
        assert match is not None, text
        given[name] = values[match[1]]
    script = folder / "step.sh"
    script.write_text(step["run"], encoding="utf-8")
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
        cwd=folder,
        env={**os.environ, "GITHUB_ACTION_PATH": str(ROOT), **given, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def uv(tmp_path) -> dict[str, str]:
    """A ``uv`` that prints its arguments, a line for each, as it comes first on the PATH."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/uv").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n', encoding="utf-8")
    (tmp_path / "bin/uv").chmod(0o755)
    return {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}


@pytest.mark.parametrize(
    ("inputs", "options", "paths"),
    [
        ({}, ["--format=github"], ["dist/a b.whl", "dist/c.whl"]),
        ({"wheels": "dist/c*\nother/$(touch x).whl\n"}, ["--format=github"], ["dist/c.whl", "other/$(touch x).whl"]),
        ({"require": "12,13", "format": "json"}, ["--format=json", "--require=12,13"],
         ["dist/a b.whl", "dist/c.whl"]),
        ({"require": "$(touch x); 12"}, ["--format=github", "--require=$(touch x); 12"],
         ["dist/a b.whl", "dist/c.whl"]),
    ],
)  # fmt: skip
def test_inputs(inputs, options, paths, uv, tmp_path) -> None:
    """Inputs reach the audit as they are: patterns are expanded, and no text of an input is run."""
    (tmp_path / "dist").mkdir()
    for name in ("a b.whl", "c.whl"):
        (tmp_path / "dist" / name).touch()
    done = run_action(tmp_path, inputs, **uv)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[said.index("audit") + 1 :] == [*options, "--", *paths]
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("wheels", "said"),
    [
        ("build/*.whl\nout/*.whl",
         "wheels has the line 'build/*.whl', and no file matches; expected a path or a pattern"),
        ("*.whl\n\n  out/50%*.whl \n*.whl",
         "wheels has the line 'out/50%25*.whl', and no file matches; expected a path"),
        (" \n\n", "wheels is empty; expected a path or a pattern on each line"),
    ],
)  # fmt: skip
def test_no_wheels(wheels, said, uv, tmp_path) -> None:
    """A pattern that matches nothing fails the step: a green one would say that its wheels were audited."""
    (tmp_path / "x.whl").touch()
    done = run_action(tmp_path, {"wheels": wheels}, **uv)
    assert (done.returncode, done.stdout.startswith(f"::error title=cudalink audit::{said}")) == (2, True), done.stdout


def test_lines_of_wheels(uv, tmp_path) -> None:
    """Space around a line does not count; a file may be named like a pattern."""
    for name in ("a [b].whl", "c.whl", "d.whl"):
        (tmp_path / name).touch()
    said = run_action(tmp_path, {"wheels": "  a [b].whl\t\n\n[cd].whl\r\n"}, **uv).stdout.splitlines()
    assert said[said.index("--format=github") + 1 :] == ["--", "a [b].whl", "c.whl", "d.whl"]


def test_libraries_of_the_action(uv, tmp_path) -> None:
    """The action installs what the audit of wheels imports: packaging, and the extra without conda's part."""
    (tmp_path / "x.whl").touch()
    said = run_action(tmp_path, {"wheels": "x.whl"}, **uv).stdout.splitlines()
    given = {said[at + 1] for at, word in enumerate(said) if word == "--with"}
    extra = {re.match(r"[\w-]+", need)[0] for need in PYPROJECT["project"]["optional-dependencies"]["audit"]}
    assert given == {"packaging"} | extra - {"py-rattler"}


def test_the_action_pins_as_the_workflows(tmp_path) -> None:
    """Another action is named by the commit that the workflows name."""
    pinned = set(re.findall(r"uses: (\S+@\w+)", (ROOT / "action.yml").read_text(encoding="utf-8")))
    release = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    assert pinned <= set(re.findall(r"uses: (\S+@\w+)", release))


@pytest.fixture
def project(make_wheel, tmp_path) -> Path:
    """A checkout with two wheels, of which one loads a library that it does not require."""
    source = b"import ctypes\nctypes.CDLL('libnvJitLink.so.12')\n"
    make_wheel("bad-1-py3-none-any.whl", {"bad/__init__.py": source})
    make_wheel("good-1-py3-none-any.whl", {"good/__init__.py": source}, "nvidia-nvjitlink-cu12")
    return tmp_path


@pytest.mark.slow
def test_the_action_runs(project) -> None:
    """From a checkout that was never built, with a module in the project that has the name of a library."""
    (project / "packaging.py").write_text("raise SystemError\n", encoding="utf-8")
    summary = project / "summary.md"
    good = run_action(project, {"wheels": "good*.whl"}, GITHUB_STEP_SUMMARY=str(summary))
    bad = run_action(project, {"wheels": "*.whl", "require": "12"}, GITHUB_STEP_SUMMARY=str(summary))
    assert (good.returncode, bad.returncode) == (0, 1), good.stderr + bad.stderr
    assert "::error file=bad-1-py3-none-any.whl,title=undeclared%3A bad/__init__.py::loads libnvJitLink" in bad.stdout
    assert summary.read_text(encoding="utf-8").count("| passes | good-1-py3-none-any.whl") == 2


#: A compiler for the hook's environment, whose libraries the audit does not open: it makes an empty one of any sources.
EMPTY_LIBRARY = """#!/bin/sh
for word; do [ "$last" = -o ] && out=$word; last=$word; done
case $out in *.o) : > "$out" ;; *) exec cc -shared -x c /dev/null -o "$out" ;; esac
"""


@pytest.mark.weekly
@pytest.mark.slow
def test_the_hook_runs(project) -> None:
    """pre-commit installs the hook from this checkout, and the hook fails for the wheel that is bad alone."""
    compiler = project / "empty-library"
    compiler.write_text(EMPTY_LIBRARY, encoding="utf-8")
    compiler.chmod(0o755)
    (pin,) = (need for need in PYPROJECT["dependency-groups"]["lint"] if need.startswith("pre-commit=="))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"PRE_COMMIT_HOME": str(project / "cache"), "CC": str(compiler)}
    subprocess.run(["git", "init", "-q", str(project)], env=environment, check=True)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "uv", "tool", "run", "--from", pin, "pre-commit", "try-repo", str(ROOT)),
            *("cudalink-audit", "--verbose", "--files", "good-1-py3-none-any.whl", "bad-1-py3-none-any.whl"),
        ],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.findall(r"^  (?:undeclared|required).*?: (.*?): ", done.stdout, re.MULTILINE) == ["bad/__init__.py"]
    assert "good-1-py3-none-any.whl: no library; loads with CUDA" in done.stdout
