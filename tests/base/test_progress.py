"""The line that shows what a command waits for, on a terminal and elsewhere."""

import io
import os
import re
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from pytest_cudalink.base import progress as module
from pytest_cudalink.base.progress import is_shown, progress
from tests.terminals import on_terminal

#: Its steps take some seconds, or until the terminal sends a line, which is not echoed.
_PROGRAM = """
import sys, termios, time
from pytest_cudalink.base import progress as module

delay, pause = map(float, sys.argv[1:])
module.DELAY, module._INTERVAL = delay, 0.01
if pause < 0:
    settings = termios.tcgetattr(0)
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(0, termios.TCSANOW, settings)
try:
    with module.progress("fetching toolchain 12.9", 3) as step:
        for number in range(3):
            time.sleep(pause) if pause >= 0 else sys.stdin.readline()
            step.advance()
            step.say("nvrtc " * (number + 1))
except KeyboardInterrupt:
    sys.stderr.write("interrupted\\n")
    sys.exit(130)
print("done")
"""


def _environment(**more: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LD_LIBRARY_PATH") if name in os.environ}
    return {**kept, "TERM": "xterm", **more}


def _command(delay: float, pause: float = -1) -> list[str]:
    return [sys.executable, "-c", _PROGRAM, str(delay), str(pause)]


class _Watching:
    """Sends a line for each step as soon as the terminal shows it."""

    sent = 0

    def __call__(self, terminal: int, output: bytes) -> None:
        if self.sent < 3 and f", {self.sent} of 3, {'nvrtc ' * self.sent}".encode() in output:
            self.sent += os.write(terminal, b"\n")


def _screen(output: str) -> list[str]:
    """Return the lines that remain on the screen: a carriage return with an erased line leaves nothing."""
    return [line.rpartition("\r\x1b[K")[2] for line in output.replace("\r\n", "\n").split("\n")]


def test_line_is_rewritten_and_cleared() -> None:
    """A terminal sees one line that changes, nothing of it at the end, and no escape but the one that erases a line."""
    seen = on_terminal(_command(0.1), _environment(NO_COLOR="1"), _Watching())
    assert seen.code == 0
    drawn = [part for part in seen.output.split("\r\x1b[K") if part.startswith("fetching")]
    assert re.fullmatch(r"fetching toolchain 12\.9, 0 of 3, \d s", drawn[0])
    assert any(re.fullmatch(r"fetching toolchain 12\.9, 2 of 3, nvrtc nvrtc , \d s", part) for part in drawn)
    assert seen.output.count("\n") == 1
    assert set(re.findall(r"\x1b\[[0-9;]*[a-zA-Z]", seen.output)) == {"\x1b[K"}
    assert _screen(seen.output) == ["done", ""]


def test_nothing_before_the_delay() -> None:
    """Work that is done within two seconds draws nothing; longer work draws from then on."""
    assert module.DELAY == 2.0
    seen = on_terminal(_command(2.0, 0.05), _environment())
    assert seen.output == "done\r\n"
    seen = on_terminal(_command(0.3), _environment(), _Watching())
    assert seen.pieces[0][1].startswith(b"\r\x1b[K")
    assert seen.pieces[0][0] >= 0.3


def test_silent_in_a_pipe() -> None:
    """A pipe gets the same bytes as a command without a progress."""
    done = subprocess.run(_command(0.0, 0.05), env=_environment(), capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"done\n", b"")


def test_interrupt_leaves_a_clean_line() -> None:
    """Ctrl-C clears the line, with the ^C that the terminal wrote into it, before the message."""
    pressed: list[int] = []

    def press(terminal: int, output: bytes) -> None:
        if b"fetching" in output and not pressed:
            pressed.append(os.write(terminal, b"\x03"))

    seen = on_terminal(_command(0.1, 20.0), _environment(), press)
    assert seen.code == 130
    assert _screen(seen.output) == ["interrupted", ""]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return not self.closed or super().isatty()


def _draw(monkeypatch: pytest.MonkeyPatch, work: Any) -> str:
    """Return what a body that takes a moment writes to a terminal of 40 columns."""
    monkeypatch.setattr(module, "DELAY", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.delenv("CI", raising=False)
    stream = _Terminal()
    with progress("work", stream=stream) as step:
        work(step)
        monkeypatch.setattr(module, "_INTERVAL", 0.01)
        while stream.getvalue().count("work") < 2:
            time.sleep(0.01)
    return stream.getvalue()


def test_long_line_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line never reaches the last column, where a terminal would wrap it, and has no control characters."""
    output = _draw(monkeypatch, lambda step: step.say("x\n\x1b[31m" * 40))
    for part in output.split("\r\x1b[K"):
        assert (len(part) == 39) == part.endswith("…") == ("x" in part)
        assert part.isprintable()
    assert "…" in output


@pytest.mark.parametrize(
    ("variables", "drawn"),
    [
        *((variables, False) for variables in ({}, {"TERM": "dumb"})),
        *(({"TERM": "xterm", "CI": value}, value not in ("true", "1")) for value in ("true", "1", "False", "0", "")),
        ({"TERM": "xterm"}, True),
    ],
    ids=str,
)
def test_where_a_line_is_drawn(variables: dict[str, str], drawn: bool) -> None:
    """Not where a terminal cannot erase, in a job of CI that keeps every line, and where stderr is closed."""
    stream = _Terminal()
    assert is_shown(stream, variables) == drawn
    stream.close()
    assert not is_shown(stream, variables)


def test_what_a_line_says() -> None:
    """The label, how much is done and of how much, and the seconds."""
    step = module.Progress("work", None)
    assert re.fullmatch(r"work, \d s", str(step))
    step.advance()
    assert re.fullmatch(r"work, 1, \d s", str(step))
    step.set(0, 12)
    step.say("nvrtc")
    assert re.fullmatch(r"work, 0 of 12, nvrtc, \d s", str(step))


def test_error_passes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the body raises is raised, after the line is cleared; no thread is left."""
    with pytest.raises(ZeroDivisionError):
        _draw(monkeypatch, lambda _step: 1 / 0)
    assert not [thread for thread in threading.enumerate() if thread.name == "cudalink-progress"]
