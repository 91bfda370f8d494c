"""A record file that cannot be written: one warning, the run goes on, and the exit code is not 0."""

import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pytest_cudalink import cli
from pytest_cudalink.report.merge import merge
from tests.nested import ALONE, BOTH, NO_AUTOLOAD, with_plugins

MODES = pytest.mark.parametrize("mode", [ALONE, BOTH])
MODULE = """
import pytest
@pytest.mark.parametrize("n", range({count}))
def test(n): pass
"""
SAID = "the record cannot be written: --cudalink-report is"


def run(folder: Path, count: int, *arguments: str, size: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run pytest on a number of tests that pass, where no file may be larger than a size."""

    def limit() -> None:
        if size is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    (folder / "test_a.py").write_text(MODULE.format(count=count), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *with_plugins(*arguments)]
    # the file that starts a second process has the environment, and must be smaller than the limits of these tests
    kept_variables = {
        name: os.environ[name] for name in ("PATH", "HOME", "LANG", "PYTHONPATH", "TMPDIR") if name in os.environ
    }
    environment = {**kept_variables, **NO_AUTOLOAD, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, preexec_fn=limit
    )


def expect(done: subprocess.CompletedProcess[str], count: int, reason: str) -> None:
    """Every test ran, the problem is named once with what is lost, and the exit code is that of failed tests."""
    shown = done.stdout + done.stderr
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, shown
    assert f"{count} passed" in shown
    assert "INTERNALERROR" not in shown
    assert shown.count(SAID) == 1, shown
    assert f"{reason}; what followed is not recorded, so that a report counts this run as incomplete" in shown


def test_a_device_that_is_full(tmp_path) -> None:
    expect(run(tmp_path, 4, "--cudalink-report=/dev/full"), 4, "No space left on device")


@MODES
def test_a_file_that_may_not_grow(mode, tmp_path, capsys) -> None:
    """The write that passes the limit takes a part, the next one fails with EFBIG; the cell is incomplete."""
    count = 12 if "--cudalink-processes=isolated" in mode else 60
    done = run(tmp_path, count, "--cudalink-report=run.jsonl", "-p", "no:faulthandler", *mode, size=5000)
    expect(done, count, "File too large")
    content = (tmp_path / "run.jsonl").read_bytes()
    assert len(content) == 5000
    (cell,) = merge([tmp_path / "run.jsonl"]).cells
    assert not cell.finished
    assert len(cell.outcomes) < count
    assert cell.fault.startswith("the run did not finish (")
    assert cli.main(["report", str(tmp_path / "run.jsonl")]) == 1
    assert "incomplete" in capsys.readouterr().err


@pytest.mark.slow
def test_only_the_end_is_lost(tmp_path) -> None:
    """The last event is written after the summary of the run: it counts all the same."""
    assert run(tmp_path, 1, "--cudalink-report=run.jsonl").returncode == 0
    size = (tmp_path / "run.jsonl").stat().st_size - 10
    expect(run(tmp_path, 1, "--cudalink-report=run.jsonl", size=size), 1, "File too large")


def test_a_pipe_that_is_closed(tmp_path) -> None:
    """A reader that ends, such as `head`, ends the record and not the run."""
    (tmp_path / "conftest.py").write_text("import time\ndef pytest_collection_finish(): time.sleep(1)\n")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    def read_once() -> None:
        while not select.select([reading], [], [], 60)[0] or not os.read(reading, 10):
            time.sleep(0.01)
        os.close(reading)

    reader = threading.Thread(target=read_once)
    reader.start()
    done = run(tmp_path, 3, f"--cudalink-report={pipe}")
    reader.join()
    expect(done, 3, "Broken pipe")


EVENTS_SAID = "the events of the emulated driver cannot be written: cudalink_events is /dev/full (from ini): "
CALL = "import ctypes\nctypes.CDLL('libcuda.so.1').cuInit(0)\n"


@MODES
def test_events_on_a_device_that_is_full(mode, tmp_path) -> None:
    (tmp_path / "conftest.py").write_text(f"def pytest_runtest_call():\n    {CALL.replace(chr(10), '; ')}\n")
    done = run(tmp_path, 4, "-q", "--cudalink-driver=13.0", "-ocudalink_events=/dev/full", *mode)
    shown = done.stdout + done.stderr
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, shown
    assert "4 passed" in shown
    assert "INTERNALERROR" not in shown
    assert shown.count(EVENTS_SAID) == 1, shown
    assert f"{EVENTS_SAID}No space left on device; calls are missing in that file" in shown


def test_events_of_a_program(tmp_path) -> None:
    """A program on the emulated driver says once that its events are lost; it keeps its own exit code."""
    command = [sys.executable, "-m", "pytest_cudalink.cli", "driver", "run", "--version", "13.0"]
    command += ["--events", "/dev/full", "--", sys.executable, "-c", CALL + "ctypes.CDLL('libcuda.so.1').cuInit(0)"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr == "cudalink: CUDALINK_EMULATOR_EVENTS: cannot write to /dev/full: No space left on device\n"
    assert done.returncode == 0
