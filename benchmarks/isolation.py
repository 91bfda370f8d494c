"""What an isolated test costs: from a process that has collected, and as a new process; alone and beside other plugins.

``nox -s bench -- isolation``. The limit is the ratio to a new process for each test, measured in turn in one run: the
machine's other work slows both. A plugin that is not installed is left out.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import measure

ROUNDS = 5
#: A thread keeps the process that collects from being forked.
_NEW = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
_TESTS = "import pytest\n@pytest.mark.parametrize('i', range({number}))\ndef test(i): pass\n"
#: Tests of a short run, which is subtracted as the start, and of a long one.
_FEW, _MANY = 2, {"new": 6, "warm": 20}
_BASE, _ISOLATED = "a new process for each", "isolated"
_WAYS = {
    _BASE: ("new", (), None),
    _ISOLATED: ("warm", (), None),
    "isolated, emulated driver": ("warm", ("--cudalink-driver=13.0",), None),
    "isolated, beside hypothesis": ("warm", ("-p", "_hypothesis_pytestplugin"), "hypothesis"),
    "isolated, beside pytest-cov": ("warm", ("-p", "pytest_cov", "--cov=."), "pytest_cov"),
    "isolated, two workers": ("warm", ("-p", "xdist", "-n2"), "xdist"),
}
#: What one more isolated test may take of the time of a new process.
LIMIT = 0.5


def _seconds(folder: Path, number: int, *arguments: str) -> float:
    head = _NEW if folder.name == "new" else ""
    folder.joinpath("test_it.py").write_text(head + _TESTS.format(number=number), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "cudalink", "--cudalink-processes=isolated", *arguments]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    began = time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return time.perf_counter() - began


def one_more_test(folder: Path, rounds: int) -> dict[str, list[float]]:
    """Measure each way in turn; return the times that one more test takes."""
    seconds: dict[str, list[float]] = {
        name: [] for name, (_, _, module) in _WAYS.items() if not module or find_spec(module)
    }
    for kind in _MANY:
        (folder / kind).mkdir()
    for _ in range(rounds):
        for name, times in seconds.items():
            kind, arguments, _ = _WAYS[name]
            start = _seconds(folder / kind, _FEW, *arguments)
            longer = _seconds(folder / kind, _MANY[kind], *arguments)
            times.append(max(0.0, longer - start) / (_MANY[kind] - _FEW))
    return seconds


def main() -> int:
    """Measure what one more test takes; return exit code 1 beyond the limit."""
    options = measure.arguments("isolation", ROUNDS, __doc__)
    report = measure.Report("isolation", "What isolation costs a test")
    with tempfile.TemporaryDirectory() as name:
        seconds = one_more_test(Path(name), options.rounds)
    base = seconds[_BASE]
    for way, times in seconds.items():
        report.row("one more isolated test", way, times, None if way == _BASE else base)
    report.limit_ratio(f"{_ISOLATED} / {_BASE}", seconds[_ISOLATED], base, LIMIT)
    return report.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())
