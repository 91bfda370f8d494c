"""The page of recipes: each session runs as it is shown."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from pytest_cudalink.emulator import faults, supported_versions

from .. import sessions

__all__ = ()

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "how-to" / "recipes.md"
RECIPES = ROOT / "docs" / "examples" / "recipes"
SESSIONS = {
    section.partition("\n")[0]: sessions.blocks(section)
    for section in re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, toolkit: str, toolchain) -> Path:
    """A copy of the recipes, with the program compiled."""
    for version in ("12.4", "13.0"):
        toolchain(version)
    copied = tmp_path_factory.mktemp("recipes") / "recipes"
    shutil.copytree(RECIPES, copied)
    if sessions.COMPILER:
        sessions.run("cc jit.c -o jit -ldl", copied)
    return copied


@pytest.mark.parametrize("title", SESSIONS)
def test_session(title: str, folder: Path) -> None:
    """Every command prints what the page shows under it; ``...`` stands for what differs between runs."""
    if sessions.COMPILER is None and "./jit" in SESSIONS[title]:
        pytest.skip("no C compiler here: install gcc or clang")
    sessions.check(SESSIONS[title], folder)


def test_every_section_has_a_session() -> None:
    """What the page promises is run."""
    assert len(SESSIONS) >= 4
    assert all(SESSIONS.values())


def test_every_preset_is_shown() -> None:
    """The page's table names each preset and the code that it answers."""
    text = PAGE.read_text(encoding="utf-8")
    for name in faults.presets():
        (fault,) = faults.parse(name, supported_versions()[-1])
        assert f"| `{name}` | {fault.code} |" in text


@pytest.mark.parametrize(
    "name", ["forward-compat", "Forward-Compatibility-Mismatch", "forward-compatibility-mismatch=1"]
)
def test_a_preset_that_is_not_known(name: str) -> None:
    """The error lists the presets."""
    with pytest.raises(ValueError, match="cannot be read.*Presets: forward-compatibility-on-geforce, "):
        faults.parse(name, supported_versions()[-1])


def test_a_preset_beside_faults() -> None:
    """A preset is one of several faults."""
    found = faults.parse("cuMemAlloc:2=2;forward-compatibility-mismatch", supported_versions()[-1])
    assert [(one.function, one.nth, one.code) for one in found] == [("cuMemAlloc_v2", 2, 2), ("cuInit", 0, 803)]
