"""The temporary folder of a process: nothing of it is left, and nothing that is another's is taken."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from pytest_cudalink.base import scratch

HOLDS = """
import os, sys, time
from pytest_cudalink.base import scratch
made = scratch.root()
{0}
print(made, flush=True)
sys.stdin.read()
"""
FORKS = """
if os.fork() == 0:
    os.closerange(0, 3)
    time.sleep(60)
    os._exit(0)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files, for this process and for others."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(scratch.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(scratch, "_root", None)
    return tmp_path


@pytest.fixture
def process(temporary: Path):
    """Start a process that makes its folder."""
    started = []

    def start(code: str = "") -> tuple[subprocess.Popen[str], Path]:
        command = [sys.executable, "-c", HOLDS.format(code)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        started.append(process)
        return process, Path(process.stdout.readline().strip())

    yield start
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def test_ends_with_its_process(process, temporary) -> None:
    """At the end the folder goes; that of a process which was killed goes with the next that makes or ends one."""
    killed, left = process()
    (left / "file").touch()
    end(killed)
    assert left.is_dir()
    ended, made = process("assert scratch.fresh('name').name.startswith('name-')")
    assert (left.exists(), made.is_dir()) == (False, True)
    assert made.stat().st_mode & 0o777 == 0o700
    ended.communicate("")
    assert not [*temporary.iterdir()]


@pytest.mark.parametrize("code", ["", "os.closerange(3, 1000)", FORKS], ids=["locked", "descriptors closed", "forked"])
def test_of_a_living_process(process, code) -> None:
    """It stays, whatever the process has closed; that of a killed one, while a process lives that it forked."""
    parent, made = process(code)
    if code == FORKS:
        end(parent)
    assert scratch.root().is_dir()
    assert made.is_dir()


@pytest.fixture
def of_a_dead_process(temporary) -> Path:
    """A folder of a process that has the number of this one, and began at another time."""
    made = temporary / f"cudalink-{os.getpid()}-1-x"
    made.mkdir(mode=0o700)
    return made


@pytest.mark.parametrize("change", ["nothing", "a link", "open to all", "another name", "another user's"])
def test_what_is_swept(temporary, of_a_dead_process, change: str, monkeypatch) -> None:
    """A folder of ours whose process is not there any more, and nothing else."""
    made = of_a_dead_process
    (made / "file").touch()
    if change == "a link":
        made = made.rename(temporary / "there")
        of_a_dead_process.symlink_to(made)
    elif change == "open to all":
        made.chmod(0o755)
    elif change == "another name":
        made = made.rename(temporary / "cudalink-1-1")
    elif change == "another user's":
        monkeypatch.setattr(scratch.os, "geteuid", lambda: os.getuid() + 1)
    scratch.root()
    assert (made / "file").exists() == (change != "nothing")


def test_a_fork_ends_before_its_parent(temporary) -> None:
    """It has the folder of its parent, and leaves it there."""
    made = scratch.fresh("a")
    child = os.fork()
    if child == 0:
        same = scratch.root() == made.parent
        scratch._end(made.parent, os.getppid())
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert made.is_dir()


LEAVES = """
import ctypes, os, signal, subprocess, sys
cuda = ctypes.CDLL("libcuda.so.1")

def test():
    assert cuda.cuInit(0) == 0
    if cuda.cuDeviceGetCount(ctypes.byref(ctypes.c_int())):
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ("--cudalink-fault-sweep=cuDeviceGetCount",),
        pytest.param(("--cudalink-processes=isolated", "--cudalink-schedules=3:1"), marks=pytest.mark.slow),
        pytest.param(("-n1", "--cudalink-faults=cuDeviceGetCount:1=2"), marks=pytest.mark.slow),
    ],
    ids=["sweep", "isolated", "worker"],
)
def test_run(pytester: pytest.Pytester, run_pytest, temporary, arguments) -> None:
    """A run leaves nothing, also where a process of it was killed."""
    pytester.makepyfile(LEAVES)
    run_pytest("--cudalink-driver=13.0", *arguments)
    assert not [*temporary.glob("cudalink*")]
