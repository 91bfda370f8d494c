"""Speed of the matrix. ``nox -s bench-matrix`` runs it.

Sessions: the three toolkit cells through uv, with their environments, compared with nox on virtualenv and pip; and two
cells in parallel, compared with one after the other. Each is nox on a project in a temporary folder; the caches of uv
and pip are warm. Report: a hundred cells of five thousand tests, merged, and opened in a browser if there is one.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

UV_LIMIT, PARALLEL_LIMIT = 1 / 5, 0.6
MERGE_LIMIT, OPEN_LIMIT = 10.0, 2.0
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


def records(folder: Path, cells: int, tests: int) -> None:
    """Write the record files of a large matrix."""
    from pytest_cudalink.report.records import Writer

    for number in range(cells):
        ctk, driver = ("12.9", "13.0", "13.2", "13.5")[number % 4], ("12.9", "13.0", "13.2", None)[number // 4 % 4]
        versions = {
            "ctk": {"requested": ctk, "found": ctk, "source": "wheel", "kind": "real"},
            "driver": {"requested": driver, "found": driver, "source": "cuDriverGetVersion", "kind": "emulated"},
        }
        with Writer(folder / f"{number:03}.jsonl") as writer:
            writer.write("run", schema=1, run=str(number), cell=f"cell-{number}", python="3.11.7", versions=versions)
            for one in range(tests):
                test = f"tests/test_module_{one // 100:02}.py::test_number[{one}]"
                writer.write("start", nodeid=test, worker=None, attempt=1)
                writer.write("link", nodeid=test, target="bundled", backend="nvjitlink", result="ok", message="")
                failed = one % 50 == 7 and ctk == "13.2"
                fields = {"reason": "AssertionError", "longrepr": "E   line\n" * 50} if failed else {}
                outcome = "failed" if failed else "skipped" if one % 97 == 3 else "passed"
                writer.write("test", nodeid=test, attempt=1, outcome=outcome, duration=0.01, links=1, **fields)
            writer.write("end", exitstatus=0, duration=12.5, counts={})


def page(cells: int, tests: int) -> list[bool]:
    """Measure merging, and opening the page; return whether each limit holds."""
    from pytest_cudalink.report import html
    from pytest_cudalink.report.merge import merge

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        records(folder / "records", cells, tests)
        start = time.perf_counter()
        found = merge([folder / "records"])
        rows = len(found.grid)
        merged = time.perf_counter() - start
        assert rows == tests
        results = [report("merge, seconds", merged, MERGE_LIMIT, f"{cells} cells of {tests} tests")]
        (folder / "report.html").write_text(html.render(found), encoding="utf-8")
        size = (folder / "report.html").stat().st_size / 1e6
        program = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
        if program is None:
            print(f"-    the page of {size:.1f} MB was not opened: no Chromium here")
            return results
        words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom", (folder / "report.html").as_uri()]
        dom = subprocess.run([program, *words], capture_output=True, text=True, check=True).stdout
        ready = re.search(r'data-ready="(\d+)"', dom)
        assert ready is not None
        return [*results, report("page ready, seconds", int(ready[1]) / 1000, OPEN_LIMIT, f"{size:.1f} MB")]


def main() -> int:
    """Run every measurement; return exit code 1 beyond a limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300, help="rounds of links in the parallel cells")
    parser.add_argument("--cells", type=int, default=100)
    parser.add_argument("--tests", type=int, default=5000)
    options = parser.parse_args()
    return 0 if all([*page(options.cells, options.tests), *sessions(options.rounds)]) else 1


if __name__ == "__main__":
    sys.exit(main())
