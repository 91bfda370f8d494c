"""The sessions of the findings, in the environments of ``nox -s findings``."""

import os
import re
from pathlib import Path

import pytest

from campaigns.findings import catalog
from tests import sessions

FINDINGS = catalog.read()
IDS = [finding.id for finding in FINDINGS]


def runnable(session: str) -> str:
    """A session without its commands under valgrind, unless they were asked for: each takes a minute or more."""
    if os.environ.get("CUDALINK_VALGRIND") == "1":
        return session
    parts = re.split(r"^(?=\(\S+\) \$ )", session, flags=re.MULTILINE)
    return "".join(part for part in parts if "valgrind" not in part.partition("\n")[0])


@pytest.mark.skipif(sessions.ENVIRONMENTS is None, reason="needs the environments of the pages: nox -s findings")
@pytest.mark.parametrize("finding", FINDINGS, ids=IDS)
def test_session(finding: catalog.Finding, tmp_path: Path) -> None:
    """Every command prints what the session shows under it, in a copy of its reproducer's folder."""
    folder = sessions.copy_of(catalog.EXAMPLES / finding.id, tmp_path / finding.id)
    root = Path(str(sessions.ENVIRONMENTS))

    sessions.check_in_environments(runnable(finding.session), root, folder)
