"""A target that a library publishes in its own wheel: the example of docs/how-to/force-a-backend.md, installed."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "write-a-target"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with the example's modules and with the metadata that an installer writes of its pyproject.toml."""
    site = tmp_path / "site"
    site.mkdir()
    for module in EXAMPLE.glob("jitlib*.py"):
        shutil.copy(module, site)
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    info = site / f"{project['name']}-{project['version']}.dist-info"
    info.mkdir()
    head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(head, encoding="utf-8")
    (plugins,) = project["entry-points"].values()
    lines = "".join(f"{name} = {module}\n" for name, module in plugins.items())
    (info / "entry_points.txt").write_text(f"[pytest11]\n{lines}", encoding="utf-8")
    return site


@pytest.mark.parametrize("options", [("--force-backend=driver",), ("-p", "no:cudalink")], ids=["forced", "without"])
def test_published_target(options, installed: Path, tmp_path: Path, toolkit) -> None:
    """The header names an installed target without any conftest; a run without the plugin takes no notice of it."""
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider -p no:randomly\n", encoding="utf-8")
    shutil.copy(EXAMPLE / "test_jitlib.py", tmp_path)
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(installed), env.get("PYTHONPATH", "")]))
    command = [sys.executable, "-m", "pytest", "-W", "ignore", *options]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with_plugin = "no:cudalink" not in options
    assert bool(re.search(r"^cudalink: forced to driver: .*\bjitlib 1\.0", done.stdout, re.MULTILINE)) == with_plugin
    assert ("jitlib: 1 link (1 on the driver)" in done.stdout) == with_plugin
