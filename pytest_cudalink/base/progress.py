"""The line that shows what a command waits for: on a terminal only, after two seconds, and gone at the end.

It is drawn by a thread, because what takes long blocks: a child that downloads, a link. tqdm and rich draw only when
they are called, and would be dependencies of every installation for one line. `run_and_tell` shows what uv or pip says.
"""

import os
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final, TextIO

#: Seconds before anything is drawn; a command that is done by then says nothing.
DELAY: Final = 2.0
_INTERVAL: Final = 0.2
_CLEAR: Final = "\r\x1b[K"


def is_shown(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether a line may be rewritten on a stream: a terminal that can, and not the log of a CI job."""
    if environment.get("TERM", "dumb") == "dumb" or environment.get("CI", "").lower() not in ("", "0", "false"):
        return False
    try:
        return stream.isatty()
    except ValueError:  # a closed stream
        return False


class Progress:
    """The progress of one piece of work, and its line. The body's calls only store what the next drawing shows."""

    def __init__(self, label: str, total: int | None) -> None:
        self._label, self._total = label, total
        self._done = 0
        self._text = ""
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        """Show a text after the label, in place of the last one."""
        self._text = text

    def advance(self) -> None:
        """Count one more as done."""
        self._done += 1

    def set(self, done: int, total: int) -> None:
        """Replace what is done and how much there is."""
        self._done, self._total = done, total

    def __str__(self) -> str:
        """Return the line: label, ``3 of 12`` or ``3``, the text, and the seconds since the beginning."""
        counts = [str(self._done)] if self._done or self._total else []
        if self._total:
            counts.append(str(self._total))
        parts = [self._label, " of ".join(counts), self._text, f"{time.monotonic() - self._began:.0f} s"]
        return ", ".join(filter(None, parts))

    def draw(self, stream: TextIO, over: threading.Event) -> None:
        """Draw until the work is over, then clear the line."""
        if over.wait(DELAY):
            return
        # a terminal that is gone, or a stream that is closed, must not end the work
        with suppress(OSError, ValueError):
            while True:
                # one column stays free, because a full line wraps and could not be cleared
                width = shutil.get_terminal_size().columns - 1
                text = "".join(char if char.isprintable() else " " for char in str(self))
                stream.write(f"{_CLEAR}{text if len(text) <= width else f'{text[: width - 1]}…'}")
                stream.flush()
                if over.wait(_INTERVAL):
                    break
            stream.write(_CLEAR)
            stream.flush()


@contextmanager
def progress(label: str, total: int | None = None, *, stream: TextIO | None = None) -> Iterator[Progress]:
    """Show on stderr what is done while the body runs, if that takes longer than `DELAY`.

    The line is cleared when the body ends, also by an exception or Ctrl-C. Output of the body belongs after it. Nothing
    is written into a pipe, a file, a terminal with ``TERM=dumb``, or in a CI job. The line has no colour.

    `label`: what is done, such as ``"fetching toolchain 12.9"``.
    `total`: how much there is to do.
    `stream`: default ``sys.stderr``.
    """
    line, out = Progress(label, total), stream or sys.stderr
    if not is_shown(out):
        yield line
        return
    over = threading.Event()
    thread = threading.Thread(target=line.draw, args=(out, over), name="cudalink-progress", daemon=True)
    thread.start()
    try:
        yield line
    finally:
        over.set()
        thread.join()


#: Lines of an installer that an error shows.
_MOST_LINES: Final = 12


def run_and_tell(command: Sequence[str], tell: Callable[[str], object]) -> tuple[int, str]:
    """Run an installer without its quiet option, and report each line; return its exit code and its last lines."""
    loud, said = [word for word in command if word != "-q"], deque[str](maxlen=_MOST_LINES)
    with subprocess.Popen(  # noqa: S603 (a command of ours)
        loud, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as child:
        assert child.stdout is not None
        try:
            for line in filter(None, map(str.rstrip, child.stdout)):
                tell(line.lstrip())
                said.append(line)
        except BaseException:  # Ctrl-C: the download of an interrupted command must not go on
            child.kill()
            raise
    return child.returncode, "\n".join(said)
