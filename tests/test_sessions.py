"""The tutorials and how-to pages whose sessions need nothing but one toolkit run as they are shown."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from . import sessions

__all__ = ()

DOCS = Path(__file__).parent.parent / "docs"

#: Pages whose sessions have tests with more preparation: tests/matrix/test_adoption.py, tests/emulated/test_recipes.py.
ELSEWHERE = ("tutorials/matrix", "how-to/recipes")

#: The session of each page, by the page's name.
PAGES = {
    name: session
    for folder in ("tutorials", "how-to")
    for page in sorted((DOCS / folder).glob("*.md"))
    if (name := f"{folder}/{page.stem}") not in ELSEWHERE
    and (session := sessions.blocks(page.read_text(encoding="utf-8")))
}


@pytest.mark.parametrize("name", PAGES)
def test_session(name: str, tmp_path: Path, toolkit: str) -> None:
    """Every command of a page prints what the page shows under it, in a copy of ``docs/examples/PAGE``."""
    folder = tmp_path / "project"
    files = DOCS / "examples" / name.rpartition("/")[2]
    if files.is_dir():
        shutil.copytree(files, folder, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        folder.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    sessions.check(PAGES[name], folder)
