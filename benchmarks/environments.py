"""Time to make the environment of a cell and to run one test in it: by hand with pip, by hand with uv, and as a cell.

``nox -s bench-matrix`` runs it. The three ways install the same wheels, on the same Python, from warm caches, and run
the same test; they take turns. Elapsed time and processor time are kept: another program on the machine adds to the
first. It needs the network: pip and uv ask the index which files a release has.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(Path(__file__).parent), str(ROOT)]

import measure  # noqa: E402 (the checkout may not be installed)

CELL = "ctk-13.0"
ROUNDS = 5
PIP, UV, OURS = "python -m venv, pip install", "uv venv, uv pip install", f"nox -s {CELL}"
TEST = "def test_import():\n    import pytest_cudalink.linker\n"
CELLS = f'[defaults]\ninstall = "none"\ntests = ["-q"]\n[cells."{CELL}"]\nctk = "{CELL[4:]}"\n'


def project(folder: Path) -> None:
    """Write a project with one cell and one test."""
    (folder / "matrices").mkdir(parents=True)
    (folder / "matrices" / "cells.toml").write_text(CELLS, encoding="utf-8")
    (folder / "noxfile.py").write_text(
        "from pytest_cudalink.matrix.nox import sessions\nsessions()\n", encoding="utf-8"
    )
    (folder / "test_import.py").write_text(TEST, encoding="utf-8")


def packages(file: Path) -> list[str]:
    """Return the packages of the cell."""
    from pytest_cudalink.matrix.reading import load_cells

    (cell,) = load_cells(file)
    return list(cell.packages)


def both_times(folder: Path, environment: dict[str, str], commands: Sequence[Sequence[str]]) -> tuple[float, float]:
    """Run commands; return elapsed and processor seconds."""
    began, spent = time.perf_counter(), 0.0
    for command in commands:
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            log.seek(0)
            assert process.returncode == 0, log.read().decode()
        spent += usage.ru_utime + usage.ru_stime
    return time.perf_counter() - began, spent


def commands_of(folder: Path, wheel: Path) -> dict[str, list[list[str]]]:
    """Return the commands of each way, which start without an environment."""
    python = str(folder / "environment" / "bin" / "python")
    needs = [*packages(folder / "matrices" / "cells.toml"), str(wheel)]
    test = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    uv = shutil.which("uv") or "uv"
    return {
        PIP: [
            [sys.executable, "-m", "venv", "--clear", "environment"],
            [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *needs],
            test,
        ],
        UV: [
            [uv, "venv", "-q", "--clear", "--python", sys.executable, "environment"],
            [uv, "pip", "install", "-q", "--python", python, *needs],
            test,
        ],
        OURS: [
            [sys.executable, "-m", "nox", "-s", CELL, "--default-venv-backend", "uv", "--no-reuse-existing-virtualenvs"]
        ],
    }


def main() -> int:
    """Measure the three ways in turn."""
    options = measure.arguments("environments", ROUNDS, __doc__ or "")
    report = measure.Report("environments", f"The environment of {CELL} and one test")
    elapsed: dict[str, list[float]] = {}
    spent: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        build = [sys.executable, "-m", "build", "--wheel", "--installer=uv", "--outdir", scratch, str(ROOT)]
        subprocess.run(build, check=True, capture_output=True)
        (wheel,) = folder.glob("*.whl")
        project(folder / "project")
        environment = {**os.environ, "CUDALINK_REQUIREMENT": str(wheel)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for number in range(options.rounds + 1):
            for name, commands in commands_of(folder / "project", wheel).items():
                times = both_times(folder / "project", environment, commands)
                if number:  # the first round fills the caches
                    elapsed.setdefault(name, []).append(times[0])
                    spent.setdefault(name, []).append(times[1])
    for table, columns in (("elapsed time", elapsed), ("processor time", spent)):
        for name, seconds in columns.items():
            report.row(f"environment and one test, {table}", name, seconds, columns[OURS])
    return report.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())
