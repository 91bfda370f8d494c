"""The page of recipes: each session runs as it is shown."""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_cudalink.emulator import faults, supported_versions

__all__ = ()

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "recipes.md"
RECIPES = ROOT / "docs" / "examples" / "recipes"
SESSIONS = {
    section.partition("\n")[0]: "".join(re.findall(r"^```console\n(.*?)^```", section, re.MULTILINE | re.DOTALL))
    for section in re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
}
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def steps(session: str) -> list[tuple[str, str]]:
    """Each command of a session, with what it prints."""
    parts = re.split(r"^\$ (.*)\n", session, flags=re.MULTILINE)
    assert not parts[0]
    return list(zip(parts[1::2], parts[2::2], strict=True))


def run(command: str, folder: Path) -> str:
    """Run a command as a shell does, with this environment's programs; both of its streams."""
    bin_folder = folder / "bin"
    bin_folder.mkdir(exist_ok=True)
    for name, text in {
        "cudalink": f'exec "{sys.executable}" -m pytest_cudalink.cli "$@"',
        "pytest": f'exec "{sys.executable}" -m pytest -p cudalink -p no:cacheprovider "$@"',
        "python": f'exec "{sys.executable}" "$@"',
        "cc": f'exec "{COMPILER}" "$@"',
    }.items():
        (bin_folder / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (bin_folder / name).chmod(0o755)
    own = {name: value for name, value in os.environ.items() if not name.startswith(("CUDALINK_", "PYTEST_"))}
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        env={**own, "PATH": f"{bin_folder}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, toolkit: str, toolchain) -> Path:
    """A copy of the recipes, with the program compiled."""
    for version in ("12.4", "13.0"):
        toolchain(version)
    copied = tmp_path_factory.mktemp("recipes") / "recipes"
    shutil.copytree(RECIPES, copied)
    if COMPILER:
        run("cc jit.c -o jit -ldl", copied)
    return copied


@pytest.mark.parametrize("title", SESSIONS)
def test_session(title: str, folder: Path) -> None:
    """Every command prints what the page shows under it; ``...`` stands for what differs between runs."""
    for command, shown in steps(SESSIONS[title]):
        if COMPILER is None and "jit" in command:
            pytest.skip("no C compiler here: install gcc or clang")
        printed = run(command, folder)
        assert doctest.OutputChecker().check_output(shown, printed, doctest.ELLIPSIS), f"$ {command}\n{printed}"


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
