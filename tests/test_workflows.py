"""The repository's own workflows and its files for GitHub and Read the Docs: pins, rights, and names that exist."""

import fnmatch
import itertools
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_cudalink.cli import main
from pytest_cudalink.matrix import load_cells
from tests import check_written_ci
from tests.expressions import Payload, expressions, fill, truth

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
    calls = []
    for job in workflow(path)["jobs"].values():
        for step, values in itertools.product(job["steps"], variants(job)):
            environment = {
                name: re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda match, values=values: values[match[1]], str(text))
                for name, text in step.get("env", {}).items()
            }
            for line in step.get("run", "").replace("\\\n", " ").splitlines():
                for name, text in environment.items():
                    line = re.sub(rf"\$\{{?{name}\b\}}?", lambda _, text=text: text, line)  # noqa: PLW2901
                if words := shlex.split(line, comments=True):
                    calls.append(words)
    return calls


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


def event(name: str, ref: str, **payload: Any) -> dict[str, Any]:
    """What GitHub says of an event."""
    ref_name = ref.split("/", 2)[2]
    return {"event_name": name, "ref": ref, "ref_name": ref_name, "token": "secret", "event": Payload(payload)}


def pull_request(action: str, *, fork: bool, label: str | None = None) -> dict[str, Any]:
    """What GitHub says of a pull request."""
    request = Payload(head=Payload(repo=Payload(fork=fork)))
    return event(
        "pull_request", "refs/pull/7/merge", action=action, pull_request=request, label=label and Payload(name=label)
    )


#: What starts workflows, by name.
EVENTS = {
    "push": event("push", "refs/heads/main"),
    "push elsewhere": event("push", "refs/heads/topic"),
    "pull request": pull_request("synchronize", fork=False),
    "pull request of a fork": pull_request("opened", fork=True),
    "label gpu": pull_request("labeled", fork=False, label="gpu"),
    "label gpu of a fork": pull_request("labeled", fork=True, label="gpu"),
    "label docs": pull_request("labeled", fork=False, label="docs"),
    "every week": event("schedule", "refs/heads/main"),
    "by hand": event("workflow_dispatch", "refs/heads/main"),
    "tag v0.1.0rc1": event("push", "refs/tags/v0.1.0rc1"),
    "tag v0.1.0": event("push", "refs/tags/v0.1.0"),
    "tag nightly": event("push", "refs/tags/nightly"),
}
#: The jobs that run where every job succeeds and the repository has a runner with a GPU.
JOBS = {
    "push": {"ci": "quick gate plugin", "docs": "html"},
    "pull request": {"ci": "quick gate plugin", "docs": "html"},
    "pull request of a fork": {"ci": "quick gate plugin", "docs": "html"},
    "label gpu": {"gpu": "cells"},
    "label gpu of a fork": {"gpu": ""},
    "label docs": {"gpu": ""},
    "every week": {"matrix": "report slow plugins field campaigns suites atlas links"},
    "by hand": {"gpu": "cells", "matrix": "report slow plugins field campaigns suites atlas links"},
    "tag v0.1.0rc1": {"release": "build gate try"},
    "tag v0.1.0": {"release": "build gate publish announce"},
}


#: Sessions that need a GPU, write files of this repository, take hours by design, or take parts of another one.
BY_HAND = {
    *("bench-matrix", "changelog", "generate", "gpu", "jit-lto", "new-release", "properties", "screenshots"),
}


def starts(content: dict[Any, Any], github: dict[str, Any]) -> bool:
    """Whether an event starts a workflow; YAML 1.1 reads "on" as true."""
    events = content[True]
    if (name := github["event_name"]) not in events:
        return False
    wanted = events[name] or {}
    if name == "pull_request":
        return github["event"]["action"] in wanted.get("types", ["opened", "synchronize", "reopened"])
    if name == "push" and wanted:
        patterns = wanted.get("tags" if github["ref"].startswith("refs/tags/") else "branches", [])
        return any(fnmatch.fnmatch(github["ref_name"], pattern) for pattern in patterns)
    return True


class Evaluated:
    """A workflow in a run: each expression has its value.

    `github`: what GitHub says of the event.
    `variables`: those of the repository.
    `outputs`: those of the steps with an ID.
    `inputs`: those of a workflow that another one calls.
    `jobs`: for each job that ran, every combination of its matrix, with the values in place of the expressions.
    `seen`: the expressions that had a value.
    """

    def __init__(
        self,
        content: dict[Any, Any],
        github: dict[str, Any],
        variables: Mapping[str, str],
        outputs: Mapping[str, str],
        inputs: Mapping[str, str] | None = None,
    ) -> None:
        self.seen: set[str] = set()
        self.jobs: dict[str, list[dict[str, Any]]] = {}
        names = {"github": {**github, "workflow": content["name"]}, "vars": Payload(variables)}
        names["inputs"] = Payload(inputs or {})
        names["functions"] = {"always": lambda: True, "success": lambda: True, "cancelled": lambda: False}
        self.concurrency = self.of(content["concurrency"], names)
        names["env"] = self.of(content.get("env", {}), names)
        needs: dict[str, Any] = {}
        for name, job in content["jobs"].items():
            needed = [job["needs"]] if isinstance(job.get("needs"), str) else job.get("needs", [])
            ran = all(needs[name]["result"] == "success" for name in needed)
            functions = {**names["functions"], "success": lambda ran=ran: ran}
            of_job = {**names, "needs": {name: needs[name] for name in needed}, "functions": functions}
            needs[name] = {"result": "skipped", "outputs": {}}
            if not self.holds(job.get("if", "success()"), of_job):
                continue
            steps = {step["id"]: {"outputs": outputs} for step in job["steps"] if "id" in step}
            result = self.of(job.get("outputs", {}), {**of_job, "steps": steps})
            needs[name] = {"result": "success", "outputs": result}
            self.jobs[name] = [
                self.job(job, {**of_job, "matrix": values, "strategy": {"job-index": float(index)}})
                for index, values in enumerate(self.variants(job, of_job))
            ]

    def variants(self, job: dict[str, Any], names: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The combinations of a job's matrix, which an expression may make."""
        matrix = job.get("strategy", {}).get("matrix", {})
        return self.of(matrix, names)["include"] if isinstance(matrix, str) else variants(job)

    def job(self, job: dict[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
        """A job and its steps for one combination of its matrix."""
        names = {**names, "runner": {"os": "Linux", "arch": "X64"}}
        names["env"] = {**names["env"], **self.of(job.get("env", {}), names)}
        steps = []
        for step in job["steps"]:
            own = {**names, "env": {**names["env"], **self.of(step.get("env", {}), names)}}
            if self.holds(step.get("if", "success()"), own):
                steps.append({**self.of({key: step[key] for key in step if key != "if"}, own), "env": own["env"]})
        others = {key: value for key, value in job.items() if key not in ("steps", "if", "outputs", "strategy")}
        return {**self.of(others, names), "steps": steps}

    def of(self, value: Any, names: Mapping[str, Any]) -> Any:
        """A part of the workflow with values in place of expressions."""
        if isinstance(value, dict):
            return {key: self.of(value, names) for key, value in value.items()}
        if isinstance(value, list):
            return [self.of(entry, names) for entry in value]
        if not isinstance(value, str):
            return value
        self.seen.update(expressions(value))
        return fill(value, names)

    def holds(self, condition: str, names: Mapping[str, Any]) -> bool:
        """Whether the condition of a job or step holds."""
        self.seen.add("".join(expressions(condition)) or condition)
        return truth(condition, names)


def written(value: Any, key: str = "") -> Iterator[str]:
    """Yield the expressions of a part of a workflow; a condition is one without braces, too."""
    if isinstance(value, dict | list):
        for name, child in value.items() if isinstance(value, dict) else ((key, entry) for entry in value):
            yield from written(child, str(name))
    elif isinstance(value, str):
        yield from expressions(value) if "${{" in value or key != "if" else [value]


@pytest.mark.parametrize("name", EVENTS)
def test_jobs_of_an_event(name) -> None:
    """An event starts the workflows that are for it, and only a tag of a candidate or release reaches an index.

    A newer push ends the run of a pull request, and no other one.
    """
    ran = {}
    for path in WORKFLOWS:
        if starts(content := workflow(path), EVENTS[name]):
            run = Evaluated(content, EVENTS[name], {"CUDALINK_GPU_RUNNER": "gpu"}, {})
            ran[path.stem] = " ".join(run.jobs)
            assert run.concurrency["cancel-in-progress"] is name.startswith("pull request")
            steps = [step for job in itertools.chain(*run.jobs.values()) for step in job["steps"]]
            uploads = [step["with"]["name"] for step in steps if "upload-artifact" in step.get("uses", "")]
            assert len(uploads) == len(set(uploads))  # GitHub refuses the second artifact of a name
            if path.stem == "gpu":
                assert Evaluated(content, EVENTS[name], {}, {}).jobs == {}
    assert ran == JOBS.get(name, {})


#: A cell with a name that another artifact might have, one of each sort.
CELLS = """[cells.report]
runs-on = ["big"]
[cells.a]
[cells.b]
tags = ["nightly"]
[cells.g]
driver = "real"
gpu = true
"""
TAGGED = {
    "push": (EVENTS["push"], "gpu,fast", {}, {"report": ["big"], "a": ["ubuntu-latest"], "g": ["gpu", "fast"]}),
    "no GPU": (EVENTS["push"], "", {}, {"report": ["big"], "a": ["ubuntu-latest"]}),
    "fork": (EVENTS["pull request of a fork"], "gpu", {}, {"report": ["big"], "a": ["ubuntu-latest"]}),
    "call": (EVENTS["every week"], "gpu", {"tags": "nightly"}, {"b": ["ubuntu-latest"]}),
    "no cell": (EVENTS["pull request of a fork"], "gpu", {}, {}),
}


@pytest.mark.parametrize("case", TAGGED)
def test_expressions_of_what_init_writes(case, tmp_path, monkeypatch, capfd) -> None:
    """The command of its first job chooses the cells, and every expression of the jobs has a value for each of them."""
    github, gpu_runner, inputs, machines = TAGGED[case]
    (tmp_path / "matrices").mkdir()
    (tmp_path / "matrices" / "cells.toml").write_text(CELLS if machines else "[cells.g]\ngpu = true\n")
    content = workflow(ROOT / "docs" / "examples" / "written" / "github.yml")
    variables = {"CUDALINK_GPU_RUNNER": gpu_runner} if gpu_runner else {}

    def run(outputs: dict[str, str]) -> Evaluated:
        return Evaluated(content, github, variables, outputs, inputs)

    (step,) = [step for step in run({"any": "false", "matrix": ""}).jobs["cells"][0]["steps"] if "run" in step]
    (_, *words) = step["run"].split("cudalink ", 1)
    options = [re.sub(r"\$(\w+)", lambda match: step["env"][match[1]], word) for word in shlex.split(words[0])]
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    monkeypatch.chdir(tmp_path)
    assert main(options) == 0, capfd.readouterr()
    outputs = dict(line.split("=", 1) for line in (tmp_path / "output").read_text(encoding="utf-8").splitlines())
    done = run(outputs)
    jobs = {job["name"]: job for job in done.jobs.get("test", [])}
    assert {name: job["runs-on"] for name, job in jobs.items()} == machines
    assert ("report" in done.jobs) == bool(machines)
    uploads = [step["with"] for job in itertools.chain(*done.jobs.values()) for step in job["steps"] if "with" in step]
    names = [given["name"] for given in uploads if "name" in given]
    assert len(set(names)) == len(machines) + bool(machines)
    # the report takes all records, and not itself
    patterns = [given["pattern"] for given in uploads if "pattern" in given]
    assert [fnmatch.filter(names, pattern) for pattern in patterns] == [names[:-1]] * bool(machines)
    if case == "push":
        assert done.seen >= set(written(content)) - {"inputs.tags"}


@pytest.mark.parametrize("tag", ["v0.1.0rc1", "v0.1.0"])
def test_commands_of_a_release(tag, tmp_path) -> None:
    """Those that are no session run as written: the check of the version, and the release with all of its files."""
    run = Evaluated(workflow(ROOT / ".github" / "workflows" / "release.yml"), EVENTS[f"tag {tag}"], {}, {})
    for name in (f"pytest_cudalink-{tag[1:]}.tar.gz", "pytest_cudalink-1-any.whl"):
        for folder in ("dist", "files"):
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / name).touch()
    (tmp_path / "gh").write_text('#!/bin/sh\nprintf "%s\\n" "$@" >said\n', encoding="utf-8")
    (tmp_path / "gh").chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "GITHUB_REF_NAME": tag, "GITHUB_REPOSITORY": "owner/name"}

    def codes(job: str, word: str, **more: str) -> list[int]:
        runs = [step.get("run", "") for ran in run.jobs.get(job, []) for step in ran["steps"]]
        bash = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c")  # as GitHub starts it
        commands = [[*bash, line] for line in runs if line.startswith(word)]
        done = [subprocess.run(words, env=env | more, cwd=tmp_path, check=False) for words in commands]
        return [ended.returncode for ended in done]

    assert codes("build", "test ") == [0]
    assert codes("build", "test ", GITHUB_REF_NAME="v0.1.1") == [1]
    assert codes("announce", "gh ") == ([] if "rc" in tag else [0])
    if "rc" not in tag:
        said = (tmp_path / "said").read_text(encoding="utf-8").splitlines()
        assert said[:3] == ["release", "create", tag]
        assert {f"files/pytest_cudalink-{tag[1:]}.tar.gz", "files/pytest_cudalink-1-any.whl", "owner/name"} < set(said)


def test_one_commit_for_each_version() -> None:
    """A version of an action is the same commit wherever it is used, also in what init writes."""
    pins: dict[tuple[str, str], set[str]] = {}
    for path in [*WORKFLOWS, TEMPLATE]:
        for action, commit, version in re.findall(r"uses: (\S+)@(\S+) # (\S+)\n", path.read_text(encoding="utf-8")):
            pins.setdefault((action, version), set()).add(commit)
    assert {key: commits for key, commits in pins.items() if len(commits) > 1} == {}
    assert len(pins) > 4
    content = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text(encoding="utf-8"))  # which updates them
    folders = [folder for u in content["updates"] for folder in u.get("directories", [u.get("directory")])]
    assert f"/{TEMPLATE.parent.relative_to(ROOT)}" in folders
    assert all((ROOT / folder.lstrip("/")).is_dir() for folder in folders)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_sessions_and_paths_exist(path, sessions) -> None:
    """Every session and tag of nox, every file that is run, and every pattern of files that a cache depends on.

    Only a release may write; zizmor (`nox -s lint`) looks for rights that no job names.
    """
    for words in commands(path):
        for word in words:
            if re.fullmatch(r"[^~].*\.(py|sh)|(\.ci/|tests/|campaigns/|\./\.).*", word):
                assert (ROOT / word).is_file(), words
            if re.fullmatch(r"(tests|campaigns|tools)(\.\w+)+", word):
                module = ROOT.joinpath(*word.split("."))
                assert module.with_suffix(".py").is_file() or (module / "__main__.py").is_file(), words
        if any(word.endswith("noxfile.py") for word in words) or words[0] == "nox":
            names, tags = chosen(words)
            assert names or tags
            assert set(names) <= set(sessions)
            assert set(tags) <= {tag for each in sessions.values() for tag in each}
    text = path.read_text(encoding="utf-8")
    patterns = re.findall(r"hashFiles\('([^']+)'\)", text)
    for job in workflow(path)["jobs"].values():
        assert {*job["permissions"].values()} == {"read"} or path.stem == "release"
        assert 0 < job["timeout-minutes"] <= (350 if path.stem == "matrix" else 120)
        for step in job["steps"]:
            patterns += step.get("with", {}).get("cache-dependency-glob", "").split()
    for pattern in patterns:
        assert list(ROOT.glob(pattern)), pattern


def test_ci_runs_every_python_and_pytest() -> None:
    """The gate, the quick tests on each Python of the classifiers, and each of them with each pytest of the session."""
    path = ROOT / ".github" / "workflows" / "ci.yml"
    assert [".ci/run"] in commands(path)
    pythons = re.findall(r"Python :: (3\.\d+)", "\n".join(PYPROJECT["project"]["classifiers"]))
    quick = [(words[words.index("--python") + 1], *chosen(words)[0]) for words in commands(path) if "--python" in words]
    assert {(python, "tests") for python in pythons} < set(quick)
    assert (pythons[0], "lint", "types") in quick
    matrix = workflow(path)["jobs"]["plugin"]["strategy"]["matrix"]
    assert matrix["python"] == pythons
    released = tomllib.loads((ROOT / "tools" / "sessions.toml").read_text(encoding="utf-8"))["plugins"]["pytest"]
    assert matrix["pytest"] == list(released)
    # the slow ones once a week, as the gate runs them on the oldest
    slow = workflow(ROOT / ".github" / "workflows" / "matrix.yml")["jobs"]["slow"]
    assert slow["strategy"]["matrix"]["python"] == pythons[1:]


def test_what_the_gate_leaves_out_runs_every_week(sessions) -> None:
    """A session of which the gate runs a part, or nothing, runs once a week, but for those that people run."""
    weekly = {name for words in commands(ROOT / ".github" / "workflows" / "matrix.yml") for name in chosen(words)[0]}
    stages = re.search(r"<<'STAGES'.*\n((?:.+\n)+?)STAGES\n", (ROOT / ".ci" / "run").read_text(encoding="utf-8"))[1]
    whole = {"lint", "types", "tests", "matrix-report"}
    for words in map(shlex.split, stages.splitlines()):
        names, _ = chosen(words)
        assert {name.partition("(")[0] for name in names} <= set(sessions)
        if words[0] == "nox" and set(words[words.index("--") + 1 :] if "--" in words else ()) <= {"-q"}:
            whole.update(names)
    cells = {cell.name for cell in load_cells(ROOT / "matrices" / "cells.toml")}
    left = {name for name in sessions if "(" not in name} - cells - whole - weekly
    assert left == BY_HAND


def test_hooks_have_no_pins_of_their_own() -> None:
    """Dependabot skips those of local hooks; it updates the exact versions of the group `lint`."""
    content = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    hooks = [hook for repository in content["repos"] for hook in repository["hooks"]]
    assert {(hook["language"], "additional_dependencies" in hook) for hook in hooks} == {("system", False)}
    pinned = {need.partition("==")[0] for need in PYPROJECT["dependency-groups"]["lint"] if "==" in need}
    assert {"ruff", "clang-format", "clang-tidy", "zizmor"} < pinned


def test_read_the_docs_builds_what_the_session_builds() -> None:
    """The same folder and requirements; a warning is an error there, too."""
    content = yaml.safe_load((ROOT / ".readthedocs.yaml").read_text(encoding="utf-8"))
    assert content["sphinx"] == {"configuration": "docs/conf.py", "fail_on_warning": True}
    assert (ROOT / "docs" / "conf.py").is_file()
    assert content["build"]["jobs"]["install"][-1] == "python -m pip install -e . --group docs"
    assert "docs" in PYPROJECT["dependency-groups"]
    python = content["build"]["tools"]["python"]
    assert f"Programming Language :: Python :: {python}" in PYPROJECT["project"]["classifiers"]


@pytest.mark.weekly
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
    names = ("SECURITY.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md")  # the build of the site looks at other pages
    policies = [*(ROOT / name for name in names), *(ROOT / ".github").rglob("*.*")]
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


def test_the_page_shows_what_init_writes() -> None:
    """After a change of the template, `nox -s generate` writes the file of the how-to page again."""
    path, content = check_written_ci.shown()
    assert path.read_text(encoding="utf-8") == content
