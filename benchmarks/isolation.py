"""What an isolated test costs: from a process that has collected, and as a new process; alone and beside other plugins.

``python benchmarks/isolation.py`` prints seconds for each test and the ratio to a new process, measured in turn in one
run: the machine's other work slows all of them. A plugin that is not installed is left out.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

__all__ = ["main"]

#: A thread keeps the process that collects from being forked.
_NEW = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
_TESTS = "import pytest\n@pytest.mark.parametrize('i', range({number}))\ndef test(i): pass\n"
_WAYS = {
    "new process": ("new", (), None),
    "isolated": ("warm", (), None),
    "isolated, emulated driver": ("warm", ("--cudalink-driver=13.0",), None),
    "isolated, beside hypothesis": ("warm", ("-p", "_hypothesis_pytestplugin"), "hypothesis"),
    "isolated, beside pytest-cov": ("warm", ("-p", "pytest_cov", "--cov=."), "pytest_cov"),
    "isolated, two workers": ("warm", ("-p", "xdist", "-n2"), "xdist"),
}


def _seconds(folder: Path, number: int, *arguments: str) -> float:
    folder.joinpath("test_it.py").write_text(
        (_NEW if folder.name == "new" else "") + _TESTS.format(number=number), encoding="utf-8"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "cudalink", "--cudalink-isolate", *arguments]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    began = time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return time.perf_counter() - began


def main() -> None:
    """Measure each way in turn, and print the medians of the time that one more test takes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tests", type=int, default=20, help="tests of a run; two are subtracted as the start")
    options = parser.parse_args()
    found: dict[str, list[float]] = {
        name: [] for name, (_, _, module) in _WAYS.items() if not module or find_spec(module)
    }
    with tempfile.TemporaryDirectory() as scratch:
        for kind in ("new", "warm"):
            Path(scratch, kind).mkdir()
        for _ in range(options.rounds):
            for name, times in found.items():
                kind, arguments, _ = _WAYS[name]
                folder = Path(scratch, kind)
                number = 6 if kind == "new" else options.tests
                start = _seconds(folder, 2, *arguments)
                times.append((_seconds(folder, number, *arguments) - start) / (number - 2))
    base = statistics.median(found["new process"])
    print("| way | seconds for each test | of a new process |\n|---|---|---|")
    for name, times in found.items():
        median = statistics.median(times)
        print(f"| {name} | {median:.3f} | {median / base:.0%} |")


if __name__ == "__main__":
    main()
