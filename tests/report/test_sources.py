"""Which file of a checkout stands behind a path that a process opened."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from pytest_cudalink.report.sources import Sources


@pytest.fixture
def checkout(tmp_path, monkeypatch) -> Path:
    """A project in src/ whose wheel is installed, with one module that differs."""
    root, packages = tmp_path / "root", tmp_path / "venv" / "site-packages"
    metadata = packages / "small-1.dist-info"
    for folder in (root / ".git", root / "src" / "small", root / "data", packages / "small", metadata):
        folder.mkdir(parents=True)
    (root / "pyproject.toml").write_text('[project]\nname = "other"\n')
    for name in ("same.py", "differs.py"):
        (root / "src" / "small" / name).write_text("1\n")
        (packages / "small" / name).write_text("1\n" if name == "same.py" else "2\n")
    (packages / "foreign.py").write_text("1\n")
    (metadata / "RECORD").write_text("small/same.py,,\nsmall/differs.py,,\nsmall-1.dist-info/RECORD,,\n")
    (metadata / "direct_url.json").write_text(
        json.dumps({"url": f"file://{root}/dist/small-1.whl", "archive_info": {}})
    )
    monkeypatch.setattr(sys, "path", [*sys.path, str(packages)])
    return root


def test_files_of_the_checkout(checkout) -> None:
    """A file below the root is named, also through a link and by its bytecode; caches and environments are not."""
    sources = Sources(checkout, checkout)
    (checkout / "data" / "a.txt").write_text("a")
    (checkout / "link.txt").symlink_to("data/a.txt")
    (checkout / ".nox" / "x").mkdir(parents=True)
    (checkout / ".nox" / "x" / "a.py").write_text("")
    assert sources.names(str(checkout / "data" / "a.txt")) == {"data/a.txt"}
    assert sources.names(str(checkout / "link.txt")) == {"data/a.txt", "link.txt"}
    assert sources.names(str(checkout / "src/small/__pycache__/same.cpython-311-pytest-9.0.pyc")) == {
        "src/small/same.py"
    }
    for other in (checkout / ".nox" / "x" / "a.py", checkout / "data", checkout / "missing", Path(sys.executable)):
        assert sources.names(str(other)) == set()
    assert sources.unknown == set()


@pytest.mark.parametrize("declared", [False, True])
def test_installed_files(declared, checkout) -> None:
    """An installed file is its equal in the checkout; without one it is not known; other packages do not count."""
    packages = checkout.parent / "venv" / "site-packages"
    if declared:  # installed by name, as from an index
        (checkout / "pyproject.toml").write_text('[project]\nname = "Small"\n')
        (packages / "small-1.dist-info" / "direct_url.json").unlink()
    sources = Sources(checkout, checkout)
    assert sources.names(str(packages / "small" / "same.py")) == {"src/small/same.py"}
    assert sources.names(str(packages / "foreign.py")) == set()
    assert sources.unknown == set()
    assert sources.names(str(packages / "small" / "differs.py")) == set()
    assert sources.unknown == {"small/differs.py"}
