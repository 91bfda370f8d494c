"""The processes that run tests for the parent: one for each test, or one that has collected and is asked for each."""

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, starmap
from pathlib import Path
from typing import Any, Final

import pytest

from ...base import scratch
from ...base.process_end import ProcessEnd, end_of
from ...base.words import counted
from ..run import Mode, Run, Task
from . import bootstrap

#: Options that a plugin sets when the run begins, and that must be the same in a child.
_HANDED_OVER: Final = ("randomly_seed",)
#: Seconds that a child may take to end after its last test.
_PATIENCE: Final = 30.0
#: Milliseconds between two looks at a child from which no reply comes.
_LOOK: Final = 1000
_OUTPUT: Final = ("stdout", "stderr", "events", "reports-stdout", "reports-stderr")


def key(item: pytest.Item) -> str:
    """Return what the node IDs of a test have in common in processes with different root folders: file and name.

    An argument of pytest has the same form. A worker with ``--dist=loadgroup`` has added the groups of the test.
    """
    _, separator, name = item.nodeid.partition("::")
    marks = list(item.iter_markers("xdist_group"))
    groups = {str(mark.args[0] if mark.args else mark.kwargs.get("name", "default")) for mark in marks}
    return f"{item.path}{separator}{name.removesuffix('@' + '_'.join(sorted(groups))) if groups else name}"


def start_failure(end: ProcessEnd, folder: Path, item: pytest.Item) -> str:
    """Describe how a process ended that never reached a test: the same text for the same failure of another test.

    `folder`: where its output is.
    """
    said = [text_in(folder / name).splitlines() for name in ("stderr", "stdout")]
    errors = [line for lines in said for line in lines if line.startswith("E ")]
    last = [line for lines in said for line in lines[-1:]]
    text = "\n".join([str(end), *(errors or last)])
    return re.sub(r"\d+", "N", text.replace(item.nodeid.partition("::")[2], "TEST").replace(str(item.path), "FILE"))


def _command(
    run: Run, folder: Path, paths: list[str], pipes: list[int], *, mode: Mode, events: bool
) -> tuple[list[str], dict[str, str]]:
    """Return command and environment of a child whose files are in a folder; parameters as of `ServerProcess`."""
    into = str(folder / "events") if events else ""
    config = run.config
    options = {name: getattr(config.option, name) for name in _HANDED_OVER if hasattr(config.option, name)}
    environment = {
        **run.start.environment,  # conftests change it, and those of the child do so, too
        **{name: value for name, value in os.environ.items() if name.startswith("CUDALINK_")},
        **run.withheld,
    }
    if run.emulated is not None:
        environment["CUDALINK_EMULATOR_EVENTS"] = into
    task = Task(
        mode=mode,
        paths=paths,
        pipes=pipes,
        reports=str(folder / "reports"),
        events=into,
        worker=run.worker,
        options=options,
        start={**vars(run.start), "environment": environment, "arguments": _arguments(run)},
    )
    file = folder / "task"  # not a variable: the system limits the length of one
    file.write_text(json.dumps(vars(task), default=str), encoding="utf-8")
    command = [sys.executable, *interpreter_options(sys.orig_argv), bootstrap.__file__, str(file)]
    return command, environment


def interpreter_options(words: Sequence[str]) -> list[str]:
    """Return the options of a command line of Python, without what makes it interactive.

    `words`: the command line, which begins with the interpreter.
    """
    options: list[str] = []
    rest = iter(words[1:])
    for word in rest:
        if word == "--check-hash-based-pycs":
            options += [word, next(rest, "default")]
            continue
        match = re.fullmatch("-(?=[^-])([^cmWX]*)([cmWX]?)(.*)", word, re.DOTALL)
        if match is None:
            break  # the script, or one that comes from stdin
        switches, last, value = match.groups()
        options += [f"-{kept}" for kept in [re.sub("[ix]", "", switches)] if kept]
        if last in ("c", "m"):
            break
        if last:
            options.append(f"-{last}{value or next(rest, '')}")
    return options


def _arguments(run: Run) -> list[str]:
    """Return the command line of a child: the run's, except for what pytest reads too early to be changed later."""
    arguments = run.arguments
    where = arguments.index("--") if "--" in arguments else len(arguments)
    option = run.config.option
    instead = []
    if getattr(option, "capture", None) == "no":
        instead.append("--capture=fd")  # a child has no terminal: what it prints comes with its reports
    if getattr(option, "debug", None):
        instead.append(f"--debug={os.devnull}")
    if getattr(option, "cov_source", None):
        instead.append("--cov-append")  # pytest-cov would erase what the processes before this one have measured
    return [*arguments[:where], *instead, *arguments[where:]]


class ServerProcess:
    """A child that has collected, and runs each test that it is asked for.

    `folder`: an empty folder for the child's files.
    `paths`: tests or files of its tests; empty for those of the command line.
    `mode`: how it runs a test.
    `events`: whether the events of the driver are in a file of the folder.
    `refusal`: why it cannot run tests; empty if it can.
    `failed`: how it ended, if it did so before it could run tests.
    """

    def __init__(self, run: Run, folder: Path, paths: list[str], *, mode: Mode, events: bool = True) -> None:
        self.folder, self.refusal = folder, ""
        self.failed: ProcessEnd | None = None
        self._ends = False  # by itself, after a test that left its contexts unusable
        self._mode, self._buffer = mode, b""
        self._requests = self._replies = -1
        # here before it starts: an exception that comes as Popen returns would lose the process
        self._process: subprocess.Popen[bytes] = subprocess.Popen.__new__(subprocess.Popen)
        pipes: list[tuple[int, int]] = []
        try:
            pipes.extend(starmap(os.pipe, ((), ())))  # one call in C, for the same reason
            (read, self._requests), (self._replies, written) = pipes
            command, environment = _command(run, folder, paths, [read, written], mode=mode, events=events)
            start: Any = subprocess.Popen.__init__
            with (folder / "stdout").open("wb") as stdout, (folder / "stderr").open("wb") as stderr:
                streams = {"stdin": subprocess.DEVNULL, "stdout": stdout, "stderr": stderr, "pass_fds": (read, written)}
                start(self._process, command, env=environment, cwd=run.config.invocation_params.dir, **streams)
            for pipe in (read, written):
                os.close(pipe)
            if not self._reply():
                ended = self.failed = self._ended()
                words = [text_in(folder / name).strip() for name in ("stdout", "stderr")]
                said = "\n".join(filter(None, words)).rpartition("\n")[2]
                self.refusal = f"the process that collects the tests {ended}" + (f": {said}" if said else "")
        except BaseException:
            for pipe in chain(*pipes):
                with suppress(OSError):  # closed already
                    os.close(pipe)
            self._requests = self._replies = -1
            if getattr(self._process, "pid", None) is not None:
                self.kill()
            raise

    def __call__(self, item: pytest.Item, nextitem: pytest.Item | None, folder: Path) -> ProcessEnd | None:
        """Run one test, which leaves its reports, events and output in a folder.

        Returns how the process of the test ended; without signal and exit code if it goes on. None if it refuses, see
        `refusal`.
        """
        files = [self.folder / name for name in _OUTPUT if folder != self.folder]
        sizes = {file: file.stat().st_size if file.exists() else 0 for file in files}
        pid = None
        try:
            self._ask(item, folder, next=key(nextitem) if nextitem is not None else None, trials=[])
            reply = self._reply()
            if "refused" in reply:
                self.refusal = reply["refused"]
                return None
            pid = reply.get("pid")
            reply = self._reply() if reply else {}
            if not reply:
                return self._ended()
            self._ends = reply.get("ends", False)
            return end_of(os.waitstatus_to_exitcode(reply["status"])) if self._mode == "copies" else ProcessEnd()
        except BaseException:
            self._kill(pid)
            raise
        finally:
            for file, size in sizes.items():  # what the test has added
                if file.exists():
                    with file.open("rb") as stream:
                        stream.seek(size)
                        (folder / file.name).write_bytes(stream.read())

    def trials(
        self, item: pytest.Item, folder: Path, requests: Sequence[Mapping[str, Any]], *, deadline: int, at_once: int
    ) -> Iterator[tuple[int, ProcessEnd]]:
        """Run one test under several conditions, each in a copy of the process.

        `folder`: where each copy leaves ``reports-NUMBER``.
        `requests`: for each copy the name of a function of `trial` as ``how``, and its other arguments.
        `deadline`: seconds after which a copy is ended.
        `at_once`: most copies that run at a time.
        Yields the number of the condition, from 0. None come after a refusal, or after the process itself has died.
        Yields how its copy ended.
        """
        pids = set()
        orderly = False
        try:
            self._ask(item, folder, trials=requests, deadline=deadline, at_once=at_once)
            while (reply := self._reply()) and "done" not in reply and "refused" not in reply:
                if "number" not in reply:
                    pids.add(reply["pid"])
                    continue
                pids.discard(reply["pid"])
                end = end_of(os.waitstatus_to_exitcode(reply["status"]))
                if reply["late"]:
                    end = ProcessEnd(stopped=f"it did not end within {counted(deadline, 'second')}")
                yield reply["number"], end
            self.refusal = reply.get("refused", "")
            orderly = bool(reply)
        finally:
            if not orderly:
                self.kill()
                for pid in pids.union(self._left()):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

    def _left(self) -> Iterator[int]:
        """Yield what the process has forked, also if it was killed before it reported that: it has the same command."""
        words: list[str] = self._process.args  # type: ignore[assignment] # (what `_command` returned)
        command = b"".join(os.fsencode(word) + b"\0" for word in words)
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if file.read_bytes() == command:
                    yield int(file.parent.name)

    @property
    def alive(self) -> bool:
        """Whether the process can be asked."""
        return not self._ends and self._process.poll() is None

    def _ask(self, item: pytest.Item, folder: Path, **how: Any) -> None:
        """Ask for a test; a process that died between two tests gives no reply."""
        request = {"key": key(item), "nodeid": item.nodeid, "reports": str(folder / "reports")}
        with suppress(BrokenPipeError):
            os.write(self._requests, json.dumps({**request, **how}).encode() + b"\n")

    def _reply(self) -> dict[str, Any]:
        """Return the next reply; empty if the process died."""
        waiting = select.poll()
        waiting.register(self._replies, select.POLLIN)
        while b"\n" not in self._buffer:
            # what a test has forked may hold the pipe open when the process itself is dead
            if not waiting.poll(_LOOK) and not self.alive and not waiting.poll(0):
                return {}
            if not (read := os.read(self._replies, 65536)):
                return {}
            self._buffer += read
        line, _, self._buffer = self._buffer.partition(b"\n")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _ended(self) -> ProcessEnd:
        return end_of(self._process.wait(None if self._mode == "alone" else _PATIENCE))

    def _kill(self, pid: int | None) -> None:
        """End the process of a test, which a parent that forks waits for."""
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if pid is None or self._mode != "copies":
            self.kill()
        else:
            self.close()

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self.close()

    def close(self) -> ProcessEnd:
        """Let the process end as pytest does; return how it ended."""
        for pipe in (self._requests, self._replies):
            with suppress(OSError):
                os.close(pipe)
        self._requests = self._replies = -1
        try:
            return self._ended()
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return ProcessEnd(stopped=f"it did not end within {_PATIENCE:.0f} s")


class Servers:
    """A plugin object that owns the processes of a run that have collected: another one starts for one that died.

    `folder`: a temporary folder, for the files of the processes and of those that ask them.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.folder = scratch.fresh("isolated")
        self._started: dict[tuple[Mode, bool], tuple[ServerProcess, Callable[[ServerProcess], object]]] = {}

    def get(
        self, paths: list[str], close: Callable[[ServerProcess], object], *, mode: Mode, events: bool = True
    ) -> ServerProcess:
        """Return the process that has collected the tests of some files; `mode`, `events`: as of `ServerProcess`.

        `close`: ends it.
        """
        server, _ = self._started.get((mode, events), (None, close))
        if server is None or not (server.alive or server.refusal):
            if server is not None:
                del self._started[mode, events]
                close(server)
            folder = Path(tempfile.mkdtemp(prefix="server-", dir=self.folder))
            server = ServerProcess(self._run, folder, paths, mode=mode, events=events)
            self._started[mode, events] = server, close
        return server

    def end(self) -> None:
        """End the processes, and remove the folder."""
        while self._started:
            server, close = self._started.popitem()[1]
            close(server)
        shutil.rmtree(self.folder, ignore_errors=True)


#: Conditions that a process is asked for with one line.
_PART: Final = 200


class Copies:
    """A plugin object that runs tests again, of which pytest sees no report."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._paths: list[str] = []
        self._servers = run.part(Servers)
        self._server: ServerProcess | None = None  # the last one that was asked
        given: Any = getattr(run.config, "workerinput", None)
        workers = given["workercount"] if given else 1
        self._at_once = max(1, len(os.sched_getaffinity(0)) // workers)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._paths = list(dict.fromkeys(str(item.path) for item in session.items))

    def __call__(
        self, item: pytest.Item, requests: Sequence[Mapping[str, Any]]
    ) -> Iterator[tuple[int, ProcessEnd, dict[str, Any] | None]]:
        """Run a test under several conditions, each in a separate process, as many at once as there are cores.

        `requests`: for each condition the name of a function of `trial` as ``how``, and its arguments after the driver.
        Yields the number of the condition, from 0, in the order in which they end. One that no process could run does
        not come, see `why_not`.
        Yields how its process ended.
        Yields what the function returned; None if the process ended before.
        """
        deadline = int(self._run.settings.sticky_deadline.value)
        for start in range(0, len(requests), _PART):
            # the events of a copy have no reader: a file of all would be as long as there are runs and calls
            server = self._servers.get(self._paths, ServerProcess.close, mode="copies", events=False)
            self._server = server
            if not server.alive:
                return
            with tempfile.TemporaryDirectory(dir=self.folder) as made:
                folder, part = Path(made), requests[start : start + _PART]
                for number, end in server.trials(item, folder, part, deadline=deadline, at_once=self._at_once):
                    yield start + number, end, dict(lines_of(folder / f"reports-{number}")).get("trial")

    @property
    def folder(self) -> str:
        """The temporary folder, which is removed after the last test."""
        return str(self._servers.folder)

    @property
    def why_not(self) -> str:
        """Why no process could run what it was asked for last."""
        return (self._server and self._server.refusal) or "the process that runs the tests again ended"


def text_in(file: Path) -> str:
    """Return the text of a file that a child wrote, in whatever encoding; empty where there is none."""
    return file.read_bytes().decode(errors="replace") if file.exists() else ""


def lines_of(file: Path) -> Iterator[tuple[str, Any]]:
    """Yield kind and content of each line that a child wrote, up to one that a crash cut."""
    for line in text_in(file).splitlines():
        try:
            ((kind, data),) = json.loads(line).items()
        except ValueError:
            return
        yield kind, data
