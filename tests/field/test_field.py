"""The page "What breaks in the field": each session runs as it is shown, in the environments of ``nox -s field``."""

from __future__ import annotations

import doctest
import os
import re
import shutil
import tomllib
from pathlib import Path

import pytest

from .. import sessions

__all__ = ()

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "explanation" / "field.md"
TEXT = PAGE.read_text(encoding="utf-8")
EXAMPLES = ROOT / "docs" / "examples" / "field"
ENVIRONMENTS = tomllib.loads((ROOT / "matrices" / "sessions.toml").read_text(encoding="utf-8"))["field"]
FOLDER = os.environ.get("CUDALINK_FIELD")

#: Sessions of the page that have commands in named environments, by the title of their section.
SESSIONS = {
    section.partition("\n")[0]: found
    for section in re.split(r"^### ", TEXT, flags=re.MULTILINE)[1:]
    if (found := "".join(re.findall(r"^```console\n(\(.*?)^```", section, re.MULTILINE | re.DOTALL)))
}


def steps(session: str) -> list[tuple[str, str, str]]:
    """Each command of a session: environment, command, and what it prints."""
    parts = re.split(r"^\((\S+)\) \$ (.*)\n", session, flags=re.MULTILINE)
    assert not parts[0]
    return list(zip(parts[1::3], parts[2::3], parts[3::3], strict=True))


def run(environment: Path, command: str, folder: Path) -> str:
    """Run a command as a shell with an activated environment does; both of its streams, without colours."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("CUDALINK_", "PYTEST_", "NOX"))}
    env = {
        **own,
        "PATH": f"{environment / 'bin'}:{os.environ['PATH']}",
        "VIRTUAL_ENV": str(environment),
        "PYTEST_ADDOPTS": "-p no:cacheprovider",
        "NO_COLOR": "1",
    }
    return sessions.shell(command, folder, env)


@pytest.mark.skipif(FOLDER is None, reason="needs the environments of the page: nox -s field")
@pytest.mark.parametrize("title", SESSIONS)
def test_session(title: str, tmp_path: Path) -> None:
    """Every command prints what the page shows under it; ``...`` stands for what is left out or differs."""
    folder = tmp_path / "field"
    shutil.copytree(EXAMPLES, folder)
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")  # else this project's: warnings are errors
    for environment, command, shown in steps(SESSIONS[title]):
        printed = run(Path(str(FOLDER)) / environment, command, folder)
        assert doctest.OutputChecker().check_output(shown, printed, doctest.ELLIPSIS), f"$ {command}\n{printed}"


def test_environments() -> None:
    """The page shows each environment of the session, and no other."""
    shown = {environment for session in SESSIONS.values() for environment, _, _ in steps(session)}
    assert shown == set(ENVIRONMENTS)


def test_both_sides() -> None:
    """Each demonstration shows a command that finds something, and one after it that does not, or the other way."""
    for title, session in SESSIONS.items():
        printed = [shown for _, _, shown in steps(session)]
        assert len(printed) >= 2, title
        assert len(set(printed)) >= 2, title


def test_every_regression_has_a_place() -> None:
    """R1 to R12 each have a section, or a row among those that hinder."""
    for number in range(1, 13):
        assert re.search(rf"^### R{number}: |^\| R{number} \|", TEXT, re.MULTILINE), f"R{number}"


def test_links_of_the_table() -> None:
    """Each row of the table of themes has threads, a line to write and a page that exists."""
    rows = re.findall(r"^\| (.+) \| (.+) \| (.+) \| (.+) \| (.+) \|$", TEXT, re.MULTILINE)[2:]
    assert len(rows) >= 10
    for theme, threads, _, line, page in rows:
        assert "https://github.com/" in threads, theme
        assert line.startswith("`"), theme
        names = re.findall(r"\]\(([./a-z-]+\.md)", page)
        assert names, theme
        assert all((PAGE.parent / name).is_file() for name in names), theme
