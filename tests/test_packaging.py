"""The wheel, the cells and the sessions."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pytest_cudalink.matrix import load_cells

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """A wheel built from this tree."""
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--installer=uv", "--outdir", str(out), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (found,) = out.glob("*.whl")
    return found


def test_wheel_content(wheel: Path) -> None:
    """Data files, the type marker and the licence are in the wheel; tests are not."""
    names = zipfile.ZipFile(wheel).namelist()
    for name in (
        "pytest_cudalink/matrices/dispatch.toml",
        "pytest_cudalink/matrices/cells.toml",
        "pytest_cudalink/matrices/toolchains.toml",
        "pytest_cudalink/py.typed",
    ):
        assert name in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"pytest_cudalink"}


def test_wheel_metadata(wheel: Path) -> None:
    """Entry points, extras and the Python floor are those of the plan."""
    archive = zipfile.ZipFile(wheel)
    (entry_points,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("entry_points.txt"))
    (metadata,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("METADATA"))
    assert "[pytest11]\ncudalink = pytest_cudalink.plugin" in entry_points
    assert "cudalink = pytest_cudalink.cli:main" in entry_points
    for extra in ("cu12", "cu13", "nox", "tox", "report"):
        assert f"Provides-Extra: {extra}" in metadata
    assert "Requires-Python: >=3.11" in metadata


def test_wheel_works_without_the_tree(wheel: Path, tmp_path: Path) -> None:
    """Unpacked elsewhere, the package finds its data."""
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    code = (
        "import pytest_cudalink._data as data; from pytest_cudalink.linker import dispatch; "
        "print(data.matrices_dir(), list(dispatch.policies()))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site")},
    )
    assert done.stdout.startswith(str(tmp_path / "site" / "pytest_cudalink" / "matrices"))
    assert "strict-major" in done.stdout


def test_sessions_are_literal_and_described() -> None:
    """One session for each cell, under the cell's name, and every session has a description."""
    listed = subprocess.run(
        [sys.executable, "-m", "nox", "-l", "--json"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    every = subprocess.run([sys.executable, "-m", "nox", "-l"], capture_output=True, text=True, check=True, cwd=ROOT)
    assert json.loads(listed.stdout)
    lines = [line for line in every.stdout.splitlines() if line.startswith(("* ", "- "))]
    for cell in load_cells(ROOT / "matrices" / "cells.toml"):
        assert any(line.split()[1] == cell.name for line in lines)
    assert all("->" in line and line.rsplit("->", 1)[1].strip() for line in lines)
