"""The page of recipes: each session runs as it is shown."""

import re
import shutil
from pathlib import Path

import pytest

from pytest_cudalink import toolchains
from pytest_cudalink.emulator import faults, supported_versions
from pytest_cudalink.versions import CudaVersion
from tests import sessions

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "how-to" / "recipes.md"
RECIPES = DOCS / "examples" / "recipes"
SESSIONS = {
    section.partition("\n")[0]: sessions.blocks(section)
    for section in re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, toolkit: CudaVersion) -> Path:
    """A copy of the recipes, with the program compiled."""
    for version in ("12.4", "13.0"):
        toolchains.add(version)
    copied = tmp_path_factory.mktemp("recipes") / "recipes"
    shutil.copytree(RECIPES, copied)
    if sessions.COMPILER:
        sessions.run("cc jit.c -o jit -ldl", copied)
    return copied


@pytest.mark.parametrize(
    "title",
    [
        pytest.param(session, marks=pytest.mark.slow) if session.startswith("A machine") else session
        for session in SESSIONS
    ],
)
def test_session(title: str, folder: Path) -> None:
    """Every command prints what the page shows under it; ``...`` stands for what differs between runs."""
    if sessions.COMPILER is None and "./jit" in SESSIONS[title]:
        pytest.skip("no C compiler here: install gcc or clang")
    sessions.check(SESSIONS[title], folder)


def test_every_preset_is_shown() -> None:
    """Each section has a session; the page's table names each preset and the code that it answers."""
    assert len(SESSIONS) >= 4
    assert all(SESSIONS.values())
    text = PAGE.read_text(encoding="utf-8")
    for name in faults.presets():
        (fault,) = faults.parse(name, supported_versions()[-1])
        assert f"| `{name}` | {fault.code} |" in text
