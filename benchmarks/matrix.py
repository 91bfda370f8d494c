"""Speed of the matrix's sessions. ``nox -s bench-matrix`` runs it.

Sessions: the three toolkit cells through uv, with their environments, compared with nox on virtualenv and pip; and two
cells in parallel, compared with one after the other. Each is nox on a project in a temporary folder; the caches of uv
and pip are warm. The report of a large matrix is in ``report.py``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

UV_LIMIT, PARALLEL_LIMIT = 1 / 5, 0.6
CELLS = ("ctk-12.9", "ctk-13.0", "ctk-13.2")

TEST = """
import pytest
from pytest_cudalink.linker import sample as demo

@pytest.mark.parametrize("round", range({rounds}))
def test_link(round):
    image, _ = demo.link_sample("ltoir", "sm_90", "nvjitlink")
    assert image.code
"""


def project(folder: Path, wheel: Path, rounds: int) -> dict[str, str]:
    """Write a project with three cells and link tests; return the environment variables for nox."""
    (folder / "matrices").mkdir(parents=True)
    cells = "".join(f'[cells."{name}"]\nctk = "{name[4:]}"\n' for name in CELLS)
    (folder / "matrices" / "cells.toml").write_text(f'[defaults]\ninstall = "none"\ntests = ["-q"]\n{cells}')
    (folder / "noxfile.py").write_text("from pytest_cudalink.matrix.nox import sessions\nsessions()\n")
    (folder / "test_link.py").write_text(TEST.format(rounds=rounds))
    return {**os.environ, "CUDALINK_REQUIREMENT": str(wheel)}


def nox(folder: Path, environment: dict[str, str], *words: str, fresh: bool = True) -> float:
    """Seconds of one nox run."""
    if fresh:
        shutil.rmtree(folder / ".nox", ignore_errors=True)
    start = time.perf_counter()
    command = [sys.executable, "-m", "nox", "-s", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return time.perf_counter() - start


def report(name: str, value: float, limit: float, words: str) -> bool:
    """Print one line; return whether the limit holds."""
    ok = value <= limit
    print(f"{'ok  ' if ok else 'FAIL'} {name}: {value:.3f} (limit {limit:.2f}); {words}", flush=True)
    return ok


def sessions(rounds: int) -> list[bool]:
    """Measure the sessions; return whether each of the two limits holds."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        build = [sys.executable, "-m", "build", "--wheel", "--installer=uv", "--outdir", scratch, str(ROOT)]
        subprocess.run(build, check=True, capture_output=True)
        (wheel,) = folder.glob("*.whl")
        quick = project(folder / "quick", wheel, 1)
        nox(folder / "quick", quick, *CELLS, "--default-venv-backend", "uv")  # the caches
        nox(folder / "quick", quick, *CELLS, "--default-venv-backend", "virtualenv")
        # in turn, and the best of each, because the machine has other work
        backends = ("virtualenv", "uv") * 2
        times = [nox(folder / "quick", quick, *CELLS, "--default-venv-backend", backend) for backend in backends]
        theirs, ours = min(times[::2]), min(times[1::2])
        words = f"uv {ours:.1f} s, virtualenv and pip {theirs:.1f} s, three cells"
        results = [report("sessions through uv", ours / theirs, UV_LIMIT, words)]
        long = project(folder / "long", wheel, rounds)
        two = CELLS[:2]
        nox(folder / "long", long, *two, "--default-venv-backend", "uv")
        turns = [(), ("-j", "2")] * 2
        times = [nox(folder / "long", long, *two, "-R", *words, fresh=False) for words in turns]
        serial, parallel = min(times[::2]), min(times[1::2])
        words = f"parallel {parallel:.1f} s, one after the other {serial:.1f} s, {os.cpu_count()} processors"
        return [*results, report("two cells in parallel", parallel / serial, PARALLEL_LIMIT, words)]


def main() -> int:
    """Measure the sessions; return exit code 1 beyond a limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300, help="rounds of links in the parallel cells")
    options = parser.parse_args()
    return 0 if all(sessions(options.rounds)) else 1


if __name__ == "__main__":
    sys.exit(main())
