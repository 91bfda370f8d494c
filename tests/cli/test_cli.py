"""The command as a program: what becomes of its output."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_cudalink import cli, toolchains

COMMAND = [sys.executable, "-m", "pytest_cudalink.cli", "toolchain", "list"]
ROOT = Path(__file__).parents[2]
FULL = Path("/dev/full")


#: A way to call each command that prints something and changes nothing.
CALLS = (
    *("toolchain list", "matrix list", "matrix check", "matrix check --schema", "matrix show ctk-13.0"),
    *("matrix github", "doctor", "driver info", "can-link 13.0 12.9 ptx"),
    *("audit --help", "report --help", "--help", "--version", "stubs list", "demo", "init --help"),
)


@pytest.mark.parametrize(
    "call",
    [pytest.param(call, marks=() if call in ("toolchain list", "matrix list") else pytest.mark.slow) for call in CALLS],
)
def test_nobody_reads(call: str) -> None:
    """A reader that has left, as `head` does, ends the command without a word, with a shell's code for it."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as output:
        command = [*COMMAND[:3], *call.split()]
        done = subprocess.run(command, cwd=ROOT, stdout=output, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (141, "")


def test_an_error_of_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what the output cannot take is "cannot write"; other errors keep their traceback."""
    monkeypatch.setattr(toolchains, "installed", lambda: (_ for _ in ()).throw(PermissionError(13, "of a file")))
    with pytest.raises(PermissionError, match="of a file"):
        cli.main(["toolchain", "list"])


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
def test_full_disk() -> None:
    """What cannot be written is one line and exit code 1."""
    with FULL.open("w") as full:
        done = subprocess.run(COMMAND, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "cudalink: cannot write: [Errno 28] No space left on device\n")


def test_both_streams_in_one_log(tmp_path: Path) -> None:
    """A log of both streams has their lines in the order in which they were written."""
    (tmp_path / "matrices").mkdir()
    (tmp_path / "matrices" / "cells.toml").write_text("# ours\n")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    command = [*COMMAND[:3], "init", "--ci=none"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=False, **streams)
    assert done.returncode == 1
    assert 0 <= done.stdout.find("leave   matrices/cells.toml") < done.stdout.find("cudalink init: left unchanged")
