"""What a matrix of many cells costs, from measured figures and published prices. ``scale.toml`` has both.

``docs/explanation/side-by-side.md`` shows ``blocks``. ``--measure cell|report`` prints new figures for ``scale.toml``.

cell: the environment of a cell, with an empty and with a full cache of uv, and what lies on the disk. report: records
of a thousand cells of five hundred tests, written, merged and rendered.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

FIGURES = Path(__file__).with_suffix(".toml")
CELLS = 1000


def figures() -> dict[str, Any]:
    """Return the measured figures and the prices."""
    return tomllib.loads(FIGURES.read_text(encoding="utf-8"))


def costs(figures: dict[str, Any], cells: int = CELLS) -> list[tuple[str, ...]]:
    """Return the rows of the table of costs: what runs, minutes of machines, minutes until the end, dollars."""
    cell, assumed, prices = figures["cell"], figures["assumed"], figures["prices"]
    start = assumed["job_start_s"]
    warm, cold = (cell[f"{state}_install_s"] + assumed["tests_s"] for state in ("warm", "cold"))
    jobs = prices["github_jobs"]
    each = math.ceil(cells / jobs)
    rows = []
    for state, seconds in (("empty cache", cold), ("full cache", warm)):
        alone = cells * math.ceil((seconds + start) / 60)
        grouped = jobs * math.ceil((each * warm + (seconds - warm) + start) / 60)
        rows += [
            (f"GitHub, a job for each cell, {state}", f"{alone:,}", _dollars(alone * prices["github_linux_2_minute"])),
            (f"GitHub, {jobs} jobs, {state}", f"{grouped:,}", _dollars(grouped * prices["github_linux_2_minute"])),
        ]
        for cores in (8, 32):
            own = (cells * warm + (seconds - warm) * figures["assumed"]["distinct_environments"]) / 60 / cores
            rows.append((f"a machine with {cores} cores, {state}", f"{own:,.0f}", "your own machine"))
    return rows


def _dollars(value: float) -> str:
    return f"${value:,.2f}"


def volumes(figures: dict[str, Any], cells: int = CELLS) -> list[tuple[str, ...]]:
    """Return the rows of the table of bytes: what, for one cell, for all."""
    cell, report = figures["cell"], figures["report"]
    distinct = figures["assumed"]["distinct_environments"]
    return [
        ("download without a cache", _size(cell["download_mb"]), _size(cells * cell["download_mb"])),
        ("download with a cache", _size(cell["download_mb"]), _size(distinct * cell["download_mb"])),
        ("uv's cache", _size(cell["cache_mb"]), _size(distinct * cell["cache_mb"])),
        ("environment on the disk", _size(cell["venv_mb"]), _size(cells * cell["venv_mb"])),
        ("records", _size(report["record_mb"]), _size(cells * report["record_mb"])),
        ("the page of the report", "", _size(report["page_mb"])),
    ]


def _size(megabytes: float) -> str:
    return f"{megabytes / 1000:,.1f} GB" if megabytes >= 1000 else f"{megabytes:,.1f} MB"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in lines)


def blocks() -> dict[str, str]:
    """Return the tables of the page, by name."""
    return {
        "costs": table(("1,000 cells on …", "minutes", "price"), costs(figures())),
        "volumes": table(("what", "one cell", "1,000 cells"), volumes(figures())),
    }


def measure_cell() -> None:
    """Print seconds and megabytes of the environment of one cell."""
    from pytest_cudalink.matrix import load_cells

    cells = {cell.name: cell for cell in load_cells(ROOT / "matrices" / "cells.toml")}
    with tempfile.TemporaryDirectory() as scratch:
        environment = {**os.environ, "UV_CACHE_DIR": f"{scratch}/cache", "UV_LINK_MODE": "hardlink"}
        seconds = []
        for number in range(4):
            folder = f"{scratch}/venv-{number}"
            start = time.perf_counter()
            subprocess.run(["uv", "venv", "-q", "--python", sys.executable, folder], check=True, env=environment)
            packages = [*cells["ctk-13.0"].packages, "pytest", "packaging", "numpy"]
            subprocess.run(
                ["uv", "pip", "install", "-q", "--python", f"{folder}/bin/python", *packages],
                check=True,
                env=environment,
            )
            seconds.append(time.perf_counter() - start)
        print(f"cold_install_s = {seconds[0]:.1f}\nwarm_install_s = {statistics.median(seconds[1:]):.1f}")
        print(f"cache_mb = {_disk(f'{scratch}/cache'):.0f}\nvenv_mb = {_disk(f'{scratch}/venv-0'):.0f}")


def _disk(folder: str) -> float:
    """Return the megabytes that a folder takes."""
    done = subprocess.run(["du", "-sk", folder], check=True, capture_output=True, text=True)
    return int(done.stdout.split()[0]) * 1024 / 1e6


def measure_report(cells: int, tests: int) -> None:
    """Print seconds and memory of the report of many cells."""
    import matrix

    from pytest_cudalink.report import html
    from pytest_cudalink.report.merge import merge

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        matrix.records(folder, cells, tests)
        size = sum(file.stat().st_size for file in folder.iterdir()) / 1e6
        print(f"record_mb = {size / cells:.2f}", flush=True)
        start = time.perf_counter()
        merged = merge([folder])
        assert len(merged.grid) == tests
        print(f"merge_s = {time.perf_counter() - start:.1f}", flush=True)
        start = time.perf_counter()
        page = html.render(merged)
        print(f"page_s = {time.perf_counter() - start:.1f}\npage_mb = {len(page.encode()) / 1e6:.1f}")
    print(f"memory_mb = {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000:.0f}")


def main() -> None:
    """Measure one thing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", choices=("cell", "report"), required=True)
    parser.add_argument("--cells", type=int, default=CELLS)
    parser.add_argument("--tests", type=int, default=500)
    options = parser.parse_args()
    if options.measure == "cell":
        measure_cell()
    else:
        measure_report(options.cells, options.tests)


if __name__ == "__main__":
    main()
