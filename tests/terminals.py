"""Programs on a pseudo-terminal: what a user would see, as bytes."""

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

_PATIENCE = 60.0


class OnTerminal(NamedTuple):
    """A program that ended: its exit code, and what the terminal got of both streams with the time of each piece."""

    code: int
    pieces: list[tuple[float, bytes]]

    @property
    def output(self) -> str:
        return b"".join(piece for _, piece in self.pieces).decode()


_INTERRUPTIBLE = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])"
)


def on_terminal(
    command: Sequence[str],
    environment: Mapping[str, str],
    react: Callable[[int, bytes], None] = lambda _terminal, _seen: None,
) -> OnTerminal:
    """Run a program on a terminal of 80 columns; `react` gets the terminal and all output so far, after each piece."""
    ours, theirs = pty.openpty()
    began = time.monotonic()
    # a session with this terminal, so that Ctrl-C reaches the program; also where a shell runs these tests in the
    # background, and lets them ignore it
    child = subprocess.Popen(
        ["setsid", "-c", "-w", sys.executable, "-c", _INTERRUPTIBLE, *command],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={"COLUMNS": "80", **environment},
    )
    os.close(theirs)
    pieces: list[tuple[float, bytes]] = []
    try:
        while time.monotonic() - began < _PATIENCE and select.select([ours], [], [], _PATIENCE)[0]:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the last process closed its side
                break
            pieces.append((time.monotonic() - began, piece))
            react(ours, b"".join(seen for _, seen in pieces))
        return OnTerminal(child.wait(_PATIENCE), pieces)
    finally:
        child.kill()
        child.wait()
        os.close(ours)
