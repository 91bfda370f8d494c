"""Python in processes of their own, forked from one that has imported some modules and nothing else.

Starting Python, importing pytest and loading every installed plugin takes longer than most tests of a plugin do. Run as
a program, this file is the process that waits for requests and forks. A run whose subject is what counts when a process
starts, such as ``LD_LIBRARY_PATH``, is started fresh; one whose subject is a plugin that loads by itself is pytester's.
"""

import gc
import importlib
import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

import pytest
from _pytest.config import default_plugins

#: Arguments of a nested run, for ``parametrize``. Runs that start processes cost several times as much: variants.
ALONE = pytest.param((), id="alone")
WEEKLY = (pytest.mark.slow, pytest.mark.weekly)
XDIST = pytest.param(("-n2",), id="xdist", marks=WEEKLY)
ISOLATED = pytest.param(("--cudalink-processes=isolated",), id="isolated", marks=WEEKLY)
#: The way that hands over most: from the process of a test to a worker, and from there to the controller.
BOTH = pytest.param(("-n1", "--cudalink-processes=isolated"), id="both", marks=pytest.mark.slow)

#: What every pytest imports, and most runs with this plugin.
THEIRS = ("ctypes", "email.parser", "msgspec", "packaging.requirements", "packaging.tags", "pdb", "tomllib")
PYTEST = (*(f"_pytest.{name}" for name in default_plugins), *THEIRS)
#: For a run that loads installed plugins by itself: the import of this one takes longer than all else of it.
NO_HYPOTHESIS = ("-p", "no:hypothesispytest")
#: What keeps installed plugins from loading by themselves, in a run and in what it starts.
NO_AUTOLOAD = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def with_plugins(*arguments: str, plugins: tuple[str, ...] = ()) -> list[str]:
    """The arguments behind those that load this plugin, the named ones, and pytest-xdist where ``-n`` needs it.

    ``$TESTS_BESIDE`` has the words that load others beside them: ``nox -s plugins`` sets it.
    """
    workers = ["xdist"] if any(argument.startswith("-n") for argument in arguments) else []
    beside = os.environ.get("TESTS_BESIDE", "").split()
    return [*(word for name in ("cudalink", *workers, *plugins) for word in ("-p", name)), *beside, *arguments]


class Forks:
    """The process that forks; it ends with the ``with`` block.

    `modules`: what it imports before it forks.
    `env`: its environment; the default is this process's.
    """

    #: Of what all such processes ran so far; they are not children of this process, so it cannot ask the system.
    cpu_seconds: ClassVar[float] = 0.0

    def __init__(self, modules: Sequence[str] = PYTEST, env: Mapping[str, str] | None = None) -> None:
        command = [sys.executable, __file__, *modules]
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.communicate()

    def run(
        self, arguments: Sequence[str], cwd: Path, env: Mapping[str, str], output: tuple[Path, Path], limit: int = 0
    ) -> int:
        """Exit code of ``python`` with arguments that begin with ``-c`` or ``-m``; negative for a signal.

        After so many seconds, SIGALRM ends it.
        """
        output_names = [*map(str, output)]
        request = {"arguments": arguments, "cwd": str(cwd), "env": {**env}, "output": output_names, "limit": limit}
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        answer = self._server.stdout.readline()
        assert answer, "the process that forks has ended"
        code, seconds = answer.split()
        Forks.cpu_seconds += float(seconds)
        return int(code)

    def capture(self, arguments: Sequence[str], cwd: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Result of ``python`` with the arguments, as ``subprocess.run`` gives it."""
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder, "stdout"), Path(folder, "stderr")
            code = self.run(arguments, cwd, env, output, limit=300)
            said = [file.read_text(encoding="utf-8") for file in output]
        return subprocess.CompletedProcess([sys.executable, *arguments], code, *said)


class Result(pytest.RunResult):
    """What a nested run has shown, and how it ended."""

    def ended(self, code: int | None = None, **outcomes: int) -> Self:
        """Expect so many tests of each outcome, and the exit code: that of failed tests if some failed, else 0."""
        self.assert_outcomes(**outcomes)
        failing = outcomes.get("failed", 0) + outcomes.get("errors", 0)
        assert self.ret == (bool(failing) if code is None else code)
        return self

    def shows(self, *patterns: str, consecutive: bool = False) -> None:
        """Expect lines that match patterns, in this order, on standard output."""
        self.stdout.fnmatch_lines(patterns, consecutive=consecutive)


class NestedPytest:
    """Runs pytest in the folder of a ``pytester``, with this plugin and those that are named; no other loads.

    `module`: written as ``test_it.py`` before the run.
    """

    def __init__(self, pytester: pytest.Pytester, forks: Forks) -> None:
        self._pytester, self._folder = pytester, pytester.path
        self._forks = forks

    def __call__(
        self, *arguments: str, module: str | None = None, plugins: tuple[str, ...] = (), fresh: bool = False
    ) -> Result:
        """Result of a run, as ``pytester.runpytest_subprocess`` gives it; a fresh one is started and not forked."""
        if module is not None:
            self._pytester.makepyfile(test_it=module)
        # of two modules of one name and length, written within a second, the second would be taken for the first
        for cache in [*self._folder.rglob("__pycache__")]:
            shutil.rmtree(cache)
        base = tempfile.mkdtemp(prefix="runpytest-", dir=self._folder)
        words = [f"--basetemp={base}", *with_plugins(*arguments, plugins=plugins)]
        path = os.pathsep.join(filter(None, [str(self._folder), os.environ.get("PYTHONPATH", "")]))
        # what the sessions of this project promise would ask for the plugin
        passed = {name: value for name, value in os.environ.items() if not name.startswith("CUDALINK_REQUIRE_")}
        env = {**passed, **NO_AUTOLOAD, "PYTHONPATH": path}
        output = self._folder / "stdout", self._folder / "stderr"
        began = time.perf_counter()
        code = (_start if fresh else self._forks.run)(["-m", "pytest", *words], self._folder, env, output)
        spent = time.perf_counter() - began
        said, complaint = (file.read_text(encoding="utf-8") for file in output)
        print(said)
        print(complaint, file=sys.stderr)
        status = pytest.ExitCode(code) if code in list(pytest.ExitCode) else code
        return Result(status, said.splitlines(), complaint.splitlines(), spent)


def _start(arguments: Sequence[str], cwd: Path, env: Mapping[str, str], output: tuple[Path, Path]) -> int:
    """Exit code of ``python`` in a process that is started, and not forked as by `Forks.run`."""
    out, err = output
    command = [sys.executable, *arguments]
    with out.open("wb") as stdout, err.open("wb") as stderr:
        return subprocess.call(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)


def _serve(modules: Sequence[str]) -> None:
    """Fork for each request, and answer with how the child ended. A child returns from here, to be a program."""
    for name in modules:
        importlib.import_module(name)
    gc.freeze()  # or each child would visit and copy all of it as it collects garbage: 40 % of its time
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            return _become(**json.loads(line))
        _, status, used = os.wait4(child, 0)
        print(os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, flush=True)
    return None


def _become(arguments: list[str], cwd: str, env: dict[str, str], output: list[str], limit: int) -> None:
    """Turn this process into ``python`` with arguments: folder, environment, files, search path and main module."""
    signal.alarm(limit)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    for number, path in enumerate((os.devnull, *output)):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(file, number)
        os.close(file)
    option, program, *words = arguments
    sys.path[:1] = [cwd, *filter(None, env.get("PYTHONPATH", "").split(os.pathsep))]
    if option == "-m":
        sys.argv[1:] = words
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = [option, *words]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(program, "<string>", "exec", dont_inherit=True), main.__dict__)


if __name__ == "__main__":
    _serve(sys.argv[1:])
