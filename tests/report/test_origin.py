"""What a run was of: read from CI systems and from git, and recorded."""

import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_cudalink.base.tables import read_table
from pytest_cudalink.report import origin, records
from pytest_cudalink.report import origin as checkouts
from pytest_cudalink.report.origin import Origin

SHA = "0123456789abcdef0123456789abcdef01234567"

#: What each CI system sets, from its documentation; then the branch and the address that a record has of it.
SYSTEMS = {
    "GitHub": (
        f"GITHUB_ACTIONS=true GITHUB_SHA={SHA} GITHUB_REF_NAME=12/merge GITHUB_HEAD_REF=topic GITHUB_RUN_ID=77 "
        "GITHUB_SERVER_URL=https://github.com GITHUB_REPOSITORY=owner/solver "
        "topic https://github.com/owner/solver/actions/runs/77"
    ),
    "GitLab": (
        f"GITLAB_CI=true CI_COMMIT_SHA={SHA} CI_COMMIT_REF_NAME=main CI_PROJECT_NAME=solver "
        "CI_PIPELINE_URL=https://gitlab.com/owner/solver/-/pipelines/5 CI_MERGE_REQUEST_SOURCE_BRANCH_NAME= "
        "main https://gitlab.com/owner/solver/-/pipelines/5"
    ),
    "Jenkins": (
        f"JENKINS_URL=https://ci.example/ GIT_COMMIT={SHA} GIT_BRANCH=main JOB_BASE_NAME=solver "
        "BUILD_URL=https://user:secret@ci.example/job/solver/3/ "
        "main https://ci.example/job/solver/3/"
    ),
    "Buildkite": (
        f"BUILDKITE=true BUILDKITE_COMMIT={SHA} BUILDKITE_BRANCH=main BUILDKITE_PIPELINE_SLUG=solver "
        "BUILDKITE_BUILD_URL=https://buildkite.com/owner/solver/builds/9 "
        "main https://buildkite.com/owner/solver/builds/9"
    ),
    "CircleCI": (
        f"CIRCLECI=true CIRCLE_SHA1={SHA} CIRCLE_BRANCH=main CIRCLE_PROJECT_REPONAME=solver "
        "CIRCLE_BUILD_URL=https://circleci.com/gh/owner/solver/4 "
        "main https://circleci.com/gh/owner/solver/4"
    ),
    "Azure": (
        f"TF_BUILD=True BUILD_SOURCEVERSION={SHA} BUILD_SOURCEBRANCH=refs/heads/feature/x BUILD_BUILDID=8 "
        "BUILD_REPOSITORY_NAME=owner/solver SYSTEM_COLLECTIONURI=https://dev.azure.com/owner/ SYSTEM_TEAMPROJECT=t "
        "feature/x https://dev.azure.com/owner/t/_build/results?buildId=8"
    ),
}


def variables(name):
    return dict(word.split("=", 1) for word in SYSTEMS[name].split()[:-2])


@pytest.mark.parametrize("name", read_table("ci_systems.toml"))
def test_reads_the_environment_of_each_ci_system(tmp_path, name):
    assert origin.find(tmp_path, variables(name)) == Origin("solver", SHA, *SYSTEMS[name].split()[-2:])


def test_prefers_the_name_that_the_project_declares(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "declared"\n')
    assert origin.find(tmp_path, variables("GitHub")).project == "declared"
    assert origin.find(tmp_path, {}).project == "declared"


@pytest.mark.parametrize("content", ["[project", "project = 1", "[project]\nname = 1", "[tool.x]\nname = 'other'\n"])
def test_takes_the_name_of_the_folder_where_no_name_is_declared(tmp_path, content):
    root = tmp_path / "solver"
    root.mkdir()
    (root / "pyproject.toml").write_text(content)
    assert origin.find(root, {}) == Origin(project="solver")


def test_the_root_of_the_file_system_has_no_name_and_a_word_is_no_commit():
    assert origin.find(Path("/"), {}) == origin.find(Path("/"), {"BUILDKITE": "true"}) == Origin()
    of_a_word = {"BUILDKITE": "true", "BUILDKITE_COMMIT": "HEAD", "BUILDKITE_BRANCH": "main"}
    assert origin.find(Path("/"), of_a_word) == Origin(branch="main")


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A folder in a checkout of git, with one commit; returns the folder, the commit, and a function that calls git."""
    root = tmp_path / "checkout"
    root.mkdir()
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):
        monkeypatch.delenv(name, raising=False)

    def git(*arguments):
        who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
        return subprocess.run(
            ["git", *who, *arguments], cwd=root, check=True, capture_output=True, text=True
        ).stdout.strip()

    assert shutil.which("git"), "these tests need git"
    git("init", "-q")
    (root / "file").write_text("1")
    git("add", "file")
    assert origin.find(root, {}) == Origin("checkout")
    git("commit", "-q", "-m", "first")
    return root, git("rev-parse", "HEAD"), git


def test_reads_each_kind_of_checkout(checkout, tmp_path):
    """A branch, also from a folder inside and in CI without its own facts; packed, a worktree, a commit."""
    root, commit, git = checkout
    (root / "inner").mkdir()
    assert origin.find(root, {"PATH": "/usr/bin:/bin"}) == Origin("checkout", commit, "main", dirty=False)
    assert origin.find(root / "inner", {}).commit == commit
    in_ci = origin.find(root, {"BUILDKITE": "true"})
    assert (in_ci.commit, in_ci.branch) == (commit, "main")
    assert origin.find(root, {"BUILDKITE": "true", "BUILDKITE_BRANCH": "topic"}).branch == "topic"
    git("pack-refs", "--all")
    assert not (root / ".git/refs/heads/main").exists()
    assert origin.find(root, {}).commit == commit
    git("worktree", "add", "-q", "-b", "topic/one", str(tmp_path / "tree"))
    assert origin.find(tmp_path / "tree", {}) == Origin("tree", commit, "topic/one", dirty=False)
    git("checkout", "-q", "--detach")
    assert origin.find(root, {}) == Origin("checkout", commit, dirty=False)


def test_says_that_a_checkout_has_changes(checkout):
    """An untracked file, such as a record, is not a change; in a hook of git its variables are not followed."""
    root, _, _ = checkout
    path = {"PATH": "/usr/bin:/bin", "GIT_DIR": "/nowhere"}
    (root / "record.jsonl").write_text("")
    assert origin.find(root, path).dirty is False
    (root / "file").write_text("22")
    assert origin.find(root, path).dirty is True
    assert origin.find(root, {"PATH": ""}) == Origin("checkout")  # git is not found


def test_how_git_is_asked(tmp_path, monkeypatch):
    """It takes no lock, reads no input, ends soon, and loads no preloaded driver."""
    asked = []
    answer = SimpleNamespace(stdout=b"")
    monkeypatch.setattr("subprocess.run", lambda command, **how: asked.append((command, how)) or answer)
    assert checkouts.has_changes(tmp_path, {"GIT_DIR": "x", "LD_PRELOAD": "y", "HOME": "z"}) is False
    ((command, how),) = asked
    assert command[:4] == ["git", "-c", "core.fsmonitor=false", "status"]
    assert (how["cwd"], how["stdin"], how["timeout"]) == (tmp_path, subprocess.DEVNULL, 2.0)
    assert how["env"] == {"HOME": "z", "GIT_OPTIONAL_LOCKS": "0"}


@pytest.mark.parametrize(
    ("head", "branch"),
    [
        ("refs/heads/b", "b"),
        ("refs/heads/a\u2028\udcff", "a\u2028\N{REPLACEMENT CHARACTER}"),
        ("refs/remotes/origin/b", None),
    ],
)
def test_branches(checkout, head, branch):
    root, commit, git = checkout
    git("update-ref", head, commit)
    git("symbolic-ref", "HEAD", head)
    assert checkouts.commit_and_branch(root) == (commit, branch)


def test_checkouts_that_git_refuses(checkout):
    """One of another user, as git's own tests pretend it, and a damaged one: nothing is known, and nothing fails."""
    root, commit, _ = checkout
    command = root / "git"
    for different, known, changed in ((0, (commit, "main"), False), (1, (None, None), None)):
        command.write_text(f'#!/bin/sh\nGIT_TEST_ASSUME_DIFFERENT_OWNER={different} exec {shutil.which("git")} "$@"\n')
        command.chmod(0o755)
        assert checkouts.commit_and_branch(root, {"PATH": str(root)}) == known
        assert checkouts.has_changes(root, {"PATH": str(root)}) is changed
    (root / ".git/HEAD").write_text("nonsense")
    assert origin.find(root, {}) == Origin("checkout")


@pytest.mark.parametrize(
    ("address", "kept"),
    [
        ("https://token:x@host.example:8080/a?b=1#c", "https://host.example:8080/a?b=1#c"),
        ("http://host/a", "http://host/a"),
        ("javascript:alert(1)", None),
        ("https://", None),
        ("//host/a", None),
        ("https://[broken", None),
    ],
)
def test_keeps_only_addresses_of_the_web_without_credentials(address, kept):
    assert origin.shown_origin(Origin("", ci_url=address, dirty=False)) == Origin(ci_url=kept, dirty=False)


def test_merges_what_is_common():
    first = Origin("solver", SHA, "main", "https://a/1", "2026-11-22T10:00:00Z", False)
    second = Origin("solver", SHA[::-1], "main", None, "2026-11-22T09:00:00Z", True)
    assert origin.merged([first, second]) == Origin("solver", None, "main", "https://a/1", second.started, True)
    assert origin.differing([first, second]) == ("commit",)
    assert origin.merged([first, Origin()]) == Origin("solver", SHA, "main", "https://a/1", first.started, None)
    assert origin.merged([first, first]) == first
    assert origin.merged([]) == Origin()
    assert origin.differing([first, Origin()]) == ()


def test_the_first_record_of_a_run(tmp_path):
    """A time outside the calendar is not known."""
    assert [origin.moment(seconds) for seconds in (1e300, float("nan"), -1e300)] == [None] * 3
    assert origin.moment(0) == "1970-01-01T00:00:00Z"
    run = origin.run_record(tmp_path, {"CUDALINK_CELL": "c"}, python="3.12.1")
    assert (run.cell, run.python, run.origin) == ("c", "3.12.1", Origin(tmp_path.name).record())
    assert run.platform == f"{sys.platform}-{platform.machine()}"
    assert re.fullmatch("[0-9a-f]{32}", run.run)


def test_the_plugin_records_the_origin(pytester, run_pytest, monkeypatch):
    for system in read_table("ci_systems.toml").values():
        monkeypatch.delenv(system["marker"], raising=False)
    for name, value in variables("GitHub").items():
        monkeypatch.setenv(name, value)
    pytester.makepyfile("def test_a(): pass")
    pytester.makepyprojecttoml('[project]\nname = "solver"\n[tool.pytest.ini_options]\n')
    run_pytest("--cudalink-report=run.jsonl").assert_outcomes(passed=1)
    expected = Origin("solver", SHA, *SYSTEMS["GitHub"].split()[-2:]).record()
    assert records.read(pytester.path / "run.jsonl").run.origin == expected
