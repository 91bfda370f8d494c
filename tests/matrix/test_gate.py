"""The gate, the workflow that runs everything each week, and the folders of tests that sessions have to themselves."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from pytest_cudalink.matrix import load_cells
from pytest_cudalink.matrix.cells import Cell
from tools import nox_sessions

ROOT = Path(__file__).parents[2]
GATE = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
CELLS = {cell.name: cell for cell in load_cells(ROOT / "matrices" / "cells.toml") if not cell.gpu}


def test_each_folder_that_pytest_leaves_out_has_a_session() -> None:
    """A session, a cell or a stage on a GPU names it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    folders = [folder for folder in settings["norecursedirs"] if folder.startswith("tests/")]
    assert folders
    runners = ("noxfile.py", "tools/sessions.toml", "matrices/cells.toml", "campaigns/hardware/stages.py")
    run = "".join((ROOT / runner).read_text(encoding="utf-8") for runner in runners)
    assert 'nox.options.sessions = ["lint", "types", "tests", "ctk-13.0"]' in run
    assert [folder for folder in folders if not ((ROOT / folder).is_dir() and re.search(rf"\b{folder}\b", run))] == []


def test_a_machine_without_a_compiler_gets_one_for_the_tests(monkeypatch) -> None:
    """The session `tests` brings the one of the ziglang wheel, as the build does."""
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(nox_sessions, "which", {"gcc": "/bin/gcc"}.get)
    assert "ziglang" not in nox_sessions.requirements(["suite"])
    monkeypatch.setattr(nox_sessions, "which", {}.get)
    assert "ziglang" in nox_sessions.requirements(["suite"])


NOXFILE = f"""import sys, nox
sys.path.insert(0, {str(ROOT)!r})
from tools.nox_sessions import run_or_skip

@nox.session(venv_backend="none")
@nox.parametrize("code", [77, 1, 0])
def checker(session, code):
    run_or_skip(session, sys.executable, "-c", f"raise SystemExit({{code}})")
"""


def test_a_session_without_its_checker_is_skipped(tmp_path: Path) -> None:
    """A session that checked nothing is not called successful, and one that found something still fails."""
    noxfile = tmp_path / "noxfile.py"
    noxfile.write_text(NOXFILE, encoding="utf-8")
    command = [sys.executable, "-m", "nox", "-f", str(noxfile)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    said = re.findall(
        r"^nox > Session checker\(code=(\d+)\) (skipped: |failed|was successful)", done.stdout, re.MULTILINE
    )
    assert (done.returncode, said) == (1, [("77", "skipped: "), ("1", "failed"), ("0", "was successful")]), done.stdout


def values(cells: list[Cell]) -> set[tuple[str, str]]:
    """Every axis with each of its values in some cells."""
    return {pair for cell in cells for pair in cell.axes.items()}


def test_the_gate_runs_every_value_of_each_axis() -> None:
    """Its cells are a part of the matrix that lacks no toolkit, driver, nvJitLink, backend, source or Python.

    The newest toolkit, which reads the index, and two more releases of what uses one are left to the weekly run.
    """
    weekly = {("ctk", "latest"), ("cuda-bindings", "13.1.*"), ("cuda-core", "1.1.1")}
    (names,) = re.findall(r" wanted=\(\n(.*?)^  \)", GATE, re.DOTALL | re.MULTILINE)
    wanted = names.split()
    assert len(wanted) == len(set(wanted)) < len(CELLS)
    assert values([CELLS[name] for name in wanted]) == values(list(CELLS.values())) - weekly
