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
