"""Runs of pytest for the benchmarks: in child processes, beside an empty plugin, among any number of distributions."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from measure import Prepare, Seconds

#: Loads the empty plugin. Pytest searches all distributions for the name given to ``-p``, whichever plugin has it.
EMPTY = ("-p", "empty")
#: Head of a test that calls the driver, and raises where a call fails.
CALL = """
import ctypes
from ctypes import byref, c_size_t, c_uint64, c_void_p

cu = ctypes.CDLL("libcuda.so.1")

def call(function, *arguments):
    if code := getattr(cu, function)(*arguments):
        raise RuntimeError(f"{function} failed with error {code}")
"""


def add_empty_plugin(folder: Path) -> Path:
    """Make a plugin that does nothing, with the entry point by which pytest finds it; return its folder."""
    metadata = folder / "empty_plugin-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: empty-plugin\nVersion: 1.0\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text("[pytest11]\nempty = empty_plugin\n", encoding="utf-8")
    (folder / "empty_plugin.py").write_text('"""A plugin without hooks."""\n', encoding="utf-8")
    return folder


def add_distributions(folder: Path, number: int) -> Path:
    """Make distributions as an installer leaves them, a third of them with entry points; return their folder."""
    for at in range(number):
        metadata = folder / f"package_{at:03}-1.{at}.dist-info"
        metadata.mkdir(parents=True)
        about = f"Metadata-Version: 2.1\nName: package-{at:03}\nVersion: 1.{at}\n"
        (metadata / "METADATA").write_text(about, encoding="utf-8")
        files = "".join(f"package_{at:03}/module_{number}.py,sha256=,0\n" for number in range(50))
        (metadata / "RECORD").write_text(files, encoding="utf-8")
        if at % 3 == 0:
            script = f"[console_scripts]\npackage-{at} = package_{at:03}.module_0:main\n"
            (metadata / "entry_points.txt").write_text(script, encoding="utf-8")
        package = folder / f"package_{at:03}"
        package.mkdir()
        (package / "__init__.py").touch()
    return folder


class Pytest:
    """Runs pytest on one folder, with only the plugins that are named.

    `paths`: folders in front of the module search path.
    `expected`: exit code of a run.
    `cores`: on how many cores it may run; by default on all.
    """

    def __init__(self, tests: Path, *paths: Path, expected: int = 0, cores: int | None = None) -> None:
        self._tests, self._expected, self._cores = tests, expected, cores
        search = os.pathsep.join([*map(str, paths), *filter(None, [os.environ.get("PYTHONPATH")])])
        # a variable of the plugin that a session sets would ask for it in each run
        passed = {name: value for name, value in os.environ.items() if not name.startswith("CUDALINK_")}
        self._environment = {
            **passed,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": search,
        }
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled

    def __call__(self, *arguments: str) -> Prepare:
        """Return what `measure.rounds` takes: a run with these arguments, whose time is its processor seconds.

        Elapsed time includes the machine's other work.
        """
        return lambda: self._run(*arguments)

    def _run(self, *arguments: str) -> Callable[[], Seconds]:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull, *arguments, "."]

        def run() -> Seconds:
            process = subprocess.Popen(
                command,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=self._environment,
                cwd=self._tests,
                preexec_fn=self._bind,  # noqa: PLW1509 (no threads here)
            )
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            assert process.returncode == self._expected, (process.returncode, command)
            return Seconds(usage.ru_utime + usage.ru_stime)

        return run

    def _bind(self) -> None:
        if self._cores is not None and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: self._cores])


def one_file(folder: Path, text: str) -> Pytest:
    """Return runs of one file of tests, on two cores."""
    tests = folder / "tests"
    tests.mkdir(parents=True)
    tests.joinpath("test_it.py").write_text(text, encoding="utf-8")
    return Pytest(tests, cores=2)
