"""Cost of the plugin at the start of pytest, and that it loads no CUDA. ``nox -s bench`` runs it.

``pytest --version`` ends before plugins are loaded, so that the timed start collects an empty folder instead.
The figure is processor time, the least of many starts in turn: elapsed time includes the machine's other work.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import partial

LIMIT = 0.020
ROUNDS = 31


def start(folder: str, *arguments: str) -> float:
    """Processor seconds of one start."""
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-c", os.devnull, *arguments, folder]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, cwd=folder
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 5, command  # nothing collected
    return usage.ru_utime + usage.ru_stime


def main() -> int:
    """Compare starts with and without the plugin, in turn; return exit code 1 beyond the limit."""
    with tempfile.TemporaryDirectory() as folder:
        with_plugin, without = partial(start, folder, "-p", "cudalink"), partial(start, folder)
        with_plugin(), without()
        pairs = [(with_plugin(), without()) for _ in range(ROUNDS)]
    total = min(b for _, b in pairs)
    added = min(a for a, _ in pairs) - total
    mark = "ok  " if added <= LIMIT else "FAIL"
    print(
        f"{mark} start of pytest: {total * 1e3:.0f} ms, the plugin adds {added * 1e3:.1f} ms (limit {LIMIT * 1e3:.0f})"
    )
    probe = "import sys, pytest_cudalink.plugin; print([n for n in sys.modules if n.split('.')[0] == 'cuda'])"
    loaded = subprocess.run([sys.executable, "-c", probe], check=True, capture_output=True, text=True).stdout.strip()
    print(f"{'ok  ' if loaded == '[]' else 'FAIL'} CUDA modules loaded by importing the plugin: {loaded}")
    return 0 if added <= LIMIT and loaded == "[]" else 1


if __name__ == "__main__":
    sys.exit(main())
