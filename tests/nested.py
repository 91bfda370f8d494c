"""Pytest runs in processes of their own, forked from one that has imported pytest and nothing else.

To start Python, import pytest and load every installed plugin takes longer than most tests of a plugin do. Run as a
program, this file is the process that waits for requests and forks. What the loader reads when a process starts, such as
``LD_LIBRARY_PATH``, and plugins that load by themselves need ``pytester.runpytest_subprocess``.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

__all__ = ["Forks", "NestedPytest"]


class Forks:
    """The process that forks; it ends with the ``with`` block."""

    def __init__(self) -> None:
        command = [sys.executable, __file__]
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Forks:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.communicate()

    def run(self, *arguments: str, cwd: Path, env: Mapping[str, str], stdout: Path, stderr: Path) -> int:
        """Exit code of ``python -m pytest`` with the arguments; negative for a signal."""
        request = {"arguments": arguments, "cwd": str(cwd), "env": {**env}, "output": [str(stdout), str(stderr)]}
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        answer = self._server.stdout.readline()
        assert answer, "the process that forks has ended"
        return int(answer)


class NestedPytest:
    """Runs pytest in the folder of a ``pytester``, with this plugin and those that are named; no other loads.

    Parameters
    ----------
    pytester : pytest.Pytester
    forks : Forks
    """

    def __init__(self, pytester: pytest.Pytester, forks: Forks) -> None:
        self._pytester = pytester
        self._forks = forks

    def __call__(self, *arguments: str, plugins: tuple[str, ...] = ()) -> pytest.RunResult:
        """Result of a run, as ``pytester.runpytest_subprocess`` gives it; ``-n`` brings the plugin that knows it."""
        if any(argument.startswith("-n") for argument in arguments):
            plugins = ("xdist", *plugins)
        folder = self._pytester.path
        loaded = [word for name in ("cudalink", *plugins) for word in ("-p", name)]
        python_path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
        out, err = folder / "stdout", folder / "stderr"
        began = time.perf_counter()
        code = self._forks.run(
            f"--basetemp={tempfile.mkdtemp(prefix='runpytest-', dir=folder)}",
            *loaded,
            *arguments,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": python_path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            stdout=out,
            stderr=err,
        )
        spent = time.perf_counter() - began
        said, complaint = (file.read_text(encoding="utf-8") for file in (out, err))
        print(said)
        print(complaint, file=sys.stderr)
        known = code in list(pytest.ExitCode)
        return pytest.RunResult(
            pytest.ExitCode(code) if known else code, said.splitlines(), complaint.splitlines(), spent
        )


def _serve() -> None:
    """Fork for each request, and answer with how the child ended. A child returns from here, to be a pytest."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            return _become(**json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    return None


def _become(arguments: list[str], cwd: str, env: dict[str, str], output: list[str]) -> None:
    """Be what ``python -m pytest`` would be: its folder, environment, files, search path and main module."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    for number, path in enumerate((os.devnull, *output)):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(file, number)
        os.close(file)
    sys.path[:1] = [cwd, *filter(None, env.get("PYTHONPATH", "").split(os.pathsep))]
    sys.argv[1:] = arguments
    runpy.run_module("pytest", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _serve()
