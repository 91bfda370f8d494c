"""Asserts that what ``cudalink init`` writes for a CI passes the linters of workflows. Run by ``nox -s lint``.

zizmor looks for what is unsafe, actionlint for what cannot work, and check-jsonschema compares with the schemas of
GitHub. Whatever the project, its runner and its Python are: one finding fails. With ``--write``, write the
file that the how-to page shows instead (``nox -s generate``).
"""

import itertools
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from pytest_cudalink.matrix import init  # noqa: E402 (from the checkout: lint does not build it)

PROJECTS = {
    "bare": "",
    "newest": '[project]\nname = "a"\nversion = "1"\nrequires-python = ">=3.13"\n',
    "exact": '[project]\nname = "b"\nversion = "1"\nrequires-python = "==3.12.4"\n[tool.tox]\n',
    "oldest": '[project]\nname = "c"\nversion = "1"\nrequires-python = "<3.12"\n[dependency-groups]\ntest = []\n',
}
ZIZMOR = ("zizmor", "--offline", "--no-progress", "-q", "--persona=pedantic")


def write(folder: Path) -> list[Path]:
    """Write the files of every project and runner; return the workflows."""
    written = []
    for name, runner in itertools.product(PROJECTS, init.RUNNERS):
        root = folder / f"{name}-{runner}"
        root.mkdir()
        (root / "pyproject.toml").write_text(PROJECTS[name], encoding="utf-8")
        for change in init.plan_changes(root, runner):
            (root / change.path).parent.mkdir(parents=True, exist_ok=True)
            (root / change.path).write_text(change.content, encoding="utf-8")
        workflows = root / ".github" / "workflows"
        shutil.copy(ROOT / "docs" / "examples" / "github" / "nightly.yml", workflows)  # calls the other
        written += [workflows / "cudalink.yml", workflows / "nightly.yml"]
    return [*written, _in_a_folder(folder / "repository")]


def _in_a_folder(top: Path) -> Path:
    """Write the workflow of a project in a folder of a repository, whose noxfile needs a package."""
    root = top / "python" / "part"
    root.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(top)], check=True)
    (root / "noxfile.py").write_text('# /// script\n# dependencies = ["nox", "nox-poetry>=1,<2"]\n# ///\n')
    (change,) = (change for change in init.plan_changes(root, "nox") if change.path.suffix == ".yml")
    (root / change.path).parent.mkdir(parents=True)
    (root / change.path).write_text(change.content, encoding="utf-8")
    return top / ".github" / "workflows" / "cudalink-python-part.yml"


def shown() -> tuple[Path, str]:
    """Return the file that the how-to page shows, with what ``init`` writes into the page's example project."""
    examples = ROOT / "docs" / "examples"
    with tempfile.TemporaryDirectory() as folder:  # the page's project is not in a folder of this repository
        shutil.copy(examples / "github" / "pyproject.toml", folder)
        (change,) = (change for change in init.plan_changes(Path(folder), "nox") if change.path.name == "cudalink.yml")
    return examples / "written" / "github.yml", change.content


def main() -> int:
    """Return 1 if a linter has a finding, which it prints."""
    if "--write" in sys.argv:
        path, content = shown()
        path.write_text(content, encoding="utf-8")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        workflows = list(map(str, write(Path(folder))))
        commands = (
            [*ZIZMOR, *workflows],
            ["actionlint", *workflows],
            ["check-jsonschema", "-q", "--builtin-schema", "vendor.github-workflows", *workflows],
        )
        codes = [subprocess.run(command, check=False).returncode for command in commands]
    return 1 if any(codes) else 0


if __name__ == "__main__":
    sys.exit(main())
