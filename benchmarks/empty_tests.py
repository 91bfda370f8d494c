"""Cost of the plugin for a suite that does not use it: 1,000 empty tests, compared with ``-p no:cudalink``.

``nox -s bench`` runs it. The figure is processor time, because elapsed time includes the machine's other work. That
work still disturbs either the least time of many runs or their median; a plugin that costs more raises both.
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

sys.path.insert(0, str(Path(__file__).parent))

from _ratio import in_turn

LIMIT = 1.02
TESTS = 1000
ROUNDS = 41


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
    """Run two suites in turn and print one line; return whether one of the two ratios is within the limit."""
    first, second = in_turn(ours, theirs, rounds)
    least, median = min(first) / min(second), statistics.median(first) / statistics.median(second)
    ok = min(least, median) <= LIMIT
    print(
        f"{'ok  ' if ok else 'FAIL'} {what}: {min(first) * 1e3:.0f} ms against {min(second) * 1e3:.0f} ms, "
        f"ratio of the least {least:.4f}, of the medians {median:.4f} (limit {LIMIT}, which both must exceed to fail)"
    )
    return ok


def main() -> int:
    """Compare both in turn; return exit code 1 beyond the limit."""
    with tempfile.TemporaryDirectory() as folder:
        tests = "".join(f"def test_{number}(): pass\n" for number in range(TESTS))
        (Path(folder) / "test_empty.py").write_text(tests, encoding="utf-8")
        ours, theirs = partial(run, folder, "-p", "cudalink"), partial(run, folder, "-p", "no:cudalink")
        return 0 if compare(f"{TESTS} empty tests", ours, theirs) else 1


if __name__ == "__main__":
    sys.exit(main())
