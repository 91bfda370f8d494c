"""The command as a program: what becomes of its output."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "pytest_cudalink.cli", "toolchain", "list"]
FULL = Path("/dev/full")


def test_nobody_reads() -> None:
    """A reader that has left, as `head` does, ends the command without a traceback, with a shell's code for it."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as output:
        done = subprocess.run(COMMAND, stdout=output, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (141, "")


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
    done = subprocess.run(
        [*COMMAND[:3], "init", "--ci=none"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert 0 <= done.stdout.find("leave   matrices/cells.toml") < done.stdout.find("cudalink init: left unchanged")
