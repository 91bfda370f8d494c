"""What the plugin costs a suite that has no use for it: 1,000 empty tests, against ``-p no:cudalink``.

Run by ``nox -s bench``. The figure is processor time, the least of many runs in turn: elapsed time also counts the
machine's other work.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

LIMIT = 1.02
TESTS = 1000
ROUNDS = 31


def run(folder: str, *arguments: str) -> float:
    """Processor seconds of one run of the suite."""
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONHASHSEED": "0"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, *arguments, folder]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, cwd=folder
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return usage.ru_utime + usage.ru_stime


def compare(what: str, ours: Callable[[], float], theirs: Callable[[], float], rounds: int = ROUNDS) -> bool:
    """Run two suites in turn and print one line; returns whether the ratio of their least times is in the limit."""
    ours(), theirs()
    pairs = []
    for number in range(rounds):
        first, second = (ours, theirs) if number % 2 else (theirs, ours)
        times = {first: first(), second: second()}
        pairs.append((times[ours], times[theirs]))
    least, other = min(a for a, _ in pairs), min(b for _, b in pairs)
    median = statistics.median(a / b for a, b in pairs)
    ratio = least / other
    mark = "ok  " if ratio <= LIMIT else "FAIL"
    print(
        f"{mark} {what}: {least * 1e3:.0f} ms against {other * 1e3:.0f} ms, ratio of the least {ratio:.4f}, "
        f"of pairs {median:.4f} (limit {LIMIT})"
    )
    return ratio <= LIMIT


def main() -> int:
    """Compare in turn; exit code 1 beyond the limit."""
    with tempfile.TemporaryDirectory() as folder:
        tests = "".join(f"def test_{number}(): pass\n" for number in range(TESTS))
        (Path(folder) / "test_empty.py").write_text(tests, encoding="utf-8")
        ours, theirs = partial(run, folder, "-p", "cudalink"), partial(run, folder, "-p", "no:cudalink")
        return 0 if compare(f"{TESTS} empty tests", ours, theirs) else 1


if __name__ == "__main__":
    sys.exit(main())
