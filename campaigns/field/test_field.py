"""The page "What breaks in the field": each session runs as it is shown, in the environments of ``nox -s field``."""

import re
import tomllib
from pathlib import Path

import pytest

from tests import sessions

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "explanation" / "field.md"
TEXT = PAGE.read_text(encoding="utf-8")
EXAMPLES = ROOT / "docs" / "examples" / "field"
ENVIRONMENTS = tomllib.loads((ROOT / "tools" / "sessions.toml").read_text(encoding="utf-8"))["field"]

#: Sessions of the page that have commands in named environments, by the title of their section.
SESSIONS = {
    section.partition("\n")[0]: blocks
    for section in re.split(r"^### ", TEXT, flags=re.MULTILINE)[1:]
    if (blocks := sessions.environment_blocks(section))
}


@pytest.mark.skipif(sessions.ENVIRONMENTS is None, reason="needs the environments of the page: nox -s field")
@pytest.mark.parametrize("title", SESSIONS)
def test_session(title: str, tmp_path: Path) -> None:
    """Every command prints what the page shows under it; ``...`` stands for what is left out or differs."""
    folder = sessions.copy_of(EXAMPLES, tmp_path / "field")

    sessions.check_in_environments(SESSIONS[title], Path(str(sessions.ENVIRONMENTS)), folder)


def test_environments() -> None:
    """The page shows each environment of the session, and no other."""
    shown = {environment for session in SESSIONS.values() for environment, _, _ in sessions.environment_steps(session)}
    assert shown == set(ENVIRONMENTS)
