"""Measure everything that docs/explanation/side-by-side.md shows, and write the page's tables from the figures.

``measure --out FOLDER``
    Run the benchmarks on this machine, with and without its GPU; no network is used.
``collect FILE...``
    Put the figures of JSON files into the page's data, in place of older ones of the same benchmark and device.
``write``
    Write the tables of the page. A test compares them with the data.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

__all__ = ["main"]

BENCHMARKS = Path(__file__).parent
#: What ``measure`` runs, the most telling first: name of the figures, benchmark, arguments, variables.
RUNS: tuple[tuple[str, ...], ...] = (
    ("answers", "answers"),
    ("linker", "linker", "--rounds=40"),
    ("linker-without-gpu", "linker", "--rounds=40", "--without-gpu"),
    ("stubs", "stubs"),
    ("guardrails", "guardrails", "--rounds=20"),
    ("startup", "startup", "--rounds=11"),
    ("emulator", "emulator", "--rounds=30"),
    ("empty_tests", "empty_tests", "--rounds=11"),
    ("jitlink_contract", "jitlink_contract", "--rounds=15"),
)
#: Takes as long as all the others, which leave it a processor.
BESIDE = ("report", "report", "--time-limit=80")


def start(out: Path, run: tuple[str, ...]) -> subprocess.Popen[bytes]:
    """Start a benchmark that keeps its figures and its output in a folder."""
    name, benchmark, *arguments = run
    command = [sys.executable, str(BENCHMARKS / f"{benchmark}.py"), "--json", str(out / f"{name}.json"), *arguments]
    with (out / f"{name}.txt").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)


def finish(process: subprocess.Popen[bytes], deadline: float) -> int:
    """Wait for a benchmark, at most until a time; returns its exit code. Its own children end with it."""
    try:
        return process.wait(max(1.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.wait()


def take_measurements(out: Path, seconds: float) -> int:
    """Run the benchmarks, and write all figures to one file; returns the number of those that have none."""
    out.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + seconds
    beside = start(out, BESIDE)
    for run in RUNS:
        began = time.monotonic()
        code = finish(start(out, run), deadline)
        print(f"{run[0]}: exit {code}, {time.monotonic() - began:.0f} s", flush=True)
    print(f"{BESIDE[0]}: exit {finish(beside, deadline)}")
    found: dict[str, Any] = {}
    for run in (*RUNS, BESIDE):
        file = out / f"{run[0]}.json"
        if file.is_file():
            found[run[0]] = json.loads(file.read_text(encoding="utf-8"))
        else:
            print(f"{run[0]} has no figures:\n{(out / f'{run[0]}.txt').read_text(encoding='utf-8')[-1500:]}")
    (out / "side-by-side.json").write_text(json.dumps(found), encoding="utf-8")
    return len(RUNS) + 1 - len(found)


def main() -> int:
    """Run the subcommand; return its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure", help="run the benchmarks")
    measuring.add_argument("--out", type=Path, default=Path(".cudalink/bench"), help="folder for the figures")
    measuring.add_argument("--seconds", type=float, default=600, help="stop after so many seconds")
    options = parser.parse_args()
    return take_measurements(options.out, options.seconds)


if __name__ == "__main__":
    sys.exit(main())
