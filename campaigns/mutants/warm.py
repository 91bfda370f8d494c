"""A process that has collected tests once, and forks for each run of some: ``python -m campaigns.mutants.warm``.

The words behind it are those for pytest. It answers each line that it reads with one line. A child that hangs is ended,
with all that it has started.
"""

import ctypes
import gc
import json
import os
import resource
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any, TextIO

import pytest

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of sys/prctl.h


class Warm:
    """The plugin that takes the place of pytest's loop over the tests.

    Its first answer is the names of the tests. A request has `tests` to run in this order, each with the seconds that
    it may take, `cpu`: those of CPU time of a process, and `marks`: the file that the libraries write to, which is read
    and emptied after each test; without it, the run ends with the first failure. The answer has a line for each test
    that came to an end: its name, whether it passed, its seconds, and its marks as bits.
    """

    def __init__(self, requests: TextIO, answers: TextIO) -> None:
        self._requests, self._answers = requests, answers

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out what is not in the quick tier, unless it or its file is named, or markers are."""
        named = {(config.invocation_params.dir / argument).resolve() for argument in config.args}
        slow = ("slow", "apart")
        items[:] = [
            item
            for item in items
            if config.option.markexpr
            or item.path in named
            or item.nodeid.partition("[")[0] in config.args
            or not any(map(item.get_closest_marker, slow))
        ]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Answer requests until there are no more."""
        adopt()
        items = {item.nodeid: item for item in session.items}
        folder: Path = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined] # (a fixture has it)
        gc.freeze()
        self._answer([*items])
        for line in self._requests:
            request = json.loads(line)
            said = folder / "said"
            said.touch()
            _run_apart(session, [(items[name], seconds) for name, seconds in request["tests"]], request, said)
            self._answer([json.loads(line) for line in said.read_text().splitlines()])
            # what tests share comes from a driver that was changed, but not what they compile
            for path in folder.iterdir():
                if path.stem != "compiled":
                    shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
        return True

    def _answer(self, answer: object) -> None:
        self._answers.write(json.dumps(answer) + "\n")
        self._answers.flush()


def _run_apart(session: pytest.Session, items: list[tuple[pytest.Item, float]], request: Any, said: Path) -> None:
    """Run tests in a child, and end what they leave behind."""
    child = os.fork()
    if child == 0:
        os.setsid()  # a changed driver may signal its whole group, and may take all memory: then it is ended first
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
        resource.setrlimit(resource.RLIMIT_CPU, (request["cpu"], request["cpu"]))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        try:
            _run(session, items, said, Path(request["marks"]) if request["marks"] else None)
        finally:
            os._exit(0)
    wait(child)


def adopt() -> None:
    """Make what a test leaves behind a child of this process."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def wait(child: int) -> int:
    """Wait for a child, and end what it leaves behind; gives its status."""
    ended = status = 0
    while ended != child:  # what ends meanwhile must not stay as a zombie: some tests wait for that
        ended, status = os.wait()
    _end_children()
    return status


def _end_children() -> None:
    """End what the tests left behind, and what becomes this process's child then."""
    own = Path(f"/proc/self/task/{os.getpid()}/children")
    while children := own.read_text().split():
        for child in map(int, children):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _run(session: pytest.Session, items: list[tuple[pytest.Item, float]], said: Path, marks: Path | None) -> None:
    """Run tests, and write a line for each; a signal ends one that takes too long."""
    for (item, limit), (following, _) in zip(items, [*items[1:], (None, 0)], strict=True):
        if marks:
            empty = bytes(marks.stat().st_size)
            with marks.open("r+b") as file:  # the libraries have it mapped
                file.write(empty)
        failed, began = session.testsfailed, time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, limit)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        passed, seconds = session.testsfailed == failed, round(time.monotonic() - began, 3)
        reached = marks.read_bytes()[::-1].translate(bytes.maketrans(b"\0\1", b"01")) if marks else b""
        with said.open("a") as file:
            file.write(json.dumps([item.nodeid, passed, seconds, f"{int(reached or b'0', 2):x}"]) + "\n")
        if not passed and not marks:
            return


def main() -> None:
    """Collect the tests, and serve; the streams of pytest are its own."""
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    pytest.main(sys.argv[1:], plugins=[Warm(requests, answers)])


if __name__ == "__main__":
    main()
