"""The repository's own workflows and its files for GitHub and Read the Docs: pins, rights, and names that exist."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import check_written_ci

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TEMPLATE = ROOT / "pytest_cudalink" / "matrix" / "templates" / "github.yml"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ADDRESS = "https://github.com/pytest-cudalink/pytest-cudalink"


def workflow(path: Path) -> dict[Any, Any]:
    """A workflow; YAML 1.1 reads its key "on" as true."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def variants(job: dict[str, Any]) -> list[dict[str, str]]:
    """The values of a job's matrix, one combination each."""
    matrix = job.get("strategy", {}).get("matrix", {})
    return [dict(zip(matrix, values, strict=True)) for values in itertools.product(*matrix.values())]


def commands(path: Path) -> list[list[str]]:
    """The words of each command of a workflow, for each combination of a matrix, with the variables of the step."""
    found = []
    for job in workflow(path)["jobs"].values():
        for step, values in itertools.product(job["steps"], variants(job)):
            environment = {
                name: re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda match, values=values: values[match[1]], str(text))
                for name, text in step.get("env", {}).items()
            }
            for line in step.get("run", "").replace("\\\n", " ").splitlines():
                for name, text in environment.items():
                    line = re.sub(rf"\$\{{?{name}\b\}}?", lambda _, text=text: text, line)  # noqa: PLW2901
                if line.strip():
                    found.append(shlex.split(line, comments=True))
    return found


@pytest.fixture(scope="module")
def sessions() -> dict[str, list[str]]:
    """The tags of each session of the noxfile."""
    command = [sys.executable, "-m", "nox", "-l", "-f", str(ROOT / "noxfile.py")]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names: dict[str, list[str]] = {}
    for name, tags in re.findall(r"^[-*] (\S+)(?: \[(.*?)\])?(?: ->|$)", listed, re.MULTILINE):
        names[name] = [tag.strip() for tag in tags.split(",")]
        names.setdefault(name.partition("(")[0], [])  # all of a session's parameters
    return names


def chosen(words: list[str]) -> tuple[list[str], list[str]]:
    """The names and the tags of sessions that a command runs."""
    names: dict[str, list[str]] = {"-s": [], "-t": []}
    option = ""
    for word in words[: words.index("--") if "--" in words else None]:
        if word.startswith("-"):
            option = word
        elif option in names:
            names[option].append(word)
    return names["-s"], names["-t"]


@pytest.mark.parametrize("path", [*WORKFLOWS, TEMPLATE], ids=lambda path: path.stem)
def test_workflows_trust_no_moving_tag(path) -> None:
    """Each action is pinned by its commit, with the version behind it."""
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"uses: (?![.$]/)(?!\S+@[0-9a-f]{40} # v\d+\.\d+\.\d+\n)(.*)", text) == []


def test_one_commit_for_each_version() -> None:
    """A version of an action is the same commit wherever it is used, also in what init writes."""
    found: dict[tuple[str, str], set[str]] = {}
    for path in [*WORKFLOWS, TEMPLATE]:
        for action, commit, version in re.findall(r"uses: (\S+)@(\S+) # (\S+)\n", path.read_text(encoding="utf-8")):
            found.setdefault((action, version), set()).add(commit)
    assert {key: commits for key, commits in found.items() if len(commits) > 1} == {}
    assert len(found) > 4


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_rights(path) -> None:
    """A job has the rights that it names and no others; only a release may write; no token stays on the disk."""
    content = workflow(path)
    assert content["permissions"] == {}
    assert "concurrency" in content
    for job in content["jobs"].values():
        rights = job["permissions"]
        assert set(rights.values()) == {"read"} or path.stem == "release"
        assert 0 < job["timeout-minutes"] <= 120
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_sessions_and_paths_exist(path, sessions) -> None:
    """Every session and tag of nox, every file that is run, and every pattern of files that a cache depends on."""
    for words in commands(path):
        for word in words:
            if word.endswith((".py", ".sh")) or word.startswith((".ci/", "tests/", "./.")):
                assert (ROOT / word).is_file(), words
        if any(word.endswith("noxfile.py") for word in words) or words[0] == "nox":
            names, tags = chosen(words)
            assert names or tags
            assert set(names) <= set(sessions)
            assert set(tags) <= {tag for each in sessions.values() for tag in each}
    text = path.read_text(encoding="utf-8")
    patterns = re.findall(r"hashFiles\('([^']+)'\)", text)
    for job in workflow(path)["jobs"].values():
        for step in job["steps"]:
            patterns += step.get("with", {}).get("cache-dependency-glob", "").split()
    for pattern in patterns:
        assert list(ROOT.glob(pattern)), pattern


def test_names_are_checked(sessions, tmp_path) -> None:
    """What the test above looks for is found: a session of a matrix, a tag, and nothing behind ``--``."""
    path = tmp_path / "w.yml"
    step = {"run": 'uv run noxfile.py -s lint "plugins($PYTEST)" -t gpu -- -s no', "env": {"PYTEST": "${{ matrix.a }}"}}
    path.write_text(json.dumps({"jobs": {"j": {"strategy": {"matrix": {"a": ["1", "9.1"]}}, "steps": [step]}}}))
    found = [chosen(words) for words in commands(path)]
    assert found == [(["lint", "plugins(1)"], ["gpu"]), (["lint", "plugins(9.1)"], ["gpu"])]
    assert "plugins(1)" not in sessions
    assert "plugins(9.1)" in sessions


def test_ci_runs_every_python_and_pytest() -> None:
    """The gate, the quick tests on each Python of the classifiers, and each of them with each pytest of the session."""
    path = ROOT / ".github" / "workflows" / "ci.yml"
    jobs = workflow(path)["jobs"]
    assert [".ci/run"] in commands(path)
    pythons = re.findall(r"Python :: (3\.\d+)", "\n".join(PYPROJECT["project"]["classifiers"]))
    quick = [(words[words.index("--python") + 1], *chosen(words)[0]) for words in commands(path) if "--python" in words]
    assert {(python, "tests") for python in pythons} < set(quick)
    assert (pythons[0], "lint", "types") in quick
    matrix = jobs["plugin"]["strategy"]["matrix"]
    assert matrix["python"] == pythons
    released = tomllib.loads((ROOT / "tools" / "sessions.toml").read_text(encoding="utf-8"))["plugins"]["pytest"]
    assert matrix["pytest"] == list(released)


def test_slow_tests_run_on_the_pythons_that_the_gate_lacks() -> None:
    """Once a week; the gate runs them on the oldest."""
    pythons = re.findall(r"Python :: (3\.\d+)", "\n".join(PYPROJECT["project"]["classifiers"]))
    job = workflow(ROOT / ".github" / "workflows" / "matrix.yml")["jobs"]["slow"]
    assert job["strategy"]["matrix"]["python"] == pythons[1:]


def test_hooks_have_no_pins_of_their_own() -> None:
    """Dependabot skips those of local hooks; it updates the exact versions of the group `lint`."""
    content = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    hooks = [hook for repository in content["repos"] for hook in repository["hooks"]]
    assert {(hook["language"], "additional_dependencies" in hook) for hook in hooks} == {("system", False)}
    pinned = {one.partition("==")[0] for one in PYPROJECT["dependency-groups"]["lint"] if "==" in one}
    assert {"ruff", "clang-format", "clang-tidy", "zizmor"} < pinned


def test_a_gpu_is_used_only_when_asked_for() -> None:
    """Without the variable nothing runs, and never the code of a fork."""
    (job,) = workflow(ROOT / ".github" / "workflows" / "gpu.yml")["jobs"].values()
    condition = " ".join(job["if"].split())
    assert condition.startswith("vars.CUDALINK_GPU_RUNNER != '' && (")
    assert "github.event.label.name == 'gpu' && !github.event.pull_request.head.repo.fork" in condition
    assert job["runs-on"].startswith("${{ vars.CUDALINK_GPU_RUNNER ")


def test_read_the_docs_builds_what_the_session_builds() -> None:
    """The same folder and requirements; a warning is an error there, too."""
    content = yaml.safe_load((ROOT / ".readthedocs.yaml").read_text(encoding="utf-8"))
    assert content["sphinx"] == {"configuration": "docs/conf.py", "fail_on_warning": True}
    assert (ROOT / "docs" / "conf.py").is_file()
    assert content["build"]["jobs"]["install"][-1] == "python -m pip install -e . --group docs"
    assert "docs" in PYPROJECT["dependency-groups"]
    python = content["build"]["tools"]["python"]
    assert f"Programming Language :: Python :: {python}" in PYPROJECT["project"]["classifiers"]


@pytest.mark.slow
def test_read_the_docs_installs_what_the_pages_import(tmp_path) -> None:
    """The site is built in an environment that has only what the file installs, none of the packages of the tests."""
    content = yaml.safe_load((ROOT / ".readthedocs.yaml").read_text(encoding="utf-8"))
    python = str(tmp_path / "venv" / "bin" / "python")
    subprocess.run(["uv", "venv", "-q", "--python", sys.executable, str(tmp_path / "venv")], check=True)
    for line in content["build"]["jobs"]["install"]:
        words = shlex.split(line.removeprefix("python -m pip "))
        subprocess.run(["uv", "pip", *words, "-q", "--python", python], check=True, cwd=ROOT)
    build = ("-m", "sphinx", "-q", "-W", "-b", "dummy", "-d", str(tmp_path / "read"), "docs", str(tmp_path / "written"))
    done = subprocess.run([python, *build], check=False, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")


def test_addresses_and_links() -> None:
    """Forms and policies lead to this repository, and to pages that exist in it."""
    policies = [ROOT / "SECURITY.md", ROOT / "CODE_OF_CONDUCT.md", *(ROOT / ".github").rglob("*.*")]
    for path in policies:
        text = path.read_text(encoding="utf-8")
        for address in re.findall(r"https://github\.com/pytest-cudalink/[\w/-]+", text):
            assert address.startswith(ADDRESS), path
        if path.suffix == ".md":
            for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
                assert (path.parent / target).exists(), path
    assert "docs/explanation/security.md" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    config = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / "config.yml").read_text(encoding="utf-8"))
    assert config["contact_links"][0]["url"] == f"{ADDRESS}/security/advisories/new"


def test_dependabot_watches_what_init_writes() -> None:
    """Each of its folders is there, and the templates' is one of them."""
    content = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text(encoding="utf-8"))
    folders = [folder for one in content["updates"] for folder in one.get("directories", [one.get("directory")])]
    assert all((ROOT / folder.lstrip("/")).is_dir() for folder in folders)
    assert f"/{TEMPLATE.parent.relative_to(ROOT)}" in folders


@pytest.mark.parametrize("path", check_written_ci.shown(), ids=lambda path: path.stem)
def test_pages_show_what_init_writes(path) -> None:
    """After a change of a template, `nox -s generate` writes the files of the how-to pages again."""
    assert path.read_text(encoding="utf-8") == check_written_ci.shown()[path]
