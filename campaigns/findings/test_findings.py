"""The sessions of the findings and of the page on the field, in the environments of ``nox -s findings``."""

import os
import re
from pathlib import Path

import pytest

from campaigns.findings import catalog
from tests import sessions

SESSIONS = catalog.sessions_of_all()


def runnable(session: str) -> str:
    """A session without its commands under valgrind, unless they were asked for: each takes a minute or more."""
    if os.environ.get("CUDALINK_VALGRIND") == "1":
        return session
    parts = re.split(r"^(?=\(\S+\) \$ )", session, flags=re.MULTILINE)
    return "".join(part for part in parts if "valgrind" not in part.partition("\n")[0])


@pytest.mark.skipif(sessions.ENVIRONMENTS is None, reason="needs the environments of the pages: nox -s findings")
@pytest.mark.parametrize("name", SESSIONS)
def test_session(name: str, tmp_path: Path) -> None:
    """Every command prints what the session shows under it, in a copy of its reproducer's folder."""
    files, session = SESSIONS[name]
    folder = sessions.copy_of(files, tmp_path / files.name)
    sessions.check_in_environments(runnable(session), Path(str(sessions.ENVIRONMENTS)), folder)
