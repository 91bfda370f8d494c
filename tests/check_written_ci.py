"""Asserts that what ``cudalink init`` writes for a CI passes the linters of workflows. Run by ``nox -s lint``.

zizmor looks for what is unsafe, actionlint for what cannot work, and check-jsonschema compares with the schemas of
GitHub and GitLab. Whatever the project, its runner and its Python are: one finding fails. With ``--write``, write the
files that the how-to pages show instead (``nox -s generate``).
"""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from pytest_cudalink.matrix import adopt, ci, load_cells  # noqa: E402 (from the checkout: lint does not build it)

PROJECTS = {
    "bare": "",
    "newest": '[project]\nname = "a"\nversion = "1"\nrequires-python = ">=3.13"\n',
    "exact": '[project]\nname = "b"\nversion = "1"\nrequires-python = "==3.12.4"\n[tool.tox]\n',
    "oldest": '[project]\nname = "c"\nversion = "1"\nrequires-python = "<3.12"\n[dependency-groups]\ntest = []\n',
}
ZIZMOR = ("zizmor", "--offline", "--no-progress", "-q", "--persona=pedantic")
SCHEMA = ("check-jsonschema", "-q", "--builtin-schema")


def write(folder: Path) -> tuple[list[Path], list[Path]]:
    """Write the files of every project, runner and CI; return the workflows of GitHub and the pipelines of GitLab."""
    github, gitlab = [], []
    for name, runner, where in itertools.product(PROJECTS, adopt.RUNNERS, ("github", "gitlab")):
        root = folder / f"{name}-{runner}-{where}"
        root.mkdir()
        (root / "pyproject.toml").write_text(PROJECTS[name], encoding="utf-8")
        for change in adopt.plan_changes(root, runner, where):
            (root / change.path).parent.mkdir(parents=True, exist_ok=True)
            (root / change.path).write_text(change.content, encoding="utf-8")
        if where == "github":
            workflows = root / ".github" / "workflows"
            shutil.copy(ROOT / "docs" / "examples" / "github" / "nightly.yml", workflows)  # calls the other
            github += [workflows / "cudalink.yml", workflows / "nightly.yml"]
            continue
        child = root / "child.yml"
        cells = load_cells(root / "matrices" / "cells.toml")
        child.write_text(json.dumps(ci.gitlab_pipeline(cells, runner, root=root, gpu_runner="gpu")), encoding="utf-8")
        gitlab += [root / ".gitlab-ci.yml", root / ".gitlab" / "cudalink.yml", child]
    return github, gitlab


def shown() -> dict[Path, str]:
    """Return the files that the how-to pages show, with what ``init`` writes into the pages' example projects."""
    examples = ROOT / "docs" / "examples"
    return {
        examples / "written" / f"{where}.yml": change.content
        for where in ("github", "gitlab")
        for change in adopt.plan_changes(examples / where, "nox", where)
        if change.path.name == "cudalink.yml"
    }


def main() -> int:
    """Return 1 if a linter has a finding, which it prints."""
    if "--write" in sys.argv:
        for path, content in shown().items():
            path.write_text(content, encoding="utf-8")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        github, gitlab = write(Path(folder))
        commands = (
            [*ZIZMOR, *map(str, github)],
            ["actionlint", *map(str, github)],
            [*SCHEMA, "vendor.github-workflows", *map(str, github)],
            [*SCHEMA, "vendor.gitlab-ci", *map(str, gitlab)],
        )
        codes = [subprocess.run(command, check=False).returncode for command in commands]
    return 1 if any(codes) else 0


if __name__ == "__main__":
    sys.exit(main())
